"""Up to which instant has one source's every change passed each hop?

A watermark is the `at` of a heartbeat proven to have passed, never a time stamp of a change, so
an idle table's watermark moves on.  It never goes back within an epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.lags.samples import Samples, SourceSamples, fresh, living
from pipeline.lags.steps import applied_step
from pipeline.mark import Mark, reaches
from pipeline.model import Fence, Hop, Missing, Table

Watermark = datetime | Missing


@dataclass(frozen=True, slots=True)
class WatermarkFloor:
    """A watermark not to go back from, within its epoch and while batches count up."""

    at: datetime
    epoch: int
    batch: int


def sampled(table: Table, source: str, samples: Samples, now: datetime) -> dict[Hop, Watermark]:
    """The watermark each hop of one source ends at, as sampled; SYNC only if it exists."""
    one = samples.source(source)
    mark = fresh(samples.mark, now)
    fences = living(one, now)
    if isinstance(fences, Missing):
        hops = [hop for hop in Hop if hop is not Hop.SYNC or one.synced is not None]
        return dict.fromkeys(hops, fences)
    exits: dict[Hop, Watermark] = {Hop.COLLECTION: _collected(one, fences, mark, now)}
    if one.synced is not None:
        exits[Hop.SYNC] = _synced(one, fences, now)
    if isinstance(mark, Missing):
        return exits | {Hop.CONSUMER: mark, Hop.MERGE: mark}
    newest = samples.walked(table)[-1].passed.get(source)
    exits[Hop.CONSUMER] = _at(newest, "no heartbeat has landed yet")
    exits[Hop.MERGE] = _merged(table, source, samples, now)
    return exits


def kept_exits(
    source: str,
    exits: Mapping[Hop, Watermark],
    samples: Samples,
    floor: Mapping[tuple[str, Hop], WatermarkFloor],
) -> dict[tuple[str, Hop], WatermarkFloor]:
    """What to keep of *exits*: the higher of each and its *floor*, if both are of one history.

    A mirror taken back to an older version, a lane begun anew and a new epoch each start over:
    there a lower watermark is the truth.  A Missing exit keeps its floor for later.
    """
    kept: dict[tuple[str, Hop], WatermarkFloor] = {}
    for hop, found in exits.items():
        old = floor.get((source, hop))
        if isinstance(found, Missing):
            if old:
                kept[source, hop] = old
            continue
        new = WatermarkFloor(found, *_history(source, hop, samples, old))
        if old and old.epoch == new.epoch and old.batch <= new.batch:
            new = WatermarkFloor(max(new.at, old.at), new.epoch, new.batch)
        kept[source, hop] = new
    return kept


def lifted(exits: Mapping[Hop, Watermark]) -> dict[Hop, Watermark]:
    """Each known watermark raised to the highest known one further down."""
    raised = dict(exits)
    highest: datetime | None = None
    for hop in reversed(Hop):
        here = raised.get(hop)
        if isinstance(here, datetime):
            highest = raised[hop] = here if highest is None else max(here, highest)
    return raised


def _collected(
    one: SourceSamples, fences: tuple[Fence, ...], mark: Mark | Missing, now: datetime
) -> Watermark:
    acknowledged = fresh(one.acknowledged, now)
    if isinstance(acknowledged, Missing):
        return acknowledged
    if acknowledged.snapshot:
        return Missing("the collector is reading its initial snapshot")
    source = fences[-1].source
    epoch = None if isinstance(mark, Missing) else mark.epochs.get(source)
    if epoch and epoch.number > 1 and not isinstance(mark, Missing):
        told = acknowledged.executed and fences[-1].head.executed
        if not told and source not in mark.acknowledged:
            return Missing("what is acknowledged may be of the log before")
    identity = epoch.identity if epoch else fences[-1].head.identity
    # positions of two servers are never compared
    own = (fence for fence in reversed(fences) if fence.head.identity == identity)
    passed = (fence for fence in own if reaches(acknowledged, fence.head))
    return _at(next(passed, None), "no heartbeat is acknowledged yet")


def _synced(one: SourceSamples, fences: tuple[Fence, ...], now: datetime) -> Watermark:
    number = fresh(one.synced or Missing("the mirrored topics were not sampled"), now)
    if isinstance(number, Missing):
        return number
    passed = (fence for fence in reversed(fences) if fence.number <= number)
    return _at(next(passed, None), "no heartbeat has passed the mirrored topics yet")


def _merged(table: Table, source: str, samples: Samples, now: datetime) -> Watermark:
    standing = fresh(samples.mirror, now)
    if isinstance(standing, Missing):
        return standing
    applied = applied_step(samples.walked(table), table.name, standing.batch)
    if applied is None:
        return Missing("the mirror is behind every batch remembered")
    return _at(applied.passed.get(source), "no heartbeat is applied yet")


def _at(fence: Fence | None, why: str) -> Watermark:
    return fence.at if fence else Missing(why)


def _history(
    source: str, hop: Hop, samples: Samples, old: WatermarkFloor | None
) -> tuple[int, int]:
    """Epoch and batch that a watermark belongs to; the old ones while the mark is unknown."""
    if isinstance(samples.mark, Missing):
        return (old.epoch, old.batch) if old else (-1, -1)
    mark = samples.mark.value
    epoch = mark.epochs[source].number if source in mark.epochs else -1
    if hop is Hop.MERGE and not isinstance(samples.mirror, Missing):
        return epoch, min(mark.batch, samples.mirror.value.batch)
    return epoch, mark.batch
