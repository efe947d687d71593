"""Both writers in alternation, with all that is done to a table beside them: nobody loses a row."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.apply.random_merges import RandomTurns

pytestmark = pytest.mark.spark
EACH = ("optimize", "checkpoint", "clean", "vacuum", "restore", "keep_up", "spark_merge")


@pytest.mark.parametrize("seed", [1])
def test_sixty_random_turns_are_what_a_model_says_for_three_readers(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    turns = RandomTurns(spark, tmp_path, seed)

    for number in range(52):
        turns.play()
        if number == 30:
            turns.grow()
        if number % 10 == 9:
            turns.same(by_spark=False)
    for one in EACH:
        getattr(turns, one)()
        turns.same(by_spark=one in ("restore", "spark_merge"))


@pytest.mark.long
@pytest.mark.parametrize("seed", [7])
def test_a_thousand_random_turns_are_what_a_model_says_for_three_readers(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    turns = RandomTurns(spark, tmp_path, seed)

    for number in range(1_000):
        turns.play()
        if number % 300 == 150:
            turns.grow()
        if number % 5 == 4:
            turns.same(by_spark=number % 25 == 24)

    turns.same(by_spark=True)
    assert set(EACH) <= set(turns.done)
