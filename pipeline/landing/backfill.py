"""Adds backfilled rows to a batch, and decides when a backfill is void or complete.

The files of a backfill arrive independently of batches. The landing checkpoint says which of
them follow what has landed. One that comes twice or too late is ignored.

A backfill is void once the source log is another one, or a statement landed that its rows do
not know. It then starts over. It is complete when all its rows have landed and W has reached
the end that the log had after the last row was read. By then every statement is known that the
rows may reflect. A bootstrap then gives its shard a base at the order of the rows.

Where no row of the log has described the columns of backfilled rows, the batch adds a
description. It has the form that the format would have used, at the order of the rows, so it
holds for them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pipeline.backfill_state import Backfill, KeyRange
from pipeline.changelog.data_file import WrittenFile
from pipeline.changelog.table import ColumnEvent
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.landing.bases import Settled
from pipeline.landing.batch_stats import BatchStats, SchemaNews, described_schema, merge_schemas
from pipeline.landing.listing import LandingSource
from pipeline.model import Order, Origin, Shard
from pipeline.schema.model import TableDescription
from pipeline.sources.positions import locate_position

NOTHING = BatchStats()
MOST = 64 * 2**20  # bytes of files that one batch rewrites, while all landing waits
STATEMENT = 200  # characters of a statement that are kept
Sends = Callable[[Shard, Order], bool | None]
"""Returns whether the collector has sent all changes of a shard above an order; None if unknown."""


@dataclass(frozen=True, slots=True)
class BackfilledRows:
    """Rows of one stretch of a backfill, above ``after`` up to ``read``; ``file`` has no batch yet.

    ``ended`` is True if they are the last of the stretch. Without a row there is no ``file``.
    ``columns`` as in `Backfill`. ``description`` is set if the log has not described the same
    columns.
    """

    shard: Shard
    table: str
    id: str
    order: Order
    stretch: int
    after: tuple[str, ...] | None
    read: tuple[str, ...] | None
    ended: bool
    rows: int
    file: WrittenFile | None
    columns: str = ""
    description: TableDescription | None = None


@dataclass(frozen=True, slots=True)
class BackfillNews:
    """The input of a batch: backfills that start, rows, and where logs ended after all reads.

    ``cancelled`` are the ids of cancelled requests, by shard.
    """

    begun: Mapping[Shard, Backfill] = field(default_factory=dict)
    rows: tuple[BackfilledRows, ...] = ()
    closing: Mapping[Shard, tuple[str, Order]] = field(default_factory=dict)
    cancelled: Mapping[Shard, str] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Return whether it holds anything."""
        return bool(self.begun or self.rows or self.closing or self.cancelled)


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """Backfills after a batch, the rows that it takes, and the bases that it completes.

    ``described`` are the rows that describe columns, from the order of the backfill on.
    """

    backfills: Mapping[Shard, Backfill] = field(default_factory=dict)
    taken: tuple[BackfilledRows, ...] = ()
    settled: tuple[Settled, ...] = ()
    described: tuple[BackfilledRows, ...] = ()

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        """Return the files of the rows that are taken; they have no batch yet."""
        return tuple(one.file for one in self.taken if one.file is not None)

    def counted(self, facts: BatchStats) -> BatchStats:
        """Return *facts* with the rows that are taken."""
        if not self.taken:
            return facts
        tables, shards = dict(facts.tables), dict(facts.shards)
        for one in self.taken:
            tables[one.table] = tables.get(one.table, 0) + one.rows
            shards[str(one.shard)] = one.table
        rows = facts.rows + sum(one.rows for one in self.taken)
        return replace(facts, rows=rows, tables=tables, shards=shards)


def is_due(checkpoint: Checkpoint, news: BackfillNews, tried: Set[Shard] = frozenset()) -> bool:
    """Return whether backfills alone make a batch worthwhile.

    *tried* are those that the batch before could not complete: they wait for another batch.
    """
    return news.any or not find_complete(checkpoint) <= tried


def find_complete(checkpoint: Checkpoint) -> frozenset[Shard]:
    """Return the backfills for which everything that their reads may have seen has landed."""
    return frozenset(
        shard
        for shard, one in checkpoint.backfills.items()
        if one.done is None
        and one.closing is not None
        and checkpoint.passed(shard.source, one.closing)
    )


def advance_backfills(
    checkpoint: Checkpoint,
    facts: BatchStats,
    epochs: Mapping[str, Epoch],
    news: BackfillNews,
    sends: Sends,
    *,
    before: BatchStats = NOTHING,
) -> BackfillStep:
    """Advance backfills from *checkpoint*, the one before the batch, by its *facts* and *epochs*.

    *before* are the facts of the batch before, which may have run while a new backfill was
    recorded. If no backfill is open and there are no *news*, the result keeps the checkpoint's own
    mapping.
    """
    if not news.any and all(one.done is not None for one in checkpoint.backfills.values()):
        return BackfillStep(checkpoint.backfills)
    every = {**checkpoint.backfills, **_begin_new(checkpoint, before, epochs, news)}
    backfills = {}
    for shard, one in every.items():
        why = _void(shard, one, checkpoint, facts, epochs)
        if _is_cancelled(shard, one, news) and (one.rows or one.first is not None):
            backfills[shard] = _given_up(one, epochs.get(shard.source), checkpoint.batch + 1)
        elif why and not _is_cancelled(shard, one, news):
            backfills[shard] = _given_up(one, epochs.get(shard.source), checkpoint.batch + 1, why)
        elif not _is_cancelled(shard, one, news):
            backfills[shard] = one
    taken, described = _take_rows(news.rows, backfills, epochs, checkpoint.batch + 1)
    for shard, (wanted, order) in news.closing.items():
        known = backfills.get(shard)
        if known is not None and known.id == wanted and known.read and known.closing is None:
            backfills[shard] = replace(known, closing=order)
    done = {
        shard: backfills[shard]
        for shard in sorted(backfills, key=str)
        if _is_complete(shard, backfills[shard], checkpoint, sends)
    }
    for shard, one in done.items():
        backfills[shard] = replace(one, done=checkpoint.batch + 1, stretches=())
    settled = tuple(
        Settled(shard, one.order, one.since)
        for shard, one in done.items()
        if _is_base(shard, one, checkpoint)
    )
    return BackfillStep(backfills, taken, settled, described)


def _take_rows(
    offered: Sequence[BackfilledRows],
    backfills: dict[Shard, Backfill],
    epochs: Mapping[str, Epoch],
    batch: int,
) -> tuple[tuple[BackfilledRows, ...], tuple[BackfilledRows, ...]]:
    """Return the *offered* rows that follow the landed ones, and those of them with new columns.

    A batch takes a limited size: the others are offered again. *backfills* is updated.
    """
    taken, described, size = list[BackfilledRows](), list[BackfilledRows](), 0
    for rows in offered:
        known, own = backfills.get(rows.shard), rows.file.size if rows.file is not None else 0
        if known is None or not _follows(rows, known) or (taken and size + own > MOST):
            continue
        if known.columns not in ("", rows.columns):  # the log did not report the change
            epoch, why = epochs.get(rows.shard.source), "its columns changed between two reads"
            backfills[rows.shard] = _given_up(known, epoch, batch, why)
            continue
        described += [rows] if rows.description is not None and not known.columns else []
        backfills[rows.shard] = _add_rows(known, rows)
        taken.append(rows)
        size += own
    return tuple(taken), tuple(described)


def _begin_new(
    checkpoint: Checkpoint, before: BatchStats, epochs: Mapping[str, Epoch], news: BackfillNews
) -> dict[Shard, Backfill]:
    found = {}
    for shard, one in news.begun.items():
        known = checkpoint.backfills.get(shard)
        if _is_newer(one, known) and not _void(shard, one, checkpoint, before, epochs):
            found[shard] = one if known is None else one.after(known)
    return found


def _given_up(one: Backfill, epoch: Epoch | None, batch: int, void: str = "") -> Backfill:
    """Return what is left of it: rows, all read before the log's end was looked at for this batch.

    If it is *void*, it restarts, and the number of restarts must stay known.
    """
    end, some = one.order, bool(one.rows) or one.first is not None
    same = epoch is not None and (epoch.number, epoch.identity) == (one.order.epoch, one.identity)
    if some and epoch is not None and same:
        end = Order(epoch.number, *locate_position(epoch.position))
    closing, former = max(one.closing or end, end), one.id if void else ""
    made = replace(one, id="", done=batch, stretches=(), closing=closing, former=former)
    return replace(made, void=void)


def _is_newer(one: Backfill, known: Backfill | None) -> bool:
    """Return whether *one* begins after *known*, or is *known* and is now split along a key."""
    if not one.key:
        return known is None or known.order < one.order
    uncut = known is not None and not known.key and known.closing is None and known.done is None
    return known is not None and uncut and (one.id, one.order) == (known.id, known.order)


def _is_cancelled(shard: Shard, one: Backfill, news: BackfillNews) -> bool:
    return one.done is None and news.cancelled.get(shard) == one.id


def _is_base(shard: Shard, one: Backfill, checkpoint: Checkpoint) -> bool:
    """Return whether it makes a base: a snapshot may have made a higher one meanwhile."""
    known = checkpoint.bases.get(shard)
    return one.origin is Origin.SNAPSHOT and (known is None or known < one.order)


def _void(
    shard: Shard,
    one: Backfill,
    checkpoint: Checkpoint,
    facts: BatchStats,
    epochs: Mapping[str, Epoch],
) -> str:
    """Return why its rows cannot be separated from later changes; empty if they can."""
    if one.done is not None:
        return ""
    epoch, lists = epochs.get(shard.source), checkpoint.lists.get(shard.source)
    if epoch is None or (epoch.number, epoch.identity) != (one.order.epoch, one.identity):
        return "its server or its log was replaced since the backfill began"
    if lists is not None and lists.above is not None and lists.above >= one.order:
        return "its collector's lists changed: rows since may have been left out"
    for news in facts.news:
        own = shard in (news.shard, news.former) and not news.snapshot
        if own and news.change.order > one.order:
            return f"a statement came: {news.change.statement[:STATEMENT] or 'its columns changed'}"
    return ""


def _follows(rows: BackfilledRows, known: Backfill) -> bool:
    if (rows.id, rows.order) != (known.id, known.order) or rows.stretch >= len(known.stretches):
        return False
    stretch = known.stretches[rows.stretch]
    return not stretch.ended and stretch.read == rows.after


def _add_rows(known: Backfill, rows: BackfilledRows) -> Backfill:
    stretches = list(known.stretches)
    before = stretches[rows.stretch]
    stretches[rows.stretch] = KeyRange(before.until, rows.read, rows.ended)
    count = known.rows + rows.rows
    return replace(known, stretches=tuple(stretches), rows=count, columns=rows.columns)


def _is_complete(shard: Shard, one: Backfill, checkpoint: Checkpoint, sends: Sends) -> bool:
    if one.done is not None or one.closing is None or not one.read:
        return False
    return checkpoint.passed(shard.source, one.closing) and bool(sends(shard, one.order))


def describe_columns(
    rows: Iterable[BackfilledRows], feeds: Sequence[LandingSource]
) -> tuple[ColumnEvent, ...]:
    """Return the columns that *rows* describe; none of a source whose statements describe them."""
    by_source = {feed.settings.name: feed for feed in feeds}
    found = []
    for one in rows:
        shard, feed = one.shard, by_source.get(one.shard.source)
        if feed is None or one.description is None:
            continue
        payload = feed.format.columns_payload(one.description)
        if payload is not None:
            found.append(ColumnEvent(shard.source, shard.name, one.table, one.order, payload))
    return tuple(found)


def with_columns(
    facts: BatchStats, rows: Iterable[BackfilledRows], feeds: Sequence[LandingSource]
) -> tuple[BatchStats, tuple[ColumnEvent, ...]]:
    """Return *facts* with the columns that *rows* describe, and the events of them to land."""
    events = describe_columns(rows, feeds)
    if not events:
        return facts, ()
    readings = {feed.settings.name: feed.reading for feed in feeds}
    news, schemas = list[SchemaNews](), dict(facts.schemas)
    for one in events:
        _, changes = readings[one.source].read(one.payload, one.order)
        news += [SchemaNews(one.source, change, snapshot=False) for change in changes]
        name = str(Shard(one.source, one.shard))
        schemas = merge_schemas(schemas, {name: described_schema(one.order, one.payload)})
    every = sorted((*facts.news, *news), key=lambda one: (one.source, one.change.order))
    count = facts.statements + len(events)
    return replace(facts, news=tuple(every), statements=count, schemas=schemas), events
