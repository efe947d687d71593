"""What belongs to an END: its BEGINs, its epochs, its rows however long ago; and what is asked."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from checks.probes.completeness import expected_events
from pipeline.changelog.transactions import (
    EVER,
    LOOK_BACK,
    LogMemory,
    SentTransaction,
    TransactionEnd,
)
from pipeline.delta.reader import SnapshotReader
from pipeline.model import Op, Order, Shard, Table
from pipeline.readings import ShardBase, Transaction
from tests.builders.change_log import begin_event, change, end_event, place, write_changes
from tests.pipeline.delta.test_transactions import (
    OLD,
    TABLE,
    A,
    Row,
    heartbeat_event,
    read_transactions,
    transaction_event,
    transaction_reader,
    transaction_rows,
)

ONE, THREE = end_event(orders_00=1), end_event(orders_00=3)
FAR_ABOVE = {str(A): ShardBase(Order(9, 1, 1), 99)}
LONG = LOOK_BACK * 3


def sent_transaction(epochs: tuple[int, int] = EVER, **counts: int) -> SentTransaction:
    told = {f"s.{name}": count for name, count in counts.items()}
    return SentTransaction(("shop", "u:1"), TransactionEnd(9, told, 4), epochs, 1)


def test_a_shard_of_another_source_is_promised_nothing() -> None:
    both = Table("t", (A, Shard("far", "s.other")), ("id",), "id")

    assert sent_transaction(orders_00=2, other=3).promised(both) == {"s.orders_00": 2}


@pytest.mark.parametrize(
    ("landed", "told"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({1: 2, 2: 1}, 2, id="the one that fits"),
        pytest.param({1: 3, 2: 1}, 1, id="or else the newest"),
        pytest.param({0: 2, 2: 1}, 1, id="none before its first"),
        pytest.param({2: 1, 3: 2}, 1, id="none after its last"),
        pytest.param({1: 2, 3: 1}, 2, id="its first"),
    ],
)
def test_of_several_epochs_a_transaction_is_of_one(landed: dict[int, int], told: int) -> None:
    each = {(epoch, "s.orders_00"): n for epoch, n in landed.items()}

    found = sent_transaction((1, 2), orders_00=2).compared({"s.orders_00": 2}, each)

    assert found == Transaction("u:1", 2, told, 4)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param({0: OLD[:-1], 1: [THREE]}, (3, 3, 1, 1), id="landed before it"),
        pytest.param({0: OLD[1:-1], 1: [THREE]}, (3, 3, 1, 1), id="and BEGIN never did"),
        pytest.param(
            {0: [begin_event()], 1: [begin_event()], 2: [THREE]}, (3, 0, 2, 2), id="began again"
        ),
        pytest.param({0: OLD[:-2], 1: [THREE]}, (3, 2, 1, 1), id="one is lost"),
        pytest.param({0: OLD[1:]}, (3, 3, 0, 1), id="with its rows, and BEGIN never did"),
    ],
)
def test_an_end_that_lands_alone_is_of_any_epoch(
    tmp_path: Path, batches: dict[int, list[Row]], told: tuple[int, int, int, int]
) -> None:
    """Promised, landed, batch and BEGINs."""
    (found,) = read_transactions(tmp_path, batches, range(3))

    assert (found.promised, found.landed, found.end_batch, found.begun) == told


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param({0: OLD[1:-1], 1: [THREE]}, id="its END alone"),
        pytest.param({0: OLD[1:]}, id="its END with its rows"),
    ],
)
def test_what_is_whole_is_stated_below_a_base_though_it_never_began(
    tmp_path: Path, batches: dict[int, list[Row]]
) -> None:
    (found,) = read_transactions(tmp_path, batches, range(2), FAR_ABOVE)

    assert (found.promised, found.landed) == (3, 3)


def test_of_an_end_that_lands_alone_no_base_holds_what_became_of_it(tmp_path: Path) -> None:
    """Nothing tells where in the log it stands."""
    found = read_transactions(tmp_path, {0: [begin_event(), THREE]}, range(1), FAR_ABOVE)

    assert [(one.promised, one.landed) for one in found] == [(3, 0)]


NOWHERE = change(Op.CREATE, order=None, tx={"id": "u:1", "total_order": 2})


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param(
            {0: [begin_event(), NOWHERE], 1: [ONE]}, (1, 1), id="of a log that nobody knows"
        ),
        pytest.param(
            {0: [begin_event(), NOWHERE, heartbeat_event(1, 900), ONE]},
            (1, 0),
            id="of none that is",
        ),
        pytest.param(
            {
                0: [begin_event(), *transaction_rows(1, 900, 1), NOWHERE],
                1: [end_event(orders_00=2)],
            },
            (2, 1),
            id="of both",
        ),
    ],
)
def test_a_change_without_a_place_is_of_no_known_epoch(
    tmp_path: Path, batches: dict[int, list[Row]], told: tuple[int, int]
) -> None:
    (found,) = read_transactions(tmp_path, batches, range(2))

    assert (found.promised, found.landed) == told


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([begin_event(), *transaction_rows(1, 900, 2)], id="the whole of it"),
        pytest.param([begin_event()], id="BEGIN and nothing else"),
    ],
)
def test_a_transaction_begun_in_two_batches_of_one_log_was_begun_again(
    tmp_path: Path, first: list[Row]
) -> None:
    (found,) = read_transactions(
        tmp_path, {0: first, 1: [begin_event(), *transaction_rows(1, 902, 1), ONE]}, range(2)
    )

    assert (found.begun, found.promised) == (2, 1)


def test_what_began_in_a_log_before_is_not_begun_again_however_high_its_number(
    tmp_path: Path,
) -> None:
    numbers = {"id": "u:1", "total_order": 1}
    high, low = (
        change(Op.CREATE, order=place(Order(epoch, log, 5)), tx=numbers)
        for epoch, log in ((1, 99), (2, 2))
    )

    found = read_transactions(
        tmp_path, {0: [begin_event(), high], 1: [begin_event(), low, ONE]}, range(2)
    )

    assert found == (Transaction("u:1", 1, 1, 1),)


def test_what_began_long_ago_is_found_beside_what_began_lately(tmp_path: Path) -> None:
    lately = [transaction_event(Op.BEGIN, "u:2"), transaction_event(Op.END, "u:2", THREE["after"])]
    batches = {0: OLD[:-1], LONG: [*lately, heartbeat_event(1, 950), THREE]}

    found = read_transactions(tmp_path, batches, range(LONG, LONG + 1))

    assert [(one.id, one.landed) for one in found] == [("u:1", 3), ("u:2", 0)]


BEGUN_IN_BOTH = [
    begin_event(),
    *transaction_rows(1, 900, 3),
    begin_event(),
    *transaction_rows(2, 10, 1),
]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param([*BEGUN_IN_BOTH, ONE], (1, 1), id="whole in the new log"),
        pytest.param([*BEGUN_IN_BOTH, THREE], (3, 1), id="whole in the old one only"),
    ],
)
def test_of_one_that_began_again_the_rows_of_the_newest_log_count(
    tmp_path: Path, written: list[Row], told: tuple[int, int]
) -> None:
    (found,) = read_transactions(tmp_path, {0: written}, range(1))

    assert (found.promised, found.landed) == told


SPLIT = [begin_event(), heartbeat_event(1, 950), THREE]  # a new log's, below the start of its epoch
NUMBERS = transaction_rows(2, 10, 3)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param({0: SPLIT, 1: NUMBERS}, (3, 3), id="its rows land in the epoch that begins"),
        pytest.param(
            {0: [*transaction_rows(1, 960, 1), *SPLIT], 1: NUMBERS[1:]},
            (3, 3),
            id="its rows are of both epochs",
        ),
        pytest.param(
            {0: [*transaction_rows(1, 960, 1), *SPLIT], 1: NUMBERS[2:]},
            (3, 2),
            id="one of them is lost",
        ),
        pytest.param(
            {0: [*transaction_rows(1, 960, 2), *SPLIT], 1: NUMBERS[1:2]},
            (3, 2),
            id="another with that number is no third",
        ),
        pytest.param({0: SPLIT, 1: NUMBERS[:1]}, (3, 1), id="two are lost"),
        pytest.param(
            {0: SPLIT, 1: [begin_event(), *NUMBERS]}, (3, 0), id="another one began in the new log"
        ),
        pytest.param(
            {0: [begin_event(), THREE], 1: NUMBERS[:1], 2: transaction_rows(3, 5, 3)[1:]},
            (3, 3),
            id="an END that lands alone",
        ),
    ],
)
def test_an_end_may_land_before_the_epoch_of_its_rows_begins(
    tmp_path: Path, batches: dict[int, list[Row]], told: tuple[int, int]
) -> None:
    """After a fail-over that is seen when rows of the new log are in topics already."""
    (found,) = read_transactions(tmp_path, batches, range(1))

    assert (found.promised, found.landed) == told


def numbered(op: Op, pos: int, number: int) -> Row:
    """An event at *pos*, the *number*th of its run."""
    tx = {"id": "u:1", "total_order": number}
    return change(op, order=place(Order(1, 1, pos)), tx=tx)


@pytest.mark.parametrize(
    ("runs", "promised", "resumed"),
    [
        pytest.param(
            ([(Op.CREATE, 5, 1), (Op.CREATE, 6, 2)], [(Op.CREATE, 6, 1), (Op.CREATE, 7, 2)]),
            2,
            (2,),
            id="at its second event",
        ),
        pytest.param(
            ([(Op.DELETE, 5, 1), (Op.CREATE, 5, 2)], [(Op.CREATE, 5, 1)]),
            1,
            (2,),
            id="between the delete and the create of a changed key",
        ),
    ],
)
def test_where_a_killed_collector_went_on_is_told(
    tmp_path: Path,
    runs: Sequence[Sequence[tuple[Op, int, int]]],
    promised: int,
    resumed: tuple[int, ...],
) -> None:
    events = [row for run in runs for row in (begin_event(), *(numbered(*one) for one in run))]

    (found,) = read_transactions(tmp_path, {0: [*events, end_event(orders_00=promised)]}, range(1))

    assert (found.begun, found.promised, found.resumed) == (2, promised, resumed)


@pytest.mark.parametrize(
    ("batches", "base", "stated"),
    [
        pytest.param(
            {
                0: [begin_event(), *transaction_rows(1, 900, 1), THREE],
                1: [begin_event(), *transaction_rows(2, 10, 1)],
            },
            (1, 950),
            0,
            id="below a base, though its id came again above it",
        ),
        pytest.param(
            {0: [begin_event(), *transaction_rows(1, 900, 1), *transaction_rows(2, 10, 1), THREE]},
            (1, 950),
            1,
            id="of two logs the newer counts, and its rows are above the base",
        ),
    ],
)
def test_a_base_is_compared_with_rows_of_the_transactions_own_logs(
    tmp_path: Path, batches: dict[int, list[Row]], base: tuple[int, int], stated: int
) -> None:
    (epoch, pos) = base

    found = read_transactions(
        tmp_path, batches, range(1), {str(A): ShardBase(Order(epoch, 1, pos), 0)}
    )

    assert len(found) == stated


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(None, id="no words at all"),
        pytest.param("{}", id="nothing said"),
        pytest.param(
            json.dumps({"event_count": 0, "data_collections": None}), id="a transaction of nothing"
        ),
    ],
)
def test_an_end_that_promises_nothing_is_no_tables(tmp_path: Path, after: str | None) -> None:
    batch = [transaction_event(Op.BEGIN, "u:0"), transaction_event(Op.END, "u:0", after), *OLD]

    assert read_transactions(tmp_path, {0: batch}, range(1)) == (Transaction("u:1", 3, 3, 0),)


@pytest.mark.parametrize(
    ("written", "bases", "asked"),
    [
        pytest.param(OLD, FAR_ABOVE, 4, id="whole: ENDs, their spans, where it began, rows"),
        pytest.param([OLD[0], *OLD[2:]], {}, 4, id="not whole"),
        pytest.param(
            [OLD[0], *OLD[2:]], FAR_ABOVE, 5, id="not whole, and below a base: where it stands"
        ),
    ],
)
def test_no_more_is_asked_than_is_needed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: list[Row],
    bases: Mapping[str, ShardBase],
    asked: int,
) -> None:
    """Of one source, and of a few batches: a change log has years of them."""
    queries, select = list[str](), SnapshotReader.select

    def noted(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        queries.append(query)
        return select(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", noted)
    write_changes(tmp_path, LONG, written)
    transaction_reader(tmp_path, LogMemory(("shop",))).of(TABLE, range(LONG, LONG + 1), bases)

    assert len(queries) == asked
    ends, *others = queries
    spans, *near = others
    assert all("source IN ('shop')" in one for one in (ends, spans))
    assert all(f"batch > {LONG - LOOK_BACK}" in one for one in near)


def written_over(path: Path, batches: range, *, late: Sequence[int] = ()) -> None:
    """One whole transaction in each batch; of *late* ones a row lands in the last batch only."""
    for batch in batches:
        rows = [begin_event(f"u:{batch}"), end_event(f"u:{batch}", orders_00=1)]
        last = batch == batches[-1]
        own = [batch] if batch not in late else []
        for one in [*own, *(late if last else ())]:
            (row,) = transaction_rows(1, one, 1)
            rows.append({**row, "tx": {"id": f"u:{one}", "total_order": 1}})
        write_changes(path, batch, rows)


def read_long_ago(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[Transaction]]:
    """Queries for rows and boundaries, and what they found in the first batches of a long log."""
    queries, select = list[str](), SnapshotReader.select

    def noted(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        queries.append(query)
        return select(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", noted)
    memory = LogMemory(("shop",), until=LONG)
    found = transaction_reader(path, memory).of(TABLE, range(4), {})
    return [one for one in queries if "t.tx['id'] IN" in one], [*found]


def test_what_ended_long_ago_is_looked_for_near_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_over(tmp_path, range(5))

    queries, found = read_long_ago(tmp_path, monkeypatch)

    assert found == [Transaction(f"u:{n}", 1, 1, n) for n in range(4)]
    assert len(queries) == 2
    assert all(f"batch <= {3 + LOOK_BACK}" in one for one in queries)


def test_a_row_that_landed_long_after_its_end_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_over(tmp_path, range(LOOK_BACK + 6), late=[2])

    queries, found = read_long_ago(tmp_path, monkeypatch)

    assert found == [Transaction(f"u:{n}", 1, 1, n) for n in range(4)]
    assert "'u:2'" in queries[-1]
    assert "'u:1'" not in queries[-1]


def test_what_began_twice_long_before_its_end_is_not_taken_for_begun_once(tmp_path: Path) -> None:
    begins = [at_offset(offset, begin_event()) for offset in (1, 2)]
    write_changes(tmp_path, 0, [*begins, heartbeat_event(1, 99)])
    ended = LOOK_BACK + 10
    rows = transaction_rows(1, 100, 2)
    write_changes(tmp_path, ended, [*rows, at_offset(3, end_event(orders_00=2))])

    memory = LogMemory(("shop",), until=ended + LONG)
    (found,) = transaction_reader(tmp_path, memory).of(TABLE, range(ended, ended + 1), {})

    assert found.begun == 2


def at_offset(offset: int, row: Row) -> Row:
    return {**row, "offset": offset}


(USER,) = transaction_rows(1, 102, 1, "users")
FIRST_RUN = [
    at_offset(10, begin_event()),
    *transaction_rows(1, 100, 2),
    {**USER, "tx": {"id": "u:1", "total_order": 3}},
    at_offset(11, end_event(orders_00=2, users=1)),
]
REST = [USER, at_offset(13, end_event(users=1))]


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param({0: [*FIRST_RUN, at_offset(12, begin_event()), *REST]}, id="together"),
        pytest.param({0: [*FIRST_RUN, at_offset(12, begin_event())], 1: REST}, id="cut"),
        pytest.param({0: FIRST_RUN, 1: [at_offset(12, begin_event()), *REST]}, id="apart"),
    ],
)
def test_a_run_that_was_told_to_its_end_is_not_judged_by_the_one_after(
    tmp_path: Path, batches: dict[int, list[Row]]
) -> None:
    """A collector that was killed after an END it does not remember states the rest again."""
    found = read_transactions(tmp_path, batches, range(2))

    assert [(one.begun, expected_events(one), one.landed) for one in found] == [(1, 2, 2)]


@pytest.mark.parametrize("asked", [range(1), range(2)])
def test_rows_of_one_transaction_complete_no_other(tmp_path: Path, asked: range) -> None:
    """All rows of the first are lost; its id recurs after a reset, and the BEGIN never landed."""
    batches = {
        0: [begin_event(), heartbeat_event(1, 950), THREE],
        1: [heartbeat_event(2, 5), *NUMBERS, THREE],
    }
    found = read_transactions(tmp_path, batches, asked)

    every = [(0, 3, 0), (1, 3, 3)]
    assert [(one.end_batch, one.promised, one.landed) for one in found] == every[: len(asked)]
