"""Was a source's log kept for its collector all the while?

Where it was not, what was written until it is kept again is sent by nobody: a collector that goes
on where it stopped passes over it, and tells nothing.  All tables of the source are short of it: a
gap, until each has a base that begins once it is kept.
Cannot see: what was lost and made anew between two looks, or before the first of this process.
Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.capture import Capture
from pipeline.living import is_there
from pipeline.mark import Mark, source_of
from pipeline.report import Gap, read_gap, tell_gap


def with_unkept(made: Mark, before: Mark, told: Mapping[str, Capture]) -> Mark:
    """*made*, the mark after *before*, with what was not kept of its sources, as was *told*.

    A table of which nothing was known before is short of nothing: its slot may be as new.
    """
    broken = {name: one.broken.why for name, one in told.items() if one.broken is not None}
    gaps = dict(made.gaps)
    for source, why in broken.items():
        gap = _gap(source, made, before, why)
        if gap.shards:
            gaps[gap.id] = tell_gap(gap)
    return replace(made, gaps=gaps)


def _gap(source: str, made: Mark, before: Mark, why: str) -> Gap:
    """One that is open goes on: no base counts that began meanwhile."""
    topic, batch = f"unkept:{source}", made.batch
    known = next((one for one in map(read_gap, made.gaps.values()) if one.topic == topic), None)
    first = batch if known is None else known.first
    return Gap(
        id=f"{topic}:0:{first}@{first}",
        topic=topic,
        partition=0,
        first=first,
        until=first,  # a person is told the same as long as it lasts
        why=f"{why}; take a new base of each of its tables",
        shards=tuple(sorted(_there(made, before, source))),
        batch=batch,
    )


def _there(made: Mark, before: Mark, source: str) -> set[str]:
    return {
        name
        for name, table in made.shards.items()
        if name in before.shards
        if table is not None and source_of(name) == source and is_there(made, name)
    }
