"""Which mirrors continue the one that a check has compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from checks.mirror_state import MirrorState, follow_mirror
from checks.world import MirrorSide, World
from pipeline.apply.mirror import Commit
from pipeline.errors import ProofError
from pipeline.model import Table
from pipeline.settings import PipelineSettings
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.change_log import commit_properties
from tests.checks.world_fake import TABLE, FakeWorld


def compared() -> tuple[FakeWorld, MirrorState]:
    world = FakeWorld()
    for _ in range(5):
        world.catch_up()
        world.mirror(TABLE)
    return world, follow_mirror(TABLE, world, None)[0]


def test_commits_of_sluice_continue_a_mirror() -> None:
    world, known = compared()
    for _ in range(20):
        world.catch_up()
        state, why = follow_mirror(TABLE, world, known)
        assert (why, MirrorState.loads(state.dumps())) == ("", state)
        known = state


def test_a_foreign_commit_ends_what_was_compared_before_it_only() -> None:
    world, known = compared()
    world.foreign.add(known.version + 1)

    after, why = follow_mirror(TABLE, world, known)

    assert why == f"version {known.version + 1} of the mirror is not Sluice's, and was not compared"
    assert follow_mirror(TABLE, world, after)[1] == ""


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param({"id": "before"}, "another table", id="recreated"),
        pytest.param({"version": 900}, "again, and was compared at version 900", id="put back"),
        pytest.param({"batch": 900}, "again, and was compared", id="put back with its batch"),
        pytest.param({"entry": "x"}, "put back behind version", id="merged again"),
    ],
)
def test_another_mirror_does_not_continue_it(other: dict[str, Any], why: str) -> None:
    world, known = compared()

    state, told = follow_mirror(TABLE, world, replace(known, **other))

    assert why in told
    assert follow_mirror(TABLE, world, state)[1] == ""


@pytest.mark.parametrize(
    ("version", "batch", "older"),
    [(0, 0, False), (1, 1, False), (-1, 0, True), (-1, 1, True), (0, -1, True), (1, -1, True)],
)
def test_a_mirror_is_put_back_if_its_version_or_its_batch_is_older(
    version: int, batch: int, *, older: bool
) -> None:
    """*version* and *batch* are those of the mirror, counted from the known ones."""
    world, state = compared()
    before = state.version - version
    known = MirrorState(state.id, before, state.batch - batch, f"entry {before}")
    world.versions.pop()  # the next look pins the same version

    assert bool(follow_mirror(TABLE, world, known)[1]) is older


def test_a_mirror_whose_commits_are_gone_was_compared_once_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, known = compared()
    with monkeypatch.context() as cleaned:
        cleaned.setattr(FakeWorld, "mirror_commits", raise_proof_error)
        state, why = follow_mirror(TABLE, world, known)

    assert "is no longer in its log" in why
    assert follow_mirror(TABLE, world, state)[1] == ""


def raise_proof_error(*_: object) -> None:
    raise ProofError("version 3 of mirror shop.orders is no longer in its log")


@pytest.mark.parametrize("stored", [None, [3, 7], []])
def test_a_memory_of_an_earlier_version_names_no_mirror(stored: list[str | int] | None) -> None:
    assert MirrorState.loads(stored) is None


class DeltaWorld:
    """The mirror of a table in a real lake."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake(PipelineSettings(str(folder), "", ()), DeltaMirrors(None))
        self.path = self.lake.settings.mirror(TABLE.name)
        self.batch = -1

    def mirror(self, table: Table) -> MirrorSide:
        return self.lake.mirror(table)

    def mirror_commits(self, table: Table, since: int) -> Sequence[Commit]:
        return self.lake.history(table.name, since)

    def merge(self, **more: Any) -> None:
        """The next batch, as Sluice commits it."""
        self.batch += 1
        note = f'{{"sluice": {{"after": {self.batch - 1}, "batch": {self.batch}}}}}'
        rows: pa.Table = pa.table({"id": [self.batch]} | more)
        own = commit_properties(self.batch, note)
        write_deltalake(self.path, rows, mode="append", schema_mode="merge", commit_properties=own)

    def follow(self, known: MirrorState | None) -> tuple[MirrorState, str]:
        return follow_mirror(TABLE, cast(World, self), known)


@pytest.fixture
def delta(tmp_path: Path) -> DeltaWorld:
    world = DeltaWorld(tmp_path / "lake")
    for _ in range(3):
        world.merge()
    return world


def test_merges_new_columns_and_maintenance_continue_a_delta_mirror(delta: DeltaWorld) -> None:
    known = delta.follow(None)[0]
    delta.merge()
    delta.merge(more=["a new column"])
    merged, after_merges = delta.follow(known)
    DeltaTable(delta.path).optimize.compact()
    DeltaTable(delta.path).vacuum(0, enforce_retention_duration=False, dry_run=False)

    assert (after_merges, merged.batch, bool(merged.entry)) == ("", 4, True)
    assert [delta.follow(one)[1] for one in (known, merged)] == ["", ""]


def delete_row(delta: DeltaWorld) -> None:
    DeltaTable(delta.path).delete("id = 1")


def restore_version(delta: DeltaWorld) -> None:
    DeltaTable(delta.path).restore(1)


def recreate(delta: DeltaWorld) -> None:
    rmtree(delta.path)
    delta.batch = -1
    for _ in range(3):
        delta.merge()


def put_back_and_merge(delta: DeltaWorld) -> None:
    """Version and batch are the same again."""
    saved = f"{delta.path}.saved"
    copytree(delta.path, saved)
    (Path(saved) / "_delta_log" / f"{2:020d}.json").unlink()
    rmtree(delta.path)
    copytree(saved, delta.path)
    delta.batch = 1
    delta.merge()


@pytest.mark.parametrize("alter", [delete_row, restore_version, recreate, put_back_and_merge])
def test_other_writers_and_put_back_logs_end_what_was_compared_of_a_delta_mirror(
    delta: DeltaWorld, alter: Any
) -> None:
    known = delta.follow(None)[0]
    alter(delta)

    state, why = delta.follow(known)

    assert why
    assert (state.version, bool(state.entry)) == (delta.mirror(TABLE).version, True)
    assert delta.follow(state) == (state, "")
