"""Heartbeat numbers only grow, and the time stands before the statement."""

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, SparedError, TooManyRowsError, UnreachableError
from pipeline.model import Head, Position, RetainedLog
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.session import Row, create_heartbeat_table
from pipeline.sources.source import (
    Heartbeat,
    HeartbeatTable,
    Limits,
    Source,
    explain_replaced_log,
    name_heartbeat_lock,
    read_limits,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class FakeSource:
    """A row that obeys the statement; ``lost`` drops the answer after the commit."""

    row: int | None = None
    pos: int = 0
    lost: bool = False
    told: datetime = NOON
    name: str = "shop"

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        assert at == NOON
        self.row = at_least if self.row is None else max(self.row + 1, at_least)
        self.pos += 100
        if self.lost:
            raise UnreachableError("gone after the commit")
        return Heartbeat(self.row, Head("server", binlog_position(1, self.pos)), self.told)


def heart_of(source: FakeSource, known: int = -1) -> HeartbeatTable:
    return HeartbeatTable(cast(Source, source), known)


def test_a_fence_carries_the_callers_time_and_a_head_from_after_the_commit() -> None:
    fence = heart_of(FakeSource()).write_heartbeat(lambda: NOON)

    assert (fence.source, fence.number, fence.at) == ("shop", 0, NOON)
    assert fence.head == Head("server", binlog_position(1, 100))


@pytest.mark.parametrize(
    ("told", "answered", "at", "behind"),
    [
        pytest.param(0.5, 1, 0, 0, id="both clocks agree"),
        pytest.param(-720, 1, -720, 720, id="ours is fast: its own time counts"),
        pytest.param(721, 1, 0, -720, id="its own is fast: our time counts"),
        pytest.param(4, 5, 0, 0, id="a statement that waited for a lock is no skew"),
        pytest.param(-720, -719, -720, 720, id="ours was set back meanwhile"),
    ],
)
def test_f01_a_fence_bears_the_earlier_of_both_clocks_times(
    told: float, answered: float, at: float, behind: float
) -> None:
    def after(seconds: float) -> datetime:
        return NOON + timedelta(seconds=seconds)

    heart, readings = heart_of(FakeSource(told=after(told))), iter((NOON, after(answered)))

    fence = heart.write_heartbeat(lambda: next(readings))

    assert (fence.at, heart.reading and heart.reading.skew) == (
        after(at),
        timedelta(seconds=behind),
    )


@given(st.lists(st.sampled_from(["beat", "lost", "restart", "reset"]), max_size=30))
def test_numbers_grow_by_one_unless_the_row_was_reset(events: list[str]) -> None:
    source, numbers, told = FakeSource(), [], [-1]
    heart, was_reset = heart_of(source), False
    for event in events:
        if event == "restart":
            heart = heart_of(source, known=heart.known)
        elif event == "reset" and source.row is not None:
            source.row, was_reset = 0, True
        elif event == "lost":
            source.lost = True
            with pytest.raises(UnreachableError):
                heart.write_heartbeat(lambda: NOON)
            source.lost = False
            numbers.append(source.row)
        else:
            told.append(heart.write_heartbeat(lambda: NOON).number)
            numbers.append(told[-1])

    steps = {after - before for before, after in pairwise(n for n in numbers if n is not None)}
    assert was_reset or steps <= {1}
    assert all(before < after for before, after in pairwise(told))


def test_a_reset_row_goes_on_above_the_highest_known_number() -> None:
    source = FakeSource(row=3)

    assert heart_of(source, known=41).write_heartbeat(lambda: NOON).number == 42


def test_a_table_that_may_not_be_made_is_asked_for_by_statement() -> None:
    def ask(statement: str, *_: object) -> list[Row]:
        if statement.startswith("CREATE"):
            raise ConfigError("denied")
        return []

    with pytest.raises(
        ConfigError, match=r"run as an administrator: CREATE DATABASE .*; CREATE TABLE"
    ):
        create_heartbeat_table(ask, "sluice.heartbeat", "shop")


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("source:shop: down: Lock wait timeout exceeded; try restarting transaction (1205)", True),
        ("source:shop: slow: canceling statement due to lock timeout (55P03)", True),
        ("source:shop: slow: canceling statement due to statement timeout (57014)", True),
        ("source:shop: down: connection refused", False),
    ],
)
def test_f198_a_lock_names_the_heartbeat_table(said: str, named: bool) -> None:
    with pytest.raises(UnreachableError) as told, name_heartbeat_lock("sluice.heartbeat"):
        raise UnreachableError(said)

    assert str(told.value).startswith(said)
    assert ("heartbeat table sluice.heartbeat is locked" in str(told.value)) is named


LIMITS = Limits(running=3, rows=100, call=timedelta(0))


def test_what_is_within_the_limits_passes() -> None:
    LIMITS.refuse_load(3, "source:shop")
    LIMITS.refuse_rows(100, "d.t")
    Limits().check_deadline(Limits().deadline(), "source:shop")


def test_what_is_beyond_them_is_refused_and_says_by_which() -> None:
    with pytest.raises(UnreachableError, match=r"source:shop: loaded: 4 .*limits\.running is 3"):
        LIMITS.refuse_load(4, "source:shop")
    with pytest.raises(TooManyRowsError, match=r"about 101 rows of d\.t .* limits.rows is 100"):
        LIMITS.refuse_rows(101, "d.t")
    with pytest.raises(UnreachableError, match="source:shop: slow"):
        LIMITS.check_deadline(LIMITS.deadline() - 1, "source:shop")


def test_the_server_ends_a_statement_before_we_stop_waiting() -> None:
    assert Limits().answer > Limits().statement


@pytest.mark.parametrize(("behind", "refused"), [(30, False), (31, True), (-5, False)])
def test_a_replica_that_is_far_behind_is_spared(behind: int, refused: bool) -> None:
    limits = Limits(lag=timedelta(seconds=30))
    if not refused:
        limits.refuse_lag(timedelta(seconds=behind), "source:shop")
        return
    with pytest.raises(
        SparedError, match=r"source:shop: .* 31 s behind, limits\.lag is 30 s"
    ) as said:
        limits.refuse_lag(timedelta(seconds=behind), "source:shop")
    assert said.value.brake == "lag"


def test_a_brake_travels_between_processes() -> None:
    with pytest.raises(SparedError) as said:
        LIMITS.refuse_load(4, "source:shop")

    again = pickle.loads(pickle.dumps(said.value))  # noqa: S301
    assert (again.brake, str(again)) == ("running", str(said.value))


def test_limits_are_those_of_the_sources_options() -> None:
    told = {"limits": {"running": 200, "rate": 5_000, "lag": "PT10S"}, "read_from": "b:3306"}

    assert read_limits(told) == Limits(running=200, rate=5_000, lag=timedelta(seconds=10))
    assert read_limits({}) == Limits()
    assert read_limits({"limits": {"lag": "10s"}}) == Limits(lag=timedelta(seconds=10))


HERE = Position("postgres", "0/1")


def test_another_kind_keeps_another_log() -> None:
    known, now = RetainedLog("mysql", "", HERE), RetainedLog("postgres", "", HERE)

    told = explain_replaced_log(known, now)
    assert told == "the source was of kind mysql and is of kind postgres"


def test_a_kind_without_such_rules_is_refused_by_name() -> None:
    keeper = RetainedLog("mysql", "", HERE)

    with pytest.raises(ConfigError, match=r"no retained_log 'mysql' .* known: postgres"):
        explain_replaced_log(keeper, keeper)
