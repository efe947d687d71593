"""The reference pages say what the code says; ``python -m docs.generate`` writes them."""

import ast
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from checks import reason_codes
from docs.generate import HERE, PAGES, holds, undescribed
from monitor.__main__ import sluice
from monitor.web.metrics import METRICS
from tests.docs.markdown import ROOT, first_cells


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_as_the_code_says(name: str) -> None:
    text = (HERE / name).read_text(encoding="utf-8")

    assert text == PAGES[name](), "run python -m docs.generate"


def test_no_page_is_there_that_is_not_generated() -> None:
    assert {path.name for path in HERE.glob("*.md")} == PAGES.keys()


def test_every_key_of_the_config_says_what_it_does() -> None:
    assert undescribed() == []


def test_every_option_of_the_command_line_says_what_it_does() -> None:
    text = (HERE / "cli.md").read_text(encoding="utf-8")
    empty = [row for row in first_cells(HERE / "cli.md") if row[0].startswith("--") and not row[-1]]

    assert isinstance(sluice, click.Group)
    assert [
        verb
        for verb in sluice.list_commands(click.Context(sluice))
        if f"## sluice {verb}\n" not in text
    ] == []
    assert empty == []


def test_the_usage_on_the_page_is_that_of_help() -> None:
    text = (HERE / "cli.md").read_text(encoding="utf-8")

    told = CliRunner().invoke(sluice, ["gate", "--help"], prog_name="sluice").output

    usage = told.partition("Usage: ")[2].partition("\n")[0]
    assert usage in text


def test_every_metric_is_on_the_page_once() -> None:
    shown = [row[0] for row in first_cells(HERE / "metrics.md")]

    assert {one.name for one in METRICS} <= {*shown}
    assert [name for name in {*shown} - {"metric"} if shown.count(name) > 1] == []


def test_every_code_that_the_code_names_has_a_meaning() -> None:
    named = dict(_codes())
    known = {code.strip("`") for code, *_ in holds()} | reason_codes.READINESS.keys()

    assert named["Reason"] - known == set()
    checked = named["Ruling"] | named["Undecided"] | {*_chosen_codes()}
    assert checked - reason_codes.CHECKS.keys() == set()


def test_no_code_has_a_meaning_that_nothing_names() -> None:
    texts = {
        str(node.value)
        for folder in ("checks", "alerts", "monitor", "pipeline")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "reason_codes.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert {*reason_codes.READINESS, *reason_codes.CHECKS} - texts == set()


def _chosen_codes() -> Iterator[str]:
    """Codes that a check writes to `code` before it rules."""
    for path in (ROOT / "checks/probes").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    is_code = isinstance(name, ast.Name) and name.id == "code"
                    if is_code and isinstance(value, ast.Constant):
                        yield str(value.value)


def _codes() -> Iterator[tuple[str, set[str]]]:
    """Codes that are written out in calls of these classes."""
    places = {"Reason": 0, "Undecided": 0, "Ruling": 2}
    calls = [
        node
        for folder in ("checks", "alerts", "monitor")
        for path in (ROOT / folder).rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in places)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for name, place in places.items():
        given = [
            call.args[place]
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == name and len(call.args) > place
        ]
        yield name, {str(one.value) for one in given if isinstance(one, ast.Constant)}
