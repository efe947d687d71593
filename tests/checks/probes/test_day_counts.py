from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes.day_counts import DayCounts
from checks.run import Check, run_probe
from pipeline.errors import ConfigError
from pipeline.model import Op
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


def test_without_columns_it_asks_nothing() -> None:
    made = world()

    answer = run_probe(Check("day_counts", DayCounts(), TABLE), made)

    assert isinstance(answer, NotYet)
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
