"""Every scenario of passes and turns runs through, as small as can be."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench import passes

THOROUGH = pytest.mark.thorough  # they take seconds: hundreds of commits, a process
TINY = passes.Size(
    mirrors=25, rows=40, changed=10, large=300, grown=16_000, huge=500, turned=20, commits=20
)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        pytest.param(
            passes.commits, "2 small turns up to the 20th", id="many commits", marks=THOROUGH
        ),
        pytest.param(
            passes.read,
            "1000 rows, uniform keys",
            id="a read after many turns",
            marks=pytest.mark.spark,
        ),
        pytest.param(
            passes.memory,
            "20 uniform keys in 500 rows",
            id="a process of its own",
            marks=THOROUGH,
        ),
    ],
)
def test_turns_of_one_mirror_are_told_of(
    what: passes.Scenario,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passes, "READS", 2)

    what(tmp_path / "lake", TINY)

    assert told in capsys.readouterr().out


@THOROUGH
def test_a_mirror_grows_by_fours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passes.grown(tmp_path / "lake", TINY)

    told = capsys.readouterr().out
    assert [n for n in (1_000, 4_000, 16_000) if f"keys in {n} rows" in told] == [
        1_000,
        4_000,
        16_000,
    ]


@pytest.mark.spark
@pytest.mark.parametrize("what", [passes.even, passes.skewed])
def test_a_pass_brings_every_mirror_up(
    what: passes.Scenario, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # the scenario takes up the session that is there

    what(tmp_path / "lake", TINY)

    assert "25 mirrors" in capsys.readouterr().out
