"""pipeline/apply/merge_job.py over workers that die over one mirror."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.apply import merge_job
from pipeline.apply.merge_job import JobGroup, Outcomes, run_group
from pipeline.changelog import data_file
from pipeline.errors import UnreachableError
from pipeline.model import Op
from pipeline.reports import Hold
from tests.pipeline.hand_lake import HandLake, row

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
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandLake:
    monkeypatch.setattr(merge_job, "HERE", -1)
    monkeypatch.setattr(merge_job, "GROUPS", 1)
    return HandLake(tmp_path, others=NAMES[1:])


def turned(lake: HandLake, pos: int, workers: Workers) -> dict[str, Hold | None]:
    """A change of each table, and what its turn came to."""
    lake.runner.parallel.spread = workers
    more = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    lake.land(*(row(Op.CREATE, pos, pos, "x") | more[name] for name in NAMES))
    return {turn.table: turn.hold for turn in lake.run()}


def test_a_mirror_that_ends_its_worker_ends_no_other_mirrors_turn(lake: HandLake) -> None:
    first = turned(lake, 10, Workers("db.u"))

    assert first["db.u"] is not None
    assert (first["db.u"].reason, first["db.u"].detail) == ("unreachable", "a worker died")
    assert [first[name] for name in NAMES if name != "db.u"] == [None] * 3


def test_it_is_run_by_itself_until_it_comes_through(lake: HandLake) -> None:
    turned(lake, 10, Workers("db.u"))
    dies, lives, after = Workers("db.u"), Workers(), Workers()

    turned(lake, 20, dies)
    turned(lake, 30, lives)
    turned(lake, 40, after)

    assert (dies.jobs, lives.jobs, after.jobs) == ([3, 1], [3, 1], [4])
    assert lake.rows("db.u") == dict.fromkeys((10, 20, 30, 40), "x")


def test_workers_that_die_over_all_of_them_are_nobodys_fault(lake: HandLake) -> None:
    with pytest.raises(UnreachableError, match="a worker died"):
        turned(lake, 10, Workers(*NAMES))


def test_the_rows_of_other_tables_send_no_turn_to_a_worker(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 4)
    other = {"table": "db.w", "shard": "db.w", "topic": "s.db.w"}
    lake.land(row(Op.CREATE, 1, 1, "x"), *(row(Op.CREATE, n, n) | other for n in range(1, 30)))
    lake.runner.parallel.spread = workers = Workers()

    turns = lake.run(paused={"db.w"})

    assert [(turn.table, turn.hold) for turn in turns] == [("db.t", None)]
    assert (workers.jobs, lake.rows()) == ([], {1: "x"})
    lake.run()
    assert workers.jobs == [1]


@pytest.mark.parametrize("rows", [30, 3], ids=["one_of_most_changes", "all_alike"])
def test_a_large_table_beside_small_ones_costs_each_of_these_no_turn(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """What is small is committed before the large one's turn is begun."""
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    more = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    small = (row(Op.CREATE, 100, 100, "x") | more[name] for name in NAMES[:3])
    lake.land(*small, *(row(Op.CREATE, n, n, "x") | more["db.w"] for n in range(1, rows)))
    committed: list[list[str]] = []

    def spread(groups: Sequence[JobGroup]) -> list[Outcomes]:
        if any(job.name == "db.w" for group in groups for job in group.jobs):
            mirrors = lake.runner.mirrors
            committed.append([name for name in NAMES if (mirrors.applied(name)) >= 0])
        return [run_group(group) for group in groups]

    lake.runner.parallel.spread = spread

    done = [turn.table for turn in lake.run()]

    assert sorted(done) == [*NAMES]
    assert committed == ([[*NAMES[:3]]] if rows == 30 else [])
    assert len(lake.rows("db.w")) == rows - 1


def test_a_large_table_that_cannot_be_run_takes_no_other_turn_back(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    other = {"table": "db.w", "shard": "db.w", "topic": "s.db.w"}
    lake.land(row(Op.CREATE, 100, 1, "x"), *(row(Op.CREATE, n, n) | other for n in range(1, 30)))
    lake.runner.parallel.spread = Workers("db.w")

    holds = {turn.table: turn.hold for turn in lake.run()}

    assert holds["db.t"] is None
    assert holds["db.w"] is not None
    assert holds["db.w"].reason == "unreachable"


def test_all_others_that_cannot_be_run_take_no_turn_from_a_large_table(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a worker that dies over the only other mirror nobody knows yet whose fault it is."""
    monkeypatch.setattr(merge_job, "HERE", 10)
    monkeypatch.setattr(data_file, "GROUP", 1)
    of = {name: {"table": name, "shard": name, "topic": f"s.{name}"} for name in NAMES}
    some = (row(Op.CREATE, n, n, "x") | of["db.u"] for n in range(1, 16))
    lake.land(*some, *(row(Op.CREATE, n, n, "x") | of["db.w"] for n in range(1, 91)))
    lake.runner.parallel.spread = Workers("db.u")

    for _ in range(2):
        holds = {turn.table: turn.hold for turn in lake.run()}
        assert holds["db.u"] is not None

    assert len(lake.rows("db.w")) == 90
