"""What the Spark process is asked to do for one lane; what came back is kept.

Landing, applying and upkeep are asked for by jobs of their own, and none waits for another here:
an unreachable Kafka holds back no landed change, and a long merge holds back no landing.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from monitor.spark.standstills import Standstills
from monitor.spark.wire import Reply, Request, Verb
from monitor.store.accounts import Accounts
from monitor.store.rereads import RereadRequests
from monitor.store.resubmissions import Resubmissions
from pipeline.archive import ArchiveWord
from pipeline.errors import HeldError, SluiceError
from pipeline.image import DueCut
from pipeline.reports import Applied, Hold, Landed, SparkWork

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
    """Drives one lane; ``call`` asks the Spark process, and waits for as long as it is told.

    ``ailments`` says of landing and applying why the last one failed, ``at_rest`` whether nothing
    is to be read again, ``spark`` what Spark jobs have done so far, by work.  ``noted`` is told of
    turns, and waits for nobody.
    """

    call: Callable[[Request, timedelta], Reply]
    lane: str
    sources: tuple[str, ...]
    deadlines: Deadlines
    waived: Callable[[], frozenset[str]]
    standstills: Standstills
    accounts: Accounts
    rereads: RereadRequests
    resubmissions: Resubmissions
    clock: Callable[[], datetime]
    readers: Callable[[], Mapping[str, int]] = dict
    cuts: Callable[[], tuple[DueCut, ...]] = tuple
    paused: Callable[[], frozenset[str]] = frozenset
    wanted: Callable[[], frozenset[str]] = frozenset
    archived: Callable[[], ArchiveWord] = ArchiveWord
    noted: Callable[[Sequence[Applied]], object] = tuple
    ailments: dict[Verb, str] = field(default_factory=dict)
    at_rest: bool = False
    spark: dict[str, SparkWork] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _untold: dict[Verb, tuple[Sequence[Applied], datetime]] = field(default_factory=dict)

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
            SluiceError: why nothing was merged; a table that is held is told, not raised.
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
        """Read on what people asked to have read again, and no more what they cancelled.

        Where nobody asks for anything, it is told until nothing is left of what was cancelled.

        Raises:
            SluiceError: why nothing was read; it is shown with what is to be read, too.
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
        """The reply, of which the Spark jobs are counted."""
        reply = self.call(request, within)
        with self._counting:
            for work, done in reply.spark.items():
                self.spark[work] = self.spark.get(work, SparkWork()) + done
        return reply

    def _land(self) -> Landed | None:
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

    def _applied(self, turns: Sequence[Applied], started: datetime) -> None:
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
        """Remember what is raised inside as what ails *verb*, until it goes well again."""
        try:
            yield
        except SluiceError as error:
            self.ailments[verb] = str(error)
            raise
        self.ailments[verb] = ""

    def _landed(self, landed: Landed) -> None:
        self.standstills.landed(landed, self.clock())
        self.resubmissions.told(landed.resubmitted, self.clock())
        if landed.batch is not None:
            took = round(landed.took.total_seconds(), 3)
            log.info("landed", batch=landed.batch, rows=landed.rows, seconds=took)
