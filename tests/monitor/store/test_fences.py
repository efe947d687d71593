from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.store.history import HISTORY
from monitor.store.store import ServiceStore
from pipeline.clocks import ClockStep
from tests.example_count import examples
from tests.monitor.store.kit import DAY, NOW, SECOND, fence, first, newest


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


def test_f01_fences_that_fell_are_gone_and_no_others(store: ServiceStore) -> None:
    for number in range(5):
        store.fences.add(fence(number, NOW + number * SECOND))
    store.fences.add(replace(fence(2, NOW), source="other"))

    store.fences.fell(ClockStep("shop", 2, 4, NOW, NOW, NOW))

    assert [one.number for one in store.fences.since("shop", NOW)] == [0, 1, 4]
    assert newest(store, "other") is not None
