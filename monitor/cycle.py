"""Runs one monitoring round: samples everything, rules, records verdicts, and makes the board."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from alerts.model import Member
from checks.blocks import (
    Inputs,
    StateSince,
    TableState,
    find_blocks,
    find_copy_losses,
    present_claims,
)
from checks.model import Verdict
from checks.readiness import Question, Readiness, ReadinessState
from monitor.board import (
    Board,
    ComponentView,
    CopyView,
    CurrentBoard,
    FirstLanding,
    RepairDecision,
    TableView,
)
from monitor.config.plans import CheckPlan, is_planned
from monitor.gate import OPEN
from monitor.observe import system_checks
from monitor.observe.assessor import Assessor, withhold_ready
from monitor.observe.progress import FirstLandings, landings_by_table
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.sampler import Sampling, Watcher
from monitor.observe.service_state import ServiceState
from monitor.observe.system_checks import IMAGE, OF_COPIES, Component, of_copies, of_image
from monitor.observe.table_states import Found, TableStates, find_retired
from monitor.observe.tables import MergeDemand, TableRegistry
from monitor.runtime import RequestPriority
from pipeline.clocks import day_end
from pipeline.errors import UnreachableError
from pipeline.image import Image
from pipeline.lags.lag import MOVING
from pipeline.lags.retention import Retention
from pipeline.model import Hop, Missing, Stage, Table
from pipeline.reports import Hold
from pipeline.sources.source import LogBacklog

AT_ONCE = timedelta()
FEW = 20  # most tables that are answered under one lock


@dataclass(eq=False)
class Cycle:
    """Runs the job `watch`; ``budget`` returns the longest lag of a tier that is not late.

    ``kept`` is how long the change log is kept.  ``prove`` begins a round of proofs, and returns a
    function that stores which residuals of a table are made good.  ``copies`` returns the copies of
    a table, with their holds.
    """

    watcher: Watcher
    roster: TableRegistry
    assessor: Assessor
    recorder: VerdictRecorder
    facts: ServiceState
    retentions: Callable[[Sampling], Mapping[str, Sequence[Retention]]]
    current: CurrentBoard
    plans: tuple[CheckPlan, ...]
    budget: Callable[[int], timedelta]
    zone: ZoneInfo
    clock: Callable[[], datetime]
    started: datetime
    runbooks: str = "docs/runbooks"
    firsts: FirstLandings = field(default_factory=FirstLandings)
    way: RequestPriority = field(default_factory=RequestPriority)
    copies: Callable[[str], Mapping[str, Hold | None]] = lambda _: {}
    image_due: Callable[[str], timedelta | None] = lambda _: None
    kept: timedelta = timedelta(days=30)
    states: TableStates = field(default_factory=TableStates)
    wanted: MergeDemand = field(default_factory=MergeDemand)
    repairs: Callable[[Board], tuple[RepairDecision, ...]] = lambda _: ()
    prove: Callable[[], Callable[[Inputs], None]] = lambda: lambda _: None
    _states: dict[str, tuple[ReadinessState, datetime]] = field(default_factory=dict)

    def watch(self) -> None:
        """Run one round."""
        look = self.watcher.look(AT_ONCE)
        now = self.clock()
        channels, retentions = self.facts.channels(now), self.retentions(look)
        parts = self.facts.parts(look, channels, now)
        cut = last_day_end(now, self.zone)
        firsts = self.firsts.look(look, self.roster.tables(), now)
        own_first = landings_by_table(firsts)
        self.recorder.starting = frozenset(t for t, one in own_first.items() if not one.stuck)
        backfills = self.facts.backfills(now)
        self.states.begin({one.table: one.description for one in backfills})
        views = list(self._views(look, cut, now, parts, own_first))
        states = self.states.settle(self._gone(look), now)
        verdicts = [
            system_checks.of_retentions(source, held, now) for source, held in retentions.items()
        ]
        verdicts += self._of_the_way(look, parts, firsts, now)
        verdicts += [verdict for _, found in views for verdict in found]
        news = self.recorder.news(verdicts)
        self.recorder.tell(news, kept=self.recorder.changed(news))
        if self.roster.known:
            self.recorder.withdraw(self._watched(look, parts, retentions))
        board = Board(
            at=now,
            started=self.started,
            cut=cut,
            tables=tuple(replace(view, life=states.get(view.table.name)) for view, _ in views),
            incidents=self.recorder.open(),
            parts=tuple(ComponentView(p.name, not p.problem, p.problem) for p in parts),
            jobs=self.facts.jobs(now),
            channels=channels,
            changes=self.facts.changes(),
            ledger=self.facts.ledger(),
            restarts=self.facts.restarts(),
            spark=self.facts.spark(),
            budgets=self.facts.spending(),
            disks=tuple(self.facts.disks()),
            store_bytes=self.facts.store_bytes(),
            certificates=self.facts.certificates(),
            unreadable=self.facts.unreadable(),
            headroom=_left(retentions, now),
            needed=_needed(retentions),
            backlogs=_backlogs(retentions),
            firsts=firsts,
            backfills=backfills,
            retired=_retired(states),
            runbooks=self.runbooks,
        )
        self.current.board = replace(board, repairs=self.repairs(board))

    def _of_the_way(
        self,
        look: Sampling,
        parts: Sequence[Component],
        firsts: Sequence[FirstLanding],
        now: datetime,
    ) -> Iterator[Verdict]:
        yield from (system_checks.of_part(part, now, parts) for part in parts)
        yield from system_checks.of_first_landings(look.sources, firsts, parts, now)
        landing = next((one.line for one in firsts if one.stuck is None), "")
        yield from system_checks.of_declared(self.roster.declared(), now, landing)
        if not isinstance(look.checkpoint, Missing):
            again = look.checkpoint.value.again
            yield from (
                system_checks.of_snapshots(name, again.get(name), now) for name in look.sources
            )

    def _gone(self, look: Sampling) -> Mapping[str, Found]:
        if isinstance(look.checkpoint, Missing):
            return {}
        return find_retired(look.checkpoint.value, self.roster.router, self.roster.sources())

    def _views(
        self,
        look: Sampling,
        cut: datetime,
        at: datetime,
        parts: Sequence[Component],
        firsts: Mapping[str, FirstLanding],
    ) -> Iterator[tuple[TableView, tuple[Verdict, ...]]]:
        """Yield each table's view, with the verdicts of this round about it.

        Holds the lock for a few tables at once, and for fewer while a client waits at the gate.
        """
        tables, prove = deque(self.roster.tables()), self.prove()
        self.assessor.certificates.read_whole(cut)
        while tables:
            self.way.give()
            asked, days = list[Inputs](), list[dict[Stage, Readiness]]()
            copied = list[dict[str, tuple[Inputs, Readiness]]]()
            with self.recorder.deciding:
                facts = self.assessor.facts(at)
                while tables and len(asked) < FEW and not (asked and self.way.asked):
                    asked.append(self.assessor.inputs(tables.popleft(), look, facts))
                    days.append(self._day(asked[-1], cut))
                    copied.append(self._copied(asked[-1], cut, look))
                self._certify(days, copied)
            for inputs, day, copies in zip(asked, days, copied, strict=True):
                self.way.give()
                name = inputs.table.name
                prove(inputs)
                self.states.note(inputs, look.unreadable.get(name, ""), firsts.get(name))
                first = firsts.get(name)
                yield self._view(inputs, day, at, parts=parts, first=first, copies=copies)

    def _certify(
        self,
        days: list[dict[Stage, Readiness]],
        copied: list[dict[str, tuple[Inputs, Readiness]]],
    ) -> None:
        """Store certificates for READY answers first; answers that cannot be stored are UNKNOWN."""
        try:
            self.assessor.certify(answer for day in days for answer in day.values())
            self.assessor.certify(answer for one in copied for _, answer in one.values())
        except UnreachableError as error:
            for day in days:
                day.update({stage: withhold_ready(one, str(error)) for stage, one in day.items()})
            for copies in copied:
                withheld = {
                    n: (i, withhold_ready(one, str(error))) for n, (i, one) in copies.items()
                }
                copies.update(withheld)

    def _day(self, inputs: Inputs, cut: datetime) -> dict[Stage, Readiness]:
        due = self.image_due(inputs.table.name)
        stages = MOVING if due is None else (*MOVING, Stage.IMAGE)
        day = {stage: self.assessor.answer(Question(stage, cut), inputs) for stage in stages}
        if day[Stage.LANDED].ready and day[Stage.MIRROR].state in OPEN:
            self.wanted.want([inputs.table.name], cut)  # its day has ended: merge it at once
        return day

    def _copied(
        self, inputs: Inputs, cut: datetime, look: Sampling
    ) -> dict[str, tuple[Inputs, Readiness]]:
        """Return the inputs of each copy of the table, and its answer for the day."""
        found = {}
        for name in self.copies(inputs.table.name):
            one = self.assessor.copied(name, inputs, look)
            found[name] = one, self.assessor.answer(Question(Stage.COPY, cut, name), one)
        return found

    def _view(
        self,
        inputs: Inputs,
        day: Mapping[Stage, Readiness],
        at: datetime,
        *,
        parts: Sequence[Component],
        first: FirstLanding | None,
        copies: Mapping[str, tuple[Inputs, Readiness]],
    ) -> tuple[TableView, tuple[Verdict, ...]]:
        table, budget = inputs.table, self.budget(inputs.table.tier)
        recent = at - budget  # the same cut for all tables of a tier, so answers share work
        now_ish = {s: self.assessor.passing(Question(s, recent), inputs) for s in MOVING}
        answers = {Question(s, one.cut): one for s, one in day.items()}
        answers |= {Question(Stage.COPY, one.cut, n): one for n, (_, one) in copies.items()}
        self.assessor.settle(inputs, answers, {name: one for name, (one, _) in copies.items()})
        views = tuple(self._copy_views(table.name, copies))
        copied = of_copies(table.name, views, budget, inputs.lags.at)
        verdicts = (*self._verdicts(inputs, day, parts, first), *copied)
        seen = {verdict.check: verdict for verdict in self.recorder.rulings.of(table.name)[::-1]}
        shown = {**seen, **{verdict.check: verdict for verdict in verdicts}}
        view = TableView(
            table,
            inputs.lags,
            day,
            now_ish,
            tuple(shown.values()),
            residual=inputs.residual,
            verified=present_claims(inputs),
            images=_images(inputs),
            copies=views,
            budget=budget,
        )
        return self._dated(view), verdicts

    def _copy_views(
        self, table: str, copies: Mapping[str, tuple[Inputs, Readiness]]
    ) -> Iterator[CopyView]:
        holds = self.copies(table)
        for name, (inputs, answer) in copies.items():
            hop = next(one for one in inputs.lags.hops if one.hop is Hop.COPY)
            losses = find_copy_losses(table, inputs.copy_losses, inputs.waived)
            yield CopyView(name, hop, answer, holds.get(name), losses)

    def _dated(self, view: TableView) -> TableView:
        """Return the view with the time since which ``worst`` has its value."""
        state, since = self._states.get(view.table.name, (None, None))
        if state is not view.worst or since is None:
            since = view.lags.at
            self._states[view.table.name] = view.worst, since
        return replace(view, since=since)

    def _verdicts(
        self,
        inputs: Inputs,
        day: Mapping[Stage, Readiness],
        parts: Sequence[Component],
        first: FirstLanding | None,
    ) -> Iterator[Verdict]:
        table, at = inputs.table, inputs.lags.at
        down = [part for part in parts if part.problem and _concerns(part, table)]
        if down and first:
            first = replace(first, stuck=None)  # it continues once these parts work
        stage = Stage.MIRROR if inputs.pause is None else Stage.LANDED
        yield from system_checks.of_table(
            table, inputs.lags, self.budget(table.tier), down, at, stage=stage
        )
        yield system_checks.of_pause(table.name, inputs.pause, self.kept, at)
        why, landed = (
            find_blocks(inputs, frozenset()),
            not isinstance(inputs.samples.checkpoint, Missing),
        )
        yield from system_checks.of_holds(table.name, why, at, first, landed=landed)
        yield system_checks.of_disagreement(table.name, day.values(), at)
        if (due := self.image_due(table.name)) is not None:
            yield of_image(inputs, day[Stage.IMAGE], due, started=self.started, at=at)

    def _watched(
        self, look: Sampling, parts: Sequence[Component], retentions: Iterable[str]
    ) -> Callable[[Member], bool]:
        others = {Member(system_checks.retention_of(source), "headroom") for source in retentions}
        others |= {
            Member(system_checks.rule_of(rule), "collected") for rule in self.roster.declared()
        }
        others |= {Member(part.name, part.check) for part in parts}
        others.add(Member(system_checks.SUBJECT, system_checks.CHECK))
        others |= {
            Member(system_checks.source_of(source), system_checks.FIRST_LANDING)
            for source in look.sources
        }
        others |= {
            Member(system_checks.snapshots_of(one), system_checks.SNAPSHOT_AGAIN)
            for one in look.sources
        }

        def watched(member: Member) -> bool:
            if self.roster.table(member.table) is None:
                return member in others
            if member.check in OF_COPIES:
                return bool(self.copies(member.table))
            if member.check == IMAGE:
                return self.image_due(member.table) is not None
            if member in others or member.check in system_checks.CHECKS:
                return True
            return is_planned(self.plans, member.table, member.check)

        return watched


def _retired(states: Mapping[str, StateSince]) -> tuple[StateSince, ...]:
    return tuple(
        states[name] for name in sorted(states) if states[name].state is TableState.RETIRED
    )


def _images(inputs: Inputs) -> tuple[Image, ...]:
    mirror = inputs.samples.mirror
    return () if isinstance(mirror, Missing) else mirror.value.images


def last_day_end(now: datetime, zone: ZoneInfo) -> datetime:
    """Return the end of the business day before the one that contains *now*."""
    return day_end(now.astimezone(zone).date() - timedelta(days=1), zone)


def _left(
    retentions: Mapping[str, Sequence[Retention]], now: datetime
) -> dict[tuple[str, str], timedelta]:
    """Return (kind, name) -> time until unread data is lost, if it is known."""
    every = [one for held in retentions.values() for one in held]
    known = {(one.kind, one.name): one.left(now) for one in every}
    return {key: left for key, left in known.items() if left is not None}


def _backlogs(retentions: Mapping[str, Sequence[Retention]]) -> dict[str, LogBacklog]:
    found = ((source, one.backlog) for source, held in retentions.items() for one in held)
    return {source: backlog for source, backlog in found if backlog is not None}


def _needed(retentions: Mapping[str, Sequence[Retention]]) -> dict[tuple[str, str], timedelta]:
    """Return (kind, name) -> remaining time below which a person must act."""
    every = (one for held in retentions.values() for one in held)
    return {(one.kind, one.name): one.needed for one in every if one.needed is not None}


def _concerns(part: Component, table: Table) -> bool:
    """Whether changes of the table go through the part.

    These are its own sources and collectors, the brokers, and the Spark process.
    """
    kind, _, name = part.name.partition(":")
    if kind in ("source", "collector", "clock"):
        return name in table.sources
    return kind in ("worker", system_checks.KAFKA)
