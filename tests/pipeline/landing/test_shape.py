import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from pipeline.changelog.table import CHANGES, Stamp
from pipeline.formats.format import RAW, Decoded, build_batch
from pipeline.landing.batch_stats import tally_rows
from pipeline.landing.epochs import EpochBounds
from pipeline.landing.task import SLIM, SourceContext, TableRouter, shape_rows, slim_columns
from pipeline.model import Op, Ordering, Origin, TopicPartition
from pipeline.settings import Router, TableRule
from pipeline.standards.table_standards import NO_STANDARDS

STAMP = Stamp("main", 7, datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC))
SHOP = SourceContext("shop", "sluice.heartbeat")
ROUTER = Router(
    (
        TableRule(r"shop\.tmp_.*", "", ignore=True),
        TableRule(r"shop_\d+\.(\w+)", r"shop.\1", unique_across_shards=True),
        TableRule(r"old_\d+\.(\w+)", r"old.\1"),
    )
)


def raw(places: Iterable[tuple[str, int, int]]) -> pa.RecordBatch:
    """Messages of these topics, partitions and offsets."""
    made = [{"topic": t, "partition": p, "offset": o} for t, p, o in places]
    return pa.RecordBatch.from_pylist(made, schema=RAW)


def shaped(
    changes: Sequence[Decoded],
    *,
    came: SourceContext = SHOP,
    messages: Sequence[int] | None = None,
    places: Sequence[tuple[str, int, int]] | None = None,
) -> pa.RecordBatch:
    """Rows of these changes; change n came from message n, at offset 100 + n, unless told."""
    of = range(len(changes)) if messages is None else messages
    decoded = build_batch(zip(of, changes, strict=True))
    at = places or [("t", 0, 100 + n) for n in range(max(of, default=-1) + 1)]
    return shape_rows(decoded, raw(at), came, routes=TableRouter(ROUTER, NO_STANDARDS), stamp=STAMP)


def decoded_change(
    op: Op = Op.CREATE, shard: str | None = "shop.orders", **more: object
) -> Decoded:
    return Decoded(op, shard, **({"log": 3, "pos": 4, "row": 1} | more))  # type: ignore[arg-type]


def test_a_change_keeps_all_that_its_format_told() -> None:
    change = decoded_change(
        key_values='["1","a\\"b"]',
        before='{"id": 1.10}',
        after='{"id":2}',
        changed=("id",),
        at=datetime(2026, 11, 21, tzinfo=UTC),
        origin=Origin.REPLAY,
        schema_id=5,
        snapshot="first",
    )

    (one,) = shaped([change]).to_pylist()

    assert one == {
        "lane": "main",
        "batch": 7,
        "source": "shop",
        "shard": "shop.orders",
        "table": "shop.orders",
        "op": "c",
        "key": '["shop","shop.orders","1","a\\"b"]',
        "before": '{"id": 1.10}',
        "after": '{"id":2}',
        "changed": ["id"],
        "at": datetime(2026, 11, 21, tzinfo=UTC),
        "order": {"epoch": 1, "log": 3, "pos": 4, "row": 1},
        "origin": int(Origin.REPLAY),
        "tx": None,
        "topic": "t",
        "partition": 0,
        "offset": 100,
        "received": STAMP.received,
        "dt": date(2026, 11, 21),
        "schema_id": 5,
        "error": None,
        "raw": None,
        "snapshot": "first",
    }


def test_no_rows_have_the_change_logs_columns_too() -> None:
    assert shaped([]).schema == CHANGES
    assert slim_columns(shaped([])).schema == SLIM


@pytest.mark.parametrize(
    ("shard", "table", "key"),
    [
        pytest.param("shop.a", "shop.a", '["shop","shop.a","1"]', id="no rule: its own name"),
        pytest.param("shop_3.a", "shop.a", '["1"]', id="folded, keys are unique"),
        pytest.param("old_3.a", "old.a", '["shop","old_3.a","1"]', id="folded, keys are not"),
        pytest.param("shop.tmp_1", None, '["shop","shop.tmp_1","1"]', id="ignored, and landed"),
        pytest.param('"my.db".t', '"my.db".t', r'["shop","\"my.db\".t","1"]', id="odd name"),
        pytest.param(None, None, None, id="no shard, no table"),
    ],
)
def test_a_row_stands_in_the_table_and_under_the_key_that_the_rules_say(
    shard: str | None, table: str | None, key: str | None
) -> None:
    others = [decoded_change(shard="shop_9.other", key_values='["2"]'), decoded_change(shard=None)]

    found = shaped(
        [others[0], decoded_change(shard=shard, key_values='["1"]'), others[1]]
    ).to_pylist()

    assert (found[1]["table"], found[1]["key"], found[1]["shard"]) == (table, key, shard)
    assert found[0]["table"] == "shop.other"


def test_rows_of_the_heartbeat_table_are_heartbeats_of_no_table() -> None:
    ops = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE, Op.TOMBSTONE, Op.ERROR)
    beats = [decoded_change(op, "sluice.heartbeat") for op in ops]

    found = shaped([*beats, decoded_change(Op.UPDATE), decoded_change(Op.DDL, None)]).to_pylist()

    assert [(one["op"], one["table"]) for one in found] == [
        *[("heartbeat", None)] * 4,
        ("truncate", "sluice.heartbeat"),
        ("tombstone", "sluice.heartbeat"),
        ("error", "sluice.heartbeat"),
        ("u", "shop.orders"),
        ("ddl", None),
    ]


def test_a_change_without_a_place_in_the_log_has_no_order() -> None:
    known, nowhere = decoded_change(row=None), Decoded(Op.ERROR, error="no JSON", raw=b"{")

    found = shaped([known, nowhere]).to_pylist()

    assert [one["order"] for one in found] == [{"epoch": 1, "log": 3, "pos": 4, "row": 0}, None]
    assert (found[1]["error"], found[1]["raw"]) == ("no JSON", b"{")


def test_a_format_without_positions_orders_by_offset_and_place_in_the_message() -> None:
    came = SourceContext("shop", "sluice.heartbeat", epoch=4, ordering=Ordering.OFFSET)
    places = [("t", 0, 50), ("t", 0, 51), ("t", 0, 60)]
    changes = [Decoded(Op.UPDATE, "shop.a"), *[Decoded(Op.DELETE, "shop.b")] * 3]

    found = shaped(changes, came=came, messages=[0, 2, 2, 2], places=places).to_pylist()

    assert [tuple(one["order"].values()) for one in found] == [
        (4, 0, 50, 0),
        (4, 0, 60, 0),
        (4, 0, 60, 1),
        (4, 0, 60, 2),
    ]


def test_columns_that_rows_tell_take_no_place_of_their_own() -> None:
    came = SourceContext("shop", "sluice.heartbeat", ordering=Ordering.OFFSET)
    told = Decoded(Op.DDL, "shop.b", after="{}", schema_id=7)
    changes = [told, *[Decoded(Op.UPDATE, "shop.b")] * 2, Decoded(Op.DDL, "shop.b", after="{}")]

    found = shaped(changes, came=came, messages=[0] * 4, places=[("t", 0, 50)]).to_pylist()

    assert [one["order"]["row"] for one in found] == [0, 0, 1, 2]


def test_changes_of_one_message_stand_at_its_place_and_messages_without_any_at_none() -> None:
    places = [("a", 0, 5), ("a", 0, 6), ("b", 1, 7), ("b", 1, 8)]

    found = shaped([decoded_change(pos=n) for n in range(4)], messages=[0, 0, 2, 3], places=places)

    assert [
        tuple(one.values()) for one in found.select(["topic", "partition", "offset"]).to_pylist()
    ] == [
        ("a", 0, 5),
        ("a", 0, 5),
        ("b", 1, 7),
        ("b", 1, 8),
    ]


T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param({}, [3, 3, 3, 3], id="no bounds: the newest throughout"),
        pytest.param({T0: ((0, 3),)}, [3, 3, 3, 3], id="the newest from the beginning on"),
        pytest.param({T0: ((0, 2), (102, 3))}, [2, 2, 3, 3], id="the one before, up to a start"),
        pytest.param({T0: ((0, 1), (101, 2), (102, 3))}, [1, 2, 3, 3], id="two starts"),
        pytest.param({T0: ((0, 2),)}, [2, 2, 2, 2], id="the newest has not begun here"),
        pytest.param({T1: ((0, 2), (900, 3)), U0: ((0, 1),)}, [3, 3, 3, 3], id="of others"),
    ],
)
def test_a_row_belongs_to_the_epoch_that_holds_at_its_offset(
    bounds: Mapping[TopicPartition, tuple[tuple[int, int], ...]], expected: list[int]
) -> None:
    told = {at: EpochBounds(steps) for at, steps in bounds.items()}
    came = SourceContext("shop", "h.b", epoch=3, bounds=told)

    found = shaped([decoded_change() for _ in range(4)], came=came)

    assert [one["epoch"] for one in found["order"].to_pylist()] == expected


def heartbeat_change(source: str, number: object) -> Decoded:
    after = json.dumps({"id": 1, "source": source, "n": number})
    return decoded_change(Op.UPDATE, "sluice.heartbeat", after=after)


def test_slim_rows_note_the_own_heartbeats_number_and_the_schema_changes_text() -> None:
    changes = [
        heartbeat_change("shop", 42),
        heartbeat_change("another", 43),
        decoded_change(Op.UPDATE, after='{"source":"shop","n":44}'),
        decoded_change(Op.DELETE, "sluice.heartbeat", before='{"source":"shop","n":45}'),
        decoded_change(Op.DDL, None, after='{"ddl": "ALTER"}'),
        decoded_change(Op.UPDATE, "sluice.heartbeat", after="no JSON"),
        heartbeat_change("shop", "46"),
        heartbeat_change("shop", None),
    ]

    found = slim_columns(shaped(changes))

    assert found["note"].to_pylist() == [
        "42",
        None,
        None,
        None,
        '{"ddl": "ALTER"}',
        None,
        "46",
        None,
    ]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param('{"source":"shop","n":"\u00b2"}', id="a digit that is no number"),
        pytest.param(f'{{"source":"shop","n":"{"9" * 5_000}"}}', id="a number without an end"),
        pytest.param('{"source":"shop","n":-1}', id="a negative one"),
        pytest.param('{"source":"shop","n":1.5}', id="a fraction"),
        pytest.param('{"source":"shop","n":true}', id="no number"),
        pytest.param(f'{{"n":{"[" * 100_000}{"]" * 100_000}}}', id="too deep to read"),
    ],
)
def test_a_damaged_heartbeat_has_no_number_and_stops_nobody(after: str) -> None:
    found = slim_columns(
        shaped(
            [
                decoded_change(Op.UPDATE, "sluice.heartbeat", after=after),
                heartbeat_change("shop", 7),
            ]
        )
    )

    assert found["note"].to_pylist() == [None, "7"]
    assert tally_rows(pa.Table.from_batches([found])).heartbeats == {"shop": 7}


def test_slim_rows_hold_what_judging_needs_and_no_payload() -> None:
    changes = [
        decoded_change(snapshot="last", before="{}", after="{}"),
        Decoded(Op.ERROR, raw=b"x"),
    ]

    found = slim_columns(shaped(changes)).to_pylist()

    assert list(found[0].values()) == [
        *("shop", "t", 0, 100, "shop.orders", "shop.orders", "c", int(Origin.LIVE)),
        *(None, 1, 3, 4, 1, "last", None, None),
    ]
    assert [found[1][part] for part in ("epoch", "log", "pos", "row")] == [None] * 4
