"""What the guides show of `sluice.yaml` is a config that the service takes."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.config.file import parse_config
from pipeline.errors import ConfigError
from tests.docs.markdown import ROOT

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
        mistakes = [line for line in str(error).splitlines() if "No such file" not in line]

    assert mistakes == []
