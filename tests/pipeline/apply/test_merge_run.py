"""Which mirrors a merge run takes, in which order, and what an idle run costs."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge_run import (
    MergeQueue,
    MergeRequest,
    MergeRunner,
    UnreportedMerges,
    is_other_tier,
    is_tier0,
)
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Gap
from pipeline.delta.log import Snapshot, entry_name, load_snapshot
from pipeline.delta.store import Store
from pipeline.errors import LostRaceError, UnreachableError
from pipeline.model import Op, Order, ShardId
from pipeline.settings import PipelineSettings, TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta import table_format
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.test_foreign_commits import deleted, intrude

C, U = Op.CREATE, Op.UPDATE


def test_a_paused_mirror_stands_still_and_takes_up_all_that_landed_when_it_goes_on(
    lake: LocalLake,
) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(U, 20, 1, "b"))

    assert lake.run(paused={"db.t"}) == ()
    lake.land(row(C, 30, 2, "c"))
    assert lake.run(paused={"db.t"}) == ()
    assert lake.rows() == {1: "a"}

    assert lake.apply().account.read == 2
    assert lake.rows() == {1: "b", 2: "c"}


def test_a_held_mirror_that_is_paused_is_not_called_free(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.alter(ID, at=Order(1, 1, 15))
    lake.land(row(U, 20, 1, "b"))
    held = lake.apply()
    assert held.hold is not None

    turns = [*lake.run(paused={"db.t"}), *lake.run(paused={"db.t"})]

    assert [turn for turn in turns if turn.hold is None] == []


LOW, HOT = "db.t", "db.u"
RULES = (TableRule(r"db\.t", LOW, tier=2), TableRule(r"db\.u", HOT, tier=0))


@pytest.fixture
def tiers(tmp_path: Path) -> LocalLake:
    """Each pass is ten minutes after the one before; tables of tier 2 have 25 minutes."""
    made = LocalLake(tmp_path, rules=RULES, others=(HOT,))
    made.settings = replace(made.settings, cycles={2: timedelta(minutes=25)})
    made.reopen()
    made.land(
        row(C, 10, 1, "a"), {**row(C, 10, 1, "a"), "table": HOT, "shard": HOT, "topic": "s.u"}
    )
    for _ in range(2):
        made.run()
    return made


def change_both(tiers: LocalLake, place: int, name: str) -> None:
    more = {"table": HOT, "shard": HOT, "topic": "s.u"}
    tiers.land(row(U, place, 1, name), {**row(U, place, 1, name), **more})


def merged_tables(tiers: LocalLake, *wanted: str) -> list[str]:
    return [turn.table for turn in tiers.run(wanted=wanted)]


def test_a_table_of_a_low_tier_has_one_turn_in_a_cycle_and_loses_nothing(tiers: LocalLake) -> None:
    passes = []
    for number in range(6):
        change_both(tiers, 20 + number, str(number))
        passes.append(merged_tables(tiers))

    assert [LOW in one for one in passes] == [False, True, False, False, True, False]
    assert all(HOT in one for one in passes)
    assert (tiers.rows(), tiers.rows(HOT)) == ({1: "4"}, {1: "5"})


def test_what_somebody_waits_for_waits_for_no_cycle(tiers: LocalLake) -> None:
    change_both(tiers, 20, "b")

    assert merged_tables(tiers, LOW) == [HOT, LOW]
    assert tiers.rows() == {1: "b"}


def test_a_table_that_is_held_is_tried_again_before_its_cycle_is_over(tiers: LocalLake) -> None:
    change_both(tiers, 20, "b")
    tiers.alter(ID, at=Order(1, 1, 15))
    first = next(turn for turn in tiers.run(wanted=(LOW,)) if turn.table == LOW)
    assert first.hold is not None

    tiers.alter(ID, NAME, at=Order(1, 1, 16))
    change_both(tiers, 30, "c")

    assert LOW in merged_tables(tiers)


def test_after_a_restart_all_have_a_turn_at_once(tiers: LocalLake) -> None:
    change_both(tiers, 20, "b")
    assert merged_tables(tiers) == [HOT]

    tiers.reopen()
    tables = {*merged_tables(tiers), *merged_tables(tiers)}

    assert LOW in tables
    assert tiers.rows() == {1: "b"}


@pytest.mark.parametrize(
    ("tier", "minutes"),
    [
        pytest.param(0, 0, id="tier 0 never waits"),
        pytest.param(1, 0, id="none is named for it, nor for one below"),
        pytest.param(2, 5, id="its own"),
        pytest.param(3, 5, id="that of the one below"),
        pytest.param(7, 15, id="another's below"),
    ],
)
def test_a_tier_waits_as_the_highest_named_up_to_it(tier: int, minutes: int) -> None:
    cycles = {2: timedelta(minutes=5), 4: timedelta(minutes=15)}
    settings = PipelineSettings("lake", "", (), cycles=cycles)

    assert settings.cycle(tier) == timedelta(minutes=minutes)


def test_each_table_is_merged_in_one_line(tiers: LocalLake) -> None:
    other = MergeRunner(
        tiers.settings,
        tiers.runner.jobs.changes,
        tiers.runner.spread,
        lambda: tiers.now,
        tiers.table_format,
        tiers.runner.mirrors,
    )
    lines = [MergeQueue("low", tiers.runner, is_other_tier), MergeQueue("hot", other, is_tier0)]
    change_both(tiers, 20, "b")
    state = tiers.state()
    tiers.now += timedelta(hours=1)

    told = [line.own(state) for line in lines]
    turns = [
        {turn.table for _ in range(2) for turn in line.runner.run(own, MergeRequest())}
        for line, own in zip(lines, told, strict=True)
    ]

    assert [set(own.checkpoint.tables) for own in told] == [{LOW}, {HOT}]
    assert turns == [{LOW}, {HOT}]
    assert lines[0].own(state) is told[0], "it is worked out once"


@pytest.fixture
def merged(tmp_path: Path) -> LocalLake:
    merged = LocalLake(tmp_path)
    merged.land(row(Op.CREATE, 10, 1, "a"), row(Op.CREATE, 11, 2, "b"))
    merged.apply()
    return merged


def untold(merged: LocalLake) -> UnreportedMerges:
    """What a process that has told nothing yet knows."""
    merged.runner.mirrors.look("db.t")
    return UnreportedMerges(merged.runner.mirrors, merged.runner.watch, lambda: merged.now)


def reports_of(found: UnreportedMerges) -> list[tuple[str, int, int]]:
    return [(one.table, one.batch, one.account.applied) for one in found.reports(["db.t", "db.u"])]


def test_the_newest_turn_of_each_mirror_is_told_once(merged: LocalLake) -> None:
    found = untold(merged)

    assert reports_of(found) == [("db.t", 0, 2)]
    assert reports_of(found) == []


def test_a_turn_that_was_told_by_who_made_it_is_not_told_again(merged: LocalLake) -> None:
    found = untold(merged)

    found.note_reported("db.t")

    assert reports_of(found) == []


OTHER = {"table": "db.u", "shard": "db.u", "topic": "s.u"}


def of_both(number: int, at: int) -> tuple[dict[str, Any], dict[str, Any]]:
    other = {**row(C, at, number, "a"), **OTHER, "key": f'["s","db.u","{number}"]'}
    return row(C, at, number, "a"), other


@pytest.mark.parametrize("error", [RuntimeError("a defect"), LostRaceError("faster")])
def test_the_account_of_a_commit_is_reported_although_another_table_fails_in_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    lake.land(*of_both(1, 10))
    assert len(lake.run()) == 2
    lake.land(*of_both(2, 20))
    commit, look = lake.table_format.commit, lake.runner.mirrors.look

    lost: list[str] = []

    def failing(job: Any, *with_it: Any) -> Any:
        if job.name == "db.u":
            lost.append(job.name)
            raise error
        return commit(job, *with_it)

    def silent(table: str) -> Any:
        if table in lost:
            raise UnreachableError("no answer")
        return look(table)

    with monkeypatch.context() as away:
        away.setattr(type(lake.table_format), "commit", lambda _, *given: failing(*given))
        reports: list[Any] = []
        with suppress(RuntimeError):
            away.setattr(lake.runner.mirrors, "look", silent)
            reports += lake.run()
    reports += [one for _ in range(2) for one in lake.run()]

    assert lost == ["db.u"]
    told = [(one.table, one.batch) for one in reports if one.hold is None and one.account.read]
    assert {("db.t", 1), ("db.u", 1)} <= {*told}


def of_table(table: str, number: int, at: int) -> dict[str, Any]:
    key = f'["s","{table}","{number}"]'
    return {**row(C, at, number, "a"), "table": table, "shard": table, "topic": table, "key": key}


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(Column("extra", "INT", default="7", has_default=True), id="a default"),
        pytest.param(Column("number", "BIGINT"), id="a wider type"),
    ],
)
def test_mirrors_that_are_rewritten_come_one_by_one_after_the_commits_of_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: Column
) -> None:
    number = Column("number", "INT")
    lake = LocalLake(tmp_path, columns=(ID, NAME, number), others=("db.u", "db.v"))
    lake.land(*(of_table(name, id_, 10 + id_) for name in ("db.t", "db.u") for id_ in range(2)))
    lake.land(of_table("db.v", 0, 10))
    lake.run()
    for shard in ("db.t", "db.v"):
        lake.alter(
            ID,
            NAME,
            *{number.name: number, column.name: column}.values(),
            at=Order(1, 1, 15),
            shard=shard,
        )
    lake.land(*(of_table(name, 9, 20) for name in ("db.t", "db.u", "db.v")))
    steps: list[tuple[str, str]] = []
    shaped, commit = lake.table_format.shaped, lake.table_format.commit

    def shaping(uri: str, known: Any, shape: Any, stamp: Any) -> Any:
        steps.append(("shaped", shape.table.name))
        return shaped(uri, known, shape, stamp)

    def committing(job: Any, *rest: Any) -> Any:
        steps.append(("commit", job.name))
        return commit(job, *rest)

    monkeypatch.setattr(lake.table_format, "shaped", shaping)
    monkeypatch.setattr(lake.table_format, "commit", committing)
    with capture_logs() as logged:
        lake.run()

    assert steps == [
        (step, one) for one in ("db.u", "db.v", "db.t") for step in ("shaped", "commit")
    ]
    told = [(one["table"], one["rows"]) for one in logged if one["event"].startswith("rewrites")]
    assert told == [("db.v", 1), ("db.t", 2)]


def test_a_run_rewrites_as_many_rows_as_it_may_and_at_least_one_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    lake.land(*(of_table(name, 1, 10) for name in ("db.t", "db.u")))
    lake.run()
    extra = Column("extra", "INT", default="7", has_default=True)
    for shard in ("db.t", "db.u"):
        lake.alter(ID, NAME, extra, at=Order(1, 1, 15), shard=shard)
    lake.land(*(of_table(name, 2, 20) for name in ("db.t", "db.u")))
    monkeypatch.setattr("pipeline.apply.merge_run.PASS_ROWS", 1)

    assert [[one.table for one in lake.run()] for _ in range(3)] == [["db.t"], ["db.u"], []]
    assert [[one["extra"] for one in lake.mirror(name)] for name in ("db.t", "db.u")] == [
        [7, None]
    ] * 2


def test_a_mirror_that_does_not_answer_is_asked_again_and_keeps_no_other_from_being_told(
    merged: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = untold(merged)
    commits = merged.runner.mirrors.commits

    def silent(table: str, until: int) -> Iterator[Commit]:
        raise UnreachableError(f"{table} at {until}")

    monkeypatch.setattr(merged.runner.mirrors, "commits", silent)
    while_silent = reports_of(found)
    monkeypatch.setattr(merged.runner.mirrors, "commits", commits)

    assert while_silent == []
    assert reports_of(found) == [("db.t", 0, 2)]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        pytest.param(0, [("db.t", 0, 2)], id="it was committed"),
        pytest.param(1, [], id="it was not: its turn comes again"),
    ],
)
def test_a_commit_without_an_answer_is_told_if_it_was_made(
    merged: LocalLake, batch: int, expected: list[tuple[str, int, int]]
) -> None:
    found = untold(merged)
    found.note_reported("db.t")

    found.note_unanswered("db.t", batch)
    found.settle()

    assert reports_of(found) == expected


def test_while_the_mirror_cannot_be_looked_at_the_answer_waits(merged: LocalLake) -> None:
    found, log = untold(merged), Path(merged.settings.mirror("db.t"), "_delta_log")
    found.note_reported("db.t")
    found.note_unanswered("db.t", 0)
    away = log.rename(log.with_name("away"))
    log.write_text("no folder")

    found.settle()
    waiting = reports_of(found)
    log.unlink()
    away.rename(log)
    found.settle()

    assert waiting == []
    assert reports_of(found) == [("db.t", 0, 2)]


def no_folder(log: Path) -> None:
    log.write_bytes(b"no folder")


def damaged_entry(log: Path) -> None:
    (log / "00000000000000000000.json").write_text("{")


@pytest.mark.parametrize(
    ("broken", "reason", "detail"),
    [
        pytest.param(no_folder, "unreachable", "Not a directory", id="unreachable"),
        pytest.param(damaged_entry, "log_damaged", "", id="damaged"),
    ],
)
def test_a_mirror_that_cannot_be_read_stops_no_other_and_continues_once_it_can(
    tmp_path: Path, broken: Callable[[Path], None], reason: str, detail: str
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(C, 10, 1, "a"), row(C, 10, 1, "a") | other)
    lake.run()
    log = Path(lake.settings.mirror("db.u"), "_delta_log")
    away = log.rename(log.with_name("away"))
    if broken is damaged_entry:
        shutil.copytree(away, log)
    broken(log)
    lake.reopen()
    lake.land(row(C, 20, 2, "b"), row(C, 20, 2, "b") | other)

    turns = {turn.table: turn for turn in (*lake.run(), *lake.run())}
    log.unlink() if log.is_file() else shutil.rmtree(log)
    away.rename(log)
    later = {turn.table: turn for turn in (*lake.run(), *lake.run())}

    assert turns["db.t"].hold is None
    assert_held(turns["db.u"].hold, reason, detail)
    assert later["db.u"].hold is None
    assert lake.rows() == lake.rows("db.u") == {1: "a", 2: "b"}


def test_no_turn_is_committed_on_top_of_an_entry_that_another_writer_has_only_begun(
    tmp_path: Path,
) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(C, 10, 1, "a"))
    version = lake.apply().version
    begun = Path(lake.settings.mirror("db.t"), entry_name(version + 1))
    begun.touch()
    lake.land(row(C, 20, 2, "b"))

    held = lake.apply().hold
    after = begun.with_name(Path(entry_name(version + 2)).name).exists()
    begun.unlink()

    assert_held(held, "unreachable", f"{begun.name} is empty")
    assert not after
    assert lake.apply().hold is None
    assert lake.rows() == {1: "a", 2: "b"}


def test_a_turn_whose_commit_was_not_answered_is_told_once_the_mirror_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the mirror: with no other turn, nobody else would tell of them."""
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 2, "b"), row(C, 30, 3, "c"))
    store = lake.table_format.store(lake.settings.mirror("db.t"))
    put, read = store.put_new, store.read
    unread: set[str] = set()

    def unanswered(name: str, data: bytes) -> None:
        put(name, data)
        unread.add(name)
        raise UnreachableError("no answer")

    def silent(name: str) -> bytes:
        if name in unread:
            raise UnreachableError("no answer")
        return bytes(read(name))

    monkeypatch.setattr(store, "put_new", unanswered)
    monkeypatch.setattr(store, "read", silent)
    (failed,) = lake.run()
    monkeypatch.undo()
    later = [turn for _ in range(3) for turn in lake.run()]

    assert_held(failed.hold, "unreachable")
    assert [(turn.batch, turn.account.read) for turn in later if turn.account.read] == [(1, 2)]
    assert lake.rows() == {1: "a", 2: "b", 3: "c"}


TABLES = tuple(f"db.u{number:02d}" for number in range(30))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each mirror's log was looked at."""
    found = Counter[str]()

    def counted(store: Store, known: Snapshot | None = None) -> Snapshot | None:
        found[store.uri] += 1
        return load_snapshot(store, known)

    monkeypatch.setattr(table_format, "load_snapshot", counted)
    return found


@pytest.fixture
def idle(tmp_path: Path) -> LocalLake:
    """Many mirrors, all applied."""
    lake = LocalLake(tmp_path, others=TABLES)
    own = [{"table": name, "shard": name, "topic": f"s.{name}"} for name in TABLES]
    lake.land(*({**row(Op.CREATE, 10, 1, "a"), **names} for names in own))
    for _ in range(3):
        lake.run()
    return lake


def test_f42_a_pass_with_nothing_due_looks_at_a_few_mirrors_only(
    idle: LocalLake, opened: Counter[str]
) -> None:
    assert idle.run() == ()

    assert 0 < opened.total() <= 20


def test_f42_a_pass_with_one_mirror_due_opens_that_one_and_a_few(
    idle: LocalLake, opened: Counter[str]
) -> None:
    idle.land({**row(Op.CREATE, 20, 2, "b"), "table": "db.u07", "shard": "db.u07"})

    done = idle.run()

    assert [turn.table for turn in done] == ["db.u07"]
    assert opened.total() <= 25


@pytest.fixture
def baseless(tmp_path: Path) -> LocalLake:
    """Many tables that have landed and have no mirror: each is held by a gap of its own."""
    lake = LocalLake(tmp_path, others=TABLES)
    own = [{"table": name, "shard": name, "topic": f"s.{name}"} for name in TABLES]
    lake.land(*({**row(Op.CREATE, 10, 1, "a"), **names} for names in own))
    gaps = [Gap(f"g@{name}", f"s.{name}", 0, 1, 2, "", shards=(f"s/{name}",)) for name in TABLES]
    lake.checkpoint = replace(lake.checkpoint, gaps={g.id: g for g in gaps})
    return lake


def test_held_tables_without_a_mirror_are_not_looked_for_in_each_pass(
    baseless: LocalLake, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = baseless.run()
    opened.clear()
    monkeypatch.setattr(baseless.runner, "clock", lambda: baseless.now - timedelta(minutes=10))

    baseless.run()

    assert {turn.hold and turn.hold.reason for turn in first} == {"gap"}
    assert len(first) == len(TABLES)
    assert opened.total() <= 20


def test_a_mirror_that_is_put_back_is_found(baseless: LocalLake) -> None:
    """Such as from a backup; the table is held until then, and tried again now and then."""
    baseless.run()
    baseless.checkpoint = replace(baseless.checkpoint, gaps={})

    turns = baseless.run()

    assert {turn.hold for turn in turns} == {None}
    assert len(turns) == len(TABLES)


@pytest.mark.parametrize("relation", ["größe", 'a"b', "a.b", "a\\b"])
def test_a_gap_holds_a_table_of_any_name(tmp_path: Path, relation: str) -> None:
    name = str(ShardId("db", relation))
    lake = LocalLake(tmp_path, others=(name,))
    gap = Gap("g@0", f"s.{name}", 0, 1, 2, "", shards=(f"s/{name}",))
    own = {"table": name, "shard": name, "topic": "s.other"}
    lake.land({**row(Op.CREATE, 10, 1, "a"), **own})
    lake.checkpoint = replace(lake.checkpoint, gaps={gap.id: gap})

    (turn,) = lake.run()

    assert_held(turn.hold, "gap")


def test_a_damaged_mirror_is_read_again_less_and_less_often(
    tmp_path: Path, opened: Counter[str]
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(Op.CREATE, 10, 1, "a") | other)
    lake.run()
    folder = Path(lake.settings.mirror("db.u"))
    whole = {one: one.read_text() for one in (folder / "_delta_log").glob("*.json")}
    for entry in whole:
        entry.write_text("{")
    lake.reopen()
    landed, looks = LandedState(lake.checkpoint, lake.catalog), list[int]()
    for seconds in (0, 1, 0.5, 1, 3, 5, 60, 60):
        opened.clear()
        lake.now += timedelta(seconds=seconds)
        (turn,) = lake.runner.run(landed, MergeRequest())
        assert turn.hold is not None
        assert turn.hold.reason == "log_damaged"
        looks.append(opened[str(folder)])
    for entry, text in whole.items():
        entry.write_text(text)
    lake.now += timedelta(seconds=60)

    (freed,) = lake.runner.run(landed, MergeRequest())

    assert [bool(one) for one in looks] == [True, False, False, True, False, True, True, True]
    assert sum(looks) <= 2 * 5
    assert freed.hold is None


def test_a_mirror_with_a_foreign_commit_is_looked_at_less_and_less_often(
    tmp_path: Path, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 10, 1, "a")])
    intrude(lake, deleted(lake), operation="DELETE")
    landed = LandedState(lake.checkpoint, lake.catalog)
    held = lake.run()
    counted = list[Snapshot]()
    monkeypatch.setattr(lake.runner.table_format, "count", counted.append)
    looks, holds = list[int](), list[str]()
    for seconds in (0, 1, 2, 3, 0, 60, 0):
        opened.clear()
        lake.now += timedelta(seconds=seconds)
        (turn,) = lake.runner.run(landed, MergeRequest())
        looks.append(opened.total())
        holds += [turn.hold.id] if turn.hold else []

    assert held[-1].hold is not None
    assert holds == [held[-1].hold.id] * 7, "it is told all the same"
    assert [bool(one) for one in looks] == [False, False, True, False, False, True, False]
    assert counted == [], "rows are counted when it is judged, once"
    (freed,) = lake.runner.run(landed, MergeRequest(frozenset(holds)))
    assert freed.hold is None
