"""Heartbeats go where the collector reads, and their numbers never go back."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NoReturn, cast

import pytest
from structlog.testing import capture_logs

from monitor.observe.heartbeats import (
    FOLLOW,
    FenceBook,
    HeartbeatReader,
    HeartbeatWriter,
    thin_fences,
)
from monitor.store.store import ServiceStore
from pipeline.clocks import ClockStep, first_fence
from pipeline.errors import UnreachableError
from pipeline.model import Fence, Head
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Heartbeat, Source
from tests.builders.values import fence
from tests.monitor.store.kit import ReadOnly

START = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
SETTINGS = SourceSettings(
    *("shop", "a", 3306, "u", CollectorSettings("http://c", "shop"), "shop"), follow_hosts=("b",)
)


@dataclass
class FakeServer:
    """A database that counts up from what it holds."""

    settings: SourceSettings
    number: int = -1
    down: bool = False
    closed: bool = False
    fast: timedelta = timedelta()

    @property
    def name(self) -> str:
        return self.settings.name

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        if self.down:
            raise UnreachableError("down: connection refused")
        self.number = max(self.number + 1, at_least)
        head = Head(self.settings.host, binlog_position(1, self.number))
        return Heartbeat(self.number, head, at + self.fast)

    def prepare_heartbeat(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self.closed = True


@dataclass
class Way:
    """Servers by host, and a collector that is connected to one of them."""

    host: str = "a"
    silent: bool = False
    now: datetime = START
    servers: dict[str, FakeServer] = field(default_factory=dict)
    skews: list[timedelta] = field(default_factory=list)

    def address(self) -> tuple[str, int]:
        if self.silent:
            raise UnreachableError("connector: connection refused")
        return self.host, 3306

    def connect(self, settings: SourceSettings) -> Source:
        return cast(Source, self.servers.setdefault(settings.host, FakeServer(settings)))

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def compared(self, skew: timedelta, at: datetime) -> None:
        """Note what a beat has found."""
        self.skews.append(skew)


def _pulse(store: ServiceStore, way: Way, landed: int = -1) -> HeartbeatWriter:
    fences = FenceBook(store.fences)
    fences.load(["shop"], START - timedelta(days=1))
    return HeartbeatWriter(
        SETTINGS, way.address, way.connect, fences, lambda: landed, way.clock, way.compared
    )


def test_each_beat_is_a_fence_that_survives_a_restart(store: ServiceStore) -> None:
    way = Way()
    first = _pulse(store, way)
    for _ in range(3):
        first.write_heartbeat()

    later = _pulse(store, way)
    later.write_heartbeat()

    numbers = [fence.number for fence in later.fences.of("shop")]
    assert numbers == [0, 1, 2, 3]


def test_numbers_go_on_above_what_was_ever_landed(store: ServiceStore) -> None:
    heartbeat = _pulse(store, Way(), landed=41)

    heartbeat.write_heartbeat()

    assert heartbeat.fences.of("shop")[-1].number == 42


def test_the_pulse_follows_the_collector_to_another_server(store: ServiceStore) -> None:
    way = Way()
    heartbeat = _pulse(store, way)
    heartbeat.write_heartbeat()
    way.host = "b"
    way.now += FOLLOW

    heartbeat.write_heartbeat()

    fences = heartbeat.fences.of("shop")
    assert [(one.number, one.head.identity) for one in fences] == [(0, "a"), (1, "b")]
    assert heartbeat.followed().host == "b"
    assert way.servers["a"].closed


def test_f160_no_heartbeat_goes_to_a_server_that_the_config_does_not_name(
    store: ServiceStore,
) -> None:
    way = Way()
    heartbeat = _pulse(store, way)
    heartbeat.write_heartbeat()
    way.host = "rogue"
    way.now += FOLLOW

    for _ in range(2):
        with pytest.raises(UnreachableError, match="reads rogue:3306"):
            heartbeat.write_heartbeat()

    assert "add it to follow_hosts of shop" in heartbeat.problem
    assert heartbeat.followed().host == "a"
    assert set(way.servers) == {"a"}


def test_where_heartbeats_go_is_logged_once_and_only_after_it_works(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> NoReturn:
        raise UnreachableError("down: connection refused")

    heartbeat = _pulse(store, Way())
    with capture_logs() as logs:
        with monkeypatch.context() as down:
            down.setattr(FakeServer, "prepare_heartbeat", refuse)
            for _ in range(3):
                with pytest.raises(UnreachableError):
                    heartbeat.write_heartbeat()
        before = list(logs)
        heartbeat.write_heartbeat()
        heartbeat.write_heartbeat()

    assert before == []
    assert [one["event"] for one in logs] == ["heartbeats go to"]


def test_a_silent_collector_leaves_the_pulse_where_it_is(store: ServiceStore) -> None:
    way = Way()
    heartbeat = _pulse(store, way)
    heartbeat.write_heartbeat()
    way.silent = True
    way.now += FOLLOW

    heartbeat.write_heartbeat()

    assert [fence.head.identity for fence in heartbeat.fences.of("shop")] == ["a", "a"]


def test_a_beat_that_fails_says_why_and_the_next_one_clears_it(store: ServiceStore) -> None:
    way = Way()
    heartbeat = _pulse(store, way)
    heartbeat.write_heartbeat()
    way.servers["a"].down = True
    with pytest.raises(UnreachableError):
        heartbeat.write_heartbeat()
    ailing = heartbeat.problem
    way.servers["a"].down = False

    heartbeat.write_heartbeat()

    assert ailing == "down: connection refused"
    assert heartbeat.problem == ""
    assert [fence.number for fence in heartbeat.fences.of("shop")] == [0, 1]


def test_a_store_that_keeps_no_fence_is_no_problem_of_the_source(store: ServiceStore) -> None:
    way = Way()
    heartbeat = _pulse(store, way)
    heartbeat.write_heartbeat()
    way.servers["a"].down = True
    with pytest.raises(UnreachableError, match="refused"):
        heartbeat.write_heartbeat()
    way.servers["a"].down = False
    disk = ReadOnly(store.database)
    with pytest.raises(UnreachableError, match="readonly"):
        heartbeat.write_heartbeat()
    ailing = heartbeat.problem
    disk.free()

    heartbeat.write_heartbeat()

    assert ailing == heartbeat.problem == ""
    assert [fence.number for fence in heartbeat.fences.of("shop")] == [0, 2]


def test_f22_an_old_cut_is_answered_by_a_heartbeat_soon_after_it() -> None:
    """Heartbeats once a second for a day, thinned as they come."""
    kept: list[Fence] = []
    for number in range(86_400):
        at = START + timedelta(seconds=number)
        kept.append(Fence("shop", number, at, Head("a", binlog_position(1, number))))
        if len(kept) > 4_096:
            kept = list(thin_fences(kept))
    ages = [timedelta(hours=hours) for hours in (1, 4, 9, 23)]

    found = [first_fence(kept, kept[-1].at - age) for age in ages]

    late = [one.at - (kept[-1].at - age) for one, age in zip(found, ages, strict=True) if one]
    allowed = [age / 100 + timedelta(seconds=1) for age in ages]
    assert all(one <= most for one, most in zip(late, allowed, strict=True))
    assert (kept[0].number, len(kept) <= 4_096) == (0, True)


def test_heartbeats_fall_though_the_life_that_saw_the_clocks_go_back_ended_at_once(
    store: ServiceStore,
) -> None:
    """It wrote down that they had, and died; when the next one began the clocks were past them."""
    told: list[ClockStep] = []

    def die(step: ClockStep) -> None:
        told.append(step)
        raise SystemExit

    book = FenceBook(store.fences, die)
    for number, minutes in ((1, 0), (2, 1), (3, 61), (4, 62)):
        book.add(fence(number, START + timedelta(minutes=minutes), pos=number))
    with pytest.raises(SystemExit):
        book.add(fence(5, START + timedelta(minutes=3), pos=5))
    later = FenceBook(store.fences, told.append)

    later.load(["shop"], START - timedelta(days=1), lambda _: told[0])
    later.add(fence(6, START + timedelta(minutes=120), pos=6))

    assert [fence.number for fence in later.of("shop")] == [1, 2, 6]
    assert told == [told[0]] * 2
    again = FenceBook(store.fences, told.append)
    again.load(["shop"], START - timedelta(days=1), lambda _: told[0])
    assert len(told) == 2, "once they have fallen nobody is told again"


def test_heartbeats_fall_though_the_store_is_full_until_the_clocks_are_past_them(
    store: ServiceStore,
) -> None:
    told: list[ClockStep] = []

    def remember(step: ClockStep) -> None:
        with store.write() as connection:
            told.append(step)
            connection.exec_driver_sql("DELETE FROM memory")

    book = FenceBook(store.fences, remember)
    for number, minutes in ((1, 0), (2, 1), (3, 61), (4, 62)):
        book.add(fence(number, START + timedelta(minutes=minutes), pos=number))
    wrong = START + timedelta(minutes=61)
    assert (asked := book.first("shop", wrong)) is not None
    assert asked.number == 3
    disk = ReadOnly(store.database)
    for number, minutes in ((5, 3), (6, 4), (7, 63)):
        with pytest.raises(UnreachableError):
            book.add(fence(number, START + timedelta(minutes=minutes), pos=number))
        assert [one.number for one in book.of("shop")] == [1, 2]
        assert book.first("shop", wrong) is None
    disk.free()

    book.add(fence(8, START + timedelta(minutes=64), pos=8))

    assert [one.number for one in book.of("shop")] == [1, 2, 8]
    assert [one.number for one in store.fences.since("shop", START)] == [1, 2, 8]
    assert [(one.first, one.number) for one in told] == [(3, 5)]
    assert (found := book.first("shop", wrong)) is not None
    assert found.number == 8


def test_a_reader_knows_a_fence_once_two_heartbeats_have_come_since_an_instant(
    store: ServiceStore,
) -> None:
    """One may have been begun before: its place in the log is known, its time is not."""
    server = _Counting()
    fences, times = FenceBook(store.fences), iter(range(100))
    reader = HeartbeatReader(
        cast(Source, server), fences, lambda: START + timedelta(seconds=next(times))
    )
    for number in (5, 5, 6, 7, 9):
        server.number = number
        reader.read()

    found = fences.of("shop")

    assert [(one.number, (one.at - START).total_seconds()) for one in found] == [(7, 1), (9, 3)]
    assert found[-1].head == Head("a", binlog_position(1, 9))


def test_a_reader_forgets_higher_numbers_after_the_row_was_reset(store: ServiceStore) -> None:
    server, fences = _Counting(), FenceBook(store.fences)
    times = iter(range(100))
    reader = HeartbeatReader(
        cast(Source, server), fences, lambda: START + timedelta(seconds=next(times))
    )
    for number in (9, 2, 3, 4):
        server.number = number
        reader.read()

    assert [(one.number, one.at) for one in fences.of("shop")] == [
        (4, START + timedelta(seconds=1))
    ]


@dataclass
class _Counting:
    """A source whose heartbeats somebody else writes."""

    name: str = "shop"
    number: int = -1

    def newest_heartbeat(self) -> int:
        return self.number

    def head(self) -> Head:
        return Head("a", binlog_position(1, self.number))
