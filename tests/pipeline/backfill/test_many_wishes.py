"""A thousand tables may be wished for at once: few are read at a time, and all have their turn."""

from pathlib import Path

import pytest

from pipeline.backfill import runner
from pipeline.backfill_state import BackfillRequest
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.format import Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.model import Shard
from tests.pipeline.backfill.test_bootstrap import WISH, Beside, Rows, harness_with_row

TABLES = tuple(f"db.t{number:03}" for number in range(40))


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    rows = Rows(50, there=tuple(Shard("a", name) for name in TABLES))
    return Beside(
        harness_with_row(tmp_path),
        rows,
        wishes=tuple(BackfillRequest(name, name) for name in TABLES),
    )


def turn(beside: Beside) -> list[str]:
    """One round; which are begun, as the mark knows them then."""
    beside.number += 1
    beside.rows.end += 5
    beside.harness.topics.write_heartbeat("a", beside.number, pos=beside.rows.end + 1)
    beside.harness.server.end = beside.rows.end = beside.rows.end + 5
    beside.states()
    beside.harness.land()
    return sorted(
        str(shard) for shard, one in beside.harness.checkpoint.backfills.items() if one.done is None
    )


def test_the_mark_remembers_few_at_a_time_and_the_others_wait_for_their_turn(
    beside: Beside,
) -> None:
    begun = [turn(beside) for _ in range(3)][-1]

    waiting = [one for one in beside.states() if one.why == runner.QUEUED]
    assert begun == [f"a/{name}" for name in TABLES[: runner.OPEN]]
    assert len(waiting) == len(TABLES) - runner.OPEN


def test_a_round_ends_in_time_and_the_next_begins_with_who_had_no_turn(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ROUND", -1.0)

    counts = [len(turn(beside)) for _ in range(4)]

    assert counts == [1, 2, 3, 4]


def test_sources_are_asked_for_tables_only_where_nothing_landed_tells_of_one(
    beside: Beside,
) -> None:
    beside.rows.there, beside.wishes = (), (WISH,)
    assert beside.states()[0].shard == "a/db.t"

    beside.wishes = (BackfillRequest("y", "db.nothing"),)

    assert beside.states()[0].why.startswith("no shard of db.nothing is known")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        pytest.param(
            CanalJson("UTC"), "changes of several partitions", id="no places, and no order"
        ),
        pytest.param(
            MaxwellJson(), "other texts than those of its collector", id="other spellings"
        ),
    ],
)
def test_rows_are_not_read_again_where_they_cannot_be_put_among_changes(
    tmp_path: Path, form: Format, why: str
) -> None:
    beside = Beside(harness_with_row(tmp_path), Rows(50))
    for feed in beside.again.feeds:
        feed.format = form

    (state,) = beside.states()

    assert why in state.why
    assert state.refused


def test_what_is_begun_anew_again_and_again_is_refused_and_says_why(tmp_path: Path) -> None:
    beside = Beside(harness_with_row(tmp_path), Rows(50))

    for _ in range(6 * runner.ANEW):
        beside.rows.end += 20
        beside.harness.topics.alter("a", beside.rows.end, "name", "note")
        state = beside.round()
        if state.refused:
            break

    assert f"db.t was started {runner.ANEW} times and never ended" in state.why
    assert "a statement came" in state.why
