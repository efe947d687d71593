"""Spark merges, and nobody notes it: the service dies, hears no answer, or another was quicker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from pipeline.apply.mirror import batch_of, floors_of, incarnation_of
from pipeline.changelog.table import build_app_id
from pipeline.model import Op, Order, Shard
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.two_writers import C, D, U, writers_of
from tests.pipeline.delta.disk import KilledError

pytestmark = pytest.mark.spark
FORGET, MERGE = "UNSET TBLPROPERTIES", "MERGE INTO"
FLOOR = {Shard("s", "db.t"): Order(1, 1, 30)}


@dataclass(eq=False)
class Ear:
    """What is asked of Spark, and what happens around the first statement with these ``words``."""

    words: str = "no statement"
    before: Callable[[], object] = lambda: None
    after: BaseException | None = None

    def struck(self, statement: str) -> bool:
        found = self.words in statement
        self.words = "no statement" if found else self.words
        return found


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    """Between our sessions and Spark, with nothing to do as yet."""
    made, ask = Ear(), SparkSession.sql

    def sql(session: SparkSession, statement: str, *rest: Any, **more: Any) -> Any:
        struck = made.struck(statement)
        if struck:
            made.before()
        answer = ask(session, statement, *rest, **more)
        if struck and made.after is not None:
            raise made.after
        return answer

    monkeypatch.setattr(SparkSession, "sql", sql)
    return made


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> LocalLake:
    """Four rows, merged in life 4; then a truncate, changes below and above it, in life 5."""
    made = LocalLake(tmp_path, table_format=writers_of("spark", spark))
    made.checkpoint = replace(made.checkpoint, incarnations={"0": 4, "1": 5})
    made.play([row(C, 10 + key, key, "a") for key in range(4)])
    made.land(
        *(row(U, 20, 0, "below"), row(Op.TRUNCATE, 30, None)),
        *(row(C, 40, 1, "b"), row(C, 41, 2, "b"), row(D, 42, 2, "b"), row(C, 43, 5, "b")),
    )
    return made


def merged(lake: LocalLake) -> list[int]:
    """Batches that commits of the mirror bear, oldest first."""
    found = lake.snapshot()
    commits = lake.runner.mirrors.commits("db.t", found.version)
    return [one.txns[build_app_id("main")] for one in commits if one.txns][::-1]


def merged_batches(lake: LocalLake, passes: int = 3) -> Iterator[tuple[int, int]]:
    """Batch and rows read of each turn that the next passes tell of; none may be held."""
    for turn in (turn for _ in range(passes) for turn in lake.run()):
        assert turn.hold is None, turn.hold
        if turn.account.read:  # or it only says that the table is free again
            yield turn.batch, turn.account.read


def right(lake: LocalLake) -> None:
    """The mirror after both batches, and that it takes a third."""
    assert lake.rows() == {1: "b", 5: "b"}
    assert merged(lake) == [0, 1]
    assert floors_of(lake.snapshot()) == FLOOR
    assert lake.play([row(U, 50, 1, "c"), row(C, 25, 7, "late")]) == {1: "c", 5: "b"}
    assert (batch_of(lake.snapshot(), "main"), incarnation_of(lake.snapshot())) == (2, 5)


@pytest.mark.parametrize("last", [FORGET, MERGE])
def test_a_service_that_dies_between_two_commits_of_a_turn_is_followed_by_one_that_knows_it(
    ear: Ear, lake: LocalLake, last: str
) -> None:
    ear.words, ear.after = last, KilledError()
    with pytest.raises(KilledError):
        lake.run()
    done = last == MERGE
    assert merged(lake) == ([0, 1] if done else [0])
    assert floors_of(lake.snapshot()) == FLOOR
    lake.reopen()

    found = list(merged_batches(lake))

    # a process tells of the last turn that it finds, whoever has told of it before
    assert found == ([(1, 6)] if done else [(0, 4), (1, 6)])
    right(lake)


def test_a_merge_without_an_answer_is_looked_up_and_told_once(ear: Ear, lake: LocalLake) -> None:
    ear.words, ear.after = MERGE, Py4JNetworkError("Answer from Java side is empty")
    (failed,) = lake.run()

    found = list(merged_batches(lake))

    assert failed.hold is not None
    assert failed.hold.reason == "unreachable"
    assert found == [(1, 6)]
    right(lake)


def test_a_batch_that_another_process_merges_meanwhile_is_merged_once(
    ear: Ear, lake: LocalLake, spark: SparkSession
) -> None:
    other = LocalLake(lake.home, table_format=writers_of("spark", spark))
    other.checkpoint, other.runner.highs = lake.checkpoint, lake.runner.highs
    theirs: list[tuple[int, int]] = []
    ear.words, ear.before = MERGE, lambda: theirs.extend(merged_batches(other))

    ours = list(merged_batches(lake))

    assert theirs == [(0, 4), (1, 6)]
    assert ours == [(1, 6)]
    right(lake)
