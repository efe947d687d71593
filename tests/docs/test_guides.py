"""What guides and first pages show is accepted by the service and the same as the examples."""

import ast
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.story.play import ACTS
from monitor.config.file import parse_config
from pipeline.errors import ConfigError
from tests.docs.markdown import ROOT, blocks

SHOWN = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SOURCE = {
    "name": "shop",
    "host": "127.0.0.1",
    "port": 3306,
    "user": "sluice",
    "password": {"env": "SHOP_PASSWORD"},
    "prefix": "shop",
    "collector": {"url": "http://127.0.0.1:8083", "connector": "shop"},
}
SECRETS = (
    *("SHOP_PASSWORD", "PAGERDUTY_KEY", "KAFKA_PASSWORD", "HASH_KEY", "NEW_KEY", "OLD_KEY"),
    *("SERVING_PASSWORD", "LINEAGE_TOKEN", "REGISTRY_PASSWORD"),
)
BLOCKS = [
    pytest.param(textwrap.dedent(code), id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs" / "guides").glob("*.md"))
    for number, code in enumerate(SHOWN.findall(page.read_text(encoding="utf-8")))
]


def config(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest config with what is *shown* of it: sections, a source or its collector."""
    inside = {key: shown[key] for key in shown if key == "collector"}
    (source,) = shown.get("sources", [inside])
    outside = {key: shown[key] for key in shown if key not in {"sources", "collector"}}
    return {"lake": "lake", "kafka": "127.0.0.1:9092", "sources": [SOURCE | source], **outside}


@pytest.mark.parametrize("code", BLOCKS)
def test_a_config_that_a_guide_shows_is_taken(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "x" * 32)
    monkeypatch.setenv("SLACK_URL", "https://hooks.example.org/x")
    text = yaml.safe_dump(config(yaml.safe_load(code)))

    try:
        parse_config(text, Path("sluice.yaml"))
        mistakes = []
    except ConfigError as error:  # files that it names are the reader's
        faults = [line for line in str(error).splitlines() if "yaml:" in line]
        mistakes = [line for line in faults if "No such file" not in line]

    assert mistakes == []


EXAMPLES = ROOT / "examples"


def read_page(name: str) -> str:
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
    text = read_page("demo.md")
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
