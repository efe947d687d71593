"""Defines the copy protocol: what a store must do to receive the rows of mirrors.

A copy stores its own position, beside its rows. The position moves with the rows in one step,
or after them. So after a crash the next process begins at that position and writes the same
rows again. This changes nothing: each row carries its rank, and an older row never replaces a
newer one.

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
    """All rows of ``mirror``, a table's id, as of ``version``; ``entry`` is its digest.

    ``batch`` is the one that this version is applied through.  ``load`` counts how often the copy
    has been loaded whole.  While that goes on, ``parts`` of the version are in; None afterwards.
    ``load_id`` is random for each load; it is empty if an earlier version of Sluice began the load.
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
        """Identify the load of the mirror that all rows of the copy descend from.

        It is the id of the mirror alone if the load has no id.
        """
        return f"{self.mirror}:{self.load_id}" if self.load_id else self.mirror

    @property
    def whole(self) -> bool:
        """Whether nothing of that version is lacking."""
        return self.parts is None


if TYPE_CHECKING:
    from pipeline.apply.row_metadata import RowOrigins  # it loads pandas, which no config needs


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A mirror's columns, without ``_sluice``, and those that identify a row.

    ``sharded``: rows of two shards may have one key, so source and shard belong to it.
    """

    name: str
    columns: pa.Schema
    key: tuple[str, ...]
    sharded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows:
    """Rows, or keys of rows, and in their order whose they are and what decides over them."""

    rows: pa.Table
    owned: "RowOrigins"


@dataclass(frozen=True, slots=True, eq=False)
class CopyStep:
    """From one position of a table's copy to another: rows that came, and rows that went.

    A key may stand in both: then its row was rewritten, and stays.  What came in parts is read
    while it is written.  ``was`` is missing where nothing was there.
    """

    was: CopyPosition | None
    now: CopyPosition
    came: Iterable[RankedRows] = ()
    went: Iterable[RankedRows] = ()

    @property
    def sweeps(self) -> bool:
        """Whether it ends a load: rows that only earlier ones brought are then to go."""
        return self.now.whole and self.was is not None and not self.was.whole


@dataclass(frozen=True, slots=True)
class CopiedVersion:
    """A version of its mirror that a copy has come to hold.

    It has followed the commit of it, which was made ``at``. None: all rows of the version were
    loaded, and if ``swept``, those that only earlier loads had brought were removed.  ``changed``
    are the rows that the commit changes, as its merge counted them, and ``taken`` those that the
    copy took over, as the copy counted them; None if that is unknown.
    ``lineage`` is that of the position that the copy is at.
    """

    version: int
    at: datetime | None = None
    changed: MinuteCounts | None = None
    taken: MinuteCounts | None = None
    swept: bool = False
    lineage: str = ""

    @classmethod
    def loaded(cls, at: CopyPosition) -> "CopiedVersion":
        """The version of a load that has ended *at* this position."""
        return cls(at.version, swept=at.load > 1, lineage=at.lineage)


class CopyTarget(Protocol):
    """An open copy; one thread at a time.

    Each method may raise ``UnreachableError``: the outcome is unknown until the position is read.
    """

    def positions(self) -> Mapping[str, CopyPosition]:
        """Where each table stands that is here.

        Raises:
            HeldError: ``copy_taken``, another lake's copy stands here.
        """
        ...

    def shaped(self, table: CopiedTable) -> None:
        """Make place for the table's rows; missing columns are added.

        Raises:
            HeldError: what is there cannot become that; says what solves it.
        """
        ...

    def write(self, table: CopiedTable, step: CopyStep) -> int | None:
        """Put in what came, then take out what went, and stand at ``step.now``.

        Returns how many of the rows that went have no row in the copy afterwards, also if
        another client took it out; None if that is not counted.

        A row takes the place of one with its key unless that is of the same source and of a higher
        rank; one that went is taken out only if it is of a lower one, or its own, and was not
        written by the same step.  Rows of an earlier load are below all others.

        The step of a commit that was not counted is repeated, from ``step.now`` to the same.

        Raises:
            LostRaceError: the table does not stand at ``step.was``: somebody else has moved it.
            HeldError: ``copy_written``, rows that came found newer ones of somebody else's; or a
                value cannot be kept there.
        """
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Copy(Protocol):
    """A store that rows are sent on to.  Its settings are the fields of its class.

    ``repr=False`` marks secrets.
    """

    @property
    def place(self) -> str:
        """Where it writes, without secrets: two copies of one place would write over each other."""
        ...

    def opened(self, owner: str) -> CopyTarget:
        """A client; it connects later.  *owner* names the lake whose copy it is."""
        ...


def known_copies() -> tuple[str, ...]:
    """Kinds of copies there are, sorted."""
    return plugins.list_keys(copies, "COPY")


def find_copy(name: str) -> type[Copy]:
    """The class of that kind.

    Raises:
        ConfigError: the kind is unknown.
    """
    return cast("type[Copy]", plugins.find_class(copies, "COPY", name))
