"""Marks tests too slow for `make check`: those in slow_tests.txt, which `make slow` writes.

They are marked `thorough`, so `make test` runs them.  A test that is new or renamed counts as fast.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow_tests.txt")
MOST_SECONDS = 0.25
ALWAYS = ("tests/test_architecture.py", "tests/docs/", "tests/mutants/")
"""The rules of the house are held in each check, however long that takes."""
_DURATION = re.compile(r"([\d.]+)s (?:setup|call|teardown)\s+(\S.*)")


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark tests of the list as ``thorough``."""
    known = frozenset(LIST.read_text(encoding="utf-8").split())
    for item in items:
        if item.nodeid.partition("[")[0] in known:
            item.add_marker(pytest.mark.thorough)


def find_slow(report: str) -> list[str]:
    """Tests of which a case took more than ``MOST_SECONDS``, by pytest's *report* of durations."""
    cases = defaultdict[str, float](float)
    for seconds, name in _DURATION.findall(report):
        cases[name.strip()] += float(seconds)
    slow = {name.partition("[")[0] for name, took in cases.items() if took > MOST_SECONDS}
    return sorted(name for name in slow if not name.startswith(ALWAYS))


if __name__ == "__main__":
    found = find_slow(sys.stdin.read())
    if not found:
        sys.exit("slow: the report names no durations; run `make slow`")
    LIST.write_text("\n".join(found) + "\n", encoding="utf-8")
