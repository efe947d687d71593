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
    """What a FAIL of a probe means: rows are lost, or something must be looked at.

    It decides how the FAIL alerts.
    """

    LOST = "lost"
    SUSPECT = "suspect"


MOST_KEYS = 20
"""Keys that messages and lists show, and that most probes name at most."""
MOST_NAMED = 1_000
"""Keys or ranges that a ruling names at most."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows that differ in the same ``columns``; ``keys`` have the format of `Ruling.keys`.

    ``more`` counts further columns in which each of them differs, and that are not named.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a probe concludes from one reading.

    ``reason`` is one line for people and holds keys and id ranges, never row values.
    ``code`` is a short stable word for programs (``missing_rows``, ``no_history``, ...).
    ``keys`` names the keys or ranges that are wrong, at most ``MOST_NAMED``.
    ``more`` counts the differing rows that no key names. The finding is cut off then, and no waiver
    covers the rows that it does not name.
    ``differing`` groups rows by the columns in which they differ. A row whose columns are not known
    is in no group.
    ``integer_parts`` is, for each key column in order, whether it holds integers in all shards;
    empty if that is not known. ``run_probe`` sets it.
    """

    outcome: Outcome
    reason: str
    code: str = ""
    keys: tuple[str, ...] = ()
    more: int = 0
    differing: tuple[RowColumns, ...] = ()
    integer_parts: tuple[bool, ...] = ()

    @property
    def is_cut_off(self) -> bool:
        """Whether more rows may be wrong than those that ``keys`` name."""
        return self.more > 0 or not self.keys

    def __post_init__(self) -> None:
        """Replace an empty reason, which a custom probe may return."""
        object.__setattr__(
            self, "reason", text_or_cause(self.reason, self.code or self.outcome.value)
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check has compared of a table, wrong rows aside.

    ``through``: each row changed before then was compared after its merge; None while this is not
    known for all rows.
    ``oldest``: each row was compared then or later; None while a row was never compared.
    ``batch`` is the batch that the mirror was applied through.
    ``check`` is the name of the check. ``shards`` are the compared shards.
    ``looked`` is the batch up to which the check has read the change log. A base that is complete
    later is not compared.
    ``life`` is the incarnation of the change log that landed that batch; None if it is not known.
    ``mirror`` and ``version`` are the id and the version of the compared mirror. ``at`` is an
    instant before it was read; None if that is not known.
    ``lapless``: by its settings the check compares no older rows, so ``oldest`` stays None.
    ``partial``: some columns are not compared.
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
    mirror: str = ""
    version: int = -1
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling with its table, its time and the position up to which it holds.

    ``as_of`` holds one fence per source of the table; empty when none was reached.
    ``value`` is the reading's one number for history and graphs; None if the reading has no number.
    ``cause`` groups verdicts with one common cause (``source:shop unreachable``); empty if the
    cause concerns this table only.
    ``kind`` is what a FAIL means, as its probe says; None for a check that is not a probe.
    ``verified`` is what the check has compared so far; None if it does not record that.
    ``suspicious``: the check must look again at something that it found, so it runs first.
    ``counted`` are the minutes that the check counted for the table's ledger, each row once.
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
    """There is nothing new to rule on; the last verdict is kept.  ``why`` is shown to people.

    ``suspicious``: the probe must look again at something that it found, so it runs first.
    ``rests``: the probe has nothing to do before its usual interval ends. Otherwise the next round
    asks it.
    """

    why: str
    suspicious: bool = False
    rests: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """The probe cannot decide, for this table or in time: UNKNOWN, with its code."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer is not READY: a short stable code, one line for people.

    ``id`` is the id for ``sluice waive``; empty if the reason cannot be waived.
    ``cause`` names a cause that blocks other tables as well; empty if it concerns this table only.
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
Days = Annotated[int, Field(ge=1, le=3_660)]  # ten years; each day is one query of the source
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Span = Annotated[timedelta, Field(gt=timedelta())]
