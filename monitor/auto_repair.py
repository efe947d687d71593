"""Decides which rows that a check proved wrong are repaired automatically, and requests it.

With `repair.how: auto`, the rows that an incident names are read again, as `sluice repair TABLE
--incident ID` does. The request is recorded with who `sluice` and the id of the incident. It does
not end the incident: only the check does, as of a position after the repair.

A repair is left to a person if the incident does not name all its rows, if a limit is reached, or
if earlier repairs have not helped. The store keeps the requests, so a restart does not repeat a
repair or reset a limit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from shlex import quote
from typing import Protocol, TypeVar
from uuid import uuid4

import structlog

from alerts.model import AlertKind, Incident, IncidentState
from checks.blocks import TableState
from checks.counting import names_doubled_rows
from checks.model import Outcome, Verdict
from checks.named_rows import describe_count
from monitor.board import Board, NextStep, RepairDecision, TableView
from monitor.config.model import RepairRule
from monitor.observe.system_checks import OF_COPIES
from monitor.observe.verdicts import is_after_backfill
from monitor.row_selection import NAMING, select_failed_rows
from monitor.store.requests import BackfillSpec, StoredBackfill, StoredBackfills
from pipeline.backfill_state import RowSelection
from pipeline.errors import ConfigError, UnreachableError
from pipeline.model import Origin, Table

WHO = "sluice"
"""The name under which the service requests repairs that a config rule allows."""
DAY = timedelta(days=1)
MANY_SHARDS = "max_id names several shards, but for one alone how many of its ids are missing"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RepairCase:
    """A table of an open incident, and all facts that decide about its repair.

    ``losses`` are all open losses of the mirror, including the incident. ``requests`` are the
    backfills of the last day, and all since a day before the oldest open loss. ``spent`` has table
    and number of rows of the rule's automatic repairs within the last day. It includes repairs that
    were decided in the same round.
    """

    incident: Incident
    view: TableView
    rule: RepairRule
    losses: tuple[Incident, ...]
    requests: tuple[StoredBackfill, ...]
    spent: tuple[tuple[str, int], ...]
    now: datetime

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return self.view.table.name

    @property
    def newest(self) -> Mapping[str, Verdict | None]:
        """Return the newest verdict of each check of the incident that names rows of the table."""
        failing = {one.check for one in self.incident.failing if one.table == self.table}
        known = dict[str, Verdict]()
        for one in self.view.verdicts:
            known.setdefault(one.check, one)
        return {check: known.get(check) for check in NAMING if check in failing}

    @property
    def fails(self) -> tuple[Verdict, ...]:
        """Return those of the newest verdicts that are FAILs."""
        return tuple(
            one
            for one in self.newest.values()
            if one is not None and one.ruling.outcome is Outcome.FAIL
        )

    @property
    def own(self) -> tuple[StoredBackfill, ...]:
        """Return the requests for the table, oldest first."""
        return tuple(one for one in self.requests if one.table == self.table)

    @property
    def automatic(self) -> tuple[StoredBackfill, ...]:
        """Return the automatic repairs of the table, oldest first."""
        return tuple(one for one in self.own if _is_automatic(one))


Objection = tuple[NextStep, str]
"""The step to take instead of a repair, and why."""


def decide_repair(case: RepairCase) -> RepairDecision:
    """Decide whether the rows of *case* are read again now; the first objection counts."""
    identity = (case.incident.id, case.table)
    for objects in OBJECTIONS:
        if (found := objects(case)) is not None:
            return RepairDecision(*identity, *found)
    checks = tuple(one.check for one in case.fails)
    try:
        rows = select_failed_rows(case.view.table, case.fails, case.rule.rows)
        count = count_rows(rows, case.view.table)
    except ConfigError as error:
        return RepairDecision(*identity, NextStep.ASK, str(error))
    if (found := _exceeds(case, count)) is not None:
        return RepairDecision(*identity, *found)
    # the backfill rejects more rows than are named; this number also counts as spent
    rows = RowSelection(rows.keys, rows.ranges, most=count)
    verb = "is" if count == 1 else "are"
    why = f"{describe_count(count)} that {' and '.join(checks)} found wrong {verb} read again"
    return RepairDecision(*identity, NextStep.REPAIR, why, checks, rows, _fences_of(case.fails))


def decide_repairs(
    board: Board, rules: Sequence[RepairRule], requests: Sequence[StoredBackfill], now: datetime
) -> tuple[RepairDecision, ...]:
    """Decide for each table of each open incident that has a rule, oldest incident first.

    *requests* go back to :func:`look_back_to`. Each decided repair counts towards the limits of the
    next ones.
    """
    spent = [
        (one.table, one.wish.rows.most or 0)
        for one in requests
        if _is_automatic(one) and one.at > now - DAY
    ]
    made = list[RepairDecision]()
    for incident, view, rule in _candidates(board, rules):
        losses = _losses_of(board, view.table.name)
        its = tuple(one for one in spent if find_auto_rule(rules, one[0]) is rule)
        made.append(
            decide_repair(RepairCase(incident, view, rule, losses, tuple(requests), its, now))
        )
        if made[-1].step is NextStep.REPAIR:
            spent.append((made[-1].table, made[-1].rows.most or 0))
    return _one_per_table(made)


class AutoRule(Protocol):
    """A rule that lets the service request for tables what otherwise a person requests."""

    @property
    def tables(self) -> str:
        """A glob of table names."""
        ...

    @property
    def how(self) -> str:
        """``auto`` or ``ask``."""
        ...


Rule = TypeVar("Rule", bound=AutoRule)


def find_rule(rules: Iterable[Rule], table: str) -> Rule | None:
    """Return the first rule that matches *table*, `auto` or `ask`; None without any."""
    return next((one for one in rules if fnmatchcase(table, one.tables)), None)


def find_auto_rule(rules: Iterable[Rule], table: str) -> Rule | None:
    """Return the first rule that matches *table* if it is `how: auto`, else None."""
    found = find_rule(rules, table)
    return found if found is not None and found.how == "auto" else None


def request_automatically(
    backfills: StoredBackfills, table: str, reason: str, wish: BackfillSpec, at: datetime
) -> bool:
    """Request a backfill of *table* as the service; False if another request prevents it."""
    asked = StoredBackfill(uuid4().hex[:12], table, reason, WHO, at, wish=wish)
    try:
        backfills.add(asked)
    except ConfigError:  # another backfill of the table was just requested
        return False
    return True


def look_back_to(board: Board, now: datetime) -> datetime:
    """Return since when requests count: a day before the oldest open loss, or before now."""
    return min((one.opened for one in board.incidents if _is_loss(one)), default=now) - DAY


def count_rows(rows: RowSelection, table: Table) -> int:
    """Return the most rows that *rows* can select."""
    shards = len(table.shards)
    ids = sum((one.last - one.first + 1) * (1 if one.shard else shards) for one in rows.ranges)
    return ids + sum(1 if one.shard else shards for one in rows.keys)


def _candidates(
    board: Board, rules: Sequence[RepairRule]
) -> Iterator[tuple[Incident, TableView, RepairRule]]:
    for incident in board.incidents:
        if not _names_rows(incident):
            continue
        naming = (one.table for one in incident.failing if one.check in NAMING)
        for name in dict.fromkeys(naming):
            view, rule = board.table(name), find_rule(rules, name)
            if view is not None and rule is not None:
                yield incident, view, rule


def _is_loss(incident: Incident) -> bool:
    return incident.cause.kind is AlertKind.LOST


def _names_rows(incident: Incident) -> bool:
    """Whether a check that names rows still fails; it need not be the one that opened it."""
    return _is_loss(incident) and any(one.check in NAMING for one in incident.failing)


def _losses_of(board: Board, table: str) -> tuple[Incident, ...]:
    """Return the open losses of the mirror, without those of copies, which are not repaired."""
    return tuple(
        one
        for one in board.incidents
        if _is_loss(one)
        and any(member.table == table and member.check not in OF_COPIES for member in one.members)
    )


def _one_per_table(made: Iterable[RepairDecision]) -> tuple[RepairDecision, ...]:
    """Keep the first repair of each table; a second one waits until the first has ended."""
    taken, kept = set[str](), list[RepairDecision]()
    for one in made:
        if one.step is NextStep.REPAIR and one.table in taken:
            why = "another incident of the table is repaired first"
            kept.append(RepairDecision(one.incident, one.table, NextStep.WAIT, why))
            continue
        if one.step is NextStep.REPAIR:
            taken.add(one.table)
        kept.append(one)
    return tuple(kept)


def _is_automatic(one: StoredBackfill) -> bool:
    return one.wish.automatic  # not by its name, which a person may have too


def _fences_of(fails: Iterable[Verdict]) -> tuple[tuple[str, int], ...]:
    """Return each source of *fails* and the highest number of its fences."""
    found = {(one.source, one.number) for fail in fails for one in fail.as_of}
    return tuple(dict(sorted(found)).items())


def _is_asked_for(case: RepairCase) -> Objection | None:
    if case.rule.how == "ask":
        return NextStep.ASK, f"the rule for {case.rule.tables} says ask; run: {_command(case)}"
    return None


def _is_keyed(case: RepairCase) -> Objection | None:
    """Leave keys that are not one integer to a person: their spelling depends on the columns."""
    if case.view.table.no_ranges and any(one.check == "values" for one in case.fails):
        return NextStep.ASK, f"values names rows by keys that are not ids; run: {_command(case)}"
    return None


def _command(case: RepairCase) -> str:
    return f"sluice repair {quote(case.table)} --incident {case.incident.id} --reason ..."


def _is_in_hand(case: RepairCase) -> Objection | None:
    for one in case.losses:
        if (held := one.acknowledged) is not None:
            which = "the incident" if one.id == case.incident.id else f"incident {one.id}"
            return NextStep.ASK, f"{held.who} has acknowledged {which}, so the repair is theirs"
    return None


def _is_early(case: RepairCase) -> Objection | None:
    one, after = case.incident, case.rule.after
    if one.state is not IncidentState.FIRING:
        return NextStep.WAIT, f"the incident is {one.state}"
    seconds = f"{after.total_seconds():.0f} s"
    if case.now - one.opened < after:
        return NextStep.WAIT, f"the incident must be open for {seconds} first (repair.after)"
    if one.worse is not None and case.now - one.worse < after:
        why = f"the incident has grown, and must not grow for {seconds} first (repair.after)"
        return NextStep.WAIT, why
    return None


def _is_running(case: RepairCase) -> Objection | None:
    for one in case.own:
        if one.ended is None:
            return NextStep.WAIT, f"{one.kind} {one.id} of the table by {one.who} is running"
    return None


def _is_held(case: RepairCase) -> Objection | None:
    """Reject every state but incremental, in which changes are merged as usual."""
    life = case.view.life
    if life is None:
        return NextStep.WAIT, "the state of the table is not known yet"
    if life.state is TableState.INCREMENTAL:
        return None
    why = f": {life.why}" if life.why else ""
    return NextStep.ASK, f"the table is {life.state}{why}"


def _is_unproven(case: RepairCase) -> Objection | None:
    if not case.fails:
        return NextStep.WAIT, "; ".join(map(_describe_result, case.newest.items()))
    for one in case.fails:
        if not one.as_of:
            return NextStep.ASK, f"{one.check} does not prove the difference as of a position"
        if one.check == "max_id" and len(one.ruling.keys) > 1:  # only the first gap is known
            return NextStep.ASK, MANY_SHARDS
    return None


def _describe_result(one: tuple[str, Verdict | None]) -> str:
    check, newest = one
    if newest is None:
        return f"no result of {check} is known yet"
    return f"the last result of {check} is {newest.ruling.outcome}, not fail"


def _is_doubled(case: RepairCase) -> Objection | None:
    """Reject a table if a check or an open loss names rows that the mirror has twice."""
    fails = [one.ruling for one in case.view.verdicts if one.ruling.outcome is Outcome.FAIL]
    if any(map(names_doubled_rows, [*fails, *(one.ruling for one in case.losses)])):
        return NextStep.ASK, "rows are in the mirror twice, which a repair does not end"
    return None


def _is_cut_off(case: RepairCase) -> Objection | None:
    """Reject a table if a check or an open loss may have more wrong rows than it names.

    An open loss keeps its ruling while the check is UNKNOWN.
    """
    fails = [one for one in case.view.verdicts if one.ruling.outcome is Outcome.FAIL]
    found = [(one.check, one.ruling) for one in fails if one.check in NAMING]
    found += [(f"incident {one.id}", one.ruling) for one in case.losses if _names_rows(one)]
    for who, ruling in found:
        if ruling.is_cut_off:
            number = len(ruling.keys)
            named = "1 key or range" if number == 1 else f"{number} keys or ranges"
            why = f"{who} names {named}, and more rows may be wrong"
            return NextStep.ASK, why
    return None


def _is_older(case: RepairCase) -> Objection | None:
    """Reject a finding from before the last backfill, because the rows may be right by now."""
    for one in case.own:
        if one.ended is None or one.wish.dry:
            continue
        for fail in case.fails:
            if not is_after_backfill(fail, one):
                why = f"{one.kind} {one.id} has ended; waiting for {fail.check} to run again"
                return NextStep.WAIT, why
    return None


def _is_repeated(case: RepairCase) -> Objection | None:
    """Reject a finding that is not as of a later position than the last automatic repair.

    After a clock step, an old finding may seem to be newer than that repair.
    """
    last = dict(case.automatic[-1].wish.fences) if case.automatic else {}
    for fail in case.fails:
        if any(one.number <= last.get(one.source, one.number - 1) for one in fail.as_of):
            why = f"{case.automatic[-1].id} repaired as of the same position or a later one"
            return NextStep.WAIT, f"{fail.check} has not run since: {why}"
    return None


def _has_failed(case: RepairCase) -> Objection | None:
    """Reject a table whose last repair ended incomplete, or that reached the limit of tries."""
    last = {one.wish.incident: one for one in case.automatic}  # the last repair of each incident
    for one in (last[loss.id] for loss in case.losses if loss.id in last):
        if one.ended is not None and not one.done:
            why = f"repair {one.id} has ended incomplete: {one.why or 'no reason'}"
            return NextStep.ASK, why
    its = [one for one in case.automatic if one.wish.incident == case.incident.id]
    lately = [one for one in case.automatic if one.at > case.now - DAY]
    made, tries = max(len(its), len(lately)), case.rule.tries
    if made >= tries:
        text = "1 automatic repair has" if made == 1 else f"{made} automatic repairs have"
        return NextStep.ASK, f"{text} not helped for long; the limit is {tries} (repair.tries)"
    return None


def _exceeds(case: RepairCase, count: int) -> Objection | None:
    rule = case.rule
    if count > rule.rows:
        return (
            NextStep.ASK,
            f"{describe_count(count)} are above the limit of {rule.rows} (repair.rows)",
        )
    before = sum(rows for _, rows in case.spent)
    if before + count > rule.rows_a_day:
        text = f"{describe_count(before)} were repaired within 24 hours, and {count} more are above"
        return NextStep.ASK, f"{text} the limit of {rule.rows_a_day} (repair.rows_a_day)"
    tables = {table for table, _ in case.spent}
    if case.table not in tables and len(tables) >= rule.tables_a_day:
        text = f"{len(tables)} tables were repaired within 24 hours"
        return NextStep.ASK, f"{text}, the limit is {rule.tables_a_day} (repair.tables_a_day)"
    return None


OBJECTIONS: tuple[Callable[[RepairCase], Objection | None], ...] = (
    _is_asked_for,
    _is_in_hand,
    _is_running,
    _is_early,
    _is_held,
    _is_unproven,
    _is_doubled,
    _is_cut_off,
    _is_keyed,
    _is_older,
    _is_repeated,
    _has_failed,
)
"""Reasons against a repair that do not depend on its rows; the first one that applies counts."""


@dataclass(eq=False)
class AutoRepair:
    """Requests automatic repairs, in the same way as a person would."""

    rules: tuple[RepairRule, ...]
    backfills: StoredBackfills
    clock: Callable[[], datetime]

    def decide(self, board: Board) -> tuple[RepairDecision, ...]:
        """Decide for each incident of *board*; wait while the store does not answer."""
        candidates = [*_candidates(board, self.rules)]
        if not candidates:
            return ()
        now = self.clock()
        try:
            requests = self.backfills.since(look_back_to(board, now))
        except UnreachableError as error:
            why = f"the store does not say which repairs were made before: {error}"
            return tuple(
                RepairDecision(incident.id, view.table.name, NextStep.WAIT, why)
                for incident, view, _ in candidates
            )
        return decide_repairs(board, self.rules, requests, now)

    def look(self, board: Board) -> None:
        """Request the repairs that are due on *board* and are still due; none if it is stale.

        It decides again, because a repair may have begun or ended since the board was made.
        """
        due = any(one.step is NextStep.REPAIR for one in board.repairs)
        if not due or board.stale(self.clock()):
            return
        for one in self.decide(board):
            if one.step is not NextStep.REPAIR:
                continue
            try:
                self._request(one)
            except UnreachableError as error:  # the next round decides again
                log.warning("repair not requested", table=one.table, why=str(error))

    def _request(self, one: RepairDecision) -> None:
        # the reason has no keys: it is kept forever, also for tables with hidden values
        reason = f"repair: auto; {one.why}"
        wish = BackfillSpec(
            Origin.REPAIR,
            one.rows,
            incident=one.incident,
            checks=one.checks,
            automatic=True,
            fences=one.fences,
        )
        if request_automatically(self.backfills, one.table, reason, wish, self.clock()):
            log.warning("repair", table=one.table, incident=one.incident, why=one.why)
