"""Each transition of a table is recorded once, with since and why, and shown everywhere."""

from dataclasses import replace
from datetime import timedelta

import pytest

from checks.blocks import Pause
from checks.table_state import StateSince, TableState
from monitor.store.history import KEPT
from monitor.store.requests import RereadRequest
from pipeline.backfill_state import BackfillState
from pipeline.checkpoint import Existence
from pipeline.errors import UnreachableError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Account, Missing, Order
from pipeline.reports import Hold, MergeReport
from pipeline.settings import TableRule
from tests.monitor.rig import NOON, ORDERS, USERS, Rig

SECOND = timedelta(seconds=1)
SHARD = f"shop/{USERS}"


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def state(rig: Rig, table: str = USERS) -> str:
    view = rig.current.board.table(table)
    assert view is not None
    assert view.life is not None
    return view.life.state.value


def transitions(rig: Rig, table: str = USERS) -> list[str]:
    """Oldest first."""
    found = rig.client.get(f"/v1/tables/{table}/states").json()
    return [one["state"] for one in reversed(found)]


def hold(rig: Rig, why: Hold | None) -> None:
    turn = MergeReport(USERS, 1, 1, Account(), rig.clock(), SECOND, why)
    rig.standstills.applied([turn], rig.clock())


def test_a_life(healthy: Rig) -> None:
    rig = healthy
    assert state(rig) == "incremental"

    hold(rig, Hold("h", USERS, "lost_column", "a column is gone"))
    rig.round()
    hold(rig, None)
    rig.round()
    rig.store.pauses.begin(Pause(USERS, "a migration", "ann", rig.clock()))
    rig.round()
    rig.store.pauses.resume(USERS, "ann", rig.clock())
    rig.round()
    asked = rig.store.rereads.add(RereadRequest("x", USERS, "a gap", "ann", rig.clock()))
    rig.round()
    rig.store.rereads.told([BackfillState(asked.id, USERS, SHARD, 5, 7)], rig.clock())
    rig.round()
    rig.round()

    assert transitions(rig) == [
        *("incremental", "held", "incremental", "paused", "incremental"),
        *("re-bootstrap", "incremental"),
    ]
    told = rig.client.get(f"/v1/tables/{USERS}/states").json()
    assert [one["why"] for one in told][-2] == "a column is gone"
    assert transitions(rig, ORDERS) == ["incremental"]


def test_what_is_read_for_the_first_time_is_in_bootstrap_and_before_that_it_is_new(
    rig: Rig,
) -> None:
    rig.beat()
    rig.land()
    assert rig.lake.newest is not None
    rig.lake.newest = replace(rig.lake.newest, bases={})
    rig.cycle.watch()
    assert (state(rig), state(rig, ORDERS)) == ("new", "new")

    rig.store.rereads.add(RereadRequest("x", USERS, "added", "ann", rig.clock()))
    rig.cycle.watch()
    assert (state(rig), state(rig, ORDERS)) == ("bootstrap", "new")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        pytest.param("dropped", "was dropped", id="dropped"),
        pytest.param("ignored", "a rule ignores shop.users", id="ignored"),
    ],
)
def test_a_table_that_is_gone_is_retired_and_comes_back(healthy: Rig, how: str, why: str) -> None:
    rig = healthy
    assert rig.lake.newest is not None
    before, rules = rig.lake.newest, rig.rules
    if how == "dropped":
        gone = Existence(Order(1, 1, 9), False)
        rig.lake.newest = replace(before, batch=before.batch + 1, existing={SHARD: gone})
    else:
        rig.rules = (TableRule("shop.users", ignore=True),)
        rig.restart()
    rig.second()
    rig.cycle.watch()
    rig.second()
    rig.cycle.watch()

    (one,) = rig.current.board.retired
    assert (one.table, why in one.why) == (USERS, True)
    page, metrics = rig.client.get("/").text, rig.client.get("/metrics").text
    assert "1 retired" in page
    assert f'sluice_table_state{{table="{USERS}",state="retired"}} 1.0' in metrics
    assert f'sluice_table_state{{table="{ORDERS}"' not in metrics
    told = {one["table"]: one["state"] for one in rig.client.get("/v1/states").json()}
    assert told == {USERS: "retired", ORDERS: "incremental"}

    rig.lake.newest, rig.rules = replace(before, batch=before.batch + 2), rules
    rig.restart()
    rig.round()
    rig.round()
    assert transitions(rig) == ["incremental", "retired", "incremental"]


def test_a_restart_enters_nothing_anew(healthy: Rig) -> None:
    before = healthy.client.get(f"/v1/tables/{USERS}/states").json()

    healthy.restart()
    healthy.round()
    healthy.round()

    assert healthy.client.get(f"/v1/tables/{USERS}/states").json() == before


def test_while_nobody_knows_what_landed_no_state_is_changed(healthy: Rig) -> None:
    healthy.lake.silent = True
    healthy.second(120)
    healthy.cycle.watch()

    assert isinstance(healthy.watcher.look(timedelta()).checkpoint, Missing)
    assert transitions(healthy) == ["incremental"]


def test_what_the_store_did_not_take_is_told_again(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise UnreachableError("disk is full")

    hold(healthy, Hold("h", USERS, "lost_column", "a column is gone"))
    keep, healthy.cycle.states.keep = healthy.cycle.states.keep, full
    healthy.cycle.watch()
    assert transitions(healthy) == ["incremental"]

    healthy.cycle.states.keep = keep
    healthy.cycle.watch()
    assert transitions(healthy) == ["incremental", "held"]


def test_a_table_that_turns_all_the_time_fills_no_disk(rig: Rig) -> None:
    states = [TableState.HELD, TableState.INCREMENTAL]
    for number in range(KEPT + 20):
        one = StateSince(USERS, states[number % 2], NOON + number * SECOND, str(number))
        rig.store.table_states.add([one])
    rig.store.table_states.add([StateSince(ORDERS, TableState.NEW, NOON)])

    kept = rig.store.table_states.list(USERS)
    assert (len(kept), kept[0].why) == (KEPT, str(KEPT + 19))
    assert rig.store.table_states.newest()[USERS] == kept[0]
    assert len(rig.store.table_states.list(ORDERS)) == 1


def test_a_clock_that_went_back_tells_the_rest_anew(rig: Rig) -> None:
    for hours, state in ((0, TableState.NEW), (5, TableState.HELD), (1, TableState.INCREMENTAL)):
        rig.store.table_states.add([StateSince(USERS, state, NOON + timedelta(hours=hours))])

    kept = rig.store.table_states.list(USERS)
    assert [one.state for one in kept] == [TableState.INCREMENTAL, TableState.NEW]


def test_a_mirror_that_is_not_there_yet_is_new(healthy: Rig) -> None:
    del healthy.lake.mirrors[USERS]
    healthy.second(60)
    healthy.beat()
    healthy.cycle.watch()

    assert state(healthy) in ("new", "bootstrap")
    healthy.lake.mirrors[USERS] = MirrorPosition(0, 1, "u")
    healthy.round()
    assert state(healthy) == "incremental"
