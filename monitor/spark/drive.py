"""One round of the pipeline: land, then apply, in the Spark process; keep what came back.

Applying goes on when landing cannot: an unreachable Kafka holds back no landed change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from monitor.spark.standstills import Standstills
from monitor.spark.wire import Reply, Request, Verb
from pipeline.errors import HeldError, SluiceError
from pipeline.memory import Memory
from pipeline.model import Account
from pipeline.report import Hold

log = structlog.get_logger(__name__)


class Caller(Protocol):
    """The Spark process."""

    def call(self, request: Request, deadline: timedelta) -> Reply:
        """Ask, and wait."""
        ...


class Accounts(Protocol):
    """Where accounts are kept."""

    def add(self, lane: str, table: str, batch: int, account: Account, at: datetime) -> bool:
        """Record one turn, once."""
        ...


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the Spark process may take."""

    land: timedelta
    apply: timedelta
    upkeep: timedelta


@dataclass(eq=False)
class Drive:
    """Drives one lane; ``ailment`` says why the last round failed, empty if it did not."""

    spark: Caller
    lane: str
    sources: tuple[str, ...]
    deadlines: Deadlines
    memory: Memory
    standstills: Standstills
    accounts: Accounts
    clock: Callable[[], datetime]
    readers: Callable[[], Mapping[str, int]] = dict
    ailment: str = ""

    def round(self) -> None:
        """Land one batch, then merge what is landed.

        Raises:
            SluiceError: why one of the two failed, after both were tried.
        """
        waived = self.memory.waived()
        trouble: SluiceError | None = None
        for step in (self._land, self._apply):
            try:
                step(waived)
            except SluiceError as error:
                trouble = trouble or error
        self.ailment = str(trouble) if trouble else ""
        if trouble is not None:
            raise trouble

    def upkeep(self) -> None:
        """Compact and clean, keeping the versions that certificates still name."""
        request = Request(0, Verb.UPKEEP, readers=self.readers())
        self.spark.call(request, self.deadlines.upkeep)

    def _land(self, waived: frozenset[str]) -> None:
        try:
            landed = self.spark.call(Request(0, Verb.LAND, waived), self.deadlines.land).landed
        except HeldError as error:
            hold = Hold(f"{error.reason}:{self.lane}", "", error.reason, error.detail)
            self.standstills.lane_held(hold, self.sources, self.clock())
            raise
        if landed is None:
            return
        self.standstills.landed(landed, self.clock())
        if landed.batch is not None:
            took = round(landed.took.total_seconds(), 3)
            log.info("landed", batch=landed.batch, rows=landed.rows, seconds=took)

    def _apply(self, waived: frozenset[str]) -> None:
        started = self.clock()
        turns = self.spark.call(Request(0, Verb.APPLY, waived), self.deadlines.apply).applied
        now = self.clock()
        for turn in turns:
            if turn.account.read or turn.account.residual:
                self.accounts.add(self.lane, turn.table, turn.batch, turn.account, now)
        self.standstills.applied(turns, now)
        if turns:
            merged = [turn for turn in turns if turn.hold is None]
            changes = sum(turn.account.applied for turn in merged)
            took = round((now - started).total_seconds(), 3)
            held = len(turns) - len(merged)
            log.info("merged", tables=len(merged), held=held, changes=changes, seconds=took)
