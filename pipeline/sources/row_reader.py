"""What does re-reading ask of a database server?  A second protocol beside `Source`.

Rows are read from behind a fence: all that was committed before ``ReadFence.head`` is in them.
What was committed after it may be in them, too, and then comes as a change that is newer.
Methods raise what those of a `Source` do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Protocol

import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.model import Head, Position, Shard
from pipeline.schema.model import Notation, TableSchema, TableTold
from pipeline.settings import SourceSettings
from pipeline.sources.condition import Condition
from pipeline.sources.limits import Limits

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


class Beaten(Protocol):
    """A server that has the heartbeats of its primary, or is that."""

    @property
    def settings(self) -> SourceSettings:
        """Where it is."""
        ...

    def beaten(self) -> datetime | None:
        """The time of the newest heartbeat that is there; None without any."""
        ...


def refuse_lagging(primary: Beaten, read: Beaten, limits: Limits) -> None:
    """Read nothing of a replica that is far behind: what it catches up with comes first.

    Both times are of heartbeats, so no clock is compared with another.

    Raises:
        SparedError: it is.
    """
    if read is primary:
        return
    newest, there = primary.beaten(), read.beaten()
    if newest is not None and there is not None:
        limits.refuse_lag(newest - there, f"source:{primary.settings.name}")


OpenRows = Callable[[SourceSettings], RowReader]


def replica_of(settings: SourceSettings) -> SourceSettings | None:
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
