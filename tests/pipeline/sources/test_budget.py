"""The budget of a source: means hold, what is saved is bounded, and waiting is said."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ProofError, SlowError, SparedError, UnreachableError
from pipeline.model import Shard
from pipeline.row_digest import RangeDigest
from pipeline.sources.budget import (
    SAVED,
    Allowance,
    BudgetedQueries,
    Pace,
    SourceBudget,
    Spending,
)
from pipeline.sources.source import Limits, TableQueries

T = Shard("shop", "shop.orders")
LIMITS = Limits(rows_per_second=1_000, busy=timedelta(milliseconds=500))


@dataclass
class Clock:
    """Time that passes by waiting and by queries alone."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Server(TableQueries):
    """Counts *rows* in each range, in *seconds*."""

    clock: Clock
    rows: int = 0
    seconds: float = 0.0
    load: float = 0.0
    error: Exception | None = None

    def columns(self, shard: Shard) -> Sequence[object]:  # type: ignore[override]
        return ()

    def count_ids(
        self, shard: Shard, column: str, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, ...]:
        self.clock.now += self.seconds
        if self.error is not None:
            raise self.error
        return (self.rows,) * len(ranges)

    def strain(self) -> float:
        return self.load


def budget_of(clock: Clock, limits: Limits = LIMITS) -> SourceBudget:
    return SourceBudget("shop", limits, clock, clock.sleep)


def gate(budget: SourceBudget, server: Server, check: str = "range_counts") -> BudgetedQueries:
    return BudgetedQueries(server, lambda: server, budget, check)


def count(queries: BudgetedQueries) -> tuple[int, ...]:
    return queries.count_ids(T, "id", [(0, 9)])


def test_a_small_table_never_waits() -> None:
    clock = Clock()
    queries = gate(budget_of(clock), Server(clock, rows=100, seconds=0.002))

    for _ in range(1_000):
        count(queries)
        clock.now += 0.2

    assert clock.slept == []


@pytest.mark.parametrize(
    ("rows", "seconds", "least"),
    [
        pytest.param(5_000, 0.0, 1_000 * 5_000 / 1_000, id="by rows"),
        pytest.param(1, 1.0, 1_000 * 1.0 / 0.5, id="by the time of queries"),
    ],
)
def test_the_mean_holds_whatever_one_query_costs(rows: int, seconds: float, least: float) -> None:
    clock = Clock()
    queries, begun = gate(budget_of(clock), Server(clock, rows, seconds)), clock.now

    for _ in range(1_000):
        count(queries)

    took = clock.now - begun
    assert least - 2 * SAVED - max(rows / 1_000, seconds / 0.5) <= took <= least


@given(st.lists(st.tuples(st.integers(0, 50_000), st.floats(0, 3), st.floats(0, 30)), max_size=30))
def test_no_more_is_spent_than_was_saved_and_refilled(
    queries: list[tuple[int, float, float]],
) -> None:
    clock = Clock()
    budget, begun, spent, last = budget_of(clock), clock.now, 0, 0

    for rows, seconds, pause in queries:
        clock.now += pause
        count(gate(budget, Server(clock, rows, seconds)))
        spent, last = spent + rows, rows

    assert spent - last <= (2 * SAVED + clock.now - begun) * 1_000 + 1


def test_0_is_no_limit() -> None:
    clock = Clock()
    limits = replace(LIMITS, rows_per_second=0, busy=timedelta())
    budget = budget_of(clock, limits)

    for _ in range(100):
        count(gate(budget, Server(clock, rows=10**9, seconds=9.0)))

    assert (clock.slept, budget.allowance()) == ([], Allowance())


def test_a_check_begins_once_nothing_is_owed() -> None:
    clock = Clock()
    budget = budget_of(clock)
    count(gate(budget, Server(clock, rows=13_000)))

    budget.admit()

    assert sum(clock.slept) == pytest.approx(3.0)
    assert budget.waited == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("load", "share"),
    [(0.0, 1.0), (0.5, 1.0), (0.75, 0.5), (0.99, 0.1), (1.0, 0.1)],
    ids=["idle", "half", "busy", "nearly full", "full"],
)
def test_a_loaded_server_has_less_to_give(load: float, share: float) -> None:
    eased = Pace(1_000, 0.5).eased(load)

    assert (eased.rows, eased.busy) == pytest.approx((1_000 * share, 0.5 * share))


def test_the_strain_of_the_server_slows_the_next_query() -> None:
    clock = Clock()
    budget = budget_of(clock)
    count(gate(budget, Server(clock, rows=11_000, load=0.75)))

    budget.admit()

    assert sum(clock.slept) == pytest.approx(
        12.0
    )  # 5,000 of the rows saved are above what it saves


def test_a_replica_that_is_late_slows_the_next_query() -> None:
    clock = Clock()
    server, budget = Server(clock), budget_of(clock)

    def late() -> TableQueries:
        clock.now += 0.75 * LIMITS.statement.total_seconds()
        return server

    count(BudgetedQueries(server, late, budget))
    assert budget.strain == pytest.approx(0.75)

    def too_late() -> TableQueries:
        raise SparedError("lag", "source:shop: the replica is behind")

    with pytest.raises(SparedError):
        count(BudgetedQueries(server, too_late, budget))
    assert budget.strain == 1.0


def test_waiting_for_a_replica_costs_nothing() -> None:
    clock = Clock()
    server, budget = Server(clock, rows=7, seconds=0.25), budget_of(clock)

    def late() -> TableQueries:
        clock.now += 2
        return server

    count(BudgetedQueries(server, late, budget, "values"))

    assert budget.spent == {"values": Spending(7, 0.25, 1)}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(SlowError("source:shop: slow: interrupted (3024)"), id="killed"),
        pytest.param(UnreachableError("source:shop: down: lost (2013)"), id="connection lost"),
        pytest.param(ProofError("about 10 rows in one range"), id="refused after its rows came"),
    ],
)
def test_a_query_that_fails_costs_its_time(error: Exception) -> None:
    clock = Clock()
    budget, begun = budget_of(clock), clock.now
    slow = Server(clock, seconds=5.0, error=error)

    for _ in range(100):
        with pytest.raises(type(error)):
            count(gate(budget, slow))

    assert clock.now - begun >= 100 * 5.0 / 0.5 - 2 * SAVED - 5.0 / 0.5
    assert budget.spent["range_counts"] == Spending(0, 500.0, 100)


def test_a_query_that_was_not_sent_keeps_no_other_waiting() -> None:
    clock = Clock()
    budget = budget_of(clock)
    error = SlowError("source:shop: slow: cannot connect: timed out")
    error.sent = False
    frozen = Server(clock, seconds=7.0, error=error)

    for _ in range(5):
        with pytest.raises(SlowError):
            count(gate(budget, frozen))
    budget.admit()

    assert clock.slept == []
    assert budget.spent["range_counts"] == Spending(0, 35.0, 5)


def test_what_is_allowed_now_is_what_is_left() -> None:
    clock = Clock()
    budget = budget_of(clock)
    assert budget.allowance() == Allowance(10_000)

    count(gate(budget, Server(clock, rows=4_000)))
    assert budget.allowance() == Allowance(6_000)

    count(gate(budget, Server(clock, rows=9_000)))
    assert budget.allowance() == Allowance(0)


def test_time_that_is_owed_leaves_no_rows() -> None:
    clock = Clock()
    budget = budget_of(clock)

    count(gate(budget, Server(clock, seconds=30.0)))

    assert budget.allowance().rows == 0


def test_who_waits_too_long_says_so_with_figures_and_for_a_minute() -> None:
    clock = Clock()
    budget = budget_of(clock)
    count(gate(budget, Server(clock, rows=30_000)))

    budget.admit()

    pressed = budget.allowance().pressed
    assert pressed.startswith("checks of source shop waited 20 s in the last 60 s for")
    assert "limits.rows_per_second (1000) and limits.busy (500ms)" in pressed
    clock.now += 61
    assert budget.allowance().pressed == ""


def test_a_scan_that_finds_few_rows_reads_as_many_as_the_last_whole_one() -> None:
    budget = budget_of(Clock())

    assert budget.count_scan(T, 900, whole=True) == 900
    assert budget.count_scan(T, 3, whole=False) == 900
    assert budget.count_scan(T, 800, whole=True) == 800
    assert budget.count_scan(Shard("shop", "shop.users"), 3, whole=False) == 3


def test_rows_are_counted_by_check() -> None:
    clock = Clock()
    budget = budget_of(clock)
    server = Server(clock, rows=5)
    count(gate(budget, server, "max_id"))
    count(gate(budget, server, "values"))
    count(gate(budget, server, "values"))

    assert {name: one.rows for name, one in budget.spent.items()} == {"max_id": 5, "values": 10}


def test_digests_are_rows() -> None:
    clock = Clock()

    class Digesting(Server):
        def digests(self, *_: object) -> tuple[RangeDigest, ...]:
            return (RangeDigest(3, 1), RangeDigest(4, 1))

    budget = budget_of(clock)
    gate(budget, Digesting(clock)).digests(T, "id", [(0, 9), (9, 99)], ())

    assert budget.spent["range_counts"].rows == 7


def test_the_pace_returns_when_a_strain_is_old() -> None:
    """Waiting checks send no query that could look at the server again."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    budget = SourceBudget("shop", Limits(), lambda: now[0], sleep)
    budget.note_strain(1.0)
    for _ in range(4):
        budget.charge("values", 10, 30.0, sent=True)
    budget.admit(SAVED)

    assert now[0] < 300
