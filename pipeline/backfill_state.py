"""Defines backfill requests, and the progress of each backfill as the checkpoint stores it.

The rows of a backfill get the order of its fence. The key to read along is empty until
everything below that order has landed, because the table as of that order is unknown before. A
backfill that was given up stays recorded if it has landed rows.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime

from pipeline.model import Order, Origin


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows after the end of the previous stretch, up to and including ``until``; None: no limit.

    ``read`` is the key up to which they have landed, at first the end of the previous stretch. Both
    are texts that only the source reads. For rows that are requested by their keys, ``read`` is the
    number of keys that are done.
    """

    until: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """A shard that is read again from its source; its rows get the order ``order``.

    ``id`` is that of the request, ``identity`` that of the server. ``since`` is the first batch
    that began after ``order`` was noted, ``rows`` the number of landed rows. ``key`` is the key to
    read along. It is empty until all below ``order`` has landed: until then the table as of
    ``order`` is unknown. ``closing`` is the end of the log when all rows had been read. ``done`` is
    the batch in which the backfill was complete.

    A cancelled backfill that has left rows is done without an ``id``: its rows describe nothing
    from above ``closing``. ``first`` is the lowest order of the former ones, and ``base`` the order
    of the newest of these that made a base. ``columns`` is the digest of the columns that landed
    rows describe. ``begun`` is the number of starts under its ``id``. ``former`` is the ``id`` of a
    cancelled backfill whose request is still open, and ``void`` the reason of its last
    cancellation.
    """

    id: str
    origin: Origin
    order: Order
    identity: str
    since: int
    stretches: tuple[KeyRange, ...] = (KeyRange(),)
    rows: int = 0
    closing: Order | None = None
    done: int | None = None
    key: tuple[str, ...] = ()
    first: Order | None = None
    base: Order | None = None
    columns: str = ""
    begun: int = 1
    former: str = ""
    void: str = ""

    def after(self, before: "Backfill") -> "Backfill":
        """Return this backfill with what must be remembered of the one *before* it."""
        first = before.lowest if before.has_left else None
        made = replace(self, first=first, base=before.newest_base)
        if before.former != self.id:
            return made
        return replace(made, begun=before.begun + 1, void=before.void)

    @property
    def has_left(self) -> bool:
        """Whether landed rows may have its order or a former one's; no if cancelled before any."""
        return not self.void or bool(self.id or self.rows) or self.first is not None

    @property
    def newest_base(self) -> Order | None:
        """Return the order of the newest base that this backfill or a former one completed."""
        made = self.done is not None and self.id and self.origin is Origin.SNAPSHOT
        return self.order if made else self.base

    @property
    def lowest(self) -> Order:
        """The lowest order of its rows and those of all former ones."""
        return self.first or self.order

    @property
    def read(self) -> bool:
        """Whether all of its rows have landed."""
        return all(one.ended for one in self.stretches)


@dataclass(frozen=True, slots=True)
class SelectedKey:
    """A row by its key: ``values`` is the JSON array of the key's texts, as the log has them.

    It selects rows of every shard of its table unless ``shard`` (``source/database.table``) names
    one.
    """

    values: str
    shard: str = ""


@dataclass(frozen=True, slots=True)
class SelectedRange:
    """Rows with an integer key from ``first`` to ``last``, inclusive.

    ``shard`` is as in `SelectedKey`.
    """

    first: int
    last: int
    shard: str = ""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a table with the keys and in the ranges, or all; of these, those ``where``.

    ``where`` is the text of a plain condition, empty for none. A selection of more than ``most``
    rows is refused.
    """

    keys: tuple[SelectedKey, ...] = ()
    ranges: tuple[SelectedRange, ...] = ()
    where: str = ""
    most: int | None = None

    @property
    def some(self) -> bool:
        """Whether rows are named, so that a missing one is known to be deleted."""
        return bool(self.keys or self.ranges)


@dataclass(frozen=True, slots=True)
class RepairPreview:
    """How many rows a repair would insert, delete and replace, and the first of their keys."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    keys: tuple[str, ...] = ()

    def with_more(self, more: "RepairPreview") -> "RepairPreview":
        """Return the sum of both."""
        counts = (self.missing + more.missing, self.extra + more.extra)
        return RepairPreview(*counts, self.different + more.different, (*self.keys, *more.keys))


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """A request to read rows again; ``at`` is the time that the rows show, if any.

    A ``dry`` request only reports what a repair would change. ``rate`` limits the rows per second;
    0: the limit of the source.
    """

    id: str
    table: str
    origin: Origin = Origin.SNAPSHOT
    rows: RowSelection = field(default_factory=RowSelection)
    at: datetime | None = None
    dry: bool = False
    rate: int = 0


@dataclass(frozen=True, slots=True)
class BackfillState:
    """The progress of a request in one shard: ``rows`` have landed; ``done`` is its last batch.

    ``why`` is what it waits for, or why it cannot continue; ``refused`` if it never can. ``brake``
    is the limit that slows the reads now: ``rate``, ``time`` (fewer rows per statement),
    ``running`` or ``lag``.
    """

    id: str
    table: str
    shard: str
    rows: int = 0
    done: int | None = None
    why: str = ""
    refused: bool = False
    preview: RepairPreview | None = None
    brake: str = ""
