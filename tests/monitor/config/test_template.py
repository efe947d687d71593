"""What `sluice init` writes shows every section, and shows it right.

Covers monitor/commands/sluice.yaml
"""

import re
from pathlib import Path

import pytest

from monitor.commands.init import TEMPLATE
from monitor.config.file import load
from monitor.config.model import Config
from pipeline.settings import PublishRule

SECTION = re.compile(r"#? ?([a-z_]+):")


def uncommented(text: str) -> str:
    """The file with every setting in force; what explains them stays a comment."""
    return re.sub(r"(?m)^( *)# (?=[a-z_]+:|  )", r"\1", text)


def test_every_section_is_shown() -> None:
    found = map(SECTION.match, TEMPLATE.read_text(encoding="utf-8").splitlines())

    assert {one[1] for one in found if one} == Config.model_fields.keys()


def test_all_that_it_shows_is_read_without_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHOP_PASSWORD", "KAFKA_PASSWORD", "SLACK_URL"):
        monkeypatch.setenv(name, "http://10.0.0.1/x")
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    (tmp_path / "ca.pem").write_text("", encoding="utf-8")
    path = tmp_path / "sluice.yaml"
    path.write_text(uncommented(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")

    config = load(path)

    (rule,) = config.rebootstrap
    assert (rule.tables, rule.how) == ("shop.*", "auto")
    (image,) = config.publish
    assert image == PublishRule("shop.*", how="pin")
    assert [one.tier for one in config.tables] == [0, 1]
