"""Has the mirror come past what was read at the source?  What makes a comparison fair.

A sample of the source holds as of some position up to the instant its reading ended.  Once the
mirror holds everything below the first heartbeat after that instant, whatever the sample saw must
be there or have been touched since: a delay is never a loss.
"""

from datetime import datetime, timedelta

from checks.model import NotYet, Undecided
from checks.world import World
from pipeline.model import Fence, Table

Fences = tuple[Fence, ...]


def fences_after(table: Table, world: World, instant: datetime) -> Fences | None:
    """The first fence at or after *instant* of each source; None while one is not written."""
    found = [world.fence_after(source, instant) for source in table.sources]
    known = tuple(fence for fence in found if fence is not None)
    return known if len(known) == len(found) else None


def passed(
    table: Table, world: World, instant: datetime, patience: timedelta
) -> Fences | NotYet | Undecided:
    """The fences after *instant*, once the mirror has reached them all.

    Waiting longer than *patience* is UNKNOWN(not_reached), and never a loss.
    """
    fences = fences_after(table, world, instant)
    if fences is not None and world.reached(table, fences):
        return fences
    waited = world.now - instant
    missing = "no heartbeat since" if fences is None else "the mirror has not reached"
    why = f"{missing} {instant:%Y-%m-%d %H:%M:%S %Z}"
    if waited > patience:
        return Undecided("not_reached", f"{why}, waited {waited.total_seconds():.0f} s")
    return NotYet(why)
