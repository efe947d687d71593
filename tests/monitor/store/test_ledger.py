"""Reports of landings and merges become a ledger, in any order of their arrival."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import ColumnElement, Connection, event, text

from checks.ledger import (
    COUNTING_CHECK,
    EVENTS,
    LANDING_HOP,
    NO_LOSSES,
    LedgerEntry,
    LedgerState,
    TableLosses,
)
from checks.model import Outcome, Ruling, Verdict
from monitor.store import ledger
from monitor.store.copy_ledger import CopyReach
from monitor.store.history import HISTORY
from monitor.store.ledger import KEPT, Ledger
from monitor.store.ledger_rows import MOST_RESIDUAL, UNREADABLE
from monitor.store.store import ServiceStore
from pipeline.copies.copy import CopiedVersion, CopyPosition
from pipeline.minute_counts import MinuteCounts
from pipeline.model import Account, Hop
from pipeline.reports import LandingReport, MergeReport, TopicCounts

T = "shop.orders"
NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
NO_TIME = timedelta()
MERGE = (T, Hop.MERGE.value)


def land(store: ServiceStore, batch: int, counts: MinuteCounts | None = None) -> None:
    minutes = {} if counts is None else {T: counts}
    store.ledger.add_landing(LandingReport("main", batch, 1, NOW, NO_TIME, minutes=minutes))


def merge(since: int, batch: int, counts: MinuteCounts | None) -> MergeReport:
    account = Account(minutes=counts, explained={"7": {"applied": 1}})
    return MergeReport(T, batch, 1, account, NOW, NO_TIME, since=since)


def entries(store: ServiceStore) -> tuple[LedgerEntry, ...]:
    return store.ledger.entries(T, 0, 10**9).get(Hop.MERGE, ())


def states(store: ServiceStore) -> dict[int, LedgerState]:
    return {one.minute: one.state for one in entries(store)}


def test_a_row_is_in_flight_until_a_merge_has_read_its_batch(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 1}})
    land(store, 1, {"8": {"c": 1}})
    assert states(store) == {7: LedgerState.IN_FLIGHT, 8: LedgerState.IN_FLIGHT}

    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)

    assert states(store) == {7: LedgerState.BALANCED, 8: LedgerState.IN_FLIGHT}
    assert entries(store)[0].explained == {"applied": 1}
    assert store.ledger.residuals() == {MERGE: 0}


def test_a_row_that_a_merge_did_not_see_is_a_residual_of_its_minute(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 2}})
    land(store, 1, {"7": {"c": 1}, "8": {"d": 1}})

    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 2}})], NOW)
    store.ledger.add_merges("main", [merge(0, 1, {"7": {"c": 1}})], NOW)

    assert states(store) == {7: LedgerState.BALANCED, 8: LedgerState.RESIDUAL}
    assert entries(store)[1].missing == {"d": 1}
    assert store.ledger.residuals() == {MERGE: 1}


def test_a_merge_that_is_reported_again_counts_once(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 1}})
    for _ in range(2):
        store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)

    assert entries(store)[0].came_out == {"c": 1}
    assert states(store) == {7: LedgerState.BALANCED}


def test_a_merge_that_is_reported_before_its_batch_waits_for_it(store: ServiceStore) -> None:
    land(store, 0)
    store.ledger.add_merges("main", [merge(0, 1, {"7": {"c": 1}})], NOW)
    assert not entries(store)

    land(store, 1, {"7": {"c": 2}})
    store.ledger.add_merges("main", [], NOW)

    assert states(store) == {7: LedgerState.RESIDUAL}


def test_a_landing_that_was_never_reported_is_unknown_and_no_residual(store: ServiceStore) -> None:
    land(store, 0)
    land(store, 2, {"8": {"c": 1}})  # batch 1 was committed, and its process was killed

    store.ledger.add_merges("main", [merge(0, 2, {"7": {"c": 5}, "8": {"c": 1}})], NOW)

    assert states(store) == {7: LedgerState.UNKNOWN, 8: LedgerState.UNKNOWN}
    assert store.ledger.residuals() == {MERGE: None, (T, LANDING_HOP): None}


def test_batches_that_the_change_log_lost_are_forgotten(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 1}})
    land(store, 1, {"8": {"c": 9}})
    store.ledger.add_merges("main", [merge(-1, 1, {"7": {"c": 1}, "8": {"c": 9}})], NOW)

    land(store, 1, {"9": {"c": 2}})  # the log was restored to batch 0
    store.ledger.add_merges("main", [merge(0, 1, {"9": {"c": 2}})], NOW)

    assert states(store)[9] is LedgerState.BALANCED


def test_a_held_merge_and_one_of_an_image_change_nothing(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 1}})
    image = replace(merge(-1, 0, {}), since=None)

    store.ledger.add_merges("main", [image], NOW)

    assert states(store) == {7: LedgerState.IN_FLIGHT}


def test_an_unreadable_batch_is_unknown(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 1}})
    with store.write() as connection:
        connection.execute(text("UPDATE ledger_open SET counts = '[3'"))

    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)

    assert states(store)[7] is LedgerState.UNKNOWN
    assert LedgerState.RESIDUAL not in states(store).values()


def damage(store: ServiceStore, change: str) -> None:
    with store.write() as connection:
        assert connection.exec_driver_sql(f"UPDATE {change}").rowcount == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(f"ledger_open SET {change} AND batch = 1", id=change)
        for change in (
            """counts = '{"abc": {"c": 1}}' WHERE 1""",
            """counts = '{"999999999999": {"c": 1}}' WHERE 1""",
            """counts = '{"7": {"\\ud800": 1}}' WHERE 1""",
            "batch = 'x' WHERE 1",
        )
    ]
    + [
        pytest.param(f"ledger_reach SET {column} = 'x' WHERE \"table\" = '{table}'", id=name)
        for name, table, column in (
            ("first of the lane", "", "first"),
            ("last of the lane", "", "last"),
            ("last of the table", T, "last"),
        )
    ],
)
def test_what_a_merge_is_compared_with_is_unknown_where_it_is_unreadable(
    store: ServiceStore, change: str
) -> None:
    land(store, 0, {"6": {"c": 1}})
    store.ledger.add_merges("main", [merge(-1, 0, {"6": {"c": 1}})], NOW)
    land(store, 1, {"7": {"c": 1}})
    damage(store, change)

    store.ledger.prune(NOW)
    store.ledger.add_merges("main", [merge(0, 1, {"7": {"c": 1}})], NOW)

    assert states(store)[6] is LedgerState.BALANCED
    assert states(store)[7] is LedgerState.UNKNOWN
    assert (store.ledger.losses(), store.database.unreadable) == ({}, 1)


@pytest.mark.parametrize("column", ["first", "last"])
def test_what_was_recorded_is_known_again_after_the_next_landing(
    store: ServiceStore, column: str
) -> None:
    land(store, 0)
    for table in ("", T):
        store.ledger.add_merges("main", [merge(-1, 0, {})], NOW)
        damage(store, f"ledger_reach SET {column} = 'x' WHERE \"table\" = '{table}'")

    for batch in (1, 2):
        land(store, batch, {str(batch): {"c": 1}})
        store.ledger.add_merges("main", [merge(batch - 1, batch, {str(batch): {"c": 1}})], NOW)

    assert states(store)[2] is LedgerState.BALANCED


@pytest.mark.parametrize(
    "change", ["batch = 'x'", "found = 'x'", """went_in = '{"\\ud800": 1}'""", "hop = 'x'"]
)
def test_a_minute_that_is_unreadable_keeps_what_is_missing(
    store: ServiceStore, change: str
) -> None:
    other = LandingReport("main", 0, 2, NOW, NO_TIME, minutes={T: {"7": {"c": 2}}, "u": {}})
    store.ledger.add_landing(other)
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    damage(store, f"ledger_minutes SET {change}")
    store.ledger.prune(NOW)

    assert store.ledger.losses()[T] == TableLosses(unreadable=1)

    for batch in (1, 2):
        land(store, batch, {"7": {"c": 1}})
        store.ledger.add_merges("main", [merge(batch - 1, batch, {"7": {"c": 1}})], NOW)

    losses = store.ledger.losses()[T]
    assert losses.unreadable + sum(one.rows for one in losses.residuals) == 1
    if losses.residuals:
        assert losses.residuals[0].missing == {7: {UNREADABLE: 1}}
    assert store.database.unreadable == 1


@pytest.mark.parametrize("minute", ["'x'", "999999999999", "-999999999999"])
def test_a_minute_of_no_calendar_blocks_its_table_and_stops_no_other(
    store: ServiceStore, minute: str
) -> None:
    land(store, 0, {"7": {"c": 2}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    damage(store, f"ledger_minutes SET minute = {minute}")

    losses = store.ledger.losses()[T]

    assert losses == TableLosses(unreadable=1)
    assert store.ledger.prune(NOW + 20 * HISTORY) == 0


def test_a_residual_that_is_unreadable_is_found_by_its_counts(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 3}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    damage(store, "ledger_minutes SET residual = 'x'")
    store.ledger.prune(NOW)

    (loss,) = store.ledger.losses()[T].residuals

    assert loss.rows == 2


def test_residuals_outlast_minutes_that_balance(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 2}, "8": {"c": 1}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}, "8": {"c": 1}})], NOW)

    assert store.ledger.prune(NOW + KEPT + timedelta(seconds=1)) == 1

    assert states(store) == {7: LedgerState.RESIDUAL}


def test_a_residual_ends_by_a_proof_and_never_by_its_age(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 2}, "8": {"c": 2}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    years, months = NOW + 20 * HISTORY, NOW + HISTORY - timedelta(seconds=1)
    assert store.ledger.prune(years) == 0

    (loss,) = store.ledger.losses()[T].residuals
    assert states(store) == {7: LedgerState.RESIDUAL, 8: LedgerState.RESIDUAL}
    store.ledger.make_good(T, (loss, "a new base"))

    assert (store.ledger.prune(months), store.ledger.losses()) == (0, {})
    assert store.ledger.prune(years) == 2


def test_counts_that_no_column_holds_fail_no_transaction_and_no_sum(store: ServiceStore) -> None:
    """As of an END that was garbled; also in a store that has such minutes already."""
    for minute, lost in enumerate((2**63 - 1, 2**63 - 1, 10**19)):
        one = LedgerEntry(minute, {EVENTS: lost}, {EVENTS: 0}, batch=minute, found=NOW)
        fail = Ruling(Outcome.FAIL, "why")
        store.ledger.note_counts(Verdict(T, COUNTING_CHECK, fail, NOW, counted=(one,)), NOW)
    with store.write() as connection:
        pass
    assert store.ledger.residuals() == {(T, "collection"): 3 * MOST_RESIDUAL}

    with store.write() as connection:
        connection.execute(text("UPDATE ledger_minutes SET residual = 9223372036854775807"))
    store.ledger.prune(NOW)

    residual = store.ledger.residuals()[T, "collection"]
    assert residual is not None
    assert residual > 2**64


def test_a_merge_between_sum_and_rows_leaves_no_negative_rest(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(store, 0, {"7": {"c": 2}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    total = store.ledger._sum_residuals

    def sum_and_lose(which: ColumnElement[bool]) -> dict[tuple[str, str], int | None]:
        found = total(which)
        with store.write() as connection:
            connection.execute(text("UPDATE ledger_minutes SET went_in = '{\"c\": 9}'"))
        return found

    monkeypatch.setattr(store.ledger, "_sum_residuals", sum_and_lose)

    assert store.ledger.losses()[T].more == 0


def test_a_residual_whose_minutes_are_not_all_read_is_not_whole(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a waiver of it would cover minutes that nobody has seen."""
    monkeypatch.setattr(ledger, "MOST_LOST", 4)
    for batch, minutes in enumerate([("9",), ("5", "6", "7", "8")]):
        land(store, batch, {minute: {"c": 1} for minute in minutes})
        at = NOW + timedelta(minutes=batch)
        store.ledger.add_merges("main", [merge(batch - 1, batch, {})], at)

    first, second = store.ledger.losses()[T].residuals
    assert (list(first.missing), first.whole) == ([9], True)
    assert (list(second.missing), second.whole, store.ledger.losses()[T].more) == (
        *([5, 6, 7], False),
        1,
    )

    store.ledger.make_good(T, (first, "a base"))

    (left,) = store.ledger.losses()[T].residuals
    assert not left.whole, "there may be more"
    monkeypatch.setattr(ledger, "MOST_LOST", 5)
    store.ledger.make_good(T)
    (left,) = store.ledger.losses()[T].residuals
    assert (list(left.missing), left.whole) == ([5, 6, 7, 8], True)


def test_a_batch_is_given_up_once_too_many_landed_after_it(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_WAITING", 1)
    land(store, 0, {"7": {"c": 1}})
    assert store.ledger.prune(NOW) == 0
    land(store, 1, {"8": {"c": 1}})
    assert store.ledger.prune(NOW) == 1

    store.ledger.add_merges("main", [merge(-1, 1, {"7": {"c": 1}, "8": {"c": 1}})], NOW)

    assert {*states(store).values()} == {LedgerState.UNKNOWN}


def test_batches_of_a_table_that_left_the_config_are_given_up_and_unknown(
    store: ServiceStore,
) -> None:
    """Before, minute 7 lost a row, and minute 8 balanced."""
    land(store, 0, {"7": {"c": 2}, "8": {"c": 1}})
    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}, "8": {"c": 1}})], NOW)
    land(store, 1, {"7": {"c": 1}, "8": {"c": 1}, "9": {"c": 1}})
    land(store, 2, {"10": {"c": 1}})
    before = store.ledger.losses()

    assert store.ledger.give_up_removed("main", {T}, 2, NOW) == 0
    assert store.ledger.give_up_removed("other", (), 2, NOW) == 0
    assert store.ledger.give_up_removed("main", ("shop.users",), 1, NOW) == 1

    assert states(store) == {
        7: LedgerState.RESIDUAL,
        8: LedgerState.UNKNOWN,
        9: LedgerState.UNKNOWN,
        10: LedgerState.IN_FLIGHT,
    }
    assert [one.missing for one in before[T].residuals] == [{7: {"c": 1}}]
    assert [one.missing for one in store.ledger.losses()[T].residuals] == [{7: {"c": 1}}]


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("steps", [(0, 2), (0, 1, 2)], ids=["at once", "batch by batch"])
def test_a_table_that_comes_back_has_neither_a_residual_nor_a_balance_of_what_was_given_up(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...], lost: int
) -> None:
    monkeypatch.setattr(ledger, "_COMPARED", 1)
    land(store, 0, {"6": {"c": 1}})
    store.ledger.add_merges("main", [merge(-1, 0, {"6": {"c": 1}})], NOW)
    land(store, 1, {"7": {"c": 2}})
    land(store, 2, {"8": {"c": 2}})
    assert store.ledger.give_up_removed("main", (), 2, NOW) == 2

    for since, batch in pairwise(steps):
        counts = {str(6 + one): {"c": 2 - lost} for one in range(since + 1, batch + 1)}
        store.ledger.add_merges("main", [merge(since, batch, counts)], NOW)
    land(store, 3, {"9": {"c": 2}})
    store.ledger.add_merges("main", [merge(2, 3, {"9": {"c": 2 - lost}})], NOW)

    last = LedgerState.RESIDUAL if lost else LedgerState.BALANCED
    assert states(store) == {
        6: LedgerState.BALANCED,
        7: LedgerState.UNKNOWN,
        8: LedgerState.UNKNOWN,
        9: last,
    }
    assert store.ledger.residuals() == {MERGE: lost or None}


def test_a_table_that_comes_back_before_a_merge_of_more_is_unknown(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 2}})
    store.ledger.give_up_removed("main", (), 0, NOW)
    land(store, 1, {"8": {"c": 1}})

    store.ledger.add_merges("main", [merge(-1, 1, {"7": {"c": 2}, "8": {"c": 1}})], NOW)

    assert {states(store)[minute] for minute in (7, 8)} == {LedgerState.UNKNOWN}
    assert store.ledger.residuals() == {MERGE: None}


def test_a_lane_that_the_service_has_left_is_given_up(store: ServiceStore) -> None:
    for batch in (5, 6):
        land(store, batch, {"7": {"c": batch}})
    store.ledger.add_landing(LandingReport("new", 0, 1, NOW, NO_TIME, minutes={}))

    assert store.ledger.prune(NOW) == 2

    land(store, 7, {"8": {"c": 1}})
    store.ledger.add_merges("main", [merge(4, 7, {"7": {"c": 11}, "8": {"c": 1}})], NOW)
    assert {*states(store).values()} == {LedgerState.UNKNOWN}


def test_a_clock_that_is_ahead_gives_up_no_batch(store: ServiceStore) -> None:
    land(store, 0, {"7": {"c": 2}})

    assert store.ledger.prune(NOW + 20 * HISTORY) == 0

    store.ledger.add_merges("main", [merge(-1, 0, {"7": {"c": 1}})], NOW)
    assert states(store) == {7: LedgerState.RESIDUAL}


def test_a_merge_of_more_minutes_than_a_statement_has_values_is_kept(store: ServiceStore) -> None:
    """As the first merge over weeks of a topic."""

    def limit(connection: sqlite3.Connection, *_: object) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 400)

    event.listen(store.ledger.database.engine, "checkout", limit)
    at = datetime(2026, 3, 28, 12, tzinfo=UTC)
    minutes = {str(29_000_000 + n): {"c": 1} for n in range(500)}
    store.ledger.add_landing(LandingReport("main", 0, 1, at, timedelta(), minutes={"t": minutes}))
    report = MergeReport("t", 0, 1, Account(), at, timedelta(), since=-1)
    store.ledger.add_merges("main", [report], at)
    event.remove(store.ledger.database.engine, "checkout", limit)

    (kept,) = store.ledger.entries("t", 0, 30_000_000).values()
    assert sum(one.unknown or bool(one.went_in) for one in kept) >= 500


def test_a_merge_of_many_tables_is_several_short_transactions(store: ServiceStore) -> None:
    """So a heartbeat or an alert is stored between them."""
    tables = [f"shop.t{number}" for number in range(60)]
    for batch in range(3):
        minutes = {name: {"7": {"c": 1}} for name in tables}
        store.ledger.add_landing(LandingReport("main", batch, 1, NOW, NO_TIME, minutes=minutes))
    begun: list[str] = []
    engine = store.ledger.database.engine
    event.listen(engine, "before_cursor_execute", lambda *call: begun.append(call[2].split()[0]))

    store.ledger.add_merges("main", [replace(merge(-1, 2, None), table=t) for t in tables], NOW)

    begins = [place for place, word in enumerate(begun) if word == "BEGIN"]
    assert len(begins) == 3
    assert max(end - start for start, end in pairwise([*begins, len(begun)])) < 8 * 20
    assert len(store.ledger.residuals()) == 60


def wait(store: ServiceStore, *tables: str) -> None:
    """Let 600 batches of each of *tables*, each with one row, wait for a merge."""
    rows = [{"of": name, "batch": batch} for name in tables for batch in range(600)]
    with store.write() as connection:
        counts = """'{"7": {"c": 1}}'"""
        query = f"INSERT INTO ledger_open VALUES ('main', :of, :batch, 0, {counts})"
        connection.execute(text(query), rows)
        connection.execute(text("INSERT INTO ledger_reach VALUES ('main', '', 0, 599, NULL)"))


def test_a_merge_of_tables_with_many_waiting_batches_is_a_transaction_for_each(
    store: ServiceStore,
) -> None:
    tables = [f"shop.t{number}" for number in range(3)]
    wait(store, *tables)
    begun = list[str]()
    engine = store.ledger.database.engine
    event.listen(engine, "before_cursor_execute", lambda *call: begun.append(call[2]))

    all_read = {"7": {"c": 600}}
    merges = [replace(merge(-1, 599, all_read), table=name) for name in tables]
    store.ledger.add_merges("main", merges, NOW)

    assert [one for one in begun if one.startswith("BEGIN")] == ["BEGIN IMMEDIATE"] * 3
    assert store.ledger.residuals() == {(name, Hop.MERGE.value): 0 for name in tables}


def counted(
    minute: int, batch: int, *, landed: int = 3, outcome: Outcome = Outcome.PASS
) -> Verdict:
    lost = None if landed == 3 else NOW
    one = LedgerEntry(minute, {EVENTS: 3}, {EVENTS: landed}, batch=batch, found=lost)
    return Verdict(T, COUNTING_CHECK, Ruling(outcome, "why"), NOW, counted=(one,))


def collected(store: ServiceStore) -> dict[int, LedgerEntry]:
    own = store.ledger.entries(T, 0, 10**9).get(Hop.COLLECTION, ())
    return {one.minute: one for one in own}


def test_counts_of_a_check_are_stored_with_the_next_transaction(store: ServiceStore) -> None:
    store.ledger.note_counts(counted(7, 3), NOW)
    store.ledger.note_counts(replace(counted(7, 3), check="max_id"), NOW)
    assert collected(store) == {}

    with store.write():
        store.ledger.note_counts(counted(8, 3), NOW)  # by another thread, meanwhile
    with store.write():
        pass

    assert {number: one.state for number, one in collected(store).items()} == {
        7: LedgerState.BALANCED,
        8: LedgerState.BALANCED,
    }
    assert not store.ledger.waits


def test_counts_that_come_again_after_a_restart_count_once(store: ServiceStore) -> None:
    for _ in range(2):
        store.ledger.note_counts(counted(7, 3), NOW)
        with store.write():
            pass
    store.ledger.note_counts(counted(7, 4), NOW)
    with store.write():
        pass

    assert collected(store)[7].went_in == {EVENTS: 6}


def test_a_residual_that_a_check_speaks_for_ends_with_its_pass(store: ServiceStore) -> None:
    store.ledger.note_counts(counted(7, 3, landed=1, outcome=Outcome.FAIL), NOW)
    with store.write():
        pass
    assert store.ledger.residuals() == {(T, "collection"): 2}
    assert store.ledger.losses() == {}

    store.ledger.note_counts(counted(8, 4), NOW)
    with store.write():
        pass

    assert store.ledger.residuals() == {(T, "collection"): 0}
    assert collected(store)[7].state is LedgerState.MADE_GOOD


def test_residuals_follow_each_change_and_read_only_the_tables_that_changed(
    store: ServiceStore,
) -> None:
    asked: list[tuple[object, ...]] = []
    engine = store.ledger.database.engine
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append(call[3]))
    other = LandingReport("main", 0, 1, NOW, NO_TIME, minutes={"u": {"7": {"c": 1}}, T: {}})
    store.ledger.add_landing(other)
    store.ledger.add_merges("main", [replace(merge(-1, 0, {}), table="u")], NOW)
    assert store.ledger.residuals() == {("u", "merge"): 1}
    asked.clear()
    assert store.ledger.residuals() == {("u", "merge"): 1}
    assert not asked

    land(store, 1, {"8": {"c": 1}})
    store.ledger.add_merges("main", [merge(-1, 1, {"8": {"c": 1}})], NOW)
    asked.clear()
    assert store.ledger.residuals() == {MERGE: 0, ("u", "merge"): 1}
    assert [one[-1] for one in asked if one] == [T]  # beside BEGIN

    store.ledger.prune(NOW + KEPT + timedelta(seconds=1))
    assert store.ledger.residuals() == {("u", "merge"): 1}


CACHE = "copy:cache"


def follow(
    version: int, changed: MinuteCounts | None, taken: MinuteCounts | None = None
) -> CopiedVersion:
    return CopiedVersion(version, NOW, changed, changed if taken is None else taken)


def copy(store: ServiceStore, *done: CopiedVersion, at: datetime = NOW) -> None:
    store.ledger.copies.add_copied("cache", T, done, at)


def copied(store: ServiceStore) -> dict[int, LedgerState]:
    found = store.ledger.entries(T, 0, 10**9, ["cache"]).get(CACHE, ())
    return {one.minute: one.state for one in found}


def test_a_row_that_a_copy_did_not_take_is_a_residual_of_its_minute_and_of_the_copy_alone(
    store: ServiceStore,
) -> None:
    copy(store, CopiedVersion(3), follow(4, {"7": {"u": 1}}), follow(5, {"8": {"c": 2}}, {}))

    assert copied(store) == {7: LedgerState.BALANCED, 8: LedgerState.RESIDUAL}
    assert store.ledger.residuals() == {(T, CACHE): 2}
    (lost,) = store.ledger.copy_losses(T, "cache").residuals
    assert (lost.hop, lost.missing, lost.batch) == (CACHE, {8: {"c": 2}}, 5)
    assert lost.text.endswith("at hop copy:cache, of 1970-01-01 00:08 UTC")
    assert (store.ledger.losses(), store.ledger.copy_losses(T, "other")) == ({}, NO_LOSSES)


@pytest.mark.parametrize("told", [False, True])
def test_a_version_that_a_copy_follows_again_is_compared_again_and_counts_once(
    store: ServiceStore, *, told: bool
) -> None:
    """It was set back, and begins again at its own position."""
    four, five = follow(4, {"7": {"u": 2}}), follow(5, {"7": {"d": 1}})
    copy(store, CopiedVersion(3), four, five)
    before = store.ledger.entries(T, 0, 10**9, ["cache"])
    if told:
        store.ledger.copies.set_back("cache", T, CopyPosition("", 3, 0))
    copy(store, four)
    copy(store, five)
    assert store.ledger.entries(T, 0, 10**9, ["cache"]) == before

    copy(store, follow(4, {"7": {"u": 2}}, {"7": {"u": 1}}), five)
    copy(store, follow(6, {"8": {"u": 1}}))

    assert copied(store) == {7: LedgerState.RESIDUAL, 8: LedgerState.BALANCED}
    (lost,) = store.ledger.copy_losses(T, "cache").residuals
    assert lost.missing == {7: {"u": 1}}


def test_a_copy_that_was_set_back_covers_what_it_has_followed_again(store: ServiceStore) -> None:
    done = [replace(follow(version, {"7": {"u": 1}}), lineage="m") for version in (4, 5, 6)]
    copy(store, CopiedVersion(3, lineage="m"), *done)
    at = [CopyPosition("m", version, 0) for version in range(3, 7)]

    def covered() -> list[bool]:
        reach = store.ledger.copies.copy_reach("cache")[T]
        stored = Ledger(store.database).copies.copy_reach("cache")[T]
        return [reach.covers(one) and stored.covers(one) for one in at]

    assert covered() == [True] * 4
    store.ledger.copies.set_back("cache", T, at[3])
    store.ledger.copies.set_back("cache", T, replace(at[0], mirror="another"))
    assert covered() == [True] * 4
    store.ledger.copies.set_back("cache", T, at[0])
    assert covered() == [True, False, False, False]
    copy(store, done[0])
    assert covered() == [True, True, False, False]
    copy(store, done[2])  # a report is missing
    assert LedgerState.UNKNOWN in copied(store).values()


LOADED = CopyPosition("m", 4, 0, load_id="1")
BEFORE_IDS = replace(LOADED, load_id="")


@pytest.mark.parametrize(
    ("reach", "at", "needed"),
    [
        pytest.param(CopyReach(4, "m:1"), LOADED, False, id="of the load that was compared"),
        pytest.param(CopyReach(5, "m:1"), LOADED, False, id="set back"),
        pytest.param(CopyReach(3, "m:1"), LOADED, False, id="a report is missing"),
        pytest.param(CopyReach(4, "m:2"), LOADED, True, id="of another load"),
        pytest.param(CopyReach(4, "n:1"), LOADED, True, id="of another mirror"),
        pytest.param(
            CopyReach(4, "m:2"), replace(LOADED, parts=1), False, id="not loaded yet anyway"
        ),
        pytest.param(
            CopyReach(9, "m:2", load=("m:1", 4, 1)), LOADED, False, id="a load that was not counted"
        ),
        pytest.param(
            CopyReach(9, "m:2", load=("m:3", 4, 1)), LOADED, True, id="another one was not counted"
        ),
        pytest.param(CopyReach(), LOADED, True, id="nothing was compared"),
        pytest.param(CopyReach(4), LOADED, True, id="an earlier version stored no mirror"),
        pytest.param(CopyReach(3, "m:1"), LOADED, False, id="one step is not compared yet"),
        pytest.param(CopyReach(2, "m:1"), LOADED, True, id="it was moved on by another"),
        pytest.param(CopyReach(4, "m"), BEFORE_IDS, False, id="without ids"),
        pytest.param(CopyReach(5, "m"), BEFORE_IDS, True, id="set back, perhaps to another load"),
        pytest.param(CopyReach(4, "m:1"), BEFORE_IDS, True, id="of a load before the upgrade"),
    ],
)
def test_a_copy_that_was_restored_from_a_backup_of_another_load_needs_a_load(
    reach: CopyReach, at: CopyPosition, needed: bool
) -> None:
    assert reach.needs_load(at) == needed


def test_residuals_of_a_copy_are_read_again_only_if_they_may_be_others(store: ServiceStore) -> None:
    copy(store, CopiedVersion(3), follow(4, {"7": {"u": 1}}))
    assert store.ledger.residuals() == {(T, CACHE): 0}
    asked: list[object] = []
    engine = store.ledger.database.engine
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append(call[2]))

    copy(store, follow(5, {"7": {"u": 1}}))
    asked.clear()
    assert store.ledger.residuals() == {(T, CACHE): 0}
    assert not asked

    copy(store, follow(6, {"7": {"u": 1}}, {}))
    assert store.ledger.residuals() == {(T, CACHE): 1}
    copy(store, CopiedVersion(7))
    assert store.ledger.residuals() == {(T, CACHE): 0}


def test_versions_that_a_copy_followed_without_a_report_are_unknown(store: ServiceStore) -> None:
    copy(store, CopiedVersion(3))
    copy(store, follow(6, {"7": {"u": 1}}))

    assert set(copied(store).values()) == {LedgerState.BALANCED, LedgerState.UNKNOWN}
    assert store.ledger.residuals() == {(T, CACHE): None}


def test_versions_of_a_rebuilt_mirror_whose_load_was_not_reported_are_compared(
    store: ServiceStore,
) -> None:
    old = (CopiedVersion(500), follow(501, {"7": {"u": 1}}))
    copy(store, *(replace(one, lineage="old") for one in old))
    one, two = follow(1, {"8": {"c": 5}}, {}), follow(2, {"9": {"c": 5}}, {"9": {"c": 1}})
    copy(store, replace(one, lineage="new"))
    copy(store, replace(two, lineage="new"))

    lost = store.ledger.copy_losses(T, "cache").residuals
    assert [one.missing for one in lost] == [{8: {"c": 5}, 9: {"c": 4}}]
    unknown = [minute for minute, state in copied(store).items() if state is LedgerState.UNKNOWN]
    assert unknown == [int(NOW.timestamp()) // 60]


def test_what_a_copy_followed_before_the_mirror_was_stored_with_it_is_unknown(
    store: ServiceStore,
) -> None:
    copy(store, CopiedVersion(500), follow(501, {"7": {"u": 1}}))
    new = (follow(502, {"8": {"u": 1}}), follow(503, {"9": {"u": 1}}, {}))
    copy(store, *(replace(one, lineage="new") for one in new))

    states = copied(store)
    assert states.pop(int(NOW.timestamp()) // 60) is LedgerState.UNKNOWN
    assert states == {
        7: LedgerState.BALANCED,
        8: LedgerState.BALANCED,
        9: LedgerState.RESIDUAL,
    }


def test_a_commit_that_an_earlier_version_made_is_unknown(store: ServiceStore) -> None:
    copy(store, follow(6, None, {"7": {"u": 1}}))

    assert set(copied(store).values()) == {LedgerState.UNKNOWN}


def test_a_load_makes_good_what_a_copy_lacked_and_another_mirror_begins_below(
    store: ServiceStore,
) -> None:
    copy(store, CopiedVersion(3), follow(4, {"7": {"u": 1}}, {}))
    copy(store, CopiedVersion(2), follow(3, {"8": {"u": 1}}))

    (good, _) = store.ledger.entries(T, 0, 10**9, ["cache"])[CACHE]
    assert copied(store) == {7: LedgerState.MADE_GOOD, 8: LedgerState.BALANCED}
    assert good.proof == "load of version 2"
    assert store.ledger.copy_losses(T, "cache") == NO_LOSSES


@pytest.mark.parametrize("taken", [{"7": {"u": 1}}, {"7": {"u": 2}, "": {"d": 1}}])
def test_a_first_load_proves_nothing_of_rows_that_ought_to_have_gone(
    store: ServiceStore, taken: MinuteCounts
) -> None:
    copy(store, CopiedVersion(3), follow(4, {"7": {"u": 1}, "": {"d": 1}}, taken))
    copy(store, CopiedVersion(4))
    assert store.ledger.copy_losses(T, "cache").residuals

    copy(store, CopiedVersion(4, swept=True))
    assert store.ledger.copy_losses(T, "cache") == NO_LOSSES


def test_a_load_that_was_not_counted_stays_known_until_it_is(store: ServiceStore) -> None:
    land(store, 0)
    at = replace(LOADED, parts=0)
    store.ledger.copies.note_load("cache", T, at)
    store.ledger.prune(NOW)

    reach = Ledger(store.database).copies.copy_reach("cache")[T]
    found = [reach.awaits(one) for one in (at, LOADED, replace(LOADED, load_id="2"))]
    assert found == [False, True, False]

    copy(store, CopiedVersion.loaded(LOADED))

    assert store.ledger.copies.copy_reach("cache")[T] == CopyReach(4, "m:1", 4)
    assert Ledger(store.database).copies.copy_reach("cache")[T] == CopyReach(4, "m:1", 4)


def test_a_copy_whose_reach_is_unreadable_is_unknown_and_goes_on(store: ServiceStore) -> None:
    copy(store, CopiedVersion(3))
    with store.database.write() as connection:
        connection.execute(text("UPDATE ledger_reach SET last = 'x'"))
    copy(store, follow(4, {"7": {"u": 1}}))
    copy(store, follow(5, {"8": {"u": 1}}))

    assert copied(store)[8] is LedgerState.BALANCED


def test_a_change_log_that_was_put_back_says_nothing_of_copies(store: ServiceStore) -> None:
    land(store, 0)
    land(store, 1)
    copy(store, CopiedVersion(3), follow(4, {"7": {"u": 1}}))
    land(store, 1)

    copy(store, follow(4, {"7": {"u": 1}}), follow(5, {"8": {"u": 1}}))

    assert copied(store) == {7: LedgerState.BALANCED, 8: LedgerState.BALANCED}


@dataclass
class Transactions:
    """Calls ``begin`` in each transaction before anything else, and ``end`` after its commit."""

    begin: Callable[[], None] = lambda: None
    end: Callable[[], None] = lambda: None
    waits: bool = True

    def write(self, _: Connection) -> Callable[[], None]:
        self.begin()
        return self.end


def test_each_transaction_begins_with_residuals_as_they_are_stored(store: ServiceStore) -> None:
    tables = ["shop.t0", "shop.t1"]
    wait(store, *tables)
    known, stored = [store.ledger.residuals()], [store.ledger.residuals()]

    def note() -> None:
        known.append(store.ledger.residuals())
        stored.append(Ledger(store.database).residuals())

    store.database.first.append(Transactions(begin=note))
    merges = [replace(merge(-1, 599, {"7": {"c": 599}}), table=name) for name in tables]
    store.ledger.add_merges("main", merges, NOW)
    note()

    assert known == stored
    assert known[-1] == {(name, Hop.MERGE.value): 1 for name in tables}


def test_residuals_are_as_stored_though_batches_cannot_be_deleted(store: ServiceStore) -> None:
    wait(store, T)
    assert store.ledger.residuals() == {}
    with store.write() as connection:
        full = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        connection.execute(text(f"CREATE TRIGGER full BEFORE DELETE ON ledger_open {full}"))

    with pytest.raises(Exception, match="disk is full"):
        store.ledger.add_merges("main", [merge(-1, 599, {"7": {"c": 599}})], NOW)

    assert store.ledger.residuals() == Ledger(store.database).residuals()
    with store.write() as connection:
        connection.execute(text("DROP TRIGGER full"))
    store.ledger.add_merges("main", [merge(-1, 599, {"7": {"c": 599}})], NOW)
    assert store.ledger.residuals() == {MERGE: 1}


@pytest.mark.parametrize(
    ("landed", "merged", "missing"),
    [
        pytest.param({"7": {"c": 1}}, {"7": {"c": 1}}, 0, id="whole"),
        pytest.param({"7": {"c": 5}}, {}, 5, id="lost"),
    ],
)
def test_a_batch_that_lands_again_right_after_many_were_compared_counts(
    store: ServiceStore, landed: MinuteCounts, merged: MinuteCounts, missing: int
) -> None:
    wait(store, T)
    restored = Transactions(waits=False)

    def land_again() -> None:
        compared = text("SELECT max(last) FROM ledger_reach WHERE \"table\" != ''")
        with store.database.read() as connection:
            done = connection.scalar(compared)
        if done == 599:
            restored.waits = False
            land(store, 590, landed)

    restored.end, restored.waits = land_again, True
    store.database.first.append(restored)
    store.ledger.add_merges("main", [merge(-1, 599, {"7": {"c": 600}})], NOW)
    assert not restored.waits

    store.ledger.add_merges("main", [merge(589, 590, merged)], NOW)

    assert store.ledger.residuals()[MERGE] == missing


# from topics into the change log


def receive(
    store: ServiceStore,
    batch: int,
    *,
    came_out: int = 2,
    tables: tuple[str, ...] = (T,),
    at: datetime = NOW,
    took: timedelta = NO_TIME,
) -> None:
    """A batch in which two messages of each of *tables* came."""
    name = "rows" if came_out == 2 else f"rows of t:0 in batch {batch}"
    one = TopicCounts({name: 2}, {name: came_out}, {"c": came_out})
    topics = dict.fromkeys(tables, one)
    store.ledger.add_landing(LandingReport("main", batch, 2, at, took, topics=topics))


def received(store: ServiceStore, table: str = T) -> tuple[LedgerEntry, ...]:
    return store.ledger.entries(table, 0, 10**9).get(LANDING_HOP, ())


def test_batches_of_a_minute_add_up(store: ServiceStore) -> None:
    for batch in range(3):
        receive(store, batch, tables=(T, "u"))

    (one,) = received(store)
    assert (one.state, one.went_in, one.explained) == (
        *(LedgerState.BALANCED, {"rows": 6}),
        {"c": 6},
    )
    assert one.minute == NOW.timestamp() // 60
    assert store.ledger.residuals() == {(T, LANDING_HOP): 0, ("u", LANDING_HOP): 0}


def test_a_message_that_landing_lost_is_a_residual_of_its_batch(store: ServiceStore) -> None:
    receive(store, 0)
    assert store.ledger.losses() == {}
    receive(store, 1, came_out=1)
    receive(store, 2)

    (loss,) = store.ledger.losses()[T].residuals
    assert (loss.hop, loss.at, loss.rows) == (LANDING_HOP, NOW, 1)
    assert "1 message or row (rows of t:0 in batch 1: 1) at hop landing" in loss.text
    assert store.ledger.residuals() == {(T, LANDING_HOP): 1}

    store.ledger.make_good(T, (loss, "new base"))
    (one,) = received(store)
    assert (one.state, one.residual, store.ledger.losses()) == (LedgerState.MADE_GOOD, 0, {})


def test_what_landing_lost_is_found_at_the_end_of_its_batch(store: ServiceStore) -> None:
    receive(store, 0, came_out=1, took=timedelta(minutes=2))

    (loss,) = store.ledger.losses()[T].residuals
    assert (loss.at, [*loss.missing]) == (NOW + timedelta(minutes=2), [NOW.timestamp() // 60])


def test_a_message_too_many_makes_up_for_none_that_is_missing(store: ServiceStore) -> None:
    receive(store, 0, came_out=1)
    receive(store, 1, came_out=3)

    assert store.ledger.residuals() == {(T, LANDING_HOP): 2}


def test_minutes_of_a_batch_that_was_not_reported_are_unknown(store: ServiceStore) -> None:
    later = NOW + timedelta(minutes=5)
    receive(store, 0, tables=(T, "u"))
    receive(store, 2, at=later)

    for table in (T, "u"):
        assert {one.state for one in received(store, table)} == {LedgerState.UNKNOWN}
    assert [one.minute - NOW.timestamp() // 60 for one in received(store)] == [0, 5]
    assert store.ledger.residuals() == {(T, LANDING_HOP): None, ("u", LANDING_HOP): None}

    receive(store, 3, at=later + timedelta(minutes=1))
    assert received(store)[-1].state is LedgerState.BALANCED


def count_no_topics(store: ServiceStore, *tables: str) -> None:
    """Batch 0, as a version reported it that counted no topics."""
    minutes = {table: {"7": {"c": 1}} for table in tables}
    store.ledger.add_landing(LandingReport("main", 0, 2, NOW, NO_TIME, minutes=minutes))
    with store.write() as connection:
        connection.execute(text("DELETE FROM ledger_reach WHERE lane != 'main'"))


def test_the_minute_in_which_an_upgrade_begins_to_count_topics_is_unknown(
    store: ServiceStore,
) -> None:
    later = NOW + timedelta(minutes=1)
    count_no_topics(store, T, "u")
    receive(store, 1)
    receive(store, 2, tables=("u", "new"))
    receive(store, 3, tables=(T, "u"), at=later)

    for table in (T, "u"):
        (first, second) = received(store, table)
        assert (first.state, first.residual) == (LedgerState.UNKNOWN, None)
        assert second.state is LedgerState.BALANCED
    assert [one.state for one in received(store, "new")] == [LedgerState.BALANCED]


def test_what_was_counted_is_known_after_hours_without_a_message(store: ServiceStore) -> None:
    receive(store, 0)
    later = NOW + 2 * KEPT
    store.ledger.prune(later)
    receive(store, 1, at=later)

    assert [one.state for one in received(store)] == [LedgerState.BALANCED]


@pytest.mark.parametrize("minute", ["'x'", "999999999999"])
def test_a_minute_that_is_unreadable_stops_no_later_report(
    store: ServiceStore, minute: str
) -> None:
    receive(store, 0, tables=("u",))
    store.ledger.prune(NOW + timedelta(minutes=1))  # which stores what is over
    damage(store, f"ledger_minutes SET minute = {minute}")

    receive(store, 2)

    assert [one.state for one in received(store)] == [LedgerState.UNKNOWN]


def test_a_residual_of_a_minute_that_is_unknown_stays(store: ServiceStore) -> None:
    receive(store, 0, came_out=1)
    receive(store, 2)

    assert store.ledger.residuals() == {(T, LANDING_HOP): 1}


def test_a_restart_without_a_loss_leaves_nothing_unknown(
    store: ServiceStore,
) -> None:
    receive(store, 0)
    again = Ledger(store.database)
    again.add_landing(LandingReport("main", 1, 0, NOW, NO_TIME))

    assert [one.state for one in received(store)] == [LedgerState.BALANCED]


# what is read again


def read_statements(store: ServiceStore) -> list[str]:
    """Statements that read minutes, from now on."""
    asked = list[str]()
    engine = store.ledger.database.engine

    def note(*call: object) -> None:
        if "FROM ledger_minutes" in (statement := str(call[2])):
            asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    return asked


def lose(store: ServiceStore, *tables: str) -> None:
    """Twenty minutes of each table with a row that no merge saw."""
    minutes = {str(minute): {"c": 1} for minute in range(20)}
    report = LandingReport("main", 0, 1, NOW, NO_TIME, minutes=dict.fromkeys(tables, minutes))
    store.ledger.add_landing(report)
    store.ledger.add_merges("main", [replace(merge(-1, 0, {}), table=t) for t in tables], NOW)


def test_residuals_of_many_tables_are_read_by_as_many_statements_as_of_few(
    store: ServiceStore,
) -> None:
    tables = [f"shop.t{number:02}" for number in range(60)]
    lose(store, *tables)
    asked = read_statements(store)

    losses = store.ledger.losses()

    assert len(asked) == 2
    assert {name: len(one.residuals[0].missing) for name, one in losses.items()} == dict.fromkeys(
        tables, 20
    )


def test_of_many_tables_one_unreadable_minute_costs_few_statements(store: ServiceStore) -> None:
    tables = [f"shop.t{number:02}" for number in range(60)]
    lose(store, *tables)
    damage(store, "ledger_minutes SET came_out = '{' WHERE \"table\" = 'shop.t30' AND minute = 7")
    asked = read_statements(store)

    losses = store.ledger.losses()

    assert len(asked) < 40
    assert {name for name, one in losses.items() if one.unreadable} == {"shop.t30"}
    assert {one.residuals[0].rows for one in losses.values()} == {19, 20}


def test_a_merge_that_balances_lets_no_residual_be_read_again(store: ServiceStore) -> None:
    lose(store, T, "u")
    known = store.ledger.residuals()
    asked = read_statements(store)

    land(store, 1, {"90": {"c": 1}})
    store.ledger.add_merges("main", [merge(0, 1, {"90": {"c": 1}})], NOW)
    del asked[:]  # the merge itself reads its minute

    assert store.ledger.residuals() == known
    assert store.ledger.losses()[T].residuals[0].rows == 20
    assert not asked
    assert known == Ledger(store.database).residuals()


def test_batches_after_one_that_was_not_reported_let_nothing_be_read_again(
    store: ServiceStore,
) -> None:
    receive(store, 0, tables=(T, "u"))
    receive(store, 2, tables=(T, "u"))
    receive(store, 3, tables=(T, "u"), at=NOW + timedelta(minutes=1))  # stores the minute before
    unknown = dict.fromkeys([(T, LANDING_HOP), ("u", LANDING_HOP)])
    assert store.ledger.residuals() == unknown
    asked = read_statements(store)

    for batch in range(4, 7):
        receive(store, batch, tables=(T, "u"), at=NOW + timedelta(minutes=1))
        assert store.ledger.residuals() == unknown

    assert not asked


def test_pruning_lets_only_those_be_read_again_of_which_it_changes_the_sum(
    store: ServiceStore,
) -> None:
    lose(store, T)
    receive(store, 1, tables=("gone",))
    receive(store, 3, tables=("known", "gone"))
    later = NOW + KEPT + timedelta(seconds=1)
    store.ledger.prune(NOW + timedelta(minutes=1))
    receive(store, 4, tables=("known",), at=later)
    assert store.ledger.residuals()["known", LANDING_HOP] is None
    reads = list[object]()
    engine = store.ledger.database.engine
    event.listen(
        engine,
        "before_cursor_execute",
        lambda *call: reads.append(call[3]) if "total(" in call[2] else None,
    )

    store.ledger.prune(later + timedelta(minutes=1))

    found = store.ledger.residuals()
    assert found == Ledger(store.database).residuals()
    assert found["known", LANDING_HOP] == 0
    assert ("gone", LANDING_HOP) not in found
    del reads[:]
    store.ledger.prune(later + timedelta(minutes=2))
    assert store.ledger.residuals() == found
    assert reads == [("integer", 1, T)], "a person may have repaired a row of it"


def test_a_count_is_stored_while_minutes_are_read(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each writer waits for as long as a board takes to read all minutes."""
    lose(store, T)
    total, done = store.ledger._sum_residuals, list[bool]()

    def sum_while_another_writes(which: ColumnElement[bool]) -> dict[tuple[str, str], int | None]:
        store.ledger.note_counts(counted(7, 5), NOW)
        writer = threading.Thread(target=write_nothing, args=(store,), daemon=True)
        writer.start()
        writer.join(20)
        done.append(not writer.is_alive() and not store.ledger.waits)
        return total(which)

    monkeypatch.setattr(store.ledger, "_sum_residuals", sum_while_another_writes)
    assert store.ledger.residuals()[MERGE] == 20
    assert done == [True]
    assert store.ledger.residuals() == Ledger(store.database).residuals()


def write_nothing(store: ServiceStore) -> None:
    with store.write():
        pass
