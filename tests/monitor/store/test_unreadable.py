"""One row that cannot be read is skipped, named and counted; it hides no reason to say no."""

import pytest

from checks.blocks import Pause
from monitor.store.history import Accounts, CheckMemory
from monitor.store.requests import BackfillSpec, Pauses, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillState
from pipeline.errors import ProofError
from pipeline.model import Account, Origin
from pipeline.reports import Hold
from tests.monitor.store.kit import DAY, NOW, SECOND

NO_TEXT = "CAST(x'ff' AS TEXT)"
ORDERS, USERS = "shop.orders", "shop.users"


def damage(store: ServiceStore, change: str, table: str = ORDERS) -> None:
    with store.write() as connection:
        of, _, values = change.partition(" SET ")
        assert connection.exec_driver_sql(f"UPDATE {of} SET {values} WHERE {table}").rowcount == 1


@pytest.mark.parametrize("kept", ["'{'", "'[1'", NO_TEXT, "7"])
def test_f143_what_a_check_remembers_is_not_forgotten_where_it_cannot_be_read(
    store: ServiceStore, kept: str
) -> None:
    for table in (ORDERS, USERS):
        store.memory.remember(table, "range_counts", {"seen": [7]}, NOW)
    with store.write():
        pass
    damage(store, f"memory SET kept = {kept}", f"\"table\" = '{ORDERS}'")

    reopened = CheckMemory(store.database)

    with pytest.raises(
        ProofError, match=r"the stored memory of check range_counts for shop\.orders is unreadable"
    ):
        reopened.recall(ORDERS, "range_counts")
    assert reopened.recall(USERS, "range_counts") == {"seen": [7]}
    assert store.database.unreadable == 1
    assert store.database.problem == ""


@pytest.mark.parametrize("change", ["since = 'long ago'", "until = 'soon'", f"reason = {NO_TEXT}"])
def test_f143_a_pause_that_cannot_be_read_goes_on_until_it_is_resumed(
    store: ServiceStore, change: str
) -> None:
    for table in (ORDERS, USERS):
        store.pauses.begin(Pause(table, "a migration", "me", NOW, NOW + DAY))
    damage(store, f"pauses SET {change}", f"\"table\" = '{ORDERS}'")

    reopened = Pauses(store.database)

    standing = reopened.standing(NOW + SECOND)
    assert standing.keys() == {ORDERS, USERS}
    assert standing[ORDERS].since < NOW - 1000 * DAY
    assert standing[ORDERS].until is None
    assert [one.pause.table for one in reopened.list(NOW)] == [USERS]
    assert store.database.unreadable == 1
    assert reopened.standing(NOW + 2 * DAY).keys() == {ORDERS}
    assert reopened.resume(ORDERS, "me", NOW + SECOND)
    assert reopened.standing(NOW + SECOND).keys() == {USERS}


@pytest.mark.parametrize(
    "change", ["since = 'now'", "tables = '{'", f"detail = {NO_TEXT}", f"reason = {NO_TEXT}"]
)
def test_f143_a_hold_that_cannot_be_read_still_holds(store: ServiceStore, change: str) -> None:
    holds = [Hold(f"schema:{one}@7", one, "schema", "a column") for one in (ORDERS, USERS)]
    store.holds.replace([], holds, NOW)
    damage(store, f"standstills SET {change}", f"subject = '{ORDERS}'")

    found = {one.subject: (one.id, one.kind) for one in store.holds.list()}

    assert found == {one: (f"schema:{one}@7", "hold") for one in (ORDERS, USERS)}
    assert store.database.unreadable == 1
    store.holds.replace([], holds, NOW + SECOND)
    assert [one.detail for one in store.holds.list()] == ["a column", "a column"]


@pytest.mark.parametrize("change", ["residual = ''", "residual = 'none'", "at = 'now'"])
def test_f143_an_account_that_cannot_be_read_does_not_add_up(
    store: ServiceStore, change: str
) -> None:
    for table in (ORDERS, USERS):
        store.accounts.add("main", table, 6, Account(read=1, applied=1), NOW)
        store.accounts.add("main", table, 7, Account(read=1, applied=1), NOW + SECOND)
    damage(store, f"accounts SET {change}", f"\"table\" = '{ORDERS}' AND batch = 7")

    reopened = Accounts(store.database)

    assert reopened.residuals() == {ORDERS: 1, USERS: 0}
    assert store.database.unreadable == 1
    reopened.add("main", ORDERS, 8, Account(read=1, applied=1), NOW + 2 * SECOND)
    assert reopened.residuals() == {ORDERS: 0, USERS: 0}
    assert Accounts(store.database).residuals() == {ORDERS: 0, USERS: 0}


def test_f143_a_total_that_cannot_be_read_hides_no_other(store: ServiceStore) -> None:
    for table in (ORDERS, USERS):
        store.accounts.add("main", table, 7, Account(read=2, applied=2), NOW)
    damage(
        store, "account_totals SET changes = 'many'", "\"table\" = 'shop.orders' AND term = 'read'"
    )

    assert store.accounts.totals().keys() == {
        (USERS, "read"),
        (USERS, "applied"),
        (ORDERS, "applied"),
    }
    assert store.database.unreadable == 1


@pytest.mark.parametrize(
    "change", ["at = 'now'", "states = '{'", "wish = '{\"origin\": 7}'", f"reason = {NO_TEXT}"]
)
def test_f143_a_reread_that_cannot_be_read_is_read_on_by_nobody_and_hides_no_other(
    store: ServiceStore, change: str
) -> None:
    made = [StoredBackfill(f"r-{one}", one, "a test", "me", NOW) for one in (ORDERS, USERS)]
    for one in made:
        store.backfills.add(one)
    damage(store, f"rereads SET {change}", f"\"table\" = '{ORDERS}'")

    assert [one.table for one in store.backfills.open()] == [USERS]
    assert [one.id for one in store.backfills.wished()] == ["r-shop.users"]
    assert [one.table for one in store.backfills.list()] == [USERS]
    assert store.backfills.get("r-shop.orders") is None
    assert store.backfills.unchecked(NOW - DAY) == ()
    store.backfills.record_states(
        [BackfillState("r-shop.users", USERS, "shop/shop.users", rows=3)], NOW
    )
    assert store.database.unreadable == 1

    again = StoredBackfill(
        "r-2", ORDERS, "again", "me", NOW + SECOND, wish=BackfillSpec(Origin.REPLAY)
    )
    assert store.backfills.add(again) == again
    assert [one.id for one in store.backfills.open()] == ["r-shop.users", "r-2"]
