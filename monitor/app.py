"""The only place that builds clients and wires the parts; nothing is started here."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from fastapi import FastAPI

from alerts.deliver import Delivery
from checks.world import World
from monitor.board import Easel
from monitor.clients import Lake, Servers, close_all, describe, highest_landed
from monitor.config.model import Config
from monitor.cycle import Cycle
from monitor.faces.api import Desk, application
from monitor.faces.metrics import registry
from monitor.gate import Gate
from monitor.jobs import Works, jobs
from monitor.logs import current_run
from monitor.schedule import Schedule
from monitor.spark.drive import Deadlines, Drive
from monitor.spark.standstills import Standstills
from monitor.spark.supervise import COMMAND, Supervisor
from monitor.store.store import Store
from monitor.watch.assessor import Assessor
from monitor.watch.census import Census
from monitor.watch.doubts import Doubts
from monitor.watch.facts import Facts
from monitor.watch.fence_book import FenceBook
from monitor.watch.keepers import Keepers
from monitor.watch.probing import Probing
from monitor.watch.pulse import Pulse
from monitor.watch.readers import named_versions
from monitor.watch.roster import Roster
from monitor.watch.rulings import Rulings
from monitor.watch.sampler import Sampler
from monitor.watch.synced import synced
from monitor.watch.teller import Teller
from monitor.watch.watcher import Watcher
from monitor.watch.world import RoundWorld
from pipeline.build import open_collector, open_source
from pipeline.settings import SourceSettings

LOOK_AGE = timedelta(seconds=2)


def clock() -> datetime:
    """The service's one clock: aware, UTC."""
    return datetime.now(UTC)


@dataclass(eq=False)
class App:
    """All parts of a service; ``spark`` is the command of its Spark process."""

    config: Config
    store: Store
    spark: Sequence[str] = COMMAND

    def __post_init__(self) -> None:
        """Build the parts in the order in which they need each other."""
        config, store, policy = self.config, self.store, self.config.policy
        self.stopping = threading.Event()
        self.started = clock()
        self.easel = Easel()
        self.lake = Lake.of(config)
        self.fences = FenceBook(store.fences)
        self.rulings = Rulings()
        self.standstills = Standstills(store.holds)
        self.collectors = {one.name: open_collector(one) for one in config.sources}
        self.pulses = tuple(self._pulse(one) for one in config.sources)
        followed = {pulse.settings.name: pulse.followed for pulse in self.pulses}
        self.servers = Servers(followed)
        self.roster = Roster(self.servers.all, config.tables, clock)
        self.census = Census(followed, self.roster.tables, describe, clock)
        self.keepers = Keepers(config.sources, self.lake, self.census.answer, clock)
        self.watcher = Watcher(self._sampler(), self.roster, store.marks, clock)
        self.teller = Teller(config.alerts, store, self.rulings, policy.gating, clock)
        self.assessor = self._assessor()
        self.supervisor = Supervisor(config.settings, self.spark)
        self.drive = self._drive()
        self.delivery = Delivery(config.channels, store.outbox, reminders=self.teller.reminders)
        self.cycle = self._cycle()
        self.schedule = Schedule(
            jobs(config, self._works()), store.ticks, clock, store.ticks.lasts()
        )

    def api(self) -> FastAPI:
        """The HTTP application over these parts."""
        gate = Gate(
            self.watcher, self.roster, self.assessor, self.teller, self.config.time_zone, clock
        )
        own = registry(lambda: self.easel.board, clock)
        return application(Desk(gate, self.easel, self.store, own, clock, self.stopping.is_set))

    def world(self) -> World:
        """The world for the probes of one table, as it is now."""
        look = self.watcher.look(LOOK_AGE)
        return RoundWorld(
            look=look,
            sources=self.servers.all(),
            mirrors=self.lake.delta,
            open_log=self.lake.log,
            fences=self.fences,
            memory=self.store.memory,
            clock_now=clock,
            now=clock(),
        )

    def close(self) -> None:
        """Hang up everywhere."""
        self.delivery.close()
        close_all(*self.pulses, self.servers, self.lake, *self.collectors.values())
        self.store.close()

    def _pulse(self, source: SourceSettings) -> Pulse:
        return Pulse(
            source,
            self.collectors[source.name],
            open_source,
            self.fences,
            partial(highest_landed, self.lake.delta, source.name),
            clock,
        )

    def _sampler(self) -> Sampler:
        readiness = self.config.readiness
        return Sampler(
            self.collectors,
            self.lake.delta,
            self.fences,
            clock,
            readiness.sample_age,
            readiness.heartbeat_age,
            self.store.waivers.waived,
            synced(self.config.sources, self.collectors, self.fences),
        )

    def _assessor(self) -> Assessor:
        return Assessor(
            policy=self.config.policy,
            sources=self.config.sources,
            certificates=self.store.certificates,
            rulings=self.rulings,
            standstills=self.standstills,
            memory=self.store.waivers,
            residuals=self.store.accounts.residuals,
            unproven=Doubts(self.census.unproven, self.store.memory, clock).unproven,
            clock=clock,
        )

    def _drive(self) -> Drive:
        paces = self.config.schedule
        return Drive(
            spark=self.supervisor,
            lane=self.config.pipeline.lane,
            sources=tuple(self.collectors),
            deadlines=Deadlines(paces.land_deadline, paces.merge_deadline, paces.upkeep_deadline),
            memory=self.store.waivers,
            standstills=self.standstills,
            accounts=self.store.accounts,
            clock=clock,
            readers=partial(named_versions, self.store.certificates, clock),
        )

    def _cycle(self) -> Cycle:
        running = (self.pulses, self.drive, self.supervisor, lambda: self.schedule)
        facts = Facts(self.store, *running, tuple(self.config.channels))
        return Cycle(
            watcher=self.watcher,
            roster=self.roster,
            assessor=self.assessor,
            teller=self.teller,
            facts=facts,
            easel=self.easel,
            plans=self.config.plans,
            keepers=self.keepers.keepers,
            budget=self.config.readiness.budget,
            zone=self.config.time_zone,
            clock=clock,
            started=self.started,
            runbooks=self.config.alerts.runbooks,
        )

    def _works(self) -> Works:
        plans, history = self.config.plans, self.store.verdicts
        probing = Probing(plans, self.roster, history, self.teller, self.world, clock, current_run)
        return Works(
            pulses=self.pulses,
            land=self.drive.land,
            merge=self.drive.apply,
            watch=self.cycle.watch,
            probe=probing.round,
            census=self.census.ask,
            keepers=self.keepers.ask,
            deliver=lambda: self.delivery.deliver_due(clock()),
            upkeep=self.drive.upkeep,
            prune=lambda: self.store.prune(clock()),
        )
