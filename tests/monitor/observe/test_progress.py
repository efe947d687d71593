"""What is read for the first time is one line that says how far it is, and no trouble."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from monitor.board import FirstLanding
from monitor.observe.progress import PATIENCE, FirstLandings, backfill_progress, landings_by_table
from monitor.observe.sampler import NO_MIRROR, Sampling
from monitor.store.requests import BackfillSpec, StoredBackfill
from pipeline.backfill_state import BackfillState, RowSelection
from pipeline.checkpoint import Checkpoint, OpenSnapshot
from pipeline.collectors.collector import CollectorState
from pipeline.lags.samples import MirrorPosition, Sample, SourceSamples
from pipeline.model import Acknowledged, Missing, Order, Origin, Shard, Table
from pipeline.sources.mysql.position import binlog_position

NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
AGE = timedelta(minutes=1)
ORDERS, USERS = (Table(n, (Shard("shop", n),), key=("id",)) for n in ("shop.orders", "shop.users"))
BOTH = (ORDERS, USERS)
HALF = timedelta(minutes=10)


def sampled(
    mark: Checkpoint | Missing, *, snapshot: bool = True, mirrors: tuple[Table, ...] = ()
) -> Sampling:
    position = Acknowledged(binlog_position(1, 4), snapshot=snapshot)
    source = SourceSamples(Sample((), NOON, AGE), Sample(position, NOON, AGE))
    known = {one.name: Sample(MirrorPosition(1, 1), NOON, AGE) for one in mirrors}
    gone = [one.name for one in BOTH if one not in mirrors]
    return Sampling(
        NOON,
        {"shop": source},
        mark if isinstance(mark, Missing) else Sample(mark, NOON, AGE),
        {**known, **dict.fromkeys(gone, Missing("there is no mirror yet"))},
        unreadable=dict.fromkeys(gone, NO_MIRROR),
    )


def snapshot_checkpoint(orders: int, users: int = 0, *, based: tuple[str, ...] = ()) -> Checkpoint:
    rows = {"shop.orders": orders, "shop.users": users}
    snaps = {
        Shard("shop", name): OpenSnapshot(Order(1, 1, 4), 0, count)
        for name, count in rows.items()
        if name not in based
    }
    bases = {Shard("shop", name): Order(1, 1, 4) for name in based}
    return Checkpoint("main", 3, snaps=snaps, bases=bases, complete=dict.fromkeys(bases, 3))


def look(*marks: Checkpoint, pause: timedelta = HALF, total: int = 0) -> FirstLanding:
    """The last of several looks, *pause* apart, at these marks."""
    expected = {"shop.orders": total, "shop.users": 0} if total else {}
    landings = FirstLandings(lambda _: expected)
    for number, mark in enumerate(marks):
        found = landings.look(sampled(mark), BOTH, NOON + number * pause)
    (one,) = found
    return one


def test_before_anything_has_landed_it_says_what_is_waited_for() -> None:
    nothing = Missing("nothing has landed yet")

    (found,) = FirstLandings().look(sampled(nothing), (), NOON)

    assert (
        found.description == "nothing has landed yet: the collector is reading its first snapshot"
    )


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        pytest.param(
            "trouble", "the collector is failed: cannot read", id="a collector that fails"
        ),
        pytest.param("offset", "connector shop has not stored an offset", id="one that begins"),
    ],
)
def test_before_anything_has_landed_it_names_who_is_to_blame(harm: str, said: str) -> None:
    plain = sampled(Missing("nothing has landed yet"), snapshot=False)
    source = plain.sources["shop"]
    seen = {
        "trouble": replace(plain, troubles={"shop": CollectorState("failed", "cannot read")}),
        "offset": replace(
            plain,
            sources={
                "shop": replace(
                    source, acknowledged=Missing("connector shop has not stored an offset")
                )
            },
        ),
    }[harm]

    (found,) = FirstLandings().look(seen, (), NOON)

    assert found.description == f"nothing has landed yet: {said}"


def test_f194_what_is_waited_for_is_not_told_twice() -> None:
    plain = sampled(Missing("nothing has landed yet"), snapshot=False)

    (found,) = FirstLandings().look(plain, (), NOON)

    assert found.description == "nothing has landed yet"


def test_how_far_it_is_and_when_it_should_be_done() -> None:
    found = look(snapshot_checkpoint(0), snapshot_checkpoint(250_000), total=1_000_000)

    assert found.description == (
        "250,000 of about 1,000,000 rows of 2 tables landed; shop.orders and 1 more are being read"
    )
    assert found.eta == NOON + 4 * HALF


def test_where_nobody_knows_how_many_rows_there_are_no_time_is_made_up() -> None:
    found = look(snapshot_checkpoint(0), snapshot_checkpoint(250_000))

    assert (found.eta, found.description.split(";")[0]) == (None, "250,000 rows of 2 tables landed")


def test_a_table_that_has_more_rows_than_its_source_thought_is_not_done_yesterday() -> None:
    found = look(snapshot_checkpoint(0), snapshot_checkpoint(3_000_000), total=1_000_000)

    assert found.eta == NOON + HALF
    assert found.description.startswith("3,000,000 of about 3,000,000 rows")


def test_a_table_is_read_for_the_first_time_until_its_mirror_is_there() -> None:
    landed = snapshot_checkpoint(0, based=("shop.orders", "shop.users"))
    landings = FirstLandings()

    (one,) = landings.look(sampled(landed, snapshot=False, mirrors=(USERS,)), BOTH, NOON)
    done = landings.look(sampled(landed, snapshot=False, mirrors=BOTH), BOTH, NOON)

    assert (one.tables, one.description) == (
        ("shop.orders",),
        "1 table landed completely, and wait for their first merge",
    )
    assert done == ()


def test_a_table_that_nobody_reads_is_not_excused() -> None:
    added = snapshot_checkpoint(0, based=("shop.users",))
    added = replace(added, snaps={})

    assert FirstLandings().look(sampled(added, snapshot=False, mirrors=(USERS,)), BOTH, NOON) == ()


def test_a_mirror_that_cannot_be_read_is_not_excused() -> None:
    seen = sampled(snapshot_checkpoint(0, based=("shop.orders", "shop.users")), snapshot=False)
    broken = replace(seen, unreadable=dict.fromkeys(("shop.orders", "shop.users"), "log_damaged"))

    assert FirstLandings().look(broken, BOTH, NOON) == ()


def test_a_lake_that_does_not_answer_is_no_first_landing() -> None:
    assert FirstLandings().look(sampled(Missing("lake: no route")), BOTH, NOON) == ()


def test_what_has_not_moved_for_too_long_is_stuck() -> None:
    moves = look(snapshot_checkpoint(5), snapshot_checkpoint(6), pause=PATIENCE)
    stuck = look(
        snapshot_checkpoint(5), snapshot_checkpoint(5), pause=PATIENCE + timedelta(seconds=1)
    )

    assert moves.stuck is None
    assert stuck.stuck == NOON
    assert set(landings_by_table([stuck, moves]).values()) == {stuck}


def test_the_log_says_how_far_it_is_now_and_then_and_that_it_is_done() -> None:
    landings = FirstLandings()
    with capture_logs() as lines:
        for second in range(60):
            landings.look(
                sampled(snapshot_checkpoint(second)), BOTH, NOON + timedelta(seconds=second)
            )
        done = snapshot_checkpoint(0, based=("shop.orders", "shop.users"))
        landings.look(sampled(done, snapshot=False, mirrors=BOTH), BOTH, NOON)

    assert [one["event"] for one in lines] == ["first landing"] * 2 + ["first landing is done"]
    assert lines[1]["description"].startswith("30 rows of 2 tables landed")


BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = BEGUN + timedelta(seconds=50)


def backfill_request(*states: BackfillState, wish: BackfillSpec | None = None) -> StoredBackfill:
    return StoredBackfill(
        "x", "d.t", "why", "who", BEGUN, states=states, wish=wish or BackfillSpec()
    )


def state(shard: str, rows: int, done: int | None = None, brake: str = "") -> BackfillState:
    return BackfillState("x", "d.t", f"s/{shard}", rows, done, brake=brake)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        pytest.param(backfill_request(), "0 rows", id="nothing yet"),
        pytest.param(
            backfill_request(state("a", 500)), "500 rows of about 2000, 10 rows/s, about 150 s left"
        ),
        pytest.param(
            backfill_request(state("a", 400, 7, "rate"), state("b", 100, None, "lag")),
            "500 rows of about 5000, 10 rows/s, about 450 s left;"
            " the replica that is read is behind",
            id="a shard that has ended is slowed by nothing",
        ),
        pytest.param(backfill_request(state("c", 500)), "500 rows, 10 rows/s", id="no estimate"),
        pytest.param(
            backfill_request(state("a", 3000)),
            "3000 rows of about 2000, 60 rows/s",
            id="more than estimated",
        ),
        pytest.param(
            backfill_request(state("a", 400), state("c", 100)),
            "500 rows, 10 rows/s",
            id="one shard without an estimate",
        ),
        pytest.param(
            backfill_request(
                state("a", 500, brake="rate"),
                wish=BackfillSpec(Origin.REPLAY, RowSelection(where="id > 5")),
            ),
            "500 rows, 10 rows/s; held to its rate",
            id="how many meet a condition nobody knows",
        ),
    ],
)
def test_it_tells_what_is_known(request_: StoredBackfill, told: str) -> None:
    assert backfill_progress(request_, lambda _: {"a": 2000, "b": 3000}, NOW).description == told


def test_a_clock_that_went_back_makes_no_rate() -> None:
    found = backfill_progress(
        backfill_request(state("a", 5)), lambda _: {"a": 9}, BEGUN - timedelta(seconds=1)
    )

    assert (found.rate, found.left) == (0.0, None)
