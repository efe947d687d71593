"""Defines the reports of the pipeline process to the service: landing, merges, gaps and holds.

A gap or hold keeps its id while its cause lasts, so that a waiver stays valid. The id of a gap
gains `@batch` when it is landed. A merge failure with an unforeseen error gets the reason
`failed`; its traceback is in the service log.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from pipeline.errors import HeldError, SluiceError, text_or_cause
from pipeline.image import Image
from pipeline.model import Account, Order
from pipeline.resubmissions import ResubmissionState

SETTING, DELAY = "setting", "delay"
"""Kinds of gaps that a setting makes: it closes by a later base, or with the setting."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition that can no longer be read: ``[first, until)``, and why.

    ``id`` is stable across rounds (``topic:partition:first``, once landed with ``@batch``);
    ``sluice waive ID`` closes it, and so does a base of each of ``shards`` (as
    ``source/db.table``) that is later than ``batch``; their CREATE only once all was read up to
    an end that came after the gap (``passed``), for until then it may be older than what is lost.
    Where nothing is lost ``above`` an order, a base from there on closes it, whenever it came;
    nor is anything lost up to ``below``, if that is known.
    Of missing heartbeats ``again`` is the newest up to which the log was sent again, without a
    jump, from the heartbeat before them on; -1 if it was not.  ``shared`` if it was of several
    tables, also once it is open of one only.
    """

    id: str
    topic: str
    partition: int
    first: int
    until: int
    why: str
    tables: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    batch: int = -1
    passed: bool = False
    above: Order | None = None
    again: int = -1
    shared: bool = False
    below: Order | None = None

    def __post_init__(self) -> None:
        """Fill in a reason where none was given."""
        object.__setattr__(self, "why", text_or_cause(self.why, "gap"))

    @property
    def sent_again(self) -> bool:
        """Whether all missing heartbeats came again; the rows between them may not have landed."""
        return self.again >= self.until

    @property
    def doubt(self) -> str:
        """SETTING or DELAY where only a setting makes it; else empty.  No topic has a colon."""
        kind, colon, _ = self.topic.partition(":")
        return kind if colon and kind in (SETTING, DELAY) else ""

    def is_of_several(self, tables: Mapping[str, str | None]) -> bool:
        """Return whether it is, or was, of several of *tables*, which their shards name."""
        return self.shared or len({tables.get(name, name) for name in self.shards}) > 1

    def after(self, earlier: Iterable["Gap"], tables: Mapping[str, str | None]) -> "Gap":
        """Return the same gap while its cause lasts: of several *tables* if one before was."""
        every = (self, *earlier)
        return replace(self, shared=any(one.is_of_several(tables) for one in every))

    @classmethod
    def noticed(
        cls,
        topic: str,
        first: int,
        why: str,
        shards: Iterable[str],
        *,
        batch: int | None = None,
        above: Order | None = None,
    ) -> "Gap":
        """Return a gap that no offsets show: *topic* names its kind and its subject.

        It was noticed when batch *first* landed; *batch* is that by default.
        """
        return cls(
            id=f"{topic}:0:{first}@{first}",
            topic=topic,
            partition=0,
            first=first,
            until=first,
            why=why,
            shards=tuple(sorted(shards)),
            batch=first if batch is None else batch,
            above=above,
        )


@lru_cache(maxsize=20_000)  # open gaps stay the same for many rounds, and each round loads them all
def load_gap(text: str) -> Gap:
    """Read back one value of ``Checkpoint.gaps``."""
    raw = json.loads(text)
    ends = {name: Order(**raw[name]) for name in ("above", "below") if raw.get(name)}
    names = {name: tuple(raw[name]) for name in ("tables", "shards")}
    return Gap(**{**raw, **names, **ends})


def dump_gap(gap: Gap) -> str:
    """Write a value of ``Checkpoint.gaps``."""
    return json.dumps(asdict(gap))


@dataclass(frozen=True, slots=True)
class Hold:
    """A table (or a whole source) that stands still, with the reason code and the way out.

    ``subject`` is a table's name, or ``source:NAME``.  ``id`` is stable while the cause lasts.
    """

    id: str
    subject: str
    reason: str
    detail: str

    def __post_init__(self) -> None:
        """Fill in a detail where none was given."""
        object.__setattr__(self, "detail", text_or_cause(self.detail, self.reason))


SPARK_WORK = ("land", "merge")


@dataclass(frozen=True, slots=True)
class SparkWork:
    """Spark jobs of one kind that have ended: how many, and their tasks, rows and seconds."""

    jobs: int = 0
    tasks: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: "SparkWork") -> "SparkWork":
        """Both together."""
        return SparkWork(
            self.jobs + other.jobs,
            self.tasks + other.tasks,
            self.rows + other.rows,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class LandingReport:
    """One landing round of one lane; a round that committed nothing has no ``batch``.

    ``capped`` is true when more was there than one batch may take. ``resubmitted`` holds the state
    of each requested correction.
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


@dataclass(frozen=True, slots=True)
class MergeReport:
    """One merge run of one mirror: applied through ``batch`` as mirror ``version``.

    ``hold`` is set when the table was left alone instead; then ``batch`` and ``version`` are its
    current ones. ``image`` is the image that the run made of the mirror, if any: the next run
    reports its changes.
    """

    table: str
    batch: int
    version: int
    account: Account
    started: datetime
    took: timedelta
    hold: Hold | None = None
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class MergeFailure:
    """Why a mirror was left alone."""

    reason: str
    detail: str
    waiver: str = ""

    @classmethod
    def of(cls, error: SluiceError) -> "MergeFailure":
        """What was foreseen: the mirror must stand still, or something was not reached."""
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
