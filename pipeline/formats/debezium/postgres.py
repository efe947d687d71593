"""Where does a row of the Postgres connector stand in its log, and what has it left out?

Measured on 3.5, pgoutput: ``source.sequence`` is the text ``["a","b"]``, a the end of the last
commit before the row's transaction (null until the connector has seen one), b the row's own
place, which is ``source.lsn``.  Places rise within a transaction, commits from one to the next; so
the order is (a, place).  A changed key is a delete and a create of one place, in this order.

Values of a large column that an UPDATE leaves as it is are not in the log: the connector writes a
placeholder in their stead.  Such a field is taken out here, unless the row before tells it.  Pure.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec import Raw

from pipeline.formats.json_text import integer_of, text_of
from pipeline.model import Op

CONNECTOR = "postgresql"
MESSAGE = "m"  # pg_logical_emit_message: no row, and no table
UNAVAILABLE = "__debezium_unavailable_value"  # as the connector writes it by itself
PLACE = r"[0-9]{1,18}"
COMMIT = rf'\[(?:null|"(?P<commit>{PLACE})"),(?:null|"{PLACE}")\]'
SEQUENCE = re.compile(COMMIT)
TX = re.compile(rf"({PLACE}):{PLACE}")  # the transaction's number, and a place that differs

Slices = Mapping[str, str]


def is_postgres(source: Slices) -> bool:
    """Whether a source block is the Postgres connector's."""
    return text_of(source.get("connector")) == CONNECTOR


def place(source: Slices, op: Op) -> tuple[int, int, int] | None:
    """Log, position and row of a change; None where the block does not tell."""
    found = SEQUENCE.fullmatch(text_of(source.get("sequence")) or "")
    own = integer_of(source.get("lsn"))
    if found is None or own is None:
        return None
    return int(found["commit"] or own), own, row_of(op)


def is_first(source: Slices) -> bool:
    """Whether the connector had seen no commit before the row's transaction.

    That one may have been open while the slot was made: then its rows stand below the snapshot,
    which has none of them.
    """
    found = SEQUENCE.fullmatch(text_of(source.get("sequence")) or "")
    return found is not None and found["commit"] is None


def is_signalled(source: Slices) -> bool:
    """Whether a row of a snapshot was read because a signal asked for that.

    Measured on 3.7: a snapshot of all tables knows of no commit, also where the connector had
    stored one before; one that a signal asks for has the last commit that was streamed.
    Cannot see: one that is asked for before any commit was.
    """
    found = SEQUENCE.fullmatch(text_of(source.get("sequence")) or "")
    return found is not None and found["commit"] is not None


def row_of(op: str | None) -> int:
    """A deleted row's old key goes before its new one comes, at one place."""
    return 0 if op == Op.DELETE else 1


def tx_id(name: str) -> str:
    """The transaction that *name* names: its beginning, end and rows call it by different ones."""
    found = TX.fullmatch(name)
    return found[1] if found else name


@dataclass(frozen=True, slots=True)
class Partial:
    """A row without the values that were not told, the names of the others, and of those.

    No names where nothing is missing after all.
    """

    text: str
    names: tuple[str, ...] | None
    left_out: tuple[str, ...] | None


@dataclass(frozen=True)  # without slots: its spellings are worked out once
class Placeholder:
    """What stands where a value is not told: the connector's ``unavailable.value.placeholder``."""

    text: str = UNAVAILABLE

    @cached_property
    def spellings(self) -> frozenset[bytes]:
        """How it is written, by the column's type: a text, bytes, or an array's only elements."""
        data = self.text.encode()
        coded = base64.b64encode(data).decode()
        named = _uuid(data)
        numbers = list(data)
        values = (self.text, coded, [self.text], [coded], [named], numbers, {self.text: self.text})
        plain = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in values]
        quoted = json.dumps(plain[-1], ensure_ascii=False)  # a map in a text
        return frozenset(text.encode() for text in (*plain, quoted))

    @cached_property
    def signs(self) -> tuple[str, ...]:
        """One of these stands in every row that has a placeholder."""
        found = {one.decode().strip('[]{}"') for one in self.spellings}
        return tuple(sorted(one for one in found if '"' not in one))

    def left_out(self, after: str, before: str | None) -> Partial | None:
        """*after* without placeholders; None if it has none.

        A value that the row *before* tells stands as it did: it was not changed.

        Raises:
            ValueError: a row is not built as JSON.
        """
        if not any(sign in after for sign in self.signs):
            return None
        try:
            sent = _ROW.decode(after)
            if not any(bytes(value) in self.spellings for value in sent.values()):
                return None
            known = _ROW.decode(before) if before is not None else {}
        except (msgspec.MsgspecError, UnicodeError) as error:
            msg = "a row is not built as JSON"
            raise ValueError(msg) from error
        kept = {name: self._told(value, known.get(name)) for name, value in sent.items()}
        told = {name: value for name, value in kept.items() if value is not None}
        fields = (f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in told.items())
        text, missing = f"{{{','.join(fields)}}}", tuple(name for name in sent if name not in told)
        return Partial(text, tuple(told), missing) if missing else Partial(text, None, None)

    def _told(self, value: Raw, before: Raw | None) -> str | None:
        if bytes(value) not in self.spellings:
            return bytes(value).decode()
        if before is None or bytes(before) in self.spellings or bytes(before) == b"null":
            return None
        return bytes(before).decode()


def _uuid(data: bytes) -> str:
    """Java's ``UUID.nameUUIDFromBytes``: a digest with version and variant put in."""
    digest = bytearray(hashlib.md5(data, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


_ROW = msgspec.json.Decoder(dict[str, Raw])
