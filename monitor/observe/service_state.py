"""Collects what the board shows in addition to tables: components, jobs, incidents, counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from alerts.model import Incident
from alerts.routing import CHANNEL
from monitor.board import BackfillView, BudgetView, ChannelView, DiskView, JobView
from monitor.observe.heartbeats import HeartbeatWriter
from monitor.observe.progress import BackfillProgress, Estimates, backfill_progress
from monitor.observe.sampler import Sampling
from monitor.observe.system_checks import KAFKA, STORE, Component, SlidingWindow, view_channels
from monitor.schedule import Schedule
from monitor.spark.requests import LaneRequests
from monitor.spark.supervisor import Supervisor
from monitor.store.requests import StoredBackfill, StoredBackfills
from monitor.store.store import ServiceStore
from pipeline.model import Missing, Origin
from pipeline.reports import SparkWork
from pipeline.sources.budget import SourceBudget

DRIVEN = ("land", "merge", "merge_urgent")  # jobs that the Spark process runs
WELL = ("done", "ok")
COPY = "copy:"
BLAMED = ("heartbeat:", COPY, *DRIVEN)  # jobs whose failures another component reports


@dataclass(eq=False)
class ServiceState:
    """Reads the state of the running parts, and totals from the store."""

    store: ServiceStore
    heartbeats: Sequence[HeartbeatWriter]
    requests: LaneRequests
    supervisor: Supervisor
    schedule: Callable[[], Schedule]
    ways: tuple[str, ...]
    doubts: Callable[[str, datetime], str]
    estimates: Estimates = lambda _: {}
    lately: SlidingWindow = field(default_factory=SlidingWindow)
    copies: Callable[[], Mapping[str, str]] = dict
    brokers: Callable[[], str] = str  # why the brokers do not answer; empty if they do
    disks: Callable[[], Sequence[DiskView]] = tuple
    budgets: Mapping[str, SourceBudget] = field(default_factory=dict)

    def parts(
        self, look: Sampling, channels: Sequence[ChannelView], now: datetime
    ) -> tuple[Component, ...]:
        """Return all components of the service and the pipeline, each with its problem."""
        sources = [
            Component(f"source:{p.settings.name}", "service", p.problem) for p in self.heartbeats
        ]
        names = [one.settings.name for one in self.heartbeats]
        sources += [Component(f"clock:{name}", "clock", self.doubts(name, now)) for name in names]
        brokers = Component(KAFKA, "service", self.brokers())
        collectors = [
            Component(f"collector:{name}", "service", _problem(look, name)) for name in look.sources
        ]
        jobs = [
            Component(f"job:{job.name}", "job", self._job_problem(job.name))
            for job in self.schedule().jobs
            if not job.name.startswith(BLAMED)
        ]
        ways = [Component(f"{CHANNEL}{c.name}", "channel", c.problem) for c in channels]
        copies = [self._copy(*one, look) for one in self.copies().items()]
        kept = [Component(STORE, STORE, self.store.database.problem)]
        kept += [Component(f"disk:{one.name}", "disk", one.problem) for one in self.disks()]
        return (*sources, brokers, *collectors, self._spark(), *copies, *ways, *kept, *jobs)

    def channels(self, now: datetime) -> tuple[ChannelView, ...]:
        """Return every configured channel, and others with queued or dead-lettered messages."""
        return view_channels(self.store.outbox, self.ways, self.store.waivers.waived(), now)

    def jobs(self, now: datetime) -> tuple[JobView, ...]:
        """Return every scheduled job with its totals."""
        totals, ended = self.store.ticks.totals(), self.store.ticks.last_success()
        overdue = self.schedule().overdue()
        lately = self.lately.counted(totals, now)
        return tuple(
            JobView(
                job.name,
                {result: n for (name, result), n in totals.items() if name == job.name},
                ended.get(job.name),
                job.name in overdue,
                {r: n for (name, r), n in lately.items() if name == job.name and r not in WELL},
            )
            for job in self.schedule().jobs
        )

    def incidents(self) -> tuple[Incident, ...]:
        """Return the open incidents."""
        return self.store.incidents.open()

    def changes(self) -> Mapping[tuple[str, str], int]:
        """Return (table, term) -> number of changes so far."""
        return self.store.accounts.totals()

    def ledger(self) -> Mapping[tuple[str, str], int | None]:
        """Return (table, hop) -> rows of the residuals in its ledger; None while unknown."""
        return self.store.ledger.residuals()

    def backfills(self, now: datetime) -> tuple[BackfillView, ...]:
        """Return the running backfills."""
        return backfill_views(self.store.backfills, self.estimates, now)

    def store_bytes(self) -> int | None:
        """Return the size of the store in bytes; None if it cannot be read."""
        return self.store.database.size()

    def certificates(self) -> int | None:
        """Return the number of certificates when the store was last pruned; None before."""
        return self.store.certificates.stored

    def unreadable(self) -> int:
        """Return the number of store rows that could not be decoded and were skipped."""
        return self.store.database.unreadable

    def restarts(self) -> int:
        """Return how often the Spark process was restarted."""
        return self.supervisor.restarts

    def spark(self) -> Mapping[str, SparkWork]:
        """Return the totals of Spark jobs so far, by kind of work."""
        return dict(self.requests.spark)

    def spending(self) -> Mapping[str, BudgetView]:
        """Return the cost of checks for each source that they have queried."""
        known = dict(self.budgets)
        return {name: BudgetView(one.spent, one.waited) for name, one in known.items()}

    def _spark(self) -> Component:
        late = next(filter(None, (self._late(name) for name in DRIVEN)), "")
        return Component("worker", "worker", self.requests.problem or late)

    def _copy(self, name: str, problem: str, look: Sampling) -> Component:
        job, answer = f"{COPY}{name}", look.copies.get(name)
        silent = answer.why if isinstance(answer, Missing) else ""
        return Component(job, "service", silent or problem or self._job_problem(job))

    def _job_problem(self, name: str) -> str:
        return self.schedule().problems.get(name, "") or self._late(name)

    def _late(self, name: str) -> str:
        since = self.schedule().overdue().get(name)
        return f"overdue, running since {since.isoformat()}" if since else ""


def backfill_views(
    kept: StoredBackfills, estimates: Estimates, now: datetime
) -> tuple[BackfillView, ...]:
    """Return the progress of each running backfill."""
    return tuple(_backfill(one, backfill_progress(one, estimates, now)) for one in kept.open())


def _backfill(one: StoredBackfill, far: BackfillProgress) -> BackfillView:
    waits = f"; waits: {one.why}" if one.why else ""
    kind = "" if one.wish.origin is Origin.SNAPSHOT else f", {one.kind}"
    text = f"read again from its source{kind}: {far.description}{waits}"
    left = far.left if far.left is None else far.left.total_seconds()
    return BackfillView(one.table, text, one.rows, one.at, far.rate, left, far.brakes)


def _problem(look: Sampling, name: str) -> str:
    trouble = look.troubles.get(name)
    return trouble.description if trouble else ""
