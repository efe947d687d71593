from dataclasses import replace

import pytest
from sqlalchemy import event

from checks.certificate import Certificate, certify
from checks.proof import Evidence
from monitor.store.holds import Standstill
from monitor.store.store import ServiceStore
from monitor.store.waivers import Waiver
from pipeline.model import Account, Stage
from pipeline.report import Gap, Hold
from tests.monitor.store.kit import DAY, NOW, SECOND, fence

GAP = Gap("shop.x:0:5", "shop.x", 0, 5, 9, "deleted by retention", ("shop.orders",))
HOLD = Hold("hold-1", "shop.users", "no_base", "wait for the snapshot")


def certificate(seconds: int = 0, stage: Stage = Stage.MIRROR) -> Certificate:
    evidence = Evidence((fence(3, NOW),), 17, 5, 17, {"shop.x:0": 40})
    return certify(
        "shop.orders",
        stage,
        NOW - DAY,
        issued=NOW + seconds * SECOND,
        evidence=evidence,
        unknown=("completeness",),
    )


def test_a_certificate_comes_back_with_its_evidence(store: ServiceStore) -> None:
    assert store.certificates.add(certificate())

    assert store.certificates.get(certificate().id) == certificate()
    assert store.certificates.get("no such id") is None


def test_what_was_issued_is_never_rewritten(store: ServiceStore) -> None:
    store.certificates.add(certificate())

    assert not store.certificates.add(replace(certificate(), unknown=()))
    assert store.certificates.get(certificate().id) == certificate()


def test_the_newest_for_a_cut_and_stage(store: ServiceStore) -> None:
    for one in (certificate(0), certificate(5), certificate(9, Stage.LANDED)):
        store.certificates.add(one)

    cut = NOW - DAY

    assert store.certificates.newest("shop.orders", Stage.MIRROR, cut) == certificate(5)
    assert store.certificates.newest("shop.orders", Stage.LANDED, cut) == certificate(
        9, Stage.LANDED
    )
    assert store.certificates.newest("shop.orders", Stage.MIRROR, NOW) is None


def test_a_revoked_certificate_is_kept_with_its_first_reason(store: ServiceStore) -> None:
    store.certificates.add(certificate())
    revoked = replace(certificate(), revoked=NOW + DAY, why="range_counts: 2 rows short")

    first = store.certificates.revoke([revoked])
    second = store.certificates.revoke([replace(revoked, why="later")])

    assert (first, second) == (1, 0)
    assert store.certificates.newest("shop.orders", Stage.MIRROR, NOW - DAY) == revoked
    assert store.certificates.holding("shop.orders") == ()


def test_those_that_hold_since_an_instant_oldest_first(store: ServiceStore) -> None:
    for seconds in (9, 0, 5):
        store.certificates.add(certificate(seconds))

    held = store.certificates.holding("shop.orders", since=NOW + 5 * SECOND)

    assert held == (certificate(5), certificate(9))
    assert store.certificates.list("shop.orders", Stage.MIRROR, limit=1) == (certificate(9),)
    assert store.certificates.prune(NOW + 50 * DAY) == 3


def test_a_tick_is_accepted_once(store: ServiceStore) -> None:
    assert store.ticks.start("cycle", NOW, NOW)
    assert not store.ticks.start("cycle", NOW, NOW)


@pytest.mark.parametrize("result", ["done", "failed", "late"])
def test_a_tick_ends_once(store: ServiceStore, result: str) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.finish("cycle", NOW, NOW + SECOND, result, "detail")
    store.ticks.finish("cycle", NOW, NOW + DAY, "done")

    (tick,) = store.ticks.list("cycle")
    assert (tick.result, tick.detail, tick.finished) == (result, "detail", NOW + SECOND)
    assert store.ticks.totals() == {("cycle", result): 1}


def test_a_tick_that_failed_before_its_start_is_written_down(store: ServiceStore) -> None:
    store.ticks.finish("cycle", NOW, NOW, "failed", "no store")

    assert store.ticks.totals() == {("cycle", "failed"): 1}


def test_missed_ticks_in_a_row_are_one_row_and_counted_each(store: ServiceStore) -> None:
    planneds = [NOW + n * SECOND for n in range(5)]

    store.ticks.miss_many("cycle", planneds, NOW + DAY)
    store.ticks.miss_many("cycle", planneds, NOW + DAY)
    store.ticks.miss_many("cycle", [], NOW + DAY)

    (tick,) = store.ticks.list(result="missed")
    assert (tick.planned, tick.until, tick.many) == (planneds[0], planneds[-1], 5)
    assert store.ticks.totals() == {("cycle", "missed"): 5}
    assert store.ticks.last("cycle") == planneds[-1]
    assert not store.ticks.start("cycle", planneds[2], NOW + DAY)


def test_a_tick_stands_for_those_it_ran_through_and_counts_as_one(store: ServiceStore) -> None:
    through = [NOW + n * SECOND for n in (1, 2)]
    store.ticks.start("land", NOW, NOW)

    store.ticks.finish("land", NOW, NOW + 2 * SECOND, "done", through=through)

    (tick,) = store.ticks.list("land")
    assert (tick.planned, tick.until, tick.many) == (NOW, through[-1], 3)
    assert store.ticks.totals() == {("land", "done"): 1}
    assert store.ticks.lasts() == {"land": through[-1]}
    assert not store.ticks.start("land", through[0], NOW + DAY)


def test_what_a_dead_service_left_running_is_closed_as_failed(store: ServiceStore) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.start("land", NOW, NOW)
    store.ticks.finish("land", NOW, NOW, "done")

    (tick,) = store.ticks.interrupted(NOW + DAY)

    assert tick.job == "cycle"
    assert store.ticks.totals() == {("cycle", "failed"): 1, ("land", "done"): 1}
    assert store.ticks.interrupted(NOW + DAY) == ()


def test_the_next_life_knows_where_each_job_was(store: ServiceStore) -> None:
    store.ticks.start("cycle", NOW, NOW)
    store.ticks.finish("cycle", NOW, NOW + SECOND, "done")
    store.ticks.start("cycle", NOW + SECOND, NOW + SECOND)
    store.ticks.miss_many("land", (NOW,), NOW)

    assert store.ticks.lasts() == {"cycle": NOW + SECOND, "land": NOW}
    assert store.ticks.last_success() == {"cycle": NOW + SECOND}
    assert store.ticks.last("other") is None


def test_old_good_ticks_go_first_and_the_newest_and_the_totals_stay(store: ServiceStore) -> None:
    for number in range(3):
        planned = NOW + number * SECOND
        store.ticks.start("cycle", planned, planned)
        store.ticks.finish("cycle", planned, planned, "done" if number else "failed")

    store.ticks.prune(NOW + 2 * DAY)

    assert [tick.result for tick in store.ticks.list()] == ["done", "failed"]
    assert store.ticks.last("cycle") == NOW + 2 * SECOND
    assert store.ticks.totals() == {("cycle", "done"): 2, ("cycle", "failed"): 1}


def test_a_waiver_stands_as_it_was_first_given(store: ServiceStore) -> None:
    first = Waiver("gap-1", "the topic was a test", "on call", NOW)

    assert store.waivers.add(first)
    assert not store.waivers.add(replace(first, reason="another"))
    assert store.waivers.waived() == frozenset({"gap-1"})
    assert store.waivers.list() == (first,)


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


def test_the_residual_is_that_of_the_newest_account(store: ServiceStore) -> None:
    store.accounts.add("main", "shop.orders", 7, Account(read=2), NOW)
    store.accounts.add("main", "shop.users", 7, Account(read=1), NOW)
    store.accounts.add("main", "shop.orders", 8, Account(read=1, applied=1), NOW + SECOND)

    assert store.accounts.residuals() == {"shop.orders": 0, "shop.users": 1}
    assert store.accounts.prune(NOW + 50 * DAY) == 3
    assert store.accounts.totals()["shop.orders", "read"] == 3


def test_what_stands_still_keeps_its_since_and_what_is_over_goes(store: ServiceStore) -> None:
    store.holds.replace([GAP], [HOLD], NOW)
    store.holds.replace([], [replace(HOLD, detail="still waiting")], NOW + SECOND)

    assert store.holds.list() == (
        Standstill("hold-1", "hold", "shop.users", "no_base", "still waiting", NOW),
    )


def test_a_gap_names_its_offsets_and_tables(store: ServiceStore) -> None:
    store.holds.replace([GAP], [], NOW)

    (gap,) = store.holds.list()
    assert gap.subject == "shop.x:0"
    assert gap.detail == "offsets [5, 9) of shop.x:0: deleted by retention"
    assert gap.tables == ("shop.orders",)


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
