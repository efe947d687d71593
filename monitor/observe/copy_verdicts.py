"""Do the copies of a table follow its mirror?  One verdict on all of them; pure.

A copy that stands still, or is behind, holds up nobody but who reads it: the table's own answers do
not rest on it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from checks.model import Outcome, Ruling, Verdict
from monitor.board import CopyView
from pipeline.model import Missing

COPY = "copy"  # the check


def of_copies(
    table: str, copies: Iterable[CopyView], budget: timedelta, at: datetime
) -> Verdict | None:
    """What is wrong with the first of them; None where there is none.

    One whose store does not answer is told of as a part of the way, and here only as not known.
    """
    found = [_ruling(one, budget) for one in copies]
    if not found:
        return None
    order = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS)
    return Verdict(table, COPY, min(found, key=lambda one: order.index(one.outcome)), at)


def _ruling(one: CopyView, budget: timedelta) -> Ruling:
    if one.hold is not None:
        return Ruling(Outcome.FAIL, f"copy {one.name}: {one.hold.detail}", one.hold.reason)
    if isinstance(one.hop.lag, Missing):
        return Ruling(Outcome.UNKNOWN, f"copy {one.name}: {one.hop.lag.why}", "not_yet")
    told = f"copy {one.name} is {one.hop.lag.total_seconds():.0f} s behind its mirror"
    if one.hop.lag > budget:
        return Ruling(Outcome.FAIL, f"{told}, budget {budget.total_seconds():.0f} s", "late")
    return Ruling(Outcome.PASS, told)
