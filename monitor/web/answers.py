"""Defines the answers of the API: one typed dictionary for each JSON object.

The OpenAPI document is generated from these types, and mypy checks the routes against them. Answers
are not validated at run time; tests compare real answers with the types. A later version may add
keys. Pure.
"""

from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, NotRequired

from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from alerts.model import AlertKind, IncidentState
from alerts.model import Severity as SeverityName
from checks.blocks import TableState
from checks.ledger import LedgerState
from checks.model import Outcome
from checks.readiness import ReadinessState
from checks.trace import TraceState
from monitor.board import NextStep
from pipeline.model import Hop, Stage
from pipeline.model import Ordering as OrderingName

PROBLEM_JSON = "application/problem+json"


def _one_of(kind: type[Enum]) -> FieldInfo:
    values = [one.value for one in kind]
    return Field(json_schema_extra={"enum": [*values]})  # type: ignore[no-any-return]


Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""An instant in RFC 3339."""
StateName = Annotated[str, _one_of(ReadinessState)]
LifeName = Annotated[str, _one_of(TableState)]
StageName = Annotated[str, _one_of(Stage)]
HopName = Annotated[str, _one_of(Hop)]
LedgerHopName = Annotated[str, Field(pattern="^(collection|landing|merge|copy:.+)$")]
Order = Annotated[str, _one_of(OrderingName)]
LedgerStateName = Annotated[str, _one_of(LedgerState)]
OutcomeName = Annotated[str, _one_of(Outcome)]
Kind = Annotated[str, _one_of(AlertKind)]
TraceName = Annotated[str, _one_of(TraceState)]
NextStepName = Annotated[str, _one_of(NextStep)]
IncidentStateName = Annotated[str, _one_of(IncidentState)]
Severity = Annotated[str, _one_of(SeverityName)]


class Problem(TypedDict):
    """Why a request was refused or failed (RFC 9457); ``error`` and ``detail`` hold one text."""

    type: str
    title: str
    status: int
    detail: str
    error: str


class Reason(TypedDict):
    """Why an answer is not READY; ``id`` is the id to waive, if a person may waive the reason."""

    code: str
    text: str
    id: str | None


class HopLag(TypedDict):
    """The lag of one hop, the age of the sample and the watermark; ``why`` the lag is unknown."""

    hop: HopName
    lag_seconds: float | None
    why: str | None
    sample_age_seconds: float | None
    watermark: Instant | None


class Lags(TypedDict):
    """The lags of all hops up to a stage, their sum, and the watermark of each stage."""

    lag_seconds: float | None
    hops: list[HopLag]
    watermarks: dict[str, Instant | None]


class Readiness(Lags):
    """Whether one table may be read up to the cut, and why not.

    ``version`` and ``path`` are the certified ones; they are absent before a certificate. Each row
    that was changed before ``verified_through`` was compared with its source; null while unknown,
    and except for `mirror`, the only stage that is compared.
    ``unknown_checks`` are the gating checks without a result; they close no gate.
    """

    table: str
    stage: StageName
    copy: str | None
    cut: Instant
    state: StateName
    ready: bool
    at: Instant
    reasons: list[Reason]
    eta: Instant | None
    certificate: str | None
    version: int | None
    path: str | None
    order: Order | None
    verified_through: Instant | None
    unknown_checks: list[str]


class GateAnswer(TypedDict):
    """One answer for all tables; ``state`` is the gravest, ``why`` is set if no table exists."""

    state: StateName
    ready: bool
    tables: list[Readiness]
    why: NotRequired[str]


class StateSince(TypedDict):
    """A state of a table, current or past, with its start and reason."""

    state: LifeName
    since: Instant
    why: str


class TableStateSince(StateSince):
    """A state of a table, with the table's name."""

    table: str


class StageReadiness(TypedDict):
    """The readiness of one stage, without its lags."""

    state: StateName
    cut: Instant
    reasons: list[Reason]
    eta: Instant | None
    certificate: str | None


class Copy(HopLag):
    """One copy of a table: its readiness for the end of yesterday, and why it is held."""

    day: StageReadiness
    hold: str | None


class Table(Lags):
    """One table; ``day`` is readiness for the end of yesterday, ``recent`` for now, by stage.

    Each row was compared with its source at ``compared_since`` or later. Each row that was changed
    before ``verified_through`` was compared after that change. Both are null while unknown.
    """

    table: str
    tier: int
    shards: list[str]
    key: list[str]
    life: StateSince | None
    day: dict[str, StageReadiness]
    recent: dict[str, StageReadiness]
    copies: dict[str, Copy]
    verified_through: Instant | None
    compared_since: Instant | None


class LateImage(TypedDict):
    """Changes from before a cut that landed after the image of this cut was made."""

    table: str
    day: str | None
    cut: Instant
    landed: Instant | None
    batch: int
    rows: int
    days: dict[str, int]


class LatePartition(TypedDict):
    """Rows of files that arrived after their partition was due."""

    table: str | None
    shard: str
    partition: str
    files: int
    rows: int
    first: Instant
    landed: Instant


class Partition(LatePartition):
    """The rows that a window of offsets added to one partition."""

    late: int


class Arrivals(TypedDict):
    """Partitions with rows of offsets ``[after, until)``; continue at ``until``."""

    source: str
    after: int
    until: int
    partitions: list[Partition]


class Live(TypedDict):
    """Always true: the process answers."""

    live: bool


class Ready(TypedDict):
    """Whether the monitoring round runs and the store works; ``why`` says why not."""

    ready: bool
    why: str


class FirstLine(TypedDict):
    """One cause that an operator must know of first."""

    kind: str
    about: str
    tables: list[str]
    what: str
    facts: str
    runbook: str


class Part(TypedDict):
    """A component of the pipeline, and whether it works."""

    name: str
    works: bool
    detail: str


Job = Annotated[
    dict[str, str | bool | int],
    Field(
        description="A scheduled job: `name`, `overdue`, and a count for each result.",
        json_schema_extra={
            "required": ["name", "overdue"],
            "properties": {"name": {"type": "string"}, "overdue": {"type": "boolean"}},
        },
    ),
]


class Service(TypedDict):
    """The state of the service; ``turning``: its monitoring round runs."""

    turning: bool
    why: str
    first: list[FirstLine]
    at: Instant
    started: Instant
    spark_restarts: int
    parts: list[Part]
    jobs: list[Job]


class Fence(TypedDict):
    """A heartbeat as a position."""

    source: str
    number: int
    at: Instant
    identity: str
    position: str


class Certificate(TypedDict):
    """A READY answer with its evidence; ``revoked`` and ``why`` say when and why it was revoked."""

    id: str
    table: str
    stage: StageName
    copy: str | None
    cut: Instant
    issued: Instant
    revoked: Instant | None
    why: str
    unknown_checks: list[str]
    batch: int | None
    mirror: str | None
    version: int | None
    path: str | None
    order: Order
    applied: int | None
    verified_through: Instant | None
    offsets: dict[str, int]
    fences: list[Fence]


class NewestOutcome(TypedDict):
    """The result of a check when it last ran."""

    outcome: OutcomeName
    reason: str


class LedgerMinute(TypedDict):
    """One minute of a hop: rows by op; ``explained`` by term of the account.

    Instead of ops, `collection` counts ``events``, and `landing` counts ``messages`` and ``rows``.
    ``missing`` is positive for rows that went in and did not come out, negative for the reverse.
    ``residual`` counts both; null while a part is unknown or in flight. ``made_good`` rows were
    missing and are in the mirror by now, as ``proof`` explains.
    """

    minute: Instant
    state: LedgerStateName
    went_in: dict[str, int]
    came_out: dict[str, int]
    explained: dict[str, int]
    in_flight: dict[str, int]
    missing: dict[str, int]
    residual: int | None
    made_good: dict[str, int]
    proof: str


class LedgerOfHop(TypedDict):
    """The minutes of one hop, ascending, and the residual of all kept minutes.

    ``oldest`` and ``newest`` are the first and last minute with a residual; null without any. The
    hop into a copy is `copy:` and the copy's name. ``note`` says why there are no minutes; empty if
    there are some.
    """

    hop: LedgerHopName
    residual: int | None
    oldest: Instant | None
    newest: Instant | None
    note: str
    minutes: list[LedgerMinute]


class TableLedger(TypedDict):
    """The rows that went into and came out of each hop of a table, by minute.

    ``note`` says why a part of the span is unknown; empty if all of it is known.
    """

    table: str
    since: Instant
    until: Instant
    note: str
    hops: list[LedgerOfHop]


class Verdict(TypedDict):
    """A stored verdict; ``keys`` are keys of rows, never their values.

    ``keys`` are the first 20; ``more_keys`` counts the others.
    """

    table: str
    check: str
    outcome: OutcomeName
    reason: str
    code: str
    keys: list[str]
    more_keys: int
    value: float | None
    at: Instant
    cause: str
    run: str
    as_of: list[Fence]
    looked: Instant | None
    now: NewestOutcome | None


class WaitingCheck(TypedDict):
    """A check that gave no verdict on a table when it last ran, and why."""

    check: str
    why: str


class FailingCheck(TypedDict):
    """A table, and the check that keeps its incident open."""

    table: str
    check: str


class RepairStep(TypedDict):
    """The next step for a table that a rule under `repair` matches, and why."""

    table: str
    next: NextStepName
    why: str


class Incident(TypedDict):
    """An incident with what an operator on call needs; ``repairs`` only for tables with a rule.

    ``keys`` are the first 20; ``more_keys`` counts the other keys. ``more_rows`` counts the
    differing rows that no key names.
    """

    id: str
    kind: Kind
    check: str
    about: str
    state: IncidentStateName
    severity: Severity
    owner: str
    opened: Instant
    turned: Instant
    reason: str
    code: str
    keys: list[str]
    more_keys: int
    more_rows: int
    tables: list[str]
    failing: list[FailingCheck]
    repairs: list[RepairStep]
    acknowledged: str | None


class DifferingRows(TypedDict):
    """Rows that differ in the same columns; ``more_columns`` counts those that are not named.

    ``columns`` names at most 20.
    """

    columns: list[str]
    more_columns: int
    keys: list[str]


class WholeIncident(Incident):
    """An incident with all its stored keys, at most 1,000 keys or ranges.

    ``differing`` are the columns in which rows differ, as far as known.
    """

    differing: list[DifferingRows]


class Acknowledgement(TypedDict):
    """The acknowledgement of an incident: who and when."""

    id: str
    acknowledged: str


class Waiver(TypedDict):
    """A waived id; the last four keys are present once they are known."""

    id: str
    reason: str
    who: str
    at: Instant
    until: NotRequired[Instant]
    withdrawn: NotRequired[Instant]
    withdrawn_by: NotRequired[str]
    withdrawn_why: NotRequired[str]


class RecordedWaiver(Waiver):
    """A waiver as it was recorded; ``new`` is false if an equal waiver was open already."""

    new: bool


class WithdrawnWaiver(TypedDict):
    """A waiver that ended."""

    id: str
    withdrawn: Instant


class ColumnLink(TypedDict):
    """A column of a source, and the column of the mirror that holds its values."""

    source: str
    shard: str
    column: str
    type: str
    table: str
    mirror_column: str
    mirror_type: str
    standard: str
    hidden: bool
    before: list[str]


class CheckedAgain(TypedDict):
    """The result of a check after a repair was merged."""

    check: str
    passed: bool
    at: Instant
    reason: str


class Preview(TypedDict):
    """How many rows a dry run found, with the named ones."""

    missing: int
    extra: int
    different: int
    keys: list[str]


class BackfilledShard(TypedDict):
    """The progress of a backfill in one shard."""

    shard: str
    rows: int
    done: bool
    why: str


class Backfill(TypedDict):
    """A bootstrap, repair, replay or dry run; ``left`` is in seconds, ``rate`` in rows a second."""

    id: str
    kind: str
    table: str
    keys: list[str]
    ranges: list[list[int]]
    where: str
    shown: Instant | None
    incident: str
    checks: list[str]
    unchecked: list[str]
    awaits_checks: bool
    proofs: list[CheckedAgain]
    reason: str
    who: str
    at: Instant
    ended: Instant | None
    done: bool
    rows: int
    preview: Preview | None
    about: int | None
    rate: float
    left: float | None
    brakes: list[str]
    told: str
    why: str
    shards: list[BackfilledShard]


class Backfills(TypedDict):
    """The backfills that a request started or cancelled."""

    rereads: list[Backfill]


class Pause(TypedDict):
    """A pause of merging into a table: by whom, when and why."""

    table: str
    reason: str
    who: str
    since: Instant
    at: Instant
    until: Instant | None
    ended: Instant | None
    ended_by: str | None


class Pauses(TypedDict):
    """The pauses that a request began or ended."""

    pauses: list[Pause]


class ArchiveWithdrawal(TypedDict):
    """Who withdrew an archive window, when and why."""

    who: str
    at: Instant
    reason: str


class Archive(TypedDict):
    """A window in which deletes of a table only move rows to an archive."""

    id: str
    table: str
    since: Instant
    until: Instant
    column: str | None
    before: str | None
    reason: str
    who: str
    at: Instant
    withdrawn: ArchiveWithdrawal | None


class WithdrawnArchive(TypedDict):
    """An archive window that no longer applies."""

    window: Archive


class RecordedArchive(WithdrawnArchive):
    """An archive window as it was recorded; ``new`` is false if an equal one existed already."""

    new: bool


class Resubmission(TypedDict):
    """A correction of a quarantined message; ``batch`` is the batch in which it landed."""

    id: str
    change: str
    table: str | None
    reason: str
    who: str
    at: Instant
    original_sha256: str
    ended: Instant | None
    batch: int | None
    why: str | None


class QuarantinedChange(TypedDict):
    """A message that could not be read, without its content."""

    id: str
    source: str
    shard: str | None
    table: str | None
    batch: int
    received: Instant
    why: str
    bytes: int
    state: Annotated[str, Field(json_schema_extra={"enum": ["open", "corrected", "closed"]})]
    correction: Resubmission | None


class QuarantinedMessage(QuarantinedChange):
    """A quarantined message with the beginning of its content; ``value`` is base64."""

    text: str
    letters: int
    unread: str | None
    kept: bool
    value: str
    schema_id: int | None
    in_topic: bool
    key: str | None


class MainAndError(TypedDict):
    """How many changes of a table were read, and how many are in mirror, quarantine, or neither."""

    table: str
    read: int
    main: int
    error: int
    lost: int


class Quarantine(TypedDict):
    """Quarantined messages, newest first; ``open`` counts them by table or topic."""

    changes: list[QuarantinedChange]
    open: dict[str, int]
    tables: list[MainAndError]


class TracedHop(TypedDict):
    """The findings of a hop about a traced row; if the hop did not answer, only ``why`` is set."""

    why: str | None


class TracedSource(TracedHop):
    """The row at its source now, as texts; null if the source does not have it.

    ``not_shown``: column -> why its value is not in ``row``; ``*`` if no value is.
    """

    row: dict[str, str | None] | None
    not_shown: dict[str, str]


class TracedRecord(TypedDict):
    """A record that has not landed: ``topic:partition:offset``, its op and the source's time."""

    place: str
    op: str
    at: Instant | None


class TracedTopic(TracedHop):
    """Records of the key that have not landed; the last one is the newest."""

    records: list[TracedRecord]


class TracedChange(TypedDict):
    """An entry of the change log; ``order`` is epoch/log/pos/row.

    ``at`` is the time at the source, ``received`` the time of the batch. ``place`` is the message's
    topic, partition and offset.
    """

    op: str
    batch: int
    order: str | None
    origin: str
    at: Instant | None
    received: Instant
    place: str | None


class TracedLog(TracedHop):
    """Entries of the key and truncations of its shard, newest first by order."""

    changes: list[TracedChange]


class TracedMessage(TypedDict):
    """An open quarantined message that carries the key."""

    id: str
    why: str
    received: Instant


class TracedQuarantine(TracedHop):
    """Open quarantined messages that carry the key."""

    messages: list[TracedMessage]


class TracedMirror(TracedHop):
    """The row in a version of the mirror, and the change that wrote it; null if the row is absent.

    The version is merged through batch ``applied``. Batch ``batch`` wrote the row. ``committed`` is
    set for an older version only.
    """

    version: int | None
    applied: int | None
    committed: Instant | None
    row: dict[str, str | None] | None
    op: str | None
    batch: int | None
    order: str | None
    at: Instant | None


class TracedShard(TypedDict):
    """The row in one shard: where it is, what to do, and all hops side by side.

    ``columns`` differ between source and mirror. ``before`` is an older version of the mirror.
    """

    shard: str
    state: TraceName
    sentence: str
    advice: str
    columns: list[str]
    source: TracedSource
    topic: TracedTopic
    change_log: TracedLog
    quarantine: TracedQuarantine
    mirror: TracedMirror
    before: TracedMirror | None


class TraceSearch(TypedDict):
    """How far a trace searched: records of topics, files and row groups of the change log.

    All batches from ``down_to`` on were searched; 0 if the whole log was. ``left_out`` older
    changes were found and are not listed.
    """

    records: int | None
    skipped_records: int | None
    files: int | None
    footers: int | None
    read_files: int | None
    row_groups: int | None
    down_to: int | None
    left_out: int | None


class TracedImage(TypedDict):
    """An image of the table."""

    cut: Instant
    version: int
    path: str | None


class TracedCopy(TypedDict):
    """A copy of the table, and why it is held, if it is."""

    name: str
    held: str | None


class Trace(TypedDict):
    """One row in all shards that have it, or in the first one if none has.

    ``key`` is spelled as in the change log. ``respelled`` is true if the source spells the key
    otherwise than the request. ``shards`` is the number of shards of the table.
    """

    table: str
    key: str
    respelled: bool
    shards: int
    traces: list[TracedShard]
    search: TraceSearch
    images: list[TracedImage]
    copies: list[TracedCopy]
    seconds: float


def declare_problem(description: str) -> dict[str, Any]:
    """Return the declaration of an error for an OpenAPI document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {PROBLEM_JSON: {"schema": schema}}}


def declare_answer(model: object, description: str = "Successful Response") -> dict[str, Any]:
    """Return the declaration of an answer for an OpenAPI document."""
    return {"description": description, "model": model}


NOT_FOUND: dict[int | str, dict[str, Any]] = {
    HTTPStatus.NOT_FOUND.value: declare_problem("The name or id is unknown")
}
