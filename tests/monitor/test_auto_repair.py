"""Rows that a check proved wrong are read again where a rule allows it, and within its limits."""

from dataclasses import replace
from datetime import timedelta
from itertools import count

import httpx
import pytest
from click.testing import CliRunner

from alerts.model import (
    Acknowledgement,
    AlertKind,
    Cause,
    Incident,
    IncidentState,
    Member,
    Severity,
)
from checks.blocks import StateSince, TableState
from checks.counting import Differences, SuspectState, rule_differences
from checks.model import MOST_KEYS, Outcome, RowColumns, Ruling, Verdict
from checks.readiness import ReadinessState
from monitor.auto_repair import AutoRepair, count_rows
from monitor.board import Board, NextStep, RepairDecision, TableView
from monitor.commands import explain
from monitor.config.model import RepairRule
from monitor.store.requests import BackfillSpec, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillState, RowSelection, SelectedKey, SelectedRange
from pipeline.errors import UnreachableError
from pipeline.model import Origin, Shard, Table
from tests.monitor.boards import FENCE, NOW, view
from tests.monitor.rig import USERS, Rig

AUTO = RepairRule("shop.*", "auto")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class RepairHarness:
    """A service with open incidents of tables; each round is a minute after the last."""

    def __init__(self, store: ServiceStore, *rules: RepairRule) -> None:
        self.store, self.now, self.board = store, NOW, Board(NOW)
        self.fences = count(FENCE.number)
        self.repairs = AutoRepair(rules, store.backfills, lambda: self.now)

    def find(self, table: str, *keys: str, check: str = "range_counts", more: int = 0) -> str:
        """Let a check find *keys* of a table wrong now; return the id of its new incident."""
        name = f"shop.{table}"
        ruling = Ruling(Outcome.FAIL, "rows are missing", "missing_rows", keys, more)
        fence = replace(FENCE, number=next(self.fences), at=self.now)
        fail = Verdict(name, check, ruling, self.now, (fence,), value=float(len(keys)))
        there = self.board.table(name) or self._view(table)
        seen = replace(
            there, verdicts=(fail, *(one for one in there.verdicts if one.check != check))
        )
        rest = [one for one in self.board.tables if one.table.name != name]
        incidents = self.board.incidents
        if not any(one.cause.subject == name and one.cause.check == check for one in incidents):
            incidents = (*incidents, self._incident(name, check, ruling))
        self.board = replace(self.board, tables=(seen, *rest), incidents=incidents)
        return next(
            one.id for one in incidents if (one.cause.subject, one.cause.check) == (name, check)
        )

    def _view(self, table: str) -> TableView:
        made = view(f"shop.{table}", ReadinessState.READY, seconds=(1, 1, 1))
        life = StateSince(f"shop.{table}", TableState.INCREMENTAL, NOW)
        return replace(made, verdicts=(), life=life)

    def _incident(self, name: str, check: str, ruling: Ruling) -> Incident:
        return Incident(
            Cause(AlertKind.LOST, check, name),
            IncidentState.FIRING,
            *(self.now, self.now, self.now, ruling),
            members=(Member(name, check),),
            failing=(Member(name, check),),
            severity=Severity.CRITICAL,
        )

    def turn(self, check: str, outcome: Outcome) -> None:
        """Let *check* of the only table say *outcome* now."""
        (seen,) = self.board.tables
        said = [
            replace(one, ruling=Ruling(outcome, "said")) if one.check == check else one
            for one in seen.verdicts
        ]
        self.board = replace(self.board, tables=(replace(seen, verdicts=tuple(said)),))

    def join(self) -> None:
        """Let the first incident be that of all losses of its table, as losses that share rows."""
        first, *rest = sorted(self.board.incidents, key=lambda one: one.opened)
        failing = tuple(member for one in (first, *rest) for member in one.failing)
        first = replace(first, members=failing, failing=failing)
        self.board = replace(self.board, incidents=(first,))

    def resolve(self) -> None:
        """All checks pass again."""
        self.board = Board(self.now)

    def change(self, **rest: object) -> None:
        """Change the only incident."""
        (one,) = self.board.incidents
        self.board = replace(self.board, incidents=(replace(one, **rest),))  # type: ignore[arg-type]

    def after(self, time: timedelta = MINUTE) -> list[RepairDecision]:
        """Return what is decided after *time*, and request it."""
        self.now += time
        self.board = replace(self.board, at=self.now)
        made = self.repairs.decide(self.board)
        self.repairs.look(replace(self.board, repairs=made))
        return [*made]

    def end(self, *, done: bool = True) -> None:
        """End every running repair, complete or refused."""
        for one in self.store.backfills.wished():
            state = BackfillState(
                one.id, one.table, "s/t", 1, 7 if done else None, "" if done else "no", not done
            )
            self.store.backfills.record_states([state], self.now)

    @property
    def running(self) -> list[str]:
        """Return the tables that are read again."""
        return [one.table for one in self.store.backfills.wished()]


def test_the_named_rows_are_read_again_and_the_act_is_recorded_with_the_incident(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    incident = harness.find("t", "shop/shop.t:17-29")

    (made,) = harness.after()

    assert (made.step, made.incident) == (NextStep.REPAIR, incident)
    (one,) = store.backfills.list()
    assert (one.who, one.table, one.kind) == ("sluice", "shop.t", "repair")
    assert one.reason == "repair: auto; 13 rows that range_counts found wrong are read again"
    rows = RowSelection(ranges=(SelectedRange(17, 29, "shop/shop.t"),), most=13)
    assert one.wish == BackfillSpec(
        Origin.REPAIR, rows, incident=incident, checks=("range_counts",)
    )
    assert (one.wish.automatic, one.wish.fences) == (True, ((FENCE.source, FENCE.number),))


@pytest.mark.parametrize(
    ("most", "step", "repaired"),
    [
        pytest.param(25, NextStep.REPAIR, 25, id="as many as the limit"),
        pytest.param(24, NextStep.ASK, 0, id="one more than the limit"),
    ],
)
def test_each_row_of_an_incident_that_names_many_counts_for_the_limit(
    store: ServiceStore, most: int, step: NextStep, repaired: int
) -> None:
    harness = RepairHarness(store, replace(AUTO, rows=most))
    harness.find("t", *[f"shop/shop.t:{number}" for number in range(0, 50, 2)], check="values")

    (made,) = harness.after()

    assert made.step is step
    assert sum(one.wish.rows.most or 0 for one in store.backfills.list()) == repaired


@pytest.mark.parametrize(
    ("rules", "decided"),
    [
        pytest.param((), 0, id="no rule"),
        pytest.param((RepairRule("mall.*", "auto"),), 0, id="other tables"),
        pytest.param((AUTO,), 1, id="allowed"),
    ],
)
def test_it_is_for_a_person_where_no_rule_says_auto(
    *, store: ServiceStore, rules: tuple[RepairRule, ...], decided: int
) -> None:
    harness = RepairHarness(store, *rules)
    harness.find("t", "shop/shop.t:17")

    assert len(harness.after()) == len(store.backfills.list()) == decided


def test_a_rule_that_says_ask_names_the_command_and_repairs_nothing(store: ServiceStore) -> None:
    harness = RepairHarness(store, RepairRule("shop.t"), AUTO)
    incident = harness.find("t", "shop/shop.t:17")

    (made,) = harness.after()

    command = f"sluice repair shop.t --incident {incident} --reason ..."
    assert (made.step, made.why) == (NextStep.ASK, f"the rule for shop.t says ask; run: {command}")
    assert store.backfills.list() == ()


def test_a_key_or_a_range_without_a_shard_counts_once_for_each_shard() -> None:
    one, two = Shard("shop", "shop_0.t"), Shard("shop", "shop_1.t")
    keys = (SelectedKey("[1]"), SelectedKey("[2]", str(one)))
    ranges = (SelectedRange(1, 3), SelectedRange(5, 6, str(two)))

    assert count_rows(RowSelection(keys, ranges), Table("shop.t", (one, two), ("id",))) == 11


def test_one_row_is_named_as_one(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:17")

    (made,) = harness.after()

    assert made.why == "1 row that range_counts found wrong is read again"


LIMITED = replace(AUTO, rows=5, rows_a_day=8, tables_a_day=2)


@pytest.mark.parametrize(
    ("keys", "more", "why"),
    [
        pytest.param(("shop/shop.t:1-6",), 0, "6 rows are above the limit of 5", id="too many"),
        pytest.param(("shop/shop.t:1",), 3, "names 1 key or range, and more", id="cut"),
        pytest.param(tuple(f"shop/shop.t:{n}" for n in range(20)), 1, "names 20 keys", id="21"),
        pytest.param(("something",), 0, "no range of ids", id="no key"),
    ],
)
def test_nothing_is_repaired_unless_all_wrong_rows_are_known_and_few(
    *, store: ServiceStore, keys: tuple[str, ...], more: int, why: str
) -> None:
    harness = RepairHarness(store, LIMITED)
    harness.find("t", *keys, more=more)

    (made,) = harness.after()

    assert made.step is NextStep.ASK
    assert why in made.why
    assert store.backfills.list() == ()


def test_as_many_keys_as_a_check_names_are_repaired_if_they_are_all(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", *[f"shop/shop.t:{n}" for n in range(MOST_KEYS)])

    (made,) = harness.after()

    assert made.step is NextStep.REPAIR
    assert [one.wish.rows.most for one in store.backfills.list()] == [MOST_KEYS]


def test_keys_that_are_no_ids_are_left_to_a_person(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    incident = harness.find("t", '["shop","shop.t","17","x"]', check="values")
    (seen,) = harness.board.tables
    keyed = replace(seen, table=replace(seen.table, key=("id", "line"), id_column=None))
    harness.board = replace(harness.board, tables=(keyed,))

    (made,) = harness.after()

    assert made.step is NextStep.ASK
    assert made.why.endswith(f"run: sluice repair shop.t --incident {incident} --reason ...")


def test_nothing_is_repaired_while_another_check_of_the_table_does_not_name_all_rows(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1", check="values")
    harness.find("t", "shop/shop.t:1", check="range_counts", more=900)

    assert {one.step for one in harness.after()} == {NextStep.ASK}
    assert store.backfills.list() == ()


def test_the_rows_of_a_day_are_limited_over_all_tables_of_the_rule_and_across_restarts(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, LIMITED)
    harness.find("a", "shop/shop.a:1-5")
    harness.find("b", "shop/shop.b:1-4")

    first = {one.table: one for one in harness.after()}
    harness.end()
    harness = replace_service(harness, LIMITED)
    harness.find("b", "shop/shop.b:1-4")
    (second,) = harness.after()
    harness.find("b", "shop/shop.b:1-3")
    (third,) = harness.after()

    assert first["shop.a"].step is NextStep.REPAIR
    assert first["shop.b"].step is second.step is NextStep.ASK
    assert "5 rows were repaired within 24 hours, and 4 more are above the limit of 8" in second.why
    assert third.step is NextStep.REPAIR


def replace_service(harness: RepairHarness, *rules: RepairRule) -> RepairHarness:
    """Restart the service: only the store is kept."""
    made = RepairHarness(harness.store, *rules)
    made.now, made.fences = harness.now, harness.fences
    return made


def test_a_day_has_its_tables_and_a_day_later_there_are_others(store: ServiceStore) -> None:
    harness = RepairHarness(store, LIMITED)
    for name in "abc":
        harness.find(name, f"shop/shop.{name}:1")

    made = {one.table: one for one in harness.after()}
    harness.end()
    first = [one.table for one in store.backfills.list()]
    harness.after(24 * HOUR)

    assert sorted(first) == ["shop.a", "shop.b"]
    assert "2 tables were repaired within 24 hours" in made["shop.c"].why
    assert "shop.c" in harness.running


def test_other_rules_have_limits_of_their_own(store: ServiceStore) -> None:
    own = replace(LIMITED, tables="shop.b")
    harness = RepairHarness(store, own, LIMITED)
    harness.find("a", "shop/shop.a:1-5")
    harness.find("b", "shop/shop.b:1-5")

    harness.after()

    assert sorted(harness.running) == ["shop.a", "shop.b"]


@pytest.mark.parametrize(
    "state", [one for one in TableState if one is not TableState.INCREMENTAL], ids=str
)
def test_a_table_that_is_not_merged_as_usual_is_left_alone(
    store: ServiceStore, state: TableState
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    (seen,) = harness.board.tables
    life = StateSince("shop.t", state, NOW, "offsets are gone")
    harness.board = replace(harness.board, tables=(replace(seen, life=life),))

    (made,) = harness.after()

    assert (made.step, made.why) == (NextStep.ASK, f"the table is {state}: offsets are gone")
    assert store.backfills.list() == ()


@pytest.mark.parametrize(
    ("rest", "step", "why"),
    [
        pytest.param(
            {"acknowledged": Acknowledgement("ann", NOW)},
            *(NextStep.ASK, "ann has acknowledged the incident"),
            id="in hand",
        ),
        pytest.param(
            {"state": IncidentState.PENDING}, NextStep.WAIT, "is pending", id="not fired yet"
        ),
        pytest.param(
            {"state": IncidentState.RECOVERING}, NextStep.WAIT, "is recovering", id="it passes"
        ),
    ],
)
def test_an_incident_that_is_in_hand_or_not_firing_is_left_alone(
    store: ServiceStore, rest: dict[str, object], step: NextStep, why: str
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.change(**rest)

    (made,) = harness.after()

    assert made.step is step
    assert why in made.why
    assert store.backfills.list() == ()


def test_it_waits_until_the_incident_has_been_open_for_as_long_as_the_rule_says(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, replace(AUTO, after=5 * MINUTE))
    harness.find("t", "shop/shop.t:1")

    (early,) = harness.after(4 * MINUTE)
    (due,) = harness.after(MINUTE)

    assert (early.step, due.step) == (NextStep.WAIT, NextStep.REPAIR)


def test_an_unknown_after_the_fail_is_waited_for(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    (seen,) = harness.board.tables
    unknown = replace(seen.verdicts[0], ruling=Ruling(Outcome.UNKNOWN, "moves", "in_motion"))
    harness.board = replace(harness.board, tables=(replace(seen, verdicts=(unknown,)),))

    (made,) = harness.after()

    assert (made.step, made.why) == (
        NextStep.WAIT,
        "the last result of range_counts is unknown, not fail",
    )


def test_all_checks_of_an_incident_that_fail_name_its_rows(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1", check="max_id")
    harness.find("t", "shop/shop.t:1", "shop/shop.t:7")
    harness.find("t", "shop/shop.t:9", check="values")
    harness.join()

    harness.turn("max_id", Outcome.PASS)
    (made,) = harness.after()

    assert made.step is NextStep.REPAIR
    (one,) = store.backfills.list()
    assert one.wish.checks == ("range_counts", "values")
    assert [span.first for span in one.wish.rows.ranges] == [1, 7, 9]
    assert (
        one.reason == "repair: auto; 3 rows that range_counts and values found wrong are read again"
    )


def test_each_check_that_fails_must_have_run_after_the_last_repair(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.find("t", "shop/shop.t:1", check="values")
    harness.join()
    harness.after()
    harness.end()
    harness.now += MINUTE
    harness.find("t", "shop/shop.t:1")

    (made,) = harness.after()

    assert made.step is NextStep.WAIT
    assert "waiting for values to run again" in made.why


def test_the_loss_of_a_check_that_is_unknown_now_still_says_that_more_rows_are_wrong(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:7", check="values")
    cut = harness.find("t", "shop/shop.t:1", more=900)
    harness.turn("range_counts", Outcome.UNKNOWN)

    made = {one.incident: one for one in harness.after()}

    assert NextStep.REPAIR not in {one.step for one in made.values()}
    (values,) = (one for one in made.values() if one.incident != cut)
    assert values.why == f"incident {cut} names 1 key or range, and more rows may be wrong"


def test_a_table_is_left_alone_while_a_person_has_acknowledged_another_loss_of_it(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    known = harness.find("t", "shop/shop.t:1")
    harness.change(acknowledged=Acknowledgement("ann", NOW))
    harness.find("t", "shop/shop.t:7", check="values")

    assert {one.step for one in harness.after()} == {NextStep.ASK}
    assert f"ann has acknowledged incident {known}" in harness.after()[1].why


def test_a_loss_of_a_copy_that_a_person_has_acknowledged_stops_no_repair_of_the_mirror(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "ledger:shop.t:copy:cache@5", check="copy_ledger")
    harness.change(acknowledged=Acknowledgement("ann", NOW))
    harness.find("t", "shop/shop.t:7", check="values")

    assert [one.step for one in harness.after()] == [NextStep.REPAIR]


def test_a_table_is_left_alone_while_the_repair_of_another_loss_of_it_has_ended_incomplete(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.after()
    harness.end(done=False)
    harness.now += MINUTE
    harness.find("t", "shop/shop.t:1")
    harness.find("t", "shop/shop.t:7", check="values")

    made = harness.after()

    assert [one.step for one in made] == [NextStep.ASK, NextStep.ASK]
    assert made[1].why.endswith("has ended incomplete: no")


def test_it_waits_again_after_the_incident_has_grown(store: ServiceStore) -> None:
    harness = RepairHarness(store, replace(AUTO, after=5 * MINUTE))
    harness.find("t", "shop/shop.t:1")
    harness.change(worse=NOW + 4 * MINUTE)

    (early,) = harness.after(6 * MINUTE)
    (due,) = harness.after(3 * MINUTE)

    assert (early.step, due.step) == (NextStep.WAIT, NextStep.REPAIR)
    assert early.why.startswith("the incident has grown")


def test_the_highest_ids_of_several_shards_are_left_to_a_person(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop_0.t:100", "shop/shop_1.t:90", check="max_id")

    (made,) = harness.after()

    assert (made.step, store.backfills.list()) == (NextStep.ASK, ())
    assert "max_id names several shards" in made.why


def test_rows_that_are_in_the_mirror_twice_are_not_read_again(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    (seen,) = harness.board.tables
    (fail,) = seen.verdicts
    doubled = replace(fail, ruling=replace(fail.ruling, code="doubled_rows"))
    harness.board = replace(harness.board, tables=(replace(seen, verdicts=(doubled,)),))

    (made,) = harness.after()

    assert (made.step, store.backfills.list()) == (NextStep.ASK, ())


def test_a_row_that_an_open_incident_names_as_doubled_is_not_repaired(store: ServiceStore) -> None:
    """The check that found it does not say so now, and another check fails."""
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:2", check="values")
    (incident,) = harness.board.incidents
    harness.change(ruling=replace(incident.ruling, code="doubled_rows"))
    harness.turn("values", Outcome.UNKNOWN)
    harness.find("t", "shop/shop.t:1")

    made = harness.after()

    twice = "rows are in the mirror twice, which a repair does not end"
    assert {one.why for one in made if one.incident == harness.board.incidents[1].id} == {twice}
    assert store.backfills.list() == ()


def test_a_row_that_is_in_the_mirror_twice_is_seen_among_others_that_any_check_names(
    store: ServiceStore,
) -> None:
    shard = Shard("shop", "shop.t")
    found = (((shard, 1), SuspectState.MISSING), ((shard, 2), SuspectState.DOUBLED))
    ruling = rule_differences(Differences((), "all", found))
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.find("t", *ruling.keys, check="values")
    (seen,) = harness.board.tables
    told = [replace(v, ruling=ruling) if v.check == "values" else v for v in seen.verdicts]
    harness.board = replace(harness.board, tables=(replace(seen, verdicts=tuple(told)),))

    made = harness.after()

    assert ruling.code == "missing_rows"
    assert {one.why for one in made} == {
        "rows are in the mirror twice, which a repair does not end"
    }
    assert store.backfills.list() == ()


def test_while_a_repair_runs_and_until_the_check_has_run_after_it_there_is_no_other(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.after()

    (running,) = harness.after()
    harness.end()
    (unchecked,) = harness.after()

    assert running.step is unchecked.step is NextStep.WAIT
    assert "by sluice is running" in running.why
    assert "waiting for range_counts to run again" in unchecked.why
    assert len(store.backfills.list()) == 1


def test_a_finding_from_before_the_repair_of_a_person_is_waited_for(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    wish = BackfillSpec(Origin.REPAIR, RowSelection(ranges=(SelectedRange(1, 1),)))
    store.backfills.add(StoredBackfill("x", "shop.t", "mine", "ann", NOW, wish=wish))
    harness.end()

    (made,) = harness.after()

    assert made.step is NextStep.WAIT
    assert len(store.backfills.list()) == 1


def test_a_finding_is_repaired_once_also_if_a_clock_was_wrong(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.now += HOUR
    harness.find("t", "shop/shop.t:1")
    harness.now -= HOUR
    harness.change(opened=NOW)

    (first,) = harness.after()
    harness.end()
    (second,) = harness.after()
    harness.now += 2 * HOUR
    harness.find("t", "shop/shop.t:1")
    (third,) = harness.after()

    assert [one.step for one in (first, second, third)] == [
        NextStep.REPAIR,
        NextStep.WAIT,
        NextStep.REPAIR,
    ]
    assert "range_counts has not run since" in second.why


def test_repairs_of_a_person_with_the_name_of_the_service_count_for_no_limit(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, LIMITED)
    wish = BackfillSpec(Origin.REPAIR, RowSelection(ranges=(SelectedRange(1, 1),), most=100_000))
    store.backfills.add(StoredBackfill("x", "shop.a", "mine", "sluice", NOW, wish=wish))
    harness.end()
    harness.find("t", "shop/shop.t:1")

    (made,) = harness.after()

    assert made.step is NextStep.REPAIR


def test_what_was_not_cured_is_tried_again_and_then_left_to_a_person(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    steps = []
    for _ in range(3):
        harness.find("t", "shop/shop.t:1")
        steps += [one.step for one in harness.after()]
        harness.end()
        harness.now += MINUTE
    harness = carry_on(harness)
    harness.find("t", "shop/shop.t:1")
    (later,) = harness.after(48 * HOUR)

    assert steps == [NextStep.REPAIR, NextStep.REPAIR, NextStep.ASK]
    assert later.step is NextStep.ASK
    assert "2 automatic repairs have not helped for long; the limit is 2" in later.why


def carry_on(harness: RepairHarness) -> RepairHarness:
    """Restart the service; its incidents are those of the store."""
    made = replace_service(harness, AUTO)
    made.board = harness.board
    return made


def test_a_table_that_loses_rows_again_and_again_is_left_to_a_person_for_a_day(
    store: ServiceStore,
) -> None:
    harness = RepairHarness(store, AUTO)
    steps = []
    for n in range(3):
        harness.find("t", f"shop/shop.t:{n}")
        steps += [one.step for one in harness.after()]
        harness.end()
        harness.now += MINUTE
        harness.resolve()
    harness.now += 24 * HOUR
    harness.find("t", "shop/shop.t:9")
    steps += [one.step for one in harness.after()]

    assert steps == [NextStep.REPAIR, NextStep.REPAIR, NextStep.ASK, NextStep.REPAIR]


def test_a_repair_that_was_cancelled_or_refused_is_not_made_again(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.after()
    harness.end(done=False)
    harness.now += MINUTE
    harness.find("t", "shop/shop.t:1")

    (made,) = harness.after()

    assert made.step is NextStep.ASK
    assert made.why.endswith("has ended incomplete: no")


def test_two_incidents_of_a_table_are_repaired_one_after_the_other(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.find("t", "shop/shop.t:1-3", check="values")

    assert [one.step for one in harness.after()] == [NextStep.REPAIR, NextStep.WAIT]
    assert harness.running == ["shop.t"]


def test_while_the_store_does_not_answer_a_repair_waits_and_says_so(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    with monkeypatch.context() as down:
        down.setattr(store.backfills, "since", _do_not_answer)
        (unread,) = harness.after()
    with monkeypatch.context() as down:
        down.setattr(store.backfills, "add", _do_not_answer)
        harness.after()
    unwritten = harness.running

    harness.after()

    assert unread.step is NextStep.WAIT
    assert unread.why == "the store does not say which repairs were made before: disk is full"
    assert (unwritten, harness.running) == ([], ["shop.t"])


def _do_not_answer(_: object) -> None:
    raise UnreachableError("disk is full")


def test_nothing_is_repaired_by_a_board_that_is_old(store: ServiceStore) -> None:
    harness = RepairHarness(store, AUTO)
    harness.find("t", "shop/shop.t:1")
    harness.now += HOUR

    harness.repairs.look(replace(harness.board, repairs=harness.repairs.decide(harness.board)))

    assert store.backfills.list() == ()


def test_rows_of_a_table_with_hidden_values_count_after_their_keys_are_forgotten(
    store: ServiceStore,
) -> None:
    store.backfills.hides = lambda _: True
    harness = RepairHarness(store, LIMITED)
    harness.find("a", "shop/shop.a:1-5")
    harness.after()
    harness.end()
    harness.find("b", "shop/shop.b:1-4")

    made = {one.table: one for one in harness.after()}

    assert "5 rows were repaired within 24 hours" in made["shop.b"].why


def test_explain_the_page_and_the_api_say_what_follows_and_why(rig: Rig, server: str) -> None:
    rig.round(2)
    rule = replace(AUTO, after=HOUR)
    rig.cycle.repairs = AutoRepair((rule,), rig.store.backfills, rig.clock).decide
    keys = [f"shop/shop.users:{number}" for number in range(0, 50, 2)]
    columns = (RowColumns(("v",), (keys[0],)),)
    ruling = Ruling(Outcome.FAIL, "rows missing", "missing_rows", tuple(keys), 3, columns)
    rig.recorder.tell([Verdict(USERS, "range_counts", ruling, rig.clock(), value=13.0)])
    rig.round()
    told = "the incident must be open for 3600 s first (repair.after)"

    result = CliRunner().invoke(explain.COMMAND, [USERS, "--server", server])
    found = httpx.get(f"{server}/v1/incidents").json()
    page = httpx.get(server).text

    (one,) = [one for one in found if one["check"] == "range_counts"]
    assert (one["keys"], one["more_keys"], one["more_rows"]) == (keys[:20], 5, 3)
    whole = httpx.get(f"{server}/v1/incidents/{one['id']}").json()
    assert (whole["keys"], whole["more_keys"]) == (keys, 0)
    assert whole["differing"] == [{"columns": ["v"], "more_columns": 0, "keys": keys[:1]}]
    assert httpx.get(f"{server}/v1/incidents/none").status_code == 404
    assert f'<a href="v1/incidents/{one["id"]}">and 19 more</a>' in page
    assert one["repairs"] == [{"table": USERS, "next": "wait", "why": told}]
    last = f"automatic repair of incident {one['id']}: wait, {told}"
    assert result.output.splitlines()[-1] == last
    assert f"automatic repair of {USERS}: <b>wait</b>, {told}" in page
