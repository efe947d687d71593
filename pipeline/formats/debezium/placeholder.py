"""Removes values that Debezium did not send, and names the columns that are missing then.

Values of a large column that an UPDATE leaves as it is are not in the log. The connector writes
its `unavailable.value.placeholder` instead. A column with it is removed here, unless the row
before has its value.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec import Raw

UNAVAILABLE = "__debezium_unavailable_value"  # the default of the connector


@dataclass(frozen=True, slots=True)
class Partial:
    """A row without its missing values, the names of its columns, and those of the missing ones.

    No names where nothing is missing after all.
    """

    text: str
    names: tuple[str, ...] | None
    left_out: tuple[str, ...] | None


@dataclass(frozen=True)  # without slots: its spellings are worked out once
class Placeholder:
    """The connector's ``unavailable.value.placeholder``, in place of a value it did not send."""

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

        A value in the row *before* is used: it was not changed.

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
