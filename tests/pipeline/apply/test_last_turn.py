import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.apply import foreign
from pipeline.apply.account import Counted
from pipeline.apply.last_turn import LastTurn, last_turn, told
from pipeline.lake.commits import Commit

AT = datetime(2026, 1, 2, tzinfo=UTC)
COUNTED = Counted(read=3, rows=3, kept=2, distinct=3, ordered=0, tombstones=0, quarantined=0)
MERGED = {
    "numTargetRowsInserted": "1",
    "numTargetRowsUpdated": "1",
    "numTargetRowsDeleted": "0",
    "numSourceRows": "9",
}


def commit(version: int, more: Any = None, metrics: Any = None) -> Commit:
    note = json.loads(foreign.note(version - 1, 7, "main", more))
    return Commit(version, "MERGE", AT, note=note, metrics=metrics or {})


TURN = commit(5, told(4, COUNTED), MERGED)


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        pytest.param([], None, id="a mirror that was never merged"),
        pytest.param([TURN], LastTurn(7, 4, 4, COUNTED, 2), id="what it counted and what it did"),
        pytest.param([commit(6), TURN], LastTurn(7, 4, 4, COUNTED, 2), id="a note came after it"),
        pytest.param([commit(6)], None, id="a note is no turn"),
        pytest.param([Commit(6, "DELETE", AT)], None, id="somebody else's"),
    ],
)
def test_the_newest_turn_is_read_from_its_own_commit(
    commits: list[Commit], found: LastTurn | None
) -> None:
    assert last_turn(commits) == found


@pytest.mark.parametrize(
    ("applied", "vanished", "explained"),
    [
        pytest.param(2, 0, True, id="every kept change did something"),
        pytest.param(1, 1, True, id="one created and deleted in the slice"),
        pytest.param(1, 0, False, id="one did nothing: older, or lost"),
        pytest.param(3, 0, False, id="more than there were"),
    ],
)
def test_a_turn_that_did_all_it_counted_explains_itself(
    applied: int, vanished: int, explained: bool
) -> None:
    counted = Counted(3, 3, 2, 3, 0, 0, 0, vanished)

    assert LastTurn(7, 4, 4, counted, applied).explained is explained
