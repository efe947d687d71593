"""One mirror that fails is told of with a reason, and spoils no other of its group."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.apply import merge_job
from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge import MergeResult, MergeTask
from pipeline.apply.merge_job import JobGroup, MergeJob, run_group, split_group
from pipeline.apply.merge_run import MergeRequest
from pipeline.changelog.scan import Part, WantedBatches, parts, read
from pipeline.delta.store import Store
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Op, Table
from pipeline.reports import MergeFailure
from pipeline.tables.delta.merge import run_merge
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.pipeline.hand_lake import HandLake, row

C, D = Op.CREATE, Op.DELETE
TABLES = ("db.t", "db.u", "db.v")


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    """A change of each of three tables has landed."""
    made = HandLake(tmp_path, others=TABLES[1:])
    land(made, 10, 1)
    return made


def land(lake: HandLake, pos: int, key: int) -> None:
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
    lake: HandLake,
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
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        breaks(patched, "db.u", RuntimeError("once"))
        lake.run()

    turns = {turn.table: turn.hold for turn in lake.run()}

    assert turns == {"db.u": None}
    assert lake.rows("db.u") == {1: "a"}


def test_a_long_error_is_cut_to_what_a_person_reads(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, "db.t", RuntimeError("x" * 10_000))

    (hold,) = [turn.hold for turn in lake.run() if turn.hold is not None]

    assert len(hold.detail) == 500


def test_what_ends_the_process_is_nobodys_refusal(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, "db.t", KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        lake.run()


def test_a_file_of_the_change_log_that_is_damaged_holds_those_who_need_it_and_no_other(
    lake: HandLake,
) -> None:
    """One of the two batches that are waiting cannot be read."""
    lake.land(row(C, 20, 2, "b"))
    lake.log.look()
    name = next(part.path for part in parts(lake.log.snapshot, 0, 1, (C,)) if part.rows == 1)
    file = Path(lake.settings.changes, name)
    file.write_bytes(file.read_bytes()[:-50])

    turns = {turn.table: turn for turn in lake.run()}

    hold = turns["db.t"].hold
    assert hold is not None
    assert hold.reason == "file_damaged"
    assert name in hold.detail
    assert {name: turns[name].hold for name in ("db.u", "db.v")} == {"db.u": None, "db.v": None}
    assert lake.rows("db.u") == {1: "a"}


def jobs(lake: HandLake, monkeypatch: pytest.MonkeyPatch) -> JobGroup:
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
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = run_group(jobs(lake, monkeypatch))

    assert {name: set(one.topics) for name, one in outcomes.items()} == {
        name: {f"s.{name}"} for name in TABLES
    }
    assert all(isinstance(one.result, MergeResult) for one in outcomes.values())


def test_a_table_without_a_change_in_its_slice_has_a_turn_all_the_same(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.checkpoint = replace(lake.checkpoint, tables={**lake.checkpoint.tables, "db.v": 0})
    lake.land()
    group = jobs(lake, monkeypatch)
    idle = [replace(one, wanted=replace(one.wanted, after=0, until=1)) for one in group.jobs]

    outcomes = run_group(replace(group, jobs=tuple(idle)))

    for one in outcomes.values():
        assert isinstance(one.result, MergeResult)
        assert (one.topics, one.result.account.read) == (frozenset(), 0)


def test_a_landed_delete_is_found_for_its_keys_up_to_the_batch_that_is_applied(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land(row(D, 20, 1, "a"), row(D, 21, 7, "b"))
    lake.land(row(D, 30, 2, "c"))
    lake.run()
    land(lake, 40, 8)
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
    lake: HandLake, monkeypatch: pytest.MonkeyPatch, together: int, portions: list[set[str]]
) -> None:
    asked: list[set[str]] = []

    def told(
        store: Store, files: Sequence[Part], wanted: Mapping[str, WantedBatches], **more: Any
    ) -> Any:
        asked.append({*wanted})
        return read(store, files, wanted, **more)

    monkeypatch.setattr(merge_job, "TOGETHER", together)
    monkeypatch.setattr(merge_job, "read", told)

    lake.run()

    assert asked == portions
    assert lake.rows("db.t") == lake.rows("db.u") == lake.rows("db.v") == {1: "a"}
