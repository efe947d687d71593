from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert, select

from checks.blocks import waivers_of
from checks.model import Outcome, Ruling, Verdict
from monitor.observe.verdicts import LatestVerdicts
from monitor.store import history
from monitor.store.database import Database
from monitor.store.history import Accounts, next_batch_size
from monitor.store.holds import StoredHold
from monitor.store.schema import memory, ticks
from monitor.store.store import ServiceStore
from pipeline.checkpoint import Gap
from pipeline.model import Account
from pipeline.reports import Hold
from tests.builders.values import fence
from tests.monitor.store.kit import DAY, HOUR, NOW, SECOND, Full


def verdict(letter: str, number: int, value: float | None = None) -> Verdict:
    outcome = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}[letter]
    ruling = Ruling(outcome, f"number {number}", "code", ("[1, 2)",))
    at = NOW + number * SECOND
    return Verdict("shop.orders", "max_id", ruling, at, (fence(number, at),), value, "", "run-1")


def test_verdicts_come_back_as_they_were_the_newest_per_check_and_outcome(
    store: ServiceStore,
) -> None:
    store.verdicts.add([verdict("P", 1, 2.5), verdict("F", 2), verdict("F", 3), verdict("?", 4)])
    other = Verdict("shop.users", "lag", Ruling(Outcome.PASS, "fine"), NOW)
    store.verdicts.add([other])

    found = store.verdicts.latest()

    assert found == (verdict("P", 1, 2.5), verdict("F", 3), verdict("?", 4), other)


def test_a_lone_surrogate_in_a_reason_is_stored_as_its_code(store: ServiceStore) -> None:
    store.verdicts.add([replace(verdict("F", 1), ruling=Ruling(Outcome.FAIL, "it \ud800 broke"))])

    (found,) = store.verdicts.latest()
    assert found.ruling.reason == "it \\ud800 broke"


def test_f01_what_was_ruled_last_is_so_whatever_the_clock_said(store: ServiceStore) -> None:
    """A PASS by a clock that was fast, a FAIL once it was set right, not knowing, a restart."""
    store.verdicts.add([verdict("P", 720)])
    store.verdicts.add([verdict("F", 3)])
    store.verdicts.add([verdict("?", 4)])
    rulings = LatestVerdicts()

    rulings.load(store.verdicts)

    assert rulings.of("shop.orders") == (verdict("?", 4), verdict("F", 3))
    assert rulings.last_pass("shop.orders", "max_id") == verdict("P", 720)


def test_a_fail_outlives_months_of_not_knowing(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1), verdict("F", 2)])
    for day in range(60):
        store.verdicts.add([verdict("?", 86_400 * day + 3)])
        store.verdicts.prune(NOW + day * DAY)
    rulings = LatestVerdicts()

    rulings.load(store.verdicts)

    newest, ruled = rulings.of("shop.orders")
    assert (newest.ruling.outcome, ruled) == (Outcome.UNKNOWN, verdict("F", 2))


def test_the_history_holds_values_only_oldest_first(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1, 1.0), verdict("?", 2), verdict("F", 3, 3.0)])
    store.verdicts.add([verdict("P", 4, 4.0)])

    assert [value for _, value in store.verdicts.history("shop.orders", "max_id")] == [1, 3, 4]
    newest = store.verdicts.history("shop.orders", "max_id", limit=2)
    assert newest == ((NOW + 3 * SECOND, 3.0), (NOW + 4 * SECOND, 4.0))


def test_verdicts_are_listed_newest_first_by_what_is_asked(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", n) for n in range(5)])

    listed = store.verdicts.list("shop.orders", since=NOW + 2 * SECOND, limit=2)

    assert listed == (verdict("P", 4), verdict("P", 3))
    assert store.verdicts.list(check="lag") == ()


def test_old_verdicts_keep_one_of_each_outcome(store: ServiceStore) -> None:
    store.verdicts.add([verdict("PPFP"[n], n) for n in range(4)])

    store.verdicts.prune(NOW + 3 * DAY)

    kept = {each.ruling.reason for each in store.verdicts.list()}
    assert kept == {"number 0", "number 2", "number 3"}


def hourly(letters: str, code: str = "late") -> list[Verdict]:
    outcomes = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}
    return [
        Verdict("shop.orders", "max_id", Ruling(outcomes[letter], str(n), code), NOW + n * HOUR)
        for n, letter in enumerate(letters)
    ]


def kept_reasons(store: ServiceStore) -> list[str]:
    return [one.ruling.reason for one in reversed(store.verdicts.list())]


def test_f44_of_a_ruling_that_lasted_its_beginning_and_its_end_are_kept(
    store: ServiceStore,
) -> None:
    store.verdicts.add(hourly("PPPPFFFPP?P"))

    gone = store.verdicts.prune(NOW + 3 * DAY)

    assert kept_reasons(store) == ["0", "3", "4", "6", "7", "8", "9", "10"]
    assert gone == 3


def test_what_fails_for_another_reason_is_another_ruling(store: ServiceStore) -> None:
    late = hourly("FFF")
    store.verdicts.add([late[0], *hourly("FF", code="gone")[1:], late[2]])

    assert store.verdicts.prune(NOW + 3 * DAY) == 0


def test_other_tables_and_checks_are_no_neighbours(store: ServiceStore) -> None:
    first, second, third = hourly("PPP")
    store.verdicts.add([first, replace(second, table="shop.users"), third])
    store.verdicts.add([replace(one, check="lag") for one in (first, third)])

    assert store.verdicts.prune(NOW + 3 * DAY) == 0


def test_what_was_ruled_again_stays_for_a_day(store: ServiceStore) -> None:
    store.verdicts.add(hourly("P" * 30))

    store.verdicts.prune(NOW + DAY + 4 * HOUR + SECOND)

    assert kept_reasons(store) == ["0", *map(str, range(5, 30))]


def test_what_a_probe_looks_back_on_stays(store: ServiceStore) -> None:
    store.verdicts.add(hourly("PPPP"))

    assert store.verdicts.prune(NOW + 3 * DAY, ["max_id"]) == 0
    assert store.verdicts.prune(NOW + 3 * DAY, ["lag"]) == 2


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("guilty = '{'", id="no JSON"),
        pytest.param("as_of = '[{}]'", id="no fences"),
        pytest.param("outcome = 'fial'", id="no outcome"),
        pytest.param("at = 'soon'", id="no time"),
        pytest.param("at = 99999999999999999999999", id="no time that there is"),
        pytest.param("reason = CAST(x'ff' AS TEXT)", id="no text"),
    ],
)
def test_f143_a_fail_that_cannot_be_read_still_fails(store: ServiceStore, damage: str) -> None:
    passed, failed = verdict("P", 1), verdict("F", 2)
    other = replace(passed, table="shop.users")
    store.verdicts.add([passed, failed, other])
    with store.write() as connection:
        connection.exec_driver_sql(f"UPDATE verdicts SET {damage} WHERE outcome = 'fail'")
    rulings = LatestVerdicts()

    rulings.load(store.verdicts)

    assert store.database.unreadable == 1
    assert set(store.verdicts.list()) == {passed, other}
    assert other in store.verdicts.latest()
    newest = max(rulings.of(passed.table), key=lambda one: one.at)  # as the gate takes it
    assert (newest.ruling.outcome, newest.check) == (Outcome.FAIL, passed.check)
    assert waivers_of(newest, ()) == ("",), "nobody can waive what is not known"
    rulings.add([replace(passed, at=newest.at + SECOND)])
    assert [one.ruling.outcome for one in rulings.of(passed.table)] == [Outcome.PASS]


@pytest.mark.parametrize("letter", ["P", "?"])
def test_f143_what_cannot_be_read_hides_no_fail_before_it(store: ServiceStore, letter: str) -> None:
    store.verdicts.add([verdict("F", 1), verdict(letter, 2)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE verdicts SET guilty = '{' WHERE outcome != 'fail'")
    rulings = LatestVerdicts()

    rulings.load(store.verdicts)

    ruled = [one.ruling.outcome for one in rulings.of("shop.orders")]
    assert Outcome.FAIL in ruled
    assert Outcome.PASS not in ruled


def test_f143_when_a_fail_ended_is_taken_for_late_where_it_cannot_be_read(
    store: ServiceStore,
) -> None:
    store.verdicts.end_fails([verdict("P", 1)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE fail_ends SET at = 'soon'")

    (ended,) = store.verdicts.fail_ends().values()

    assert ended > datetime.now(UTC) - timedelta(minutes=1)


def test_f143_numbers_that_are_none_are_no_history(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", n, float(n)) for n in range(3)])
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE verdicts SET at = 'soon' WHERE value = 0")
        connection.exec_driver_sql("UPDATE verdicts SET value = 'much' WHERE value = 1")

    assert store.verdicts.history("shop.orders", "max_id") == ((NOW + 2 * SECOND, 2.0),)


def test_an_account_counts_once_however_often_it_is_reported(store: ServiceStore) -> None:
    account = Account(read=10, applied=6, superseded=2, ignored={"archive": 2})

    for _ in range(3):
        store.accounts.add("main", "shop.orders", 7, account, NOW)
    store.accounts.add("main", "shop.orders", 8, Account(read=1, applied=1), NOW + SECOND)

    assert store.accounts.totals() == {
        ("shop.orders", "read"): 11,
        ("shop.orders", "applied"): 7,
        ("shop.orders", "superseded"): 2,
        ("shop.orders", "ignored:archive"): 2,
    }


def test_what_a_rule_ignored_is_told_by_table(store: ServiceStore) -> None:
    for table, count in (("shop.orders", 2), ("shop.users", 0)):
        account = Account(read=2, ignored={"archived": count, "tombstone": 2 - count})
        store.accounts.add("main", table, 7, account, NOW)

    assert store.accounts.ignored("archived") == {"shop.orders": 2}


def test_the_residual_is_that_of_the_newest_account(store: ServiceStore) -> None:
    store.accounts.add("main", "shop.orders", 7, Account(read=2), NOW)
    store.accounts.add("main", "shop.users", 7, Account(read=1), NOW)
    store.accounts.add("main", "shop.orders", 8, Account(read=1, applied=1), NOW + SECOND)

    assert store.accounts.residuals() == {"shop.orders": 0, "shop.users": 1}
    assert store.accounts.prune(NOW + 50 * DAY) == 3
    assert store.accounts.totals()["shop.orders", "read"] == 3


def test_f39_residuals_are_read_once_and_follow_each_account(store: ServiceStore) -> None:
    store.accounts.add("main", "shop.users", 1, Account(read=2, applied=1), NOW)
    asked: list[str] = []
    event.listen(
        store.database.engine, "before_cursor_execute", lambda *told: asked.append(told[2])
    )

    first, again = store.accounts.residuals(), store.accounts.residuals()
    reads = len([one for one in asked if one.startswith("SELECT")])
    store.accounts.add("main", "shop.users", 2, Account(read=2, applied=2), NOW + SECOND)
    store.accounts.add("main", "shop.orders", 2, Account(read=9, applied=1), NOW + SECOND)

    assert first == again == {"shop.users": 1}
    assert reads == 1
    assert store.accounts.residuals() == {"shop.users": 0, "shop.orders": 8}
    store.accounts.prune(NOW + 50 * DAY)
    assert store.accounts.residuals() == {}


def test_f44_what_balanced_goes_after_hours_but_for_the_newest(store: ServiceStore) -> None:
    for batch in range(5):
        store.accounts.add("main", "shop.users", batch, Account(read=1, applied=1), NOW)
    store.accounts.add("main", "shop.orders", 1, Account(read=1), NOW)
    store.accounts.add("main", "shop.orders", 2, Account(read=1, applied=1), NOW + SECOND)
    store.accounts.add("main", "shop.users", 5, Account(read=1, applied=1), NOW + SECOND)

    gone = store.accounts.prune(NOW + DAY)

    assert gone == 5
    fresh = Accounts(store.database)
    assert fresh.residuals() == {"shop.users": 0, "shop.orders": 0}


GAP = Gap("shop.x:0:5", "shop.x", 0, 5, 9, "deleted by retention", ("shop.orders",))
HOLD = Hold("hold-1", "shop.users", "no_base", "wait for the snapshot")


def test_what_stands_still_keeps_its_since_and_what_is_over_goes(store: ServiceStore) -> None:
    store.holds.replace([GAP], [HOLD], NOW)
    store.holds.replace([], [replace(HOLD, detail="still waiting")], NOW + SECOND)

    assert store.holds.list() == (
        StoredHold("hold-1", "hold", "shop.users", "no_base", "still waiting", NOW),
    )


def test_a_gap_names_its_offsets_and_tables(store: ServiceStore) -> None:
    store.holds.replace([GAP], [], NOW)

    (gap,) = store.holds.list()
    assert gap.subject == "shop.x:0"
    assert gap.detail == "offsets [5, 9) of shop.x:0: deleted by retention"
    assert gap.tables == ("shop.orders",)


def test_what_a_check_remembers_is_replaced(store: ServiceStore) -> None:
    first = store.memory.recall("shop.orders", "max_id")
    store.memory.remember("shop.orders", "max_id", {"ids": [1, 2], "since": None}, NOW)
    store.memory.remember("shop.orders", "max_id", {"ids": (3,)}, NOW)

    assert first is None
    assert store.memory.recall("shop.orders", "max_id") == {"ids": [3]}
    assert store.memory.recall("shop.orders", "lag") is None


def test_what_is_remembered_is_on_the_disk_no_later_than_what_is_written_next(
    store: ServiceStore,
) -> None:
    store.memory.remember("shop.orders", "max_id", {"ids": [1]}, NOW)
    store.memory.remember("shop.items", "max_id", {"ids": [2]}, NOW)
    assert on_disk(store.database) == {}

    store.fences.add(fence(1, NOW))

    assert on_disk(store.database) == {"shop.orders": {"ids": [1]}, "shop.items": {"ids": [2]}}
    assert not store.memory.waits


def test_it_waits_for_a_second_at_most(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)
    store.memory.remember("shop.items", "max_id", {"n": 2}, NOW + SECOND)
    assert on_disk(store.database) == {"shop.orders": {"n": 1}, "shop.items": {"n": 2}}

    store.memory.remember("shop.orders", "max_id", {"n": 3}, NOW + 2 * SECOND)
    store.memory.remember("shop.orders", "max_id", {"n": 4}, NOW)  # the clock was put back
    assert on_disk(store.database)["shop.orders"] == {"n": 4}


def test_it_is_written_though_nobody_writes_anything_else(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)

    store.memory.flush()

    assert on_disk(store.database) == {"shop.orders": {"n": 1}}
    assert not store.memory.waits


def test_it_outlives_the_end_of_the_service(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)
    store.close()

    again = ServiceStore.open(store.database.path, service=True)
    assert again.memory.recall("shop.orders", "max_id") == {"n": 1}
    again.close()


def test_it_waits_on_while_the_store_takes_nothing(store: ServiceStore) -> None:
    full = Full(store.database)
    big = {"text": "x" * 1_000_000}
    store.memory.remember("shop.orders", "max_id", big, NOW)
    store.memory.remember("shop.items", "max_id", {"n": 2}, NOW + SECOND)
    assert "full" in store.database.problem
    assert store.memory.recall("shop.orders", "max_id") == big

    full.free()
    store.memory.remember("shop.items", "max_id", {"n": 3}, NOW + 2 * SECOND)

    assert on_disk(store.database) == {"shop.orders": big, "shop.items": {"n": 3}}


@pytest.mark.parametrize("length", [10, 20_000])
def test_what_is_remembered_is_what_the_store_has(store: ServiceStore, length: int) -> None:
    other = ServiceStore(Database.open(store.database.path, service=False))
    for number in range(3):
        kept = {"n": number, "text": "x" * length}
        store.memory.remember("shop.orders", "max_id", kept, NOW)
        assert store.memory.recall("shop.orders", "max_id") == kept
        store.fences.add(fence(number, NOW))
        assert store.memory.recall("shop.orders", "max_id") == kept
        assert other.memory.recall("shop.orders", "max_id") == kept
    other.close()


def test_it_belongs_to_the_write_that_it_is_remembered_in(store: ServiceStore) -> None:
    with store.database.write():
        store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)

    assert on_disk(store.database) == {"shop.orders": {"n": 1}}


def on_disk(database: Database) -> dict[str, Any]:
    """What a crash now would leave."""
    with database.read() as connection:
        rows = connection.execute(select(memory.c.table, memory.c.kept)).all()
    return {row.table: row.kept for row in rows}


def test_f44_a_day_of_verdicts_goes_by_many_short_transactions(store: ServiceStore) -> None:
    seconds = [NOW + timedelta(seconds=second) for second in range(1_000)]
    store.verdicts.add([Verdict("t", "lag", Ruling(Outcome.PASS, ""), at) for at in seconds])
    rows = list[int]()
    event.listen(
        store.database.engine, "after_cursor_execute", lambda *a: rows.append(a[1].rowcount)
    )

    gone = store.verdicts.prune(NOW + timedelta(days=2))

    assert gone == 998  # the first stays, and the newest
    assert max(rows) <= history.AT_ONCE
    assert len(rows) > gone / history.AT_ONCE


def test_old_ticks_go_by_many_short_transactions(store: ServiceStore) -> None:
    """One for all of them kept who writes waiting for as long as all ticks are looked through."""
    each = [NOW + timedelta(seconds=second) for second in range(1_000)]
    rest = {"many": 1, "result": "ok", "detail": "", "started": NOW, "finished": NOW}
    with store.write() as connection:
        rows = [{"job": "watch", "planned": at, "until": at, **rest} for at in each]
        connection.execute(insert(ticks), rows)
    gone = list[int]()
    event.listen(
        store.database.engine, "after_cursor_execute", lambda *a: gone.append(a[1].rowcount)
    )

    assert store.ticks.prune(NOW + 60 * DAY) == 999  # all but the newest of its job
    assert max(gone) <= history.AT_ONCE


@pytest.mark.parametrize(
    ("few", "seconds", "then"),
    [
        pytest.param(200, 0.001, 200, id="the most at once where it is quick"),
        pytest.param(200, 0.026, 100, id="fewer where others have waited long"),
        pytest.param(12, 1.0, 10, id="never so few that it comes to no end"),
        pytest.param(50, 0.025, 100, id="more again once it is quick"),
    ],
)
def test_fewer_rows_go_at_once_where_that_takes_long(few: int, seconds: float, then: int) -> None:
    assert next_batch_size(few, seconds) == then


def test_all_that_is_old_goes_where_each_transaction_takes_long(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [NOW + timedelta(seconds=second) for second in range(100)]
    store.verdicts.add([Verdict("t", "lag", Ruling(Outcome.PASS, ""), at) for at in seconds])
    monkeypatch.setattr(history, "AT_ONCE", 20)
    monkeypatch.setattr(history, "LONG", 0.0)

    gone = store.verdicts.prune(NOW + timedelta(days=60))

    assert (gone, len(store.verdicts.latest())) == (99, 1)


def test_old_rows_are_found_some_at_a_time_and_all_go(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_FOUND", 10)
    asked = list[str]()
    event.listen(
        store.database.engine, "before_cursor_execute", lambda *call: asked.append(call[2])
    )
    each = [NOW + timedelta(seconds=second) for second in range(40)]
    rest = {"many": 1, "result": "ok", "detail": "", "started": NOW, "finished": NOW}
    with store.write() as connection:
        rows = [{"job": "watch", "planned": at, "until": at, **rest} for at in each]
        connection.execute(insert(ticks), rows)

    assert store.ticks.prune(NOW + 60 * DAY) == 39
    found = [one for one in asked if one.startswith("SELECT ticks") and "LIMIT" in one]
    assert len(found) == 4


def test_rows_that_go_are_found_by_their_index(store: ServiceStore) -> None:
    """Days of heartbeats were read whole for each two hundred that went."""
    begun = list[tuple[str, Any]]()

    def note(_c: object, _k: object, statement: str, given: Any, *_rest: object) -> None:
        if statement.startswith("DELETE FROM fences"):
            begun.append((statement, given[0] if isinstance(given, list) else given))

    for number in range(4):
        store.fences.add(fence(number, NOW - 2 * DAY + number * SECOND))
    event.listen(store.database.engine, "before_cursor_execute", note)
    store.fences.prune(NOW)
    event.remove(store.database.engine, "before_cursor_execute", note)
    with store.database.read() as connection:
        plans = [
            str(row[-1])
            for statement, given in begun
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
        ]

    assert plans
    assert all(plan.startswith("SEARCH") for plan in plans), plans
