"""Contenders take turns, and a ratio is made within a round."""

import pytest

from bench.kit.rounds import Contender, compete, report, speed, under_load


def test_each_contender_goes_first_by_rotation() -> None:
    order: list[tuple[int, str]] = []
    contenders = [
        Contender("a", lambda number: order.append((number, "a"))),
        Contender("b", lambda number: order.append((number, "b"))),
    ]

    times = compete(contenders, 2, lambda _: None)

    assert order == [(0, "a"), (0, "b"), (1, "b"), (1, "a")]
    assert {name: len(spent) for name, spent in times.items()} == {"a": 2, "b": 2}


def test_no_round_counts_whose_results_differ() -> None:
    def differ(_: int) -> None:
        raise AssertionError("results differ")

    with pytest.raises(AssertionError, match="results differ"):
        compete([Contender("a", lambda _: None)], 1, differ)


def test_a_ratio_is_the_median_of_those_within_rounds() -> None:
    assert speed({"ours": [1.0, 10.0, 1.0], "theirs": [2.0, 40.0, 3.0]}, "ours", "theirs") == 3


def test_a_report_tells_how_busy_the_machine_was(capsys: pytest.CaptureFixture[str]) -> None:
    report("a race", {"a": [2.0], "b": [1.0]}, "a", 1.5)

    told = capsys.readouterr().out.splitlines()

    assert told[0].startswith("a race; load ")
    assert told[2].split()[:5] == ["b", "1.00", "s", "2.00", "x"]
    assert "cores" in under_load()
