"""A mirror that fails, or whose worker dies, gets a reason and affects no other of its group."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.apply import merge_job
from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge import MergeResult, MergeTask
from pipeline.apply.merge_job import JobGroup, MergeJob, Outcomes, run_group, split_group
from pipeline.apply.merge_run import MergeRequest
from pipeline.changelog import data_file
from pipeline.changelog.scan import Part, WantedBatches, find_parts, read_tables
from pipeline.delta.store import Store
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Op, Table
from pipeline.reports import Hold, MergeFailure
from pipeline.tables.delta.merge import run_merge
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.holds import assert_held

C, D = Op.CREATE, Op.DELETE
TABLES = ("db.t", "db.u", "db.v")


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """A change of each of three tables has landed."""
    made = LocalLake(tmp_path, others=TABLES[1:])
    land_in_all(made, 10, 1)
    return made


def land_in_all(lake: LocalLake, pos: int, key: int) -> None:
    lake.land(*(row(C, pos, key, "a", table=t, shard=t, topic=f"s.{t}") for t in TABLES))


def breaks(monkeypatch: pytest.MonkeyPatch, table: str, error: BaseException) -> None:
    """Let turns of *table* raise *error*."""

    def broken(task: MergeTask[Any], **more: Any) -> MergeResult[Any]:
        if task.table.name == table:
            raise error
        return run_merge(task, **more)

    monkeypatch.setattr(DeltaMirrors, "worker", lambda _: broken)


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        pytest.param(HeldError("conflict", "two changes"), "conflict", "two changes", id="held"),
        pytest.param(
            UnreachableError("the lake is away"),
            "unreachable",
            "the lake is away",
            id="unreachable",
        ),
        pytest.param(ValueError("odd value"), "failed", "ValueError: odd value", id="unexpected"),
        pytest.param(KeyError(), "failed", "KeyError", id="unexpected, without a word"),
        pytest.param(UnreachableError(""), "unreachable", "UnreachableError", id="nothing said"),
        pytest.param(HeldError("odd", ""), "odd", "odd", id="held, without a word"),
    ],
)
def test_f34_a_turn_that_fails_holds_its_table_with_a_reason_and_no_other(
    lake: LocalLake,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
    detail: str,
) -> None:
    breaks(monkeypatch, "db.u", error)

    turns = {turn.table: turn for turn in lake.run()}

    hold = turns["db.u"].hold
    assert hold is not None
    assert (hold.id, hold.subject, hold.reason) == (f"{reason}:db.u", "db.u", reason)
    assert detail in hold.detail
    assert turns["db.u"].batch == -1
    assert {name: turns[name].hold for name in ("db.t", "db.v")} == {"db.t": None, "db.v": None}
    assert lake.rows("db.t") == lake.rows("db.v") == {1: "a"}


def test_f34_a_hold_that_goes_away_lets_the_table_go_on(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        breaks(patched, "db.u", RuntimeError("once"))
        lake.run()

    turns = {turn.table: turn.hold for turn in lake.run()}

    assert turns == {"db.u": None}
    assert lake.rows("db.u") == {1: "a"}


def test_what_ends_the_process_is_nobodys_refusal(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, "db.t", KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        lake.run()


def test_a_file_of_the_change_log_that_is_damaged_holds_those_who_need_it_and_no_other(
    lake: LocalLake,
) -> None:
    """One of the two batches that are waiting cannot be read."""
    lake.land(row(C, 20, 2, "b"))
    lake.log.look()
    name = next(part.path for part in find_parts(lake.log.snapshot, 0, 1, (C,)) if part.rows == 1)
    file = Path(lake.settings.changes, name)
    file.write_bytes(file.read_bytes()[:-50])

    turns = {turn.table: turn for turn in lake.run()}

    hold = turns["db.t"].hold
    assert_held(hold, "file_damaged", name)
    assert {name: turns[name].hold for name in ("db.u", "db.v")} == {"db.u": None, "db.v": None}
    assert lake.rows("db.u") == {1: "a"}


def jobs(lake: LocalLake, monkeypatch: pytest.MonkeyPatch) -> JobGroup:
    """The group that the next pass would run."""
    found: list[JobGroup] = []

    def noted(group: JobGroup) -> dict[str, Any]:
        found.append(group)
        return {one.name: merge_job.MergeOutcome(MergeFailure("noted", "x")) for one in group.jobs}

    with monkeypatch.context() as patched:
        patched.setattr("pipeline.apply.merge_job.run_group", noted)
        lake.now = lake.now.replace(year=lake.now.year + 1)
        lake.runner.run(LandedState(lake.checkpoint, lake.catalog), MergeRequest())
    return found[0]


def test_an_outcome_names_the_topics_that_the_changes_came_in(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = run_group(jobs(lake, monkeypatch))

    assert {name: set(one.topics) for name, one in outcomes.items()} == {
        name: {f"s.{name}"} for name in TABLES
    }
    assert all(isinstance(one.result, MergeResult) for one in outcomes.values())


def test_a_table_without_a_change_in_its_slice_has_a_turn_all_the_same(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.checkpoint = replace(lake.checkpoint, tables={**lake.checkpoint.tables, "db.v": 0})
    lake.land()
    group = jobs(lake, monkeypatch)
    idle = [replace(one, wanted=replace(one.wanted, after=0, until=1)) for one in group.jobs]

    outcomes = run_group(replace(group, jobs=tuple(idle)))

    assert outcomes.keys() == {one.name for one in idle}
    assert "db.v" in outcomes
    for one in outcomes.values():
        assert isinstance(one.result, MergeResult)
        assert (one.topics, one.result.account.read) == (frozenset(), 0)


def test_a_landed_delete_is_found_for_its_keys_up_to_the_batch_that_is_applied(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(row(D, 20, 1, "a"), row(D, 21, 7, "b"))
    lake.land(row(D, 30, 2, "c"))
    lake.run()
    land_in_all(lake, 40, 8)
    (one,) = [e for e in jobs(lake, monkeypatch).jobs if e.name == "db.t"]
    keys = ['["s","db.t","1"]', '["s","db.t","2"]', '["s","db.t","9"]']

    assert isinstance(one.task.deletes, merge_job.LandedDeletes)
    found = replace(one.task.deletes, until=1)(pa.array(keys))

    assert [(r["key"], r["order"]["pos"]) for r in found.to_pylist()] == [(keys[0], 20)]
    assert found.column_names == list(merge_job.DELETE_COLUMNS)


@pytest.mark.parametrize(
    ("tables", "count", "sizes"),
    [
        pytest.param(7, 3, [3, 3, 1], id="about equal"),
        pytest.param(2, 8, [1, 1], id="never an empty one"),
        pytest.param(3, 1, [3], id="one"),
        pytest.param(3, 0, [3], id="at least one"),
        pytest.param(0, 4, [], id="nothing to do"),
    ],
)
def test_a_group_is_cut_into_neighbours(tables: int, count: int, sizes: list[int]) -> None:
    names = [f"t{n}" for n in range(tables)]
    made = tuple(_job(name) for name in reversed(names))
    group = JobGroup("changes", (), made, run_merge)

    found = split_group(group, count)

    assert [len(one.jobs) for one in found] == sizes
    assert [one.name for part in found for one in part.jobs] == names
    assert {one.changes for one in found} <= {"changes"}


def _job(name: str) -> MergeJob[Any]:
    nothing: Any = None
    task = MergeTask(Table(name, ()), nothing, (), nothing, nothing, nothing)
    return MergeJob(task, nothing)


@pytest.mark.parametrize(
    ("together", "portions"),
    [
        pytest.param(100, [{*TABLES}], id="few rows are read once for all"),
        pytest.param(0, [{"db.t"}, {"db.u"}, {"db.v"}], id="many are read mirror by mirror"),
    ],
)
def test_a_group_holds_no_more_rows_at_once_than_memory_has(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch, together: int, portions: list[set[str]]
) -> None:
    asked: list[set[str]] = []

    def told(
        store: Store, files: Sequence[Part], wanted: Mapping[str, WantedBatches], **more: Any
    ) -> Any:
        asked.append({*wanted})
        return read_tables(store, files, wanted, **more)

    monkeypatch.setattr(merge_job, "TOGETHER", together)
    monkeypatch.setattr(merge_job, "read_tables", told)

    lake.run()

    assert asked == portions
    assert lake.rows("db.t") == lake.rows("db.u") == lake.rows("db.v") == {1: "a"}


NAMES = ("db.t", "db.u", "db.v", "db.w")


class Workers:
    """They die over the tables of *fatal*, and with them their job."""

    def __init__(self, *fatal: str) -> None:
        self.fatal, self.jobs = set(fatal), list[int]()

    def __call__(self, groups: Sequence[JobGroup]) -> list[Outcomes]:
        self.jobs.append(sum(len(group.jobs) for group in groups))
        if self.fatal & {job.name for group in groups for job in group.jobs}:
            raise UnreachableError("a worker died")
        return [run_group(group) for group in groups]


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalLake:
    monkeypatch.setattr(merge_job, "HERE", -1)
    monkeypatch.setattr(merge_job, "GROUPS", 1)
    return LocalLake(tmp_path, others=NAMES[1:])


def turned(wide: LocalLake, pos: int, workers: Workers) -> dict[str, Hold | None]:
    """A change of each table, and what its turn came to."""
    wide.runner.parallel.spread = workers
    more = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    wide.land(*(row(Op.CREATE, pos, pos, "x") | more[name] for name in NAMES))
    return {turn.table: turn.hold for turn in wide.run()}


def test_a_mirror_that_ends_its_worker_ends_no_other_mirrors_turn(wide: LocalLake) -> None:
    first = turned(wide, 10, Workers("db.u"))

    assert first["db.u"] is not None
    assert (first["db.u"].reason, first["db.u"].detail) == ("unreachable", "a worker died")
    assert [first[name] for name in NAMES if name != "db.u"] == [None] * 3


def test_it_is_run_by_itself_until_it_comes_through(wide: LocalLake) -> None:
    turned(wide, 10, Workers("db.u"))
    dies, lives, after = Workers("db.u"), Workers(), Workers()

    turned(wide, 20, dies)
    turned(wide, 30, lives)
    turned(wide, 40, after)

    assert (dies.jobs, lives.jobs, after.jobs) == ([3, 1], [3, 1], [4])
    assert wide.rows("db.u") == dict.fromkeys((10, 20, 30, 40), "x")


def test_workers_that_die_over_all_of_them_are_nobodys_fault(wide: LocalLake) -> None:
    with pytest.raises(UnreachableError, match="a worker died"):
        turned(wide, 10, Workers(*NAMES))


def test_the_rows_of_other_tables_send_no_turn_to_a_worker(
    wide: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 4)
    other = {"table": "db.w", "shard": "db.w", "topic": "s.db.w"}
    wide.land(row(Op.CREATE, 1, 1, "x"), *(row(Op.CREATE, n, n) | other for n in range(1, 30)))
    wide.runner.parallel.spread = workers = Workers()

    turns = wide.run(paused={"db.w"})

    assert [(turn.table, turn.hold) for turn in turns] == [("db.t", None)]
    assert (workers.jobs, wide.rows()) == ([], {1: "x"})
    wide.run()
    assert workers.jobs == [1]


@pytest.mark.parametrize("rows", [30, 3], ids=["one_of_most_changes", "all_alike"])
def test_a_large_table_beside_small_ones_costs_each_of_these_no_turn(
    wide: LocalLake, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """What is small is committed before the large one's turn is begun."""
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    more = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    small = (row(Op.CREATE, 100, 100, "x") | more[name] for name in NAMES[:3])
    wide.land(*small, *(row(Op.CREATE, n, n, "x") | more["db.w"] for n in range(1, rows)))
    committed: list[list[str]] = []

    def spread(groups: Sequence[JobGroup]) -> list[Outcomes]:
        if any(job.name == "db.w" for group in groups for job in group.jobs):
            mirrors = wide.runner.mirrors
            committed.append([name for name in NAMES if (mirrors.applied(name)) >= 0])
        return [run_group(group) for group in groups]

    wide.runner.parallel.spread = spread

    done = [turn.table for turn in wide.run()]

    assert sorted(done) == [*NAMES]
    assert committed == ([[*NAMES[:3]]] if rows == 30 else [])
    assert len(wide.rows("db.w")) == rows - 1


def test_a_large_table_that_cannot_be_run_takes_no_other_turn_back(
    wide: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    other = {"table": "db.w", "shard": "db.w", "topic": "s.db.w"}
    wide.land(row(Op.CREATE, 100, 1, "x"), *(row(Op.CREATE, n, n) | other for n in range(1, 30)))
    wide.runner.parallel.spread = Workers("db.w")

    holds = {turn.table: turn.hold for turn in wide.run()}

    assert holds["db.t"] is None
    assert_held(holds["db.w"], "unreachable")


def test_all_others_that_cannot_be_run_take_no_turn_from_a_large_table(
    wide: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a worker that dies over the only other mirror nobody knows yet whose fault it is."""
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    of = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    some = (row(Op.CREATE, n, n, "x") | of["db.u"] for n in range(1, 16))
    wide.land(*some, *(row(Op.CREATE, n, n, "x") | of["db.w"] for n in range(1, 91)))
    wide.runner.parallel.spread = Workers("db.u")

    for _ in range(2):
        holds = {turn.table: turn.hold for turn in wide.run()}
        assert holds["db.u"] is not None

    assert len(wide.rows("db.w")) == 90
