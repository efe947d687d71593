"""What topics brought is stored once a minute, and known and durable before that."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from checks.ledger import LANDING_HOP, LedgerEntry, LedgerState
from monitor.store.ledger import Ledger
from monitor.store.received import PARTS
from monitor.store.store import ServiceStore
from pipeline.errors import UnreachableError
from pipeline.reports import LandingReport, TopicCounts
from tests.monitor.store.kit import ReadOnly

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
MINUTE = NOW.timestamp() // 60
TABLES = tuple(f"shop.t{number}" for number in range(200))
HOPS = {(table, LANDING_HOP) for table in TABLES}


def receive(
    store: ServiceStore,
    batch: int,
    at: datetime = NOW,
    *lost: str,
    tables: tuple[str, ...] = TABLES,
) -> None:
    """A batch that brought two messages of each table; one of each that *lost* did not land."""
    whole = TopicCounts({"rows": 2}, {"rows": 2}, {"c": 2})
    less = TopicCounts({"rows": 1, f"batch {batch}": 1}, {"rows": 1}, {"c": 1})
    topics = {table: less if table in lost else whole for table in tables}
    store.ledger.add_landing(LandingReport("main", batch, 2, at, timedelta(), topics=topics))


def received(ledger: Ledger, table: str = TABLES[0]) -> tuple[LedgerEntry, ...]:
    return ledger.entries(table, 0, 10**9).get(LANDING_HOP, ())


@contextmanager
def transactions(store: ServiceStore) -> Iterator[list[int]]:
    """Minutes that each transaction writes."""
    written = list[int]()

    def note(*call: Any) -> None:
        statement, values = call[2], call[3]
        if statement.startswith("BEGIN IMMEDIATE"):
            written.append(0)
        elif "INTO ledger_minutes" in statement:
            written[-1] += len(values) if isinstance(values, list) else 1

    event.listen(store.database.engine, "before_cursor_execute", note)
    yield written
    event.remove(store.database.engine, "before_cursor_execute", note)


def test_each_minute_is_stored_once_when_it_is_over_by_short_transactions(
    store: ServiceStore,
) -> None:
    with transactions(store) as written:
        for batch in range(30):
            receive(store, batch)
    assert written == [0] * 30

    with transactions(store) as written:
        receive(store, 30, LATER)
    assert sum(written) == len(TABLES)
    assert written[0] == 0, "the report itself"
    assert len(written) == PARTS + 1
    assert max(written) < len(TABLES) / 10
    assert [one.went_in for one in received(store.ledger)] == [{"rows": 60}, {"rows": 2}]


def test_the_rows_of_a_batch_are_few_and_none_is_left_of_a_minute_that_is_over(
    store: ServiceStore,
) -> None:
    rows = text("SELECT count(*) FROM ledger_received")
    for batch in range(3):
        receive(store, batch)
    with store.database.read() as connection:
        assert connection.scalar(rows) == 3 * PARTS
    receive(store, 3, LATER, tables=())
    with store.database.read() as connection:
        assert connection.scalar(rows) == 0


def test_a_table_that_lost_a_message_is_stored_at_once_and_alone(store: ServiceStore) -> None:
    receive(store, 0)
    with transactions(store) as written:
        receive(store, 1, NOW, TABLES[0])
    assert written == [1]
    assert store.ledger.losses()[TABLES[0]].residuals[0].rows == 1

    (one,) = received(store.ledger)
    assert (one.state, one.missing) == (LedgerState.RESIDUAL, {"batch 1": 1})
    assert one.went_in == {"rows": 3, "batch 1": 1}
    receive(store, 2, LATER)
    assert received(store.ledger)[0] == one
    assert store.ledger.residuals() == dict.fromkeys(HOPS, 0) | {(TABLES[0], LANDING_HOP): 1}


def test_minutes_that_are_not_over_are_known(store: ServiceStore) -> None:
    receive(store, 0)

    assert store.ledger.residuals() == dict.fromkeys(HOPS, 0)
    assert [one.state for one in received(store.ledger)] == [LedgerState.BALANCED]


@pytest.mark.parametrize("stored", [0, 1, 7, PARTS])
def test_a_kill_loses_no_batch_and_counts_none_twice(store: ServiceStore, stored: int) -> None:
    """It comes when so many parts of the minute that is over are stored."""
    for batch in range(3):
        receive(store, batch)
    begun = list[str]()

    def kill(connection: Connection) -> None:
        begun.extend(["write"] * connection.get_execution_options()["writes"])
        if len(begun) > stored + 1:
            raise KeyboardInterrupt

    event.listen(store.database.engine, "begin", kill)
    try:
        receive(store, 3, LATER)
    except KeyboardInterrupt:
        pass
    finally:
        event.remove(store.database.engine, "begin", kill)
    again = Ledger(store.database)

    for table in TABLES:
        first, second = received(again, table)
        assert (first.went_in, first.came_out) == ({"rows": 6}, {"rows": 6})
        assert (second.went_in, first.explained) == ({"rows": 2}, {"c": 6})
        assert {first.state, second.state} == {LedgerState.BALANCED}
    assert again.residuals() == dict.fromkeys(HOPS, 0)
    again.prune(LATER + timedelta(minutes=1))
    assert [one.went_in for one in received(Ledger(store.database))] == [{"rows": 6}, {"rows": 2}]


def test_minutes_wait_while_the_store_takes_nothing(store: ServiceStore) -> None:
    receive(store, 0)
    full = ReadOnly(store.database)
    with pytest.raises(UnreachableError):
        receive(store, 1, LATER)
    full.free()
    receive(store, 1, LATER)

    for ledger in (store.ledger, Ledger(store.database)):
        assert [one.went_in for one in received(ledger)] == [{"rows": 2}, {"rows": 2}]


def test_the_newest_minute_of_a_batch_that_was_not_reported_is_unknown_though_it_waits(
    store: ServiceStore,
) -> None:
    receive(store, 0)
    again = Ledger(store.database)
    topics = {TABLES[0]: TopicCounts({"rows": 2}, {"rows": 2}, {"c": 2})}
    with transactions(store) as written:
        report = LandingReport("main", 2, 2, LATER, timedelta(), topics=topics)
        again.add_landing(report)

    assert written[0] == 0
    assert max(written) < len(TABLES) / 10
    for table in TABLES:
        states = {one.minute - MINUTE: one.state for one in received(again, table)}
        assert states == dict.fromkeys((0, 1), LedgerState.UNKNOWN)
    assert again.residuals() == dict.fromkeys(HOPS)
    assert Ledger(store.database).residuals() == dict.fromkeys(HOPS)


@pytest.mark.parametrize(
    "change",
    ["counts = '{'", """counts = '{"t": [{"rows": 1}, {}, "x"]}'""", "minute = 'x'", "batch = 'x'"],
)
def test_minutes_that_are_unreadable_are_unknown_of_each_table(
    store: ServiceStore, change: str
) -> None:
    receive(store, 0, tables=(*TABLES, "seen"))
    receive(store, 1, LATER)
    with store.write() as connection:
        one = f"UPDATE ledger_received SET {change} WHERE id = {PARTS + 1}"
        assert connection.exec_driver_sql(one).rowcount == 1

    again = Ledger(store.database)
    assert again.residuals() == dict.fromkeys({*HOPS, ("seen", LANDING_HOP)})
    again.prune(LATER + timedelta(minutes=1))
    assert Ledger(store.database).residuals() == dict.fromkeys({*HOPS, ("seen", LANDING_HOP)})
    assert again.losses() == {}


@pytest.mark.parametrize("counts", ["x", "{}"])
def test_a_row_of_which_no_table_is_known_ends_with_its_minute(
    store: ServiceStore, counts: str
) -> None:
    receive(store, 0, tables=TABLES[:1])
    with store.write() as connection:
        connection.exec_driver_sql(f"UPDATE ledger_received SET counts = '{counts}'")
    store.ledger = Ledger(store.database)

    receive(store, 1, LATER, tables=TABLES[:1])
    store.ledger.prune(LATER + timedelta(minutes=1))

    assert [one.went_in for one in received(store.ledger)] == [{"rows": 2}]
    with store.database.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM ledger_received")) == 0
