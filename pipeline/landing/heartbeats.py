"""Detects missing and repeated heartbeats of a batch.

A missing number is a part of the source log that was not sent: a gap of all tables of the
source, whether its changes have log positions or not. Repeated numbers are judged only where
changes have no log positions: see `pipeline.heartbeats`.

A capped batch may read more of a table's partition than of the heartbeats' partition. It then
holds redelivered rows without the heartbeat whose number shows the redelivery. So the next
heartbeat that is higher than all before says nothing about such a batch. It proves something
only if it came after everything that was listed with the batch. The first listing that is not
reached at once is kept until it is. So a source that is always behind is covered, too, though
less often.

Some formats order changes by a sequence of the producer. There, what is logged after a
heartbeat must have a higher order, for any table. Otherwise a base, which has the order of a
heartbeat, would win over newer changes. So once everything logged before a heartbeat has
landed, only redeliveries can come below it. Anything else is disorder, even in a partition that
has shown nothing as high.

A heartbeat that had landed when the end of the log was noted was logged before that end. Once
everything before the end is acknowledged and landed, the heartbeat is a low watermark. It holds
in the partitions that existed then; one that is found later may hold older rows. The low
watermark is kept in memory, and determined again after a restart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.checkpoint import Checkpoint, Gap, shard_exists
from pipeline.heartbeats import (
    HeartbeatBacklog,
    HeartbeatHistory,
    HeartbeatRow,
    LandedHeartbeat,
    MissingHeartbeats,
    find_missing_heartbeats,
    follow_heartbeats,
)
from pipeline.landing.listing import Listing
from pipeline.landing.order_check import highest_by_source
from pipeline.landing.rule import BatchContext
from pipeline.model import (
    Head,
    Order,
    Ordering,
    PartitionEnd,
    Shard,
    SourcePartition,
    TopicPartition,
)
from pipeline.sources.positions import has_reached

WORDS = 2  # acknowledgements to count; the last was listed after the numbers had climbed back


def follow_histories(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Follow the heartbeats of sources without log positions; record what they show as gaps."""
    before, heartbeats, once = context.before, context.stats.landed_heartbeats, context.listing.once
    placed = {name for name, one in context.orderings.items() if one is Ordering.LOG}
    trails = {
        source: one
        for source, one in checkpoint.heartbeat_histories.items()
        if source not in placed
    }
    gaps, tops = dict(checkpoint.gaps), highest_by_source(before.high) if heartbeats else {}
    for source, own in heartbeats.items():
        if context.has_log_positions(source):
            continue
        trail = trails.get(source)
        since = checkpoint.batch if trail is None else trail.raised
        seen = follow_heartbeats(trail, own, checkpoint.batch)
        if seen is None:
            continue
        judged = _judged(seen.trail, tops.get(source), checkpoint.batch)
        trails[source] = replace(judged, once=source in once)
        lost = _lost_with(checkpoint, since, own) if seen.skipped else ""
        found = [_never_sent(source, checkpoint, one, lost) for one in seen.skipped]
        if seen.doubtful:  # earlier findings still hold: a base must begin after this one
            gaps = {
                id_: one for id_, one in gaps.items() if not id_.startswith(f"{_twice(source)}:")
            }
            found.append(_sent_twice(source, checkpoint, seen.trail))
        gaps |= {gap.id: gap for gap in found if gap.shards}
    trails = {source: _settled(one, source, checkpoint, before) for source, one in trails.items()}
    return replace(checkpoint, heartbeat_histories=trails, gaps=gaps)


def detect_missing_heartbeats(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap for each run of missing heartbeats of sources with log positions.

    The missing heartbeats may come again, with the one before the gap and the one after it, in this
    order. Then the gap closes once all that was sent with them has landed (`next_checkpoint`). A
    base from the next heartbeat on closes it, too.
    """
    before, rows = context.before, context.stats.heartbeat_rows
    offsets = {
        (at.topic, at.partition): end.offset for at, end in (before.offsets.items() if rows else ())
    }
    gaps = dict(checkpoint.gaps)
    for source, own in rows.items():
        if not context.has_log_positions(source):
            continue
        gaps = _with_sent_again(source, gaps, own)
        gaps = _with_new_shards(source, gaps, checkpoint, before)
        highest = before.heartbeats.get(source, -1)
        orders = {row.number: row.order for row in own}
        for missing, above in (
            find_missing_heartbeats(highest, own, offsets) if highest >= 0 else ()
        ):
            below = orders.get(missing.first - 1) or _last_order(source, own, before)
            gap = replace(_never_sent(source, checkpoint, missing, ""), above=above, below=below)
            left = tuple(
                name
                for name in gap.shards
                if (base := checkpoint.bases.get(Shard.parse(name))) is None or base < above
            )
            if left:
                gaps[gap.id] = replace(gap, shards=left)
    return replace(checkpoint, gaps=gaps)


def _with_sent_again(
    source: str, gaps: Mapping[str, Gap], rows: Iterable[HeartbeatRow]
) -> dict[str, Gap]:
    """Return *gaps*, each with the number up to which all was sent again, from before the gap on.

    The missing heartbeats alone do not show that all was sent again. The log may have been sent
    again from a position just before them, and the changes between them and the heartbeat before
    are still missing. Nor do heartbeats show that rows of other partitions have landed, so
    ``passed`` starts again at False.
    """
    came = [
        row
        for row in sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))
        if not row.read and row.number >= 0
    ]
    found = dict(gaps)
    for gap in gaps.values() if came else ():
        if gap.topic == f"beats:{source}" and not gap.sent_again:
            now = replace(gap, again=_sent_again(gap, (row.number for row in came)))
            if now.sent_again:  # a new server has its end at another position
                ends = [row.order for row in came if row.number == gap.until] + [gap.above]
                above = max((order for order in ends if order is not None), default=None)
                now = replace(now, passed=False, above=above)
            found[gap.id] = now
    return found


def _with_new_shards(
    source: str, gaps: Mapping[str, Gap], made: Checkpoint, before: Checkpoint
) -> dict[str, Gap]:
    """Return *gaps* that also cover tables that were first seen in what was sent again."""
    own = (one for one in made.shards.keys() - before.shards.keys() if one.source == source)
    there = (one for one in own if made.shards[one] is not None and shard_exists(made, one))
    new = tuple(there)
    found = dict(gaps)
    for gap in gaps.values() if new else ():
        above = gap.above
        if gap.topic == f"beats:{source}" and above is not None:
            short = {
                str(shard)
                for shard in new
                if (base := made.bases.get(shard)) is None or base < above
            }
            found[gap.id] = replace(gap, shards=tuple(sorted({*gap.shards, *short})))
    return found


def _last_order(source: str, rows: Iterable[HeartbeatRow], before: Checkpoint) -> Order | None:
    """Return the order of the newest landed heartbeat of *source* in *before*, None if unknown.

    *rows* name the topic of the heartbeats.
    """
    topics = {row.topic for row in rows}
    own = (
        order
        for one, order in before.high.items()
        if one.source == source and one.at.topic in topics
    )
    return max(own, default=None)


def _sent_again(gap: Gap, numbers: Iterable[int]) -> int:
    """Return up to which heartbeat all was sent again, from before *gap*; -1 after a jump."""
    again = gap.again
    for number in numbers:
        if again < gap.until:
            goes_on = again >= 0 and gap.first - 1 <= number <= again + 1
            again = number if goes_on or number == gap.first - 1 else -1
    return again


def _judged(trail: HeartbeatHistory, top: Order | None, batch: int) -> HeartbeatHistory:
    """Return *trail*, with a note whether its highest order is above all of earlier batches."""
    if trail.raised != batch:
        return trail
    return replace(trail, clear=top is None or top < trail.order)


def _settled(
    trail: HeartbeatHistory, source: str, made: Checkpoint, before: Checkpoint
) -> HeartbeatHistory:
    """Return *trail*, which is not over before all that was sent again has landed everywhere.

    In capped batches other partitions may be behind that of the heartbeats. An acknowledgement
    counts once all has landed that was listed after it. The first one to count may have been listed
    before the numbers had climbed back; the second was listed after the first counted.
    """
    if trail.over == made.batch:
        ways = sum(one.source == source for one in made.high)
        return replace(trail, owed=WORDS if ways > 1 else 0)
    if not trail.owed:
        return trail
    now = made.acknowledged.get(source)
    heard = now is not None and now != before.acknowledged.get(source)
    return replace(trail, over=made.batch, owed=trail.owed - heard)


def _lost_with(made: Checkpoint, since: int, heartbeats: Iterable[LandedHeartbeat]) -> str:
    """Return the losses since batch *since* in the partitions from which *heartbeats* came."""
    ways = {one.partition_of for one in heartbeats}
    losses = (
        f"{gap.topic}:{gap.partition} [{gap.first}, {gap.until})"
        for gap in made.gaps.values()
        if gap.batch >= since and (gap.topic, gap.partition) in ways
    )
    return " and ".join(sorted(losses))


def _never_sent(source: str, made: Checkpoint, skipped: MissingHeartbeats, gone: str) -> Gap:
    lost = f"heartbeat {skipped.first} of source {source} is missing"
    if skipped.until - skipped.first > 1:
        lost = f"heartbeats {skipped.first} to {skipped.until - 1} of source {source} are missing"
    cause = (
        f"because {gone} was deleted before it landed" if gone else "although a later one landed"
    )
    fix = "run `sluice bootstrap TABLE --reason ...`"
    why = f"{lost} {cause}, so changes may be lost; {fix}"
    return _gap(source, made, f"beats:{source}", (skipped.first, skipped.until), why)


def _sent_twice(source: str, made: Checkpoint, trail: HeartbeatHistory) -> Gap:
    why = (
        f"source {source} is sent by two collectors, or by one that keeps restarting: heartbeat"
        f" {trail.last} came after {trail.highest}, so older rows may have replaced newer ones;"
        " stop one collector, then run `sluice bootstrap TABLE --reason ...`"
    )
    return _gap(source, made, _twice(source), (trail.last, trail.highest + 1), why)


def _twice(source: str) -> str:
    return f"collectors:{source}"


def _gap(source: str, made: Checkpoint, topic: str, span: tuple[int, int], why: str) -> Gap:
    own = (s for s, table in made.shards.items() if table is not None and s.source == source)
    shards = tuple(sorted(str(shard) for shard in own if shard_exists(made, shard)))
    id_ = f"{topic}:0:{span[0]}@{made.batch}"
    return Gap(id_, topic, 0, *span, why, shards=shards, batch=made.batch)


def note_levels(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record the batch up to which all heartbeats have landed that were listed with it."""
    listing = context.listing
    own = _partitions(checkpoint.heartbeat_histories, listing)
    heartbeats = {
        source: _levelled(trail, checkpoint, own[source], listing.ends)
        for source, trail in checkpoint.heartbeat_histories.items()
    }
    return replace(checkpoint, heartbeat_histories=heartbeats)


def _partitions(sources: Iterable[str], listing: Listing) -> Mapping[str, list[TopicPartition]]:
    """Return the partitions of each of *sources* that hold anything."""
    found: dict[str, list[TopicPartition]] = {source: [] for source in sources}
    for at, end in listing.ends.items() if found else ():
        if end.offset and (source := listing.source_of[at.topic]) in found:
            found[source].append(at)
    return found


def _levelled(
    trail: HeartbeatHistory,
    made: Checkpoint,
    own: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, PartitionEnd],
) -> HeartbeatHistory:
    listed = {str(at): ends[at].offset for at in own if at.topic == trail.topic}
    if not listed:
        return trail
    waiting = trail.backlog
    if waiting is not None and not _broken(waiting, listed):
        if not _landed(waiting.ends, made):
            return trail
        trail = replace(trail, level=waiting.batch)
    if len(own) == 1 or _landed(listed, made):  # a single partition is never ahead of another one
        return replace(trail, level=made.batch, backlog=None)
    return replace(trail, backlog=HeartbeatBacklog(made.batch, listed))


def _broken(waiting: HeartbeatBacklog, listed: Mapping[str, int]) -> bool:
    """Return whether it is never reached: heartbeats use another topic now, or this one was cut."""
    return any(listed.get(name, -1) < end for name, end in waiting.ends.items())


def _landed(ends: Mapping[str, int], made: Checkpoint) -> bool:
    named = ((made.offsets.get(TopicPartition.parse(name)), end) for name, end in ends.items())
    return all(w is not None and w.offset >= end for w, end in named)


@dataclass(frozen=True, slots=True)
class _SeenHeartbeat:
    """A heartbeat that had landed when its source's log ended at ``head``; the partitions then."""

    order: Order
    head: Head
    partitions: frozenset[SourcePartition]


@dataclass(eq=False)
class HeartbeatLowWatermark:
    """For each source the newest heartbeat that is a low watermark, and the next candidate."""

    _passed: dict[str, _SeenHeartbeat] = field(default_factory=dict)
    _next: dict[str, _SeenHeartbeat] = field(default_factory=dict)

    def floors(
        self, checkpoint: Checkpoint, listing: Listing, orderings: Mapping[str, Ordering]
    ) -> Mapping[SourcePartition, Order]:
        """Return `SourcePartition` -> order of the low watermark that holds in it.

        *listing* was made after *checkpoint*.
        """
        counted = [one for one, its in orderings.items() if its is Ordering.SEQUENCE]
        for source in counted:
            self._learn(source, checkpoint, listing)
        known = (self._passed[source] for source in counted if source in self._passed)
        return {name: one.order for one in known for name in one.partitions}

    def _learn(self, source: str, checkpoint: Checkpoint, listing: Listing) -> None:
        epoch, known = checkpoint.epochs.get(source), checkpoint.acknowledged.get(source)
        if (waiting := self._next.get(source)) is not None and epoch is not None:
            number, head = waiting.order.epoch, waiting.head
            if (number, head.identity) != (epoch.number, epoch.identity):
                del self._next[source]
            elif known is not None and has_reached(known.position, head.position):
                self._passed[source] = self._next.pop(source)
        trail = checkpoint.heartbeat_histories.get(source)
        if trail is None or source in self._next or source not in listing.heads:
            return
        if not (trail.resending or trail.divided):
            head, own = listing.heads[source][0], _heartbeat_partitions(source, listing)
            self._next[source] = _SeenHeartbeat(trail.order, head, own)


def _heartbeat_partitions(source: str, listing: Listing) -> frozenset[SourcePartition]:
    own = (at for at in listing.ends if listing.source_of[at.topic] == source)
    return frozenset(SourcePartition(source, at) for at in own)
