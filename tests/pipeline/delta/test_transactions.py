"""An END is compared with rows of its own epoch, and of shards without a base above it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.changelog import transactions
from pipeline.changelog.transactions import LOOK_BACK, BatchSpan, LogMemory, TransactionReader
from pipeline.delta.reader import SnapshotReader
from pipeline.model import Op, Order, Shard, Table
from pipeline.readings import ShardBase, Transaction
from tests.builders.change_log import (
    begin_event,
    change,
    end_event,
    place,
    read_table,
    write_changes,
)

A, B = Shard("shop", "s.orders_00"), Shard("shop", "s.orders_01")
TABLE = Table("shop.orders", (A, B), ("id",), "id")
USERS = Table("shop.users", (Shard("shop", "s.users"),), ("id",), "id")
Row = dict[str, Any]


def transaction_event(op: Op, tx_id: str, after: str | None = None) -> Row:
    tx = {"id": tx_id, "total_order": None}
    return change(op, table=None, shard=None, topic="shop.tx", tx=tx, after=after)


def transaction_rows(epoch: int, first: int, many: int, shard: str = "orders_00") -> list[Row]:
    table = "shop.users" if shard == "users" else "shop.orders"
    return [
        change(
            Op.CREATE,
            order=place(Order(epoch, 1, first + n)),
            tx={"id": "u:1", "total_order": 1 + n},
            shard=f"s.{shard}",
            table=table,
        )
        for n in range(many)
    ]


def heartbeat_event(epoch: int, pos: int) -> Row:
    order, tx = place(Order(epoch, 1, pos)), {"id": f"h:{pos}", "total_order": 1}
    return change(Op.HEARTBEAT, order=order, tx=tx, table="sluice.heartbeat", shard="s.heartbeat")


def transaction_reader(path: Path, memory: LogMemory | None = None) -> TransactionReader:
    return TransactionReader(read_table(path), "main", memory or LogMemory())


def read_transactions(
    path: Path,
    batches: Mapping[int, Sequence[Row]],
    asked: range,
    bases: Mapping[str, ShardBase] | None = None,
) -> tuple[Transaction, ...]:
    for batch, written in batches.items():
        write_changes(path, batch, written)
    return transaction_reader(path).of(TABLE, asked, bases or {})


OLD = [begin_event(), *transaction_rows(1, 900, 3), end_event(orders_00=3)]
NEW = [begin_event(), *transaction_rows(2, 10, 1), end_event(orders_00=1)]


def test_a_transaction_has_as_many_runs_as_it_has_begins_before_its_end(tmp_path: Path) -> None:
    """They may all land in one batch; a BEGIN after END is of the next run."""
    begins = [begin_event() | {"offset": offset} for offset in (10, 12, 30)]
    end = end_event(orders_00=3) | {"offset": 20}

    (told,) = read_transactions(tmp_path, {0: [*begins, *OLD[1:-1], end]}, range(1))

    assert (told.promised, told.landed, told.begun) == (3, 3, 2)


@pytest.mark.parametrize(
    ("batches", "asked", "told"),
    [
        pytest.param({0: OLD, 1: NEW}, range(1), [(3, 3, 0)], id="the old log's is asked for"),
        pytest.param({0: OLD, 1: NEW}, range(1, 2), [(1, 1, 1)], id="the new log's"),
        pytest.param({0: OLD, 1: NEW}, range(2), [(3, 3, 0), (1, 1, 1)], id="both"),
        pytest.param({0: OLD, 1: NEW[:-1]}, range(2), [(3, 3, 0)], id="the new has not ended"),
        pytest.param(
            {0: [OLD[0], *OLD[2:]], 1: NEW}, range(2), [(3, 2, 0), (1, 1, 1)], id="one lost of old"
        ),
        pytest.param(
            {
                0: [OLD[0], heartbeat_event(1, 950), OLD[-1]],
                1: [begin_event(), *transaction_rows(2, 10, 3), end_event(orders_00=3)],
            },
            range(2),
            [(3, 0, 0), (3, 3, 1)],
            id="all lost of old, and as many in the new",
        ),
        pytest.param(
            {0: OLD, 1: [begin_event(), heartbeat_event(2, 9), end_event(orders_00=3)]},
            range(2),
            [(3, 3, 0), (3, 0, 1)],
            id="all lost of new, and as many in the old",
        ),
        pytest.param(
            {0: OLD, LOOK_BACK * 3: NEW},
            range(LOOK_BACK * 3, LOOK_BACK * 3 + 1),
            [(1, 1, LOOK_BACK * 3)],
            id="the old one was long ago",
        ),
        pytest.param(
            {0: OLD[:-1], 1: [heartbeat_event(2, 5), OLD[-1]], 2: NEW},
            range(1, 2),
            [(3, 3, 1)],
            id="the old END landed with rows of the new log",
        ),
        pytest.param(
            {0: [*OLD, *transaction_rows(2, 10, 1)]},
            range(1),
            [(3, 3, 0)],
            id="the log was reset in a batch",
        ),
    ],
)
def test_an_id_that_came_again_in_a_new_log_is_another_transaction(
    tmp_path: Path,
    batches: dict[int, list[Row]],
    asked: range,
    told: list[tuple[int, int, int]],
) -> None:
    assert read_transactions(tmp_path, batches, asked) == tuple(
        Transaction("u:1", *one) for one in told
    )


def test_a_transaction_sent_again_by_another_server_is_not_begun_again(tmp_path: Path) -> None:
    first = [begin_event(), *transaction_rows(1, 900, 2)]
    again = [begin_event(), *transaction_rows(2, 10, 3), end_event(orders_00=3)]

    assert read_transactions(tmp_path, {0: first, 1: again}, range(2)) == (
        Transaction("u:1", 3, 3, 1),
    )


@pytest.mark.parametrize(
    "mixed",
    [
        pytest.param([begin_event(), *transaction_rows(1, 900, 3), *NEW], id="the new log's END"),
        pytest.param(
            [*OLD, begin_event(), *transaction_rows(2, 10, 2)[1:]],
            id="the old log's, the new half landed",
        ),
    ],
)
def test_a_transaction_that_began_again_in_either_log_is_not_told_from_both(
    tmp_path: Path, mixed: list[Row]
) -> None:
    (found,) = read_transactions(tmp_path, {0: mixed}, range(1))

    assert (found.begun, found.resumed) == (2, ())


NAMES = {"a": str(A), "b": str(B)}
IN_BOTH = end_event(orders_00=2, orders_01=1)
HALF = [begin_event(), *transaction_rows(1, 100, 1), IN_BOTH]
NONE = [begin_event(), heartbeat_event(1, 100), IN_BOTH]


@pytest.mark.parametrize(
    ("landed", "bases", "told"),
    [
        pytest.param(HALF, {}, [(3, 1)], id="no base"),
        pytest.param(HALF, {"a": (1, 99, 9)}, [(3, 1)], id="a base below it"),
        pytest.param(HALF, {"a": (1, 200, 0)}, [(1, 0)], id="above it: the other shard stays"),
        pytest.param(HALF, {"b": (1, 200, 0)}, [(2, 1)], id="of the other shard"),
        pytest.param(HALF, {"a": (1, 200, 0), "b": (1, 200, 0)}, [], id="of both"),
        pytest.param(HALF, {"a": (2, 5, 1), "b": (2, 5, 1)}, [], id="in a new log"),
        pytest.param(NONE, {"a": (1, 99, 9), "b": (1, 99, 9)}, [(3, 0)], id="below, none landed"),
        pytest.param(NONE, {"a": (1, 200, 2), "b": (1, 200, 2)}, [], id="later, none landed"),
        pytest.param(
            NONE, {"a": (1, 200, 1), "b": (1, 200, 1)}, [(3, 0)], id="too soon after to be told"
        ),
    ],
)
def test_rows_below_a_base_of_their_shard_are_not_missed(
    tmp_path: Path,
    landed: list[Row],
    bases: dict[str, tuple[int, int, int]],
    told: list[tuple[int, int]],
) -> None:
    """A base: its epoch, its position, and the batch of its first row."""
    made = {NAMES[n]: ShardBase(Order(e, 1, pos), since) for n, (e, pos, since) in bases.items()}

    found = read_transactions(tmp_path, {0: landed}, range(1), made)

    assert [(one.promised, one.landed) for one in found] == told


def test_a_transaction_begun_again_below_a_base_is_not_stated(tmp_path: Path) -> None:
    again = [begin_event(), *transaction_rows(1, 100, 1), begin_event(), end_event(orders_00=3)]
    base = {str(A): ShardBase(Order(1, 1, 200), 0)}

    assert read_transactions(tmp_path, {0: again}, range(1), base) == ()


def test_a_whole_transaction_is_stated_whatever_bases_there_are(tmp_path: Path) -> None:
    base = {str(A): ShardBase(Order(2, 1, 5), 9)}

    assert read_transactions(tmp_path, {0: OLD}, range(1), base) == (Transaction("u:1", 3, 3, 0),)


def test_the_epochs_of_a_batch_are_read_once_for_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, select = list[str](), SnapshotReader.select

    def noted(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        asked.append(query)
        return select(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", noted)
    both = [
        begin_event(),
        *transaction_rows(1, 100, 1),
        *transaction_rows(1, 101, 1, shard="users"),
        end_event(orders_00=1, users=1),
    ]
    write_changes(tmp_path, 0, both)
    found = transaction_reader(tmp_path, LogMemory(("shop",)))

    told = [found.of(table, range(1), {}) for table in (TABLE, USERS) for _ in range(5)]

    assert told == [(Transaction("u:1", 1, 1, 0),)] * 10
    assert sum("max(" in one for one in asked) == 1


def test_of_more_batches_than_are_kept_the_spans_of_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "MOST_SPANS", 2)
    memory, asked = LogMemory(), list[list[int]]()

    def spans(batches: Sequence[int]) -> dict[int, transactions.Spans]:
        asked.append([*batches])
        return {}

    for batch in (0, 1, 2, 2, 1, 0):
        assert memory.spans([batch], spans) == {batch: {}}

    assert asked == [[0], [1], [2], [0]]


def test_spans_go_with_their_log() -> None:
    memory = LogMemory()
    memory.of("a", 5)
    memory.spans([3], lambda _: {3: {"shop": BatchSpan(1, (1, 1, 9))}})

    memory.of("b", 5)

    assert memory.spans([3], lambda _: {}) == {3: {}}
