"""A topic whose beginning was deleted before it was first read, landed whole; covers bases."""

from pathlib import Path

import pytest

from tests.pipeline.landing.desk import Desk


@pytest.mark.parametrize(("deleted", "based"), [(0, True), (1, False), (4, False)])
def test_a_snapshot_whose_first_rows_were_deleted_before_they_were_landed_is_no_base(
    tmp_path: Path, deleted: int, *, based: bool
) -> None:
    desk = Desk(tmp_path)
    desk.topics.beat("a", 1, pos=50)
    desk.topics.snapshot("a", 100, 4)
    desk.topics.deleted["a.db.t"] = deleted
    desk.topics.put("a", 200, "later")
    desk.land()
    assert (desk.loop.checkpoint.bases != {}) is based

    desk.topics.snapshot("a", 300, 4)
    desk.topics.put("a", 400, "last")
    desk.land()

    assert desk.loop.checkpoint.bases["a/db.t"].pos == 300
    assert not desk.loop.checkpoint.snaps
