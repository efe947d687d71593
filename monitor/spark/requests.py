"""Defines requests to the Spark process: what a job sends, and which method of the lane answers.

Landing, merging and maintenance are requested by separate jobs that never wait for each other. An
unreachable Kafka delays no landed change, and a long merge delays no landing.

A request or reply is one JSON line. A reply carries the number of its request, and the reply to the
opening is 0. Reports of the pipeline travel as their own dataclasses, and decoding yields an equal
value. A request may hold secrets, so it goes to a pipe only.

The Spark process imports this module, too. So it must import neither the store nor Spark.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import TypeAdapter

from checks.model import NotYet
from pipeline.apply.image_export import Manifest
from pipeline.apply.merge_run import MergeRequest
from pipeline.archive import NO_WORD, ArchiveWord
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.errors import (
    ConfigError,
    FormatError,
    HeldError,
    ProofError,
    SluiceError,
    UnreachableError,
)
from pipeline.finding import Finding
from pipeline.image import DueCut
from pipeline.invariants import invariant as invariants
from pipeline.reports import Hold, LandingReport, MergeReport, SparkWork
from pipeline.resubmissions import Resubmission
from pipeline.settings import PipelineSettings
from pipeline.standards import standard as standards
from pipeline.suites import SuiteAnswer, SuiteLook, evaluate_by_spark

if TYPE_CHECKING:
    from monitor.store.history import Accounts
    from monitor.store.holds import HoldRegistry
    from monitor.store.ledger import Ledger
    from monitor.store.requests import Resubmissions, StoredBackfills
    from pipeline.lane import Lane

OPENING = 0
_PLAIN = {kind.__name__: kind for kind in (ConfigError, UnreachableError, FormatError, ProofError)}


class Verb(StrEnum):
    """A request that the Spark process accepts."""

    OPEN = "open"
    LAND = "land"
    APPLY = "apply"
    APPLY_URGENT = "apply_urgent"
    MAINTENANCE = "upkeep"
    PUBLISH = "publish"
    CHECK = "check"
    BACKFILL = "reread"
    STOP = "stop"


LINES = (
    Verb.LAND,
    Verb.APPLY,
    Verb.APPLY_URGENT,
    Verb.MAINTENANCE,
    Verb.PUBLISH,
    Verb.CHECK,
    Verb.BACKFILL,
)
"""The verbs that are answered in parallel, each by its own thread."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; only opening has ``settings``, maintenance ``readers``, and merges ``cuts``.

    ``paused`` are tables into whose mirrors nothing may be written. ``wanted`` are tables that a
    caller waits for. ``resubmissions`` are corrected messages to land. ``archived`` are the
    registered archive windows and withdrawals. ``look`` is the question of a check. Two fields are
    set for opening only: ``hazards`` are the harmful settings that the previous process saw, by
    source, and ``held`` the ids of the current holds.
    """

    id: int
    verb: Verb
    waived: frozenset[str] = frozenset()
    readers: Mapping[str, int] = field(default_factory=dict)
    settings: PipelineSettings | None = None
    cuts: tuple[DueCut, ...] = ()
    backfills: tuple[BackfillRequest, ...] = ()
    paused: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    archived: ArchiveWord = NO_WORD
    resubmissions: tuple[Resubmission, ...] = ()
    hazards: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    look: SuiteLook | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as values; ``kind`` is its class, or `crash` if it was unexpected."""

    kind: str
    text: str
    reason: str = ""
    detail: str = ""


CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of one request: a report, a failure, or only its end.

    ``spark`` is what Spark jobs did since the previous reply, by kind of work. ``hazards`` are
    harmful settings that were seen and are in no landing checkpoint yet, by source; None unless the
    request was to land. With ``progress`` it is not the final reply: it says how far the opening
    is.
    """

    id: int
    landed: LandingReport | None = None
    applied: tuple[MergeReport, ...] = ()
    published: tuple[Manifest, ...] = ()
    backfills: tuple[BackfillState, ...] = ()
    answer: SuiteAnswer | None = None
    failure: Failure | None = None
    spark: Mapping[str, SparkWork] = field(default_factory=dict)
    hazards: Mapping[str, tuple[Finding, ...]] | None = None
    progress: str = ""


_REQUEST = TypeAdapter(Request)
_REPLY = TypeAdapter(Reply)


def dump_request(request: Request) -> bytes:
    """Encode *request* as one line; it may hold secrets, so write it only to a pipe."""
    return _REQUEST.dump_json(request) + b"\n"


def load_request(line: bytes) -> Request:
    """Decode what :func:`dump_request` wrote, and build invariants and standards by name."""
    request = _REQUEST.validate_json(line)
    if request.settings is None:
        return request
    rules = tuple(
        replace(rule, invariants=_built(invariants.find_invariant, rule.invariants))
        for rule in request.settings.invariants
    )
    own = tuple(
        replace(rule, standards=_built(standards.find_standard, rule.standards))
        for rule in request.settings.standards
    )
    settings = replace(request.settings, invariants=rules, standards=own)
    return replace(request, settings=settings)


def _built(
    find: Callable[[str], type], named: Iterable[tuple[str, Any]]
) -> tuple[tuple[str, Any], ...]:
    return tuple((name, TypeAdapter(find(name)).validate_python(one)) for name, one in named)


def dump_reply(reply: Reply) -> bytes:
    """Encode *reply* as one line."""
    return _REPLY.dump_json(reply) + b"\n"


def load_reply(line: bytes) -> Reply:
    """Decode what :func:`dump_reply` wrote."""
    return _REPLY.validate_json(line)


def as_failure(error: Exception) -> Failure:
    """Return *error* as values, so that the other process can raise it again."""
    if isinstance(error, HeldError):
        return Failure("HeldError", str(error), error.reason, error.detail)
    for kind in type(error).__mro__:
        if kind.__name__ in _PLAIN:
            return Failure(kind.__name__, str(error))
    return Failure(CRASH, f"{type(error).__name__}: {error}"[:2000])


def as_error(failure: Failure) -> SluiceError:
    """Return the error to raise for *failure*; a crash becomes UnreachableError, as it may pass."""
    if failure.kind == "HeldError":
        return HeldError(failure.reason, failure.detail)
    return _PLAIN.get(failure.kind, UnreachableError)(failure.text)


LookKey = tuple[str, str, int | None]
MOST_ANSWERS = 1_000
MOST_DOUBLINGS = 6  # so that failures within milliseconds, while Spark starts, cause no long pause
LONGEST_LOOK_PAUSE = timedelta(days=1)
SHORTEST_NAMED_PAUSE = timedelta(minutes=1)
RUNBOOK = "docs/runbooks/unknown.md#expectations"
AT_A_STRETCH = 10  # full batches that one job lands without a pause
DRIVEN = (Verb.LAND, Verb.APPLY, Verb.APPLY_URGENT)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the Spark process may take for each kind of request."""

    land: timedelta
    apply: timedelta
    maintenance: timedelta


@dataclass(frozen=True, slots=True)
class FailedLook:
    """The last of ``count`` failures of a look in a row; the next begins after ``until``.

    A look that is late or exhausts memory ends the Spark process, and stops landing and merging.
    """

    failure: Failure
    count: int
    until: datetime


@dataclass(eq=False)
class SparkLooks:
    """Keeps the looks that checks wait for, and the result of each until the check takes it.

    A waiting look is replaced by one at a later version that answers the same question. After a
    failure the same look waits for as long as it took, and twice as long after each further one.
    """

    clock: Callable[[], datetime] = field(default=partial(datetime.now, UTC))
    _waiting: dict[LookKey, SuiteLook] = field(default_factory=dict)
    _done: dict[LookKey, SuiteAnswer | SluiceError] = field(default_factory=dict)
    _failed: dict[LookKey, FailedLook] = field(default_factory=dict)
    _at_work: LookKey | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, key: LookKey) -> SuiteAnswer | NotYet | None:
        """Implements :class:`checks.world.LargeLooks`."""
        with self._lock:
            found = self._done.pop(key, None)
            if isinstance(found, SluiceError):
                raise found
            if found is not None:
                return found
            if key in self._waiting or key == self._at_work:
                return NotYet("Spark evaluates it")
            failed = self._failed.get(key)
            if failed is not None and self.clock() < failed.until:
                raise as_error(failed.failure)
            return None

    def ask(self, look: SuiteLook) -> None:
        """Implements :class:`checks.world.LargeLooks`."""
        with self._lock:
            self._waiting[look.key] = look

    def run(self, make: Callable[[SuiteLook], SuiteAnswer | None]) -> None:
        """Make each waiting look; any error fails only the check that asked for it."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                self._at_work = next(iter(self._waiting))
                look = self._waiting.pop(self._at_work)
            found: SuiteAnswer | SluiceError | None = None
            began = self.clock()
            try:
                found = make(look)
            except SluiceError as error:
                found = error
            except Exception as error:
                log.exception("look_failed", table=look.table.name)
                why = f"{type(error).__name__}; see the log"
                found = ProofError(f"Spark did not evaluate {look.table.name}: {why}")
            finally:
                self._conclude(look, found, began)

    def _conclude(
        self, look: SuiteLook, found: SuiteAnswer | SluiceError | None, began: datetime
    ) -> None:
        with self._lock:
            self._at_work = None
            before = self._failed.pop(look.key, None)
            if isinstance(found, SluiceError):
                failed = self._failed[look.key] = self._fail(look, found, began, before)
                found = as_error(failed.failure)
            if found is not None:
                self._done[look.key] = found
            for kept in (self._done, self._failed):
                while len(kept) > MOST_ANSWERS:  # of tables that no check looks at any more
                    kept.pop(next(iter(kept)))

    def _fail(
        self, look: SuiteLook, error: SluiceError, began: datetime, before: FailedLook | None
    ) -> FailedLook:
        now, count = self.clock(), 1 if before is None else before.count + 1
        took = max(now - began, timedelta())
        pause = min(took * 2 ** min(count - 1, MOST_DOUBLINGS), LONGEST_LOOK_PAUSE)
        failure = as_failure(error)
        if pause >= SHORTEST_NAMED_PAUSE:
            at = f"{now + pause:%Y-%m-%d %H:%M} UTC"
            spent = timedelta(seconds=round(took.total_seconds()))
            about = (
                f"after {spent}, attempt {count}: Spark looks at {look.table.name} again at {at}"
            )
            failure = replace(failure, text=f"{failure.text} ({about}, {RUNBOOK})")
        return FailedLook(failure, count, now + pause)


@dataclass(eq=False)
class LaneRequests:
    """Drives one lane; ``call`` asks the Spark process, and waits up to the given time.

    ``problems`` says why the last landing or merge run failed. ``at_rest`` is true if no backfill
    is requested. ``spark`` is what Spark jobs have done so far, by work. ``noted`` receives the
    reports of merge runs, and must not block.
    """

    call: Callable[[Request, timedelta], Reply]
    lane: str
    sources: tuple[str, ...]
    deadlines: Deadlines
    waived: Callable[[], frozenset[str]]
    hold_registry: "HoldRegistry"
    accounts: "Accounts"
    ledger: "Ledger"
    backfills: "StoredBackfills"
    resubmissions: "Resubmissions"
    clock: Callable[[], datetime]
    readers: Callable[[], Mapping[str, int]] = dict
    cuts: Callable[[], tuple[DueCut, ...]] = tuple
    paused: Callable[[], frozenset[str]] = frozenset
    wanted: Callable[[], frozenset[str]] = frozenset
    archived: Callable[[], ArchiveWord] = ArchiveWord
    noted: Callable[[Sequence[MergeReport]], object] = tuple
    looks: SparkLooks = field(default_factory=SparkLooks)
    problems: dict[Verb, str] = field(default_factory=dict)
    at_rest: bool = False
    spark: dict[str, SparkWork] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _unreported: dict[Verb, tuple[Sequence[MergeReport], datetime]] = field(default_factory=dict)
    _patience: dict[Verb, timedelta] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        """Return why the last landing or merge run failed; empty if none did."""
        reasons = (self.problems.get(verb, "") for verb in DRIVEN)
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def land(self) -> None:
        """Land one batch, and at once further ones while the last one was full.

        No further batch starts after a third of the job's deadline, so that a backlog does not make
        it late.

        Raises:
            SluiceError: why nothing was landed.
        """
        until = self.clock() + self.deadlines.land / 3
        for _ in range(AT_A_STRETCH):
            landed = self._land()
            full = landed is not None and landed.batch is not None and landed.capped
            if not full or self.clock() > until:
                break

    def apply(self) -> None:
        """Merge landed changes into the mirrors, except those of tier 0 if it has its own line.

        Raises:
            SluiceError: why nothing was merged; a held table is reported, not raised.
        """
        read_again = (wish.table for wish in self.backfills.wished())
        self._apply(Verb.APPLY, self.wanted().union(read_again))

    def apply_urgent(self) -> None:
        """Merge landed changes of tier 0.

        Raises:
            SluiceError: why nothing was merged.
        """
        self._apply(Verb.APPLY_URGENT, frozenset())

    def maintain(self) -> None:
        """Compact and clean, keeping the versions that certificates still name."""
        request = Request(0, Verb.MAINTENANCE, readers=self.readers(), paused=self.paused())
        self._asked(request, self.deadlines.maintenance)

    def publish(self) -> None:
        """Write images that do not exist yet."""
        for one in self._asked(Request(0, Verb.PUBLISH), self.deadlines.maintenance).published:
            cut = one.cut.isoformat()
            log.info("image_written", table=one.table, cut=cut, rows=one.rows, parts=one.parts)

    def check(self) -> None:
        """Make the looks that checks asked for, one after the other."""
        self.looks.run(self._look)

    def _look(self, look: SuiteLook) -> SuiteAnswer | None:
        return self._asked(Request(0, Verb.CHECK, look=look), self.deadlines.maintenance).answer

    def run_backfills(self) -> None:
        """Continue the requested backfills, and stop those that were cancelled.

        Without requests it still calls the Spark process until no cancelled one is left.

        Raises:
            SluiceError: why nothing was read; the reason is also stored with the open backfills.
        """
        wished = self.backfills.wished()
        if not wished and self.at_rest:
            return
        try:
            reply = self._asked(Request(0, Verb.BACKFILL, backfills=wished), self.deadlines.land)
        except SluiceError as error:
            self.backfills.failed(str(error))
            raise
        self.at_rest = not wished and not reply.backfills
        self.backfills.record_states(reply.backfills, self.clock())

    def _asked(self, request: Request, within: timedelta) -> Reply:
        reply = self.call(request, within)
        with self._counting:
            for work, done in reply.spark.items():
                self.spark[work] = self.spark.get(work, SparkWork()) + done
        return reply

    def _land(self) -> LandingReport | None:
        with self._recording_failure(Verb.LAND):
            try:
                asked = self.resubmissions.wished()
                request = Request(0, Verb.LAND, self.waived(), resubmissions=asked)
                landed = self._asked(request, self.deadlines.land).landed
            except HeldError as error:
                hold = Hold(f"{error.reason}:{self.lane}", "", error.reason, error.detail)
                self.hold_registry.lane_held(hold, self.sources, self.clock())
                raise
        if landed is not None:
            self._landed(landed)
        return landed

    def _apply(self, verb: Verb, wanted: frozenset[str]) -> None:
        self._keep(verb)
        started, waived = self.clock(), self.waived()
        with self._recording_failure(verb):
            request = Request(
                *(0, verb, waived),
                cuts=self.cuts(),
                paused=self.paused(),
                wanted=wanted,
                archived=self.archived(),
            )
            merges = self._ask_for_merges(verb, request)
        self._unreported[verb] = merges, started
        self._keep(verb)

    def _ask_for_merges(self, verb: Verb, request: Request) -> Sequence[MergeReport]:
        """Ask for merges; after a run was killed by its deadline, the next gets twice the time.

        A rewrite of a mirror is one commit: it starts again after a kill, and would never end.
        """
        began, limit = self.clock(), self._patience.get(verb, self.deadlines.apply)
        try:
            merges = self._asked(request, limit).applied
        except UnreachableError as error:
            longer = max(limit, min(2 * limit, self.deadlines.maintenance))
            if self.clock() - began < limit or longer == limit:
                raise
            self._patience[verb] = longer
            more = f"a rewrite of a mirror begins again, so the next run may take {longer}"
            raise UnreachableError(f"{error} ({more}: docs/runbooks/service.md#worker)") from error
        self._patience.pop(verb, None)
        return merges

    def _keep(self, verb: Verb) -> None:
        """Store the reports of the last merges; while a full store refuses them, nothing merges.

        A mirror keeps only the account of its last merge, so a skipped report would be lost.
        """
        pending = self._unreported.get(verb)
        if pending is not None:
            self._applied(*pending)
            del self._unreported[verb]

    def _applied(self, merges: Sequence[MergeReport], started: datetime) -> None:
        now = self.clock()
        accounted = [merge for merge in merges if merge.account.read or merge.account.residual]
        with self.accounts.together() if accounted else nullcontext():
            for merge in accounted:
                self.accounts.add(self.lane, merge.table, merge.batch, merge.account, now)
        self.ledger.add_merges(self.lane, merges, now)
        self.hold_registry.applied(merges, now)
        self.noted(merges)
        for merge in merges:
            if merge.image is not None:
                cut = merge.image.cut.isoformat()
                log.info("image_made", table=merge.table, cut=cut, version=merge.version)
        if merges:
            merged = [merge for merge in merges if merge.hold is None]
            changes = sum(merge.account.applied for merge in merged)
            took = round((now - started).total_seconds(), 3)
            held = len(merges) - len(merged)
            log.info("merged", tables=len(merged), held=held, changes=changes, seconds=took)

    @contextmanager
    def _recording_failure(self, verb: Verb) -> Iterator[None]:
        """Keep the error raised inside as the failure of *verb*, until *verb* succeeds."""
        try:
            yield
        except SluiceError as error:
            self.problems[verb] = str(error)
            raise
        self.problems[verb] = ""

    def _landed(self, landed: LandingReport) -> None:
        self.hold_registry.landed(landed, self.clock())
        self.resubmissions.record_states(landed.resubmitted, self.clock())
        if landed.batch is not None:
            took = round(landed.took.total_seconds(), 3)
            log.info("landed", batch=landed.batch, rows=landed.rows, seconds=took)
        self.ledger.add_landing(landed)


def answer_request(lane: "Lane", request: Request) -> Reply:
    """Let *lane* do what a job requests; runs in the Spark process."""
    match request.verb:
        case Verb.LAND:
            return Reply(request.id, landed=lane.land(request.waived, request.resubmissions))
        case Verb.APPLY | Verb.APPLY_URGENT:
            urgent = request.verb is Verb.APPLY_URGENT
            wanted = frozenset[str]() if urgent else request.wanted
            given = (request.waived, request.cuts, request.paused, wanted, request.archived)
            return Reply(request.id, applied=lane.apply(MergeRequest(*given), urgent=urgent))
        case Verb.BACKFILL:
            return Reply(request.id, backfills=lane.run_backfills(request.backfills))
        case Verb.MAINTENANCE:
            lane.maintain(request.readers, request.paused)
        case Verb.PUBLISH:
            return Reply(request.id, published=lane.publish())
        case Verb.CHECK if request.look is not None:
            return Reply(request.id, answer=_evaluate(lane, request.look))
        case Verb.STOP:
            lane.close()
    return Reply(request.id)


def _evaluate(lane: "Lane", look: SuiteLook) -> SuiteAnswer:
    """Evaluate a suite; an error fails one check and does not crash the process.

    Raises:
        ProofError: the suite could not be evaluated.
    """
    from pipeline.build import open_table_format  # noqa: PLC0415  - seconds of Spark
    from pipeline.spark.session import describe_jobs  # noqa: PLC0415

    settings, table, session = lane.landing.settings, look.table.name, lane.enter_pool(Verb.CHECK)
    found = open_table_format(settings, session).frame(settings.mirror(table), look.version)
    if session is None or found is None:
        fix = "increase `rows` of the check"
        raise ProofError(f"Spark cannot read {table} in format {settings.table_format}; {fix}")
    rows = "all rows" if look.after is None else f"rows changed after batch {look.after}"
    try:
        with describe_jobs(session, f"check {table}, {rows}"):
            return evaluate_by_spark(found, look)
    except SluiceError:
        raise
    except Exception as error:
        log.exception("look_failed", table=table)
        why = f"{type(error).__name__}; see the log"
        raise ProofError(f"Spark did not evaluate {rows} of {table}: {why}") from error
