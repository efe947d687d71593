"""Has a collector begun anew, with a snapshot of a source whose tables it had sent before?

It does where its stored offset is lost, or no longer in the source's log, and where a person lets
it.  What was committed after the last change that it had sent, and before the snapshot, is sent by
nobody: not in the change log, and in no image.  All tables of the source are short of it: a gap,
which each table's own rows of the snapshot close.  A table of which it sent none, because it was
empty by then, has to get a base otherwise, or rows that were deleted meanwhile would stay.

A snapshot of the whole source reads the heartbeat's table, too.  One that a signal asks for, which
a collector takes between two changes that it streams, loses no change, and is no base; where it
reads the heartbeat's table, that row tells that a signal asked for it.
Cannot see: a collector that begins anew without a snapshot, or leaves the heartbeat out of it.
Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from pipeline.checkpoint import Mark, is_there, source_of
from pipeline.model import Order, SnapshotAgain
from pipeline.reports import Gap, read_gap, tell_gap


def with_again(made: Mark, before: Mark, wholes: Mapping[str, Order], at: datetime) -> Mark:
    """*made*, the mark after *before*, with what snapshots that were seen *at* then leave lost.

    *wholes*: source -> order of a snapshot that read all of it.
    """
    for source, order in wholes.items():
        above, known = order.event, before.again.get(source)
        older = _older(source, before, above)
        if older and (known is None or known.order < above):
            asked = _is_asked_for(older, before)
            again = SnapshotAgain(above, at, made.batch, len(older), asked)
            made = replace(made, again={**made.again, source: again})
            made = _with_gap(source, made, older, above)
    return made


def _older(source: str, before: Mark, above: Order) -> frozenset[str]:
    """Shards of *source* that had a base from below."""
    own = (name for name, base in before.bases.items() if base < above)
    return frozenset(n for n in own if source_of(n) == source and before.shards.get(n) is not None)


def _is_asked_for(shards: frozenset[str], before: Mark) -> bool:
    lost = {name for gap in map(read_gap, before.gaps.values()) for name in gap.shards}
    unread = {name for one in before.quarantine.values() for name in one.shards}
    return not shards.isdisjoint(lost | unread)


def _with_gap(source: str, made: Mark, older: frozenset[str], above: Order) -> Mark:
    """Of those that are there; whose rows have all landed by now are short of what was before."""
    there = {name for name in older if is_there(made, name)}
    whole = {name: made.bases[name] for name in there if made.bases[name] >= above}
    made = replace(made, lost={**made.lost, **whole})
    if not (left := there - whole.keys()):
        return made
    why = (
        f"the collector of {source} began anew, with a snapshot: what was committed before"
        " that and not sent is sent by nobody; it closes with the snapshot, but of a table of"
        " which that has no row, take a new base"
    )
    gap = Gap.noticed(f"again:{source}", made.batch, why, left, above=above)
    return replace(made, gaps={**made.gaps, gap.id: tell_gap(gap)})
