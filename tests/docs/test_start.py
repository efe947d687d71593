"""What the first pages of a reader show is true."""

import ast
from pathlib import Path

import pytest

from demo.story.play import ACTS
from monitor.config.file import parse_config
from tests.docs.markdown import ROOT, blocks

EXAMPLES = ROOT / "examples"


def read(name: str) -> str:
    return (ROOT / "docs" / "start" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [("mysql.md", "mysql", {}), ("postgres.md", "postgres", {"database": "shop"})],
)
def test_its_config_is_read_without_a_fault(
    name: str, kind: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    (text,) = blocks(ROOT / "docs" / "start" / name, "yaml")

    (source,) = parse_config(text, Path("sluice.yaml")).sources

    assert (source.name, source.kind, source.options) == ("shop", kind, options)


def test_the_demo_has_the_acts_of_the_page() -> None:
    text = read("demo.md")
    shown = [f"{number}/{len(ACTS)}  {act.TITLE}" for number, act in enumerate(ACTS, 1)]

    assert [one for one in shown if one not in text] == []


def test_the_sensor_of_the_page_is_that_of_the_example() -> None:
    shown = next(
        one for one in blocks(ROOT / "docs" / "start" / "airflow.md", "python") if "Http" in one
    )

    (call,) = _sensors(shown)
    (whole,) = _sensors((EXAMPLES / "airflow_gate.py").read_text(encoding="utf-8"))

    assert call == whole


def _sensors(code: str) -> list[str]:
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "HttpSensor"
    ]


def test_the_grants_are_those_of_the_guides() -> None:
    guides = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "start"]
    known = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in guides)
    for name in ("mysql.md", "postgres.md"):
        (code,) = blocks(ROOT / "docs" / "start" / name, "sql")
        of_sluice = [one for one in code.split(";") if "debezium'@" not in one and one.strip()]

        assert [one for one in of_sluice if " ".join(one.split()) not in known] == []
