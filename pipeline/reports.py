"""Defines the reports of the pipeline process to the service: landing, merges, gaps and holds.

A gap or hold keeps its id while its cause lasts, so that a waiver stays valid. The id of a gap
gains `@batch` when it is landed. A merge failure with an unforeseen error gets the reason
`failed`; its traceback is in the service log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.checkpoint import Gap
from pipeline.errors import HeldError, SluiceError, text_or_cause
from pipeline.image import Image
from pipeline.minute_counts import MinuteCounts, add_named
from pipeline.model import Account
from pipeline.resubmissions import ResubmissionState


@dataclass(frozen=True, slots=True)
class Hold:
    """A table (or a whole source) that is held, with the reason code and the fix.

    ``subject`` is a table's name, or ``source:NAME``. ``id`` is stable while the cause lasts.
    """

    id: str
    subject: str
    reason: str
    detail: str

    def __post_init__(self) -> None:
        """Fill in a detail if none was given."""
        object.__setattr__(self, "detail", text_or_cause(self.detail, self.reason))


SPARK_WORK = ("land", "merge")


@dataclass(frozen=True, slots=True)
class SparkWork:
    """Spark jobs of one kind that have ended: their number, tasks, rows and seconds."""

    jobs: int = 0
    tasks: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: "SparkWork") -> "SparkWork":
        """The sum of both."""
        return SparkWork(
            self.jobs + other.jobs,
            self.tasks + other.tasks,
            self.rows + other.rows,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Messages and rows of topics that went into landing and came out, and what explains the rest.

    Unexplained differences have a name with their partition and batch.
    """

    went_in: Mapping[str, int]
    came_out: Mapping[str, int]
    explained: Mapping[str, int]

    def __add__(self, other: "TopicCounts") -> "TopicCounts":
        """The sum of both."""
        return TopicCounts(
            add_named(self.went_in, other.went_in),
            add_named(self.came_out, other.came_out),
            add_named(self.explained, other.explained),
        )


@dataclass(frozen=True, slots=True)
class LandingReport:
    """One landing round of one lane; a round that committed nothing has no ``batch``.

    ``capped`` is true if there was more than one batch may take. ``resubmitted`` holds the state of
    each requested correction. ``minutes``: table -> its rows that came through topics, by minute
    and op; None if they are too many to keep. ``topics``: table -> the counts of its topics.
    """

    lane: str
    batch: int | None
    rows: int
    started: datetime
    took: timedelta
    capped: bool = False
    tables: tuple[tuple[str, int], ...] = ()
    gaps: tuple[Gap, ...] = ()
    holds: tuple[Hold, ...] = ()
    resubmitted: tuple[ResubmissionState, ...] = ()
    minutes: Mapping[str, MinuteCounts | None] = field(default_factory=dict)
    topics: Mapping[str, TopicCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeReport:
    """One merge run of one mirror: applied through ``batch`` as mirror ``version``.

    ``hold`` is set if the table was not merged; then ``batch`` and ``version`` are its current
    ones. ``image`` is the image that the run made of the mirror, if any: the next run reports its
    changes. ``since`` is the batch before the first that the run read; None if unknown.
    """

    table: str
    batch: int
    version: int
    account: Account
    started: datetime
    took: timedelta
    hold: Hold | None = None
    image: Image | None = None
    since: int | None = None


@dataclass(frozen=True, slots=True)
class MergeFailure:
    """Why a mirror was not merged."""

    reason: str
    detail: str
    waiver: str = ""

    @classmethod
    def of(cls, error: SluiceError) -> "MergeFailure":
        """The failure for an expected error: a hold, or a server that was not reached."""
        if isinstance(error, HeldError):
            return cls(error.reason, error.detail, error.waiver)
        return cls("unreachable", str(error))

    @classmethod
    def unforeseen(cls, error: Exception, what: str = "") -> "MergeFailure":
        """Return the failure of an unexpected *error* in *what*; the service log has the trace."""
        return cls("failed", f"{what}{type(error).__name__}: {error}"[:500])

    def hold(self, table: str) -> Hold:
        """The hold of *table*; stable while the cause lasts."""
        name = self.waiver or f"{self.reason}:{table}"
        return Hold(name, table, self.reason, self.detail)
