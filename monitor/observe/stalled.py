"""Opens, stores and clears the incident that the watching round hangs; that round tells all else.

Runs in the job that delivers, in a thread of its own: it needs neither the round nor its lock.
"""

from dataclasses import dataclass, field
from datetime import datetime

import structlog

from alerts.model import AlertKind, Cause, Incident, IncidentState
from alerts.round import AlertSettings, Round, settle
from checks.model import Outcome, Ruling, Verdict
from monitor.board import STALE, CurrentBoard
from monitor.store.store import ServiceStore
from pipeline.errors import UnreachableError

SUBJECT, CHECK = "job:watch", "stalled"
CAUSE = Cause(AlertKind.SERVICE, CHECK, SUBJECT)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class StalledRound:
    """Its incident is stored like all others, so the next run of the service clears it.

    While the store takes nothing the incident is in memory, and its notifications are sent.
    """

    settings: AlertSettings
    current: CurrentBoard
    store: ServiceStore
    started: datetime
    _unsaved: dict[str, Incident] = field(default_factory=dict)
    _none_open: bool = False  # the store was read, and has none

    def tell(self, now: datetime) -> None:
        """Look how old the board is; open the incident, and later clear it."""
        ruling = self._ruling(now)
        if ruling.outcome is Outcome.PASS and self._none_open and not self._unsaved:
            return
        open_now = self._open()
        verdict = Verdict(SUBJECT, CHECK, ruling, now)
        silences = () if self.store.database.ailment else self.store.silences.list(now)
        settled = settle(self.settings, open_now, [verdict], silences, now)
        self._none_open = not open_now and settled == Round()
        if settled != Round() or self._unsaved:
            self._record(settled, now)

    def _open(self) -> tuple[Incident, ...]:
        try:
            stored = {one.id: one for one in self.store.incidents.open() if one.cause == CAUSE}
        except UnreachableError as error:
            log.warning("open incidents cannot be read", why=str(error))
            stored = {}
        known = (stored | self._unsaved).values()
        return tuple(one for one in known if one.state is not IncidentState.RESOLVED)

    def _record(self, settled: Round, now: datetime) -> None:
        unsaved = self._unsaved | {one.id: one for one in settled.changed}
        for one in settled.dropped:
            unsaved.pop(one.id, None)

        def along() -> None:
            self.store.incidents.keep(tuple(unsaved.values()), [i.id for i in settled.dropped])

        try:
            self.store.outbox.hold(settled.letters, now)
            self.store.outbox.catch_up(now, along)
            self._unsaved = {}
        except UnreachableError as error:
            log.warning("the incident is kept in memory", why=str(error))
            self._unsaved = unsaved

    def _ruling(self, now: datetime) -> Ruling:
        age = now - max(self.current.board.at, self.started)
        if age <= STALE:
            return Ruling(Outcome.PASS, "the watching round runs")
        told = (
            f"no watching round has ended for {age.total_seconds():.0f} s: every state is unknown"
        )
        return Ruling(Outcome.FAIL, told, CHECK)
