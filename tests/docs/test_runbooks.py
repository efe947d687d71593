"""Whatever is told to a person leads to a section that says what it means and what to do."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

from alerts.causes import find_cause
from alerts.message import compose_message
from alerts.model import AlertKind, Event, Incident, IncidentState, Notice, Severity
from checks import run as probes
from checks.model import Outcome, Ruling, Verdict
from grafana.generate import rules
from monitor.observe.system_checks import CHECKS, FIRST_LANDING, IMAGE, OF_COPIES
from tests.docs.markdown import ROOT, anchors

RUNBOOKS = ROOT / "docs" / "runbooks"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
WAIVABLE = ("no_base:", "foreign_write:", "disorder:", "unbalanced:", "ledger:", "dead_letters:")


def checks_of_parts() -> set[str]:
    """Second arguments of every `Component(...)` in the service."""
    return {
        str(node.args[1].value)
        for path in (ROOT / "monitor").rglob("*.py")
        if "Component(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "Component" and len(node.args) > 1
        if isinstance(node.args[1], ast.Constant)
    }


CAN_FAIL = sorted(
    {*probes.probe_names(), *CHECKS, FIRST_LANDING, IMAGE, *OF_COPIES, *checks_of_parts()}
)
CAN_BE_UNKNOWN = sorted({*probes.probe_names(), "lag", "collected"})


def link(check: str, outcome: Outcome, cause: str = "") -> str:
    """The link in the notice about a verdict."""
    kind = probes.kind_of(probes.find_probe(check)) if check in probes.probe_names() else None
    verdict = Verdict("shop.users", check, Ruling(outcome, "why"), NOW, cause=cause, kind=kind)
    blamed = find_cause(verdict)
    assert blamed is not None
    told = Incident(
        blamed,
        IncidentState.FIRING,
        NOW,
        NOW,
        NOW,
        verdict.ruling,
        (),
        (),
        Severity.WARNING,
        notices=1,
    )
    return compose_message(Notice(Event.FIRED, told, NOW)).runbook


def leads_somewhere(target: str) -> bool:
    path, _, anchor = target.partition("#")
    page = ROOT / path
    return page.is_file() and (not anchor or anchor in anchors(page))


def test_each_kind_of_alert_has_its_page() -> None:
    for kind in AlertKind:
        text = (RUNBOOKS / f"{kind}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {kind}: "), kind


def test_a_failed_check_its_cause_and_a_check_that_does_not_know_lead_to_their_sections() -> None:
    targets = [link(check, Outcome.FAIL) for check in CAN_FAIL]
    targets += [link(check, Outcome.UNKNOWN) for check in CAN_BE_UNKNOWN]
    targets += [link(check, Outcome.FAIL, "source:shop") for check in CAN_FAIL]

    assert [target for target in targets if not leads_somewhere(target)] == []


def test_the_checks_of_parts_are_found() -> None:
    assert {"service", "worker", "job"} <= checks_of_parts()


def test_every_alert_of_prometheus_leads_to_its_section() -> None:
    for group in rules("docs/runbooks")["groups"]:
        for rule in (rule for rule in group["rules"] if "alert" in rule):
            target = rule["annotations"]["runbook_url"]
            for check in _checks_of(rule["expr"]):
                filled = target.replace("{{ $labels.check }}", check)
                assert leads_somewhere(filled), (rule["alert"], filled)


def _checks_of(expr: str) -> list[str]:
    """The checks that a rule's expression lets through, of those that can fail."""
    found = re.search(r'check(=~|!~)"([^"]*)"', expr)
    if found is None:
        return [""]
    inside = [check for check in CAN_FAIL if re.fullmatch(found[2], check)]
    return inside if found[1] == "=~" else [c for c in CAN_FAIL if c not in inside]


def _sections() -> list[tuple[str, str]]:
    found = []
    for page in sorted(RUNBOOKS.glob("*.md")):
        for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            heading = section.splitlines()[0]
            found.append((f"{page.name}#{heading}", section))
    return found


def test_a_section_says_what_it_means_what_to_look_at_and_what_to_do() -> None:
    for place, text in _sections():
        for part in ("**What it means.**", "**Fix.**", "**Do not**"):
            assert part in text, place
        assert "**Look first.**" in text or "*the newest heartbeat" in text, place


def test_what_can_be_waived_is_listed() -> None:
    text = (Path(ROOT) / "docs" / "guides" / "waive.md").read_text(encoding="utf-8")

    assert [prefix for prefix in WAIVABLE if prefix not in text] == []


def test_every_reason_for_a_hold_is_explained() -> None:
    text = (RUNBOOKS / "blocked.md").read_text(encoding="utf-8")
    codes = {
        str(node.args[0].value)
        for path in (ROOT / "pipeline").rglob("*.py")
        if "HeldError(" in (code := path.read_text(encoding="utf-8"))  # few do: the rest is slow
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id == "HeldError" and node.args and isinstance(node.args[0], ast.Constant)
    }

    assert len(codes) > 30
    assert [
        one for one in sorted(codes) if f"`{one}`" not in text and f"## {one}\n" not in text
    ] == []
