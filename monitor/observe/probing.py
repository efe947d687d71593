"""Which probes are due, and what do they say?  One world a table, one verdict a probe.

Tables of one source have a line of their own, in which one probe runs at a time; so have those
whose shards lie in several.  No line waits for another, and a round for none that is slow: what is
due in a line that hangs is unknown, by the name of the probe that hangs.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
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
from pipeline.parallel import SideBySide

JOB = "job:probe"
Due = tuple[CheckPlan, Any, Table]
UNABLE = ("unreachable", "unprovable", "not_reached", "over_time", "check_broken")
"""Codes of an UNKNOWN that is over once the probe can look again."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeAtWork:
    """A probe that has not ended; ``limit`` is how long it may take."""

    check: str
    table: str
    since: datetime
    limit: timedelta


@dataclass(eq=False)
class Probing:
    """Runs each probe on each of its tables by its own pace, tier 0 first.

    A probe that had nothing new to rule on is asked again in the next round; if it could not even
    look before, that is over, and said: an old excuse must not stand until the next ruling.
    A mirror whose merges are ``paused`` is not probed: it stands where it stood.
    ``open_world`` is told whose line it is for: lines share nothing that waits.
    """

    plans: tuple[CheckPlan, ...]
    roster: Roster
    history: Verdicts
    recorder: VerdictRecorder
    open_world: Callable[[tuple[str, ...]], World]
    clock: Callable[[], datetime]
    run: Callable[[], str] = str
    paused: Callable[[], Collection[str]] = tuple
    lines: SideBySide[None] = field(init=False)
    _ran: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _at_work: dict[str, ProbeAtWork] = field(default_factory=dict)
    _failed: dict[str, Exception] = field(default_factory=dict)
    _told: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self.lines = SideBySide(self.clock, timedelta())

    def round(self) -> None:
        """Run what is due; each verdict is told at once, so a slow probe delays no other's.

        A line that is still at what was due before goes on with that.
        """
        due: dict[str, list[Due]] = {}
        for one in self._due():
            due.setdefault(f"probes of {' and '.join(one[2].sources)}", []).append(one)
        self.lines.ask({line: partial(self._line, line, own) for line, own in due.items()})
        for line in self.lines.open & due.keys():
            self._tell_hanging(line, due[line])
        for error in tuple(self._failed.values()):
            raise error

    def _line(self, line: str, due: Sequence[Due]) -> None:
        """Run what is due of one line; what breaks here breaks the next round."""
        self._failed.pop(line, None)
        try:
            self._run(line, due)
        except Exception as error:
            self._failed[line] = error
            raise
        finally:
            self._at_work.pop(line, None)

    def _run(self, line: str, due: Sequence[Due]) -> None:
        opened: tuple[Table, World] | None = None
        for plan, probe, table in due:
            if opened is None or opened[0] is not table:
                opened = table, self.open_world(table.sources)
            world, started = opened[1], self.clock()
            self._at_work[line] = ProbeAtWork(plan.name, table.name, started, probe.limit)
            past = self._past(plan, probe, table)
            verdict = run_probe(Check(plan.name, probe, table), world, past, self.run())
            if isinstance(verdict, NotYet):
                log.debug("nothing new", check=plan.name, table=table.name, why=verdict.why)
                self._able_again(plan.name, table.name, verdict.why)
                continue
            self._ran[plan.name, table.name] = started
            self._tell(verdict, whole=looks_back(probe) > 0)

    def _tell_hanging(self, line: str, due: Sequence[Due]) -> None:
        """Say once of all that is due in *line* which probe it waits for, if that hangs."""
        one, now = self._at_work.get(line), self.clock()
        if one is None or now - one.since <= one.limit:
            return
        what = f"check {one.check} of {one.table}"
        why = f"{what} has not ended since {one.since:%H:%M:%S} UTC; {line} wait for it"
        for plan, _, table in due:
            if self._told.get((plan.name, table.name)) != one.since:
                self._told[plan.name, table.name] = one.since
                ruling = Ruling(Outcome.UNKNOWN, why, UNABLE[0])
                self._tell(Verdict(table.name, plan.name, ruling, now, cause=JOB, run=self.run()))

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

    def _due(self) -> Iterator[Due]:
        tables = sorted(self.roster.tables(), key=lambda table: (table.tier, table.name))
        paused = self.paused()
        for table in tables:
            if table.name in paused:
                continue
            for plan in self.plans:
                probe = plan.probe_for(table.name)
                if probe is not None and self._old(plan, table):
                    yield plan, probe, table

    def _old(self, plan: CheckPlan, table: Table) -> bool:
        ran = self._ran.get((plan.name, table.name))
        return ran is None or over(ran, plan.every - timedelta(milliseconds=500), self.clock())
