"""Detects losses that no offsets show, and records each as a gap of the tables concerned.

The order of the rules matters: each one sees the checkpoint as the rules before it left it.
Rules of snapshots are in `bases`, of heartbeats in `heartbeats`, and of waived rows in
`source_holds`.

Collector lists. A collector reports its current lists, and describes tables that it leaves out,
too. A CREATE that is older than the lists that include its table is no base, because rows may
have come before these lists. The first lists that are seen count as those of all time. Later
lists count only above the end that the source log had once they were seen. What older lists
sent may land far later, behind MirrorMaker or while the source is held. A table has a gap if
the lists leave it out, from now on or as its base completes. So does a table that was replaced
at its source without an entry in the log. If lists cannot be read here, their tables have a gap
until a base shows otherwise. Only rows that such lists surely sent show that they include a
table. Cannot detect: lists that changed between two looks and changed back.

Failover divergence. The mirrors hold what the old server wrote last and the new one never had,
and nothing will undo it. A collector that continues where it stopped skips as much of the new
log. So each table of the source has a gap until it has a base that began after the new server
was seen. The end of the old server is where it was last seen, or, if higher, what landed while
it did not answer. Cannot detect: rows above that end that land with the first look at the new
server, because they may be its own.

Source log not retained. What was written until the log is retained again is never sent: a
collector that continues skips it silently. All tables of the source have a gap until each has a
base that begins after that. The checkpoint also remembers what retains the log, such as a
replication slot. If its kind does not recognize it, it retains only what came since, also when
no look happened meanwhile. Cannot detect: a replacement that the kind cannot distinguish from
the original.

Hidden topics. Kafka leaves topics without permission out of its listings silently, so their
table would look empty.

New rules. A base belongs to a shard, but its rows are in the mirror of one table. If the rules
now name another table, or no longer ignore the shard, earlier rows are in no mirror of that
table. Only a base that begins later closes this gap.

New standards. Two answers for one value in one column would neither join nor hide anything. So
everything that landed before is a gap, which only a base that begins later closes. Until then
the mirror does not advance.

`has_sent` answers whether a collector has sent all rows of a shard above an order, by its
lists.
"""

from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from pipeline.checkpoint import (
    NO_STANDARDS,
    Checkpoint,
    CollectorLists,
    Epoch,
    RowStandards,
    shard_exists,
    source_of,
)
from pipeline.landing.bases import with_again, with_torn
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.epochs import Epochs
from pipeline.landing.heartbeats import with_beats, with_levels, with_missing_heartbeats
from pipeline.landing.listing import LandingSource, Listing
from pipeline.landing.order_check import highest_by_source
from pipeline.landing.source_holds import with_late
from pipeline.model import (
    Capture,
    Head,
    Order,
    Ordering,
    PartitionEnd,
    RetainedLog,
    Shard,
    ShardId,
    TopicPartition,
)
from pipeline.reports import Gap, dump_gap, load_gap
from pipeline.settings import Router
from pipeline.sources.positions import explain_missing_log, locate_position
from pipeline.sources.source import explain_replaced_log
from pipeline.standards.table_standards import Standards
from pipeline.transports.topics import spelled

GRACE = timedelta(seconds=30)  # a task that is stopped for new lists may go by the old ones so long


def digest(capture: Capture) -> str:
    """What stays the same as long as the lists do."""
    return sha256(capture.text.encode()).hexdigest()[:16]


def collected(
    known: CollectorLists | None, now: Capture | None, last: Capture | None
) -> Capture | None:
    """The lists that what stands above ``known.above`` was sent by; None where nobody can tell.

    *known* are those of the batch before; *now* is None if the collector is silent, then *last*
    is what it told last in this life.
    """
    told = now or last
    if told is None or (known is None and now is None):
        return None
    if known is None:
        return told
    return told if known.since is None and known.digest == digest(told) else None


def is_above(known: CollectorLists | None, order: Order) -> bool:
    """Whether what stands at *order* was sent by the lists that are *known*, not by older ones."""
    return known is None or known.above is None or order > known.above


def captured(
    lists: Capture, names: Iterable[str], sent: Collection[str], *, first: bool
) -> set[str]:
    """Those shards of *names* that were captured when they were described.

    Rows that were *sent* show it, unless the lists are seen for the *first* time: the table may
    have been let in, or left out, between.
    """
    shown = () if first and lists.known else sent
    return {name for name in names if name in shown or _sends(lists, name)}


def placed(
    ends: Mapping[str, Order], made: Checkpoint, orderings: Mapping[str, Ordering]
) -> Mapping[str, Order]:
    """The *ends* of logs as changes are ordered: by what landed, where they bear no places."""
    weak = {name for name, one in orderings.items() if one is not Ordering.LOG}
    landed = highest_by_source(made.high) if weak else {}
    return {name: landed.get(name, end) if name in weak else end for name, end in ends.items()}


def with_lists(
    made: Checkpoint,
    before: Checkpoint,
    told: Mapping[str, Capture],
    ends: Mapping[str, Order],
    at: datetime,
) -> Checkpoint:
    """*made*, the mark after *before*, with the lists of its sources and what they leave out.

    *told* is without the collectors that are silent, and without what *before* says was replaced;
    *ends* without the logs of servers that are silent.
    """
    lists, gaps, stores = dict(before.lists), dict(made.gaps), made.stores
    for source, known in before.lists.items():  # and those that are told, below
        if known.unseen < 0:
            lists[source] = replace(known, unseen=made.batch)
    for source, capture in told.items():
        known_before = before.lists.get(source)
        lists[source] = now = _known(known_before, capture, ends.get(source), at)
        other = known_before is None or known_before.digest != now.digest
        fresh = _fresh(made, source, known_before)
        asked = {*(_based(made, source) if other else fresh)}
        left = {name for name in asked if capture.known and not _sends(capture, name)}
        unread = set[str]()
        if not capture.known:
            unread = {name for name in asked if other or not _shown(made, now, name)}
        silent = known_before is not None and known_before.unseen >= 0
        unsure = {*fresh} - left - unread if other and silent else set[str]()
        remembered = _remembered(before, source)
        replaced = _replaced(made, before, capture, remembered, source) - left
        if capture.remembered and remembered != capture.remembered:
            stores = {n: one for n, one in stores.items() if source_of(n) != source}
            stores |= {f"{source}/{name}": one for name, one in capture.remembered.items()}
        if left or unsure or unread or replaced:
            why = _why(capture, left=left, unsure=unsure, unread=unread, replaced=replaced)
            short = left | unsure | unread | replaced
            gap = Gap.noticed(f"lists:{source}", made.batch, why, short)
            gaps[gap.id] = dump_gap(gap)
    return replace(made, lists=lists, gaps=gaps, stores=stores)


def _known(
    before: CollectorLists | None, capture: Capture, end: Order | None, at: datetime
) -> CollectorLists:
    if before is None or before.digest != digest(capture):
        return CollectorLists(digest(capture), None if before is None else at)
    now = replace(before, unseen=-1)
    if now.since is None or at < now.since:
        return replace(now, since=now.since and at)  # a clock set back keeps nobody waiting
    passed = at - now.since >= GRACE and end is not None
    return replace(now, since=None, above=end) if passed else now


def _shown(made: Checkpoint, now: CollectorLists, name: str) -> bool:
    """Whether the rows of a base were sent by the lists that there are *now*."""
    return now.since is None and is_above(now, made.bases[name])


def _fresh(made: Checkpoint, source: str, known: CollectorLists | None) -> list[str]:
    """Shards whose base became complete since the lists were seen last before."""
    seen = made.batch if known is None or known.unseen < 0 else known.unseen
    every = [name for name, batch in made.complete.items() if batch >= seen]
    return [name for name in every if _is_based(made, source, name)]


def _based(made: Checkpoint, source: str) -> Iterator[str]:
    return (name for name in made.bases if _is_based(made, source, name))


def _is_based(made: Checkpoint, source: str, name: str) -> bool:
    table = made.shards.get(name) if source_of(name) == source else None
    return table is not None and name in made.bases and shard_exists(made, name)


def _sends(lists: Capture, name: str) -> bool:
    return lists(ShardId.parse(Shard.parse(name).name))


def _replaced(
    made: Checkpoint,
    before: Checkpoint,
    capture: Capture,
    remembered: Mapping[str, str],
    source: str,
) -> set[str]:
    """Those that were replaced, also if they have no base yet: it may be on its way.

    Not one of which nothing was known *before*: its rows may be the new table's.
    """
    now = capture.remembered
    differing = capture.differs(remembered) if remembered and remembered != now else frozenset()
    found = {*capture.replaced, *differing}
    if not found:
        return set()
    own = (n for n, table in made.shards.items() if table is not None and source_of(n) == source)
    there = (name for name in own if name in before.shards and shard_exists(made, name))
    return {name for name in there if ShardId.parse(Shard.parse(name).name) in found}


def _remembered(before: Checkpoint, source: str) -> dict[str, str]:
    """What the source had behind its tables, as of the batch before."""
    start = f"{source}/"
    return {n.removeprefix(start): one for n, one in before.stores.items() if n.startswith(start)}


def _why(
    capture: Capture, *, left: set[str], unsure: set[str], unread: set[str], replaced: set[str]
) -> str:
    why = list[str]()
    if left:
        why.append(
            f"{capture.said_by} were changed and leave out {_first(left)}; "
            "what is written to it is not sent: let it in, and take a new base of it"
        )
    if unsure:
        why.append(
            f"{capture.said_by} were changed while it did not answer, and may have left out "
            f"{_first(unsure)} when its base was made: take a new base of it"
        )
    if unread:
        why.append(
            f"{capture.said_by} cannot be read here, and may leave out {_first(unread)}: write "
            "them as `sluice doctor` says, and take a new base of it"
        )
    if replaced:
        why.append(
            f"{_first(replaced)} was changed at the source by a statement that its log leaves out "
            "(DROP and CREATE, RENAME, ALTER COLUMN TYPE, or ATTACH, DETACH or TRUNCATE of a"
            " partition, or left out for a while); run `sluice bootstrap TABLE`, or ignore it"
        )
    return "; ".join(why)


def _first(names: set[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"


def with_parted(
    made: Checkpoint, before: Checkpoint, heads: Mapping[str, tuple[Head, Head]]
) -> Checkpoint:
    """*made*, the mark after *before*, with what the servers of *heads* lack.

    *heads*: source -> what its server told before and after the listing, of those that answered.
    """
    gaps = dict(made.gaps)
    for source, (_, now) in heads.items():
        known = before.epochs.get(source)
        landed = None if known is None else _landed(before, source, known.number)
        why = None if known is None else _lacks(known, made.epochs[source], now, landed)
        if why is not None and (gap := _gap(source, made, before, why)).shards:
            gaps[gap.id] = dump_gap(gap)
    return replace(made, gaps=gaps)


def with_reordered(
    made: Checkpoint, before: Checkpoint, orderings: Mapping[str, Ordering]
) -> Checkpoint:
    """*made*, the mark after *before*, with tables whose changes are ordered by something else.

    *orderings*: source -> what they rest on now.  What came between the last change in the one
    order and the first in the other, no order tells.
    """
    gaps = dict(made.gaps)
    for source, now in orderings.items():
        known = before.orderings.get(source, now)
        why = f"changes of source {source} were ordered by {known}, and are by {now}"
        if known != now and (gap := _gap(source, made, before, why)).shards:
            gaps[gap.id] = dump_gap(gap)
    return replace(made, gaps=gaps, orderings={**made.orderings, **orderings})


def _landed(before: Checkpoint, source: str, epoch: int) -> Order | None:
    own = (order for name, order in before.high.items() if source_of(name) == source)
    return max((order for order in own if order.epoch == epoch), default=None)


def _lacks(known: Epoch, now: Epoch, head: Head, landed: Order | None) -> str | None:
    if known.number == now.number:
        return None
    return explain_missing_log(Head(known.identity, known.position), head, landed)


def _gap(source: str, made: Checkpoint, before: Checkpoint, why: str) -> Gap:
    """What is read in this batch may have been written by the new server, and so heals it."""
    batch = made.batch
    short = (
        name
        for name, table in made.shards.items()
        if table is not None and source_of(name) == source and shard_exists(made, name)
        if name not in made.bases or made.based.get(name, -1) < batch
    )
    why = f"{why}; take a new base of each of its tables"
    return Gap.noticed(f"log:{source}", batch, why, short, batch=before.batch)


def with_unkept(made: Checkpoint, before: Checkpoint, told: Mapping[str, Capture]) -> Checkpoint:
    """*made*, the mark after *before*, with what was not kept of its sources, as was *told*.

    A table of which nothing was known before is short of nothing: its slot may be as new.
    """
    for source, one in told.items():
        if one.broken is not None:
            made = _with_gap(made, _unkept_gap(source, made, before, one.broken.why))
        elif (known := before.keepers.get(source)) is not None and one.keeper is not None:
            made = _with_exchanged(source, made, before, known, one.keeper)
    keepers = {name: one for name, one in made.keepers.items() if name not in told}
    keepers |= {name: one.keeper for name, one in told.items() if one.keeper is not None}
    return replace(made, keepers=keepers)


def _with_exchanged(
    source: str, made: Checkpoint, before: Checkpoint, known: RetainedLog, now: RetainedLog
) -> Checkpoint:
    """A base from where the log is kept again holds all: of what was before, nobody knows."""
    why, epoch = explain_replaced_log(known, now), made.epochs.get(source)
    if why is None:
        return made
    above = Order(1 if epoch is None else epoch.number, *locate_position(now.begins))
    gap = _unkept_gap(source, made, before, why)
    whole = {name for name in gap.shards if name in made.bases and made.bases[name] >= above}
    left = tuple(name for name in gap.shards if name not in whole)
    made = replace(made, lost={**made.lost, **{name: made.bases[name] for name in whole}})
    return _with_gap(made, replace(gap, shards=left, above=above))


def _with_gap(made: Checkpoint, gap: Gap) -> Checkpoint:
    return replace(made, gaps={**made.gaps, gap.id: dump_gap(gap)}) if gap.shards else made


def _unkept_gap(source: str, made: Checkpoint, before: Checkpoint, why: str) -> Gap:
    """One that is open goes on: no base counts that began meanwhile."""
    topic, batch = f"unkept:{source}", made.batch
    known = next((one for one in map(load_gap, made.gaps.values()) if one.topic == topic), None)
    first = batch if known is None else known.first
    why, short = f"{why}; take a new base of each of its tables", _there(made, before, source)
    gap = Gap.noticed(topic, first, why, short, batch=batch)  # told the same as long as it lasts
    were = (one for one in map(load_gap, before.gaps.values()) if one.topic == topic)
    return gap.after(were, made.shards)  # a table that is left is in what befell all of them


def _there(made: Checkpoint, before: Checkpoint, source: str) -> set[str]:
    return {
        name
        for name, table in made.shards.items()
        if name in before.shards
        if table is not None and source_of(name) == source and shard_exists(made, name)
    }


def with_untold(
    made: Checkpoint,
    before: Checkpoint,
    listing: Listing,
    epochs: Epochs,
    *,
    facts: BatchStats,
    orderings: Mapping[str, Ordering],
    at: datetime,
) -> Checkpoint:
    """*made*, the mark after *before*, with the gaps that *listing* and *facts* show."""
    made = with_late(with_parted(made, before, listing.heads), facts)
    made = with_reordered(made, before, orderings)
    told, ends = listing.captures, placed(epochs.ends(listing.heads), made, orderings)
    made = with_unkept(with_lists(made, before, told, ends, at), before, told)
    made = with_torn(with_again(made, before, facts.wholes, at), before, facts.snapshots)
    made = with_missing_heartbeats(made, before, facts.heartbeat_rows, orderings)
    return with_levels(with_beats(made, before, facts.beats, orderings, listing.once), listing)


def hidden_among(
    names: Set[str],
    prefixes: Mapping[str, str],
    there: Container[str],
    hidden: Callable[[Set[str]], Set[str]],
) -> frozenset[str]:
    """Those shards of *names* whose topics we may not see: they look empty, and may not be.

    *prefixes* are those of the sources' topics, *there* the topics that we see; *hidden* asks which
    of some topics are refused.
    """
    shards = {name: Shard.parse(name) for name in names}
    topics = {n: f"{prefixes[one.source]}.{spelled(one.name)}" for n, one in shards.items()}
    unseen = {topic for topic in topics.values() if topic not in there}
    refused = hidden(unseen) if unseen else frozenset()
    return frozenset(name for name, topic in topics.items() if topic in refused)


def with_hidden(made: Checkpoint, hidden: Iterable[str], router: Router) -> Checkpoint:
    """*made* with a gap of each shard of *hidden* that a table is made of; its base closes it.

    One that the same batch drops again needs none: no later DROP would end it.
    """
    shards, gaps = dict(made.shards), dict(made.gaps)
    for name in sorted(hidden):
        shards[name] = router.table(Shard.parse(name).name)
        if shards[name] is not None and name not in made.bases and shard_exists(made, name):
            gap = _hidden_gap(name, made.batch)
            gaps[gap.id] = dump_gap(gap)
    return replace(made, shards=shards, gaps=gaps)


def _hidden_gap(name: str, batch: int) -> Gap:
    why = (
        f"Kafka does not let Sluice's user see a topic of {name}, if there is one: give it "
        "DESCRIBE and READ below the whole prefix, then take a new base of it"
    )
    topic = f"hidden:{name}"
    return Gap(f"{topic}:0:0@{batch}", topic, 0, 0, 0, why, shards=(name,), batch=batch)


RULES = "rules:"  # how the id of such a gap begins


def with_rules(made: Checkpoint, before: Checkpoint, router: Router) -> Checkpoint:
    """*made*, the mark of the first batch under the rules of *router*; *before* is the last one's.

    A shard that is gone needs nothing: what comes under its name again begins anew.
    """
    shards, gaps = dict(made.shards), dict(made.gaps)
    for name, old in before.shards.items():
        new = router.table(Shard.parse(name).name)
        if new == old:
            continue
        shards[name] = new
        if new is not None and shard_exists(made, name):
            gap = _new_rule_gap(name, old, new, made)
            gaps[gap.id] = dump_gap(gap)
    return replace(made, shards=shards, gaps=gaps)


def _new_rule_gap(name: str, old: str | None, new: str, made: Checkpoint) -> Gap:
    topic, partition, until = rule_place(Shard.parse(name).name, made.offsets)
    went = f"to {old}" if old is not None else "nowhere"
    why = f"the rules sent it {went}, and send it to {new} now; take a new base of {name}"
    return Gap(
        f"{RULES}{name}@{made.batch}",
        topic,
        partition,
        0,
        until,
        why,
        shards=(name,),
        batch=made.batch,
    )


def rule_place(shard: str, w: Mapping[str, PartitionEnd]) -> tuple[str, int, int]:
    """Topic and partition that *shard* came in, and where *w* stands there; else its name, 0, 0."""
    for name, end in sorted(w.items()):
        at = TopicPartition.parse(name)
        if at.topic.endswith(f".{shard}"):
            return at.topic, at.partition, end.offset
    return shard, 0, 0


STANDARDS = "standards:"  # how the id of such a gap begins


def with_standards(
    made: Checkpoint, before: Checkpoint, standards: Standards, *, anew: bool
) -> Checkpoint:
    """*made* with what its shards are written by; *before* is the mark of the batch before.

    *anew*: it is the first batch of a service, so that any shard's standards may have changed.
    """
    if not standards.rules and not before.standards:
        return made
    names = made.shards.keys() if anew else made.shards.keys() - before.shards.keys()
    known, gaps = dict(made.standards), dict(made.gaps)
    for name in sorted(names):
        digest, old = standards.digest(made.shards[name]), made.standards.get(name, NO_STANDARDS)
        if digest == old.digest:
            continue
        seen = name in before.shards
        known[name] = RowStandards(digest, made.batch if seen else -1)
        if seen and made.shards[name] is not None and shard_exists(made, name):
            gap = _new_standard_gap(name, made)
            gaps[gap.id] = dump_gap(gap)
    return replace(made, standards=known, gaps=gaps)


def _new_standard_gap(name: str, made: Checkpoint) -> Gap:
    topic, partition, until = rule_place(Shard.parse(name).name, made.offsets)
    why = f"`standards` changed: what landed of {name} is written otherwise; take a new base of it"
    found = f"{STANDARDS}{name}@{made.batch}"
    return Gap(found, topic, partition, 0, until, why, shards=(name,), batch=made.batch)


def has_sent(
    name: str,
    order: Order,
    *,
    feeds: Sequence[LandingSource],
    checkpoint: Checkpoint,
    listing: Listing,
    hidden: Callable[[Set[str]], Set[str]],
) -> bool | None:
    """Of the shard *name*, ``source/db.table``, above *order*; None while nobody can tell.

    Those of shards that are *hidden* are sent, but not to us.
    """
    source = source_of(name)
    feed = next((one for one in feeds if one.settings.name == source), None)
    if feed is None:
        return False
    known = checkpoint.lists.get(source)
    lists = collected(known, listing.captures.get(source), feed.told)
    if lists is None or not is_above(known, order):
        return None
    return bool(captured(lists, (name,), (), first=False)) and not hidden({name})
