"""A turn that a process committed and did not outlive is told by the next one, once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.apply.merge_run import UnreportedMerges
from pipeline.apply.mirror import Commit
from pipeline.errors import UnreachableError
from pipeline.model import Op
from tests.pipeline.hand_lake import HandLake, row


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    lake = HandLake(tmp_path)
    lake.land(row(Op.CREATE, 10, 1, "a"), row(Op.CREATE, 11, 2, "b"))
    lake.apply()
    return lake


def untold(lake: HandLake) -> UnreportedMerges:
    """What a process that has told nothing yet knows."""
    lake.runner.mirrors.look("db.t")
    return UnreportedMerges(lake.runner.mirrors, lake.runner.watch, lambda: lake.now)


def told(found: UnreportedMerges) -> list[tuple[str, int, int]]:
    return [(one.table, one.batch, one.account.applied) for one in found.turns(["db.t", "db.u"])]


def test_the_newest_turn_of_each_mirror_is_told_once(lake: HandLake) -> None:
    found = untold(lake)

    assert told(found) == [("db.t", 0, 2)]
    assert told(found) == []


def test_a_turn_that_was_told_by_who_made_it_is_not_told_again(lake: HandLake) -> None:
    found = untold(lake)

    found.note_reported("db.t")

    assert told(found) == []


def test_a_mirror_that_does_not_answer_is_asked_again_and_keeps_no_other_from_being_told(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = untold(lake)
    commits = lake.runner.mirrors.commits

    def silent(table: str, until: int) -> Iterator[Commit]:
        raise UnreachableError(f"{table} at {until}")

    monkeypatch.setattr(lake.runner.mirrors, "commits", silent)
    while_silent = told(found)
    monkeypatch.setattr(lake.runner.mirrors, "commits", commits)

    assert while_silent == []
    assert told(found) == [("db.t", 0, 2)]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        pytest.param(0, [("db.t", 0, 2)], id="it was committed"),
        pytest.param(1, [], id="it was not: its turn comes again"),
    ],
)
def test_a_commit_without_an_answer_is_told_if_it_was_made(
    lake: HandLake, batch: int, expected: list[tuple[str, int, int]]
) -> None:
    found = untold(lake)
    found.note_reported("db.t")

    found.note_unanswered("db.t", batch)
    found.settle()

    assert told(found) == expected


def test_while_the_mirror_cannot_be_looked_at_the_answer_waits(lake: HandLake) -> None:
    found, log = untold(lake), Path(lake.settings.mirror("db.t"), "_delta_log")
    found.note_reported("db.t")
    found.note_unanswered("db.t", 0)
    away = log.rename(log.with_name("away"))
    log.write_text("no folder")

    found.settle()
    waiting = told(found)
    log.unlink()
    away.rename(log)
    found.settle()

    assert waiting == []
    assert told(found) == [("db.t", 0, 2)]
