"""Runs the job of one copy: it brings each table whose mirror has changed up to its mirror.

Landing and merging do not depend on it. A copy that is down or hangs delays only its own thread.
Each round asks the copy for its positions, so a copy that was emptied or set back is detected at
once.

Each step is counted before the next one begins.  So a copy is at most one step ahead of the ledger.
After a crash, a commit is followed again. The end of a load is only counted, because the ledger has
recorded the load before.  Monitoring uses a step only after the ledger has compared it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from monitor.config.plans import CopyPlan
from monitor.observe.sampler import AskCopy, Sampling
from monitor.store.copy_ledger import CopyLedger, CopyReach
from pipeline.apply.table_format import Mirrors
from pipeline.build import open_table_format
from pipeline.clocks import Retries
from pipeline.copies.copy import CopiedVersion, CopyPosition, CopyTarget
from pipeline.copies.sync import CopySync
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.lags.samples import Sample
from pipeline.model import Missing, Table
from pipeline.reports import Hold
from pipeline.settings import PipelineSettings

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class CopyWork:
    """Brings the tables of one copy up to their mirrors; ``look`` and ``tables`` show which moved.

    A round takes at most ``patience``, or the time of one step of one table.  ``ledger`` compares
    each step.  ``holds`` has the hold of each held table; ``problem`` is why the last round failed,
    empty if it did not.
    """

    plan: CopyPlan
    copying: CopySync
    ledger: CopyLedger
    look: Callable[[], Sampling]
    tables: Callable[[], Iterable[Table]]
    clock: Callable[[], datetime]
    patience: timedelta
    ended: Callable[[], bool]
    holds: dict[str, Hold] = field(default_factory=dict)
    problem: str = ""
    _retries: Retries = field(default_factory=Retries)
    _until: datetime | None = None
    _reloaded: dict[str, CopyPosition] = field(default_factory=dict)  # positions that need a load
    _loaded: dict[str, CopyPosition] = field(default_factory=dict)  # loads of this process

    def __post_init__(self) -> None:
        """Make the copying stop between two steps when time is up, and count each step."""
        self.copying.stopping, self.copying.count = self._over, self._count
        self.copying.note_load = self._note_load

    def run(self) -> None:
        """Copy every table that is due.

        Raises:
            SluiceError: not everything could be copied; the message says why.
        """
        self._until = self.clock() + self.patience
        try:
            failed = self._round()
        except (HeldError, UnreachableError) as error:
            self.problem = str(error)
            raise
        self.problem = "; ".join(dict.fromkeys(failed))
        if failed:
            raise UnreachableError(self.problem)

    def _round(self) -> list[str]:
        positions, failed = self.copying.target.positions(), list[str]()
        reach = self.ledger.copy_reach(self.plan.name)
        for table, circumstances in self._due(positions, reach):
            was = positions.get(table.name)
            try:
                self._bring(table, was, circumstances, reach.get(table.name, CopyReach()))
            except UnreachableError as error:
                failed.append(str(error))
                self.copying.target.positions()  # raises if the copy is down for all tables
            if self._over():
                break
        return failed

    def _due(
        self, positions: Mapping[str, CopyPosition], reach: Mapping[str, CopyReach]
    ) -> Iterator[tuple[Table, Hashable]]:
        """Yield tables that are not at the last seen position of their mirrors, with positions.

        Also yields tables whose last step was not counted, and tables that were set back.
        """
        look, now = self.look(), self.clock()
        for table in self.tables():
            seen = look.mirrors.get(table.name)
            if not self.plan.serves(table.name) or not isinstance(seen, Sample):
                continue
            at = positions.get(table.name)
            there = at is not None and at.whole and at.mirror == seen.value.mirror
            known = reach.get(table.name, CopyReach())
            counted = at is not None and known.covers(at) and not known.exceeds(at)
            if there and counted and at is not None and at.version >= seen.value.version:
                self._well(table.name)
            elif self._retries.due(table.name, (seen.value.version, at), now):
                yield table, (seen.value.version, at)

    def _bring(
        self, table: Table, was: CopyPosition | None, circumstances: Hashable, reach: CopyReach
    ) -> None:
        began = self.clock()
        loaded = was is not None and reach.awaits(was)
        reload = was is not None and reach.needs_load(was)
        if was is not None and loaded:
            self._count(table.name, CopiedVersion.loaded(was))
        elif was is not None and reload:
            self._warn_of_reload(table.name, was)
        elif was is not None and was.whole:
            self.ledger.set_back(self.plan.name, table.name, was)
        try:
            if was is not None and reload:
                _require_load_id(was, self._loaded.get(table.name))
            counted = was is None or loaded or reach.covers(was)
            now = self.copying.bring(table, was, counted=counted, reload=reload)
        except LostRaceError as error:
            log.warning("copy_overtaken", copy=self.plan.name, table=table.name, why=str(error))
        except HeldError as error:
            self._retries.failed(table.name, circumstances, self.clock())
            about = f"copy:{self.plan.name}:{table.name}"
            if table.name not in self.holds:
                log.warning("copy_held", copy=self.plan.name, table=table.name, why=str(error))
            self.holds[table.name] = Hold(about, table.name, error.reason, error.detail)
        else:
            self._well(table.name)
            if now != was and now is not None:
                took = round((self.clock() - began).total_seconds(), 3)
                log.info(
                    "copied",
                    copy=self.plan.name,
                    table=table.name,
                    version=now.version,
                    batch=now.batch,
                    seconds=took,
                )

    def _warn_of_reload(self, table: str, was: CopyPosition) -> None:
        if self._reloaded.get(table) != was:  # log each position once
            why = "what it holds was not compared, as after a restore; it is loaded again"
            log.warning("copy_reload", copy=self.plan.name, table=table, at=was.version, why=why)
        self._reloaded[table] = was

    def _count(self, table: str, done: CopiedVersion) -> None:
        self.ledger.add_copied(self.plan.name, table, [done], self.clock())

    def _note_load(self, table: str, at: CopyPosition) -> None:
        self.ledger.note_load(self.plan.name, table, at)
        self._loaded[table] = at

    def _well(self, table: str) -> None:
        self._retries.succeeded(table)
        self.holds.pop(table, None)

    def _over(self) -> bool:
        return self.ended() or (self._until is not None and self.clock() > self._until)


def _require_load_id(at: CopyPosition, loaded: CopyPosition | None) -> None:
    """Require that a copy returns the id of the load that this process made.

    Raises:
        HeldError: ``copy_position``: it does not, so it would be loaded again and again.
    """
    if loaded is None or at.load_id or (at.mirror, at.load) != (loaded.mirror, loaded.load):
        return
    what = "the copy does not return the load_id of the position that it was given"
    raise HeldError("copy_position", f"{what}; correct its plug-in (docs/extending.md)")


@dataclass(eq=False)
class ComparedPositions:
    """Returns the position of each table in ``target``, up to which the ledger has compared it.

    While a step is not compared, the position before it is returned.  The position is Missing if
    none is known, or if the ledger does not know yet that the copy was set back.  It is not whole
    if the copy has content that will not be compared, because it is loaded again.
    """

    copy: str
    target: CopyTarget
    ledger: CopyLedger
    _known: dict[str, CopyPosition] = field(default_factory=dict)

    def __call__(self) -> Mapping[str, CopyPosition | Missing]:
        """Return the positions; the ledger is read before and after the copy is asked.

        A step is written before it is compared. So what the first reading of the ledger has
        compared is not above the position, unless the copy was set back.
        """
        before, positions = self.ledger.copy_reach(self.copy), self.target.positions()
        reach, none = self.ledger.copy_reach(self.copy), CopyReach()
        return {
            table: self._compared(table, at, before.get(table, none), reach.get(table, none))
            for table, at in positions.items()
        }

    def _compared(
        self, table: str, at: CopyPosition, before: CopyReach, reach: CopyReach
    ) -> CopyPosition | Missing:
        if not at.whole:
            return at
        if before.needs_load(at) and reach.needs_load(at):  # its present content does not count
            return replace(at, parts=0)
        if not before.exceeds(at):
            if reach.covers(at):
                self._known[table] = at
                return at
            was = self._known.get(table)
            if was and _is_earlier(was, at) and reach.covers(was):
                return was
        return Missing(f"version {at.version} of the copy is not compared with its mirror yet")


def _is_earlier(was: CopyPosition, at: CopyPosition) -> bool:
    same = (was.lineage, was.load) == (at.lineage, at.load)
    return same and was.version <= at.version


@dataclass(eq=False)
class Copies:
    """The jobs of all copies, and the readers of their positions.

    Jobs and monitoring rounds have separate clients, so that neither waits for the other.
    """

    settings: PipelineSettings
    plans: Sequence[CopyPlan]
    ledger: CopyLedger
    jobs: tuple[CopyWork, ...] = ()

    def __post_init__(self) -> None:
        """Create the readers of positions; they connect on first use."""
        lake = self.settings.lake
        self._watched = {
            one.name: ComparedPositions(one.name, one.copy.opened(lake), self.ledger)
            for one in self.plans
        }

    @property
    def positions(self) -> Mapping[str, AskCopy]:
        """By copy: the function that returns the compared position of each table."""
        return self._watched

    def add_jobs(
        self,
        look: Callable[[], Sampling],
        tables: Callable[[], Iterable[Table]],
        clock: Callable[[], datetime],
        patience: timedelta,
        ended: Callable[[], bool],
    ) -> None:
        """Create the job of each copy; see `CopyWork` for the parameters."""
        self.jobs = tuple(
            CopyWork(plan, self._copying(plan), self.ledger, look, tables, clock, patience, ended)
            for plan in self.plans
        )

    def holds_of(self, table: str) -> Mapping[str, Hold | None]:
        """Return the copies of *table* by name, each with its hold or None."""
        own = (one for one in self.jobs if one.plan.serves(table))
        return {one.plan.name: one.holds.get(table) for one in own}

    def problems(self) -> Mapping[str, str]:
        """Return, by copy, why its last round failed; empty if it did not."""
        return {one.plan.name: one.problem for one in self.jobs}

    def close(self) -> None:
        """Close all clients."""
        watched = [one.target for one in self._watched.values()]
        for target in (*watched, *(one.copying.target for one in self.jobs)):
            target.close()

    def _copying(self, plan: CopyPlan) -> CopySync:
        mirrors = Mirrors(self.settings, open_table_format(self.settings))
        return CopySync(plan.copy.opened(self.settings.lake), mirrors)
