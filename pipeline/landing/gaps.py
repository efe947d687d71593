"""Detects losses that no offsets show, and records each as a gap of the tables concerned.

`next_checkpoint.RULES` lists them in order. Rules of snapshots are in `bases`, of heartbeats in
`heartbeats`, and of waived rows in `source_holds`.

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
from shlex import quote

from pipeline.checkpoint import (
    NO_STANDARDS,
    Checkpoint,
    CollectorLists,
    Epoch,
    Gap,
    RowStandards,
    shard_exists,
    source_of,
)
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.listing import LandingSource, Listing
from pipeline.landing.rule import BatchContext
from pipeline.model import (
    CaptureScope,
    Head,
    Order,
    PartitionEnd,
    RetainedLog,
    Shard,
    ShardId,
    TopicPartition,
)
from pipeline.sources.positions import explain_missing_log, locate_position
from pipeline.sources.source import explain_replaced_log
from pipeline.transports.topics import spell_topic

GRACE = timedelta(seconds=30)  # a task that stops for new lists may use the old ones so long


def digest_scope(capture: CaptureScope) -> str:
    """Return a digest that changes only when the lists do."""
    return sha256(capture.text.encode()).hexdigest()[:16]


def find_collected(
    known: CollectorLists | None, now: CaptureScope | None, last: CaptureScope | None
) -> CaptureScope | None:
    """Return the lists that selected what is above ``known.above``; None if that is unknown.

    *known* are those of the batch before. A silent collector has no *now*; then *last* is its last
    answer since the start.
    """
    selecting = now or last
    if selecting is None or (known is None and now is None):
        return None
    if known is None:
        return selecting
    return selecting if known.since is None and known.digest == digest_scope(selecting) else None


def is_above(known: CollectorLists | None, order: Order) -> bool:
    """Return whether the change at *order* was sent under the *known* lists, not older ones."""
    return known is None or known.above is None or order > known.above


def find_captured(
    lists: CaptureScope, names: Iterable[str], sent: Collection[str], *, first: bool
) -> set[str]:
    """Return the shards of *names* that were captured when they were described.

    Rows that were *sent* show it, unless the lists are seen for the *first* time. Then the table
    may have been included, or left out, between.
    """
    shown = () if first and lists.known else sent
    return {name for name in names if name in shown or _sends(lists, Shard.parse(name))}


def detect_capture_changes(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record the collectors' lists, and a gap of the tables that they leave out.

    Collectors that do not answer are absent from the listing, and so are replacements that the
    checkpoint before the batch has recorded.
    """
    before, captures, at = context.before, context.listing.captures, context.at
    ends = context.locate_log_ends(checkpoint)
    lists, gaps, stores = dict(before.lists), dict(checkpoint.gaps), checkpoint.stores
    for source, known in before.lists.items():  # sources that answered are updated below
        if known.unseen < 0:
            lists[source] = replace(known, unseen=checkpoint.batch)
    for source, capture in captures.items():
        known_before = before.lists.get(source)
        lists[source] = now = _follow_lists(known_before, capture, ends.get(source), at)
        other = known_before is None or known_before.digest != now.digest
        fresh = _fresh(checkpoint, source, known_before)
        asked = {*(_based(checkpoint, source) if other else fresh)}
        left = {shard for shard in asked if capture.known and not _sends(capture, shard)}
        unread = set[Shard]()
        if not capture.known:
            unread = {shard for shard in asked if other or not _is_shown(checkpoint, now, shard)}
        silent = known_before is not None and known_before.unseen >= 0
        unsure = {*fresh} - left - unread if other and silent else set[Shard]()
        remembered = _remembered(before, source)
        replaced = _replaced(checkpoint, before, capture, remembered, source) - left
        if capture.remembered and remembered != capture.remembered:
            stores = {n: one for n, one in stores.items() if source_of(n) != source}
            stores |= {f"{source}/{name}": one for name, one in capture.remembered.items()}
        if left or unsure or unread or replaced:
            why = _why(capture, left=left, unsure=unsure, unread=unread, replaced=replaced)
            short = left | unsure | unread | replaced
            gap = Gap.noticed(f"lists:{source}", checkpoint.batch, why, map(str, short))
            gaps[gap.id] = gap
    return replace(checkpoint, lists=lists, gaps=gaps, stores=stores)


def _follow_lists(
    before: CollectorLists | None, capture: CaptureScope, end: Order | None, at: datetime
) -> CollectorLists:
    if before is None or before.digest != digest_scope(capture):
        return CollectorLists(digest_scope(capture), None if before is None else at)
    now = replace(before, unseen=-1)
    if now.since is None or at < now.since:
        return replace(now, since=now.since and at)  # a clock that was set back must not delay it
    passed = at - now.since >= GRACE and end is not None
    return replace(now, since=None, above=end) if passed else now


def _is_shown(made: Checkpoint, now: CollectorLists, shard: Shard) -> bool:
    """Return whether the rows of a base were sent under the lists of *now*."""
    return now.since is None and is_above(now, made.bases[shard])


def _fresh(made: Checkpoint, source: str, known: CollectorLists | None) -> list[Shard]:
    """Return shards whose base became complete since the lists were last seen before."""
    seen = made.batch if known is None or known.unseen < 0 else known.unseen
    every = [shard for shard, batch in made.complete.items() if batch >= seen]
    return [shard for shard in every if _is_based(made, source, shard)]


def _based(made: Checkpoint, source: str) -> Iterator[Shard]:
    return (shard for shard in made.bases if _is_based(made, source, shard))


def _is_based(made: Checkpoint, source: str, shard: Shard) -> bool:
    table = made.shards.get(shard) if shard.source == source else None
    return table is not None and shard in made.bases and shard_exists(made, shard)


def _sends(lists: CaptureScope, shard: Shard) -> bool:
    return lists(ShardId.parse(shard.name))


def _replaced(
    made: Checkpoint,
    before: Checkpoint,
    capture: CaptureScope,
    remembered: Mapping[str, str],
    source: str,
) -> set[Shard]:
    """Return the replaced shards, with a base or without: a base may be on its way.

    A shard that was unknown *before* does not count: its rows may be those of the new table.
    """
    now = capture.remembered
    differing = capture.differs(remembered) if remembered and remembered != now else frozenset()
    found = {*capture.replaced, *differing}
    if not found:
        return set()
    there = _there(made, before, source)
    return {shard for shard in there if ShardId.parse(shard.name) in found}


def _remembered(before: Checkpoint, source: str) -> dict[str, str]:
    """Return the ``stores`` of *source* as of the batch before, by their names."""
    start = f"{source}/"
    return {n.removeprefix(start): one for n, one in before.stores.items() if n.startswith(start)}


def _why(
    capture: CaptureScope,
    *,
    left: set[Shard],
    unsure: set[Shard],
    unread: set[Shard],
    replaced: set[Shard],
) -> str:
    why = list[str]()
    if left:
        why.append(
            f"{capture.said_by} were changed and leave out {_first(left)}; "
            "its changes are not sent: include the table, and take a new base of it"
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
            " partition, or left out for a while); run `sluice bootstrap TABLE --reason ...`, or"
            " ignore it"
        )
    return "; ".join(why)


def _first(shards: set[Shard]) -> str:
    more = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
    return f"{min(map(str, shards))}{more}"


def detect_failover_divergence(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap of each source whose new server does not have all changes of the old one."""
    before, gaps = context.before, dict(checkpoint.gaps)
    for source, (_, now) in context.listing.heads.items():
        known = before.epochs.get(source)
        landed = None if known is None else _landed(before, source, known.number)
        why = (
            None
            if known is None
            else _explain_divergence(known, checkpoint.epochs[source], now, landed)
        )
        if why is not None and (gap := _gap(source, checkpoint, before, why)).shards:
            gaps[gap.id] = gap
    return replace(checkpoint, gaps=gaps)


def detect_changed_orderings(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record what orders are based on, and a gap of each source whose ordering changed.

    No order shows what came between the last change in the old ordering and the first in the new.
    """
    gaps = dict(checkpoint.gaps)
    for source, now in context.orderings.items():
        known = context.before.orderings.get(source, now)
        why = f"changes of source {source} were ordered by {known}, and are by {now}"
        if known != now and (gap := _gap(source, checkpoint, context.before, why)).shards:
            gaps[gap.id] = gap
    orderings = {**checkpoint.orderings, **context.orderings}
    return replace(checkpoint, gaps=gaps, orderings=orderings)


def _landed(before: Checkpoint, source: str, epoch: int) -> Order | None:
    own = (order for one, order in before.high.items() if one.source == source)
    return max((order for order in own if order.epoch == epoch), default=None)


def _explain_divergence(known: Epoch, now: Epoch, head: Head, landed: Order | None) -> str | None:
    if known.number == now.number:
        return None
    return explain_missing_log(Head(known.identity, known.position), head, landed)


def _gap(source: str, made: Checkpoint, before: Checkpoint, why: str) -> Gap:
    """Return the gap of a source with another log; what this batch reads may close it.

    That is because the new server may have written it.
    """
    batch = made.batch
    there = (
        shard
        for shard, table in made.shards.items()
        if table is not None and shard.source == source and shard_exists(made, shard)
    )
    short = (
        str(shard)
        for shard in there
        if shard not in made.bases or made.based.get(shard, -1) < batch
    )
    why = f"{why}; take a new base of each of its tables"
    return Gap.noticed(f"log:{source}", batch, why, short, batch=before.batch)


def detect_lost_logs(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record what retains each log, and a gap of each source whose log was not retained.

    A table that was unknown before the batch has lost nothing: its slot may be as new.
    """
    before, captures = context.before, context.listing.captures
    for source, one in captures.items():
        if one.broken is not None:
            gap = _unkept_gap(source, checkpoint, before, one.broken.why)
            checkpoint = _with_gap(checkpoint, gap)
        elif (known := before.keepers.get(source)) is not None and one.keeper is not None:
            checkpoint = _with_exchanged(source, checkpoint, before, known, one.keeper)
    keepers = {name: one for name, one in checkpoint.keepers.items() if name not in captures}
    keepers |= {name: one.keeper for name, one in captures.items() if one.keeper is not None}
    return replace(checkpoint, keepers=keepers)


def _with_exchanged(
    source: str, made: Checkpoint, before: Checkpoint, known: RetainedLog, now: RetainedLog
) -> Checkpoint:
    """Record a gap of a replaced log; a base from where it is retained again closes it."""
    why, epoch = explain_replaced_log(known, now), made.epochs.get(source)
    if why is None:
        return made
    above = Order(1 if epoch is None else epoch.number, *locate_position(now.begins))
    gap = _unkept_gap(source, made, before, why)
    short = ((shard, made.bases.get(shard)) for shard in map(Shard.parse, gap.shards))
    whole = {shard: base for shard, base in short if base is not None and base >= above}
    left = tuple(name for name in gap.shards if Shard.parse(name) not in whole)
    made = replace(made, lost={**made.lost, **whole})
    return _with_gap(made, replace(gap, shards=left, above=above))


def _with_gap(made: Checkpoint, gap: Gap) -> Checkpoint:
    return replace(made, gaps={**made.gaps, gap.id: gap}) if gap.shards else made


def _unkept_gap(source: str, made: Checkpoint, before: Checkpoint, why: str) -> Gap:
    """Return the gap of a log that was not retained.

    A gap that is open continues: a base that began meanwhile does not close it.
    """
    topic, batch = f"unkept:{source}", made.batch
    known = next((one for one in made.gaps.values() if one.topic == topic), None)
    first = batch if known is None else known.first
    why = f"{why}; take a new base of each of its tables"
    short = map(str, _there(made, before, source))
    gap = Gap.noticed(topic, first, why, short, batch=batch)  # stays the same as long as it lasts
    were = (one for one in before.gaps.values() if one.topic == topic)
    return gap.after(were, made.shards)  # a table that remains shares the loss of all


def _there(made: Checkpoint, before: Checkpoint, source: str) -> set[Shard]:
    return {
        shard
        for shard, table in made.shards.items()
        if table is not None and shard.source == source
        if shard in before.shards and shard_exists(made, shard)
    }


def hidden_among(
    names: Set[str],
    prefixes: Mapping[str, str],
    there: Container[str],
    hidden: Callable[[Set[str]], Set[str]],
) -> frozenset[str]:
    """Return the shards of *names* whose topics Sluice may not see: they only look empty.

    *prefixes* are those of the sources' topics, *there* the topics that Sluice sees. *hidden*
    returns which of some topics are refused.
    """
    shards = {name: Shard.parse(name) for name in names}
    topics = {n: f"{prefixes[one.source]}.{spell_topic(one.name)}" for n, one in shards.items()}
    unseen = {topic for topic in topics.values() if topic not in there}
    refused = hidden(unseen) if unseen else frozenset()
    return frozenset(name for name, topic in topics.items() if topic in refused)


def note_captured_news(
    stats: BatchStats,
    feeds: Sequence[LandingSource],
    checkpoint: Checkpoint,
    listing: Listing,
    find_hidden: Callable[[Set[str]], Set[str]],
) -> BatchStats:
    """Return *stats* that mark schema changes of tables whose rows the collector sends.

    *checkpoint* is the one before the batch; *find_hidden* returns the shards whose topics Sluice
    may not see.
    """
    if not stats.news:
        return stats
    found: set[str] = set()
    for feed in feeds:
        name, known = feed.settings.name, checkpoint.lists.get(feed.settings.name)
        lists = find_collected(known, listing.captures.get(name), feed.last_scope)
        if lists is not None:
            own = {news.name for news in stats.news if news.source == name}
            found |= find_captured(lists, own, stats.shards, first=known is None)
    hidden = frozenset(find_hidden(found - stats.shards.keys()))
    sent, lists_of = found - hidden, checkpoint.lists
    news = (
        replace(o, captured=o.name in sent and is_above(lists_of.get(o.source), o.change.order))
        for o in stats.news
    )
    return replace(stats, news=tuple(news), hidden=hidden)


def detect_hidden_topics(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap of each shard whose topic Sluice may not see; its base closes the gap.

    A shard that the same batch drops again needs none: no later DROP would end it.
    """
    if not context.stats.hidden:
        return checkpoint
    shards, gaps = dict(checkpoint.shards), dict(checkpoint.gaps)
    for name in sorted(context.stats.hidden):
        shard = Shard.parse(name)
        shards[shard] = context.router.table(shard.name)
        captured = shards[shard] is not None and shard_exists(checkpoint, shard)
        if captured and shard not in checkpoint.bases:
            gap = _hidden_gap(name, checkpoint.batch)
            gaps[gap.id] = gap
    return replace(checkpoint, shards=shards, gaps=gaps)


def _hidden_gap(name: str, batch: int) -> Gap:
    why = (
        f"Kafka does not let Sluice's user see a topic of {name}, if there is one: give it "
        "DESCRIBE and READ below the whole prefix, then take a new base of it"
    )
    topic = f"hidden:{name}"
    return Gap(f"{topic}:0:0@{batch}", topic, 0, 0, 0, why, shards=(name,), batch=batch)


NEW_RULE = "rules:"  # prefix of the gap's id


def detect_new_rules(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap of each shard that the rules now send to another table.

    A dropped shard needs none: rows that come later under its name belong to a new table.
    """
    if not context.settings_changed:
        return checkpoint
    shards, gaps = dict(checkpoint.shards), dict(checkpoint.gaps)
    for shard, old in context.before.shards.items():
        new = context.router.table(shard.name)
        if new == old:
            continue
        shards[shard] = new
        if new is not None and shard_exists(checkpoint, shard):
            gap = _new_rule_gap(shard, old, new, checkpoint)
            gaps[gap.id] = gap
    return replace(checkpoint, shards=shards, gaps=gaps)


def _new_rule_gap(shard: Shard, old: str | None, new: str, made: Checkpoint) -> Gap:
    topic, partition, until = rule_place(shard.name, made.offsets)
    before = old if old is not None else "no table"
    why = (
        f"`tables` now maps {shard} to {new} (before: {before}), so its earlier rows are missing"
        f" there; run `sluice bootstrap {quote(new)} --reason ...`"
    )
    return Gap(
        f"{NEW_RULE}{shard}@{made.batch}",
        topic,
        partition,
        0,
        until,
        why,
        shards=(str(shard),),
        batch=made.batch,
    )


def rule_place(shard: str, w: Mapping[TopicPartition, PartitionEnd]) -> tuple[str, int, int]:
    """Return topic, partition and offset in *w* of *shard*; its name, 0 and 0 if unknown."""
    at = min((at for at in w if at.topic.endswith(f".{shard}")), key=str, default=None)
    return (shard, 0, 0) if at is None else (at.topic, at.partition, w[at].offset)


NEW_STANDARD = "standards:"  # prefix of the gap's id


def detect_new_standards(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record the standards of each shard, and a gap of each shard whose standards changed."""
    before, standards = context.before, context.standards
    if not standards.rules and not before.standards:
        return checkpoint
    shards = set(checkpoint.shards)
    if not context.settings_changed:
        shards -= before.shards.keys()
    if not shards:
        return checkpoint
    known, gaps = dict(checkpoint.standards), dict(checkpoint.gaps)
    for shard in sorted(shards):
        digest = standards.digest(checkpoint.shards[shard])
        if digest == checkpoint.standards.get(shard, NO_STANDARDS).digest:
            continue
        seen = shard in before.shards
        known[shard] = RowStandards(digest, checkpoint.batch if seen else -1)
        if seen and checkpoint.shards[shard] is not None and shard_exists(checkpoint, shard):
            gap = _new_standard_gap(shard, checkpoint)
            gaps[gap.id] = gap
    return replace(checkpoint, standards=known, gaps=gaps)


def _new_standard_gap(shard: Shard, made: Checkpoint) -> Gap:
    topic, partition, until = rule_place(shard.name, made.offsets)
    why = f"`standards` changed: what landed of {shard} is written otherwise; take a new base of it"
    found = f"{NEW_STANDARD}{shard}@{made.batch}"
    return Gap(found, topic, partition, 0, until, why, shards=(str(shard),), batch=made.batch)


def has_sent(
    shard: Shard,
    order: Order,
    *,
    feeds: Sequence[LandingSource],
    checkpoint: Checkpoint,
    listing: Listing,
    hidden: Callable[[Set[str]], Set[str]],
) -> bool | None:
    """Return whether changes of the shard above *order* are sent; None while that is unknown.

    Changes of *hidden* shards are sent, but invisible here.
    """
    source = shard.source
    feed = next((one for one in feeds if one.settings.name == source), None)
    if feed is None:
        return False
    known = checkpoint.lists.get(source)
    lists = find_collected(known, listing.captures.get(source), feed.last_scope)
    if lists is None or not is_above(known, order):
        return None
    return _sends(lists, shard) and not hidden({str(shard)})
