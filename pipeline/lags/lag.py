"""Samples of one round -> watermark and lag per hop; the lags sum exactly to now - watermark.

A sample that is absent, stale, standing still or ahead of the clock makes its hop `Missing`,
never 0.  Upstream is sampled first, so an early stage may look behind a later one; whatever is
further down has certainly passed it, and its watermark is lifted to that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from pipeline.lags.samples import Samples, age
from pipeline.lags.watermark import Watermark, WatermarkFloor, kept_exits, lifted, sampled
from pipeline.model import Hop, Lag, Missing, Stage, Table

STAGE_EXIT = {Stage.LANDED: Hop.CONSUMER, Stage.MIRROR: Hop.MERGE}


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

    ``kept`` is for the next round's :func:`measure`, by source and hop.
    """

    table: str
    at: datetime
    hops: tuple[HopLag, ...]
    kept: Mapping[tuple[str, Hop], WatermarkFloor] = field(default_factory=dict)

    def up_to(self, stage: Stage) -> tuple[HopLag, ...]:
        """The hops that a change has passed once it is in *stage*."""
        if stage is Stage.MIRROR:
            return self.hops
        return tuple(each for each in self.hops if each.hop is not Hop.MERGE)

    def total(self, stage: Stage) -> Lag:
        """Sum of the lags up to *stage*; Missing if one of them is, or is negative."""
        total = timedelta()
        for each in self.up_to(stage):
            if isinstance(each.lag, Missing):
                return Missing(f"{each.hop}: {each.lag.why}")
            if each.lag < timedelta():
                return Missing(f"{each.hop}: negative lag")  # a skewed clock must not buy time
            total += each.lag
        return total if self.hops else Missing("no hop was measured")

    def watermark(self, stage: Stage) -> Watermark:
        """Every change committed at the source up to here is in *stage*."""
        found = (each.watermark for each in self.hops if each.hop is STAGE_EXIT[stage])
        return next(found, Missing("no hop was measured"))


def measure(table: Table, samples: Samples, now: datetime, earlier: Lags | None = None) -> Lags:
    """Lags of *table* at *now*; *earlier*, the last round's, keeps watermarks from going back.

    With several sources each watermark is the lowest of theirs.
    """
    kept = dict(earlier.kept) if earlier else {}
    exits: dict[str, Mapping[Hop, Watermark]] = {}
    for source in table.sources:
        found = sampled(table, source, samples, now)
        kept |= kept_exits(source, found, samples, kept)
        held = {h: w if isinstance(w, Missing) else kept[source, h].at for h, w in found.items()}
        exits[source] = lifted(held)
    hops = [hop for hop in Hop if any(hop in found for found in exits.values())]
    marks = [_lowest(hop, exits, now) for hop in hops]
    lags = [_lag(entry, leave) for entry, leave in pairwise([now, *marks])]
    ages = [_age(hop, table, samples, now) for hop in hops]
    rows = tuple(HopLag(*row) for row in zip(hops, lags, marks, ages, strict=True))
    return Lags(table.name, now, rows, kept)


def _lowest(hop: Hop, exits: Mapping[str, Mapping[Hop, Watermark]], now: datetime) -> Watermark:
    """The lowest watermark of the sources that have the hop, or of what stands in its place."""
    lowest: datetime | None = None
    for source, found in exits.items():
        here = found.get(hop, found[Hop.COLLECTION])
        if isinstance(here, Missing):
            return Missing(f"{here.why} (source {source})")
        if here > now:
            ahead = (here - now).total_seconds()
            return Missing(f"watermark {ahead:.0f} s ahead of the clock (source {source})")
        lowest = here if lowest is None else min(lowest, here)
    return lowest or Missing("the table has no source")


def _lag(entry: Watermark, leave: Watermark) -> Lag:
    if isinstance(leave, Missing):
        return leave
    return entry if isinstance(entry, Missing) else entry - leave


def _age(hop: Hop, table: Table, samples: Samples, now: datetime) -> timedelta | None:
    """Age of the oldest sample that the hop's exit rests on; None if one was never taken."""
    sources = [samples.source(name) for name in table.sources]
    match hop:
        case Hop.COLLECTION:
            ages = [age(now, one.fences, one.acknowledged) for one in sources]
        case Hop.SYNC:
            ages = [age(now, one.synced) for one in sources if one.synced is not None]
        case Hop.CONSUMER:
            ages = [age(now, samples.mark)]
        case Hop.MERGE:
            ages = [age(now, samples.mark, samples.mirror)]
    known = [each for each in ages if each is not None]
    return max(known) if known and len(known) == len(ages) else None
