from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.blocks import waivers_of
from checks.model import Outcome, Ruling, Verdict
from monitor.observe.verdicts import Rulings
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import DAY, HOUR, NOW, SECOND, fence


def verdict(letter: str, number: int, value: float | None = None) -> Verdict:
    outcome = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}[letter]
    ruling = Ruling(outcome, f"number {number}", "code", ("[1, 2)",))
    at = NOW + number * SECOND
    return Verdict("shop.orders", "max_id", ruling, at, (fence(number, at),), value, "", "run-1")


def test_verdicts_come_back_as_they_were_the_newest_per_check_and_outcome(
    store: ServiceStore,
) -> None:
    store.verdicts.add([verdict("P", 1, 2.5), verdict("F", 2), verdict("F", 3), verdict("?", 4)])
    other = Verdict("shop.users", "lag", Ruling(Outcome.PASS, "fine"), NOW)
    store.verdicts.add([other])

    found = store.verdicts.latest()

    assert found == (verdict("P", 1, 2.5), verdict("F", 3), verdict("?", 4), other)


def test_f01_what_was_ruled_last_is_so_whatever_the_clock_said(store: ServiceStore) -> None:
    """A PASS by a clock that was fast, a FAIL once it was set right, not knowing, a restart."""
    store.verdicts.add([verdict("P", 720)])
    store.verdicts.add([verdict("F", 3)])
    store.verdicts.add([verdict("?", 4)])
    rulings = Rulings()

    rulings.load(store.verdicts)

    assert rulings.of("shop.orders") == (verdict("?", 4), verdict("F", 3))
    assert rulings.last_pass("shop.orders", "max_id") == verdict("P", 720)


def test_a_fail_outlives_months_of_not_knowing(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1), verdict("F", 2)])
    for day in range(60):
        store.verdicts.add([verdict("?", 86_400 * day + 3)])
        store.verdicts.prune(NOW + day * DAY)
    rulings = Rulings()

    rulings.load(store.verdicts)

    newest, ruled = rulings.of("shop.orders")
    assert (newest.ruling.outcome, ruled) == (Outcome.UNKNOWN, verdict("F", 2))


def test_the_history_holds_values_only_oldest_first(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1, 1.0), verdict("?", 2), verdict("F", 3, 3.0)])
    store.verdicts.add([verdict("P", 4, 4.0)])

    assert [value for _, value in store.verdicts.history("shop.orders", "max_id")] == [1, 3, 4]
    newest = store.verdicts.history("shop.orders", "max_id", limit=2)
    assert newest == ((NOW + 3 * SECOND, 3.0), (NOW + 4 * SECOND, 4.0))


def test_verdicts_are_listed_newest_first_by_what_is_asked(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", n) for n in range(5)])

    listed = store.verdicts.list("shop.orders", since=NOW + 2 * SECOND, limit=2)

    assert listed == (verdict("P", 4), verdict("P", 3))
    assert store.verdicts.list(check="lag") == ()


def test_old_verdicts_keep_one_of_each_outcome(store: ServiceStore) -> None:
    store.verdicts.add([verdict("PPFP"[n], n) for n in range(4)])

    store.verdicts.prune(NOW + 3 * DAY)

    kept = {each.ruling.reason for each in store.verdicts.list()}
    assert kept == {"number 0", "number 2", "number 3"}


def hourly(letters: str, code: str = "late") -> list[Verdict]:
    outcomes = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}
    return [
        Verdict("shop.orders", "max_id", Ruling(outcomes[letter], str(n), code), NOW + n * HOUR)
        for n, letter in enumerate(letters)
    ]


def kept(store: ServiceStore) -> list[str]:
    return [one.ruling.reason for one in reversed(store.verdicts.list())]


def test_f44_of_a_ruling_that_lasted_its_beginning_and_its_end_are_kept(
    store: ServiceStore,
) -> None:
    store.verdicts.add(hourly("PPPPFFFPP?P"))

    gone = store.verdicts.prune(NOW + 3 * DAY)

    assert kept(store) == ["0", "3", "4", "6", "7", "8", "9", "10"]
    assert gone == 3


def test_what_fails_for_another_reason_is_another_ruling(store: ServiceStore) -> None:
    late = hourly("FFF")
    store.verdicts.add([late[0], *hourly("FF", code="gone")[1:], late[2]])

    assert store.verdicts.prune(NOW + 3 * DAY) == 0


def test_other_tables_and_checks_are_no_neighbours(store: ServiceStore) -> None:
    first, second, third = hourly("PPP")
    store.verdicts.add([first, replace(second, table="shop.users"), third])
    store.verdicts.add([replace(one, check="lag") for one in (first, third)])

    assert store.verdicts.prune(NOW + 3 * DAY) == 0


def test_what_was_ruled_again_stays_for_a_day(store: ServiceStore) -> None:
    store.verdicts.add(hourly("P" * 30))

    store.verdicts.prune(NOW + DAY + 4 * HOUR + SECOND)

    assert kept(store) == ["0", *map(str, range(5, 30))]


def test_what_a_probe_looks_back_on_stays(store: ServiceStore) -> None:
    store.verdicts.add(hourly("PPPP"))

    assert store.verdicts.prune(NOW + 3 * DAY, ["max_id"]) == 0
    assert store.verdicts.prune(NOW + 3 * DAY, ["lag"]) == 2


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("guilty = '{'", id="no JSON"),
        pytest.param("as_of = '[{}]'", id="no fences"),
        pytest.param("outcome = 'fial'", id="no outcome"),
        pytest.param("at = 'soon'", id="no time"),
        pytest.param("at = 99999999999999999999999", id="no time that there is"),
        pytest.param("reason = CAST(x'ff' AS TEXT)", id="no text"),
    ],
)
def test_f143_a_fail_that_cannot_be_read_still_fails(store: ServiceStore, damage: str) -> None:
    passed, failed = verdict("P", 1), verdict("F", 2)
    other = replace(passed, table="shop.users")
    store.verdicts.add([passed, failed, other])
    with store.write() as connection:
        connection.exec_driver_sql(f"UPDATE verdicts SET {damage} WHERE outcome = 'fail'")
    rulings = Rulings()

    rulings.load(store.verdicts)

    assert store.database.unreadable == 1
    assert set(store.verdicts.list()) == {passed, other}
    assert other in store.verdicts.latest()
    newest = max(rulings.of(passed.table), key=lambda one: one.at)  # as the gate takes it
    assert (newest.ruling.outcome, newest.check) == (Outcome.FAIL, passed.check)
    assert waivers_of(newest, ()) == ("",), "nobody can waive what is not known"
    rulings.add([replace(passed, at=newest.at + SECOND)])
    assert [one.ruling.outcome for one in rulings.of(passed.table)] == [Outcome.PASS]


@pytest.mark.parametrize("letter", ["P", "?"])
def test_f143_what_cannot_be_read_hides_no_fail_before_it(store: ServiceStore, letter: str) -> None:
    store.verdicts.add([verdict("F", 1), verdict(letter, 2)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE verdicts SET guilty = '{' WHERE outcome != 'fail'")
    rulings = Rulings()

    rulings.load(store.verdicts)

    ruled = [one.ruling.outcome for one in rulings.of("shop.orders")]
    assert Outcome.FAIL in ruled
    assert Outcome.PASS not in ruled


def test_f143_when_a_fail_ended_is_taken_for_late_where_it_cannot_be_read(
    store: ServiceStore,
) -> None:
    store.verdicts.end_fails([verdict("P", 1)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE fail_ends SET at = 'soon'")

    (ended,) = store.verdicts.fail_ends().values()

    assert ended > datetime.now(UTC) - timedelta(minutes=1)


def test_f143_numbers_that_are_none_are_no_history(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", n, float(n)) for n in range(3)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE verdicts SET at = 'soon' WHERE value = 0")
        connection.exec_driver_sql("UPDATE verdicts SET value = 'much' WHERE value = 1")

    assert store.verdicts.history("shop.orders", "max_id") == ((NOW + 2 * SECOND, 2.0),)
