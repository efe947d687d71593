"""Without BEGIN, a transaction that keeps its numbers began with its event 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.changelog.transactions import LOOK_BACK, LogMemory, keeps_numbers
from pipeline.delta.reader import SnapshotReader
from pipeline.model import Op
from pipeline.readings import Transaction
from tests.builders.change_log import begin_event, change, end_event, write_changes
from tests.pipeline.delta.test_transactions import (
    TABLE,
    Row,
    heartbeat_event,
    read_transactions,
    transaction_reader,
    transaction_rows,
)

LONG = LOOK_BACK * 3
NUMBER = "4711"  # Postgres names a transaction by its number


def rename(rows: Sequence[Row], name: str = NUMBER) -> list[Row]:
    """The same events of another transaction."""
    return [{**row, "tx": {**row["tx"], "id": name}} for row in rows]


def tell(found: Sequence[Transaction]) -> list[tuple[int, int, int]]:
    """Promised, landed and BEGINs of each."""
    return [(one.promised, one.landed, one.begun) for one in found]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that look for rows of transactions, as they are run."""
    noted, select = list[str](), SnapshotReader.select

    def note(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        if "t.tx['id'] IN" in query:
            noted.append(query)
        return select(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", note)
    return noted


def are_near(queries: Sequence[str]) -> bool:
    """Whether all of them are of some batches only."""
    return bool(queries) and all("AND batch > " in one for one in queries)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        pytest.param("4711", True, id="Postgres"),
        pytest.param("24da167-0c0c-11e8-8442-00059a3c7b00:19", False, id="MySQL"),
        pytest.param("file=mysql-bin.000003,pos=154", False, id="MySQL without GTIDs"),
        pytest.param("0-1-7", False, id="MariaDB"),
        pytest.param("٤٧", False, id="digits of another script"),
        pytest.param("", False, id="no name"),
    ],
)
def test_a_transaction_that_is_named_by_a_number_keeps_its_numbers(name: str, kept: bool) -> None:
    assert keeps_numbers(name) is kept


ROWS = rename(transaction_rows(1, 900, 3))
NEW_ROWS = rename(transaction_rows(2, 10, 3))
(USER,) = rename(transaction_rows(1, 899, 1, "users"))
LATER = [{**row, "tx": {**row["tx"], "total_order": n}} for n, row in enumerate(ROWS, 2)]
(ONE,), (THREE,) = rename([end_event(orders_00=1)]), rename([end_event(orders_00=3)])
(BOTH,) = rename([end_event(orders_00=3, users=1)])
BEFORE, AFTER = heartbeat_event(1, 890), heartbeat_event(1, 950)
NEW_LOG = heartbeat_event(2, 5)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param({LONG: [*ROWS, THREE]}, [(3, 3, 1)], id="whole"),
        pytest.param({LONG - 9: ROWS, LONG: [AFTER, THREE]}, [(3, 3, 1)], id="rows before END"),
        pytest.param({LONG - 9: ROWS, LONG: [THREE]}, [(3, 3, 1)], id="END lands alone"),
        pytest.param({LONG: [BEFORE, THREE], LONG + 9: ROWS}, [(3, 3, 1)], id="rows after END"),
        pytest.param(
            {LONG: [*ROWS[1:], THREE], LONG + 1: ROWS[:1]}, [(3, 3, 1)], id="event 1 after END"
        ),
        pytest.param({LONG: [*ROWS[:2], THREE]}, [(3, 2, 1)], id="one is lost"),
        pytest.param(
            {LONG: [BEFORE, THREE], LONG + 9: ROWS[:2]}, [(3, 2, 1)], id="one after END is lost"
        ),
        pytest.param({LONG: [USER, *LATER, BOTH]}, [(3, 3, 1)], id="event 1 is of another table"),
        pytest.param(
            {LONG: [*ROWS, THREE], LONG + 1: [*ROWS, THREE]}, [(3, 3, 1)] * 2, id="sent twice"
        ),
        pytest.param(
            {LONG: ROWS[:2], LONG + 1: [*ROWS[1:], THREE]},
            [(3, 3, 1)],
            id="continued at its second event",
        ),
        pytest.param(
            {LONG: [*ROWS, THREE], LONG + 1: [*ROWS[1:], THREE]},
            [(3, 3, 1)] * 2,
            id="continued after END",
        ),
        pytest.param(
            {LONG: ROWS[:1], LONG + 1: [*ROWS[:1], ROWS[2], THREE]},
            [(3, 2, 1)],
            id="sent twice, and one is lost",
        ),
    ],
)
def test_without_begin_only_batches_near_end_are_read(
    tmp_path: Path, queries: list[str], batches: dict[int, list[Row]], told: list[Any]
) -> None:
    each = range(LONG, LONG + 2)
    for batch, rows in batches.items():
        write_changes(tmp_path, batch, rows)

    found = [transaction_reader(tmp_path).of(TABLE, range(batch, batch + 1), {}) for batch in each]

    assert tell([one for some in found for one in some]) == told
    assert are_near(queries)


OTHER = [*rename(transaction_rows(1, 800, 1), "4710"), *rename([end_event(orders_00=1)], "4710")]


@pytest.mark.parametrize(
    ("other", "whole"),
    [
        pytest.param(LONG - 1, False, id="just before"),
        pytest.param(LONG - LOOK_BACK + 2, False, id="at the border"),
        pytest.param(LONG - LOOK_BACK + 1, True, id="what follows it may have landed outside"),
        pytest.param(LONG, True, id="in the same batch"),
    ],
)
def test_where_event_1_is_lost_no_row_is_older_than_the_end_of_another_transaction(
    tmp_path: Path, queries: list[str], other: int, *, whole: bool
) -> None:
    batches = {other: OTHER} if other < LONG else {}
    written = {**batches, LONG: [*(OTHER if other == LONG else ()), *ROWS[1:], THREE]}

    found = read_transactions(tmp_path, written, range(LONG, LONG + 1))

    assert [(one.promised, one.landed) for one in found if one.id == NUMBER] == [(3, 2)]
    assert are_near(queries) is not whole


COPIED = [{**row, "order": ROWS[0]["order"]} for row in ROWS]  # rows of one COPY
EMPTIED = [{**COPIED[0], "op": str(Op.TRUNCATE)}, *COPIED[1:]]
MARIADB = "0-1-7"
(MARIADB_END,) = rename([end_event(orders_00=3)], MARIADB)


@pytest.mark.parametrize(
    ("rows", "landed"),
    [
        pytest.param([*COPIED, THREE], 3, id="all"),
        pytest.param([*COPIED, *COPIED, THREE], 3, id="sent twice"),
        pytest.param([*COPIED[:2], THREE], 2, id="one is missing"),
        pytest.param([*EMPTIED, THREE], 3, id="emptied first"),
        pytest.param([*rename(COPIED, MARIADB), MARIADB_END], 1, id="one event, numbered again"),
    ],
)
def test_rows_of_one_position_differ_by_their_numbers_where_these_are_kept(
    tmp_path: Path, rows: Sequence[Row], landed: int
) -> None:
    found = read_transactions(tmp_path, {LONG: rows}, range(LONG, LONG + 1))

    assert [(one.promised, one.landed) for one in found] == [(3, landed)]


def test_begins_ends_and_first_events_are_read_at_once(tmp_path: Path, queries: list[str]) -> None:
    read_transactions(tmp_path, {0: [*ROWS, THREE]}, range(1))

    assert len(queries) == 2  # and the rows


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param({LONG: [*ROWS[1:], THREE]}, (3, 2, 1), id="event 1 is lost"),
        pytest.param(
            {0: ROWS[:1], LONG - 9: ROWS[1:], LONG: [AFTER, THREE]}, (3, 3, 1), id="it was long"
        ),
        pytest.param(
            {0: ROWS[:1], LONG - 9: ROWS[1:2], LONG: [AFTER, THREE]},
            (3, 2, 1),
            id="it was long, and one is lost",
        ),
        pytest.param({LONG: [THREE], LONG + 1: ROWS}, (3, 3, 1), id="END lands alone before it"),
        pytest.param(
            {LONG: [*ROWS[1:], change(Op.UPDATE, order=None, tx=ROWS[0]["tx"]), THREE]},
            (3, 2, 1),
            id="event 1 has no place in the log",
        ),
    ],
)
def test_all_batches_are_read_if_event_1_is_not_in_sight(
    tmp_path: Path, queries: list[str], batches: dict[int, list[Row]], told: tuple[int, int, int]
) -> None:
    found = read_transactions(tmp_path, batches, range(LONG, LONG + 1))

    assert tell(found) == [told]
    assert not are_near(queries)


def test_without_begin_what_ended_long_ago_is_looked_for_near_it_only(
    tmp_path: Path, queries: list[str]
) -> None:
    for batch in range(5):
        (row,) = rename(transaction_rows(1, batch, 1), str(batch))
        write_changes(tmp_path, batch, [row, *rename([ONE], str(batch))])

    reader = transaction_reader(tmp_path, LogMemory(("shop",), until=LONG))
    found = reader.of(TABLE, range(4), {})

    assert found == tuple(Transaction(str(n), 1, 1, n) for n in range(4))
    assert len(queries) == 2
    assert all(f"batch <= {3 + LOOK_BACK}" in one for one in queries)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        pytest.param({LONG - 1: ROWS, LONG: [NEW_LOG, THREE]}, (3, 3), id="END landed in it"),
        pytest.param(
            {LONG - 1: ROWS, LONG: [NEW_LOG, THREE], LONG + 1: [NEW_ROWS[0], ONE]},
            (3, 3),
            id="END landed in it, and its id came again",
        ),
        pytest.param(
            {LONG - 1: ROWS[1:], LONG: [NEW_LOG, THREE], LONG + 1: [NEW_ROWS[0], ONE]},
            (3, 1),
            id="event 1 of the old one is lost",
        ),
        pytest.param(
            {LONG - 1: [*ROWS, THREE], LONG: [*NEW_ROWS[1:], THREE]},
            (3, 2),
            id="event 1 of the new one is lost, and the old one is whole",
        ),
        pytest.param(
            {LONG - 2: ROWS, LONG - 1: [AFTER, THREE], LONG: [*NEW_ROWS[1:], THREE]},
            (3, 2),
            id="and its END landed later",
        ),
        pytest.param(
            {LONG - 1: [*ROWS, THREE], LONG: [*NEW_ROWS, THREE]}, (3, 3), id="both are whole"
        ),
        pytest.param({LONG - 1: ROWS[:2], LONG: [*NEW_ROWS, THREE]}, (3, 3), id="sent again in it"),
        pytest.param(
            {LONG - 1: ROWS, LONG: [*NEW_ROWS[:2], THREE]}, (3, 2), id="sent again, and one is lost"
        ),
        pytest.param(
            {0: ROWS, LONG: [AFTER, THREE], LONG + 1: NEW_ROWS[:1]},
            (3, 3),
            id="event 1 of the new one only is in sight",
        ),
        pytest.param(
            {0: ROWS, LONG: [AFTER, NEW_ROWS[0], THREE]}, (3, 3), id="it came in the same batch"
        ),
        pytest.param(
            {0: ROWS, LONG: [AFTER, NEW_LOG, THREE], LONG + 1: NEW_ROWS[:1]},
            (3, 3),
            id="END landed with both logs",
        ),
        pytest.param(
            {0: ROWS, LONG: [THREE], LONG + 1: NEW_ROWS[:1]}, (3, 3), id="END landed alone"
        ),
    ],
)
def test_an_id_that_came_again_in_a_new_log_is_another_transaction_without_begin(
    tmp_path: Path, batches: dict[int, list[Row]], told: tuple[int, int]
) -> None:
    found = read_transactions(tmp_path, batches, range(LONG, LONG + 1))

    assert tell(found) == [(*told, 1)]


def number_again(rows: Sequence[Row]) -> list[Row]:
    """The same events as a run numbers them that begins with them."""
    return [{**row, "tx": {**row["tx"], "total_order": n}} for n, row in enumerate(rows, 1)]


SECOND = 10  # batch of a BEGIN that is just out of sight
ENDED = SECOND + LOOK_BACK


@pytest.mark.parametrize(
    "until", [pytest.param(-1, id="near"), pytest.param(ENDED + LONG, id="long ago")]
)
def test_event_1_of_a_connector_that_numbers_again_does_not_show_that_none_came_before(
    tmp_path: Path, until: int
) -> None:
    rows = transaction_rows(1, 900, 4)
    write_changes(tmp_path, 0, [begin_event(), *rows[:3]])
    write_changes(tmp_path, SECOND, [begin_event()])
    write_changes(tmp_path, SECOND + 1, number_again(rows[2:]))
    write_changes(tmp_path, ENDED, [AFTER, end_event(orders_00=2)])

    reader = transaction_reader(tmp_path, LogMemory(("shop",), until=until))
    (found,) = reader.of(TABLE, range(ENDED, ENDED + 1), {})

    assert (found.begun, found.resumed, found.landed) == (2, (3,), 4)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        pytest.param([begin_event(), *ROWS[:2], begin_event(), *ROWS, THREE], 3, id="sent again"),
        pytest.param([begin_event(), *COPIED, begin_event(), *COPIED, THREE], 3, id="a COPY"),
        pytest.param([begin_event(), *ROWS[:2], begin_event(), *ROWS[:2], THREE], 2, id="lost"),
    ],
)
def test_begins_change_nothing_where_a_transaction_keeps_its_numbers(
    tmp_path: Path, rows: Sequence[Row], told: int
) -> None:
    found = read_transactions(tmp_path, {0: rename(rows)}, range(1))

    assert tell(found) == [(3, told, 1)]


OLD = [*rename([begin_event()]), *rename(transaction_rows(1, 900, 1)), ONE]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param({0: OLD}, id="with BEGIN"),
        pytest.param({0: [BEFORE, ONE], 1: OLD[1:2]}, id="END before its event"),
    ],
)
def test_a_lost_row_is_not_replaced_by_that_of_an_older_log(
    tmp_path: Path, old: dict[int, list[Row]]
) -> None:
    batches = {**old, LONG: [NEW_LOG, ONE]}

    assert tell(read_transactions(tmp_path, batches, range(LONG, LONG + 1))) == [(1, 0, 1)]
