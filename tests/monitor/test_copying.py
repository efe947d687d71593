"""Rounds of a copy's job: what moved is brought, what fails is said, and stops no other."""

import contextlib
import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import text
from structlog.testing import capture_logs

from checks.ledger import LedgerState
from monitor.cli.options import SHOWN, format_copies, summarize_copies
from monitor.config.plans import CopyPlan
from monitor.copying import ComparedPositions, Copies, CopyWork
from monitor.observe.sampler import Sampling
from monitor.store.copy_ledger import CopyLedger, CopyReach
from monitor.store.store import ServiceStore
from pipeline.copies.copy import CopiedTable, CopiedVersion, CopyPosition, CopyStep
from pipeline.copies.sync import CopySync
from pipeline.errors import HeldError, LostRaceError, SluiceError, UnreachableError
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import Missing, Op, Shard, Table
from tests.builders.lake import NOW, LocalLake, row
from tests.monitor.store.blank import blank_store
from tests.pipeline.copies.copied import TABLE
from tests.toy.copy import FileCopy, FileTarget

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
    count: Any = None
    repeated: list[str] = field(default_factory=list)
    reloaded: list[str] = field(default_factory=list)

    @property
    def target(self) -> "FakeCopying":
        return self

    def positions(self) -> Mapping[str, CopyPosition]:
        if self.down is not None:
            raise self.down
        return dict(self.kept)

    def bring(
        self, one: Table, was: CopyPosition | None, *, counted: bool, reload: bool
    ) -> CopyPosition:
        self.asked.append(one.name)
        self.repeated += [] if counted else [one.name]
        self.reloaded += [one.name] if reload else []
        if one.name in self.raising:
            raise self.raising[one.name]
        there = self.mirrors[one.name]
        self.kept[one.name] = CopyPosition(there.mirror, there.version, there.batch)
        self.count(one.name, CopiedVersion(there.version, lineage=there.mirror))
        return self.kept[one.name]


@dataclass(eq=False)
class FakeLedger:
    """Compares what it is given, unless ``full``."""

    full: bool = False
    reach: dict[str, CopyReach] = field(default_factory=dict)

    def copy_reach(self, copy: str) -> Mapping[str, CopyReach]:
        assert copy == "cache"
        return dict(self.reach)

    def set_back(self, copy: str, table: str, at: CopyPosition) -> None:
        """Nothing is."""

    def note_load(self, copy: str, table: str, at: CopyPosition) -> None:
        """No load is noted."""

    def add_copied(
        self, copy: str, table: str, done: Sequence[CopiedVersion], at: datetime
    ) -> None:
        if self.full:
            raise UnreachableError("the store is full")
        self.reach[table] = CopyReach(done[-1].version, done[-1].lineage)


@dataclass(eq=False)
class Rig:
    """Two tables that are copied, and one that is not."""

    now: datetime = AT
    copying: FakeCopying = field(
        default_factory=lambda: FakeCopying(
            {name: MirrorPosition(3, 2, "m") for name in ("a.x", "a.y", "b.z")}
        )
    )

    counts: FakeLedger = field(default_factory=FakeLedger)

    def __post_init__(self) -> None:
        made: Any = self.copying
        copying: CopySync = made
        counts: Any = self.counts
        ledger: CopyLedger = counts
        self.work = CopyWork(
            CopyPlan("cache", ("a.*",), FileCopy("copy.json")),
            copying,
            ledger,
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


def test_a_step_that_was_not_counted_is_done_again_until_it_is() -> None:
    rig = Rig()
    rig.counts.full = True
    with pytest.raises(UnreachableError, match="the store is full"):
        rig.run()
    rig.counts.full = False

    assert rig.run() == rig.copying.repeated == ["a.x", "a.y"]
    assert (rig.run(), rig.work.problem) == ([], "")


KEPT = CopyPosition("m", 3, 2)
NOT_YET = "is not compared with its mirror yet"
LOAD = "its whole is to be loaded again"


@pytest.mark.parametrize(
    ("at", "reach", "then"),
    [
        pytest.param(KEPT, CopyReach(3, "m"), KEPT, id="compared"),
        pytest.param(replace(KEPT, version=2), CopyReach(3, "m"), LOAD, id="set back, without id"),
        pytest.param(
            replace(KEPT, version=2, load_id="1"), CopyReach(3, "m:1"), NOT_YET, id="set back"
        ),
        pytest.param(replace(KEPT, version=2), CopyReach(2, "m", 3), None, id="taken up"),
        pytest.param(replace(KEPT, version=3), CopyReach(2, "m", 3), NOT_YET, id="followed again"),
        pytest.param(replace(KEPT, parts=1), CopyReach(), None, id="not loaded yet"),
        pytest.param(replace(KEPT, version=4), CopyReach(3, "m"), KEPT, id="the one before it"),
        pytest.param(replace(KEPT, version=5), CopyReach(3, "m"), LOAD, id="moved on by another"),
        pytest.param(replace(KEPT, mirror="n"), CopyReach(3, "m"), LOAD, id="of another mirror"),
        pytest.param(replace(KEPT, load=2), CopyReach(), LOAD, id="another load"),
        pytest.param(replace(KEPT, load_id="1"), CopyReach(3, "m"), LOAD, id="of another load"),
        pytest.param(replace(KEPT, version=2), CopyReach(), LOAD, id="set back, not compared"),
    ],
)
def test_what_is_asked_of_a_copy_is_how_far_the_ledger_has_compared_it(
    at: CopyPosition, reach: CopyReach, then: CopyPosition | str | None
) -> None:
    target, counts = FakeCopying({}, {"a.x": KEPT}), FakeLedger(reach={"a.x": CopyReach(3, "m")})
    made: tuple[Any, Any] = (target, counts)
    ask = ComparedPositions("cache", *made)
    assert ask() == {"a.x": KEPT}

    target.kept["a.x"], counts.reach["a.x"] = at, reach

    found = ask()["a.x"]

    if then == LOAD:
        assert found == replace(at, parts=0)
    elif isinstance(found, Missing):
        assert found.why == f"version {at.version} of the copy {then}"
    else:
        assert found == (then or at)


def test_a_position_that_is_older_than_what_was_compared_meanwhile_is_no_set_back() -> None:
    target, counts = FakeCopying({}, {"a.x": KEPT}), FakeLedger(reach={"a.x": CopyReach(3, "m")})
    made: tuple[Any, Any] = (target, counts)
    ask, positions = ComparedPositions("cache", *made), target.positions

    def slow() -> Mapping[str, CopyPosition]:
        found = positions()
        target.kept["a.x"] = replace(KEPT, version=5)
        counts.reach["a.x"] = CopyReach(5, "m", 5)
        return found

    target.positions = slow  # type: ignore[method-assign]

    assert ask() == {"a.x": KEPT}
    assert ask() == {"a.x": replace(KEPT, version=5)}


def test_one_that_was_set_back_together_with_its_mirror_is_brought_once() -> None:
    rig = Rig()
    rig.run()
    rig.copying.kept["a.x"] = CopyPosition("m", 2, 1)
    rig.copying.mirrors["a.x"] = MirrorPosition(2, 1, "m")

    assert (rig.run(), rig.run()) == (["a.x"], [])
    assert rig.copying.repeated == []


def test_only_the_table_that_holds_another_load_is_loaded_again_and_once() -> None:
    rig = Rig()
    rig.run()
    rig.copying.kept["a.x"] = CopyPosition("m", 3, 2, load_id="1")

    assert (rig.run(), rig.run()) == (["a.x"], [])
    assert rig.copying.reloaded == ["a.x"]


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

    def slow(one: Table, was: CopyPosition | None, *, counted: bool, reload: bool) -> CopyPosition:
        rig.now += timedelta(minutes=2)
        return bring(one, was, counted=counted, reload=reload)

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


@dataclass(eq=False)
class Kept:
    """A copy of ``db.t`` in a file, as a service keeps it that may be killed."""

    lake: LocalLake
    store: Path
    copy: FileCopy

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin with nothing but the store."""
        self.ledger = ServiceStore.open(self.store, service=False).ledger
        plan = CopyPlan("cache", ("db.*",), self.copy)
        self.copies = Copies(self.lake.settings, [plan], self.ledger.copies)
        tables, minute = [TABLE], timedelta(minutes=1)
        self.copies.add_jobs(self.look, lambda: tables, lambda: NOW, minute, lambda: False)

    def fail_to_count(self, monkeypatch: pytest.MonkeyPatch, *, restarted: bool) -> None:
        """A round whose first step is not counted: the service is killed, or its store is full."""
        with monkeypatch.context() as patch:
            patch.setattr(CopyLedger, "add_copied", killed if restarted else full)
            with pytest.raises((KeyboardInterrupt, UnreachableError)):
                self.run()
        if restarted:
            self.start()

    def lose_an_update(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The copy is loaded, and does not take the next change."""
        write = FileTarget.write

        def lossy(target: FileTarget, table: CopiedTable, step: CopyStep) -> int:
            return write(target, table, replace(step, came=(), went=()))

        self.run()
        self.lake.play([row(Op.UPDATE, 20, 1, "z")])
        with monkeypatch.context() as patch:
            patch.setattr(FileTarget, "write", lossy)
            self.run()

    def look(self) -> Sampling:
        mirror = DeltaTable(self.lake.settings.mirror(TABLE.name))
        at = MirrorPosition(mirror.version(), 0, str(mirror.metadata().id))
        sample = Sample(at, NOW, timedelta(minutes=1))
        return replace(Sampling.nothing(), mirrors={TABLE.name: sample})

    def run(self) -> CopyPosition | Missing | None:
        """One round; what monitoring sees then."""
        self.copies.jobs[0].run()
        return self.seen

    def fail_before(self, step: int, monkeypatch: pytest.MonkeyPatch, *, restarted: bool) -> None:
        """A round that fails before one of its steps: the service is killed, or gets no answer."""
        left = itertools.count(-step)

        def failing(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                if next(left) == 0:
                    raise KeyboardInterrupt if restarted else UnreachableError("a test")
                return method(*args, **more)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(FileTarget, "write", failing(FileTarget.write))
            for name in ("note_load", "add_copied", "set_back"):
                patch.setattr(CopyLedger, name, failing(getattr(CopyLedger, name)))
            with pytest.raises((KeyboardInterrupt, UnreachableError)):
                self.run()
        if restarted:
            self.start()

    def forget_load_ids(self) -> None:
        """Store the position and what was compared as an earlier version did."""
        content = json.loads(self.path.read_text("utf-8"))
        assert content[TABLE.name]["at"].pop("load_id")
        self.path.write_text(json.dumps(content), "utf-8")
        bare = "substr(mirror, 1, instr(mirror, ':') - 1)"
        with self.ledger.database.write() as connection:
            connection.execute(text(f"UPDATE ledger_reach SET mirror = {bare}"))
        self.start()

    def back_up_a_loss(self, monkeypatch: pytest.MonkeyPatch) -> bytes:
        """The content of the copy that has lost an update."""
        self.lose_an_update(monkeypatch)
        return self.path.read_bytes()

    def rebuild_mirror(self) -> LocalLake:
        """Make another lake in the folder of the one that there is, which goes elsewhere."""
        old = self.lake.copied(self.lake.home.with_name("old"))
        home = self.lake.home
        shutil.rmtree(home)
        self.lake = LocalLake(home)
        self.lake.play([row(Op.CREATE, 10, 1, "n"), row(Op.CREATE, 11, 2, "b")])
        self.start()
        return old

    def restore_mirror(self, old: LocalLake) -> None:
        """Put back the lake that was there before."""
        home = self.lake.home
        shutil.rmtree(home)
        self.lake = old.copied(home)
        self.start()

    @property
    def path(self) -> Path:
        """Of the file that holds the copy."""
        return Path(self.copy.path)

    @property
    def names(self) -> dict[int, Any]:
        """Of the rows of the copy, by id."""
        return {int(one["id"]): one["name"] for one in self.copy.rows(TABLE.name).values()}

    @property
    def seen(self) -> CopyPosition | Missing | None:
        return self.copies.positions["cache"]().get(TABLE.name)

    @property
    def states(self) -> set[LedgerState]:
        """Of the minutes of the copy."""
        found = self.ledger.entries(TABLE.name, 0, 10**9, ["cache"]).get("copy:cache", ())
        return {one.state for one in found}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    lake = LocalLake(tmp_path / "lake")
    lake.play([row(Op.CREATE, 10, 1, "a"), row(Op.CREATE, 11, 2, "b")])
    return Kept(lake, blank_store(tmp_path / "sluice.db"), FileCopy(str(tmp_path / "copy.json")))


def test_a_step_is_seen_once_it_is_compared_also_if_a_kill_came_between(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = kept.run()
    kept.lake.play([row(Op.UPDATE, 20, 1, "z"), row(Op.DELETE, 21, 2)], [row(Op.UPDATE, 30, 1)])
    with monkeypatch.context() as patch:
        patch.setattr(CopyLedger, "add_copied", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.run()
    assert kept.seen == loaded
    kept.start()
    assert isinstance(kept.seen, Missing)

    after = kept.run()

    assert isinstance(loaded, CopyPosition)
    assert isinstance(after, CopyPosition)
    assert after.version == loaded.version + 2
    assert kept.states == {LedgerState.BALANCED}


def test_rows_that_a_killed_step_did_not_take_are_found_after_it(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileTarget.write

    def lossy(self: FileTarget, table: CopiedTable, step: CopyStep) -> int:
        return write(self, table, replace(step, came=()))

    kept.run()
    kept.lake.play([row(Op.UPDATE, 20, 1, "z")])
    monkeypatch.setattr(FileTarget, "write", lossy)
    with monkeypatch.context() as patch:
        patch.setattr(CopyLedger, "add_copied", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.run()
    kept.start()

    kept.run()

    assert kept.states == {LedgerState.RESIDUAL}


def test_rows_that_a_copy_loses_while_it_follows_versions_again_are_found(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileTarget.write

    def lossy(self: FileTarget, table: CopiedTable, step: CopyStep) -> int:
        return write(self, table, replace(step, came=(), went=()))

    kept.run()
    path = Path(kept.copy.path)
    backup = path.read_bytes()
    kept.lake.play([row(Op.UPDATE, 20, 1, "z")], [row(Op.UPDATE, 30, 2, "y")])
    last = kept.run()
    assert kept.states == {LedgerState.BALANCED}
    path.write_bytes(backup)
    assert isinstance(kept.seen, Missing)
    monkeypatch.setattr(FileTarget, "write", lossy)
    with monkeypatch.context() as patch:
        patch.setattr(CopyLedger, "add_copied", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.run()
    assert isinstance(kept.seen, Missing)

    assert kept.run() == last

    (lost,) = kept.ledger.copy_losses(TABLE.name, "cache").residuals
    assert [*lost.missing.values()] == [{"u": 2}]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_first_load_that_was_not_counted_is_counted_as_a_load(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    kept.fail_to_count(monkeypatch, restarted=restarted)
    assert isinstance(kept.seen, Missing)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert kept.states == set()
    kept.lake.play([row(Op.UPDATE, 20, 1, "z")])
    kept.run()
    assert kept.states == {LedgerState.BALANCED}


@pytest.mark.parametrize("restarted", [True, False])
def test_a_load_that_was_not_counted_makes_good_what_the_copy_missed(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    kept.lose_an_update(monkeypatch)
    Path(kept.copy.path).unlink()
    kept.fail_to_count(monkeypatch, restarted=restarted)
    assert kept.states == {LedgerState.RESIDUAL}

    kept.run()

    assert kept.states == {LedgerState.MADE_GOOD}
    assert not kept.ledger.copy_losses(TABLE.name, "cache").residuals


def test_a_copy_that_was_set_back_while_it_was_loaded_has_ended_no_load(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(kept.copy.path)
    kept.lose_an_update(monkeypatch)
    backup = path.read_bytes()
    kept.lake.play([row(Op.UPDATE, 30, 2, "y")])
    path.unlink()
    kept.fail_to_count(monkeypatch, restarted=True)
    path.write_bytes(backup)

    kept.run()

    (lost,) = kept.ledger.copy_losses(TABLE.name, "cache").residuals
    assert [*lost.missing.values()] == [{"u": 1}]
    kept.start()
    assert kept.ledger.copies.copy_reach("cache")[TABLE.name].load is None


def is_loading(seen: CopyPosition | Missing | None) -> bool:
    """Whether monitoring sees a copy that is not whole, so that its certificates end."""
    return isinstance(seen, CopyPosition) and not seen.whole


STEPS_OF_LOAD = range(6)  # begin, note it, a part for each file, end, count


@pytest.mark.parametrize("step", STEPS_OF_LOAD)
def test_a_backup_in_place_of_a_killed_load_is_no_proof_by_that_load(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Mirror, version and number of both loads are the same."""
    backup = kept.back_up_a_loss(monkeypatch)
    kept.path.unlink()
    kept.fail_before(step, monkeypatch, restarted=True)
    kept.path.write_bytes(backup)

    kept.run()

    (lost,) = kept.ledger.copy_losses(TABLE.name, "cache").residuals
    assert [*lost.missing.values()] == [{"u": 1}]


@pytest.mark.parametrize("later", [False, True])
def test_a_backup_of_an_earlier_load_is_loaded_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    """It is at the version of the later load, or below it."""
    backup = kept.back_up_a_loss(monkeypatch)
    if later:
        kept.lake.play([row(Op.UPDATE, 30, 2, "y")])
    kept.path.unlink()
    assert isinstance(kept.run(), CopyPosition)
    kept.lake.play([row(Op.UPDATE, 40, 2, "x")])
    kept.run()
    kept.path.write_bytes(backup)
    assert is_loading(kept.seen)

    with capture_logs() as logs:
        after = kept.run()

    assert isinstance(after, CopyPosition)
    assert (after.load, kept.names) == (2, kept.lake.rows())
    assert not kept.ledger.copy_losses(TABLE.name, "cache").residuals
    (why,) = [one["why"] for one in logs if one["event"] == "copy_reload"]
    assert "loaded again" in why
    assert kept.run() == after


def test_a_mirror_that_comes_back_with_its_copy_keeps_no_proof_of_another_mirrors_load(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.lose_an_update(monkeypatch)
    kept.lake.play([row(Op.UPDATE, 30, 2, "y")])
    kept.run()
    backup = kept.path.read_bytes()
    old = kept.rebuild_mirror()
    assert isinstance(kept.run(), CopyPosition)
    assert kept.states == {LedgerState.MADE_GOOD}
    kept.restore_mirror(old)
    kept.path.write_bytes(backup)
    assert is_loading(kept.seen)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert (after.load, kept.names) == (2, kept.lake.rows())
    assert kept.states == {LedgerState.MADE_GOOD}


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("step", STEPS_OF_LOAD)
def test_a_backup_is_loaded_once_though_its_load_failed_between_two_steps(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, step: int, restarted: bool
) -> None:
    backup = kept.back_up_a_loss(monkeypatch)
    kept.path.unlink()
    kept.run()
    kept.path.write_bytes(backup)
    kept.fail_before(step, monkeypatch, restarted=restarted)
    assert isinstance(kept.seen, Missing) or is_loading(kept.seen)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert (after.load, kept.names) == (2, kept.lake.rows())
    assert kept.states == {LedgerState.MADE_GOOD}
    assert kept.run() == after


def test_a_position_without_the_id_of_its_load_is_followed_from_until_it_is_set_back(
    kept: Kept,
) -> None:
    """An earlier version stored it, and may have loaded the copy more than once."""
    kept.run()
    kept.forget_load_ids()
    backup = kept.path.read_bytes()
    kept.lake.play([row(Op.UPDATE, 20, 1, "z")])
    followed = kept.run()
    assert isinstance(followed, CopyPosition)
    assert (followed.load, followed.load_id) == (1, "")
    assert kept.states == {LedgerState.BALANCED}
    kept.path.write_bytes(backup)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert (after.load, kept.names) == (2, kept.lake.rows())
    assert kept.run() == after


def test_a_copy_that_does_not_return_the_id_of_its_load_is_held(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plug-in would have it loaded in each round."""
    positions = FileTarget.positions

    def forgetful(target: FileTarget) -> Mapping[str, CopyPosition]:
        return {name: replace(at, load_id="") for name, at in positions(target).items()}

    monkeypatch.setattr(FileTarget, "positions", forgetful)
    for _ in range(3):
        kept.run()

    hold = kept.copies.jobs[0].holds[TABLE.name]
    assert hold.reason == "copy_position"
    assert "does not return the load_id" in hold.detail
    assert is_loading(kept.seen)


def test_a_place_that_comes_under_another_address_is_loaded_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a backup that lacks a row, which a later load made good at the old address."""
    backup = kept.back_up_a_loss(monkeypatch)
    kept.path.unlink()
    kept.run()
    kept.copy = replace(kept.copy, path=str(kept.path.with_name("elsewhere.json")))
    kept.path.write_bytes(backup)
    kept.start()
    assert is_loading(kept.seen)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert (after.load, kept.names) == (2, kept.lake.rows())
    assert not kept.ledger.copy_losses(TABLE.name, "cache").residuals
    assert kept.run() == after


def test_a_store_that_is_restored_from_a_backup_has_the_copy_loaded_once(kept: Kept) -> None:
    kept.run()
    older = kept.store.with_name("older.db")
    with contextlib.closing(sqlite3.connect(kept.store)) as link:
        link.execute("VACUUM INTO ?", (str(older),))
    kept.path.unlink()
    kept.run()
    kept.store = older
    kept.start()
    assert is_loading(kept.seen)

    after = kept.run()

    assert isinstance(after, CopyPosition)
    assert after.load == 2
    kept.lake.play([row(Op.UPDATE, 20, 1, "z")])
    kept.run()
    assert kept.states == {LedgerState.BALANCED}
    assert kept.names == kept.lake.rows()


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def full(*_: Any) -> None:
    raise UnreachableError("the store is full")
