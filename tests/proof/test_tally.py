"""Decisions are counted, and too few or a false one fail the run."""

from pathlib import Path

import pytest

from tests.proof.tally import LEAST, MODEL, SERVERS, judged, report


@pytest.mark.parametrize(
    ("servers", "model", "false", "good"),
    [
        pytest.param(LEAST[SERVERS], LEAST[MODEL], [], True, id="enough"),
        pytest.param(LEAST[SERVERS] - 1, LEAST[MODEL], [], False, id="too few on servers"),
        pytest.param(LEAST[SERVERS], LEAST[MODEL] - 1, [], False, id="too few in the model"),
        pytest.param(LEAST[SERVERS], LEAST[MODEL], ["a row is late"], False, id="one is false"),
    ],
)
def test_what_was_judged_is_summed_up(
    tmp_path: Path, servers: int, model: int, false: list[str], good: bool
) -> None:
    path = tmp_path / "of" / "decisions.jsonl"
    judged(SERVERS, 1, [], path)
    assert judged(SERVERS, servers - 1, false, path) == false
    judged(MODEL, model, [], path)

    told, is_good = report(path)

    assert is_good is good
    assert told.startswith(f"{servers:,} decisions judged on real servers, {model:,} in the model")
    assert f"{len(false)} false" in told


def test_a_run_that_judged_nothing_is_not_good(tmp_path: Path) -> None:
    assert report(tmp_path / "none.jsonl")[1] is False
