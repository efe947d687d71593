"""A row's lag ends with the first commit that holds it, whichever file of the log is seen first."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from bench.tiers import Stopwatch, p95, parse_top


def test_a_row_is_seen_with_the_first_commit_that_reaches_it() -> None:
    watch = Stopwatch(cast(Any, None), Path("log"))
    watch.written = {1: 10.0, 2: 11.0, 3: 12.0, 4: 20.0}
    watch.seen = {3: 15.0, 2: 13.0, 4: 21.0}

    assert watch.lags(10.0, 20.0) == [3.0, 2.0, 3.0]
    assert (watch.reached(4), watch.reached(5)) == (True, False)


@pytest.mark.parametrize(
    ("line", "top"),
    [
        pytest.param({"add": {"stats": json.dumps({"maxValues": {"id": 7}})}}, 7, id="a new file"),
        pytest.param({"add": {"stats": None}}, 0, id="one that tells nothing"),
        pytest.param({"remove": {"path": "x"}}, 0, id="one that goes"),
    ],
)
def test_the_highest_id_of_a_commit_is_read_from_its_files(line: dict[str, Any], top: int) -> None:
    assert parse_top(json.dumps(line)) == top


def test_one_row_in_twenty_may_take_longer() -> None:
    assert p95([1.0] * 95 + [9.0] * 5) == pytest.approx(1.0, abs=8.0)
    assert p95([1.0] * 99 + [9.0]) == 1.0
