"""Which probes are due, and what do they say?  One world a table, one verdict a probe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.run import Check, looks_back, run_probe
from checks.world import World
from monitor.config.plans import CheckPlan
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.roster import Roster
from monitor.store.verdicts import Verdicts
from pipeline.clocks import over
from pipeline.model import Table

UNABLE = ("unreachable", "unprovable")  # codes of an UNKNOWN for want of an answer
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Probing:
    """Runs each probe on each of its tables by its own pace, tier 0 first.

    A probe that had nothing new to rule on is asked again in the next round; if it could not even
    look before, that is over, and said: an old excuse must not stand until the next ruling.
    """

    plans: tuple[CheckPlan, ...]
    roster: Roster
    history: Verdicts
    recorder: VerdictRecorder
    open_world: Callable[[], World]
    clock: Callable[[], datetime]
    run: Callable[[], str] = str
    _ran: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def round(self) -> None:
        """Run what is due; each verdict is told at once, so a slow probe delays no other's."""
        opened: tuple[Table, World] | None = None
        for plan, probe, table in self._due():
            if opened is None or opened[0] is not table:
                opened = table, self.open_world()
            world = opened[1]
            started = self.clock()
            past = self._past(plan, probe, table)
            verdict = run_probe(Check(plan.name, probe, table), world, past, self.run())
            if isinstance(verdict, NotYet):
                log.debug("nothing new", check=plan.name, table=table.name, why=verdict.why)
                self._able_again(plan.name, table.name, verdict.why)
                continue
            self._ran[plan.name, table.name] = started
            self._tell(verdict, whole=looks_back(probe) > 0)

    def _past(self, plan: CheckPlan, probe: Any, table: Table) -> list[float]:
        """Earlier values, for a probe that asks for them: of thousands of tables hardly any do."""
        if not (many := looks_back(probe)):
            return []
        return [value for _, value in self.history.history(table.name, plan.name, many)]

    def _able_again(self, check: str, table: str, why: str) -> None:
        newest = self.recorder.rulings.newest(table, check)
        if newest is not None and newest.ruling.code in UNABLE:
            ruling = Ruling(Outcome.UNKNOWN, why, "not_yet")
            self._tell(Verdict(table, check, ruling, self.clock(), run=self.run()))

    def _tell(self, verdict: Verdict, *, whole: bool = False) -> None:
        """Keep what says something new; each number, if the probe looks back on the *whole*."""
        kept = whole and verdict.value is not None
        self.recorder.tell([verdict], kept=[verdict] if kept else self.recorder.changed([verdict]))

    def _due(self) -> Iterator[tuple[CheckPlan, Any, Table]]:
        tables = sorted(self.roster.tables(), key=lambda table: (table.tier, table.name))
        for table in tables:
            for plan in self.plans:
                probe = plan.probe_for(table.name)
                if probe is not None and self._old(plan, table):
                    yield plan, probe, table

    def _old(self, plan: CheckPlan, table: Table) -> bool:
        ran = self._ran.get((plan.name, table.name))
        return ran is None or over(ran, plan.every - timedelta(milliseconds=500), self.clock())
