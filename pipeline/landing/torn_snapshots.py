"""Does a table have rows of a snapshot of which nobody knows whose server's it is?

Rows of it were landed before it was seen that the server had been replaced, and rows after.  It is
no base (:mod:`pipeline.landing.bases`).  It may be of the server before, and stand above all that
the one of now has written so far: its rows would win over newer ones.  So the table has a gap that
only a base above the snapshot closes.  Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.checkpoint import Mark
from pipeline.landing.bases import is_torn
from pipeline.landing.tally import SnapshotRows
from pipeline.reports import Gap, tell_gap

WHY = (
    "a snapshot came in part before its server was replaced, or seen to be, and in part after: "
    "nobody knows whose rows these are; take a new base of the table, once the log of the server "
    "of now is above {above}"
)


def with_torn(made: Mark, before: Mark, snapshots: Mapping[str, SnapshotRows]) -> Mark:
    """*made*, the mark after *before*, with a gap of each of the *snapshots* that is torn."""
    for name, rows in snapshots.items():
        if made.shards.get(name) is None or not is_torn(rows, before.snaps.get(name)):
            continue
        why = WHY.format(above=f"{rows.order.log}:{rows.order.pos}")
        gap = Gap.noticed(f"torn:{name}", made.batch, why, (name,), above=rows.order)
        made = replace(made, gaps={**made.gaps, gap.id: tell_gap(gap)})
    return made
