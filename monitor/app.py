"""Wires all parts of the service, and defines its jobs with interval and deadline.

This is the only module that wires the parts. It starts nothing: `monitor/service.py` does.

Each deadline is well above the sum of the time limits of the clients. Continuous jobs work off
a backlog, and all others must keep their interval.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from socket import getfqdn, gethostname

from fastapi import FastAPI

from alerts.delivery import Delivery
from checks.run import looks_back
from checks.world import World
from monitor.board import CurrentBoard
from monitor.clients import LakeClient, Servers, describe, error_table, highest_landed, orderings
from monitor.config.model import Config
from monitor.config.plans import CopyPlan
from monitor.copying import CopyWork
from monitor.cycle import Cycle
from monitor.gate import Gate
from monitor.observe.assessor import Assessor
from monitor.observe.auto_bootstrap import Rebootstraps
from monitor.observe.clocks import Clocks
from monitor.observe.foreign_writes import ForeignWrites, UnloggedChanges
from monitor.observe.heartbeats import FenceBook, HeartbeatWriter
from monitor.observe.probing import Probing, RoundWorld, named_versions
from monitor.observe.progress import FirstLandings
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.retention import RetentionWatch
from monitor.observe.sampler import Sampler, Watcher, synced
from monitor.observe.service_state import ServiceState
from monitor.observe.source_inventory import Census
from monitor.observe.system_checks import Disks, StalledRound, places
from monitor.observe.table_states import DueCuts, StateBook
from monitor.observe.tables import Roster, WantedTables
from monitor.observe.verdicts import Rechecks, Rulings
from monitor.openlineage import lineage_events
from monitor.priority import RightOfWay
from monitor.runtime import current_run, look_through
from monitor.schedule import Job, Schedule
from monitor.spark.requests import Deadlines, LaneRequests, Standstills
from monitor.spark.supervisor import COMMAND, SeenHazards, Supervisor
from monitor.store.store import ServiceStore
from monitor.web.api import application
from monitor.web.deps import Access, ApiParts
from pipeline.apply.mirrors import Mirrors
from pipeline.archive import ArchiveWord
from pipeline.build import every_arrivals, open_collector, open_source, open_table_format
from pipeline.copies.copy import CopyPosition, CopyTarget
from pipeline.copies.sync import CopySync
from pipeline.errors import UnreachableError
from pipeline.reports import Hold
from pipeline.settings import SourceSettings, is_loopback

Work = Callable[[], object]
CENSUS = timedelta(seconds=5)  # how often it is looked who is to be asked, which is far rarer
RETENTION = timedelta(seconds=30)  # after which it is known that the brokers do not answer
PUBLISH = timedelta(seconds=30)
LINEAGE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Works:
    """What each job does."""

    heartbeats: Sequence[HeartbeatWriter]
    land: Work
    merge: Work
    watch: Work
    probe: Work
    census: Work
    retention: Work
    deliver: Work
    upkeep: Work
    reread: Work
    prune: Work
    publish: Work | None = None
    merge_urgent: Work | None = None
    copies: Sequence[CopyWork] = ()
    openlineage: Work | None = None


def jobs(config: Config, works: Works) -> tuple[Job, ...]:
    """The timetable; each deadline is well above what the clients' own time limits add up to.

    Continuous are those that work off what has piled up.  The others must keep their pace.
    """
    paces = config.schedule
    minute = timedelta(minutes=1)
    beats = [
        Job(f"heartbeat:{one.settings.name}", config.heartbeat, minute, one.beat)
        for one in works.heartbeats
    ]
    some = []
    if works.publish is not None:
        some = [Job("publish", PUBLISH, paces.upkeep_deadline, works.publish, continuous=True)]
    if works.merge_urgent is not None:
        merging = (paces.merge, paces.merge_deadline, works.merge_urgent)
        some.append(Job("merge_urgent", *merging, continuous=True))
    if works.openlineage is not None:
        some.append(Job("openlineage", LINEAGE, 30 * minute, works.openlineage, continuous=True))
    for one in works.copies:
        pace = (paces.merge, paces.merge_deadline, one.run)
        some.append(Job(f"copy:{one.plan.name}", *pace, continuous=True))
    return (
        *beats,
        *some,
        Job("land", paces.land, paces.land_deadline, works.land, continuous=True),
        Job("merge", paces.merge, paces.merge_deadline, works.merge, continuous=True),
        Job("watch", paces.watch, minute, works.watch, vital=True),
        Job("probe", paces.probe, 30 * minute, works.probe, continuous=True),
        Job("census", CENSUS, 30 * minute, works.census, continuous=True),
        Job("retention", RETENTION, 10 * minute, works.retention),
        Job("deliver", paces.deliver, minute, works.deliver, continuous=True, vital=True),
        Job("upkeep", paces.upkeep, paces.upkeep_deadline, works.upkeep, continuous=True),
        Job("reread", paces.land, paces.land_deadline, works.reread, continuous=True),
        Job("prune", paces.prune, 10 * minute, works.prune),
    )


LOOK_AGE = timedelta(seconds=2)


def clock() -> datetime:
    """The service's one clock: aware, UTC."""
    return datetime.now(UTC)


@dataclass(eq=False)
class App:
    """All parts of a service; ``spark`` is the command of its Spark process."""

    config: Config
    store: ServiceStore
    spark: Sequence[str] = COMMAND
    asked: list[CopyTarget] = field(default_factory=list, init=False)  # copies, how far they are

    def __post_init__(self) -> None:
        """Build the parts in the order in which they need each other."""
        config, store = self.config, self.store
        self.settings = config.settings  # made anew each time that the config is asked for them
        self.stopping, self.started = threading.Event(), clock()
        self.current, self.way = CurrentBoard(), RightOfWay()
        self.lake, self.wanted = LakeClient.of(config), WantedTables(clock)
        self.clocks = self._clocks()
        self.fences = FenceBook(store.fences, self.clocks.stepped)
        self.rulings = Rulings()
        self.standstills = Standstills(store.holds)
        self.collectors = {one.name: open_collector(one, config.settings) for one in config.sources}
        self.arrivals = every_arrivals(config.sources)
        self.heartbeats = tuple(self._heartbeat(one) for one in config.sources)
        followed = {one.settings.name: one.followed for one in self.heartbeats}
        rests_on = {name: one.rests_on for name, one in self.collectors.items()}
        self.servers, self.orderings = Servers(followed), orderings(config.sources, rests_on)
        restated = self.lake.standards
        self.roster = roster = Roster(self.servers.all, config.tables, clock, standards=restated)
        self.census = Census(
            *(followed, roster.tables, roster.existing, describe, clock, store.memory),
            bases=roster.bases,
        )
        self.retention = RetentionWatch(
            config.sources, self.lake.transport, self.census.answer, clock
        )
        self.watcher = Watcher(self._sampler(), self.roster, clock)
        self.recorder = self._recorder()
        self.assessor = self._assessor()
        seen = SeenHazards(store.memory, config.settings.lane, clock)
        self.supervisor = Supervisor(config.settings, self.spark, seen=seen)
        self.openlineage = lineage_events(config, self.lake.links)
        self.requests = self._lane_requests()
        self.rechecks = Rechecks(store.rereads, self.rulings, clock)
        self.rebootstraps = self._rebootstraps()
        self.copies = tuple(map(self._copied, config.copied))
        self.delivery = Delivery(config.channels, store.outbox, reminders=self.recorder.reminders)
        self.stalled = self._stalled()
        self.cycle, self.probing = self._cycle(), self._probing()
        self.schedule = Schedule(
            jobs(config, self._works()), store.ticks, clock, store.ticks.lasts()
        )

    def api(self) -> FastAPI:
        """The HTTP application over these parts."""
        gate = Gate(
            self.watcher,
            self.roster,
            self.assessor,
            self.recorder,
            self.config.time_zone,
            clock,
            self._published,
            self.wanted,
            lambda table: tuple(self._copies_of(table)),
        )
        http = self.config.http
        names = frozenset({*http.names, http.host, gethostname(), getfqdn()})
        token = "" if http.auth is None else http.auth.token
        access = Access(names - {""}, token, beyond=not is_loopback(http.host))
        stopping, rows = self.stopping.is_set, self.census.rows
        return application(
            ApiParts(
                *(gate, self.current, self.store, clock, stopping, access, self.way, rows),
                errors=error_table(self.config, self.lake),
                links=self.lake.links,
                arrivals=self.arrivals,
            )
        )

    def world(self, names: tuple[str, ...]) -> World:
        """The world for the probes of one table of the sources *names*, as it is now."""
        look = self.watcher.look(LOOK_AGE, ())  # probes open mirrors themselves
        return RoundWorld(
            look=look,
            sources=self.servers.all(),
            lake=self.lake,
            names=names,
            fences=self.fences,
            memory=self.store.memory,
            clock_now=clock,
            now=clock(),
            zone=self.config.time_zone,
            orderings=self.orderings,
        )

    def close(self) -> None:
        """Hang up everywhere."""
        self.delivery.close()
        for heartbeat in self.heartbeats:
            heartbeat.close()
        self.servers.close()
        self.lake.close()
        for target in (*self.asked, *(one.copying.target for one in self.copies)):
            target.close()
        for collector in self.collectors.values():
            collector.close()
        for asked in self.arrivals.values():
            asked.close()
        self.store.close()

    def _deliver(self) -> None:
        """Take to people what waits for them; that the watching round hangs is told here.

        Every two seconds, so what checks remembered is written here where nothing else is.
        """
        self.store.memory.flush()
        now = clock()
        self.stalled.tell(now)
        with suppress(UnreachableError):
            self.store.outbox.catch_up(now)
        self.delivery.deliver_due(now)

    def _prune(self) -> None:
        """Forget what is too old, in the store and in memory."""
        looked_back_on = [plan.name for plan in self.config.plans if looks_back(plan.probe)]
        try:
            self.store.prune(clock(), looked_back_on)
        finally:
            look_through()

    def _heartbeat(self, source: SourceSettings) -> HeartbeatWriter:
        return HeartbeatWriter(
            source,
            self.collectors[source.name].address,
            open_source,
            self.fences,
            partial(highest_landed, self.lake.lake, source.name),
            clock,
            partial(self.clocks.compared, source.name),
        )

    def _clocks(self) -> Clocks:
        limit, store = self.config.readiness.clock_skew, self.store
        return Clocks(limit, store.memory, store.certificates, store.waivers.waived)

    def _sampler(self) -> Sampler:
        readiness = self.config.readiness
        return Sampler(
            self.collectors,
            self.lake.lake,
            self.fences,
            clock,
            readiness.sample_age,
            readiness.heartbeat_age,
            ForeignWrites(self.lake.lake, self.store.waivers.waived),
            synced(self.config.sources, self.collectors, self.fences),
            {plan.name: self._asked(plan) for plan in self.config.copied},
        )

    def _recorder(self) -> VerdictRecorder:
        config, gating = self.config, self.config.policy.gating
        return VerdictRecorder(
            config.alerts,
            self.store,
            self.rulings,
            gating,
            config.whole,
            clock,
            deciding=self.clocks.deciding,
        )

    def _assessor(self) -> Assessor:
        return Assessor(
            policy=self.config.policy,
            sources=self.config.sources,
            certificates=self.store.certificates,
            rulings=self.rulings,
            standstills=self.standstills,
            waived=self.store.waivers.waived,
            residuals=self.store.accounts.residuals,
            unproven=UnloggedChanges(self.census.unproven, self.store.memory, clock).unproven,
            unlisted=self.roster.unlisted,
            doubts=self.clocks.reasons,
            clock=clock,
            orderings=self.orderings,
            pauses=self.store.pauses.standing,
        )

    def _lane_requests(self) -> LaneRequests:
        paces = self.config.schedule
        self.store.rereads.hides = self.lake.standards.are_secret
        return LaneRequests(
            call=self.supervisor.call,
            lane=self.config.pipeline.lane,
            sources=tuple(self.collectors),
            deadlines=Deadlines(paces.land_deadline, paces.merge_deadline, paces.upkeep_deadline),
            waived=self.store.waivers.waived,
            standstills=self.standstills,
            accounts=self.store.accounts,
            rereads=self.store.rereads,
            resubmissions=self.store.resubmissions,
            clock=clock,
            readers=partial(named_versions, self.store.certificates, clock),
            paused=self._paused,
            wanted=self.wanted,
            archived=self._archived,
            noted=tuple if self.openlineage is None else self.openlineage.note,
            cuts=DueCuts(
                self.fences.known,
                self.fences.first,
                self.config.time_zone,
                clock,
                wanted=bool(self.config.publish),
            ),
        )

    def _cycle(self) -> Cycle:
        running = (self.heartbeats, self.requests, self.supervisor, lambda: self.schedule)
        ways = tuple(self.config.channels)
        facts = ServiceState(
            self.store,
            *running,
            ways,
            self.clocks.ailment,
            self.census.rows,
            copies=self._copy_ailments,
            brokers=self.retention.trouble,
            disks=Disks(places(self.config.store, self.config.lake), self.config.disks).look,
        )
        return Cycle(
            watcher=self.watcher,
            roster=self.roster,
            assessor=self.assessor,
            recorder=self.recorder,
            facts=facts,
            current=self.current,
            plans=self.config.plans,
            retentions=self.retention.retentions,
            budget=self.config.readiness.budget,
            zone=self.config.time_zone,
            clock=clock,
            started=self.started,
            runbooks=self.config.alerts.runbooks,
            firsts=FirstLandings(self.census.rows),
            way=self.way,
            image_due=self._image_due,
            copies=self._copies_of,
            kept=self.config.pipeline.upkeep.keep_changes,
            wanted=self.wanted,
            states=StateBook(self.store.table_states.add, self.store.table_states.newest),
        )

    def _archived(self) -> ArchiveWord:
        """What people registered, and what mirrors have kept by it."""
        kept = self.store.accounts.ignored("archived")
        return ArchiveWord(self.store.archives.registered(), kept)

    def _paused(self) -> frozenset[str]:
        """Tables whose merges stand still."""
        return frozenset(self.store.pauses.standing(clock()))

    def _published(self, table: str) -> bool:
        """Whether images of it are made."""
        return self.settings.published(table) is not None

    def _image_due(self, table: str) -> timedelta | None:
        """How long after the end of a day its image is counted on; None if none are made."""
        rule = self.settings.published(table)
        return None if rule is None else rule.due

    def _stalled(self) -> StalledRound:
        alerts, store = self.config.alerts, self.store
        return StalledRound(alerts, self.current, store, self.started)

    def _asked(self, plan: CopyPlan) -> Callable[[], Mapping[str, CopyPosition]]:
        """What asks a copy how far it is, by a client of the watching round's own."""
        self.asked.append(plan.copy.opened(self.config.settings.lake))
        return self.asked[-1].positions

    def _copied(self, plan: CopyPlan) -> CopyWork:
        """The job of one copy, with clients of its own."""
        settings = self.config.settings
        mirrors = Mirrors(settings, open_table_format(settings))
        return CopyWork(
            plan,
            CopySync(plan.copy.opened(settings.lake), mirrors),
            partial(self.watcher.look, LOOK_AGE, ()),
            self.roster.tables,
            clock,
            patience=self.config.schedule.merge_deadline / 3,
            ended=self.stopping.is_set,
        )

    def _copies_of(self, table: str) -> Mapping[str, Hold | None]:
        """Names of the copies that *table* has, each with why it stands still."""
        own = (one for one in self.copies if one.plan.serves(table))
        return {one.plan.name: one.holds.get(table) for one in own}

    def _copy_ailments(self) -> Mapping[str, str]:
        """By copy: why its last round failed; empty if it did not."""
        return {one.plan.name: one.ailment for one in self.copies}

    def _probing(self) -> Probing:
        plans, history = self.config.plans, self.store.verdicts
        return Probing(
            *(plans, self.roster, history, self.recorder, self.world, clock, current_run),
            paused=self._paused,
        )

    def _works(self) -> Works:
        return Works(
            heartbeats=self.heartbeats,
            land=self.requests.land,
            merge=self.requests.apply,
            watch=self.cycle.watch,
            probe=self.probing.round,
            census=self.census.ask,
            retention=self.retention.ask,
            deliver=self._deliver,
            upkeep=self.requests.upkeep,
            reread=self._reread,
            prune=self._prune,
            publish=self.requests.publish if self._imaged() else None,
            copies=self.copies,
            openlineage=None if self.openlineage is None else self.openlineage.tell,
            merge_urgent=self.requests.apply_urgent if self.config.settings.divided else None,
        )

    def _rebootstraps(self) -> Rebootstraps:
        rules, rereads = self.config.rebootstrap, self.store.rereads
        return Rebootstraps(rules, rereads, lambda: self.current.board, clock)

    def _reread(self) -> None:
        """Read on what is read again, and take up what checks said of what is done."""
        self.rechecks.look()
        self.rebootstraps.look()
        self.requests.reread()

    def _imaged(self) -> bool:
        """Whether images are made at all: any may have to be corrected."""
        return any(rule.how != "none" for rule in self.config.publish)
