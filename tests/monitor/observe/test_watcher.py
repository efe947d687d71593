"""Tests which mirrors are read, when a mirror is read again, and what of earlier reads is kept."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

import pytest

from monitor.observe import sampler
from monitor.observe.foreign_writes import ForeignWrites
from monitor.observe.heartbeats import FenceBook
from monitor.observe.sampler import NOT_ASKED, Sampler, Sampling, Watcher, sync_positions
from monitor.observe.tables import TableRegistry
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.collectors.mirrormaker import Mirrored
from pipeline.copies.copy import CopyPosition
from pipeline.errors import HeldError, UnreachableError
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import Acknowledged, Fence, Head, Missing, Shard, Table
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.tables.lake import Lake as RealLake
from tests.monitor.rig import NOON, SOURCE, FakeCollector

SECOND = timedelta(seconds=1)
NAMES = ("db.a", "db.b", "db.c", "db.d")
BEATS = tuple(
    Fence("shop", n, NOON + n * SECOND, Head("A", binlog_position(1, n * 100))) for n in range(1, 6)
)


def landed_checkpoint(batch: int = 4, through: int = 3, **tables: int) -> Checkpoint:
    """All through a heartbeat has landed; *tables* changed last in these batches."""
    head = binlog_position(1, through * 100)
    return Checkpoint(
        "main",
        batch,
        acknowledged={"shop": Acknowledged(head)},
        heartbeats={"shop": through},
        epochs={"shop": Epoch(1, "A", head)},
        tables={f"db.{name}": last for name, last in tables.items()},
    )


@dataclass(eq=False)
class Lake:
    """A change log, and a mirror of each table; notes what is asked."""

    newest: Checkpoint | None = field(default_factory=landed_checkpoint)
    applied_: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 4))
    asked: list[str] = field(default_factory=list)
    marks: int = 0

    def checkpoint(self) -> Checkpoint | None:
        self.marks += 1
        return self.newest

    def applied(self, table: str) -> MirrorPosition | None:
        self.asked.append(table)
        return MirrorPosition(0, self.applied_[table], table)


@dataclass(eq=False)
class Tables:
    """The tables that there are; notes by which marks."""

    names: tuple[str, ...] = NAMES
    marks: list[int] = field(default_factory=list)

    def tables(self) -> tuple[Table, ...]:
        return tuple(Table(name, (Shard("shop", name),)) for name in self.names)

    def table(self, name: str) -> Table | None:
        return next((one for one in self.tables() if one.name == name), None)

    def update(self, newest: Checkpoint) -> None:
        self.marks.append(newest.batch)


@dataclass(eq=False)
class Fences:
    """Heartbeats that were written, and those whose times proved wrong."""

    wrong: Mapping[str, range] = field(default_factory=dict)

    def of(self, source: str) -> tuple[Fence, ...]:
        return BEATS if source == "shop" else ()

    def fallen(self) -> Mapping[str, range]:
        return self.wrong


@dataclass(eq=False)
class Untouched:
    """Nobody else writes to any mirror."""

    def found(self) -> Mapping[str, object]:
        return {}

    def inspect(self, table: str, mirror: MirrorPosition, at: datetime) -> MirrorPosition:
        """Nothing is found."""
        return mirror


@dataclass(eq=False)
class LandingHarness:
    """A watcher over all of them, and a clock that obeys."""

    now: datetime = NOON
    lake: Lake = field(default_factory=Lake)
    roster: Tables = field(default_factory=Tables)
    fences: Fences = field(default_factory=Fences)

    def __post_init__(self) -> None:
        at = Acknowledged(binlog_position(1, 300))
        self.sampler = Sampler(
            collectors={"shop": cast("Collector", FakeCollector(at))},
            lake=cast("RealLake", self.lake),
            fences=cast(FenceBook, self.fences),
            clock=lambda: self.now,
            budget=30 * SECOND,
            heartbeat_budget=10 * SECOND,
            foreign=cast(ForeignWrites, Untouched()),
        )
        self.watcher = Watcher(self.sampler, cast(TableRegistry, self.roster), lambda: self.now)

    def look(self, *tables: str, after: float = 1, patience: float = 0) -> list[str]:
        """Which mirrors a look so much later asks for."""
        self.now += after * SECOND
        self.lake.asked.clear()
        self.newest = self.watcher.look(patience * SECOND, tables or None)
        return sorted(self.lake.asked)


@pytest.fixture
def harness() -> LandingHarness:
    made = LandingHarness()
    made.look()
    return made


def test_f113_a_look_is_shared_by_all_who_can_bear_its_age(harness: LandingHarness) -> None:
    marks = list[int]()
    for after, patience in ((0, 5), (5, 5), (1, 5), (1, 0), (0, 0), (-1, 5)):
        harness.look(after=after, patience=patience)
        marks.append(harness.lake.marks)

    assert marks == [1, 1, 2, 3, 3, 4]  # the last one lies in the future of a clock that was set
    assert harness.newest.at == harness.now


def test_f113_the_first_look_sees_all_mirrors_and_a_shared_one_those_that_are_new() -> None:
    harness = LandingHarness()

    assert harness.look() == sorted(NAMES)
    assert harness.look(after=0, patience=5) == []
    number = harness.newest.number
    harness.roster.names += ("db.e",)
    harness.lake.applied_["db.e"] = 4
    assert harness.look(after=0, patience=5) == ["db.e"]
    assert harness.newest.number > number
    number = harness.newest.number
    assert harness.look(after=0, patience=5) == []
    assert harness.newest.number == number


def test_f113_a_job_has_its_own_mirrors_looked_at_where_they_are_not_new(
    harness: LandingHarness,
) -> None:
    assert harness.look("db.b", "db.nothing", after=2, patience=2) == []
    assert harness.look("db.b", "db.nothing", after=1, patience=2) == ["db.b"]
    assert harness.look("db.b", "db.c", after=2, patience=2) == ["db.c"]
    assert harness.look("db.b", after=-9, patience=20) == ["db.b"]  # it was seen in the future
    assert harness.look(after=0, patience=20) == []


def test_f113_a_round_looks_at_mirrors_that_lag_and_in_turn_at_those_at_rest(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 1)
    harness.lake.newest = landed_checkpoint(5, a=5, b=4)
    assert harness.look() == ["db.a", "db.b", "db.c"]  # one lags, and of those at rest two are next
    assert harness.look() == ["db.a", "db.b", "db.d"]  # the one that waited, and by its name
    assert harness.look() == ["db.a", "db.b", "db.c"]
    harness.lake.applied_["db.a"] = 5
    assert harness.look() == ["db.a", "db.b", "db.d"]
    assert harness.look() == ["db.a", "db.c"]


def test_f113_mirrors_at_rest_are_all_looked_at_once_they_are_no_longer_fresh(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 1)
    assert harness.look(after=9.9) == ["db.a", "db.b"]
    assert harness.look(after=0.1) == ["db.c", "db.d"]
    assert harness.look(after=10) == sorted(NAMES)
    assert harness.look(after=-1) == sorted(NAMES)  # all were seen in the future
    assert harness.look(after=1, patience=0) == ["db.a", "db.b"]


def test_f113_a_mirror_that_was_seen_just_now_is_fresh(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "FEWEST", 1)
    assert harness.look() == ["db.a", "db.b"]
    assert harness.look("db.c", patience=1) == ["db.c"]

    assert harness.look(after=0) == ["db.a", "db.d"]


def test_f113_a_few_mirrors_at_rest_are_all_looked_at_in_each_round(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert harness.look() == sorted(NAMES)
    monkeypatch.setattr(sampler, "FEWEST", 3)
    assert harness.look() == ["db.a", "db.b", "db.c"]


def test_f113_before_anything_has_landed_each_round_looks_at_those_at_rest(
    harness: LandingHarness,
) -> None:
    harness.lake.newest = None

    assert harness.look() == sorted(NAMES)
    assert harness.newest.checkpoint == Missing("nothing has landed yet")
    assert [one.batch for one in harness.newest.steps] == [4]


def test_f113_a_table_that_is_gone_leaves_no_sample(harness: LandingHarness) -> None:
    harness.roster.names = NAMES[1:]

    harness.look()

    assert sorted(harness.newest.mirrors) == list(NAMES[1:])


def test_f113_each_look_has_a_higher_number(harness: LandingHarness) -> None:
    numbers = [harness.newest.number]
    for after, patience in ((1, 0), (1, 0), (0, 5)):
        harness.look("db.a", after=after, patience=patience)
        numbers.append(harness.newest.number)

    assert numbers == sorted({*numbers[:3]}) + numbers[2:3]


def taken(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch, found: Mapping[str, object]
) -> Sampling:
    """The look after *found* was told of mirrors."""
    monkeypatch.setattr(harness.sampler, "mirrors", lambda _: found)
    return harness.watcher.look(timedelta(), NAMES)


def test_f113_what_is_known_of_a_mirror_counts_unless_something_newer_is_told(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = harness.newest.mirrors
    harness.now += SECOND
    older, newer, later = (
        Sample(MirrorPosition(9, 9, "x"), NOON + n * SECOND, SECOND) for n in (0, 1, 2)
    )
    silent = Missing("it hangs")
    found = {
        "db.a": older,
        "db.b": newer,
        "db.c": NOT_ASKED,
        "db.d": silent,
        "db.new": NOT_ASKED,
        "db.other": older,
    }
    look = taken(harness, monkeypatch, found)

    assert look.mirrors == {
        "db.a": known["db.a"],
        "db.b": newer,
        "db.c": known["db.c"],
        "db.d": silent,
    } | {"db.new": NOT_ASKED, "db.other": older}

    taken(harness, monkeypatch, {"db.a": later, "db.d": older})
    harness.now = NOON + SECOND  # what was told is of the future
    again = taken(harness, monkeypatch, {"db.a": newer, "db.b": older})
    assert (again.mirrors["db.a"], again.mirrors["db.b"]) == (newer, newer)
    assert again.mirrors["db.d"] == older


def test_f113_only_a_mirror_that_holds_more_than_the_mark_has_it_read_again(
    harness: LandingHarness,
) -> None:
    before = harness.lake.marks
    harness.look()
    as_far = harness.lake.marks - before
    harness.lake.applied_["db.b"] = 5
    harness.look()

    assert (as_far, harness.lake.marks - before) == (1, 3)


def test_f113_a_silent_change_log_is_not_asked_again_for_a_mirror_that_is_ahead(
    harness: LandingHarness,
) -> None:
    harness.lake.newest = None
    before = harness.lake.marks

    harness.look()

    assert harness.lake.marks == before + 1


def test_f113_looks_remember_which_heartbeats_each_batch_has(harness: LandingHarness) -> None:
    harness.lake.newest = landed_checkpoint(6, 4)
    harness.look()
    harness.lake.newest = landed_checkpoint(7, 5)
    harness.look()
    fences = [one.passed["shop"].number for one in harness.newest.steps]
    harness.fences.wrong = {"shop": range(4, 5)}
    harness.look()

    assert fences == [3, 4, 5]
    told = [one.passed.get("shop") for one in harness.newest.steps]
    assert [one and one.number for one in told] == [3, None, 5]
    assert harness.roster.marks == [4, 6, 7, 7]


def test_f113_batches_of_a_log_that_was_set_back_are_forgotten(harness: LandingHarness) -> None:
    harness.lake.newest = replace(landed_checkpoint(9), incarnations={"0": 7})
    harness.look()
    harness.lake.newest = replace(landed_checkpoint(9, 4), incarnations={"0": 8})
    harness.look()

    assert [one.batch for one in harness.newest.steps] == [9]
    harness.lake.newest = replace(landed_checkpoint(10, 5), incarnations={"0": 8})
    harness.look()
    assert [one.batch for one in harness.newest.steps] == [9, 10]


def test_f113_mirrors_are_looked_at_one_at_a_time(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, another = harness.lake.applied, threading.Event()
    at_once = list[bool]()

    def slow(table: str) -> MirrorPosition | None:
        if harness.lake.asked:
            another.set()
            return answer(table)
        found = answer(table)
        at_once.append(another.wait(0.1))
        return found

    monkeypatch.setattr(harness.lake, "applied", slow)

    assert harness.look() == sorted(NAMES)
    assert at_once == [False]


def test_f113_a_damaged_mirror_is_missing_by_its_own_words(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: str) -> MirrorPosition:
        raise HeldError("log_damaged", "its log has a hole")

    monkeypatch.setattr(harness.lake, "applied", damaged)
    harness.look()

    said = "log_damaged: its log has a hole"
    assert harness.newest.mirrors == dict.fromkeys(NAMES, Missing(said))
    assert harness.newest.unreadable == dict.fromkeys(NAMES, said)


def test_f113_what_copies_say_is_part_of_a_look(harness: LandingHarness) -> None:
    def silent() -> Mapping[str, CopyPosition]:
        raise UnreachableError("redis: refused")

    harness.sampler.copies = {"one": dict, "two": silent}
    harness.look()

    assert harness.newest.copies == {
        "one": Sample({}, harness.now, 30 * SECOND),
        "two": Missing("redis: refused"),
    }


@dataclass(eq=False)
class Stateless(FakeCollector):
    """Tells what it has handed over, and not how it fares."""

    def __init__(self) -> None:
        super().__init__(Acknowledged(binlog_position(1, 300)))

    def state(self) -> CollectorState:
        raise UnreachableError("no status")


def test_f113_a_collector_may_tell_what_has_come_and_not_how_it_fares(
    harness: LandingHarness,
) -> None:
    harness.sampler.collectors = {"shop": cast("Collector", Stateless())}

    harness.look()

    told = harness.newest.sources["shop"].acknowledged
    assert told == Sample(Acknowledged(binlog_position(1, 300)), harness.now, 30 * SECOND)
    assert harness.newest.troubles == {"shop": CollectorState("unreachable", "no status")}


@pytest.mark.parametrize(
    ("arrived", "told"),
    [
        pytest.param(Acknowledged(binlog_position(1, 350)), 3, id="the newest below"),
        pytest.param(
            Acknowledged(binlog_position(1, 350), snapshot=True),
            Missing("the collector is reading its initial snapshot"),
            id="a snapshot proves nothing",
        ),
        pytest.param(
            Acknowledged(binlog_position(1, 50)),
            Missing("no heartbeat has come through the mirror yet"),
            id="none",
        ),
        pytest.param(Missing("it does not run"), Missing("it does not run"), id="silent"),
    ],
)
def test_f113_heartbeats_that_came_through_a_mirror_of_topics(
    monkeypatch: pytest.MonkeyPatch, arrived: Acknowledged | Missing, told: int | Missing
) -> None:
    class Carried:
        def acknowledged(self) -> Acknowledged | Missing:
            return arrived

    def behind(source: SourceSettings, *_: object) -> Mirrored | None:
        return cast(Mirrored, Carried()) if source.name == "shop" else None

    monkeypatch.setattr(sampler, "behind_mirror", behind)
    other = replace(SOURCE, name="other")
    collector = cast(Collector, FakeCollector(Acknowledged(binlog_position(1, 1))))

    asks = sync_positions(
        [SOURCE, other], {"shop": collector, "other": collector}, cast(FenceBook, Fences())
    )

    assert {name: ask() for name, ask in asks.items()} == {"shop": told}
