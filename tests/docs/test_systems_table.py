"""Each feature and defect of the five systems has its row; the tests that it names exist."""

import re

from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "systems" / "README.md"
SYSTEMS = ("Ctrip", "Uber", "Weibo", "Liulishuo", "Robinhood")
TESTS = {
    found
    for path in (ROOT / "tests").rglob("test_*.py")
    for found in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.M)
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| feature") and not line.startswith("| id")
]


def test_a_row_names_tests_that_are_there_or_says_that_it_is_not() -> None:
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row[-1])

        assert len(row) in (3, 4), row[0]
        assert named or row[1].startswith("**not there**"), row[0]
        assert [one for one in named if one not in TESTS] == [], row[0]


def test_every_system_has_its_part() -> None:
    found = re.findall(r"^## (\w+)", PAGE.read_text(encoding="utf-8"), re.M)

    assert [one for one in found if one in SYSTEMS] == [*SYSTEMS]


def test_every_defect_has_a_named_regression() -> None:
    for number in range(1, 19):
        (row,) = [row for row in ROWS if row[0] == f"S{number}"]

        assert re.search(rf"`test_s{number:02d}_\w+`", row[-1]), row[0]
        assert any(one.startswith(f"test_s{number:02d}_") for one in TESTS), row[0]
