"""Who tells that the watching round hangs?  All else is told by that round.

Asked by the job that delivers, in a thread of its own: it needs neither the round nor its lock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from alerts.model import Incident, IncidentState
from alerts.round import AlertSettings, settle
from alerts.silence import Silence
from checks.model import Outcome, Ruling, Verdict
from monitor.board import STALE, CurrentBoard
from monitor.store.outbox import StoredOutbox

SUBJECT, CHECK = "job:watch", "stalled"


@dataclass(eq=False)
class StalledRound:
    """Puts its letters where all wait; what it has told is in memory, a new life tells anew."""

    settings: AlertSettings
    current: CurrentBoard
    outbox: StoredOutbox
    silences: Callable[[datetime], Iterable[Silence]]
    started: datetime
    _open: dict[str, Incident] = field(default_factory=dict)

    def tell(self, now: datetime) -> None:
        """Look how old the board is; tell it, and later that it is over."""
        ruling = self._ruling(now)
        if ruling.outcome is Outcome.PASS and not self._open:
            return
        verdict = Verdict(SUBJECT, CHECK, ruling, now)
        open_now = tuple(self._open.values())
        settled = settle(self.settings, open_now, [verdict], self.silences(now), now)
        for incident in settled.dropped:
            self._open.pop(incident.id)
        for incident in settled.changed:
            self._open[incident.id] = incident
            if incident.state is IncidentState.RESOLVED:
                del self._open[incident.id]
        if settled.letters:
            self.outbox.put(settled.letters, now)

    def _ruling(self, now: datetime) -> Ruling:
        age = now - max(self.current.board.at, self.started)
        if age <= STALE:
            return Ruling(Outcome.PASS, "the watching round turns")
        told = (
            f"no watching round has ended for {age.total_seconds():.0f} s: every state is unknown"
        )
        return Ruling(Outcome.FAIL, told, CHECK)
