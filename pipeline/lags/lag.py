"""Computes watermark and lag per hop from the samples of a round; lags sum to now - watermark.

A watermark is the `at` of a heartbeat that has provably passed the hop, never a time stamp of a
change. So the watermark of an idle table advances. It never goes back within an epoch.

A sample that is absent, stale, not advancing or ahead of the clock makes its hop `Missing`, never
0. Upstream is sampled first, so an early stage may look behind a later one. A heartbeat that is
further downstream has certainly passed the early stage, so its watermark is raised to that. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from pipeline.checkpoint import Checkpoint
from pipeline.lags.samples import (
    Sample,
    Samples,
    SourceSamples,
    applied_step,
    find_oldest_age,
    require_active_fences,
    require_fresh,
)
from pipeline.model import Acknowledged, Fence, Hop, Lag, Missing, Stage, Table
from pipeline.sources.positions import has_reached, names_transactions

Watermark = datetime | Missing
STAGE_EXIT = {
    Stage.LANDED: Hop.CONSUMER,
    Stage.MIRROR: Hop.MERGE,
    Stage.IMAGE: Hop.MERGE,
    Stage.COPY: Hop.COPY,
}
EVERY = (Hop.COLLECTION, Hop.CONSUMER, Hop.MERGE)  # that every source has
MOVING = (Stage.LANDED, Stage.MIRROR)  # an image does not change: no watermark passes it
BEHIND = {
    Stage.LANDED: (Hop.MERGE, Hop.COPY),
    Stage.COPY: (),
}  # hops that a stage does not wait for


@dataclass(frozen=True, slots=True)
class WatermarkFloor:
    """A lower bound of a watermark, within its epoch and while batches increase."""

    at: datetime
    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class HopLag:
    """One hop: its lag, the watermark it ends at, and the age of its oldest sample."""

    hop: Hop
    lag: Lag
    watermark: Watermark
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class Lags:
    """The hops of one table at one instant, in the order a change passes them.

    ``kept`` is for the next round's :func:`measure_lags`, by source and hop.
    """

    table: str
    at: datetime
    hops: tuple[HopLag, ...]
    kept: Mapping[tuple[str, Hop], WatermarkFloor] = field(default_factory=dict)

    def up_to(self, stage: Stage) -> tuple[HopLag, ...]:
        """The hops that a change has passed when it is in *stage*."""
        behind = BEHIND.get(stage, (Hop.COPY,))
        return tuple(each for each in self.hops if each.hop not in behind)

    def total(self, stage: Stage) -> Lag:
        """Sum of the lags up to *stage*; Missing if one of them is missing or negative."""
        total = timedelta()
        for each in self.up_to(stage):
            if isinstance(each.lag, Missing):
                return Missing(f"{each.hop}: {each.lag.why}")
            if each.lag < timedelta():
                return Missing(f"{each.hop}: negative lag")  # a wrong clock must not gain time
            total += each.lag
        return total if self.hops else Missing("no hop was measured")

    def slowest(self, stage: Stage = Stage.MIRROR) -> HopLag | None:
        """The first hop up to *stage* with unknown lag, else the hop with the highest lag."""

        def taken(one: HopLag) -> timedelta:
            return timedelta.max if isinstance(one.lag, Missing) else one.lag

        return max(self.up_to(stage), key=taken, default=None)

    def watermark(self, stage: Stage) -> Watermark:
        """The time up to which every change committed at the source is in *stage*."""
        found = (each.watermark for each in self.hops if each.hop is STAGE_EXIT[stage])
        return next(found, Missing("no hop was measured"))


def measure_lags(
    table: Table, samples: Samples, now: datetime, earlier: Lags | None = None
) -> Lags:
    """Lags of *table* at *now*; *earlier*, the last round's, keeps watermarks from going back.

    With several sources each watermark is the lowest of the sources.
    """
    kept = dict(earlier.kept) if earlier else {}
    exits: dict[str, Mapping[Hop, Watermark]] = {}
    for source in table.sources:
        found = sample_watermarks(table, source, samples, now)
        kept |= kept_exits(source, found, samples, kept)
        held = {h: w if isinstance(w, Missing) else kept[source, h].at for h, w in found.items()}
        exits[source] = lift_watermarks(held)
    hops = [hop for hop in Hop if any(hop in found for found in exits.values())]
    watermarks = [_lowest(hop, exits, now) for hop in hops]
    lags = [_lag(entry, leave) for entry, leave in pairwise([now, *watermarks])]
    ages = [_age(hop, table, samples, now) for hop in hops]
    rows = tuple(HopLag(*row) for row in zip(hops, lags, watermarks, ages, strict=True))
    return Lags(table.name, now, rows, kept)


def measure_copy(mirror: Lags, copy: Lags) -> Lags:
    """Lags up to a copy: those up to its *mirror*, and the hop COPY.

    *copy* are the lags of the same table as if the copy were its mirror. A copy never holds more
    than its mirror, so its watermark is limited to the mirror's.
    """
    entry, leave = mirror.watermark(Stage.MIRROR), copy.watermark(Stage.MIRROR)
    if isinstance(entry, datetime) and isinstance(leave, datetime):
        leave = min(entry, leave)
    ages = [one.age for one in copy.hops if one.hop is Hop.MERGE]
    hop = HopLag(Hop.COPY, _lag(entry, leave), leave, next(iter(ages), None))
    return Lags(mirror.table, mirror.at, (*mirror.hops, hop), copy.kept)


def _lowest(hop: Hop, exits: Mapping[str, Mapping[Hop, Watermark]], now: datetime) -> Watermark:
    """The lowest watermark of *hop* over all sources; COLLECTION's where a source has no hop."""
    lowest = now
    for source, found in exits.items():
        here = found.get(hop, found[Hop.COLLECTION])
        if isinstance(here, Missing):
            return Missing(f"{here.why} (source {source})")
        if here > now:
            ahead = (here - now).total_seconds()
            return Missing(f"watermark {ahead:.0f} s ahead of the clock (source {source})")
        lowest = min(lowest, here)
    return lowest


def _lag(entry: Watermark, leave: Watermark) -> Lag:
    if isinstance(leave, Missing):
        return leave
    return entry if isinstance(entry, Missing) else entry - leave


def _age(hop: Hop, table: Table, samples: Samples, now: datetime) -> timedelta | None:
    """Age of the oldest sample that the hop's watermark depends on; None if one was never taken."""
    if hop is Hop.MERGE:
        return find_oldest_age(now, samples.checkpoint, samples.mirror)
    key, sources = ("age", hop, table.sources, now), table.sources
    return samples.once(key, lambda: _age_upstream(hop, sources, samples, now))


def _age_upstream(
    hop: Hop, names: Iterable[str], samples: Samples, now: datetime
) -> timedelta | None:
    """The same for a hop that does not depend on a mirror."""
    sources = [samples.source(name) for name in names]
    match hop:
        case Hop.COLLECTION:
            ages = [find_oldest_age(now, one.fences, one.acknowledged) for one in sources]
        case Hop.SYNC:
            ages = [find_oldest_age(now, one.synced) for one in sources if one.synced is not None]
        case _:
            ages = [find_oldest_age(now, samples.checkpoint)]
    known = [each for each in ages if each is not None]
    return max(known) if len(known) == len(ages) else None


def sample_watermarks(
    table: Table, source: str, samples: Samples, now: datetime
) -> dict[Hop, Watermark]:
    """The watermark at the exit of each hop of one source, as sampled; SYNC only if it exists."""
    upstream = samples.once(("upstream", source, now), lambda: _upstream(source, samples, now))
    if Hop.MERGE in upstream:
        return dict(upstream)  # a cause that is the same for every table
    newest = samples.walked(table)[-1].passed.get(source)
    landed = _watermark_at(newest, _unlanded(source, samples.checkpoint))
    return {
        **upstream,
        Hop.CONSUMER: landed,
        Hop.MERGE: _merged(table, source, samples, now),
    }


def _upstream(source: str, samples: Samples, now: datetime) -> dict[Hop, Watermark]:
    """Return exits that all tables of the source share; all hops, if nothing else can be known."""
    one = samples.source(source)
    checkpoint = require_fresh(samples.checkpoint, now)
    fences = require_active_fences(one, now)
    if isinstance(fences, Missing):
        hops = [hop for hop in Hop if hop in EVERY or (hop is Hop.SYNC and one.synced is not None)]
        return dict.fromkeys(hops, fences)
    exits: dict[Hop, Watermark] = {Hop.COLLECTION: _collected(one, fences, checkpoint, now)}
    if one.synced is not None:
        exits[Hop.SYNC] = _synced(one.synced, fences, now)
    if isinstance(checkpoint, Missing):
        return exits | {Hop.CONSUMER: checkpoint, Hop.MERGE: checkpoint}
    return exits


def kept_exits(
    source: str,
    exits: Mapping[Hop, Watermark],
    samples: Samples,
    floor: Mapping[tuple[str, Hop], WatermarkFloor],
) -> dict[tuple[str, Hop], WatermarkFloor]:
    """Return the floors to keep: the higher of each exit and its *floor*, if of one history.

    A mirror restored to an older version, a recreated lane and a new epoch each start over: a lower
    watermark is correct there. A Missing exit does not change its floor.
    """
    kept: dict[tuple[str, Hop], WatermarkFloor] = {}
    for hop, found in exits.items():
        old = floor.get((source, hop))
        if isinstance(found, Missing):
            continue
        new = WatermarkFloor(found, *_history(source, hop, samples, old))
        if old and old.epoch == new.epoch and old.batch <= new.batch:
            new = WatermarkFloor(max(new.at, old.at), new.epoch, new.batch)
        kept[source, hop] = new
    return kept


def lift_watermarks(exits: Mapping[Hop, Watermark]) -> dict[Hop, Watermark]:
    """Each known watermark raised to the highest known one further downstream."""
    raised = dict(exits)
    highest: datetime | None = None
    for hop in reversed(Hop):
        here = raised.get(hop)
        if isinstance(here, datetime):
            highest = raised[hop] = here if highest is None else max(here, highest)
    return raised


def is_of_log_before(acknowledged: Acknowledged, newest: Fence, checkpoint: Checkpoint) -> bool:
    """Whether *acknowledged* may be of the log before the epoch of the *newest* fence.

    Positions of two logs are comparable only if both name transactions.
    """
    epoch = checkpoint.epochs.get(newest.source)
    if epoch is None or epoch.number <= 1 or newest.source in checkpoint.acknowledged:
        return False
    positions = (acknowledged.position, newest.head.position)
    return not all(names_transactions(one) for one in positions)


def _collected(
    one: SourceSamples, fences: tuple[Fence, ...], checkpoint: Checkpoint | Missing, now: datetime
) -> Watermark:
    acknowledged = require_fresh(one.acknowledged, now)
    if isinstance(acknowledged, Missing):
        return acknowledged
    if acknowledged.snapshot:
        return Missing("the collector is reading its initial snapshot")
    newest = fences[-1]
    epoch = None if isinstance(checkpoint, Missing) else checkpoint.epochs.get(newest.source)
    if not isinstance(checkpoint, Missing) and is_of_log_before(acknowledged, newest, checkpoint):
        return Missing("the acknowledged position may be of the earlier log")
    identity = epoch.identity if epoch else newest.head.identity
    # positions of two servers are never compared
    own = (fence for fence in reversed(fences) if fence.head.identity == identity)
    passed = (fence for fence in own if has_reached(acknowledged.position, fence.head.position))
    return _watermark_at(next(passed, None), "no heartbeat is acknowledged yet")


def _synced(synced: Sample[int] | Missing, fences: tuple[Fence, ...], now: datetime) -> Watermark:
    number = require_fresh(synced, now)
    if isinstance(number, Missing):
        return number
    passed = (fence for fence in reversed(fences) if fence.number <= number)
    return _watermark_at(next(passed, None), "no heartbeat has passed the mirrored topics yet")


def _merged(table: Table, source: str, samples: Samples, now: datetime) -> Watermark:
    standing = require_fresh(samples.mirror, now)
    if isinstance(standing, Missing):
        return standing
    applied = applied_step(samples.walked(table), table.name, standing.batch)
    if applied is None:
        return Missing("the mirror is behind every remembered batch")
    return _watermark_at(applied.passed.get(source), "no heartbeat is applied yet")


def _unlanded(source: str, checkpoint: Sample[Checkpoint] | Missing) -> str:
    """Return why no heartbeat proves what has landed."""
    if isinstance(checkpoint, Missing) or source not in checkpoint.value.heartbeats:
        return "no heartbeat has landed yet"
    known = checkpoint.value
    short = (
        "not everything that was sent before it"
        if source in known.acknowledged
        else "its collector has not reported what it sent"
    )
    return f"heartbeat {known.heartbeats[source]} has landed, but {short}"


def _watermark_at(fence: Fence | None, why: str) -> Watermark:
    return fence.at if fence else Missing(why)


def _history(
    source: str, hop: Hop, samples: Samples, old: WatermarkFloor | None
) -> tuple[int, int]:
    """Epoch and batch of a watermark; those of *old* while the checkpoint is unknown."""
    if isinstance(samples.checkpoint, Missing):
        return (old.epoch, old.batch) if old else (-1, -1)
    checkpoint = samples.checkpoint.value
    epoch = checkpoint.epochs[source].number if source in checkpoint.epochs else -1
    if hop is Hop.MERGE and not isinstance(samples.mirror, Missing):
        return epoch, min(checkpoint.batch, samples.mirror.value.batch)
    return epoch, checkpoint.batch
