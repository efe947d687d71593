"""Builds the parts that drive the Spark process: its supervisor, its requests, and its backfills.

With `rebootstrap.how: auto`, a new base is requested for a table that only a base can repair: one
with a gap, without a base, or with a statement that holds it until it has one. A quarantined
change is left to operators, because its writer would write the next one the same way. A problem
that no base can end is left to them too, such as a collector whose lists exclude a table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog

from checks.model import Reason
from monitor.auto_repair import WHO, AutoRepair, find_auto_rule, request_automatically
from monitor.board import Board, CurrentBoard, TableView
from monitor.config.model import Config, RebootstrapRule
from monitor.observe.probing import certified_versions
from monitor.observe.table_states import DueCuts
from monitor.observe.tables import MergeDemand
from monitor.observe.verdicts import Rechecks
from monitor.observers import Observers
from monitor.openlineage import open_lineage_events
from monitor.spark.requests import Deadlines, LaneRequests
from monitor.spark.supervisor import SeenHazards, Supervisor
from monitor.store.requests import BackfillSpec, StoredBackfill, StoredBackfills
from monitor.store.store import ServiceStore
from pipeline.archive import ArchiveWord
from pipeline.model import Origin, Stage

HEALED = frozenset({"gap", "no_base", "schema", "created", "emptied", "statement", "renamed"})
"""Reason codes that a new base ends."""
ELSEWHERE = ("lists:", "hidden:", "again:")
"""Prefixes of gap ids for tables that the collector does not send, or reads again itself."""
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class AutoBootstrap:
    """Requests new bases automatically, in the same way as a person would.

    A table must need a base for the time `after` of its rule, because some problems end
    automatically. A restart of the service restarts that time, but earlier requests are known.
    """

    rules: tuple[RebootstrapRule, ...]
    backfills: StoredBackfills
    board: Callable[[], Board]
    clock: Callable[[], datetime]
    _since: dict[str, datetime] = field(default_factory=dict)

    def look(self) -> None:
        """Request the bases that are due."""
        if not any(rule.how == "auto" for rule in self.rules):
            return
        board, now = self.board(), self.clock()
        if board.stale(now):
            return
        needing = dict(self._needing(board))
        self._since = {name: self._since.get(name, now) for name in needing}
        due = {n: one for n, one in needing.items() if now - self._since[n] >= one[0].after}
        if not due:
            return
        going = self.backfills.open()
        taken, own = {one.table for one in going}, sum(map(_is_own_base, going))
        tried = self._tried()
        for name, (rule, why) in due.items():
            last = tried.get(name)
            rests = last is not None and now - last < rule.again
            if name in taken or rests or own >= rule.at_once:
                continue
            own += self._ask(name, why, now)

    def _needing(self, board: Board) -> Iterator[tuple[str, tuple[RebootstrapRule, str]]]:
        starting = {name for one in board.firsts if one.stuck is None for name in one.tables}
        for view in board.tables:
            name = view.table.name
            rule = find_auto_rule(self.rules, name)
            if rule is None or name in starting:
                continue
            reasons = [one for one in _reasons(view) if _is_healed(one)]
            if reasons:
                yield name, (rule, f"{reasons[0].code}: {reasons[0].text}")

    def _tried(self) -> Mapping[str, datetime]:
        """Return, by table, when the last base of the service ended, else when it was requested."""
        bases = filter(_is_own_base, self.backfills.list(limit=1000))
        return {one.table: one.ended or one.at for one in reversed([*bases])}

    def _ask(self, name: str, why: str, now: datetime) -> bool:
        reason = f"rebootstrap: auto; {why}"
        if not request_automatically(self.backfills, name, reason, BackfillSpec(), now):
            return False
        log.warning("rebootstrap", table=name, why=why)
        return True


def _is_own_base(one: StoredBackfill) -> bool:
    return one.who == WHO and one.wish.origin is Origin.SNAPSHOT


def _reasons(view: TableView) -> Sequence[Reason]:
    return view.recent[Stage.MIRROR].reasons


def _is_healed(reason: Reason) -> bool:
    return reason.code in HEALED and not reason.id.startswith(ELSEWHERE)


@dataclass(eq=False)
class LaneDriver:
    """Drives the Spark process of one lane, which ``command`` starts."""

    config: Config
    store: ServiceStore
    observers: Observers
    wanted: MergeDemand
    current: CurrentBoard
    command: Sequence[str]
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        """Build the parts without starting the process."""
        config, store, clock = self.config, self.store, self.clock
        seen = SeenHazards(store.memory, config.settings.lane, clock)
        standing = self.observers.hold_registry.holds
        self.supervisor = Supervisor(
            config.settings,
            self.command,
            seen=seen,
            held=lambda: frozenset(one.id for one in standing()),
        )
        self.openlineage = open_lineage_events(config, self.observers.lake.links)
        self.requests = self._lane_requests()
        self.rechecks = Rechecks(store.backfills, self.observers.rulings, clock)
        self.rebootstraps = AutoBootstrap(
            config.rebootstrap, store.backfills, lambda: self.current.board, clock
        )
        self.repairs = AutoRepair(config.repair, store.backfills, clock)

    def paused(self) -> frozenset[str]:
        """Return the tables whose merges are paused."""
        return frozenset(self.store.pauses.standing(self.clock()))

    def run_backfills(self) -> None:
        """Request automatic bases and repairs that are due, then continue all backfills."""
        self.rechecks.look()
        self.rebootstraps.look()
        self.repairs.look(self.current.board)
        self.requests.run_backfills()

    def _lane_requests(self) -> LaneRequests:
        paces = self.config.schedule
        self.store.backfills.hides = self.observers.lake.standards.are_secret
        return LaneRequests(
            call=self.supervisor.call,
            lane=self.config.pipeline.lane,
            sources=tuple(self.observers.collectors),
            deadlines=Deadlines(paces.land_deadline, paces.merge_deadline, paces.upkeep_deadline),
            waived=self.store.waivers.waived,
            hold_registry=self.observers.hold_registry,
            accounts=self.store.accounts,
            ledger=self.store.ledger,
            backfills=self.store.backfills,
            resubmissions=self.store.resubmissions,
            clock=self.clock,
            readers=partial(certified_versions, self.store.certificates, self.clock),
            paused=self.paused,
            wanted=self.wanted,
            archived=self._archived,
            looks=self.observers.looks,
            noted=tuple if self.openlineage is None else self.openlineage.note,
            cuts=DueCuts(
                self.observers.fences.known,
                self.observers.fences.first,
                self.config.time_zone,
                self.clock,
                wanted=bool(self.config.publish),
            ),
        )

    def _archived(self) -> ArchiveWord:
        kept = self.store.accounts.ignored("archived")
        return ArchiveWord(self.store.archives.registered(), kept)
