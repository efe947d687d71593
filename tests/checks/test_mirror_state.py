"""Which mirrors continue the one that a check has compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from checks.mirror_state import MirrorState, MirrorTrail, follow_mirror
from checks.world import MirrorSide
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
        self.trails: dict[str, MirrorTrail] = {}
        self.read: list[int] = []  # versions whose log entries were read

    def mirror(self, table: Table) -> MirrorSide:
        return self.lake.mirror(table)

    def mirror_state(self, table: Table, _: MirrorState | None) -> MirrorState:
        found = self.lake.applied(table.name)
        assert found is not None
        return MirrorState(found.mirror, found.version, found.batch, found.entry)

    def mirror_commits(self, table: Table, since: int, until: int) -> Sequence[Commit]:
        found = self.lake.history(table.name, since, until)
        self.read += [one.version for one in found]
        return found

    def merge(self, **more: Any) -> None:
        """The next batch, as Sluice commits it."""
        self.batch += 1
        note = f'{{"sluice": {{"after": {self.batch - 1}, "batch": {self.batch}}}}}'
        rows: pa.Table = pa.table({"id": [self.batch]} | more)
        own = commit_properties(self.batch, note)
        write_deltalake(self.path, rows, mode="append", schema_mode="merge", commit_properties=own)

    def follow(self, known: MirrorState | None) -> tuple[MirrorState, str]:
        return follow_mirror(TABLE, self, known)


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


def put_back_and_merge(delta: DeltaWorld, version: int = 2) -> None:
    """Version and batch are the same again."""
    saved = f"{delta.path}.saved"
    copytree(delta.path, saved)
    (Path(saved) / "_delta_log" / f"{version:020d}.json").unlink()
    rmtree(delta.path)
    copytree(saved, delta.path)
    delta.batch = version - 1
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


def test_each_commit_is_read_once_while_a_check_waits(delta: DeltaWorld) -> None:
    """Each reading begins with the entry read last, which shows whether it was replaced."""
    known, other = delta.follow(None)[0], None
    most = 0
    for _ in range(6):
        delta.merge()
        delta.read.clear()
        state, why = delta.follow(known)
        assert delta.follow(known) == (state, why)
        other = other or state
        assert [delta.follow(other)[1], why] == ["", ""]
        most = max(most, len(delta.read))

    assert (known.version, state.version, most) == (2, 8, 2)


def test_a_foreign_commit_is_found_by_each_check_that_compared_earlier(delta: DeltaWorld) -> None:
    known = delta.follow(None)[0]
    delta.merge()
    other = delta.follow(known)[0]
    delete_row(delta)
    delta.merge()

    assert all("version 4 of the mirror" in delta.follow(one)[1] for one in (known, other, known))


def test_a_mirror_that_was_put_back_continues_what_was_compared_before_that(
    delta: DeltaWorld,
) -> None:
    known = delta.follow(None)[0]
    delta.merge()
    later = delta.follow(known)[0]
    put_back_and_merge(delta, later.version)
    delta.merge()

    assert [delta.follow(one)[1] for one in (known, known)] == ["", ""]
    assert "put back behind version 3" in delta.follow(later)[1]


def test_one_call_reads_some_commits_and_the_next_ones_read_on(
    delta: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checks.mirror_state.MOST", 2)
    known = delta.follow(None)[0]
    for _ in range(5):
        delta.merge()

    for left in (3, 1):
        with pytest.raises(ProofError, match=f"^{left} commits of mirror .* are not read yet"):
            delta.follow(known)
    assert delta.follow(known) == (delta.follow(None)[0], "")
    assert delta.read == [2, 3, 4, 4, 5, 6, 6, 7]


def clean_log(delta: DeltaWorld, until: int) -> None:
    """As Delta does after a month: the entries are in a checkpoint only."""
    DeltaTable(delta.path).create_checkpoint()
    for version in range(until + 1):
        (Path(delta.path) / "_delta_log" / f"{version:020d}.json").unlink()


def test_a_mirror_whose_compared_entry_was_cleaned_is_followed_by_the_next(
    delta: DeltaWorld,
) -> None:
    known = delta.follow(None)[0]
    delta.merge()
    delta.merge()
    clean_log(delta, known.version)

    assert delta.follow(known) == (delta.follow(None)[0], "")


@pytest.mark.parametrize("alter", [delete_row, DeltaWorld.merge])
def test_without_the_next_entry_of_sluice_a_cleaned_mirror_was_compared_once_only(
    delta: DeltaWorld, alter: Any
) -> None:
    known = delta.follow(None)[0]
    alter(delta)
    delta.merge()
    clean_log(delta, known.version + (alter is DeltaWorld.merge))

    state, why = delta.follow(known)

    assert "no longer in its log" in why
    assert delta.follow(state)[1] == ""
