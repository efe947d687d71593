"""Finds planned ticks that neither ran, failed, nor were recorded as missed.  Pure.

Ticks of a job stand on a grid, so between its first and its last recorded one nothing may be left
out or told twice.  One that ran may stand for those it ran through.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from monitor.store.ticks import RUNNING, Tick


def unrecorded(
    ticks: Mapping[str, Sequence[Tick]], paces: Mapping[str, timedelta]
) -> Iterator[str]:
    """What is wrong with *ticks*, by job and in any order, of jobs with these *paces*."""
    for job, every in paces.items():
        mine = sorted(ticks.get(job, ()), key=lambda tick: tick.planned)
        if not mine:
            yield f"{job}: no tick at all"
        yield from (wrong for tick in mine for wrong in _miscounted(tick, every))
        yield from (f"{_name(tick)}: never ended" for tick in mine[:-1] if tick.result == RUNNING)
        for before, after in pairwise(mine):
            if after.planned != before.until + every:
                left = (after.planned - before.until) / every - 1
                yield f"{job}: {left:g} ticks unrecorded from {before.until} to {after.planned}"
    yield from (f"{job}: nobody planned it" for job in ticks.keys() - paces.keys())


def _miscounted(tick: Tick, every: timedelta) -> Iterator[str]:
    if tick.planned + (tick.many - 1) * every != tick.until:
        yield f"{_name(tick)}: {tick.many} ticks until {tick.until}"


def _name(tick: Tick) -> str:
    return f"{tick.job} of {tick.planned}"
