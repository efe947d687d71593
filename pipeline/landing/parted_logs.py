"""Has another server taken the place of the one that was landed from, and lacks what that had?

What the old one wrote last and the new one never had is in the mirrors, and nobody will undo it; a
collector that goes on where it stopped leaves out as much of the new log.  So its tables are short
of something: a gap, until each has a base that began after the new server was seen.
The old one's end is where it was seen last, or above that what was landed while it was silent.
Cannot see: rows above that which land with the first look at the new one, for those may be its own.
Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.checkpoint import Epoch, Mark, is_there, source_of
from pipeline.model import Head, Order, Ordering
from pipeline.reports import Gap, tell_gap
from pipeline.sources.positions import lacks


def with_parted(made: Mark, before: Mark, heads: Mapping[str, tuple[Head, Head]]) -> Mark:
    """*made*, the mark after *before*, with what the servers of *heads* lack.

    *heads*: source -> what its server told before and after the listing, of those that answered.
    """
    gaps = dict(made.gaps)
    for source, (_, now) in heads.items():
        known = before.epochs.get(source)
        landed = None if known is None else _landed(before, source, known.number)
        why = None if known is None else _lacks(known, made.epochs[source], now, landed)
        if why is not None and (gap := _gap(source, made, before, why)).shards:
            gaps[gap.id] = tell_gap(gap)
    return replace(made, gaps=gaps)


def with_reordered(made: Mark, before: Mark, orderings: Mapping[str, Ordering]) -> Mark:
    """*made*, the mark after *before*, with tables whose changes are ordered by something else.

    *orderings*: source -> what they rest on now.  What came between the last change in the one
    order and the first in the other, no order tells.
    """
    gaps = dict(made.gaps)
    for source, now in orderings.items():
        known = before.orderings.get(source, now)
        why = f"changes of source {source} were ordered by {known}, and are by {now}"
        if known != now and (gap := _gap(source, made, before, why)).shards:
            gaps[gap.id] = tell_gap(gap)
    return replace(made, gaps=gaps, orderings={**made.orderings, **orderings})


def _landed(before: Mark, source: str, epoch: int) -> Order | None:
    own = (order for name, order in before.high.items() if source_of(name) == source)
    return max((order for order in own if order.epoch == epoch), default=None)


def _lacks(known: Epoch, now: Epoch, head: Head, landed: Order | None) -> str | None:
    if known.number == now.number:
        return None
    return lacks(Head(known.identity, known.position), head, landed)


def _gap(source: str, made: Mark, before: Mark, why: str) -> Gap:
    """What is read in this batch may have been written by the new server, and so heals it."""
    batch = made.batch
    short = (
        name
        for name, table in made.shards.items()
        if table is not None and source_of(name) == source and is_there(made, name)
        if name not in made.bases or made.based.get(name, -1) < batch
    )
    why = f"{why}; take a new base of each of its tables"
    return Gap.noticed(f"log:{source}", batch, why, short, batch=before.batch)
