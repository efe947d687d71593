"""From verdicts to incidents, letters and revoked certificates: one transaction, one at a time.

The same lock guards the issuing of certificates: a FAIL must not slip between the look at the
verdicts and the storing of a READY that rests on them.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from alerts.model import Member, Message
from alerts.round import AlertSettings, Round, reminders, settle, withdraw
from checks.blocks import waivers_of
from checks.certificate import revocations
from checks.model import Outcome, Verdict
from monitor.observe.rulings import Rulings
from monitor.store.store import ServiceStore

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class VerdictRecorder:
    """``deciding`` is held while anything is ruled or certified.

    ``gating`` are the checks whose FAIL takes certificates back, ``whole`` those whose PASS has
    looked at all rows: one that looked at some spares nothing.  ``starting`` are tables
    that are read for the first time, as the watching round saw last.
    """

    settings: AlertSettings
    records: ServiceStore
    rulings: Rulings
    gating: frozenset[str]
    whole: frozenset[str]
    clock: Callable[[], datetime]
    deciding: threading.RLock = field(default_factory=threading.RLock)
    starting: frozenset[str] = frozenset()

    def tell(self, verdicts: Sequence[Verdict], *, kept: Sequence[Verdict] | None = None) -> None:
        """Let *verdicts* open and close incidents; write *kept* (all, by default) to history."""
        with self.deciding:
            now = self.clock()
            open_now, silences = self.records.incidents.open(), self.records.silences.list(now)
            settled = settle(
                self.settings, open_now, verdicts, silences, now, starting=self.starting
            )
            with self.records.write():
                self.records.record(settled, verdicts if kept is None else kept, now)
                for verdict in verdicts:
                    self._revoke(verdict)
            self._log(verdicts)
            self.rulings.add(verdicts)

    def changed(self, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Those that say something new, or repeat it after a minute: the others only fill disks."""
        return tuple(verdict for verdict in verdicts if self._new(verdict))

    def withdraw(self, watched: Iterable[Member]) -> None:
        """Close incidents about what is not watched any more."""
        with self.deciding:
            now = self.clock()
            settled = withdraw(self.settings, self.records.incidents.open(), watched, now)
            if settled != Round():
                self.records.record(settled, (), now)

    def reminders(self, now: datetime) -> tuple[tuple[str, Message], ...]:
        """All that was told and is not over, per channel: for receivers that forget."""
        return reminders(self.settings, self.records.incidents.open(), now)

    def _revoke(self, verdict: Verdict) -> None:
        if verdict.check not in self.gating or verdict.ruling.outcome is not Outcome.FAIL:
            return
        if set(waivers_of(verdict)) <= self.records.waivers.waived():
            return  # it blocks nothing any more
        whole = verdict.check in self.whole
        passed = self.rulings.last_pass(verdict.table, verdict.check) if whole else None
        valid = self.records.certificates.holding(verdict.table)
        gone = revocations(verdict, valid, passed)
        if gone:
            count = self.records.certificates.revoke(gone)
            log.warning("certificates revoked", table=verdict.table, count=count)

    def _new(self, verdict: Verdict) -> bool:
        before = self.rulings.newest(verdict.table, verdict.check)
        if before is None or before.ruling.outcome is not verdict.ruling.outcome:
            return True
        if verdict.at.replace(second=0, microsecond=0) != before.at.replace(
            second=0, microsecond=0
        ):
            return True
        return before.ruling.code != verdict.ruling.code

    def _log(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            before = self.rulings.newest(verdict.table, verdict.check)
            outcome, code = verdict.ruling.outcome, verdict.ruling.code
            if before is None and outcome is Outcome.PASS:
                continue
            if before is None or before.ruling.outcome is not outcome:
                facts = {"table": verdict.table, "check": verdict.check, "code": code}
                log.warning("verdict", outcome=outcome.value, **facts)
