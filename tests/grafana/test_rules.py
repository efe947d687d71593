"""Prometheus' rules: they parse, they do in time what they promise, and lead to a runbook."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.causes import KINDS
from alerts.model import AlertKind
from grafana.generate import HERE, rules
from grafana.rule import Alert
from grafana.rules import CHECK_ALERTS, RECORDINGS, alerts
from monitor.web.metrics import METRICS
from tests.grafana.expressions import Expression, metrics_in, of_alerts, of_recordings

CASES = Path(__file__).with_name("rules.test.yaml")
NAMES = [rule.name for rule in alerts()]


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    assert program is not None, "apt-get install prometheus (it stands in apt.txt)"
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.stack
def test_promtool_finds_nothing_wrong() -> None:
    folder = HERE / "prometheus"

    promtool("check", "rules", str(folder / "rules.yaml"))
    promtool("check", "config", str(folder / "prometheus.yaml"))


@pytest.mark.stack
def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    told = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    fires = [
        bool(check["exp_alerts"])
        for test in told
        for check in test.get("alert_rule_test", ())
        if check["alertname"] == name
    ]

    assert set(fires) == {True, False}


@pytest.mark.parametrize("rule", [*of_recordings(), *of_alerts()], ids=lambda rule: rule.place)
def test_rules_use_listed_metrics_and_recorded_series_only(rule: Expression) -> None:
    known = {metric.name for metric in METRICS} | {one.name for one in RECORDINGS}

    assert metrics_in(rule.promql) - known == set()


@pytest.mark.parametrize("rule", list(alerts()), ids=NAMES)
def test_an_alert_says_what_and_where_to_read_on(rule: Alert) -> None:
    assert rule.summary
    assert rule.description.endswith(".")
    assert re.fullmatch(r"[a-z]+\.md#.+", rule.page)


def test_every_check_of_a_listed_kind_belongs_to_exactly_one_alert() -> None:
    told = {AlertKind.BLOCKED, AlertKind.SUSPECT}
    for check in [name for name, kind in KINDS.items() if kind in told] + ["range_counts"]:
        owners = [rule.name for rule in CHECK_ALERTS if _selects(rule, check)]
        assert len(owners) == 1, check


def _selects(rule: Alert, check: str) -> bool:
    found = re.search(r'check(=~|!~)"([^"]*)"', rule.value)
    assert found is not None
    inside = re.fullmatch(found[2], check) is not None
    return inside if found[1] == "=~" else not inside


def test_links_can_begin_with_an_address_of_ones_own() -> None:
    made = rules("https://wiki.example.org/sluice/")
    links = [
        rule["annotations"]["runbook_url"]
        for group in made["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]

    assert len(links) == len(NAMES)
    assert all(re.match(r"https://wiki\.example\.org/sluice/[a-z]+\.md#", link) for link in links)


def test_f122_no_metric_has_a_label_that_prometheus_sets_itself() -> None:
    labels = {label for metric in METRICS for label in metric.labels}

    assert not labels & {"job", "instance"}
    assert "honor_labels" not in (HERE / "prometheus" / "prometheus.yaml").read_text()
