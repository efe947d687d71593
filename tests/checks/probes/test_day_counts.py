from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes import day_counts
from checks.probes.day_counts import DayCounts
from checks.run import Check, run_probe
from checks.world import Allowance
from pipeline.errors import ConfigError, SlowError, TooManyRowsError, UnreachableError
from pipeline.model import CaptureScope, Missing, Op, Table
from tests.checks.world_fake import ONE, START, TABLE, TWO, FakeWorld, in_step

PROBE = DayCounts(columns=("born",), fields=("total",))
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
TODAY = START.replace(tzinfo=None)
YESTERDAY = TODAY - DAY


def world(rows: int = 9, **more: Any) -> FakeWorld:
    """Rows of shard ONE, three a day of the days before today."""
    made = FakeWorld(**more)
    for shard in (ONE, TWO):
        made.alter(shard, born="datetime", total="bigint")
    for id_ in range(1, rows + 1):
        born = TODAY - DAY * (1 + (id_ - 1) // 3) + SECOND * 3600 * id_
        made.values[id_] = {"born": born, "total": 100 * id_}
    made.commit(*[(Op.CREATE, ONE, id_) for id_ in range(1, rows + 1)])
    made.catch_up()
    return made


def run_rounds(made: FakeWorld, rounds: int = 4, probe: DayCounts = PROBE) -> list[Ruling]:
    return in_step("day_counts", probe, made, rounds)


def test_equal_days_pass() -> None:
    (*_, last) = run_rounds(world())

    assert last.outcome is Outcome.PASS
    assert last.reason == "9 rows of 7 days are on both sides"


def obvious_world(column: str = "created_at", **more: Any) -> FakeWorld:
    """One like `world`, whose rows have the time of their creation in an indexed *column*."""
    made = world(**more)
    for shard in (ONE, TWO):
        made.alter(shard, **{column: "datetime", "total": "bigint"})
        made.dated_columns[shard] = ("at", column)
    for own in made.values.values():
        own[column] = own["born"]  # type: ignore[index]  # rows of a test
    made.catch_up()
    return made


CHOSEN = DayCounts(fields=("total",))


def choose(made: FakeWorld, probe: DayCounts = CHOSEN) -> Verdict | NotYet:
    return run_probe(Check("day_counts", probe, TABLE), made)


@pytest.mark.parametrize(
    ("dated", "why"),
    [
        pytest.param((), "no index begins with a NOT NULL column", id="no index"),
        pytest.param(("born",), "no index begins with a column of a usual name", id="its name"),
        pytest.param(Missing("it is down"), "source shop has not described", id="not described"),
    ],
)
def test_without_an_obvious_column_it_asks_nothing_and_says_why(
    dated: tuple[str, ...] | Missing, why: str
) -> None:
    made = world()
    made.dated_columns = {ONE: dated, TWO: ("born", "created_at")}

    answer = choose(made)

    assert isinstance(answer, NotYet)
    assert answer.rests
    assert answer.why.startswith(f"no date column is chosen: {why}")
    assert made.memory == {}


def test_a_column_that_a_standard_writes_is_not_chosen() -> None:
    answer = choose_of(replace(TABLE, by_standard=("created_at",)), obvious_world())

    assert isinstance(answer, NotYet)
    assert answer.why.startswith("no date column is chosen")


def choose_of(table: Table, made: FakeWorld) -> Verdict | NotYet:
    return run_probe(Check("day_counts", CHOSEN, table), made)


def test_the_switch_keeps_it_from_choosing() -> None:
    made = obvious_world()

    answer = choose(made, DayCounts(choose_column=False))

    assert answer == NotYet("no columns are named in probes.day_counts.columns", rests=True)
    assert made.memory == {}


def test_named_columns_win() -> None:
    made = world()
    made.dated_columns = dict.fromkeys((ONE, TWO), ("created_at",))

    assert run_rounds(made)[-1].reason == "9 rows of 7 days are on both sides"


@pytest.mark.parametrize("column", ["created_at", "createTime", "gmt_create"])
def test_a_chosen_column_counts_one_day_first_and_then_three_after_hours(column: str) -> None:
    made = obvious_world(column)

    (first,) = run_rounds(made, 2, CHOSEN)
    waits = choose(made)
    made.tick(timedelta(hours=6))
    (later,) = run_rounds(made, 2, CHOSEN)

    by = f"of {column}, chosen by its name and index, are on both sides"
    assert (first.outcome, first.reason) == (Outcome.PASS, f"3 rows of 1 day {by}")
    assert isinstance(waits, NotYet)
    assert waits.rests
    assert "its days are counted again after 2026-03-02T06:00:" in waits.why
    assert (later.outcome, later.reason) == (Outcome.PASS, f"9 rows of 3 days {by}")


def test_a_table_with_many_rows_is_counted_more_rarely() -> None:
    made = obvious_world(rows=9)
    for id_ in range(100, 100 + 3_000):
        made.values[id_] = {"created_at": YESTERDAY, "born": YESTERDAY, "total": 1}
    made.commit(*[(Op.CREATE, ONE, id_) for id_ in range(100, 100 + 3_000)])
    made.catch_up()
    day_counts.CHOSEN_PAUSE, kept = timedelta(seconds=1), day_counts.CHOSEN_PAUSE
    try:
        run_rounds(made, 2, CHOSEN)
    finally:
        day_counts.CHOSEN_PAUSE = kept

    assert round(made.memory["day_counts"]["pause"]) == 30


@pytest.mark.parametrize(
    "allowed",
    [pytest.param(Allowance(0), id="used up"), pytest.param(Allowance(9, "waits"), id="waits")],
)
def test_a_chosen_column_takes_nothing_from_other_checks(allowed: Allowance) -> None:
    made = obvious_world()
    made.allowed_now = allowed

    answer = choose(made)

    assert isinstance(answer, NotYet)
    assert "other checks use the budget" in answer.why
    assert made.memory == {}


def test_a_chosen_column_counts_as_many_days_as_the_budget_has() -> None:
    made = obvious_world()
    run_rounds(made, 2, CHOSEN)
    made.tick(timedelta(hours=6))
    made.allowed_now = Allowance(8)

    (ruling,) = run_rounds(made, 2, CHOSEN)

    assert "3 rows of 1 day" in ruling.reason


def test_a_lost_row_is_found_by_a_chosen_column() -> None:
    made = obvious_world()
    del made.copy[ONE][2]

    found = run_rounds(made, 3, CHOSEN)

    assert [(one.outcome, one.code) for one in found] == [(Outcome.FAIL, "days_differ")]
    assert found[0].keys == ("shop/shop_00.orders:created_at=2026-03-01",)


@pytest.mark.parametrize("untold", [False, True], ids=["told", "without the row of before"])
def test_a_chosen_column_that_is_updated_all_day_gives_no_verdict(*, untold: bool) -> None:
    made = obvious_world(untold=untold)
    answers = []
    for round_ in range(40):
        id_ = round_ % 9 + 1
        made.earlier[id_] = made.values[id_]
        moved = YESTERDAY - DAY * (made.values[id_]["created_at"] >= YESTERDAY)
        made.values[id_] = {**made.values[id_], "created_at": moved + SECOND * round_}
        made.commit((Op.UPDATE, ONE, id_))
        made.catch_up()
        made.tick(timedelta(minutes=10))
        answers.append(choose(made))

    outcomes = {one.ruling.outcome for one in answers if isinstance(one, Verdict)}
    assert outcomes <= {Outcome.PASS}
    assert any(isinstance(one, NotYet) and "that changed each time" in one.why for one in answers)


class Uncollected(FakeWorld):
    """Its collector does not answer."""

    def collected(self, source: str) -> CaptureScope:
        raise UnreachableError(f"collector:{source}: down")


def test_a_collector_that_does_not_answer_lets_a_chosen_column_wait() -> None:
    made = obvious_world()
    silent = Uncollected(**{one.name: getattr(made, one.name) for one in fields(made)})

    answer = choose(silent)

    assert isinstance(answer, NotYet)
    assert "collector:shop: down" in answer.why
    assert silent.memory == {}


@pytest.mark.parametrize(
    "error",
    [TooManyRowsError("about 6000000 rows of it in one range"), SlowError("source:shop: slow")],
)
def test_a_source_that_refuses_a_chosen_column_is_left_alone_for_a_day(error: Exception) -> None:
    made = obvious_world()
    made.error = error

    (refused, _) = answers = [choose(made), choose(made)]

    assert isinstance(refused, NotYet)
    assert str(error) in refused.why
    assert all(isinstance(one, NotYet) for one in answers)
    assert made.memory["day_counts"]["pause"] == timedelta(days=1).total_seconds()


def test_a_chosen_column_whose_mirror_is_late_gives_no_verdict() -> None:
    made = obvious_world()
    choose(made)
    made.tick(timedelta(hours=2))

    answer = choose(made)

    assert isinstance(answer, NotYet)
    assert "waited 7200 s" in answer.why


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        pytest.param({"alters": lambda _: "column.mask"}, "the collector alters it", id="masked"),
        pytest.param({"columns": {ONE: {}, TWO: {}}}, "no schema", id="not landed"),
    ],
)
def test_a_column_that_the_mirror_has_otherwise_is_not_counted(
    harm: dict[str, Any], why: str
) -> None:
    made = obvious_world("created_on")
    made.dated_columns = dict.fromkeys((ONE, TWO), ("created_at",))
    if "alters" in harm:
        made = obvious_world()
    for name, value in harm.items():
        setattr(made, name, value)

    answer = choose(made)

    assert isinstance(answer, NotYet)
    assert why in answer.why
    assert made.memory == {}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(replace(PROBE, fields=()), id="fewer fields"),
        pytest.param(replace(PROBE, fields=("total", "total")), id="more"),
        pytest.param(replace(PROBE, zone="Asia/Tokyo"), id="other days"),
    ],
)
def test_what_was_added_up_for_another_question_is_added_up_anew(asked: DayCounts) -> None:
    """It outlives a restart, after which the config may ask for something else."""
    made = world()
    run_probe(Check("day_counts", PROBE, TABLE), made)
    made.catch_up()

    answer = run_probe(Check("day_counts", asked, TABLE), made)

    assert answer == NotYet("the source was summed for the first time; the next round compares")
    assert run_rounds(made, probe=asked)[-1].outcome is Outcome.PASS


def test_a_lost_row_is_found_by_its_day_and_second() -> None:
    made = world()
    del made.copy[ONE][2]

    (*_, last) = run_rounds(made)

    assert (last.outcome, last.code) == (Outcome.FAIL, "days_differ")
    assert last.keys == ("shop/shop_00.orders:born=2026-03-01",)
    assert "3 rows at the source, 2 in the mirror" in last.reason
    assert "born=2026-03-01 at 02:00:00" in last.reason


def test_a_changed_value_that_no_count_shows_is_found() -> None:
    made = world()
    made.copied[5] = {**made.values[5], "total": 1}

    (*_, last) = run_rounds(made)

    assert (last.outcome, last.code) == (Outcome.FAIL, "sums_differ")
    assert "3 rows on both sides, total differ" in last.reason


def test_it_is_said_once_it_has_differed_twice() -> None:
    made = world()
    made.copy[ONE][77] = 1
    made.copied[77] = {"born": YESTERDAY, "total": 0}

    assert run_rounds(made, 2) == []
    assert run_rounds(made, 1)[-1].outcome is Outcome.FAIL


def test_a_row_that_lands_between_the_two_readings_explains_its_day() -> None:
    made = world()
    made.values |= {20: {"born": YESTERDAY, "total": 1}}
    run_probe(Check("day_counts", PROBE, TABLE), made)
    made.commit((Op.CREATE, ONE, 20))
    made.catch_up()

    answer = run_probe(Check("day_counts", PROBE, TABLE), made)

    assert isinstance(answer, NotYet)
    assert run_rounds(made)[-1].outcome is Outcome.PASS


def test_a_change_of_one_day_excuses_no_other() -> None:
    made = world()
    del made.copy[ONE][4]
    rulings = []
    for id_ in range(20, 26):
        made.values |= {id_: {"born": YESTERDAY, "total": 1}}
        made.commit((Op.CREATE, ONE, id_))
        rulings += run_rounds(made, 1)

    failed = [one for one in rulings if one.outcome is Outcome.FAIL]
    assert failed
    assert {one.keys for one in failed} == {("shop/shop_00.orders:born=2026-02-28",)}


def test_a_day_that_never_stands_still_is_unknown() -> None:
    made = world()
    probe, rulings = Check("day_counts", PROBE, TABLE), []
    for id_ in range(20, 32):
        made.values |= {id_: {"born": YESTERDAY, "total": 1}}
        made.commit((Op.CREATE, ONE, id_))
        made.catch_up()
        rulings.append(run_probe(probe, made))

    codes = {one.ruling.code for one in rulings if not isinstance(one, NotYet)}
    assert codes == {"in_motion"}


def test_a_change_that_nobody_can_read_may_be_of_any_day() -> None:
    made = world()
    made.columns = {of: {**known, "later": "datetime"} for of, known in made.columns.items()}
    probe = DayCounts(columns=("later",))
    made.values |= {20: {"later": YESTERDAY, "total": 1}}
    run_probe(Check("day_counts", probe, TABLE), made)
    made.commit((Op.CREATE, ONE, 20))
    made.catch_up()

    assert isinstance(run_probe(Check("day_counts", probe, TABLE), made), NotYet)
    assert not made.memory["day_counts"]["suspects"], "no schema that has landed knows the column"


def test_an_update_that_does_not_tell_what_was_before_may_leave_any_day() -> None:
    made = world(untold=True)
    made.values[4] = {**made.values[4], "born": TODAY}
    made.copied[4] = {"born": YESTERDAY - DAY, "total": 400}
    run_probe(Check("day_counts", PROBE, TABLE), made)
    made.commit((Op.UPDATE, ONE, 4))
    made.catch_up()

    answer = run_probe(Check("day_counts", PROBE, TABLE), made)

    assert isinstance(answer, NotYet), "its old day is short of a row, for a reason"


def test_a_source_that_does_not_answer_is_unknown_not_fail() -> None:
    made = world()
    run_rounds(made, 1)
    made.error = made.refusal

    assert run_rounds(made, 2)[-1].outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("name", ["zone", "wall"])
def test_a_zone_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: 'Mars/Base' is not a time zone"):
        DayCounts(**{name: "Mars/Base"})  # type: ignore[arg-type]


def test_a_column_that_there_is_not_is_unknown_with_words() -> None:
    ruling = run_rounds(world(), 2, DayCounts(columns=("gone",)))[-1]

    assert ruling.outcome is Outcome.UNKNOWN
    assert "has no column 'gone'; name one of id, born, total" in ruling.reason


@pytest.mark.parametrize("written", ["born", "total"])
def test_a_column_that_the_mirror_has_by_a_standard_is_refused_by_name(written: str) -> None:
    table = replace(TABLE, by_standard=(written,))

    told = run_probe(Check("day_counts", PROBE, table), world())

    assert isinstance(told, Verdict)
    assert (told.ruling.outcome, told.ruling.code) == (Outcome.UNKNOWN, "unsupported")
    assert told.ruling.reason == f"column {written} is written by a standard"


@pytest.mark.parametrize("step", [timedelta(days=-10), timedelta(hours=5)])
def test_a_pause_that_began_by_a_clock_that_was_wrong_delays_nothing(step: timedelta) -> None:
    made = obvious_world()
    made.error = SlowError("source:shop: slow")
    choose(made)
    memory = made.memory["day_counts"]
    made.memory["day_counts"] = {**memory, "rested": (made.now - step).isoformat()}
    made.error = None

    answer = choose(made)

    assert isinstance(answer, NotYet)
    assert ("its days are counted again after" in answer.why) is (step > timedelta())


def tallies(**other: Any) -> dict[str, Any]:
    """A memory like that of a round of `PROBE`, but for *other* parts of what was seen."""
    own = {"born": [[9, "900"]]}
    counted = {"shop/shop_00.orders": own, "shop/shop_01.orders": own}
    seen = {"days": ["2026-02-28"], "ended": "2026-03-01T09:00:00+00:00", "landed": 0}
    return {"seen": {**seen, "counted": counted, **other}}


@pytest.mark.parametrize(
    "memory",
    [
        {"seen": 7},
        tallies(days=[]),
        tallies(days=["yesterday"]),
        tallies(ended="2026-03-01T09:00:00"),
        tallies(landed=None),
        tallies(counted={}),
        tallies(counted={"shop/shop_00.orders": {}}),
        tallies(counted={"shop/shop_00.orders": {"born": []}}),
        tallies(counted={"shop/shop_00.orders": {"born": [[9]]}}),
        tallies(counted={"shop/shop_00.orders": {"born": [[9, "x"]]}}),
        tallies(counted={"shop/shop_00.orders": {"other": [[9, "9"]]}}),
        {"suspects": 7},
        {"tries": "x"},
        {"busiest": "x"},
        {"rested": "x", "pause": 1},
        {"rested": "2026-03-01T09:00:00+00:00", "pause": 1e300},
    ],
)
def test_a_memory_of_another_shape_is_named_once_and_ends_no_finding(
    memory: dict[str, Any],
) -> None:
    made = world()
    made.copy[ONE].pop(4)
    assert run_rounds(made, 6)[-1].outcome is Outcome.FAIL

    question = made.memory["day_counts"]["asked"]
    made.memory["day_counts"] = {**memory, "asked": question}
    found = run_rounds(made, 6)

    assert found[0].code == "unprovable"
    assert "the stored memory of check day_counts for shop.orders" in found[0].reason
    assert {one.code for one in found[1:]} == {"days_differ"}


def test_a_memory_of_another_shape_of_a_chosen_column_is_named_once() -> None:
    made = obvious_world()
    run_rounds(made, 2, CHOSEN)
    made.memory["day_counts"] = {**made.memory["day_counts"], "rested": "x"}

    first, *more = run_rounds(made, 4, CHOSEN)

    assert (first.outcome, first.code) == (Outcome.UNKNOWN, "unprovable")
    assert {one.outcome for one in more} == {Outcome.PASS}


@pytest.mark.parametrize("probe", [DayCounts(columns=("created_at",)), CHOSEN])
def test_a_day_that_differed_is_compared_until_it_is_equal(probe: DayCounts) -> None:
    made = obvious_world()
    lost = made.copy[ONE].pop(2)
    assert run_rounds(made, 3, probe)[-1].outcome is Outcome.FAIL

    for day in range(1, 10):
        made.tick(DAY)
        if day == 5:
            made.outdated.add("day_counts")  # as after the change log was replaced
        assert {one.outcome for one in run_rounds(made, 4, probe)} == {Outcome.FAIL}

    made.copy[ONE][2] = lost
    made.tick(DAY)
    last = run_rounds(made, 4, probe)[-1]
    assert last.outcome is Outcome.PASS
    made.tick(DAY)
    days = 7 if probe.columns else 3
    assert f"0 rows of {days} days" in run_rounds(made, 4, probe)[-1].reason


def test_a_day_that_differed_by_another_question_is_compared_again() -> None:
    made = obvious_world()
    made.copy[ONE].pop(2)
    assert run_rounds(made, 3, DayCounts(columns=("created_at",)))[-1].outcome is Outcome.FAIL
    made.tick(8 * DAY)

    asked = DayCounts(columns=("created_at",), fields=("total",), days=2)

    assert run_rounds(made, 4, asked)[-1].keys == ("shop/shop_00.orders:created_at=2026-03-01",)


def test_a_day_that_differed_is_compared_also_while_the_budget_allows_one_day() -> None:
    made = obvious_world()
    made.copy[ONE].pop(2)
    assert run_rounds(made, 3, CHOSEN)[-1].outcome is Outcome.FAIL
    made.tick(DAY)
    made.allowed_now = Allowance(8)

    assert {one.outcome for one in run_rounds(made, 4, CHOSEN)} == {Outcome.FAIL}
