"""Each transition of a table is recorded once, with since and why, and shown everywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from checks.blocks import Pause, StateSince, TableState
from monitor.observe.heartbeats import FenceBook
from monitor.observe.table_states import DueCuts, find_configured
from monitor.store.history import KEPT
from monitor.store.requests import StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillState
from pipeline.checkpoint import Checkpoint, Existence
from pipeline.errors import UnreachableError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Account, Fence, Head, Missing, Order, Shard
from pipeline.reports import Hold, MergeReport
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.rig import NOON, ORDERS, USERS, Rig

SECOND = timedelta(seconds=1)
SHARD = f"shop/{USERS}"


def state(rig: Rig, table: str = USERS) -> str:
    view = rig.view(table)
    assert view.life is not None
    return view.life.state.value


def transitions(rig: Rig, table: str = USERS) -> list[str]:
    """Oldest first."""
    found = rig.client.get(f"/v1/tables/{table}/states").json()
    return [one["state"] for one in reversed(found)]


def hold_users(rig: Rig, why: Hold | None) -> None:
    turn = MergeReport(USERS, 1, 1, Account(), rig.clock(), SECOND, why)
    rig.hold_registry.applied([turn], rig.clock())


def test_a_life(healthy: Rig) -> None:
    rig = healthy
    assert state(rig) == "incremental"

    hold_users(rig, Hold("h", USERS, "lost_column", "a column is gone"))
    rig.round()
    hold_users(rig, None)
    rig.round()
    rig.store.pauses.begin(Pause(USERS, "a migration", "ann", rig.clock()))
    rig.round()
    rig.store.pauses.resume(USERS, "ann", rig.clock())
    rig.round()
    asked = rig.store.backfills.add(StoredBackfill("x", USERS, "a gap", "ann", rig.clock()))
    rig.round()
    rig.store.backfills.record_states([BackfillState(asked.id, USERS, SHARD, 5, 7)], rig.clock())
    rig.round(2)

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
    rig.write_heartbeat()
    rig.land()
    rig.set_checkpoint(bases={})
    rig.cycle.watch()
    assert (state(rig), state(rig, ORDERS)) == ("new", "new")

    rig.store.backfills.add(StoredBackfill("x", USERS, "added", "ann", rig.clock()))
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
    before, rules = rig.newest, rig.rules
    if how == "dropped":
        gone = Existence(Order(1, 1, 9), False)
        rig.lake.newest = replace(
            before, batch=before.batch + 1, existing={Shard.parse(SHARD): gone}
        )
    else:
        rig.rules = (TableRule("shop.users", ignore=True),)
        rig.restart()
    rig.watch()
    rig.watch()

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
    rig.round(2)
    assert transitions(rig) == ["incremental", "retired", "incremental"]


@pytest.mark.parametrize(
    ("table", "rules", "sources", "kept"),
    [
        pytest.param("d.t", (), {"a"}, {"d.t"}, id="as it landed"),
        pytest.param("d.t", (), {"b"}, set(), id="its source is gone"),
        pytest.param("d.t", (TableRule("d.t", ignore=True),), {"a"}, set(), id="ignored"),
        pytest.param(None, (), {"a"}, {"d.t"}, id="ignored before"),
        pytest.param(
            *("d.t", (TableRule("d.t", table="d.new"),), {"a"}, {"d.t", "d.new"}), id="renamed"
        ),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_table_is_configured_while_a_rule_and_a_source_are_there_for_it(
    table: str | None,
    rules: tuple[TableRule, ...],
    sources: set[str],
    kept: set[str],
    exists: bool,
) -> None:
    shard = Shard("a", "d.t")
    there = {shard: Existence(Order(1, 1, 9), exists)}
    checkpoint = Checkpoint("main", 3, shards={shard: table}, existing=there)

    assert find_configured(checkpoint, Router(rules), sources) == kept


def test_a_restart_enters_nothing_anew(healthy: Rig) -> None:
    before = healthy.client.get(f"/v1/tables/{USERS}/states").json()

    healthy.restart()
    healthy.round(2)

    assert healthy.client.get(f"/v1/tables/{USERS}/states").json() == before


def test_while_nobody_knows_what_landed_no_state_is_changed(healthy: Rig) -> None:
    healthy.lake.silent = True
    healthy.watch(120)

    assert isinstance(healthy.watcher.look(timedelta()).checkpoint, Missing)
    assert transitions(healthy) == ["incremental"]


def test_what_the_store_did_not_take_is_told_again(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise UnreachableError("disk is full")

    hold_users(healthy, Hold("h", USERS, "lost_column", "a column is gone"))
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
    healthy.write_heartbeat()
    healthy.cycle.watch()

    assert state(healthy) in ("new", "bootstrap")
    healthy.lake.mirrors[USERS] = MirrorPosition(0, 1, "u")
    healthy.round()
    assert state(healthy) == "incremental"


BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


def hourly_fences(since: datetime, count: int) -> tuple[Fence, ...]:
    """One an hour."""
    head = Head("A", binlog_position(1, 4))
    return tuple(Fence("shop", n, since + n * timedelta(hours=1), head) for n in range(count))


def first_of(known: Mapping[str, Sequence[Fence]]) -> Callable[[str, datetime], Fence | None]:
    return lambda source, at: next((one for one in known[source] if one.at >= at), None)


def test_today_is_told_before_it_ends_and_days_before_with_their_heartbeats() -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    known = {"shop": hourly_fences(datetime(2026, 3, 9, 12, 30, tzinfo=UTC), 20), "new": ()}

    found = DueCuts(lambda: known, first_of(known), BERLIN, lambda: now)()

    assert [one.at for one in found] == [datetime(2026, 3, d, 23, tzinfo=UTC) for d in range(7, 11)]
    numbers = [{name: one.number for name, one in cut.fences.items()} for cut in found]
    assert numbers == [{"shop": 0}, {"shop": 0}, {"shop": 11}, {}]


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(datetime(2026, 3, 29, 12, tzinfo=UTC), 23, id="the clock goes forward"),
        pytest.param(datetime(2026, 10, 25, 12, tzinfo=UTC), 25, id="the clock goes back"),
    ],
)
def test_days_of_23_and_25_hours_end_where_they_end(day: datetime, hours: int) -> None:
    *_, before, after = DueCuts(dict, first_of({}), BERLIN, lambda: day)()

    assert after.at - before.at == timedelta(hours=hours)


def test_where_no_images_are_made_no_cut_is_told() -> None:
    assert DueCuts(dict, first_of({}), BERLIN, lambda: datetime.now(UTC), wanted=False)() == ()


def night(store: ServiceStore, seconds: int) -> tuple[FenceBook, datetime, DueCuts]:
    """A heartbeat each second since a minute before midnight, as a book that was opened late."""
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC)
    head = Head("A", binlog_position(1, 4))
    for number in range(-60, 61):
        at = midnight + timedelta(seconds=number + 0.4)
        store.fences.add(Fence("shop", 1_000 + number, at, head))
    now = midnight + timedelta(seconds=seconds)
    book = FenceBook(store.fences)
    book.load(["shop"], midnight - timedelta(hours=1))
    cuts = DueCuts(book.known, book.first, BERLIN, lambda: now)
    return book, midnight, cuts


def at_midnight(cuts: DueCuts, midnight: datetime) -> Fence | None:
    (cut,) = (one for one in cuts() if one.at == midnight)
    return cut.fences.get("shop")


def test_the_heartbeat_of_a_cut_stays_the_first_one_when_those_remembered_are_thinned(
    store: ServiceStore,
) -> None:
    book, midnight, cuts = night(store, 82_800)
    left = [one for one in book.of("shop") if not midnight <= one.at < midnight + MINUTE / 2]
    book._known["shop"] = tuple(left)

    found = at_midnight(cuts, midnight)
    store.fences.prune(midnight + timedelta(days=3))
    book._firsts.clear()
    later = at_midnight(cuts, midnight)

    assert found == later
    assert (found and found.number) == 1_000


def test_a_clock_that_goes_back_after_midnight_leaves_the_first_heartbeat_where_it_is(
    store: ServiceStore,
) -> None:
    """The source's goes on, so those that come meanwhile are of no earlier time."""
    book, midnight, _ = night(store, 60)
    newest = book.of("shop")[-1]
    for second in range(1, 4):
        again = replace(newest, number=newest.number + second, at=newest.at - MINUTE / 20)
        book.add(again, newest.at + timedelta(seconds=second))
    cut = newest.at - MINUTE / 120

    restarted = FenceBook(store.fences)
    restarted.load(["shop"], midnight - timedelta(hours=1))

    assert [one.number for one in restarted.of("shop")[-4:]] == [1_060, 1_061, 1_062, 1_063]
    for known in (book, restarted):
        first = known.first("shop", cut)
        assert (first and first.number) == newest.number


def test_after_a_fail_over_past_the_cut_no_heartbeat_stands_for_it(store: ServiceStore) -> None:
    """The first of the other server is as much later as that was."""
    book, midnight, cuts = night(store, 2_500)
    other = Head("B", binlog_position(1, 4))
    book.add(Fence("shop", 2_000, midnight + timedelta(minutes=41), other))

    assert at_midnight(cuts, midnight) is None


def test_a_heartbeat_whose_time_proved_wrong_stands_for_no_cut(store: ServiceStore) -> None:
    book, midnight, cuts = night(store, 100)
    assert at_midnight(cuts, midnight) is not None

    back = replace(book.of("shop")[-1], number=1_061, at=midnight - timedelta(seconds=50))
    book.add(back)
    book.add(replace(back, number=1_062, at=midnight + timedelta(seconds=5)))

    found = at_midnight(cuts, midnight)
    assert (found and found.number) == 1_062
