"""Wires the parts of the service: observers, Spark process, jobs and API.

It starts nothing; `monitor/service.py` does.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

from fastapi import FastAPI

from alerts.delivery import Delivery
from checks.run import looks_back
from monitor.board import CurrentBoard
from monitor.clients import LakeClient, open_error_table
from monitor.config.model import Config
from monitor.config.sections import spell_place
from monitor.copying import Copies
from monitor.cycle import Cycle
from monitor.gate import Gate
from monitor.lane_driver import LaneDriver
from monitor.observe.probing import Probing
from monitor.observe.service_state import ServiceState
from monitor.observe.system_checks import Disks, StalledRound, disk_paths
from monitor.observe.tables import MergeDemand
from monitor.observe.verdicts import ResidualProofs
from monitor.observers import LOOK_AGE, Observers
from monitor.runtime import RequestPriority, collect_garbage, current_run, utc_now
from monitor.schedule import Job, Schedule
from monitor.spark.supervisor import COMMAND
from monitor.store.store import ServiceStore
from monitor.tracing import Tracer
from monitor.web.api import build_application
from monitor.web.deps import Access, ApiParts
from pipeline.build import every_arrivals, open_rows
from pipeline.errors import UnreachableError

CENSUS = timedelta(seconds=5)  # checks which sources are due; each is asked far less often
RETENTION = timedelta(seconds=30)  # silent brokers are detected within this time
PUBLISH = timedelta(seconds=30)
LINEAGE = timedelta(seconds=5)
CHECK = timedelta(seconds=5)


@dataclass(eq=False)
class App:
    """All parts of a service; ``spark`` is the command of its Spark process."""

    config: Config
    store: ServiceStore
    spark: Sequence[str] = COMMAND
    clock: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        """Build the parts in the order of their dependencies."""
        config, store, clock = self.config, self.store, self.clock
        store.certificates.limit = config.certificates
        store.ledger.know_copies({one.name: spell_place(one.copy) for one in config.copied})
        self.settings = config.settings  # the config makes new ones each time
        self.stopping, self.started = threading.Event(), clock()
        self.current, self.way = CurrentBoard(), RequestPriority()
        self.lake, self.wanted = LakeClient.of(config), MergeDemand(clock)
        self.copies = Copies(self.settings, config.copied, store.ledger.copies)
        self.observers = Observers(config, store, self.lake, clock, self.copies.positions)
        self.copies.add_jobs(
            partial(self.observers.watcher.look, LOOK_AGE, ()),
            self.observers.roster.tables,
            clock,
            patience=config.schedule.merge_deadline / 3,
            ended=self.stopping.is_set,
        )
        self.arrivals = every_arrivals(config.sources)
        self.driver = LaneDriver(
            *(config, store, self.observers, self.wanted, self.current, self.spark, clock)
        )
        reminders = self.observers.recorder.reminders
        self.delivery = Delivery(config.channels, store.outbox, reminders=reminders)
        self.stalled = StalledRound(config.alerts, self.current, store, monotonic)
        self.cycle, self.probing = self._cycle(), self._probing()
        self.schedule = Schedule(self._jobs(), store.ticks, clock, store.ticks.lasts())

    def api(self) -> FastAPI:
        """Make the HTTP application over these parts."""
        observers, access = self.observers, Access.of(self.config.http)
        gate = Gate(
            observers.watcher,
            observers.roster,
            observers.assessor,
            observers.recorder,
            self.config.time_zone,
            self.clock,
            lambda table: self.settings.published(table) is not None,
            self.wanted,
            lambda table: tuple(self.copies.holds_of(table)),
        )
        stopping, rows = self.stopping.is_set, observers.census.rows
        errors = open_error_table(self.config, self.lake)
        addresses = {one.settings.name: one.followed for one in observers.heartbeats}
        captures = {name: one.captures for name, one in observers.collectors.items()}
        return build_application(
            ApiParts(
                *(gate, self.current, self.store, self.clock, stopping, access, self.way, rows),
                errors=errors,
                links=self.lake.links,
                arrivals=self.arrivals,
                rows=Tracer(
                    *(self.lake, self.lake.links.learn_schemas, addresses, open_rows, errors),
                    *(self.clock, captures, observers.hold_registry.why_held),
                ),
                waits=self.probing.waits,
            )
        )

    def close(self) -> None:
        """Close every client and the store."""
        self.delivery.close()
        self.observers.close()
        self.lake.close()
        self.copies.close()
        for asked in self.arrivals.values():
            asked.close()
        self.store.close()

    def _deliver(self) -> None:
        """Send queued notifications, and report a monitoring round that hangs.

        It runs every two seconds, so it also stores the memory of checks if nothing else writes.
        """
        self.store.memory.flush()
        now = self.clock()
        self.stalled.tell(now)
        with suppress(UnreachableError):
            self.store.outbox.catch_up(now)
        self.delivery.deliver_due(now)

    def prune(self) -> None:
        looked_back_on = [plan.name for plan in self.config.plans if looks_back(plan.probe)]
        try:
            self.store.prune(self.clock(), looked_back_on)
            self.observers.give_up_removed_tables()
        finally:
            collect_garbage()

    def _cycle(self) -> Cycle:
        config, observers, driver = self.config, self.observers, self.driver
        facts = ServiceState(
            self.store,
            observers.heartbeats,
            driver.requests,
            driver.supervisor,
            lambda: self.schedule,
            tuple(config.channels),
            observers.clocks.problem,
            observers.census.rows,
            copies=self.copies.problems,
            brokers=observers.retention.trouble,
            disks=Disks(disk_paths(config.store, config.lake), config.disks).look,
            budgets=observers.servers.budgets,
        )
        return Cycle(
            watcher=observers.watcher,
            roster=observers.roster,
            assessor=observers.assessor,
            recorder=observers.recorder,
            facts=facts,
            current=self.current,
            plans=config.plans,
            retentions=observers.retention.retentions,
            budget=config.readiness.budget,
            zone=config.time_zone,
            clock=self.clock,
            started=self.started,
            runbooks=config.alerts.runbooks,
            firsts=observers.first_landings,
            way=self.way,
            image_due=self._image_due,
            copies=self.copies.holds_of,
            kept=config.pipeline.upkeep.keep_changes,
            wanted=self.wanted,
            states=observers.table_states,
            repairs=driver.repairs.decide,
            prove=lambda: ResidualProofs(self.store.ledger, self.store.backfills).look,
        )

    def _image_due(self, table: str) -> timedelta | None:
        """How long after the end of a day its image is due; None if the table has no images."""
        rule = self.settings.published(table)
        return None if rule is None else rule.due

    def _probing(self) -> Probing:
        observers = self.observers
        return Probing(
            self.config.plans,
            observers.roster,
            self.store.verdicts,
            observers.recorder,
            observers.world,
            self.clock,
            current_run,
            paused=self.driver.paused,
            workers_of=observers.servers.workers,
        )

    def _jobs(self) -> tuple[Job, ...]:
        """Give each job its interval and its deadline.

        Each deadline is well above the sum of the time limits of the clients. Continuous jobs may
        run longer to work off a backlog; all others must keep their interval.
        """
        paces, minute, observers = self.config.schedule, timedelta(minutes=1), self.observers
        merging, deadline = (paces.merge, paces.merge_deadline), paces.upkeep_deadline
        landing, requests = (paces.land, paces.land_deadline), self.driver.requests
        return (
            *(
                Job(
                    f"heartbeat:{one.settings.name}",
                    self.config.heartbeat,
                    minute,
                    one.write_heartbeat,
                )
                for one in observers.heartbeats
            ),
            *self._optional_jobs(),
            Job("land", *landing, requests.land, continuous=True),
            Job("merge", *merging, requests.apply, continuous=True),
            Job("watch", paces.watch, minute, self.cycle.watch, vital=True),
            Job("probe", paces.probe, 30 * minute, self.probing.round, continuous=True),
            Job("census", CENSUS, 30 * minute, observers.census.ask, continuous=True),
            Job("retention", RETENTION, 10 * minute, observers.retention.ask),
            Job("deliver", paces.deliver, minute, self._deliver, continuous=True, vital=True),
            Job("upkeep", paces.upkeep, deadline, requests.maintain, continuous=True),
            Job("reread", *landing, self.driver.run_backfills, continuous=True),
            Job("prune", paces.prune, 10 * minute, self.prune),
        )

    def _optional_jobs(self) -> Iterator[Job]:
        """Yield jobs that depend on the config: images, suites, tier 0, OpenLineage, copies."""
        paces, requests = self.config.schedule, self.driver.requests
        merging, openlineage = (paces.merge, paces.merge_deadline), self.driver.openlineage
        if any(rule.how != "none" for rule in self.config.publish):
            deadline = paces.upkeep_deadline
            yield Job("publish", PUBLISH, deadline, requests.publish, continuous=True)
        if any(getattr(plan.probe, "looks_by_spark", False) for plan in self.config.plans):
            yield Job("check", CHECK, paces.upkeep_deadline, requests.check, continuous=True)
        if self.settings.divided:
            yield Job("merge_urgent", *merging, requests.apply_urgent, continuous=True)
        if openlineage is not None:
            half = timedelta(minutes=30)
            yield Job("openlineage", LINEAGE, half, openlineage.tell, continuous=True)
        for one in self.copies.jobs:
            yield Job(f"copy:{one.plan.name}", *merging, one.run, continuous=True)
