"""Builds what drives the Spark process: its supervisor, its requests, and its backfills."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from monitor.board import CurrentBoard
from monitor.config.model import Config
from monitor.observe.auto_bootstrap import AutoBootstrap
from monitor.observe.probing import certified_versions
from monitor.observe.table_states import DueCuts
from monitor.observe.tables import MergeDemand
from monitor.observe.verdicts import Rechecks
from monitor.observers import Observers
from monitor.openlineage import open_lineage_events
from monitor.spark.requests import Deadlines, LaneRequests
from monitor.spark.supervisor import SeenHazards, Supervisor
from monitor.store.store import ServiceStore
from pipeline.archive import ArchiveWord


@dataclass(eq=False)
class LaneDriver:
    """The Spark process of one lane; ``command`` starts it."""

    config: Config
    store: ServiceStore
    observers: Observers
    wanted: MergeDemand
    current: CurrentBoard
    command: Sequence[str]
    clock: Callable[[], datetime]

    def __post_init__(self) -> None:
        """Build the parts; the process is not started."""
        config, store, clock = self.config, self.store, self.clock
        seen = SeenHazards(store.memory, config.settings.lane, clock)
        self.supervisor = Supervisor(config.settings, self.command, seen=seen)
        self.openlineage = open_lineage_events(config, self.observers.lake.links)
        self.requests = self._lane_requests()
        self.rechecks = Rechecks(store.rereads, self.observers.rulings, clock)
        self.rebootstraps = AutoBootstrap(
            config.rebootstrap, store.rereads, lambda: self.current.board, clock
        )

    def paused(self) -> frozenset[str]:
        """Tables whose merges are paused."""
        return frozenset(self.store.pauses.standing(self.clock()))

    def reread(self) -> None:
        """Read on what is backfilled, after checks have said what is still to be repaired."""
        self.rechecks.look()
        self.rebootstraps.look()
        self.requests.reread()

    def _lane_requests(self) -> LaneRequests:
        paces = self.config.schedule
        self.store.rereads.hides = self.observers.lake.standards.are_secret
        return LaneRequests(
            call=self.supervisor.call,
            lane=self.config.pipeline.lane,
            sources=tuple(self.observers.collectors),
            deadlines=Deadlines(paces.land_deadline, paces.merge_deadline, paces.upkeep_deadline),
            waived=self.store.waivers.waived,
            standstills=self.observers.standstills,
            accounts=self.store.accounts,
            rereads=self.store.rereads,
            resubmissions=self.store.resubmissions,
            clock=self.clock,
            readers=partial(certified_versions, self.store.certificates, self.clock),
            paused=self.paused,
            wanted=self.wanted,
            archived=self._archived,
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
