"""Rounds of a copy's job: what moved is brought, what fails is said, and stops no other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monitor.cli.options import SHOWN, format_copies, summarize_copies
from monitor.config.plans import CopyPlan
from monitor.copying import CopyWork
from monitor.observe.sampler import Sampling
from pipeline.copies.copy import CopiedVersion, CopyPosition
from pipeline.copies.sync import CopySync
from pipeline.errors import HeldError, LostRaceError, SluiceError, UnreachableError
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import Shard, Table
from tests.toy.copy import FileCopy

AT = datetime(2026, 1, 2, tzinfo=UTC)


def copied_table(name: str) -> Table:
    return Table(name, (Shard("s", name),), ("id",))


@dataclass(eq=False)
class FakeCopying:
    """Brings each table to where its mirror is, or raises what is told of it."""

    mirrors: dict[str, MirrorPosition]
    kept: dict[str, CopyPosition] = field(default_factory=dict)
    raising: dict[str, SluiceError] = field(default_factory=dict)
    down: SluiceError | None = None
    asked: list[str] = field(default_factory=list)
    stopping: Any = None
    done: list[CopiedVersion] = field(default_factory=list)

    @property
    def target(self) -> "FakeCopying":
        return self

    def positions(self) -> Mapping[str, CopyPosition]:
        if self.down is not None:
            raise self.down
        return dict(self.kept)

    def take_done(self) -> tuple[CopiedVersion, ...]:
        done, self.done = tuple(self.done), []
        return done

    def bring(self, one: Table, was: CopyPosition | None) -> CopyPosition:
        self.asked.append(one.name)
        self.done.append(CopiedVersion(self.mirrors[one.name].version))
        if one.name in self.raising:
            raise self.raising[one.name]
        there = self.mirrors[one.name]
        self.kept[one.name] = CopyPosition(there.mirror, there.version, there.batch)
        return self.kept[one.name]


@dataclass(eq=False)
class Rig:
    """Two tables that are copied, and one that is not."""

    now: datetime = AT
    copying: FakeCopying = field(
        default_factory=lambda: FakeCopying(
            {name: MirrorPosition(3, 2, "m") for name in ("a.x", "a.y", "b.z")}
        )
    )

    def __post_init__(self) -> None:
        made: Any = self.copying
        copying: CopySync = made
        self.work = CopyWork(
            CopyPlan("cache", ("a.*",), FileCopy("copy.json")),
            copying,
            self.look,
            lambda: [copied_table(name) for name in self.copying.mirrors],
            lambda: self.now,
            patience=timedelta(minutes=1),
            ended=lambda: False,
        )

    def look(self) -> Sampling:
        budget = timedelta(minutes=1)
        seen = {name: Sample(at, self.now, budget) for name, at in self.copying.mirrors.items()}
        return replace(Sampling.nothing(), mirrors=seen)

    def run(self) -> list[str]:
        """Tables that a round asked to be brought; it raises nothing."""
        self.now += timedelta(minutes=5)
        self.copying.asked.clear()
        self.work.run()
        return list(self.copying.asked)


def test_only_tables_of_the_copy_that_have_moved_are_brought() -> None:
    rig = Rig()
    assert rig.run() == ["a.x", "a.y"]
    assert rig.run() == []

    rig.copying.mirrors["a.y"] = MirrorPosition(4, 3, "m")

    assert rig.run() == ["a.y"]


def test_what_was_done_to_a_table_is_counted_even_if_the_rest_of_it_fails() -> None:
    rig, counted = Rig(), dict[str, tuple[CopiedVersion, ...]]()
    rig.copying.raising["a.x"] = HeldError("copy_columns", "alter it")

    def count(copy: str, table: str, done: Sequence[CopiedVersion], at: datetime) -> None:
        assert (copy, at) == ("cache", rig.now)
        counted[table] = tuple(done)
        if table == "a.y":
            raise UnreachableError("the store is full")

    rig.work.count = count

    assert rig.run() == ["a.x", "a.y"]
    assert counted == {"a.x": (CopiedVersion(3),), "a.y": (CopiedVersion(3),)}
    assert rig.work.problem == ""


def test_one_whose_mirror_is_another_or_that_was_emptied_is_brought_again() -> None:
    rig = Rig()
    rig.run()
    rig.copying.mirrors["a.x"] = MirrorPosition(3, 2, "anew")
    assert rig.run() == ["a.x"]

    rig.copying.kept.clear()

    assert rig.run() == ["a.x", "a.y"]


def test_one_that_is_held_is_told_and_stops_no_other() -> None:
    rig = Rig()
    rig.copying.raising["a.x"] = HeldError("copy_columns", "alter it")

    assert rig.run() == ["a.x", "a.y"]

    (hold,) = rig.work.holds.values()
    assert (hold.id, hold.subject, hold.reason) == ("copy:cache:a.x", "a.x", "copy_columns")
    assert rig.work.problem == ""
    rig.copying.raising.clear()
    assert rig.run() == ["a.x"]
    assert rig.work.holds == {}


def test_one_that_is_held_is_tried_less_and_less_often() -> None:
    rig = Rig()
    rig.copying.raising["a.x"] = HeldError("copy_columns", "alter it")
    rig.run()
    rig.copying.asked.clear()
    rig.work.run()  # at the same moment

    assert rig.copying.asked == []


def test_a_copy_that_is_down_is_said_and_well_again_once_it_answers() -> None:
    rig = Rig()
    rig.copying.down = UnreachableError("nobody there")
    with pytest.raises(UnreachableError):
        rig.run()
    assert rig.work.problem == "nobody there"

    rig.copying.down = None

    assert rig.run() == ["a.x", "a.y"]
    assert rig.work.problem == ""


def test_a_table_that_cannot_be_written_is_said_and_stops_no_other() -> None:
    rig = Rig()
    rig.copying.raising["a.x"] = UnreachableError("its file is gone")

    with pytest.raises(UnreachableError, match="its file is gone"):
        rig.run()

    assert rig.copying.asked == ["a.x", "a.y"]


def test_who_was_overtaken_begins_again_in_the_next_round() -> None:
    rig = Rig()
    rig.copying.raising["a.x"] = LostRaceError("somebody else")

    assert rig.run() == ["a.x", "a.y"]
    assert rig.work.problem == ""
    assert rig.run() == ["a.x"]


def test_a_round_ends_between_two_tables_when_its_time_is_over() -> None:
    rig = Rig()
    bring = rig.copying.bring

    def slow(one: Table, was: CopyPosition | None) -> CopyPosition:
        rig.now += timedelta(minutes=2)
        return bring(one, was)

    rig.copying.bring = slow  # type: ignore[method-assign]

    assert rig.run() == ["a.x"]
    assert rig.run() == ["a.y"]


def copy_status(lag: float | None = 2.0, **more: Any) -> dict[str, Any]:
    told = {"lag_seconds": lag, "why": None, "hold": None, "watermark": "2026-01-02T03:04:05Z"}
    return told | more


HELD = copy_status(
    hold="copy_written: 2 rows are newer than the mirror's: another client writes there"
)
SILENT = copy_status(None, why="it does not answer", watermark=None)


def test_each_copy_of_a_table_says_how_it_stands() -> None:
    row = {"table": "a.t", "copies": {"three": HELD, "one": copy_status(), "two": SILENT}}

    assert format_copies(row) == [
        "copy one: 2.0 s behind its mirror, complete up to 2026-01-02T03:04:05Z",
        "copy three: held: copy_written: 2 rows are newer than the mirror's:"
        " another client writes there",
        "copy two: unknown: it does not answer",
    ]


def test_copies_of_many_tables_are_summed_up_and_what_does_not_follow_is_named() -> None:
    rows: list[dict[str, Any]] = [
        {"table": "a.t", "copies": {"one": copy_status(1.0), "two": SILENT}},
        {"table": "a.u", "copies": {"one": copy_status(7.25)}},
        {"table": "a.v", "copies": {"one": HELD}},
        {"table": "a.w", "copies": {}},
    ]

    assert summarize_copies(rows) == [
        "copy one: 2 of 3 tables follow, at most 7.2 s behind their mirrors",
        f"  a.v: held: {HELD['hold']}",
        "copy two: 0 of 1 tables follow",
        "  a.t: unknown: it does not answer",
    ]


def test_thousands_that_stand_still_fit_a_screen() -> None:
    lines = summarize_copies({"table": f"a.{n}", "copies": {"one": SILENT}} for n in range(3_000))

    assert len(lines) == SHOWN + 2
    assert lines[-1] == f"  and {3_000 - SHOWN} more: --json has all"


def test_where_there_are_no_copies_nothing_is_said() -> None:
    assert summarize_copies([{"table": "a.t", "copies": {}}]) == []
