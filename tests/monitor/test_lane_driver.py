"""A table gets a new base by itself where that is allowed, needed and not tried just now."""

from dataclasses import replace
from datetime import timedelta

import pytest

from checks.model import Reason
from checks.readiness import ReadinessState
from monitor.board import Board, FirstLanding
from monitor.config.model import RebootstrapRule
from monitor.lane_driver import AutoBootstrap
from monitor.store.requests import BackfillSpec, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillRequest, BackfillState, RowSelection, SelectedKey
from pipeline.model import Origin
from tests.monitor.boards import NOW, view

GAP = Reason("gap", "offsets are gone", "shop.t:0:1@7")
AUTO = RebootstrapRule("shop.*", "auto")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class LandingHarness:
    """A service whose board shows tables that stand still."""

    def __init__(self, store: ServiceStore, *rules: RebootstrapRule) -> None:
        self.store, self.now, self.board = store, NOW, Board(NOW)
        self.bases = AutoBootstrap(rules, store.backfills, lambda: self.board, lambda: self.now)

    def show(self, **tables: Reason) -> None:
        state = ReadinessState.BLOCKED
        views = [view(f"shop.{n}", state, one, seconds=(1, 1, 1)) for n, one in tables.items()]
        self.board = replace(self.board, tables=tuple(views))

    def after(self, time: timedelta) -> list[str]:
        """Look now and once more after *time*; which tables are being read."""
        for moment in (self.now, self.now + time):
            self.now, self.board = moment, replace(self.board, at=moment)
            self.bases.look()
        return [one.table for one in self.store.backfills.wished()]

    def end(self, done: int | None = 7, why: str = "") -> None:
        for one in self.store.backfills.wished():
            state = BackfillState(one.id, one.table, "s/t", 5, done, why, refused=done is None)
            self.store.backfills.record_states([state], self.now)


@pytest.mark.parametrize(
    ("reason", "rules", "begun"),
    [
        pytest.param(GAP, (AUTO,), True, id="a gap"),
        pytest.param(Reason("no_base", "none"), (AUTO,), True, id="no base"),
        pytest.param(Reason("schema", "a column went"), (AUTO,), True, id="a statement"),
        pytest.param(Reason("emptied", "made over"), (AUTO,), True, id="another statement"),
        pytest.param(GAP, (), False, id="nobody allows it"),
        pytest.param(GAP, (RebootstrapRule("shop.*"), AUTO), False, id="the first rule says ask"),
        pytest.param(GAP, (RebootstrapRule("mall.*", "auto"),), False, id="of other tables"),
        pytest.param(Reason("quarantine", "x"), (AUTO,), False, id="what a base does not end"),
        pytest.param(Reason("check_failed", "x"), (AUTO,), False, id="a check"),
        pytest.param(replace(GAP, id="lists:shop:0:7@7"), (AUTO,), False, id="it is not sent"),
        pytest.param(replace(GAP, id="again:shop:0:7@7"), (AUTO,), False, id="it is on its way"),
    ],
)
def test_it_is_begun_for_what_a_base_heals_where_that_is_allowed(
    *, store: ServiceStore, reason: Reason, rules: tuple[RebootstrapRule, ...], begun: bool
) -> None:
    harness = LandingHarness(store, *rules)
    harness.show(t=reason)

    assert harness.after(5 * MINUTE) == (["shop.t"] if begun else [])
    for one in store.backfills.list():
        assert (one.who, one.reason) == (
            "sluice",
            f"rebootstrap: auto; {reason.code}: {reason.text}",
        )


def test_what_heals_by_itself_needs_none(store: ServiceStore) -> None:
    harness = LandingHarness(store, AUTO)
    harness.show(t=GAP)
    assert harness.after(4 * MINUTE) == []
    harness.show()
    harness.after(MINUTE)
    harness.show(t=GAP)

    assert harness.after(4 * MINUTE) == []
    assert harness.after(MINUTE) == ["shop.t"]


def test_so_many_at_once_and_no_more(store: ServiceStore) -> None:
    harness = LandingHarness(store, replace(AUTO, at_once=2))
    harness.show(a=GAP, b=GAP, c=GAP)

    first = harness.after(5 * MINUTE)
    harness.end()
    second = harness.after(MINUTE)

    assert (first, second) == (["shop.a", "shop.b"], ["shop.c"])


def test_an_automatic_repair_takes_no_place_of_a_bootstrap(store: ServiceStore) -> None:
    repair = BackfillSpec(Origin.REPAIR, RowSelection((SelectedKey('["1"]'),)), automatic=True)
    store.backfills.add(StoredBackfill("x", "shop.a", "repair: auto", "sluice", NOW, wish=repair))
    harness = LandingHarness(store, AUTO)
    harness.show(t=GAP)

    assert harness.after(5 * MINUTE) == ["shop.a", "shop.t"]


@pytest.mark.parametrize("done", [pytest.param(7, id="done"), pytest.param(None, id="refused")])
def test_it_is_not_begun_again_soon_and_a_restart_forgets_that_not(
    store: ServiceStore, done: int | None
) -> None:
    harness = LandingHarness(store, AUTO)
    harness.show(t=GAP)
    harness.after(5 * MINUTE)
    harness.end(done, "" if done else "no key")
    harness.bases = AutoBootstrap(
        (AUTO,), store.backfills, lambda: harness.board, lambda: harness.now
    )

    assert harness.after(5 * HOUR) == []
    assert harness.after(HOUR) == ["shop.t"]


def test_what_somebody_has_read_already_is_left_to_him(store: ServiceStore) -> None:
    store.backfills.add(StoredBackfill("x", "shop.t", "mine", "ann", NOW))
    harness = LandingHarness(store, AUTO)
    harness.show(t=GAP)

    harness.after(5 * MINUTE)

    assert store.backfills.wished() == (BackfillRequest("x", "shop.t"),)


def test_a_table_that_is_read_for_the_first_time_has_its_base_on_its_way(
    store: ServiceStore,
) -> None:
    harness = LandingHarness(store, AUTO)
    harness.show(t=Reason("no_base", "none"))
    first = FirstLanding("shop", "10 rows", NOW, ("shop.t",))
    harness.board = replace(harness.board, firsts=(first,))

    assert harness.after(HOUR) == []
    harness.board = replace(harness.board, firsts=(replace(first, stuck=NOW),))
    assert harness.after(5 * MINUTE) == ["shop.t"]


def test_nothing_is_begun_by_a_board_that_is_old(store: ServiceStore) -> None:
    harness = LandingHarness(store, AUTO)
    harness.show(t=GAP)
    harness.after(MINUTE)
    harness.now += HOUR

    harness.bases.look()

    assert store.backfills.wished() == ()
