"""A turn in more commits than one, as another engine makes it, and what comes between them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.merge import MergeResult
from pipeline.apply.merge_job import MergeJob, early_floors
from pipeline.apply.mirror import CommitStamp, floors_of, floors_property, following_note
from pipeline.delta.actions import with_properties
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import Snapshot
from pipeline.errors import UnreachableError
from pipeline.model import Op, Order, Shard
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import row
from tests.pipeline.apply.renames import SHADOW, C, Renames, U

T = Shard("s", "db.t")


@dataclass(eq=False)
class InTwo(DeltaMirrors):
    """Tells floors first; the rows of db.t's next turn, if it *fails*, never come."""

    fails: bool = False

    def commit(
        self, job: MergeJob[Snapshot], written: MergeResult[Any], stamp: CommitStamp
    ) -> Snapshot:
        if not self.fails or job.name != "db.t":
            return super().commit(job, written, stamp)
        self.fails = False
        first = with_properties(job.task.snapshot, floors_property(early_floors(job, written)))
        if first:
            told = following_note(job.task.snapshot, -1, stamp.lane)
            at, store = stamp.at, self.store(job.task.snapshot.uri)
            commit_actions(store, job.task.snapshot, first, operation="FIRST", clock=at, note=told)
        raise UnreachableError("the engine died")


@pytest.fixture
def told(tmp_path: Path) -> Renames:
    """A table, and a shadow beside it that is to take its place."""
    made = Renames(tmp_path)
    made.lake.table_format = InTwo(None)
    made.lake.reopen()
    made.begin()
    made.lake.apply()
    made.lake.land(*SHADOW)
    made.lake.table_format.fails = True
    return made


def test_rows_that_have_another_name_come_also_after_a_turn_that_came_to_its_floors_only(
    told: Renames,
) -> None:
    told.swap()
    told.lake.land(row(U, 110, 3, "after"), row(C, 111, 5, "five"))

    failed, again = told.apply(), told.apply()

    assert failed.hold is not None
    assert again.hold is None
    assert told.lake.rows() == {1: "changed", 3: "after", 5: "five"}


def test_what_a_truncate_leaves_is_remembered_before_its_rows_go(told: Renames) -> None:
    told.lake.land(row(Op.TRUNCATE, 100, None), row(C, 111, 5, "five"))

    told.apply()

    found = told.lake.runner.mirrors.look("db.t")
    assert found is not None
    assert floors_of(found) == {T: Order(1, 1, 100)}
    assert told.apply().hold is None
    assert told.lake.rows() == {5: "five"}
