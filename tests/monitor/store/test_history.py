from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.model import Outcome, Ruling, Verdict
from monitor.store.store import ServiceStore
from monitor.store.thin import HISTORY
from tests.example_count import examples
from tests.monitor.store.kit import DAY, NOW, SECOND, fence, first, newest


def verdict(letter: str, number: int, value: float | None = None) -> Verdict:
    outcome = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}[letter]
    ruling = Ruling(outcome, f"number {number}", "code", ("[1, 2)",))
    at = NOW + number * SECOND
    return Verdict("shop.orders", "max_id", ruling, at, (fence(number, at),), value, "", "run-1")


def test_a_fence_comes_back_as_it_was(store: ServiceStore) -> None:
    store.fences.add(fence(7, NOW))

    assert newest(store) == fence(7, NOW)
    assert newest(store, "other") is None


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        pytest.param(-5, 0, id="before all"),
        pytest.param(1, 1, id="an instant is in"),
        pytest.param(1.5, 2, id="between two"),
        pytest.param(3.000001, None, id="after all there is none yet"),
    ],
)
def test_the_first_fence_at_or_after(
    store: ServiceStore, seconds: float, number: int | None
) -> None:
    for each in range(4):
        store.fences.add(fence(each, NOW + each * SECOND))

    found = first(store, NOW + seconds * SECOND)

    assert (found and found.number) == number


def test_fences_since_are_bounded_and_ascending(store: ServiceStore) -> None:
    for each in range(10):
        store.fences.add(fence(each, NOW + each * SECOND))

    found = store.fences.since("shop", NOW + 3 * SECOND, limit=4)

    assert [each.number for each in found] == [3, 4, 5, 6]


@given(st.lists(st.integers(0, 45 * 24 * 3600), min_size=1, max_size=60), st.integers(0, 40 * 1440))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pruning_never_loses_an_answer_for_forty_days_nor_makes_one_less_cautious(
    store: ServiceStore, ages: list[int], asked: int
) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM fences")
        for age in set(ages):
            store.fences.add(fence(age, NOW - age * SECOND))
    instant = NOW - timedelta(minutes=asked)
    before = first(store, instant)
    last = newest(store)

    store.fences.prune(NOW)

    after = first(store, instant)
    assert newest(store) == last
    if before is None:
        assert after is None
    else:
        assert after is not None
        assert after.at >= before.at


def test_the_first_of_each_minute_stays_after_a_day_and_of_each_quarter_after_ten(
    store: ServiceStore,
) -> None:
    minute = NOW.replace(second=0, microsecond=0)
    for age in (DAY * 2, DAY * 12, DAY * 50):
        for second in (0, 10, 61, 905):
            store.fences.add(fence(second, minute - age + second * SECOND))

    store.fences.prune(NOW)

    def left(age: timedelta) -> list[int]:
        found = store.fences.since("shop", minute - age)
        return [each.number for each in found if each.at < minute - age + DAY]

    assert left(DAY * 2) == [0, 61, 905]
    assert left(DAY * 12) == [0, 905]
    assert left(DAY * 50) == []


def test_the_newest_survives_any_age(store: ServiceStore) -> None:
    store.fences.add(fence(1, NOW - 100 * DAY))
    store.fences.add(fence(2, NOW - 99 * DAY))

    store.fences.prune(NOW)

    assert newest(store) == fence(2, NOW - 99 * DAY)
    assert HISTORY > 40 * DAY


def test_verdicts_come_back_as_they_were_the_newest_per_check(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1, 2.5), verdict("F", 2), verdict("?", 3)])
    other = Verdict("shop.users", "lag", Ruling(Outcome.PASS, "fine"), NOW)
    store.verdicts.add([other])

    assert set(store.verdicts.latest()) == {verdict("?", 3), other}


def test_the_last_known_ruling_looks_past_unknown(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1), verdict("F", 2), verdict("?", 3)])

    known = (Outcome.PASS, Outcome.FAIL)

    assert store.verdicts.last("shop.orders", "max_id", known) == verdict("F", 2)
    assert store.verdicts.last("shop.orders", "max_id", [Outcome.PASS]) == verdict("P", 1)
    assert store.verdicts.last("shop.users", "max_id", known) is None


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


def test_what_a_check_remembers_is_replaced(store: ServiceStore) -> None:
    first = store.memory.recall("shop.orders", "max_id")
    store.memory.remember("shop.orders", "max_id", {"ids": [1, 2], "since": None}, NOW)
    store.memory.remember("shop.orders", "max_id", {"ids": [3]}, NOW)

    assert first is None
    assert store.memory.recall("shop.orders", "max_id") == {"ids": [3]}
    assert store.memory.recall("shop.orders", "lag") is None


def test_times_keep_their_microseconds_and_their_zone(store: ServiceStore) -> None:
    other = NOW.astimezone()
    store.fences.add(fence(1, other))

    found = newest(store)

    assert found is not None
    assert found.at == NOW
    assert found.at.utcoffset() == timedelta(0)
    assert isinstance(found.at, datetime)
