"""Did the checks that found rows wrong pass again, once these had been read again?

A verdict counts only as of a position from after the re-reading was complete: what was read had
landed by then with all that came before its end, and a check waits until the mirror holds that.
So an incident ends by what is there, never because somebody asked for a repair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from checks.model import Outcome, Verdict
from monitor.observe.rulings import Rulings
from monitor.store.rereads import CheckedAgain, RereadRequest, RereadRequests

LOOKED_FOR = timedelta(days=1)  # then the check itself, and its incident, are all there is to say
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Rechecks:
    """Keeps with each re-reading what its checks said next."""

    rereads: RereadRequests
    rulings: Rulings
    clock: Callable[[], datetime]

    def look(self) -> None:
        """Take up what has been ruled since."""
        waiting = self.rereads.unchecked(self.clock() - LOOKED_FOR)
        if not waiting:
            return
        for one in waiting:
            newest = self.rulings.of(one.table)
            proofs = [p for check in one.wish.checks if (p := _proof(one, check, newest))]
            if tuple(proofs) != one.proofs:
                self.rereads.checked(one.id, proofs)
                for proof in proofs:
                    told = {"check": proof.check, "passed": proof.passed, "why": proof.reason}
                    log.info("checked_again", id=one.id, table=one.table, **told)


def awaits_checks(one: RereadRequest, now: datetime) -> bool:
    """Whether what its checks say is still looked for, and one of them has not passed."""
    return (
        one.done and bool(one.unchecked) and one.ended is not None and one.ended > now - LOOKED_FOR
    )


def _proof(one: RereadRequest, check: str, newest: tuple[Verdict, ...]) -> CheckedAgain | None:
    """What *check* said last of the table; once it has passed, that stands."""
    known = next((p for p in one.proofs if p.check == check), None)
    if known is not None and known.passed:
        return known
    own = [v for v in newest if v.check == check and _is_after(v, one)]
    ruled = [v for v in own if v.ruling.outcome is not Outcome.UNKNOWN]
    if not ruled:
        return known
    last = ruled[-1]
    passed = last.ruling.outcome is Outcome.PASS
    return CheckedAgain(check, passed, last.at, last.ruling.reason)


def _is_after(verdict: Verdict, one: RereadRequest) -> bool:
    """Whether all that it compared was read after *one* had ended."""
    ended = one.ended
    return ended is not None and bool(verdict.as_of) and all(f.at > ended for f in verdict.as_of)
