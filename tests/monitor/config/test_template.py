"""What `sluice init` writes shows every section, and shows it right."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from monitor.commands import check_config
from monitor.commands.init import TEMPLATE
from monitor.config.file import load_config
from monitor.config.model import Config, RebootstrapRule, RepairRule
from pipeline.errors import ConfigError
from pipeline.invariants.expectations import Expectations
from pipeline.model import Op
from pipeline.settings import InvariantRule, PublishRule
from tests.builders.lake import LocalLake, row
from tests.pipeline.certificates import Authority

SECTION = re.compile(r"#? ?([a-z_]+):")


def uncommented(text: str) -> str:
    """The file with every setting in force; what explains them stays a comment."""
    return re.sub(r"(?m)^( *)# (?=[a-z_]+:|  )", r"\1", text)


def extended(section: str) -> str:
    """The file with one more section; probes join those that it has."""
    text = TEMPLATE.read_text(encoding="utf-8")
    kind, _, body = section.partition("\n")
    return (
        text.replace("probes:\n", f"{kind}\n{body}") if kind == "probes:" else f"{text}\n{section}"
    )


def test_every_section_is_shown() -> None:
    found = map(SECTION.match, TEMPLATE.read_text(encoding="utf-8").splitlines())

    assert {one[1] for one in found if one} == Config.model_fields.keys()


def test_all_that_it_shows_is_read_without_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHOP_PASSWORD", "KAFKA_PASSWORD", "SLACK_URL"):
        monkeypatch.setenv(name, "https://10.0.0.1/x")
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    Authority(tmp_path, "ca")
    path = tmp_path / "sluice.yaml"
    path.write_text(uncommented(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")

    config = load_config(path)

    (rule,) = config.rebootstrap
    assert (rule.tables, rule.how) == ("shop.*", "auto")
    (image,) = config.publish
    assert image == PublishRule("shop.*", how="pin")
    assert [one.tier for one in config.tables] == [0, 1]


def test_f186_every_default_that_it_shows_is_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHOP_PASSWORD", "KAFKA_PASSWORD", "SLACK_URL", "HASH_KEY"):
        monkeypatch.setenv(name, "https://10.0.0.1/0123456789abcdef")
    Authority(tmp_path, "ca")
    path = tmp_path / "sluice.yaml"
    text = TEMPLATE.read_text(encoding="utf-8")
    path.write_text(uncommented(text), encoding="utf-8")

    shown = load_config(path)
    path.write_text(text, encoding="utf-8")
    usual = load_config(path)

    sections = ("time_zone", "transport", "table_format", "pipeline", "readiness", "heartbeat")
    for name in (*sections, "store", "http"):
        assert getattr(shown, name) == getattr(usual, name), name
    assert replace(shown.schedule, cycles=None) == usual.schedule
    assert shown.settings.cycles == usual.settings.cycles
    assert shown.alerts.runbooks == usual.alerts.runbooks
    (max_id,) = [one for one in shown.plans if one.name == "max_id"]
    assert replace(max_id, tables="*") in usual.plans
    assert shown.sources[0].heartbeat == usual.sources[0].heartbeat
    assert shown.sources[0].weakest_order == usual.sources[0].weakest_order
    assert shown.rebootstrap == (RebootstrapRule("shop.*", how="auto"),)
    assert shown.repair == (RepairRule("shop.*", how="auto"),)


SECTIONS = pytest.mark.parametrize(
    ("at", "section"),
    [
        ("probes.expectations", "probes:\n  expectations: {%s}\n"),
        ("invariants[0].expectations", "invariants: [{tables: db.*, expectations: {%s}}]"),
    ],
    ids=["probe", "invariant"],
)
"""A section with a place for the settings of `expectations`, and its key."""


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("{type: expect_column_to_exist, kwargs: {column: id}}", ""),
        (
            "{type: expect_colum_to_exist, kwargs: {column: id}}",
            "suite[0].type: no expectation 'expect_colum_to_exist'; the nearest is expect_",
        ),
        ("{type: expect_column_to_exist, kwargs: {colum: id}}", "suite[0].kwargs: do not fit exp"),
        (
            "{type: expect_column_values_to_match_regex, kwargs: {column: id, regex: '(?=a)'}}",
            "suite[0].kwargs.regex: RE2 cannot read",
        ),
    ],
)
@SECTIONS
def test_f186_an_invented_expectation_is_refused(
    *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, line: str, at: str, section: str
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    path = tmp_path / "sluice.yaml"
    path.write_text(extended(section % f"suite: [{told}]"), encoding="utf-8")

    ran = CliRunner().invoke(check_config.COMMAND, ["--config", str(path)])

    if line:
        assert f": {at}.{line}" in str(ran.exception)
    else:
        assert ran.exit_code == 0, ran.exception


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("column", "says"),
    [
        pytest.param("name", "", id="a column of the mirror"),
        pytest.param("nam", "db.t has no column 'nam'; the nearest is name", id="no column"),
    ],
)
@SECTIONS
def test_a_suite_file_is_compared_with_the_columns_of_the_mirror(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    says: str,
    at: str,
    section: str,
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    lake = LocalLake(tmp_path / "lake")
    lake.land(row(Op.CREATE, 10, 1, "a"))
    lake.apply()
    kwargs = {"column": column}
    suite = {"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": kwargs}]}
    (tmp_path / "t.json").write_text(json.dumps(suite), encoding="utf-8")
    path = tmp_path / "sluice.yaml"
    path.write_text(extended(section % "suites: {db.t: t.json}"), encoding="utf-8")

    ran = CliRunner().invoke(check_config.COMMAND, ["--config", str(path)])

    where = f"{at}.suites: db.t: {tmp_path}/t.json: expectations[0].kwargs: "
    if says:
        assert f"{where}{says}" in str(ran.exception)
    else:
        assert ran.exit_code == 0, ran.exception


def test_a_suite_file_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    path = tmp_path / "sluice.yaml"
    probes = "probes:\n  expectations:\n    suites: {db.t: t.json}\n"
    path.write_text(extended(probes), encoding="utf-8")

    with pytest.raises(ConfigError) as refused:
        load_config(path)

    assert f"probes.expectations.suites: db.t: {tmp_path}/t.json: cannot be" in str(refused.value)


def gated(tmp_path: Path, more: str = "") -> Config:
    (tmp_path / "t.json").write_text('{"expectations": []}', encoding="utf-8")
    path = tmp_path / "sluice.yaml"
    probes = f"probes:\n  expectations: {{suites: {{db.t: t.json}}, gate: true{more}}}\n"
    path.write_text(extended(probes), encoding="utf-8")
    return load_config(path)


def test_a_gate_is_an_invariant_of_the_tables_of_its_suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")

    (rule,) = gated(tmp_path).settings.invariants

    suites = {"db.t": str(tmp_path / "t.json")}
    assert rule == InvariantRule("db.t", (("expectations", Expectations((), suites)),))
    with pytest.raises(ConfigError, match=r"expectations\.gate: cannot be used with"):
        gated(tmp_path, ", tables: db.t")
