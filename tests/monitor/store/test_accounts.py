from sqlalchemy import event

from monitor.store.history import Accounts
from monitor.store.store import ServiceStore
from pipeline.model import Account
from tests.monitor.store.kit import DAY, NOW, SECOND


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
