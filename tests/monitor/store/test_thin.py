"""What is old goes a few rows at a time: nobody who writes waits for all of it."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert

from checks.model import Outcome, Ruling, Verdict
from monitor.store import history
from monitor.store.history import next_batch_size
from monitor.store.schema import ticks
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import DAY, NOW, SECOND, fence


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
