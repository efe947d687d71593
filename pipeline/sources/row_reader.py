"""Defines how a backfill reads rows behind a fence, and how it writes them as collector JSON.

The rows contain everything committed before `ReadFence.head`. They may also contain later
commits; those arrive again as newer changes. Methods raise the same errors as those of a
source.

* Keys: a key text is accepted only as the source log writes it. Another spelling would match at
  the source but not in the mirror.
* SQL: the statements along a key are the same for every SQL server. A literal `%` is written
  twice; `%s` is a placeholder.
* Replicas: lag is the difference of two heartbeat times, so two clocks are never compared.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError, ProofError, TooManyRowsError, UnreachableError
from pipeline.formats.json_text import quote
from pipeline.model import Head, Position, Shard
from pipeline.schema.model import Notation, TableSchema, TableTold
from pipeline.settings import SourceSettings
from pipeline.sources.condition import Condition, SqlCondition, require_known, to_sql
from pipeline.sources.source import Limits

KeyTexts = tuple[str, ...]
"""Values of a key, or of its first columns, as texts that only their source reads.

That of an integer is its decimal digits."""

ROWS = pa.schema([("key_values", pa.string()), ("after", pa.string())])
"""A row as its format writes it: as of ``DECODED``."""


@dataclass(frozen=True, slots=True)
class ReadFence:
    """A place in the log: who reads once it is there sees all that was committed before ``head``.

    ``number`` is the heartbeat that was committed after ``head`` was noted.  Another server than
    that of ``head`` may be read only once it has executed all of ``needed``.  ``awaited`` is what
    must have ended by then at the server itself, in words that only the source reads.
    """

    head: Head
    number: int
    needed: Position
    awaited: str = ""


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """At most *limit* rows of *shard* above *after* and not above *until*, by *key*.

    Both may name only the first columns of the key; None is without end.  Of those only rows of
    which *where* is true; and, if there are *keys*, rows under one of these, which are written as
    the ``key_values`` of ``ROWS``.  *declared* are the shard's columns as its log has told them by
    then; None if it has not.
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
    """``ROWS`` in the order of their keys; ``last`` is the key of the last that was looked at.

    That is the last of the rows unless they were asked for by a condition; None without any.
    ``ended`` if none is left up to ``until``.  ``told`` are the columns that these rows have, as
    those of the log would tell them; None where statements do.
    """

    rows: pa.RecordBatch
    last: KeyTexts | None
    ended: bool
    told: TableTold | None = None


class RowReader(Protocol):
    """Rows of one server; a source that has them bears the class as its ``ROW_READER``.

    ``notations`` are those in which it can write values; a class of several has the one that its
    source's format has as a field ``notation``.
    """

    notations: ClassVar[frozenset[Notation]]

    def shards(self) -> tuple[Shard, ...]:
        """Every table that there is, sorted; those of which the log tells nothing yet, too."""
        ...

    def describe(self, shard: Shard) -> TableTold | None:
        """Its columns and key as rows of its log will tell them; None where statements do.

        Asked before a fence: what is written from then on is in the log.

        Raises:
            ProofError: it would not be; says why, and what to do.
        """
        ...

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        """Note where the log ends, then commit a heartbeat, as `Source.beat` does.

        Raises:
            ConfigError: the server commits in another order than it logs.
            ProofError: another server answered meanwhile.
        """
        ...

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        """Keys, ascending, that cut the shard into at most so many pieces; no row is counted."""
        ...

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        """Rows from behind *fence*.

        Raises:
            TooManyRowsError: the server took too long; fewer rows can be asked for.
            ConfigError: it cannot be asked so: there is no such column, or a key is no key of it.
            ProofError: the server that answers is not the fence's, and not proven to be as far.
        """
        ...

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        """How ``key_values`` are written of rows whose one key column has these integers."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class HeartbeatSource(Protocol):
    """A server that has the heartbeats of its primary, or is that."""

    @property
    def settings(self) -> SourceSettings:
        """Where it is."""
        ...

    def heartbeat_time(self) -> datetime | None:
        """The time of the newest heartbeat that is there; None without any."""
        ...


def refuse_lagging(primary: HeartbeatSource, read: HeartbeatSource, limits: Limits) -> None:
    """Read nothing of a replica that is far behind: what it catches up with comes first.

    Both times are of heartbeats, so no clock is compared with another.

    Raises:
        SparedError: it is.
    """
    if read is primary:
        return
    newest, there = primary.heartbeat_time(), read.heartbeat_time()
    if newest is not None and there is not None:
        limits.refuse_lag(newest - there, f"source:{primary.settings.name}")


OpenRows = Callable[[SourceSettings], RowReader]


def read_replica(settings: SourceSettings) -> SourceSettings | None:
    """The server that ``read_from`` among the options names to be read; None if none is named.

    Raises:
        ConfigError: it names none.
    """
    there = str(settings.options.get("read_from", ""))
    if not there:
        return None
    host, _, port = there.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"options.read_from: {there} is no host:port, such as replica-2:3306")
    return replace(settings, host=host, port=int(port))


def require_columns(shard: str, key: Sequence[str], columns: Collection[str]) -> None:
    """Refuse to read *shard* in parts along a *key* that is empty, or none of its *columns*.

    Raises:
        ConfigError: says which shard, and why.
    """
    if not key:
        raise ConfigError(f"{shard} declares no key, so it cannot be read in parts; give it one")
    for name in key:
        if name not in columns:
            raise ConfigError(f"{shard} has no column {name}, which its key names")


def even_bounds(low: int | None, high: int | None, pieces: int) -> tuple[KeyTexts, ...]:
    """Even steps from *low* to *high* that make so many *pieces*; none of an empty table."""
    if low is None or high is None:
        return ()
    found = {low + (high - low) * step // pieces for step in range(1, pieces)}
    return tuple((str(step),) for step in sorted(found))


def parse_key(shard: str, names: Sequence[str], key: str) -> list[str]:
    """The texts in *key*, a JSON array, one for each of the columns *names*.

    Raises:
        ConfigError: there is not one for each.
    """
    texts: list[str] = json.loads(key)
    if len(texts) != len(names) or None in texts:
        told = ", ".join(names)
        raise ConfigError(f"{key} is no key of {shard}, which has {len(names)} values: {told}")
    return texts


def invalid_key_value(shard: str, name: str, column: object, text: str) -> ConfigError:
    """What to raise where *text* is no value of the key column *name*."""
    return ConfigError(f"{text!r} is no value of {shard}'s key column {name}, a {column}")


def require_spelling(shard: str, name: str, text: str, told: str | None) -> None:
    """Refuse *text* of the key column *name* where the log writes the same value as *told*.

    Raises:
        ConfigError: says how it is written.
    """
    if told != text:
        msg = f"{text!r} of {shard}'s key column {name} is written {told!r} in its log"
        raise ConfigError(f"{msg}; ask for it by that")


Found = tuple[pa.RecordBatch, KeyTexts | None, bool]
"""Rows, the key of the last that was looked at, and whether none is left."""


class SqlKey(Protocol):
    """The columns of a key, in its order, and how the server is asked about them."""

    @property
    def order(self) -> str:
        """What stands behind ORDER BY."""
        ...

    @property
    def wanted(self) -> tuple[str, ...]:
        """What is asked for to get a row's key."""
        ...

    def texts(self, row: Sequence[Any]) -> KeyTexts:
        """A row's values of ``wanted`` as texts."""
        ...

    def above(self, key: KeyTexts) -> SqlCondition:
        """Rows after all that begin with *key*."""
        ...

    def up_to(self, key: KeyTexts) -> SqlCondition:
        """Rows not above those that begin with *key*."""
        ...

    def match_keys(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        """Rows under one of *keys*, each the JSON array of their texts in the log.

        Raises:
            ConfigError: one of them is no key of the shard.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table as its server is asked for it.

    ``name`` and what is ``wanted`` of a row are SQL; ``columns`` are those that a condition may
    speak of, and ``quoted`` writes the name of one.  ``ask`` gives the rows of an answer as the
    server wrote them.
    """

    name: str
    wanted: tuple[str, ...]
    columns: Collection[str]
    key: SqlKey
    quoted: Callable[[str], str]
    ask: Callable[..., pa.RecordBatch]

    def read_rows(self, asked: RowsAsked) -> Found:
        """Rows with their key behind what is wanted of each.

        Under a condition the end of what is looked at is asked for first: a statement then costs
        no more where few rows meet it.

        Raises:
            ConfigError: the condition cannot be asked.
            TooManyRowsError: the server was too slow for so many.
        """
        key, wanted = self.key, (*self.wanted, *self.key.wanted)
        conditions = self._conditions(asked)
        if asked.where is None:
            found = self._select(asked, wanted, conditions)
            return found, self._last(found), len(found) < asked.limit
        require_known(asked.where, asked.shard.name, self.columns)
        end = replace(asked, limit=asked.limit - 1)
        ends = self._select(end, key.wanted, conditions, "1 OFFSET %s")
        last = key.texts(_row(ends, 0)) if len(ends) else None
        if last is not None:
            conditions.append(key.up_to(last))
        conditions.append(to_sql(asked.where, self.quoted))
        found = self._select(asked, wanted, conditions)
        if len(found) == asked.limit:  # rows may have come in between, and have pushed others out
            return found, self._last(found), False
        return found, last, last is None

    def _last(self, found: pa.RecordBatch) -> KeyTexts | None:
        return self.key.texts(_row(found, -1)[len(self.wanted) :]) if len(found) else None

    def _conditions(self, asked: RowsAsked) -> list[SqlCondition]:
        conditions = list[SqlCondition]()
        if asked.after is not None:
            conditions.append(self.key.above(asked.after))
        if asked.until is not None:
            conditions.append(self.key.up_to(asked.until))
        if asked.keys:
            conditions.append(self.key.match_keys(asked.shard.name, asked.keys))
        return conditions

    def _select(
        self,
        asked: RowsAsked,
        wanted: Sequence[str],
        conditions: Sequence[SqlCondition],
        limit: str = "%s",
    ) -> pa.RecordBatch:
        where = " AND ".join(f"({text})" for text, _ in conditions) or "TRUE"
        arguments = [value for _, values in conditions for value in values]
        order = f"ORDER BY {self.key.order} LIMIT {limit}"
        statement = f"SELECT {', '.join(wanted)} FROM {self.name} WHERE {where} {order}"  # noqa: S608
        try:
            return self.ask(statement, *arguments, asked.limit)
        except UnreachableError as error:
            if ": slow: " in str(error):
                raise TooManyRowsError(str(error)) from error
            raise
        except ProofError as error:
            if asked.where is None:
                raise
            raise ConfigError(f"{error}; ask by another condition") from error


def _row(rows: pa.RecordBatch, at: int) -> list[Any]:
    return [column[at].as_py() for column in rows.columns]


BRIEF = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""What every writer of JSON escapes alike, in the order in which it may be replaced."""
FIRST_PLAIN = 0x20
CONTROLS = r"[\x00-\x1f]"


@dataclass(frozen=True, slots=True, eq=False)
class WireTexts:
    """A column's values as texts; ``quoted`` if they stand in quotes in JSON."""

    texts: pa.StringArray
    quoted: bool

    @property
    def fragments(self) -> pa.StringArray:
        """Each as JSON."""
        written = _quoted(self.texts, _json) if self.quoted else self.texts
        return pc.fill_null(written, "null")


def encode_rows(names: Sequence[str], told: Sequence[WireTexts]) -> pa.StringArray:
    """Each row as a JSON object, *told* column by column."""
    parts = list[pa.StringArray | str]()
    for name, one in zip(names, told, strict=True):
        parts += [f"{',' if parts else '{'}{_json(name)}:", one.fragments]
    return pc.binary_join_element_wise(*parts, "}", "")


def encode_keys(texts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Each row's key as a format tells it (``key_values``), *texts* being its columns."""
    parts = list[pa.StringArray | str]()
    for one in texts:
        parts += ["," if parts else "[", pc.fill_null(_quoted(one, quote), "null")]
    return pc.binary_join_element_wise(*parts, "]", "")


def _quoted(texts: pa.StringArray, exact: Callable[[str], str]) -> pa.StringArray:
    """In quotes; *exact* writes those that hold what is not escaped everywhere alike."""
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
