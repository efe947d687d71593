"""The change log tells what was landed of keys and transactions, each change once."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.changelog.reader import LogReader
from pipeline.changelog.table import DROPPED
from pipeline.changelog.transactions import LOOK_BACK
from pipeline.model import Op, Order, Origin, Shard, Table, TopicPartition
from pipeline.readings import KeyTimes, LastChange, LogKey, RowVersion, Transaction
from tests.builders.change_log import (
    NOON,
    begin_event,
    change,
    end_event,
    key_change,
    log_reader,
    place,
    read_table,
    write_changes,
)

A, B = Shard("shop", "s.orders_00"), Shard("shop", "s.orders_01")
TABLE = Table("shop.orders", (A, B), ("id",), "id")
TOPIC = "shop.s.orders_00"
ZERO, MINUTE = timedelta(), timedelta(minutes=1)


def log_key(key: str, offset: int, shard: Shard = A) -> LogKey:
    return LogKey(shard, key, TopicPartition(TOPIC, 0), offset)


def test_the_newest_touch_of_a_key_is_the_one_of_the_highest_order(tmp_path: Path) -> None:
    write_changes(
        tmp_path, 0, [key_change(Op.CREATE, 10, "k", 0), key_change(Op.CREATE, 11, "other", 1)]
    )
    write_changes(
        tmp_path, 1, [key_change(Op.DELETE, 30, "k", 2), key_change(Op.UPDATE, 20, "k", 3)]
    )

    touches = log_reader(tmp_path).last_touches(TABLE, [log_key("other", 1), log_key("k", 0)])

    assert touches == (LastChange("c", 0), LastChange("d", 1))


def test_a_key_whose_record_is_not_landed_has_no_touch(tmp_path: Path) -> None:
    write_changes(tmp_path, 0, [key_change(Op.CREATE, 10, "k", 0)])

    assert log_reader(tmp_path).last_touches(TABLE, [log_key("k", 7)]) == (None,)
    assert log_reader(tmp_path).last_touches(TABLE, []) == ()


@pytest.mark.parametrize(
    ("later", "touch"),
    [
        pytest.param(key_change(Op.DELETE, 30, "k", 9), LastChange("d", 5), id="deleted later"),
        pytest.param(key_change(Op.CREATE, 30, "k", 9), LastChange("c", 5), id="created later"),
        pytest.param(change(Op.TRUNCATE, 30, offset=9), LastChange("truncate", 5), id="truncated"),
        pytest.param(change(Op.TRUNCATE, 5, offset=1), None, id="truncated before"),
        pytest.param(change(Op.TRUNCATE, 30, offset=9, shard=B.name), None, id="another shard"),
        pytest.param(key_change(Op.DELETE, 30, "other", 9), None, id="another key"),
    ],
)
def test_a_key_whose_record_was_dropped_has_its_later_changes(
    tmp_path: Path, later: dict[str, Any], touch: LastChange | None
) -> None:
    write_changes(tmp_path, 4, [key_change(Op.CREATE, 11, "more", 8)])
    write_changes(tmp_path, 5, [later])
    DeltaTable(tmp_path).alter.set_table_properties({DROPPED: "3"}, raise_if_not_exists=False)
    log, asked = log_reader(tmp_path), [log_key("k", 4), log_key("more", 8)]

    assert log.last_touches(TABLE, asked[:1]) == (touch,)
    assert log_reader(tmp_path).last_touches(TABLE, asked)[0] == touch


def test_a_tombstones_delete_counts_though_it_was_landed_a_batch_before(tmp_path: Path) -> None:
    write_changes(
        tmp_path, 0, [key_change(Op.CREATE, 10, "k", 4), key_change(Op.DELETE, 20, "k", 5)]
    )
    write_changes(tmp_path, 3, [change(Op.TOMBSTONE, key="k", offset=6)])

    assert log_reader(tmp_path).last_touches(TABLE, [log_key("k", 6)]) == (LastChange("d", 0),)


@pytest.mark.parametrize(
    ("op", "shard", "pos", "touch"),
    [
        pytest.param(Op.TRUNCATE, A, 20, LastChange("truncate", 1), id="truncated since"),
        pytest.param(Op.SETTLE, A, 20, LastChange("settle", 1), id="settled since"),
        pytest.param(Op.TRUNCATE, A, 5, LastChange("c", 0), id="truncated before"),
        pytest.param(Op.TRUNCATE, B, 20, LastChange("c", 0), id="another shard truncated"),
    ],
)
def test_an_emptied_shard_is_the_newest_touch_of_its_keys(
    tmp_path: Path, op: Op, shard: Shard, pos: int, touch: LastChange
) -> None:
    write_changes(tmp_path, 0, [key_change(Op.CREATE, 10, "k", 0)])
    write_changes(tmp_path, 1, [change(op, pos, shard=shard.name)])

    assert log_reader(tmp_path).last_touches(TABLE, [log_key("k", 0)]) == (touch,)


def test_changes_are_counted_by_batch_table_and_lane(tmp_path: Path) -> None:
    some = [key_change(op, 10, "k", 0) for op in (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)]
    write_changes(tmp_path, 1, some)
    write_changes(tmp_path, 2, [*some, key_change(Op.CREATE, 1, "k", 0, table="shop.users")])
    write_changes(tmp_path, 3, [key_change(Op.CREATE, 1, "k", 0, lane="second")])

    found = log_reader(tmp_path)

    assert found.change_counts(TABLE, 0, 3) == 6
    assert found.change_counts(TABLE, 1, 2) == 3
    assert found.change_counts(TABLE, 2, 3) == 0


def test_changed_rows_tell_what_they_were_and_are(tmp_path: Path) -> None:
    some = [
        key_change(Op.UPDATE, 10, "k", 0, before="{}", after='{"id": 1}'),
        key_change(Op.DELETE, 11, "k", 1),
    ]
    write_changes(tmp_path, 1, [key_change(Op.CREATE, 1, "k", 0)])
    write_changes(tmp_path, 2, [*some, key_change(Op.CREATE, 1, "k", 0, table="shop.users")])

    found = log_reader(tmp_path).changed_rows(TABLE, 1, 2, most=2)

    assert found is not None
    assert {(one.op, one.shard, one.before, one.after) for one in found} == {
        ("u", A, "{}", '{"id": 1}'),
        ("d", A, None, None),
    }


def test_versions_of_rows_are_in_the_order_of_the_source_log_a_delete_before_a_create(
    tmp_path: Path,
) -> None:
    write_changes(tmp_path, 1, [key_change(Op.UPDATE, 30, "k", 0, after="{3}")])
    renamed = [
        key_change(Op.CREATE, 20, "l", 1, after="{2}"),
        key_change(Op.DELETE, 20, "k", 1, after="{}"),
    ]
    write_changes(tmp_path, 2, [*renamed, key_change(Op.UPDATE, 5, "k", 0, shard=B.name)])
    log = log_reader(tmp_path)

    assert log.row_versions(TABLE, A, 0, 2, most=3) == (
        RowVersion(Order(0, 1, 20), "k", None),
        RowVersion(Order(0, 1, 20), "l", "{2}"),
        RowVersion(Order(0, 1, 30), "k", "{3}"),
    )
    assert log.row_versions(TABLE, A, 0, 2, most=2) is None
    assert log.row_versions(TABLE, A, 2, 3, most=2) == ()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(change(Op.TRUNCATE, 20), id="truncated"),
        pytest.param(change(Op.SETTLE, 20), id="settled"),
        pytest.param(key_change(Op.READ, 20, "k", 1), id="read again"),
        pytest.param(change(Op.UPDATE, 20), id="a change without a key"),
        pytest.param(key_change(Op.UPDATE, 20, "", 1), id="a change with an empty key"),
    ],
)
def test_there_are_no_versions_of_rows_with_a_row_that_is_no_change_of_one(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    write_changes(tmp_path, 1, [key_change(Op.UPDATE, 10, "k", 0)])
    write_changes(tmp_path, 2, [row])
    log = log_reader(tmp_path)

    assert len(log.row_versions(TABLE, A, 0, 1, most=9) or ()) == 1
    assert log.row_versions(TABLE, A, 0, 2, most=9) is None


@pytest.mark.parametrize("op", [Op.TRUNCATE, Op.SETTLE])
def test_changed_rows_are_not_told_where_any_may_have_changed(tmp_path: Path, op: Op) -> None:
    write_changes(tmp_path, 1, [key_change(Op.CREATE, n, "k", n) for n in range(3)])
    write_changes(tmp_path, 2, [change(op, 20, shard=A.name)])

    found = log_reader(tmp_path)

    assert found.changed_rows(TABLE, 0, 1, most=2) is None
    assert found.changed_rows(TABLE, 0, 2, most=9) is None


def test_changes_that_name_no_transaction_are_counted_if_they_are_live(tmp_path: Path) -> None:
    told = key_change(Op.CREATE, 10, "k", 0, tx={"id": "u:1", "total_order": 1})
    reread = key_change(Op.UPDATE, 10, "k", 0, origin=int(Origin.REPAIR))
    write_changes(tmp_path, 1, [told, reread, key_change(Op.READ, 1, "k", 0)])
    write_changes(
        tmp_path, 2, [key_change(Op.UPDATE, 11, "k", 0), key_change(Op.DELETE, 12, "k", 0), told]
    )

    found = log_reader(tmp_path)

    assert found.changes_without_transaction(TABLE, 0, 1) == 0
    assert found.changes_without_transaction(TABLE, 0, 2) == 2


def tx(op: Op, total: int, pos: int, tx_id: str = "u:1", **fields: Any) -> dict[str, Any]:
    return change(op, pos, tx={"id": tx_id, "total_order": total}, **fields)


def test_a_source_whose_named_changes_have_no_end_is_named_until_one_lands(tmp_path: Path) -> None:
    write_changes(tmp_path, 0, [begin_event("u:2"), end_event("u:2", orders_00=1)])
    write_changes(tmp_path, 1, [tx(Op.CREATE, 1, 10)])
    write_changes(tmp_path, 2, [tx(Op.CREATE, 1, 20, "u:2"), key_change(Op.UPDATE, 30, "k", 0)])
    write_changes(tmp_path, 3, [end_event(orders_00=1)])

    found = log_reader(tmp_path)

    assert found.unended_sources(TABLE, 0, 1, -1) == {"shop"}
    assert found.unended_sources(TABLE, 1, 2, 0) == {"shop"}
    assert found.unended_sources(TABLE, 1, 2, -1) == frozenset()
    assert found.unended_sources(TABLE, 0, 3, 0) == frozenset()
    assert found.unended_sources(TABLE, 2, 3, 0) == frozenset()
    assert [found.ended_sources(after, after + 1) for after in range(-1, 3)] == [
        {"shop"},
        frozenset(),
        frozenset(),
        {"shop"},
    ]


def transactions(path: Path, *batches: Sequence[dict[str, Any]]) -> tuple[Transaction, ...]:
    for batch, rows in enumerate(batches):
        write_changes(path, batch, rows)
    return log_reader(path).transactions(TABLE, -1, len(batches) - 1)


def test_a_transaction_is_compared_over_all_shards_and_batches(tmp_path: Path) -> None:
    in_b = {"shard": B.name, "topic": "shop.s.orders_01"}
    users = {"shard": "s.users", "table": "shop.users"}

    found = transactions(
        tmp_path,
        [begin_event(), tx(Op.CREATE, 1, 10), tx(Op.CREATE, 2, 11, **in_b)],
        [
            tx(Op.UPDATE, 3, 12),
            tx(Op.CREATE, 4, 13, **users),
            end_event(orders_00=2, orders_01=1, users=1),
        ],
    )

    assert found == (Transaction("u:1", promised=3, landed=3, end_batch=1),)


def test_a_lost_event_is_short_and_one_landed_twice_counts_once(tmp_path: Path) -> None:
    found = transactions(
        tmp_path,
        [begin_event(), tx(Op.CREATE, 1, 10), tx(Op.CREATE, 1, 10), end_event(orders_00=2)],
        [begin_event("u:2"), tx(Op.CREATE, 1, 20, "u:2"), end_event("u:2", orders_00=1)],
    )

    assert found == (Transaction("u:1", 2, 1, 0), Transaction("u:2", 1, 1, 1))


def test_a_changed_key_is_two_events_at_one_place(tmp_path: Path) -> None:
    both = [tx(Op.DELETE, 1, 10, key="old"), tx(Op.CREATE, 2, 10, key="new")]

    assert transactions(tmp_path, [begin_event(), *both, end_event(orders_00=2)])[0].landed == 2


def test_what_another_server_sent_of_a_transaction_is_counted_in_its_newest_epoch(
    tmp_path: Path,
) -> None:
    moved: list[dict[str, Any]] = [{"order": place(Order(1, 1, pos))} for pos in (900, 901)]
    again = [tx(Op.CREATE, n, 0, **order) for n, order in enumerate(moved, start=1)]

    found = transactions(
        tmp_path, [begin_event(), tx(Op.CREATE, 1, 10)], [*again, end_event(orders_00=2)]
    )

    assert found == (Transaction("u:1", 2, 2, 1),)


def test_a_transaction_begun_again_is_stated_over_all_its_tables(tmp_path: Path) -> None:
    users = {"shard": "s.users", "table": "shop.users"}
    first = [
        begin_event(),
        tx(Op.CREATE, 1, 10, **users),
        *(tx(Op.CREATE, n, 9 + n) for n in (2, 3)),
    ]
    second = [begin_event(), *(tx(Op.CREATE, n, 11 + n) for n in (1, 2)), end_event(orders_00=2)]

    (found,) = transactions(tmp_path, first, second)

    assert found == Transaction("u:1", 2, 4, 1, begun=2, resumed=(3,))
    assert found.promised + found.resumed[0] - 1 == found.landed


def test_transactions_of_other_tables_lanes_and_batches_are_left_out(tmp_path: Path) -> None:
    found = transactions(
        tmp_path,
        [end_event("u:1", users=1)],
        [
            begin_event("u:2"),
            tx(Op.CREATE, 1, 10, "u:2"),
            {**end_event("u:2", orders_00=1), "lane": "second"},
        ],
    )

    assert found == ()


def test_a_transaction_that_began_long_ago_is_looked_for_further_back(tmp_path: Path) -> None:
    write_changes(tmp_path, 0, [begin_event(), tx(Op.CREATE, 1, 10)])
    write_changes(tmp_path, LOOK_BACK + 5, [tx(Op.CREATE, 2, 11), end_event(orders_00=2)])

    found = log_reader(tmp_path).transactions(TABLE, LOOK_BACK + 4, LOOK_BACK + 5)

    assert found == (Transaction("u:1", 2, 2, LOOK_BACK + 5),)


def test_an_end_without_counts_promises_nothing(tmp_path: Path) -> None:
    assert transactions(tmp_path, [begin_event(), tx(Op.CREATE, 1, 10), end_event()]) == ()


def test_the_times_of_keys_are_by_order_and_told_of_those_that_fell_and_those_asked_for(
    tmp_path: Path,
) -> None:
    early, late = NOON, NOON + timedelta(minutes=5)
    fell = [
        key_change(Op.CREATE, 1, "fell", 0, at=late),
        key_change(Op.UPDATE, 2, "fell", 1, at=early),
    ]
    rose = [
        key_change(Op.UPDATE, 4, "rose", 3, at=late),
        key_change(Op.CREATE, 3, "rose", 2, at=early),
    ]
    read = key_change(Op.UPDATE, 9, "rose", 4, at=early, origin=int(Origin.REPLAY))
    write_changes(tmp_path, 0, [*fell, *rose, read])
    write_changes(tmp_path, 1, [key_change(Op.DELETE, 7, "later", 5, at=early)])

    log = log_reader(tmp_path)

    assert log.key_times(TABLE, -1, 1, (), fell_by=ZERO, most=9) == (
        KeyTimes("fell", late, early, str(A), Order(0, 1, 2)),
    )
    assert log.key_times(TABLE, 0, 1, ("rose", "later"), fell_by=ZERO, most=9) == (
        KeyTimes("later", early, early, str(A), Order(0, 1, 7)),
    )
    assert len(log.key_times(TABLE, -1, 1, ("rose", "later"), fell_by=ZERO, most=2)) == 2


@pytest.mark.parametrize("by", [ZERO, 30 * MINUTE], ids=["any", "30 min"])
@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_the_times_of_keys_do_not_depend_on_how_many_changes_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, by: timedelta
) -> None:
    monkeypatch.setattr("pipeline.changelog.reader.ROWS_AT_ONCE", at_once)
    random, changes = Random(5), dict[str, list[tuple[int, int, Shard]]]()
    places = random.sample(range(200), 60)
    for batch in range(5):
        rows = []
        for pos in places[batch::5]:
            key, minute = f"k{random.randrange(25)}", random.randrange(90)
            shard = random.choice((A, B))
            changes.setdefault(key, []).append((pos, minute, shard))
            at = NOON + timedelta(minutes=minute)
            rows.append(key_change(Op.UPDATE, pos, key, pos, at=at, shard=shard.name))
        write_changes(tmp_path, batch, rows)
    expected = []
    for key, own in sorted(changes.items()):
        pos, newest, shard = max(own)
        latest = max(minute for _, minute, _ in own)
        if latest > newest + by / MINUTE or key == "k3":
            times = [NOON + timedelta(minutes=at) for at in (latest, newest)]
            expected.append(KeyTimes(key, times[0], times[1], str(shard), Order(0, 1, pos)))

    found = log_reader(tmp_path).key_times(TABLE, -1, 9, ("k3",), fell_by=by, most=99)

    assert found == tuple(expected)
    assert 1 < len(found) < len(changes)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        pytest.param(-1, (True, True, True, False), id="since ever"),
        pytest.param(0, (False, True, True, False), id="changed later, or its shard emptied"),
        pytest.param(1, (False, False, True, False), id="only the emptied shard"),
        pytest.param(2, (False, False, False, False), id="nothing since"),
    ],
)
def test_a_key_is_touched_by_its_own_change_or_by_one_that_emptied_its_shard(
    tmp_path: Path, after: int, found: tuple[bool, ...]
) -> None:
    write_changes(
        tmp_path,
        0,
        [change(Op.CREATE, 10, key="k", offset=0), change(Op.CREATE, 11, key="l", offset=1)],
    )
    write_changes(tmp_path, 1, [change(Op.DELETE, 20, key="l", offset=2)])
    write_changes(tmp_path, 2, [change(Op.TRUNCATE, 30, shard=B.name)])
    opened = read_table(str(tmp_path))

    asked = [(A, "k"), (A, "l"), (B, "m"), (A, "m")]

    assert LogReader(opened, "main").touched(TABLE, asked, after) == found
    assert LogReader(opened, "main").touched(TABLE, [], after) == ()


@pytest.mark.parametrize(
    ("until", "highest"),
    [
        pytest.param(0, 30, id="a later change has a lower order"),
        pytest.param(2, 30, id="up to a batch"),
        pytest.param(1500, 30, id="the newest batches have none of the shard"),
        pytest.param(2000, 70, id="all"),
    ],
)
def test_the_highest_order_of_a_shard_is_that_of_its_newest_batches(
    tmp_path: Path, until: int, highest: int
) -> None:
    write_changes(
        tmp_path, 0, [key_change(Op.CREATE, 30, "k", 0), key_change(Op.CREATE, 20, "other", 1)]
    )
    write_changes(tmp_path, 1, [key_change(Op.DELETE, 90, "k", 0, shard=B.name)])
    write_changes(tmp_path, 1400, [change(Op.HEARTBEAT, 95, offset=4)])
    write_changes(tmp_path, 2000, [key_change(Op.DELETE, 70, "k", 5)])

    found = log_reader(tmp_path).highest_order(TABLE, A, until)

    assert found is not None
    assert found.pos == highest
    assert log_reader(tmp_path).highest_order(TABLE, Shard("shop", "s.none"), 2000) is None


@pytest.mark.parametrize("at_once", [1, 10_000])
def test_changed_keys_are_each_told_once_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """A change that lands twice counts once; a tombstone, a heartbeat and an emptying name none.

    A row that a repair has read counts, and one of a new base does not.
    """
    monkeypatch.setattr("pipeline.changelog.reader.ROWS_AT_ONCE", at_once)
    write_changes(tmp_path, 0, [key_change(Op.CREATE, 1, "before", 0)])
    write_changes(tmp_path, 1, [key_change(Op.CREATE, 2, "b", 1), key_change(Op.UPDATE, 3, "b", 2)])
    more = [
        key_change(Op.DELETE, 4, "a", 3),
        key_change(Op.READ, 5, "c", 4, origin=int(Origin.REPAIR)),
        key_change(Op.READ, 5, "d", 4, origin=int(Origin.SNAPSHOT)),
        change(Op.TRUNCATE, 6, offset=5),
    ]
    write_changes(tmp_path, 2, [*more, key_change(Op.CREATE, 7, "a", 6, shard=B.name)])
    write_changes(tmp_path, 3, [key_change(Op.CREATE, 8, "after", 7)])
    log, expected = log_reader(tmp_path), ((A, "a"), (A, "b"), (A, "c"), (B, "a"))

    assert log.changed_keys(TABLE, 0, 2, most=10) == expected
    assert log.changed_keys(TABLE, 3, 4, most=10) == ()
    first = LogReader(log.pinned, "main", ahead=1).changed_keys(TABLE, 0, 2, most=3)
    assert first == expected[:3]
    shard, key = first[-1]
    above = shard.source, shard.name, key
    assert log.changed_keys(TABLE, 0, 2, above=above, most=3) == expected[3:]


def test_a_shard_is_emptied_by_a_truncate_a_settle_and_the_rows_of_a_new_base(
    tmp_path: Path,
) -> None:
    read = key_change(Op.READ, 1, "a", 0, origin=int(Origin.SNAPSHOT))
    repaired = key_change(Op.READ, 2, "a", 1, shard=B.name, origin=int(Origin.REPAIR))
    write_changes(tmp_path, 1, [read, repaired])
    write_changes(tmp_path, 2, [key_change(Op.CREATE, 3, "b", 2)])
    write_changes(tmp_path, 3, [change(Op.SETTLE, 4, offset=3, shard=B.name)])
    log = log_reader(tmp_path)

    found = [log.emptied_shards(TABLE, batch - 1, batch) for batch in (1, 2, 3, 4)]

    assert found == [{A}, set(), {B}, set()]
    assert log.emptied_shards(TABLE, 0, 3) == {A, B}


def test_batches_that_were_dropped_are_not_taken_for_empty(tmp_path: Path) -> None:
    for batch in range(4):
        write_changes(tmp_path, batch, [key_change(Op.UPDATE, 10 + batch, "k", batch)])
    assert log_reader(tmp_path).dropped == -1
    DeltaTable(tmp_path).alter.set_table_properties({DROPPED: "1"}, raise_if_not_exists=False)

    found = log_reader(tmp_path)

    assert found.dropped == 1
    assert found.emptied_shards(TABLE, 0, 3) == {A, B}
    assert found.changed_rows(TABLE, 0, 3, most=9) is None
    assert found.row_versions(TABLE, A, 0, 3, most=9) is None
    assert found.emptied_shards(TABLE, 1, 3) == frozenset()
    assert len(found.changed_rows(TABLE, 1, 3, most=9) or ()) == 2
    assert len(found.row_versions(TABLE, A, 1, 3, most=9) or ()) == 2
