import pytest

from monitor.store.store import ServiceStore
from tests.monitor.store.kit import DAY, NOW, SECOND


def test_a_tick_is_accepted_once(store: ServiceStore) -> None:
    assert store.ticks.start("cycle", NOW, NOW)
    assert not store.ticks.start("cycle", NOW, NOW)


@pytest.mark.parametrize("result", ["done", "failed", "late"])
def test_a_tick_ends_once(store: ServiceStore, result: str) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.finish("cycle", NOW, NOW + SECOND, result, "detail")
    store.ticks.finish("cycle", NOW, NOW + DAY, "done")

    (tick,) = store.ticks.list("cycle")
    assert (tick.result, tick.detail, tick.finished) == (result, "detail", NOW + SECOND)
    assert store.ticks.totals() == {("cycle", result): 1}


def test_a_tick_that_failed_before_its_start_is_written_down(store: ServiceStore) -> None:
    store.ticks.finish("cycle", NOW, NOW, "failed", "no store")

    assert store.ticks.totals() == {("cycle", "failed"): 1}


def test_missed_ticks_in_a_row_are_one_row_and_counted_each(store: ServiceStore) -> None:
    planneds = [NOW + n * SECOND for n in range(5)]

    store.ticks.miss_many("cycle", planneds, NOW + DAY)
    store.ticks.miss_many("cycle", planneds, NOW + DAY)
    store.ticks.miss_many("cycle", [], NOW + DAY)

    (tick,) = store.ticks.list(result="missed")
    assert (tick.planned, tick.until, tick.many) == (planneds[0], planneds[-1], 5)
    assert store.ticks.totals() == {("cycle", "missed"): 5}
    assert store.ticks.last("cycle") == planneds[-1]
    assert not store.ticks.start("cycle", planneds[2], NOW + DAY)


def test_a_tick_stands_for_those_it_ran_through_and_counts_as_one(store: ServiceStore) -> None:
    through = [NOW + n * SECOND for n in (1, 2)]
    store.ticks.start("land", NOW, NOW)

    store.ticks.finish("land", NOW, NOW + 2 * SECOND, "done", through=through)

    (tick,) = store.ticks.list("land")
    assert (tick.planned, tick.until, tick.many) == (NOW, through[-1], 3)
    assert store.ticks.totals() == {("land", "done"): 1}
    assert store.ticks.lasts() == {"land": through[-1]}
    assert not store.ticks.start("land", through[0], NOW + DAY)


def test_what_a_dead_service_left_running_is_closed_as_failed(store: ServiceStore) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.start("land", NOW, NOW)
    store.ticks.finish("land", NOW, NOW, "done")

    (tick,) = store.ticks.interrupted(NOW + DAY)

    assert tick.job == "cycle"
    assert store.ticks.totals() == {("cycle", "failed"): 1, ("land", "done"): 1}
    assert store.ticks.interrupted(NOW + DAY) == ()


def test_the_next_life_knows_where_each_job_was(store: ServiceStore) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.finish("cycle", NOW, NOW + SECOND, "done")
    store.ticks.start("cycle", NOW + SECOND, NOW + SECOND)
    store.ticks.miss_many("land", (NOW,), NOW)

    assert store.ticks.lasts() == {"cycle": NOW + SECOND, "land": NOW}
    assert store.ticks.last_success() == {"cycle": NOW + SECOND}
    assert store.ticks.last("other") is None


def test_old_good_ticks_go_first_and_the_newest_and_the_totals_stay(store: ServiceStore) -> None:
    for number in range(3):
        planned = NOW + number * SECOND
        store.ticks.start("cycle", planned, planned)
        store.ticks.finish("cycle", planned, planned, "done" if number else "failed")

    store.ticks.prune(NOW + 2 * DAY)

    assert [tick.result for tick in store.ticks.list()] == ["done", "failed"]
    assert store.ticks.last("cycle") == NOW + 2 * SECOND
    assert store.ticks.totals() == {("cycle", "done"): 2, ("cycle", "failed"): 1}


def test_f01_ticks_that_a_fast_clock_has_used_up_are_given_back(store: ServiceStore) -> None:
    store.ticks.miss_many("watch", [NOW + n * SECOND for n in range(6)], NOW)
    store.ticks.start("watch", NOW + 6 * SECOND, NOW)
    store.ticks.start("land", NOW + 6 * SECOND, NOW)

    store.ticks.forget("watch", NOW + 3 * SECOND, SECOND)

    (tick,) = store.ticks.list("watch")
    assert (tick.planned, tick.until, tick.many) == (NOW, NOW + 2 * SECOND, 3)
    assert store.ticks.start("watch", NOW + 3 * SECOND, NOW)
    assert store.ticks.last("land") == NOW + 6 * SECOND
