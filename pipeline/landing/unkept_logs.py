"""Was a source's log kept for its collector all the while?

Where it was not, what was written until it is kept again is sent by nobody: a collector that goes
on where it stopped passes over it, and tells nothing.  All tables of the source are short of it: a
gap, until each has a base that begins once it is kept.  What keeps the log is remembered, too: if
its kind does not know it again, it keeps only what came since, also if nobody looked meanwhile.
Cannot see: what a kind cannot tell from what was there before.
Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.checkpoint import Mark, is_there, source_of
from pipeline.model import Capture, LogKeeper, Order
from pipeline.reports import Gap, read_gap, tell_gap
from pipeline.sources.positions import place
from pipeline.sources.source import exchanged


def with_unkept(made: Mark, before: Mark, told: Mapping[str, Capture]) -> Mark:
    """*made*, the mark after *before*, with what was not kept of its sources, as was *told*.

    A table of which nothing was known before is short of nothing: its slot may be as new.
    """
    for source, one in told.items():
        if one.broken is not None:
            made = _with_gap(made, _gap(source, made, before, one.broken.why))
        elif (known := before.keepers.get(source)) is not None and one.keeper is not None:
            made = _with_exchanged(source, made, before, known, one.keeper)
    keepers = {name: one for name, one in made.keepers.items() if name not in told}
    keepers |= {name: one.keeper for name, one in told.items() if one.keeper is not None}
    return replace(made, keepers=keepers)


def _with_exchanged(
    source: str, made: Mark, before: Mark, known: LogKeeper, now: LogKeeper
) -> Mark:
    """A base from where the log is kept again holds all: of what was before, nobody knows."""
    why, epoch = exchanged(known, now), made.epochs.get(source)
    if why is None:
        return made
    above = Order(1 if epoch is None else epoch.number, *place(now.begins))
    gap = _gap(source, made, before, why)
    whole = {name for name in gap.shards if name in made.bases and made.bases[name] >= above}
    left = tuple(name for name in gap.shards if name not in whole)
    made = replace(made, lost={**made.lost, **{name: made.bases[name] for name in whole}})
    return _with_gap(made, replace(gap, shards=left, above=above))


def _with_gap(made: Mark, gap: Gap) -> Mark:
    return replace(made, gaps={**made.gaps, gap.id: tell_gap(gap)}) if gap.shards else made


def _gap(source: str, made: Mark, before: Mark, why: str) -> Gap:
    """One that is open goes on: no base counts that began meanwhile."""
    topic, batch = f"unkept:{source}", made.batch
    known = next((one for one in map(read_gap, made.gaps.values()) if one.topic == topic), None)
    first = batch if known is None else known.first
    why, short = f"{why}; take a new base of each of its tables", _there(made, before, source)
    gap = Gap.noticed(topic, first, why, short, batch=batch)  # told the same as long as it lasts
    were = (one for one in map(read_gap, before.gaps.values()) if one.topic == topic)
    return gap.after(were, made.shards)  # a table that is left is in what befell all of them


def _there(made: Mark, before: Mark, source: str) -> set[str]:
    return {
        name
        for name, table in made.shards.items()
        if name in before.shards
        if table is not None and source_of(name) == source and is_there(made, name)
    }
