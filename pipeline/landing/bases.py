"""Decides when a shard has a base: its snapshot is complete, or its CREATE was seen.

A collector streams only after its snapshot. So a LIVE change above the snapshot's order proves
that the snapshot has ended. The shard's own last-row marker proves that all its rows were sent.
Debezium sets no end marker on a single row of the first table, nor on an empty table. A
snapshot that was restarted has a new order, and replaces the unfinished one.

Split snapshot: some rows landed before landing saw that the server had been replaced, and some
after. It is no base: with the order of its newer rows, its older rows would count as outdated
and be deleted. It may come from the previous server and be above everything that the current
one has written. Its rows would then win over newer ones. So the table has a gap that only a
base above the snapshot closes.

Only a snapshot of all tables gives a base. One that a signal requests reads some tables. With
`additional-conditions` it reads some of their rows, which no event shows. As a base it would
delete the others. Its rows are merged like any, and it deletes nothing.

A description without rows means an empty table only under two conditions. Its snapshot was
taken of all tables, as the schema events show. And it read rows: those of the heartbeat table,
or any before a table of the source had a base. Measured on Debezium 3.5: with
snapshot.mode=recovery or no_data it describes all tables in the same way and reads no rows.
Taken for a snapshot, that would empty every mirror.

A snapshot that gives no base is given up once everything sent with it has landed. A table that
the collector leaves out has no base, although its CREATE or a snapshot describes it. Records
that were deleted from a topic before it was first read may have been snapshot rows, or all rows
of a table. Then neither the snapshot, nor a description without rows, nor a CREATE gives a
base.

A CREATE is a birth only of a shard that did not exist: after its DROP, or if it was never seen.
Measured: MySQL logs CREATE TABLE IF NOT EXISTS t LIKE u although t exists, and Debezium sends
it as a CREATE. Taken for a birth, it would empty the mirror.

A change that its format calls `AROUND` came after the snapshot, although its order may be
lower. Below the base it would be ignored, and above the base its distance is unknown. Its table
is quarantined by name until it has a new base. Other changes below a base are not concerned:
redeliveries, a partition that is behind, a table that was backfilled.

Repeated snapshot: a collector takes one when its stored offset is lost or no longer in the
source log, or when a person requests it. Changes that were committed after its last sent change
and before the snapshot are lost: they are in no change log and in no image. All tables of the
source have a gap, which each table's own snapshot rows close. A table without such rows,
because it was empty by then, needs a base from elsewhere. Otherwise rows that were deleted
meanwhile would stay. A snapshot of the whole source also reads the heartbeat table. One of
single tables, taken between two streamed changes, does not; it loses no change and is no base.

Cannot detect: a collector that starts over without a snapshot, or leaves the heartbeat table
out of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby

from pipeline.changelog.table import Settle
from pipeline.checkpoint import Checkpoint, Existence, Gap, OpenSnapshot, shard_exists, source_of
from pipeline.landing.batch_stats import BatchStats, SchemaNews, SnapshotRows, unread_changes
from pipeline.landing.order_check import highest_by_source
from pipeline.landing.rule import BatchContext
from pipeline.model import Order, Shard, ShardId, SnapshotAgain
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router
from pipeline.transports.topics import spell_topic, topic_endings


@dataclass(frozen=True, slots=True)
class Settled:
    """A shard whose base became complete as of ``order``; its first row came in batch ``since``.

    ``born``: the base is its CREATE, which may land later than newer rows.
    """

    shard: Shard
    order: Order
    since: int
    born: bool = False


def settles_of(settled: Iterable[Settled], router: Router) -> list[Settle]:
    """Return the rows that the completed bases add to a batch."""
    shards = ((done.shard, done.order) for done in settled)
    return [Settle(one.source, one.name, router.table(one.name), order) for one, order in shards]


def advance_snapshots(
    checkpoint: Checkpoint, facts: BatchStats, batch: int
) -> tuple[dict[Shard, OpenSnapshot], tuple[Settled, ...]]:
    """Return snapshots still open after this batch, and the shards that got a base, by text."""
    snaps = dict(checkpoint.snaps)
    for news in facts.news:
        described = news.change.kind == "create" and news.snapshot and not news.signalled
        if described and news.captured and not is_trimmed(checkpoint, news.change.shard):
            snap = OpenSnapshot(news.change.order, batch)
            _begin(snaps, checkpoint, news.shard, snap, described=True)
    existing, created = find_births(checkpoint, facts)
    settled = {one: Settled(one, order, batch, born=True) for one, order in created.items()}
    for name, rows in facts.snapshots.items():
        shard = Shard.parse(name)
        _begin(snaps, checkpoint, shard, OpenSnapshot(rows.order, batch))
        known = snaps.get(shard)
        if known is not None and known.order == rows.order:
            ended = known.ended or rows.ended
            snaps[shard] = replace(known, rows=known.rows + rows.rows, ended=ended)
    live = highest_by_source({**checkpoint.high, **facts.high}) if snaps else {}
    orders_of, read = _find_reported(checkpoint, facts), read_snapshots(checkpoint, facts)
    left: dict[Shard, OpenSnapshot] = {}
    for shard, one in snaps.items():
        source = shard.source
        orders, began = orders_of.get(source, frozenset()), read.get(source)
        snap = _newest(one, orders, began, batch)
        over = _is_part(snap, checkpoint, shard) or _is_outlived(
            snap, existing.get(shard), created.get(shard)
        )
        whole = _is_of_all_tables(snap, began, tells=bool(orders), based=shard in checkpoint.bases)
        if not over and whole and _complete(snap, live.get(source)):
            settled[shard] = Settled(shard, snap.order, snap.batch)
        elif not over and (whole or not _has_landed(checkpoint, shard, snap)):
            left[shard] = snap
            continue
        if snap.described is not None:
            left[shard] = OpenSnapshot(snap.described, batch)
    return left, tuple(settled[shard] for shard in sorted(settled, key=str))


def initial_snapshots(checkpoint: Checkpoint, facts: BatchStats) -> dict[str, Order]:
    """Return source -> order of its newest snapshot of all tables, even if no row of it landed."""
    return {source: max(orders) for source, orders in _find_reported(checkpoint, facts).items()}


def _find_reported(checkpoint: Checkpoint, facts: BatchStats) -> dict[str, frozenset[Order]]:
    """Return source -> orders of its snapshots of all tables: the newest before, and new ones."""
    known = {source: frozenset({order}) for source, order in checkpoint.initial.items()}
    return known | {s: known.get(s, frozenset()) | orders for s, orders in facts.initial.items()}


def _newest(
    snap: OpenSnapshot, orders: frozenset[Order], read: Order | None, batch: int
) -> OpenSnapshot:
    """Return *snap*, or the newer one that described its shard if it reads all tables."""
    newer = snap.described
    if newer is not None and newer in orders and newer == read:
        return OpenSnapshot(newer, batch, told=True)
    return snap if snap.told else replace(snap, told=any(_is_began(snap, one) for one in orders))


def _is_of_all_tables(snap: OpenSnapshot, read: Order | None, *, tells: bool, based: bool) -> bool:
    """Return whether the snapshot of a shard was one of all tables, by what landed of its source.

    *read* is that source's newest by `read_snapshots`. ``tells`` is True if the source sends schema
    events. Then these decide, else its rows. A shard without a row, or with a base (*based*), needs
    both: what was lost before lands with the heartbeat's row.
    """
    is_read = _is_began(snap, read)
    if snap.rows == 0:
        return snap.told and is_read
    if based:
        return is_read and (snap.told or not tells)
    return snap.told if tells else is_read


def _is_began(snap: OpenSnapshot, order: Order | None) -> bool:
    """Return whether *snap* began at *order*; its rows may land in a newer epoch."""
    if order is None:
        return False
    place = snap.order.event
    return order == place or (order.epoch < place.epoch and order.parts[1:] == place.parts[1:])


def read_snapshots(checkpoint: Checkpoint, facts: BatchStats) -> dict[str, Order]:
    """Return source -> order of its newest snapshot with landed rows, if it may be of all."""
    read, based = dict(checkpoint.snapshots), {shard.source for shard in checkpoint.bases}
    rows = ((source_of(name), one.order) for name, one in facts.snapshots.items())
    first = ((source, order) for source, order in rows if source not in based)
    for source, order in (*first, *facts.wholes.items()):
        read[source] = max(order.event, read.get(source, order.event))
    return read


def _has_landed(checkpoint: Checkpoint, shard: Shard, snap: OpenSnapshot) -> bool:
    """Return whether all rows of *snap* have landed, and this batch has no more of them."""
    return checkpoint.snaps.get(shard) == snap and checkpoint.passed(shard.source, snap.order)


def is_torn(rows: SnapshotRows, known: OpenSnapshot | None) -> bool:
    """Return whether the snapshot's *rows*, with those *known* from before, are of two epochs."""
    return rows.torn or (known is not None and known.rows > 0 and rows.goes_on(known.order))


def _is_part(snap: OpenSnapshot, checkpoint: Checkpoint, shard: Shard) -> bool:
    part = checkpoint.parts.get(shard)
    return part is not None and part >= snap.order


def _is_outlived(snap: OpenSnapshot, known: Existence | None, created: Order | None) -> bool:
    """Return whether the table was dropped or recreated since: its snapshot is then no base."""
    gone = known is not None and not known.there and known.order > snap.order
    return gone or (created is not None and created > snap.order)


def find_births(
    checkpoint: Checkpoint, facts: BatchStats
) -> tuple[Mapping[Shard, Existence], Mapping[Shard, Order]]:
    """Return which shards exist after the batch, and the order of the CREATE of each born in it."""
    if not facts.news:
        return checkpoint.existing, {}
    found, born = dict(checkpoint.existing), {}
    for (source, order), grouped in groupby(facts.news, key=lambda n: (n.source, n.change.order)):
        together = tuple(grouped)
        for former in _went(together):
            _tell(found, Shard(source, former), Existence(order, there=False))
        for news in (one for one in together if one.change.kind != "drop"):
            shard = news.shard
            seen = shard in checkpoint.shards or facts.firsts.get(news.name, order) < order
            birth = news.captured and _is_birth(news, found.get(shard), seen=seen)
            if birth and (
                shard in checkpoint.bases or not is_trimmed(checkpoint, news.change.shard)
            ):
                born[shard] = order
            _tell(found, shard, Existence(order, there=True))
    return found, {
        shard: order
        for shard, order in born.items()
        if (base := checkpoint.bases.get(shard)) is None or base < order
    }


def with_drops(facts: BatchStats, checkpoint: Checkpoint) -> BatchStats:
    """Add to *facts* a DROP of each known shard of a dropped database: no event names them."""
    if not facts.databases:
        return facts
    described = {news.shard for news in facts.news}
    known = {*checkpoint.shards, *checkpoint.existing, *map(Shard.parse, facts.shards)}
    shards = sorted(described | {shard for shard in known if shard_exists(checkpoint, shard)})
    made = [
        SchemaNews(one.source, SchemaChange("drop", shard.name, one.order, None, one.text), False)
        for one in facts.databases
        for begins in [ShardId.beginning(one.database)]
        for shard in shards
        if shard.source == one.source and shard.name.startswith(begins)
    ]
    every = sorted((*facts.news, *made), key=lambda news: (news.source, news.change.order))
    return replace(facts, news=tuple(every))


def _is_birth(news: SchemaNews, known: Existence | None, *, seen: bool) -> bool:
    if news.snapshot or news.change.kind != "create":
        return False
    if known is not None and known.order >= news.change.order:
        return False  # it was sent again
    if known is None and not seen:
        return news.empty and news.new
    there = known is None or known.there
    return news.over if there else news.empty


def is_trimmed(checkpoint: Checkpoint, shard: str) -> bool:
    """Return whether a topic named after *shard* had lost its beginning when it was first read."""
    return spell_topic(shard) in _endings(checkpoint.trimmed)


@lru_cache(maxsize=4)  # a snapshot describes all tables at once, and all topics may be trimmed
def _endings(topics: tuple[str, ...]) -> frozenset[str]:
    """Return the *topics*, and what follows each of their dots."""
    return frozenset(chain(topics, *map(topic_endings, topics)))


def inherit_bases(checkpoint: Checkpoint, facts: BatchStats) -> dict[Shard, Order]:
    """Return bases of renamed tables without one: that of the table under its earlier name.

    They are older than the rename, because the rows that came with it have still to be moved.
    """
    found = {
        news.shard: checkpoint.bases[before]
        for news in facts.news
        if news.captured and (before := news.former) is not None and before in checkpoint.bases
    }
    return {shard: order for shard, order in found.items() if shard not in checkpoint.bases}


def _went(together: tuple[SchemaNews, ...]) -> Iterator[str]:
    """Return the shards that a statement drops; a snapshot's DROP does not count."""
    for one in together:
        if one.change.previous is not None:
            yield one.change.previous
        if one.change.kind == "drop" and not one.snapshot:
            yield one.change.shard


def _tell(found: dict[Shard, Existence], shard: Shard, now: Existence) -> None:
    known = found.get(shard)
    if known is None or known.order <= now.order:
        found[shard] = now


def _begin(
    snaps: dict[Shard, OpenSnapshot],
    checkpoint: Checkpoint,
    shard: Shard,
    snap: OpenSnapshot,
    *,
    described: bool = False,
) -> None:
    """Note an open snapshot, unless it is older than the base or an open one.

    A snapshot that has only *described* the shard may read no rows, so it replaces no open one.
    """
    known, base = snaps.get(shard), checkpoint.bases.get(shard)
    if base is not None and base >= snap.order:
        return  # rows of a finished snapshot that were sent again
    if known is None or (known.order < snap.order and not described):
        snaps[shard] = snap
    elif described and known.order < snap.order:
        newest = max(snap.order, known.described or snap.order)
        snaps[shard] = replace(known, described=newest)


def _complete(snap: OpenSnapshot, live: Order | None) -> bool:
    whole = snap.ended or snap.rows <= 1
    return whole and live is not None and live > snap.order


def with_overlaps(facts: BatchStats, checkpoint: Checkpoint) -> BatchStats:
    """Return *facts* with rows below the snapshot of their shard among the unreadable changes."""
    found = {
        name: unread_changes(one.rows)
        for name, one in facts.around.items()
        if any(_is_below(one.order, snapshot) for snapshot in _snapshots(name, facts, checkpoint))
    }
    return replace(facts, errors={**found, **facts.errors}) if found else facts


def _is_below(order: Order, snapshot: Order) -> bool:
    return order.epoch == snapshot.epoch and order < snapshot


def _snapshots(name: str, facts: BatchStats, checkpoint: Checkpoint) -> Iterator[Order]:
    """Return the orders of the known snapshots of the shard; a backfilled base does not count."""
    if name in facts.snapshots:
        yield facts.snapshots[name].order
    shard = Shard.parse(name)
    if (known := checkpoint.snaps.get(shard)) is not None:
        yield known.order
    again = checkpoint.backfills.get(shard)
    read = () if again is None else (again.order, again.base)
    if (base := checkpoint.bases.get(shard)) is not None and base not in read:
        yield base


WHY = (
    "a snapshot was sent in part before its server was replaced and in part after, so its rows may "
    "be of either server; take a new base of the table, once the log of the new server is above "
    "{above}"
)


def detect_split_snapshots(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap of each shard whose snapshot came from two servers."""
    for name, rows in context.stats.snapshots.items():
        shard = Shard.parse(name)
        known = context.before.snaps.get(shard)
        if checkpoint.shards.get(shard) is None or not is_torn(rows, known):
            continue
        why = WHY.format(above=f"{rows.order.log}:{rows.order.pos}")
        gap = Gap.noticed(f"torn:{name}", checkpoint.batch, why, (name,), above=rows.order)
        checkpoint = replace(checkpoint, gaps={**checkpoint.gaps, gap.id: gap})
    return checkpoint


def detect_repeated_snapshots(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record each snapshot of a whole source that was not its first, and a gap of what was lost."""
    before = context.before
    for source, order in context.stats.wholes.items():
        above, known = order.event, before.again.get(source)
        older = _older(source, before, above)
        if older and (known is None or known.order < above):
            asked = _is_asked_for(older, before)
            again = SnapshotAgain(above, context.at, checkpoint.batch, len(older), asked)
            checkpoint = replace(checkpoint, again={**checkpoint.again, source: again})
            checkpoint = _with_gap(source, checkpoint, older, above)
    return checkpoint


def _older(source: str, before: Checkpoint, above: Order) -> frozenset[Shard]:
    """Return the shards of *source* that had a base below *above*."""
    old = (shard for shard, base in before.bases.items() if base < above)
    own = (shard for shard in old if shard.source == source)
    return frozenset(shard for shard in own if before.shards.get(shard) is not None)


def _is_asked_for(shards: frozenset[Shard], before: Checkpoint) -> bool:
    lost = {name for gap in before.gaps.values() for name in gap.shards}
    unread = {name for one in before.quarantine.values() for name in one.shards}
    return not shards.isdisjoint(map(Shard.parse, lost | unread))


def _with_gap(source: str, made: Checkpoint, older: frozenset[Shard], above: Order) -> Checkpoint:
    """Add a gap of the existing *older* shards, except those whose new base has landed already.

    These only get an entry in ``lost``.
    """
    there = {shard for shard in older if shard_exists(made, shard)}
    whole = {shard: base for shard in there if (base := made.bases[shard]) >= above}
    made = replace(made, lost={**made.lost, **whole})
    if not (left := there - whole.keys()):
        return made
    why = (
        f"the collector of {source} took a new snapshot, so unsent earlier changes are lost;"
        " run `sluice bootstrap TABLE --reason ...` if the gap of a table remains open"
    )
    gap = Gap.noticed(f"again:{source}", made.batch, why, map(str, left), above=above)
    return replace(made, gaps={**made.gaps, gap.id: gap})
