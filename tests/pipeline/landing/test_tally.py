"""Sums of runs; what they come to for a batch is `test_facts`'s."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.formats.format import AROUND
from pipeline.landing.batch_stats import tally
from pipeline.landing.task import SLIM
from pipeline.model import Op, Order, Origin
from tests.example_count import examples

PLACES = st.builds(
    Order, st.integers(1, 2), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)
)


def rows(*said: tuple[str, Order | None]) -> pa.Table:
    """An update of each shard at each order, offset by offset."""
    plain = {"source": "shop", "topic": "t", "partition": 0, "op": "u", "origin": int(Origin.LIVE)}
    made = [
        {
            **plain,
            "offset": offset,
            "shard": shard,
            "table": shard.partition(".")[0],
            **{part: getattr(order, part, None) for part in ("epoch", "log", "pos", "row")},
        }
        for offset, (shard, order) in enumerate(said)
    ]
    return pa.Table.from_pylist(made, schema=SLIM)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.sampled_from(["a.1", "a.2", "b.1"]), st.none() | PLACES)))
def test_the_first_of_a_shard_is_its_lowest_order(said: list[tuple[str, Order | None]]) -> None:
    found = tally(rows(*said)).firsts

    placed = {
        shard: [order for name, order in said if name == shard and order] for shard, _ in said
    }
    assert found == {f"shop/{shard}": min(orders) for shard, orders in placed.items() if orders}


def test_shards_of_one_table_are_counted_together() -> None:
    order = Order(1, 1, 1)

    found = tally(rows(("a.1", order), ("b.1", order), ("a.2", order)))

    assert found.tables == {"a": 2, "b": 1}
    assert found.shards == {"shop/a.1": "a", "shop/a.2": "a", "shop/b.1": "b"}


@pytest.mark.parametrize(
    ("snapshots", "found"),
    [
        pytest.param(("true",), {"shop": Order(1, 0, 5, 0)}, id="read"),
        pytest.param(("last", "first"), {"shop": Order(1, 0, 6, 0)}, id="the newest of two"),
        pytest.param((None, AROUND, "incremental"), {}, id="written, or read beside the stream"),
    ],
)
def test_a_snapshot_of_the_whole_source_reads_the_heartbeat(
    snapshots: tuple[str | None, ...], found: dict[str, Order]
) -> None:
    orders = [("sluice.heartbeat", Order(1, 0, 5 + n)) for n, _ in enumerate(snapshots)]
    beats = rows(*orders).to_pylist()
    for beat, snapshot in zip(beats, snapshots, strict=True):
        beat.update(op=str(Op.HEARTBEAT), table=None, snapshot=snapshot, note="7")

    assert tally(pa.Table.from_pylist(beats, schema=SLIM)).wholes == found


@pytest.mark.parametrize(
    ("snapshot", "origin", "highest", "followed"),
    [
        pytest.param(None, Origin.LIVE, 9, [7, 9], id="out of the log"),
        pytest.param("incremental", Origin.SNAPSHOT, 7, [7], id="read beside the log"),
        pytest.param(None, Origin.REPLAY, 7, [7], id="sent again from elsewhere"),
        pytest.param(
            "last", Origin.SNAPSHOT, 9, [7], id="of a snapshot, before which all is in it"
        ),
    ],
)
def test_a_heartbeat_that_was_read_beside_the_log_tells_nothing_of_it(
    snapshot: str | None, origin: Origin, highest: int, followed: list[int]
) -> None:
    """A bootstrap reads it as the server has it now, while the log may be hours behind."""
    one, other = rows(
        ("sluice.heartbeat", Order(1, 0, 5)), ("sluice.heartbeat", Order(1, 0, 6))
    ).to_pylist()
    one.update(op=str(Op.HEARTBEAT), table=None, note="7")
    other.update(op=str(Op.HEARTBEAT), table=None, note="9", snapshot=snapshot, origin=int(origin))

    told = tally(pa.Table.from_pylist([one, other], schema=SLIM))

    assert told.heartbeats == {"shop": highest}
    assert [beat.number for beat in told.beats["shop"]] == followed
