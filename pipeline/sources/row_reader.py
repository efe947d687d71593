"""Defines how a backfill reads rows behind a fence, and how it encodes them like a collector.

The rows contain everything committed before `ReadFence.head`. They may also contain later
commits, which arrive again as newer changes. Methods raise the same errors as those of a source.

* Keys: a key text is accepted only as the source log writes it. Another spelling would match at
  the source but not in the mirror.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError
from pipeline.formats.json_text import quote_text
from pipeline.model import Head, Position, Shard
from pipeline.schema.model import Notation, TableDescription, TableSchema
from pipeline.settings import SourceSettings, parse_host_port
from pipeline.sources.condition import Condition

KeyTexts = tuple[str, ...]
"""Values of a key, or of its first columns, as texts that only their source interprets.

The text of an integer is its decimal digits."""

ROWS = pa.schema([("key_values", pa.string()), ("after", pa.string())])
"""A row as its format writes it; the columns are those of ``DECODED``."""


@dataclass(frozen=True, slots=True)
class ReadFence:
    """A position in the log: a read behind it sees everything that was committed before ``head``.

    ``number`` is the heartbeat that was committed after ``head`` was read.  Another server may be
    read only after it has executed all of ``needed``.  ``awaited`` names the transactions that
    must have ended before a read, in a text that only the source interprets.
    """

    head: Head
    number: int
    needed: Position
    awaited: str = ""


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """A request for at most ``limit`` rows of ``shard`` in the order of ``key``.

    The rows are above ``after`` and not above ``until``, each None without a bound.  A bound may
    have only the first columns of the key.  If set, ``where`` must be true, and the row must have
    one of ``keys``, which are written like the ``key_values`` of ``ROWS``.  ``declared`` is the
    schema that the shard's log describes at the fence; None if it describes none.
    """

    shard: Shard
    key: tuple[str, ...]
    after: KeyTexts | None
    until: KeyTexts | None
    limit: int
    where: Condition | None = None
    keys: tuple[str, ...] = ()
    declared: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class RowsRead:
    """``ROWS`` in the order of their keys; ``last`` is the key of the last row that was scanned.

    Without a condition it is the last of the rows; None if no row was scanned.  ``ended``: no row
    is left up to ``until``.  ``description`` describes the columns as rows of the log do; None if
    DDL does.
    """

    rows: pa.RecordBatch
    last: KeyTexts | None
    ended: bool
    description: TableDescription | None = None


class RowReader(Protocol):
    """Reads rows of one server; the module of its source exports the class as ``ROW_READER``.

    ``notations`` are those in which it can write values.  A class with several has a field
    ``notation``, which is set to that of the source's format.
    """

    notations: ClassVar[frozenset[Notation]]

    def shards(self) -> tuple[Shard, ...]:
        """All existing tables, sorted, even if the log has no event of a table yet."""
        ...

    def describe(self, shard: Shard) -> TableDescription | None:
        """Columns and key as rows of its log will describe them; None if DDL describes them.

        Called before a fence: rows that are written later must be in the log.

        Raises:
            ProofError: new rows would not be in the log; the message has the cause and the fix.
        """
        ...

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        """Read the end of the log, then commit a heartbeat as `Source.write_heartbeat` does.

        Raises:
            ConfigError: the server commits in another order than it logs.
            ProofError: another server answered meanwhile.
        """
        ...

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        """Ascending keys that divide the shard into at most *pieces*; counts no rows."""
        ...

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        """Read rows behind *fence*.

        Raises:
            TooManyRowsError: the server took too long; request fewer rows.
            ConfigError: a column does not exist, or a key is invalid.
            ProofError: the server that answers has not, or not provably, reached the fence.
        """
        ...

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        """The ``key_values`` of rows whose single key column has the integers *ids*."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


OpenRows = Callable[[SourceSettings], RowReader]


def read_replica(settings: SourceSettings) -> SourceSettings | None:
    """The replica that the option ``read_from`` names; None if it is not set.

    Raises:
        ConfigError: it is not ``host:port``.
    """
    there = str(settings.options.get("read_from", ""))
    if not there:
        return None
    host, port = parse_host_port("options.read_from", there, "replica-2:3306")
    return replace(settings, host=host, port=port)


def require_columns(shard: str, key: Sequence[str], columns: Collection[str]) -> None:
    """Reject a *key* that is empty or not among the *columns* of *shard*.

    Raises:
        ConfigError: the message names the shard and the reason.
    """
    if not key:
        raise ConfigError(f"{shard} has no key, so it cannot be read in parts; declare a key")
    for name in key:
        if name not in columns:
            raise ConfigError(f"{shard} has no column {name}, which is in its key; correct key:")


def parse_key(shard: str, names: Sequence[str], key: str) -> list[str]:
    """The texts in *key*, a JSON array, one for each of the columns *names*.

    Raises:
        ConfigError: the number of texts differs, or one is null.
    """
    texts: list[str] = json.loads(key)
    if len(texts) != len(names) or None in texts:
        spelled = ", ".join(names)
        raise ConfigError(
            f"{key} is not a key of {shard}, which has {len(names)} values: {spelled}"
        )
    return texts


def invalid_key_value(shard: str, name: str, column: object, text: str) -> ConfigError:
    """The error for a *text* that is not a value of the key column *name*."""
    return ConfigError(f"{text!r} is not a value of {shard}'s key column {name}, a {column}")


def require_spelling(shard: str, name: str, text: str, spelled: str | None) -> None:
    """Reject *text* of the key column *name* if the log writes the same value as *spelled*.

    Raises:
        ConfigError: the message has the spelling of the log.
    """
    if spelled != text:
        msg = f"{text!r} of {shard}'s key column {name} is written {spelled!r} in its log"
        raise ConfigError(f"{msg}; use that spelling")


BRIEF = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""Escapes that all JSON writers share, in the order of replacement."""
FIRST_PLAIN = 0x20
CONTROLS = r"[\x00-\x1f]"


@dataclass(frozen=True, slots=True, eq=False)
class WireTexts:
    """A column's values as texts; ``quoted``: JSON has them in quotes."""

    texts: pa.StringArray
    quoted: bool

    @property
    def fragments(self) -> pa.StringArray:
        """Each value as JSON."""
        written = _quoted(self.texts, _json) if self.quoted else self.texts
        return pc.fill_null(written, "null")


def encode_rows(names: Sequence[str], spelled: Sequence[WireTexts]) -> pa.StringArray:
    """Each row as a JSON object; *spelled* are the values by column."""
    parts = list[pa.StringArray | str]()
    for name, one in zip(names, spelled, strict=True):
        parts += [f"{',' if parts else '{'}{_json(name)}:", one.fragments]
    return pc.binary_join_element_wise(*parts, "}", "")


class NamedColumn(Protocol):
    """The common part of the columns of all databases."""

    @property
    def name(self) -> str:
        """The column's name."""
        ...


Encoded = TypeVar("Encoded", bound=NamedColumn)


def encode_batch(
    columns: Sequence[Encoded],
    key: Sequence[Encoded],
    found: pa.RecordBatch,
    encode: Callable[[Encoded, pa.Array], WireTexts],
    rows: pa.StringArray | None = None,
) -> pa.RecordBatch:
    """Encode rows in the schema ``ROWS``; *found* begins with the values of *columns*, in order.

    *rows* are the rows as JSON if *encode* must not write them from the columns.
    """
    values = dict(zip((one.name for one in columns), found.columns, strict=False))
    needed = columns if rows is None else key
    texts = {one.name: encode(one, values[one.name]) for one in needed}
    if rows is None:
        rows = encode_rows([*texts], [*texts.values()])
    keys = encode_keys([texts[one.name].texts for one in key])
    return pa.RecordBatch.from_arrays([keys, rows], schema=ROWS)


def encode_keys(texts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Each row's key as a format writes it (``key_values``); *texts* are its columns."""
    parts = list[pa.StringArray | str]()
    for one in texts:
        parts += ["," if parts else "[", pc.fill_null(_quoted(one, quote_text), "null")]
    return pc.binary_join_element_wise(*parts, "]", "")


def _quoted(texts: pa.StringArray, exact: Callable[[str], str]) -> pa.StringArray:
    """Quote *texts*; *exact* writes those with characters that JSON writers escape differently."""
    there = _bytes_in(texts)
    written, odd = texts, {*range(FIRST_PLAIN)} - {ord(char) for char in BRIEF} & there
    for char, escape in BRIEF.items():
        if ord(char) in there:
            written = pc.replace_substring(written, char, escape)
    made = pc.binary_join_element_wise('"', written, '"', "")
    if not odd:
        return made
    strange = pc.fill_null(pc.match_substring_regex(texts, CONTROLS), False)
    rest = pa.array(map(exact, texts.filter(strange).to_pylist()), pa.string())
    return pc.replace_with_mask(made, strange, rest)


def _bytes_in(texts: pa.StringArray) -> set[int]:
    """Which bytes occur in *texts*."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    if data is None or not len(offsets):
        return set()
    there = np.zeros(2**8, np.bool_)
    there[np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]] = True
    return {*np.flatnonzero(there).tolist()}


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
