from checks.model import Outcome, Ruling, Verdict
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import DAY, NOW, SECOND, fence


def verdict(letter: str, number: int, value: float | None = None) -> Verdict:
    outcome = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}[letter]
    ruling = Ruling(outcome, f"number {number}", "code", ("[1, 2)",))
    at = NOW + number * SECOND
    return Verdict("shop.orders", "max_id", ruling, at, (fence(number, at),), value, "", "run-1")


def test_verdicts_come_back_as_they_were_the_newest_per_check(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1, 2.5), verdict("F", 2), verdict("?", 3)])
    other = Verdict("shop.users", "lag", Ruling(Outcome.PASS, "fine"), NOW)
    store.verdicts.add([other])

    assert set(store.verdicts.latest()) == {verdict("?", 3), other}


def test_the_last_known_ruling_looks_past_unknown(store: ServiceStore) -> None:
    store.verdicts.add([verdict("P", 1), verdict("F", 2), verdict("?", 3)])

    known = (Outcome.PASS, Outcome.FAIL)

    assert store.verdicts.last("shop.orders", "max_id", known) == verdict("F", 2)
    assert store.verdicts.last("shop.orders", "max_id", [Outcome.PASS]) == verdict("P", 1)
    assert store.verdicts.last("shop.users", "max_id", known) is None


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
