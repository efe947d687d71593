from typing import Any

import pyarrow as pa
import pytest

from pipeline.landing.facts import Facts, gather
from pipeline.model import Order, Origin, TopicPartition

SLIM = pa.schema(
    [
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("table", pa.string()),
        ("shard", pa.string()),
        ("op", pa.string()),
        ("origin", pa.int32()),
        *[(part, pa.int64()) for part in ("epoch", "log", "pos", "row")],
        ("snapshot", pa.string()),
        ("note", pa.string()),
    ]
)
TP = TopicPartition("shop.db.t", 0)


def row(offset: int, pos: int | None, **changed: Any) -> dict[str, Any]:
    plain = {
        "source": "shop", "topic": "shop.db.t", "partition": 0, "offset": offset, "table": "db.t",
        "shard": "db.t", "op": "u", "origin": int(Origin.LIVE),
        "epoch": None if pos is None else 1, "log": None if pos is None else 1, "pos": pos,
        "row": None if pos is None else 0, "snapshot": None, "note": None,
    }  # fmt: skip
    return plain | changed


def facts(*rows: dict[str, Any], high: dict[str, Order] | None = None) -> Facts:
    return gather(pa.Table.from_pylist(list(rows), schema=SLIM), high or {})


@pytest.mark.parametrize(
    ("positions", "low"),
    [
        pytest.param((10, 20, 30), (), id="rising"),
        pytest.param((10, 20, 20), (), id="a key update is a delete and a create at one place"),
        pytest.param((10, 20, 10, 20, 30), (2,), id="sent again after a restart"),
        pytest.param((10, 30, 20, 15, 40), (2, 3), id="out of order"),
        pytest.param((10, None, 5), (2,), id="a tombstone between has no place"),
    ],
)
def test_rows_below_a_live_row_before_them_are_named(
    positions: tuple[int | None, ...], low: tuple[int, ...]
) -> None:
    found = facts(*(row(offset, pos) for offset, pos in enumerate(positions)))

    assert found.back == ({TP: low} if low else {})


def test_the_batch_before_counts_too() -> None:
    found = facts(row(7, 20), row(8, 60), high={"shop/shop.db.t:0": Order(1, 1, 50)})

    assert found.back == {TP: (7,)}
    assert found.high == {"shop/shop.db.t:0": Order(1, 1, 60)}


def test_rows_are_judged_by_offset_not_by_where_they_stand_in_the_file() -> None:
    found = facts(row(2, 30), row(0, 10), row(1, 20))

    assert not found.back
    assert found.high["shop/shop.db.t:0"].pos == 30


def test_partitions_are_judged_apart() -> None:
    found = facts(row(0, 50), row(0, 10, partition=1))

    assert not found.back


def test_incremental_snapshot_rows_may_stand_anywhere() -> None:
    found = facts(row(0, 50), row(1, 10, op="r", snapshot="incremental", origin=0))

    assert not found.back
    assert not found.snapshots


def test_a_restarted_snapshot_is_told_by_its_order() -> None:
    reads = [row(n, 100, op="r", snapshot="true", origin=0) for n in range(3)]
    again = [row(n + 3, 200, op="r", snapshot="true", origin=0) for n in range(2)]

    found = facts(*reads, *again, row(5, 200, op="r", snapshot="last", origin=0))

    snapshot = found.snapshots["shop/db.t"]
    assert (snapshot.order.pos, snapshot.rows, snapshot.ended) == (200, 3, True)


def test_only_rows_that_change_a_mirror_are_counted_for_its_table() -> None:
    found = facts(
        row(0, 10), row(1, 20, op="d"), row(2, None, op="tombstone"), row(3, None, op="error")
    )

    assert found.tables == {"db.t": 2}
    assert found.rows == 4


def test_a_broken_message_blocks_its_table_or_its_whole_topic() -> None:
    found = facts(row(0, None, op="error"), row(1, None, op="error", table=None))

    assert found.errors == {"db.t": ("shop.db.t:0:0",), "topic:shop.db.t": ("shop.db.t:0:1",)}


def test_the_highest_heartbeat_number_is_kept() -> None:
    beats = [row(n, 10 + n, op="heartbeat", table=None, note=str(n)) for n in (3, 9, 4)]

    assert facts(*beats).heartbeats == {"shop": 9}


def test_an_empty_batch_has_no_facts() -> None:
    assert facts() == Facts()
