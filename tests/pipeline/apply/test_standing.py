"""A process that begins judges a mirror by the commits that its log still tells."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.apply.standing import Standing
from pipeline.settings import PipelineSettings
from pipeline.tables import delta
from pipeline.tables.delta import DeltaLake
from tests.pipeline.lakes import commit_properties

NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(PipelineSettings(lake=str(tmp_path), kafka="", sources=()))


def commit(lake: DeltaLake, version: int, *, ours: bool = True) -> None:
    note = f'{{"sluice": {{"after": {version - 1}}}}}' if ours else ""
    rows = pa.table({"id": [version]})
    path, own = lake.settings.mirror("db.t"), commit_properties(version, note)
    write_deltalake(path, rows, mode="append", commit_properties=own)


def test_what_the_log_has_forgotten_holds_nothing_up(lake: DeltaLake) -> None:
    for version in range(4):
        commit(lake, version)
    path = lake.settings.mirror("db.t")
    DeltaTable(path).create_checkpoint()
    for version in range(2):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    standing = Standing(lake.history)

    before = standing.hold("db.t", NOBODY)
    commit(lake, 4, ours=False)
    after = standing.hold("db.t", NOBODY)

    assert before is None
    assert after is not None
    assert after.id == "foreign_write:db.t:4"
    assert "restore version 3" in after.detail


def test_a_foreign_commit_right_before_the_start_is_found(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "FIRST_LOOK", 2)
    for version in range(4):
        commit(lake, version)
    commit(lake, 4, ours=False)

    held = Standing(lake.history).hold("db.t", NOBODY)

    assert held is not None
    assert held.id == "foreign_write:db.t:4"
    assert "restore version 3" in held.detail


def test_no_more_is_read_at_the_start_than_the_newest_commits(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "FIRST_LOOK", 2)
    for version in range(4):
        commit(lake, version)

    assert [one.version for one in lake.history("db.t", None)] == [2, 3]


def test_a_mirror_that_is_not_there_stands_in_nobodys_way(lake: DeltaLake) -> None:
    standing = Standing(lake.history)

    assert standing.hold("db.t", NOBODY) is None
    commit(lake, 0)
    commit(lake, 1, ours=False)
    held = standing.hold("db.t", NOBODY)

    assert held is not None
    assert "restore version 0" in held.detail
