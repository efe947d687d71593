"""Each system's page is in one form, its config is read without a fault, and its tests exist."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from monitor.config.file import load_config
from monitor.config.model import Config
from monitor.config.sections import plugin_faults
from pipeline.build import collection_scope, open_collector
from pipeline.collectors.connect.findings import connector_findings
from pipeline.finding import NOTE
from tests.docs.markdown import ROOT, blocks, name

FOLDER = ROOT / "docs" / "systems"
SYSTEMS = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")  # of all five
FORM = [
    "Their design",
    "The same here",
    "What is better, and the test that shows it",
    "What falls short",
]
DEFINED = {
    found
    for path in (ROOT / "tests").rglob("test_*.py")
    for found in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.M)
}

every = pytest.mark.parametrize("page", SYSTEMS, ids=name)


@every
def test_a_page_says_what_is_the_same_what_is_better_and_what_falls_short(page: Path) -> None:
    found = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert found == FORM


@every
def test_its_config_is_what_check_config_calls_fine(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded(page, tmp_path, monkeypatch).sources


@every
def test_the_doctor_has_nothing_to_say_of_the_connector_that_its_config_asks_for(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(page, tmp_path, monkeypatch)
    for source in config.sources:
        with closing(open_collector(source, config.settings)) as collector:
            wanted = collector.registration(collection_scope(config.settings, source))
        if wanted is None:  # nobody has to set it up, or somebody else does
            assert source.transport == "files" or source.collector.kind == "heartbeats"
            continue

        found = connector_findings(wanted.wanted, "collector", source=source, worker=None)

        assert [one for one in found if one.severity is not NOTE] == []


@every
def test_every_test_that_it_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))

    assert named
    assert [one for one in sorted(named) if one not in DEFINED] == []


@every
def test_readme_and_architecture_lead_to_it(page: Path) -> None:
    for start, link in (
        (ROOT / "README.md", f"docs/systems/{page.name}"),
        (ROOT / "docs" / "architecture.md", f"systems/{page.name}"),
    ):
        assert f"({link})" in start.read_text(encoding="utf-8"), start.name


def loaded(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config that stands on *page*."""
    (text,) = blocks(page, "yaml")
    for variable in re.findall(r"\{env: (\w+)\}", text):
        monkeypatch.setenv(variable, "x")
    file = folder / "sluice.yaml"
    file.write_text(text, encoding="utf-8")
    return load_config(file, plugin_faults)


TABLE = ROOT / "docs" / "systems" / "README.md"
NAMES = ("Ctrip", "Uber", "Weibo", "Liulishuo", "Robinhood")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TABLE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| feature") and not line.startswith("| id")
]


def test_a_row_names_tests_that_are_there_or_says_that_it_is_not() -> None:
    for row in ROWS:
        named = re.findall(r"`(test_\w+)`", row[-1])

        assert len(row) in (3, 4), row[0]
        assert named or row[1].startswith("**not there**"), row[0]
        assert [one for one in named if one not in DEFINED] == [], row[0]


def test_every_system_has_its_part() -> None:
    found = re.findall(r"^## (\w+)", TABLE.read_text(encoding="utf-8"), re.M)

    assert [one for one in found if one in NAMES] == [*NAMES]


def test_every_defect_has_a_named_regression() -> None:
    for number in range(1, 19):
        (row,) = [row for row in ROWS if row[0] == f"S{number}"]

        assert re.search(rf"`test_s{number:02d}_\w+`", row[-1]), row[0]
        assert any(one.startswith(f"test_s{number:02d}_") for one in DEFINED), row[0]
