"""Builds the observers of the pipeline: clients of the sources, samplers, assessor and recorder.

It starts nothing. `monitor/app.py` adds the Spark process, the jobs and the API.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from checks.world import World
from monitor.clients import LakeClient, Servers, describe_source, highest_landed, source_orderings
from monitor.config.model import Config
from monitor.observe.assessor import Assessor
from monitor.observe.clocks import Clocks
from monitor.observe.foreign_writes import ForeignWrites, UnloggedChanges
from monitor.observe.heartbeats import FenceBook, HeartbeatWriter
from monitor.observe.probing import ProbeWorld
from monitor.observe.progress import FirstLandings
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.retention import RetentionWatch
from monitor.observe.sampler import AskCopy, Sampler, Watcher, sync_positions
from monitor.observe.source_inventory import SourceInventory
from monitor.observe.table_states import TableStates, find_configured
from monitor.observe.tables import TableRegistry
from monitor.observe.verdicts import LatestVerdicts
from monitor.spark.requests import SparkLooks
from monitor.store.holds import HoldRegistry
from monitor.store.store import ServiceStore
from pipeline.build import open_collector, open_source
from pipeline.model import Missing
from pipeline.settings import SourceSettings

LOOK_AGE = timedelta(seconds=2)


@dataclass(eq=False)
class Observers:
    """Observers of one lane; ``copies`` returns the positions of each copy."""

    config: Config
    store: ServiceStore
    lake: LakeClient
    clock: Callable[[], datetime]
    copies: Mapping[str, AskCopy]

    def __post_init__(self) -> None:
        """Build the parts in the order of their dependencies."""
        config, store, clock = self.config, self.store, self.clock
        skew = config.readiness.clock_skew
        self.clocks = Clocks(skew, store.memory, store.certificates, store.waivers.waived)
        self.fences = FenceBook(store.fences, self.clocks.stepped)
        self.rulings = LatestVerdicts()
        self.hold_registry = HoldRegistry(store.holds)
        self.looks = SparkLooks(clock)
        self.collectors = {one.name: open_collector(one, config.settings) for one in config.sources}
        self.heartbeats = tuple(self._heartbeat(one) for one in config.sources)
        followed = {one.settings.name: one.followed for one in self.heartbeats}
        rests_on = {name: one.rests_on for name, one in self.collectors.items()}
        self.servers, self.orderings = Servers(followed), source_orderings(config.sources, rests_on)
        restated = self.lake.standards
        self.roster = roster = TableRegistry(
            self.servers.all, config.tables, clock, standards=restated
        )
        self.census = SourceInventory(
            *(followed, roster.tables, roster.existing, describe_source, clock, store.memory),
            bases=roster.bases,
        )
        self.retention = RetentionWatch(
            config.sources, self.lake.transport, self.census.answer, clock
        )
        self.watcher = Watcher(self._sampler(), self.roster, clock)
        self.first_landings = FirstLandings(self.census.rows)
        self.table_states = TableStates(store.table_states.add, store.table_states.newest)
        self.recorder = self._recorder()
        self.assessor = self._assessor()

    def world(self, names: tuple[str, ...], worker: int) -> World:
        """Return the world of a probe *worker*, for one table of the sources *names*.

        First waits until the budgets of the sources have no debt.
        """
        self.servers.admit(names)
        look = self.watcher.look(LOOK_AGE, ())  # probes open mirrors themselves
        return ProbeWorld(
            look=look,
            sources=self.servers.queries(worker),
            lake=self.lake,
            names=names,
            fences=self.fences,
            memory=self.store.memory,
            clock_now=self.clock,
            now=self.clock(),
            zone=self.config.time_zone,
            orderings=self.orderings,
            collectors=self.collectors,
            looks=self.looks,
            worker=worker,
            dated_columns=self.census.dated,
            plans=self.config.plans,
            waived=self.store.waivers.ever_waived,
        )

    def give_up_removed_tables(self) -> None:
        """Make the ledger stop waiting for merges of tables that are no longer configured."""
        checkpoint = self.watcher.look(LOOK_AGE, ()).checkpoint
        if isinstance(checkpoint, Missing):
            return
        newest, sources = checkpoint.value, {one.name for one in self.config.sources}
        kept = find_configured(newest, self.roster.router, sources)
        self.store.ledger.give_up_removed(newest.lane, kept, newest.batch, self.clock())

    def close(self) -> None:
        """Close the connections to sources and collectors."""
        for heartbeat in self.heartbeats:
            heartbeat.close()
        self.servers.close()
        for collector in self.collectors.values():
            collector.close()

    def _heartbeat(self, source: SourceSettings) -> HeartbeatWriter:
        return HeartbeatWriter(
            source,
            self.collectors[source.name].address,
            open_source,
            self.fences,
            partial(highest_landed, self.lake.lake, source.name),
            self.clock,
            partial(self.clocks.compared, source.name),
        )

    def _sampler(self) -> Sampler:
        readiness = self.config.readiness
        return Sampler(
            self.collectors,
            self.lake.lake,
            self.fences,
            self.clock,
            readiness.sample_age,
            readiness.heartbeat_age,
            ForeignWrites(
                self.lake.lake,
                self.store.waivers.waived,
                self.store.waivers.end_of_commits,
                self.store.waivers.known,
            ),
            sync_positions(self.config.sources, self.collectors, self.fences),
            self.copies,
        )

    def _recorder(self) -> VerdictRecorder:
        config, gating = self.config, self.config.policy.gating
        return VerdictRecorder(
            config.alerts,
            self.store,
            self.rulings,
            gating,
            config.whole,
            self.clock,
            deciding=self.clocks.deciding,
        )

    def _assessor(self) -> Assessor:
        return Assessor(
            policy=self.config.policy,
            sources=self.config.sources,
            certificates=self.store.certificates,
            rulings=self.rulings,
            hold_registry=self.hold_registry,
            waived=self.store.waivers.waived,
            residuals=self.store.accounts.residuals,
            unproven=UnloggedChanges(self.census.unproven, self.store.memory, self.clock).unproven,
            unlisted=self.roster.unlisted,
            gains_shard=self.roster.gains_shard,
            doubts=self.clocks.reasons,
            clock=self.clock,
            orderings=self.orderings,
            pauses=self.store.pauses.standing,
            losses=self.store.ledger.losses,
            copy_losses=self.store.ledger.copy_losses,
        )
