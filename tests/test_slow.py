"""Slow tests are left out of `make check`, and of nothing else."""

from pathlib import Path

import pytest

from tests.slow import LIST, find_slow, mark_slow

REPORT = """\
............... [100%]
============ slowest durations ============
0.20s call     tests/a/test_b.py::test_one[x y]
0.10s setup    tests/a/test_b.py::test_one[x y]
0.20s call     tests/a/test_b.py::test_two
1.00s call     tests/a/test_c.py::TestWalk::runTest
3 passed in 1.50s
"""


def test_a_test_is_slow_by_its_slowest_case_with_its_set_up() -> None:
    assert find_slow(REPORT) == [
        "tests/a/test_b.py::test_one",
        "tests/a/test_c.py::TestWalk::runTest",
    ]


def test_a_listed_test_is_thorough_and_another_is_not(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "list.txt").write_text(f"{request.node.nodeid}\n")
    monkeypatch.setattr("tests.slow.LIST", tmp_path / "list.txt")
    assert request.node.get_closest_marker("thorough") is None

    mark_slow([request.node])

    assert request.node.get_closest_marker("thorough")


def test_most_of_the_listed_tests_exist() -> None:
    """Renamed ones are fast until `make slow` finds them again."""
    root, listed = LIST.parent.parent, LIST.read_text().split()
    gone = [
        name
        for name in listed
        if not (file := root / name.split("::")[0]).exists()
        or f"{name.split('::')[1]}" not in file.read_text()
    ]
    assert len(gone) < len(listed) / 4, gone
