"""What is old goes a few rows at a time: nobody who writes waits for all of it."""

from datetime import timedelta

from sqlalchemy import event

from checks.model import Outcome, Ruling, Verdict
from monitor.store import thin
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import NOW


def test_f44_a_day_of_verdicts_goes_by_many_short_transactions(store: ServiceStore) -> None:
    seconds = [NOW + timedelta(seconds=second) for second in range(1_000)]
    store.verdicts.add([Verdict("t", "lag", Ruling(Outcome.PASS, ""), at) for at in seconds])
    rows = list[int]()
    event.listen(
        store.database.engine, "after_cursor_execute", lambda *a: rows.append(a[1].rowcount)
    )

    gone = store.verdicts.prune(NOW + timedelta(days=2))

    assert gone == 997  # the firsts of two times ten minutes stay, and the newest
    assert max(rows) <= thin.AT_ONCE
    assert len(rows) > gone / thin.AT_ONCE
