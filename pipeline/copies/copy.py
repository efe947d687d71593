"""Defines the copy protocol: what a store must do to receive the rows of mirrors.

A copy stores its own position, next to its rows. The position moves in one step with the rows,
or after them. So after a crash the next process starts at that position and writes the same
rows again. This changes nothing: each row has a rank, and an older row never replaces a newer
one.

`CopyPosition` is the version of the mirror that a copy holds, as the copy itself reports it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from pipeline import copies, plugins
from pipeline.minute_counts import MinuteCounts


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """The copy holds all rows of ``version`` of ``mirror`` (a table's id).

    ``entry`` is the digest of that version's log entry; ``batch`` is the last batch applied in it.
    ``load`` counts the full loads of the copy, the running one included.  During a load, ``parts``
    is the number of parts written so far; afterwards it is None.  ``load_id`` is random for each
    load, and empty if an earlier version of Sluice began the load.
    """

    mirror: str
    version: int
    batch: int
    entry: str = ""
    load: int = 1
    parts: int | None = None
    load_id: str = ""

    @property
    def lineage(self) -> str:
        """Id of the load that all rows of the copy come from: the mirror's id and the load's.

        If the load has no id, it is the mirror's id.
        """
        return f"{self.mirror}:{self.load_id}" if self.load_id else self.mirror

    @property
    def whole(self) -> bool:
        """Whether the copy has all rows of the version: no load is running."""
        return self.parts is None


if TYPE_CHECKING:
    from pipeline.apply.row_metadata import RowOrigins  # it loads pandas, which no config needs


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A mirror's columns, without ``_sluice``; ``key`` names those that identify a row.

    ``sharded``: rows of two shards may have the same key, so source and shard are part of it.
    """

    name: str
    columns: pa.Schema
    key: tuple[str, ...]
    sharded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """Rows, or keys of rows; ``owned`` has their owners and ranks, in the same order."""

    rows: pa.Table
    owned: "RowOrigins"


@dataclass(frozen=True, slots=True, eq=False)
class CopyStep:
    """The step of a table's copy from position ``was`` to ``now``.

    ``came`` are rows to write, ``went`` keys of rows to remove.  A key in both was rewritten: its
    row remains.  Both are read while they are written.  ``was`` is None if there was no copy.
    """

    was: CopyPosition | None
    now: CopyPosition
    came: Iterable[RankedRows] = ()
    went: Iterable[RankedRows] = ()

    @property
    def sweeps(self) -> bool:
        """Whether it ends a load, so rows that only earlier loads wrote must be removed."""
        return self.now.whole and self.was is not None and not self.was.whole


@dataclass(frozen=True, slots=True)
class CopiedVersion:
    """A version of its mirror that a copy has reached, by following its commit or by a load.

    ``at`` is the time of the commit; None means that all rows of the version were loaded.  If
    ``swept``, the load also removed rows that only earlier loads had written.  ``changed`` are the
    rows that the commit changes, as its merge counted them.  ``taken`` are those that the copy
    wrote or removed, as it counted them.  Both are None if unknown.  ``lineage`` is that of the
    copy's position.
    """

    version: int
    at: datetime | None = None
    changed: MinuteCounts | None = None
    taken: MinuteCounts | None = None
    swept: bool = False
    lineage: str = ""

    @classmethod
    def loaded(cls, at: CopyPosition) -> "CopiedVersion":
        """The version of a load that has ended; *at* is the copy's position."""
        return cls(at.version, swept=at.load > 1, lineage=at.lineage)


class CopyTarget(Protocol):
    """A client of one copy, for one thread at a time.

    Each method may raise ``UnreachableError``: the outcome is unknown until the position is read.
    """

    def positions(self) -> Mapping[str, CopyPosition]:
        """The stored position of each table that the copy has.

        Raises:
            HeldError: ``copy_taken``, the store holds another lake's copy.
        """
        ...

    def shaped(self, table: CopiedTable) -> None:
        """Prepare the store for the table's rows; add missing columns.

        Raises:
            HeldError: the existing table cannot hold them; the message has the fix.
        """
        ...

    def write(self, table: CopiedTable, step: CopyStep) -> int | None:
        """Write ``step.came``, then remove ``step.went``, then set the position to ``step.now``.

        Returns how many of ``step.went`` have no row in the copy afterwards, even if another client
        removed it; None if that is not counted.

        A new row replaces the row with its key, unless that row has the same source and a higher
        rank.  A row is removed only if it has the same source, its rank is not higher, and this
        step did not write it.  Rows of an earlier load rank below all others.

        The step of a commit that was not counted is repeated, with equal ``was`` and ``now``.

        Raises:
            LostRaceError: the position is not ``step.was``, because another process has moved it.
            HeldError: ``copy_written``, a row was not written because another client wrote a newer
                one; or the store cannot hold a value.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Copy(Protocol):
    """A store that receives a mirror's rows; its settings are the fields of its class.

    ``repr=False`` marks secrets.
    """

    @property
    def place(self) -> str:
        """Where it writes, without secrets; two copies of one place would overwrite each other."""
        ...

    def opened(self, owner: str) -> CopyTarget:
        """Return a client, which connects at its first request; *owner* names the copied lake."""
        ...


def known_copies() -> tuple[str, ...]:
    """Names of all kinds of copies, sorted."""
    return plugins.list_keys(copies, "COPY")


def find_copy(name: str) -> type[Copy]:
    """The copy class of the kind *name*.

    Raises:
        ConfigError: the kind is unknown.
    """
    return cast("type[Copy]", plugins.find_class(copies, "COPY", name))
