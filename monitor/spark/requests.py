"""Sends the requests of one lane to the Spark process, and keeps reports and holds.

Landing, merging and maintenance are requested by separate jobs that never wait for each other.
An unreachable Kafka delays no landed change, and a long merge delays no landing.

The hold of a table lasts until a merge of that table returns without one. A table without work
is not in a report, so its absence ends nothing. Each hold has an id that ends with it. Holds
are stored, so a restart does not forget what blocks.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from monitor.spark.protocol import Reply, Request, Verb
from monitor.store.history import Accounts, Holds
from monitor.store.requests import RereadRequests, Resubmissions
from pipeline.archive import ArchiveWord
from pipeline.checkpoint import Gap
from pipeline.errors import HeldError, SluiceError
from pipeline.image import DueCut
from pipeline.reports import Hold, LandingReport, MergeReport, SparkWork


@dataclass(eq=False)
class HoldRegistry:
    """Holds of the last landing, and of each table's last merge; thread-safe.

    What is held is replaced, never changed, so that a concurrent reader sees all of it.
    """

    store: Holds
    _sources: tuple[Hold, ...] = ()
    _gaps: tuple[Gap, ...] = ()
    _tables: Mapping[str, Hold] = field(default_factory=dict)
    _named: dict[str, dict[str, Hold]] = field(default_factory=dict)
    _kept: tuple[tuple[Gap, ...], tuple[Hold, ...]] | None = None  # what the store has
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> None:
        """Remember what an earlier life kept."""
        holds = [
            Hold(one.id, one.subject, one.reason, one.detail)
            for one in self.store.list()
            if one.kind == "hold"
        ]
        self._sources = tuple(hold for hold in holds if hold.subject.startswith("source:"))
        self._tables = {hold.subject: hold for hold in holds if hold not in self._sources}
        for table, hold in self._tables.items():
            self._named[table] = {hold.reason: hold}

    def holds(self) -> tuple[Hold, ...]:
        """All that stand now."""
        return (*self._sources, *self._tables.values())

    def landed(self, landed: LandingReport, at: datetime) -> None:
        """Take over what one landing said."""
        with self._lock:
            self._sources, self._gaps = landed.holds, landed.gaps
            self._keep(at)

    def applied(self, turns: Iterable[MergeReport], at: datetime) -> None:
        """Take over what the turns said of their tables."""
        with self._lock:
            told = {turn.table: self._named_once(turn.table, turn.hold, at) for turn in turns}
            tables = {**self._tables, **told}
            self._tables = {name: hold for name, hold in tables.items() if hold is not None}
            self._keep(at)

    def lane_held(self, hold: Hold, sources: Iterable[str], at: datetime) -> None:
        """Hold every source: the lane itself cannot go on."""
        with self._lock:
            self._sources = tuple(
                Hold(hold.id, f"source:{source}", hold.reason, hold.detail) for source in sources
            )
            self._keep(at)

    def _named_once(self, table: str, hold: Hold | None, at: datetime) -> Hold | None:
        """*hold* with the second since which it stands in its id, if it names nothing of its own.

        A waiver ends with it: once the table has gone on, the next hold has another name.  What
        comes between, as a lake that does not answer, ends nothing.
        """
        if hold is None:
            self._named.pop(table, None)
            return None
        if hold.id != f"{hold.reason}:{table}":
            return hold
        known = self._named.setdefault(table, {})
        named = known.get(hold.reason, replace(hold, id=f"{hold.id}@{int(at.timestamp())}"))
        known[hold.reason] = replace(named, detail=hold.detail)
        return known[hold.reason]

    def _keep(self, at: datetime) -> None:
        """Store what is new: of each landing and each turn most is as it was."""
        now = self._gaps, self.holds()
        if now != self._kept or self.store.database.unreadable:  # that row may be one of these
            self._kept = None
            self.store.replace(*now, at)
            self._kept = now


AT_A_STRETCH = 10  # batches that are landed without a pause, while each was full
DRIVEN = (Verb.LAND, Verb.APPLY, Verb.APPLY_URGENT)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the Spark process may take."""

    land: timedelta
    apply: timedelta
    upkeep: timedelta


@dataclass(eq=False)
class LaneRequests:
    """Drives one lane; ``call`` asks the Spark process, and waits up to the given time.

    ``ailments`` says why the last landing or merge run failed, ``at_rest`` whether no backfill is
    requested, ``spark`` what Spark jobs have done so far, by work.  ``noted`` receives the reports
    of merge runs, and must not block.
    """

    call: Callable[[Request, timedelta], Reply]
    lane: str
    sources: tuple[str, ...]
    deadlines: Deadlines
    waived: Callable[[], frozenset[str]]
    standstills: HoldRegistry
    accounts: Accounts
    rereads: RereadRequests
    resubmissions: Resubmissions
    clock: Callable[[], datetime]
    readers: Callable[[], Mapping[str, int]] = dict
    cuts: Callable[[], tuple[DueCut, ...]] = tuple
    paused: Callable[[], frozenset[str]] = frozenset
    wanted: Callable[[], frozenset[str]] = frozenset
    archived: Callable[[], ArchiveWord] = ArchiveWord
    noted: Callable[[Sequence[MergeReport]], object] = tuple
    ailments: dict[Verb, str] = field(default_factory=dict)
    at_rest: bool = False
    spark: dict[str, SparkWork] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _untold: dict[Verb, tuple[Sequence[MergeReport], datetime]] = field(default_factory=dict)

    @property
    def ailment(self) -> str:
        """Why landing or applying failed when it was last tried; empty if neither did."""
        told = (self.ailments.get(verb, "") for verb in DRIVEN)
        return "; ".join(dict.fromkeys(filter(None, told)))

    def land(self) -> None:
        """Land one batch, and others at once while more was there than one may take.

        No other is begun once a third of the job's time is over: a backlog is not overdue.

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
        """Merge what is landed into the mirrors; where tier 0 has its own line, into the others.

        Raises:
            SluiceError: why nothing was merged; a held table is reported, not raised.
        """
        read_again = (wish.table for wish in self.rereads.wished())
        self._apply(Verb.APPLY, self.wanted().union(read_again))

    def apply_urgent(self) -> None:
        """The same of tier 0.

        Raises:
            SluiceError: why nothing was merged.
        """
        self._apply(Verb.APPLY_URGENT, frozenset())

    def upkeep(self) -> None:
        """Compact and clean, keeping the versions that certificates still name."""
        request = Request(0, Verb.UPKEEP, readers=self.readers(), paused=self.paused())
        self._asked(request, self.deadlines.upkeep)

    def publish(self) -> None:
        """Write out images that are not there yet."""
        for one in self._asked(Request(0, Verb.PUBLISH), self.deadlines.upkeep).published:
            cut = one.cut.isoformat()
            log.info("image_written", table=one.table, cut=cut, rows=one.rows, parts=one.parts)

    def reread(self) -> None:
        """Continue the requested backfills, and stop those that were cancelled.

        Without requests it still calls the Spark process until no cancelled one is left.

        Raises:
            SluiceError: why nothing was read; it is shown with the open backfills, too.
        """
        wished = self.rereads.wished()
        if not wished and self.at_rest:
            return
        try:
            reply = self._asked(Request(0, Verb.REREAD, rereads=wished), self.deadlines.land)
        except SluiceError as error:
            self.rereads.failed(str(error))
            raise
        self.at_rest = not wished and not reply.rereads
        self.rereads.told(reply.rereads, self.clock())

    def _asked(self, request: Request, within: timedelta) -> Reply:
        reply = self.call(request, within)
        with self._counting:
            for work, done in reply.spark.items():
                self.spark[work] = self.spark.get(work, SparkWork()) + done
        return reply

    def _land(self) -> LandingReport | None:
        with self._ailing(Verb.LAND):
            try:
                asked = self.resubmissions.wished()
                request = Request(0, Verb.LAND, self.waived(), resubmissions=asked)
                landed = self._asked(request, self.deadlines.land).landed
            except HeldError as error:
                hold = Hold(f"{error.reason}:{self.lane}", "", error.reason, error.detail)
                self.standstills.lane_held(hold, self.sources, self.clock())
                raise
        if landed is not None:
            self._landed(landed)
        return landed

    def _apply(self, verb: Verb, wanted: frozenset[str]) -> None:
        self._keep(verb)
        started, waived = self.clock(), self.waived()
        with self._ailing(verb):
            request = Request(
                *(0, verb, waived),
                cuts=self.cuts(),
                paused=self.paused(),
                wanted=wanted,
                archived=self.archived(),
            )
            turns = self._asked(request, self.deadlines.apply).applied
        self._untold[verb] = turns, started
        self._keep(verb)

    def _keep(self, verb: Verb) -> None:
        """Keep what the last turns said; no others come before a store that is full has taken it.

        For a mirror remembers the account of its last turn alone.
        """
        told = self._untold.get(verb)
        if told is not None:
            self._applied(*told)
            del self._untold[verb]

    def _applied(self, turns: Sequence[MergeReport], started: datetime) -> None:
        now = self.clock()
        told = [turn for turn in turns if turn.account.read or turn.account.residual]
        with self.accounts.together() if told else nullcontext():
            for turn in told:
                self.accounts.add(self.lane, turn.table, turn.batch, turn.account, now)
        self.standstills.applied(turns, now)
        self.noted(turns)
        for turn in turns:
            if turn.image is not None:
                cut = turn.image.cut.isoformat()
                log.info("image_made", table=turn.table, cut=cut, version=turn.version)
        if turns:
            merged = [turn for turn in turns if turn.hold is None]
            changes = sum(turn.account.applied for turn in merged)
            took = round((now - started).total_seconds(), 3)
            held = len(turns) - len(merged)
            log.info("merged", tables=len(merged), held=held, changes=changes, seconds=took)

    @contextmanager
    def _ailing(self, verb: Verb) -> Iterator[None]:
        """Keep the error raised inside as the failure of *verb*, until it succeeds."""
        try:
            yield
        except SluiceError as error:
            self.ailments[verb] = str(error)
            raise
        self.ailments[verb] = ""

    def _landed(self, landed: LandingReport) -> None:
        self.standstills.landed(landed, self.clock())
        self.resubmissions.told(landed.resubmitted, self.clock())
        if landed.batch is not None:
            took = round(landed.took.total_seconds(), 3)
            log.info("landed", batch=landed.batch, rows=landed.rows, seconds=took)
