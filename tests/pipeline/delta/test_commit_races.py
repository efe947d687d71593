"""pipeline/delta/commit.py, when many want the same version."""

from pathlib import Path

import pytest

from pipeline.delta.log import load_snapshot
from tests.pipeline.delta.racer import races
from tests.pipeline.delta.tables import Writer, found, queried


@pytest.mark.parametrize(
    ("racers", "rounds"),
    [
        pytest.param(4, 50, id="4 racers", marks=pytest.mark.thorough),
        pytest.param(8, 200, id="8 racers", marks=pytest.mark.long),
    ],
)
def test_every_version_has_one_winner_and_nothing_is_lost_or_doubled(
    tmp_path: Path, racers: int, rounds: int
) -> None:
    writer = Writer.make(tmp_path / "t")
    told = races(str(tmp_path / "t"), racers, rounds)

    snapshot = found(writer.store)

    won = sorted(tuple(one) for each in told for one in each["won"])
    assert [version for version, _ in won] == list(range(1, racers * rounds + 1))
    assert len({commit for _, commit in won}) == racers * rounds
    assert sum(each["lost"] for each in told) > 0  # else nobody raced
    assert snapshot.version == racers * rounds
    assert load_snapshot(writer.store, writer.snapshot) == snapshot
    assert snapshot.transactions == {f"racer:{me}": rounds - 1 for me in range(racers)}
    counted = queried(tmp_path / "t", "select count(*) n, count(distinct id) ids from t")
    assert counted == [{"n": racers * rounds, "ids": racers * rounds}]
    assert not [name for name in writer.store.after("_delta_log", "") if name.startswith(".")]
