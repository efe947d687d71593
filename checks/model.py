"""Defines the values of a check: ruling, verdict, reason, and the types of probe settings.

UNKNOWN is an outcome of its own and never counts as PASS or FAIL.

The numeric types bound the settings of probes, and `check-config` reports a violation. A
negative tolerance would fail every table. With zero tries or zero time, a probe could never
decide.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from checks.ledger import LedgerEntry
from pipeline.errors import text_or_cause
from pipeline.model import Fence


class Outcome(StrEnum):
    """PASS and FAIL are claims with evidence; UNKNOWN never counts as either."""

    PASS = "pass"  # noqa: S105  - an outcome, not a secret
    FAIL = "fail"
    UNKNOWN = "unknown"


class FailKind(StrEnum):
    """What a FAIL of a probe means, and so how it alerts: a loss, or something to look at."""

    LOST = "lost"
    SUSPECT = "suspect"


MOST_KEYS = 20
"""Keys that messages and lists show, and that most probes name; see `Ruling.is_cut_off`."""
MOST_NAMED = 1_000
"""Keys or ranges that a ruling names at most."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows that differ in the same ``columns``; ``keys`` are spelled as those of the ruling."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a probe concludes from one reading.

    ``reason`` is one line for people and holds keys and id ranges, never row values.
    ``code`` is a short stable word for programs (``missing_rows``, ``no_history``, ...).
    ``keys`` names guilty keys or ranges, at most ``MOST_NAMED``; a probe that names more than
    ``MOST_KEYS`` counts the others.  ``more`` counts the rows that differ and that no key names:
    the finding is cut off then, and no waiver covers what it does not name.  ``differing`` are the
    columns in which rows differ, as far as they are known; a row without them is in none.
    """

    outcome: Outcome
    reason: str
    code: str = ""
    keys: tuple[str, ...] = ()
    more: int = 0
    differing: tuple[RowColumns, ...] = ()

    @property
    def is_cut_off(self) -> bool:
        """Whether more rows may be wrong than those that ``keys`` name.

        A probe may stop at ``MOST_KEYS`` without a count of the others, as earlier versions did.
        """
        return self.more > 0 or len(self.keys) == MOST_KEYS or not self.keys

    def __post_init__(self) -> None:
        """Say so where a probe of somebody's own gave no reason."""
        object.__setattr__(
            self, "reason", text_or_cause(self.reason, self.code or self.outcome.value)
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check has compared of a table, wrong rows aside.

    ``through``: each row changed before then was compared after its merge; None while that is
    not known of all.  ``oldest``: each row was compared then or later; None while some never was.
    ``batch`` is what the mirror was applied through.  ``check`` is the name of the check.
    ``shards`` are those that were compared.  ``looked`` is the batch up to which the check knows
    what the change log has changed: a base that is complete later is not compared.  ``life`` is
    the incarnation of the change log that landed it; None where that is not known.  ``lapless``:
    the check's settings let it compare no older rows, so ``oldest`` stays None.  ``partial``: some
    columns are not compared.
    """

    through: datetime | None
    oldest: datetime | None
    batch: int
    check: str = ""
    shards: tuple[str, ...] = ()
    looked: int = -1
    life: int | None = None
    lapless: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling with its table, its time and the position it holds as of.

    ``as_of`` holds one fence per source of the table; empty when none was reached.
    ``value`` is the reading's one number for history and graphs; None if the reading has no number.
    ``cause`` groups verdicts with one common cause (``source:shop unreachable``); empty for own.
    ``kind`` is what a FAIL means, as its probe says; None for a check that is no probe.
    ``verified`` is what the check has compared so far, where it keeps account of that.
    ``suspicious``: it has found more that it has to look at again, so it goes first.
    ``counted`` are minutes that it counted for the table's ledger, each row once.
    """

    table: str
    check: str
    ruling: Ruling
    at: datetime
    as_of: tuple[Fence, ...] = ()
    value: float | None = None
    cause: str = ""
    run: str = ""
    kind: FailKind | None = None
    verified: Verified | None = None
    suspicious: bool = False
    counted: tuple[LedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class NotYet:
    """There is nothing new to rule on; the last verdict stands.  ``why`` is shown to people.

    ``suspicious``: it has found something that it has to look at again, so it goes first.
    ``rests``: it has nothing to do before its usual pause has passed; else the next round asks it.
    """

    why: str
    suspicious: bool = False
    rests: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """The question cannot be answered for this table or in time: UNKNOWN, with its code."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer is not READY: a short stable code, one line for people.

    ``id`` is what ``sluice waive`` takes, if a person may close it; empty otherwise.
    ``cause`` names what blocks other tables as well; empty for what is the table's own.
    """

    code: str
    text: str
    id: str = ""
    cause: str = ""

    def __post_init__(self) -> None:
        """Replace an empty text by a statement that no reason was given."""
        object.__setattr__(self, "text", text_or_cause(self.text, self.code))


NoneOrMore = Annotated[int, Field(ge=0)]
OneOrMore = Annotated[int, Field(ge=1)]
Days = Annotated[int, Field(ge=1, le=3_660)]  # ten years, each a statement of the source
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Span = Annotated[timedelta, Field(gt=timedelta())]
