"""What the README shows works as it stands there."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from checks.model import Outcome, Verdict
from checks.run import Check, run_probe
from examples.few_rows import FewRows
from monitor.config.file import load_config
from monitor.config.plans import build_check_plan
from pipeline.errors import UnreachableError
from tests.checks.world_fake import ONE, TABLE, FakeWorld
from tests.docs.markdown import ROOT, anchors, blocks, links

README = ROOT / "README.md"
PROBE = "few_rows"
EXAMPLE = "examples/few_rows.py"


def test_the_config_is_read_without_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = blocks(README, "yaml")
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    monkeypatch.setenv("SLACK_URL", "https://hooks.example.org/x")
    file = tmp_path / "sluice.yaml"
    file.write_text(text, encoding="utf-8")

    config = load_config(file)

    assert [source.name for source in config.sources] == ["shop"]
    assert set(config.channels) == {"log", "slack"}
    assert config.time_zone.key == "Europe/Berlin"
    assert config.lake == "/data/lake"
    used = {name for route in config.alerts.routes for name in route.channels or ()}
    assert used <= set(config.channels)


def test_its_probe_is_a_file_that_takes_no_more_than_ten_lines_of_code() -> None:
    code = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    body = code.partition("class FewRows")[2].partition("PROBE")[0].splitlines()[1:]

    assert EXAMPLE in links(README)
    assert len([line for line in body if line.strip() and not line.strip().startswith('"""')]) <= 10


@pytest.mark.parametrize(
    ("rows", "least", "outcome"),
    [
        pytest.param(3, 1, Outcome.PASS, id="enough"),
        pytest.param(4, 4, Outcome.PASS, id="just enough"),
        pytest.param(0, 1, Outcome.FAIL, id="empty"),
        pytest.param(3, 4, Outcome.FAIL, id="fewer than its setting wants"),
    ],
)
def test_its_probe_rules(rows: int, least: int, outcome: Outcome) -> None:
    world = FakeWorld()
    world.commit(*(("c", ONE, id_) for id_ in range(rows)))
    world.catch_up()

    verdict = run_probe(Check(PROBE, FewRows(least), TABLE), world)

    assert isinstance(verdict, Verdict)
    assert verdict.ruling.outcome is outcome
    assert verdict.value == rows


def test_its_probe_does_not_know_when_nobody_answers() -> None:
    world = FakeWorld()

    def silent(_: object) -> None:
        raise UnreachableError("lake:main: no answer")

    world.mirror = silent  # type: ignore[method-assign,assignment]
    verdict = run_probe(Check(PROBE, FewRows(), TABLE), world)

    assert isinstance(verdict, Verdict)
    assert verdict.ruling.outcome is Outcome.UNKNOWN


def test_its_probe_takes_its_settings_from_the_config() -> None:
    made, faults = build_check_plan(PROBE, FewRows, {"least": 7, "every": "PT30S"}, ROOT)

    assert faults == []
    assert made is not None
    assert (made.every, made.probe.least) == (timedelta(seconds=30), 7)


def test_the_first_reading_is_short_and_goes_from_landing_to_the_gate() -> None:
    text = README.read_text(encoding="utf-8")
    files = [line.split("](")[1].split(")")[0] for line in text.splitlines() if line[:1].isdigit()]

    assert files[0].startswith("pipeline/landing/")
    assert "checks/proof.py" in files
    assert files[-1] == "monitor/gate.py"
    assert len(files) >= 5
    assert sum(len((ROOT / file).read_text("utf-8").splitlines()) for file in files) < 1_500


def test_it_begins_with_what_it_is_in_five_lines() -> None:
    first, *_ = README.read_text(encoding="utf-8").split("\n\n", 2)[1:]

    assert len(first.splitlines()) <= 5


def test_it_says_what_a_user_gets_and_then_the_two_commands() -> None:
    first, second, *_ = re.findall("^## (.+)$", README.read_text(encoding="utf-8"), re.MULTILINE)

    assert (first, second) == ("What you get", "Two commands")


def test_its_two_commands_are_targets() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert all(f"\n{target}:" in make for target in ("demo", "test", "setup"))
    assert "two-commands" in anchors(README)
