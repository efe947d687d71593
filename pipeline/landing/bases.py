"""When does a shard have a base?  When its snapshot is complete, or it was born before our eyes.

A collector streams only after its snapshot, so a LIVE change above the snapshot's order proves
that the snapshot has ended; the shard's own last-row marker proves that all its rows were sent.
A snapshot that was begun again has a new order and replaces the unfinished one.  One that is torn,
of which rows came before landing saw that the server had been replaced, and rows after, is none:
as of its newer rows it would take the older ones for rows of before it, and delete them.
(Debezium sets no end marker on a single row of the first table, nor on an empty table.)
Only a snapshot of all tables gives a base.  One that a signal asks for reads some tables, and with
`additional-conditions` some of their rows, which no event shows: as a base it would delete the
others.  Its rows are merged as any, and nothing is deleted by it: Debezium's tell that they are
of such a one (`format.INCREMENTAL`).
Cannot see: where no schema changes are sent, that one whose rows do not tell that, and which read
the heartbeat's table, too, or came before the source's first base, was not of all tables.
A description without rows is that of an empty table only if its snapshot was taken of all tables,
as its schema changes tell, and read rows: the heartbeat's, or any before a table of the source had
a base.  Measured on Debezium 3.5: with snapshot.mode=recovery or no_data it describes all tables
in the same way and reads no rows; taken for a snapshot, that would empty every mirror.
So a description replaces no snapshot of which rows came or may come, but once it is known to be of
one that has read rows.  What gives no base is given up once all has landed that was sent with it.
A table that the collector leaves out has none, though its CREATE, or a snapshot, tells of it.
What was deleted from a topic before it was first read may have been rows of a snapshot, or all that
a table had: such a snapshot is none, and neither is a table without rows or its birth.

A CREATE is a birth only of a shard that was not there: after its DROP, or if nothing was ever
seen of it.  Measured: MySQL logs CREATE TABLE IF NOT EXISTS t LIKE u though t exists, and Debezium
sends it as a CREATE; taken for a birth, it would empty the mirror.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby

from pipeline.changelog.table import Settle
from pipeline.checkpoint import Existence, Mark, Snap, is_there, source_of
from pipeline.landing.facts import Facts, News
from pipeline.landing.highest import highest_by_source
from pipeline.landing.tally import SnapshotRows
from pipeline.model import Order, Shard, ShardId
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router
from pipeline.transports.topics import endings, spelled


@dataclass(frozen=True, slots=True)
class Settled:
    """A shard whose base became complete as of ``order``; its first row came in ``since``.

    ``born``: by its CREATE, which may come later than rows that are newer than it.
    """

    name: str
    order: Order
    since: int
    born: bool = False


def settles_of(settled: Iterable[Settled], router: Router) -> list[Settle]:
    """What the bases that a batch completes add to it."""
    shards = ((Shard.parse(done.name), done.order) for done in settled)
    return [Settle(one.source, one.name, router.table(one.name), order) for one, order in shards]


def advance(mark: Mark, facts: Facts, batch: int) -> tuple[dict[str, Snap], tuple[Settled, ...]]:
    """Snapshots still open after this batch, and the shards that got a base in it, sorted."""
    snaps = dict(mark.snaps)
    for news in facts.news:
        described = news.change.kind == "create" and news.snapshot and not news.signalled
        if described and news.captured and not is_trimmed(mark, news.change.shard):
            _begin(snaps, mark, news.name, Snap(news.change.order, batch), described=True)
    existing, created = births(mark, facts)
    born = {n: Settled(n, order, batch, born=True) for n, order in created.items()}
    for name, rows in facts.snapshots.items():
        _begin(snaps, mark, name, Snap(rows.order, batch))
        known = snaps.get(name)
        if known is not None and known.order == rows.order:
            ended = known.ended or rows.ended
            snaps[name] = replace(known, rows=known.rows + rows.rows, ended=ended)
    live = highest_by_source({**mark.high, **facts.high}) if snaps else {}
    told, read = _told_snapshots(mark, facts), read_snapshots(mark, facts)
    left: dict[str, Snap] = {}
    settled = dict(born)
    for name, one in snaps.items():
        source = source_of(name)
        orders, began = told.get(source, frozenset()), read.get(source)
        snap = _newest(one, orders, began, batch)
        none = _is_part(snap, mark, name)
        none = none or _is_outlived(snap, existing.get(name), created.get(name))
        whole = _is_of_all_tables(snap, began, tells=bool(orders), based=name in mark.bases)
        if not none and whole and _complete(snap, live.get(source)):
            settled[name] = Settled(name, snap.order, snap.batch)
        elif not none and (whole or not _has_landed(mark, name, snap)):
            left[name] = snap
            continue
        if snap.described is not None:
            left[name] = Snap(snap.described, batch)
    return left, tuple(settled[name] for name in sorted(settled))


def initial_snapshots(mark: Mark, facts: Facts) -> dict[str, Order]:
    """Source -> order of its newest snapshot of all tables, whether or not rows of it landed."""
    return {source: max(orders) for source, orders in _told_snapshots(mark, facts).items()}


def _told_snapshots(mark: Mark, facts: Facts) -> dict[str, frozenset[Order]]:
    """Source -> orders of its snapshots of all tables: the newest before, and those of now."""
    known = {source: frozenset({order}) for source, order in mark.initial.items()}
    return known | {s: known.get(s, frozenset()) | orders for s, orders in facts.initial.items()}


def _newest(snap: Snap, told: frozenset[Order], read: Order | None, batch: int) -> Snap:
    """*snap*, or the newer one that has described its shard, once that is one of all tables."""
    newer = snap.described
    if newer is not None and newer in told and newer == read:
        return Snap(newer, batch, told=True)
    return snap if snap.told else replace(snap, told=any(_is_began(snap, one) for one in told))


def _is_of_all_tables(snap: Snap, read: Order | None, *, tells: bool, based: bool) -> bool:
    """Whether the snapshot of a shard was one of all tables, by what has landed of its source.

    *read* is that source's newest by `read_snapshots`.  Schema changes tell that, where a source
    has such (*tells*); else its rows do.  Both have to of a shard without a row, and of one that
    had a base (*based*): with the heartbeat's row lands what is lost before.
    """
    is_read = _is_began(snap, read)
    if snap.rows == 0:
        return snap.told and is_read
    if based:
        return is_read and (snap.told or not tells)
    return snap.told if tells else is_read


def _is_began(snap: Snap, order: Order | None) -> bool:
    """Whether *snap* began at *order*; its rows may land once a new epoch has begun."""
    if order is None:
        return False
    place = snap.order.event
    return order == place or (order.epoch < place.epoch and order.parts[1:] == place.parts[1:])


def read_snapshots(mark: Mark, facts: Facts) -> dict[str, Order]:
    """Source -> order of its newest snapshot of which a row has landed, if it may be of all."""
    read, based = dict(mark.snapshots), {source_of(name) for name in mark.bases}
    rows = ((source_of(name), one.order) for name, one in facts.snapshots.items())
    first = ((source, order) for source, order in rows if source not in based)
    for source, order in (*first, *facts.wholes.items()):
        read[source] = max(order.event, read.get(source, order.event))
    return read


def _has_landed(mark: Mark, name: str, snap: Snap) -> bool:
    """Whether all has landed that was sent with *snap*, and this batch brings no more of it."""
    return mark.snaps.get(name) == snap and mark.passed(source_of(name), snap.order)


def is_torn(rows: SnapshotRows, known: Snap | None) -> bool:
    """Whether some of the snapshot's *rows*, or of those *known* from before, are of two epochs."""
    return rows.torn or (known is not None and known.rows > 0 and rows.goes_on(known.order))


def _is_part(snap: Snap, mark: Mark, name: str) -> bool:
    part = mark.parts.get(name)
    return part is not None and part >= snap.order


def _is_outlived(snap: Snap, known: Existence | None, created: Order | None) -> bool:
    """Whether the table was dropped since, or made anew: what was read of it is no base."""
    gone = known is not None and not known.there and known.order > snap.order
    return gone or (created is not None and created > snap.order)


def births(mark: Mark, facts: Facts) -> tuple[Mapping[str, Existence], Mapping[str, Order]]:
    """Which shards are there after the batch, and the order of the CREATE of each born in it."""
    found, born = dict(mark.existing), {}
    for (source, order), grouped in groupby(facts.news, key=lambda n: (n.source, n.change.order)):
        together = tuple(grouped)
        for shard in _went(together):
            _tell(found, str(Shard(source, shard)), Existence(order, there=False))
        for news in (one for one in together if one.change.kind != "drop"):
            name = news.name
            seen = name in mark.shards or facts.firsts.get(name, order) < order
            birth = news.captured and _is_birth(news, found.get(name), seen=seen)
            if birth and (name in mark.bases or not is_trimmed(mark, news.change.shard)):
                born[name] = order
            _tell(found, name, Existence(order, there=True))
    return found, {n: o for n, o in born.items() if n not in mark.bases or mark.bases[n] < o}


def with_drops(facts: Facts, mark: Mark) -> Facts:
    """*facts* with a DROP of each known shard of a database that was dropped: none is told of."""
    if not facts.databases:
        return facts
    told = {news.name for news in facts.news}
    known = {*mark.shards, *mark.existing, *facts.shards}
    names = sorted(told | {name for name in known if is_there(mark, name)})
    made = [
        News(
            one.source,
            SchemaChange("drop", Shard.parse(name).name, one.order, None, one.text),
            False,
        )
        for one in facts.databases
        for begins in [str(Shard(one.source, ShardId.beginning(one.database)))]
        for name in names
        if name.startswith(begins)
    ]
    every = sorted((*facts.news, *made), key=lambda news: (news.source, news.change.order))
    return replace(facts, news=tuple(every))


def _is_birth(news: News, known: Existence | None, *, seen: bool) -> bool:
    if news.snapshot or news.change.kind != "create":
        return False
    if known is not None and known.order >= news.change.order:
        return False  # it was sent again
    if known is None and not seen:
        return news.empty and news.new
    there = known is None or known.there
    return news.over if there else news.empty


def is_trimmed(mark: Mark, shard: str) -> bool:
    """Whether a topic named after *shard* had lost its beginning when it was first read."""
    return spelled(shard) in _endings(mark.trimmed)


@lru_cache(maxsize=4)  # a snapshot tells of all tables at once, and all topics may be trimmed
def _endings(topics: tuple[str, ...]) -> frozenset[str]:
    """The *topics*, and what each ends with after a dot."""
    return frozenset(chain(topics, *map(endings, topics)))


def inherited(mark: Mark, facts: Facts) -> dict[str, Order]:
    """Bases that renamed tables have: of the table that each was, if it has none of its own.

    They are older than the rename, so that the rows that came with it have still to be moved.
    """
    found = {
        news.name: mark.bases[before]
        for news in facts.news
        if news.captured and (before := news.former) is not None and before in mark.bases
    }
    return {name: order for name, order in found.items() if name not in mark.bases}


def _went(together: tuple[News, ...]) -> Iterator[str]:
    """Shards that are gone after a statement; a snapshot's DROP is none."""
    for one in together:
        if one.change.previous is not None:
            yield one.change.previous
        if one.change.kind == "drop" and not one.snapshot:
            yield one.change.shard


def _tell(found: dict[str, Existence], name: str, now: Existence) -> None:
    known = found.get(name)
    if known is None or known.order <= now.order:
        found[name] = now


def _begin(
    snaps: dict[str, Snap], mark: Mark, name: str, snap: Snap, *, described: bool = False
) -> None:
    """One that has only *described* the shard may read no rows: it replaces none with its own."""
    known, base = snaps.get(name), mark.bases.get(name)
    if base is not None and base >= snap.order:
        return  # rows of a finished snapshot that were sent again
    if known is None or (known.order < snap.order and not described):
        snaps[name] = snap
    elif described and known.order < snap.order:
        newest = max(snap.order, known.described or snap.order)
        snaps[name] = replace(known, described=newest)


def _complete(snap: Snap, live: Order | None) -> bool:
    whole = snap.ended or snap.rows <= 1
    return whole and live is not None and live > snap.order
