"""Orders that do not rise, found at once for all partitions: as one by one, and fast."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.changelog.table import ORDER_TYPE
from pipeline.landing.order_check import (
    OrderStretch,
    find_highest_orders,
    find_low_rows,
    find_stretches,
    group_rows,
    highest_by_source,
)
from pipeline.model import Order, Origin, SourcePartition, TopicPartition
from tests.builders import orders_at
from tests.example_count import examples

Row = tuple[str, int, int, Order | None, Origin, str, str | None]
PLACES = st.builds(
    Order, st.integers(1, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a.t", "a.u", "b.t"]),
        st.integers(0, 1),
        st.integers(0, 30),
        st.none() | PLACES,
        st.sampled_from([Origin.LIVE, Origin.LIVE, Origin.SNAPSHOT]),
        st.sampled_from(["u", "u", "ddl"]),
        st.sampled_from([None, None, "incremental", "true"]),
    ),
    max_size=25,
    unique_by=lambda row: row[:3],
)
HIGHS = st.dictionaries(
    st.sampled_from(["a/a.t:0", "a/a.u:1", "b/b.t:0", "a/gone:0"]).map(SourcePartition.parse),
    PLACES,
)


def order_table(rows: Sequence[Row]) -> pa.Table:
    """``JUDGED`` and the parts of the orders, as `low` and `stretches` are given them."""
    columns = {
        "source": pa.array([row[0][0] for row in rows], pa.string()),
        "topic": pa.array([row[0] for row in rows], pa.string()),
        "partition": pa.array([row[1] for row in rows], pa.int32()),
        "offset": pa.array([row[2] for row in rows], pa.int64()),
        "origin": pa.array([int(row[4]) for row in rows], pa.int32()),
        "op": pa.array([row[5] for row in rows], pa.string()),
        "snapshot": pa.array([row[6] for row in rows], pa.string()),
        "order": pa.array([row[3] and asdict(row[3]) for row in rows], ORDER_TYPE),
    }
    for part in ORDER_TYPE.names:
        columns[part] = pa.array([getattr(row[3], part, None) for row in rows], pa.int64())
    return pa.table(columns)


def one_by_one(
    rows: Sequence[Row], high: Mapping[SourcePartition, Order]
) -> tuple[dict[SourcePartition, Order], dict[TopicPartition, tuple[int, ...]]]:
    """The rule itself: walk each partition by offset, and keep the highest LIVE order so far."""
    tops: dict[SourcePartition, Order] = {}
    low: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, partition, offset, order, origin, op, snapshot in sorted(rows, key=lambda r: r[:3]):
        if order is None or op == "ddl" or snapshot == "incremental":
            continue
        at = TopicPartition(topic, partition)
        name = SourcePartition(topic[0], at)
        top = tops.get(name, high.get(name))
        if top is not None and order < top:
            low[at] = (*low.get(at, ()), offset)
        elif origin is Origin.LIVE:
            top = order
        if top is not None:
            tops[name] = top
    return tops, low


def without_order(rows: Sequence[Row]) -> pa.Table:
    return order_table(rows).drop_columns(ORDER_TYPE.names)


@settings(max_examples=examples(100))
@given(ROWS, HIGHS)
def test_all_at_once_finds_what_one_by_one_finds(
    rows: list[Row], high: dict[SourcePartition, Order]
) -> None:
    assert find_low_rows(without_order(rows), high) == one_by_one(rows, high)[1]


@settings(max_examples=examples(200))
@given(ROWS, HIGHS, st.lists(st.integers(0, 30), max_size=3))
def test_stretches_tell_the_tops_and_doubt_every_partition_that_has_a_low_row(
    rows: list[Row], high: dict[SourcePartition, Order], cuts: list[int]
) -> None:
    """Rows come in runs by offset, and in any order within a run."""
    bounds = [0, *sorted(cuts), 31]
    told: list[OrderStretch] = []
    for start, end in pairwise(bounds):
        told += find_stretches(order_table([row for row in rows if start <= row[2] < end]))

    reached, doubted = find_highest_orders(told, high)

    expected, back = one_by_one(rows, high)
    assert reached == expected
    assert doubted >= back.keys()
    for at in doubted - back.keys():  # a snapshot's row above the row behind it
        assert any(
            row[4] is Origin.SNAPSHOT and row[:2] == (at.topic, at.partition) for row in rows
        )


def row_at(offset: int, *parts: int | None, live: bool = True, topic: str = "a.t") -> Row:
    origin = Origin.LIVE if live else Origin.SNAPSHOT
    place = Order(*parts)  # type: ignore[arg-type]  # a collector may tell no row
    return topic, 0, offset, place, origin, "u", None


HIGH = orders_at({"a/a.t:0": Order(1, 1, 50)})
ONE, OTHER = TopicPartition("a.t", 0), TopicPartition("a.u", 0)
CASES = [
    pytest.param([row_at(0, 2, 2, 2, 2), row_at(1, 1, 3, 3, 3)], {ONE: (1,)}, id="an epoch below"),
    pytest.param([row_at(0, 2, 2, 2, 2), row_at(1, 2, 1, 3, 3)], {ONE: (1,)}, id="a log below"),
    pytest.param(
        [row_at(0, 2, 2, 2, 2), row_at(1, 2, 2, 1, 3)], {ONE: (1,)}, id="a position below"
    ),
    pytest.param([row_at(0, 2, 2, 2, 2), row_at(1, 2, 2, 2, 1)], {ONE: (1,)}, id="a row below"),
    pytest.param([row_at(0, 2, 2, 2, 2), row_at(1, 3, 3, 3, 3)], {}, id="above in every part"),
    pytest.param(
        [row_at(0, 2, 2, 2, 2), row_at(1, 1, 1, 1, 1)], {ONE: (1,)}, id="below in every part"
    ),
    pytest.param(
        [row_at(0, 2, 9, 9, 9), row_at(1, 3, 1, 1, 1)], {}, id="a new epoch, from its beginning"
    ),
    pytest.param([row_at(0, 2, 2, 2, 2), row_at(1, 2, 2, 2, 2)], {}, id="two at one place"),
    pytest.param([row_at(0, 1, 1, 60, 0), row_at(1, 1, 1, 60, None)], {}, id="no row is 0"),
    pytest.param([row_at(0, 1, 1, 60, None), row_at(1, 1, 1, 60, 0)], {}, id="0 is no row"),
    pytest.param([row_at(0, 1, 1, 50)], {}, id="just where it stood before"),
    pytest.param([row_at(0, 1, 1, 49)], {ONE: (0,)}, id="below where it stood before"),
    pytest.param(
        [row_at(2, 1, 1, 80), row_at(0, 1, 1, 60), row_at(1, 1, 1, 70)],
        {},
        id="written by no order",
    ),
    pytest.param(
        [
            row_at(0, 1, 1, 60),
            row_at(1, 1, 1, 90),
            row_at(2, 1, 1, 70),
            row_at(3, 1, 1, 80),
            row_at(4, 1, 1, 95),
        ],
        {ONE: (2, 3)},
        id="back, and on to above where it was",
    ),
    pytest.param(
        [
            *(row_at(n, 1, 1, pos) for n, pos in enumerate((60, 55, 52))),
            *(row_at(n, 1, 1, pos, topic="a.u") for n, pos in enumerate((9, 12, 10, 11))),
        ],
        {ONE: (1, 2), OTHER: (2, 3)},
        id="two partitions, each by itself",
    ),
]


@pytest.mark.parametrize(("rows", "expected"), CASES)
def test_a_row_below_a_change_before_it_is_low_and_its_partition_doubted(
    rows: list[Row], expected: dict[TopicPartition, tuple[int, ...]]
) -> None:
    """One that is not seen is folded under what is newer: its change is lost."""
    assert find_low_rows(without_order(rows), HIGH) == expected
    assert find_highest_orders(find_stretches(order_table(rows)), HIGH)[1] == expected.keys()


def test_only_changes_of_the_log_say_how_high_a_partition_stands() -> None:
    """A snapshot's rows bear the place at which it was read; changes up to there still come."""
    rows = [row_at(0, 1, 1, 90, live=False), row_at(1, 1, 1, 60), row_at(2, 1, 1, 70, live=False)]

    assert find_low_rows(without_order(rows), HIGH) == {}
    assert find_highest_orders(find_stretches(order_table(rows)), HIGH)[0] == orders_at(
        {"a/a.t:0": Order(1, 1, 60)}
    )
    assert find_highest_orders(find_stretches(order_table(rows[:1])), {})[0] == {}


def test_rows_that_rise_are_never_doubted() -> None:
    rows = [("a.t", n % 3, n, Order(1, n // 50, n), Origin.LIVE, "u", None) for n in range(99)]

    told = [*find_stretches(order_table(rows[60:])), *find_stretches(order_table(rows[:60]))]

    assert find_highest_orders(told, {}) == (
        orders_at({f"a/a.t:{n % 3}": rows[n][3] for n in (96, 97, 98)}),
        frozenset(),
    )


def test_f41_many_partitions_cost_what_their_rows_cost() -> None:
    """200,000 rows in 5,000 partitions, each of which goes back once."""
    rng = np.random.default_rng(7)
    number, partitions = 200_000, 5_000
    partition = rng.integers(0, partitions, number)
    pos = np.arange(number)
    pos[-partitions:] = 0
    rows = pa.table(
        {
            "source": pa.array(["a"] * number),
            "topic": pa.array([f"a.t{n % 500}" for n in partition]),
            "partition": pa.array(partition // 500, pa.int32()),
            "offset": np.arange(number),
            "origin": pa.array(np.full(number, int(Origin.LIVE)), pa.int32()),
            "op": pa.array(["u"] * number),
            "snapshot": pa.array([None] * number, pa.string()),
            "order": pa.StructArray.from_arrays(
                [np.ones(number, np.int64), np.ones(number, np.int64), pos, np.zeros(number, int)],
                fields=list(ORDER_TYPE),
            ),
        }
    )

    found = find_low_rows(rows, {})  # one by one it takes minutes

    assert len(found) > partitions // 2


# groups

GROUPED = pa.table(
    {
        "topic": pa.chunked_array([["t", "u"], ["t", None, "u", "t", None]]),
        "partition": pa.chunked_array([[0, 0, 1, 0], [0, 0, 0]]),
    }
)


def test_rows_of_the_same_values_share_a_number_null_among_them() -> None:
    codes, firsts = group_rows(GROUPED, ["topic", "partition"])

    assert codes.tolist() == [0, 1, 2, 3, 1, 0, 3]
    assert firsts.tolist() == [0, 1, 2, 3]


def test_no_rows_have_no_groups() -> None:
    codes, firsts = group_rows(GROUPED.slice(0, 0), ["topic", "partition"])

    assert (len(codes), len(firsts)) == (0, 0)


# the highest of each source

LOWER, UPPER = Order(1, 2, 3), Order(1, 2, 4)


def test_each_source_has_the_highest_of_its_partitions_in_whichever_order_they_come() -> None:
    high = orders_at({"a/t:0": LOWER, "b/t:0": LOWER, "a/t:1": UPPER, "a/u:0": LOWER})

    assert highest_by_source(high) == {"a": UPPER, "b": LOWER}
    assert highest_by_source(dict(reversed(high.items()))) == {"a": UPPER, "b": LOWER}
    assert highest_by_source({}) == {}
