"""The state of the service at the end of its last round; API, metrics and pages read only this.

A board is immutable and replaced as a whole, so no reader sees half a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from alerts.model import Incident
from checks.blocks import StateSince
from checks.model import Reason, Verdict, Verified
from checks.readiness import Readiness, ReadinessState
from pipeline.backfill_state import RowSelection
from pipeline.image import Image
from pipeline.lags.lag import HopLag, Lags
from pipeline.model import Stage, Table
from pipeline.reports import Hold, SparkWork
from pipeline.sources.budget import Spending
from pipeline.sources.source import LogBacklog

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
STALE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class CopyView:
    """One copy of a table: how far it is behind the mirror, and whether it may be read.

    ``day`` is the answer for the end of yesterday; ``hold`` is set while the copy is held.
    ``losses`` are the residuals of its ledger that no waiver covers.
    """

    name: str
    hop: HopLag
    day: Readiness
    hold: Hold | None = None
    losses: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class TableView:
    """One table: how far it is behind, and whether it may be read.

    ``day`` has the answers for the end of yesterday, ``recent`` those for one lag budget ago.
    ``since`` is the time since which ``worst`` has its value, as far as this run of the service
    knows.  ``images`` are the images that can be read.  ``life`` is the state of the table; None
    until it is known.  ``budget`` is the longest lag that is not late.  ``verified`` is what was
    compared with the source, from `present_claims`; None while no check has reported it.
    """

    table: Table
    lags: Lags
    day: Mapping[Stage, Readiness]
    recent: Mapping[Stage, Readiness]
    verdicts: tuple[Verdict, ...] = ()
    residual: int = 0
    images: tuple[Image, ...] = ()
    copies: tuple[CopyView, ...] = ()
    since: datetime | None = None
    life: StateSince | None = None
    budget: timedelta | None = None
    verified: Verified | None = None

    @property
    def worst(self) -> ReadinessState:
        """The graver of the two answers for the mirror, ``day`` and ``recent``."""
        gravity = list(GRAVITY)
        answers = (self.day[Stage.MIRROR].state, self.recent[Stage.MIRROR].state)
        return min(answers, key=gravity.index)


GRAVITY = (
    ReadinessState.BLOCKED,
    ReadinessState.REVOKED,
    ReadinessState.UNKNOWN,
    ReadinessState.NOT_READY,
    ReadinessState.READY,
)


@dataclass(frozen=True, slots=True)
class ComponentView:
    """A part such as a source, a collector or the Spark process: if it works, or why not."""

    name: str
    works: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """A scheduled job: its runs by result, when it last succeeded, and whether it is overdue.

    ``results`` counts all runs ever; ``lately`` counts the unsuccessful runs of the last minutes.
    """

    name: str
    results: Mapping[str, int] = field(default_factory=dict)
    succeeded: datetime | None = None
    overdue: bool = False
    lately: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel: its queued and dead-lettered messages, and its failures in a row."""

    name: str
    waiting: int = 0
    dead: int = 0
    failures: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DiskView:
    """Space of the file system of ``name`` (store, lake or log), in bytes."""

    name: str
    path: str
    size: int
    free: int
    needed: int

    @property
    def problem(self) -> str:
        """What is wrong and how to fix it; empty while enough is free."""
        if self.free >= self.needed:
            return ""
        return (
            f"{_size(self.free)} are free on the disk of the {self.name} at {self.path}, at least"
            f" {_size(self.needed)} are needed; free space or enlarge the disk"
        )


def _size(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**10:,.0f} KiB"


@dataclass(frozen=True, slots=True)
class FirstLanding:
    """The first landing of a source: its progress, the tables that wait for it, and its end.

    ``stuck`` is the time since which it has made no progress; None while it does.
    """

    source: str
    description: str
    since: datetime
    tables: tuple[str, ...] = ()
    eta: datetime | None = None
    stuck: datetime | None = None

    @property
    def line(self) -> str:
        """The first landing in one line."""
        return f"source {self.source} is read for the first time: {self.description}"


@dataclass(frozen=True, slots=True)
class BackfillView:
    """A running backfill of a table, since when, and its progress as text.

    ``rate`` is in rows per second; ``left`` is the remaining time in seconds, None if unknown.
    ``brakes`` are the reasons why it is slowed down.
    """

    table: str
    description: str
    rows: int
    since: datetime
    rate: float = 0.0
    left: float | None = None
    brakes: tuple[str, ...] = ()


class NextStep(StrEnum):
    """The next step for an incident that may be repaired automatically."""

    REPAIR = "repair"
    WAIT = "wait"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """Whether the rows of an incident's table are repaired automatically now, and why or why not.

    ``step`` is `repair` if the repair is requested now, `wait` if a later round decides, and `ask`
    if a person must act. ``rows`` are the rows to read again. ``checks`` named them, as of
    ``fences`` (source and number). All three are empty unless the step is `repair`.
    """

    incident: str
    table: str
    step: NextStep
    why: str
    checks: tuple[str, ...] = ()
    rows: RowSelection = field(default_factory=RowSelection)
    fences: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetView:
    """The cost of checks for a source so far: ``spent`` by check, and ``waited`` in seconds."""

    spent: Mapping[str, Spending]
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Board:
    """The complete state after one round; ``at`` is NEVER before the first round.

    ``ledger``: (table, hop) -> rows of its residuals, None while this is unknown.
    """

    at: datetime = NEVER
    started: datetime = NEVER
    cut: datetime = NEVER
    tables: tuple[TableView, ...] = ()
    incidents: tuple[Incident, ...] = ()
    parts: tuple[ComponentView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    channels: tuple[ChannelView, ...] = ()
    changes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ledger: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    headroom: Mapping[tuple[str, str], timedelta] = field(default_factory=dict)
    needed: Mapping[tuple[str, str], timedelta] = field(default_factory=dict)
    backlogs: Mapping[str, LogBacklog] = field(default_factory=dict)
    firsts: tuple[FirstLanding, ...] = ()
    backfills: tuple[BackfillView, ...] = ()
    repairs: tuple[RepairDecision, ...] = ()
    retired: tuple[StateSince, ...] = ()
    restarts: int = 0
    spark: Mapping[str, SparkWork] = field(default_factory=dict)
    budgets: Mapping[str, BudgetView] = field(default_factory=dict)
    disks: tuple[DiskView, ...] = ()
    store_bytes: int | None = None
    certificates: int | None = None
    unreadable: int = 0
    runbooks: str = "docs/runbooks"

    def age(self, now: datetime) -> timedelta:
        """Return the age of the board."""
        return now - self.at

    def stale(self, now: datetime) -> bool:
        """Whether the board is too old to be used, because no monitoring round ends."""
        return self.age(now) > STALE

    def table(self, name: str) -> TableView | None:
        """Return the view of table *name*; None if it is not known."""
        return next((view for view in self.tables if view.table.name == name), None)


@dataclass(eq=False)
class CurrentBoard:
    """Holds the newest board; one writer replaces it, and any number of readers read it."""

    board: Board = field(default_factory=Board)
