import re
from pathlib import Path

import pytest

from checks import run as probes
from monitor.config.validation import CHECKS
from monitor.observe import system_checks as own_verdicts
from tests.monitor.config.test_config import MINIMAL
from tests.monitor.config.test_mistakes import faults

RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "runbooks"
NO_CHECKS = {"connector", "readiness", "silent", "unproven"}  # headings there that are none


def route(text: str) -> list[str]:
    return faults(f"{MINIMAL}\nalerts: {{routes: [{{tables: '*'}}, {{{text}}}]}}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "checks: [lag, range_count]",
            "alerts.routes[1].checks[1]: no check 'range_count'; the nearest is range_counts;",
            id="a check, mistyped",
        ),
        pytest.param(
            "checks: ['rnge_*']", "alerts.routes[1].checks[0]: no check 'rnge_*'; ", id="a glob"
        ),
        pytest.param(
            "tables: 'source:shpo'",
            "alerts.routes[1].tables: no 'source:shpo'; the nearest is source:shop;",
            id="a source",
        ),
        pytest.param(
            "tables: 'channel:slakc'",
            "alerts.routes[1].tables: no 'channel:slakc'; the nearest is channel:log; ",
            id="a channel",
        ),
        pytest.param(
            "tables: orders",
            "alerts.routes[1].tables: 'orders' matches no table; write database.table, or a",
            id="a table without its database",
        ),
    ],
)
def test_a_route_that_would_never_be_taken_is_refused(text: str, line: str) -> None:
    (told,) = route(text)

    assert told.startswith(line)


@pytest.mark.parametrize(
    "text",
    [
        "checks: ['range_*', lag, hold, collected, worker, stalled]",
        "tables: 'source:sh*'",
        "tables: 'collector:*'",
        "tables: worker",
        "tables: kafka",
        "tables: 'channel:log'",
        "tables: 'job:*'",
        "tables: 'shop.*'",
    ],
)
def test_a_route_for_what_there_can_be_is_taken(text: str) -> None:
    assert route(text) == []


def test_a_probe_for_a_table_without_its_database_is_refused() -> None:
    assert faults(f"{MINIMAL}\nprobes: {{max_id: {{tables: orders}}}}\n") == [
        "probes.max_id.tables: 'orders' matches no table; write database.table, or a pattern"
        " such as shop.*"
    ]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("{shards: 'shop[.]tmp_.+', ignore: true}", id="no tables"),
        pytest.param("{shards: 'shop[.]t.*', tier: 0}", id="tables of their own names"),
        pytest.param("{shards: 'a_(.+)[.]t', table: 'shop.\\1'}", id="groups, and a database"),
    ],
)
def test_a_rule_whose_tables_are_called_database_table_lets_no_other_name_pass(rule: str) -> None:
    told = faults(f"{MINIMAL}\ntables: [{rule}]\nalerts: {{routes: [{{tables: orders}}]}}\n")

    assert [line.partition(";")[0] for line in told] == [
        "alerts.routes[0].tables: 'orders' matches no table"
    ]


def test_an_override_for_a_table_without_its_database_is_refused() -> None:
    probe = "max_id: {overrides: [{tables: 'shop.*', none: 1}, {tables: orders}]}"

    told = faults(f"{MINIMAL}\nprobes: {{{probe}}}\n")

    assert "probes.max_id.overrides[1].tables: 'orders' matches no table; write" in " ".join(told)
    assert len(told) == 2


def test_where_groups_make_the_names_of_tables_any_pattern_may_match() -> None:
    rules = "tables: [{shards: 'shop[.](.+)_1', table: '\\1'}]"

    assert faults(f"{MINIMAL}\n{rules}\nprobes: {{max_id: {{tables: orders}}}}\n") == []


def test_every_check_that_has_a_runbook_can_be_routed() -> None:
    pages = [page.read_text(encoding="utf-8") for page in RUNBOOKS.glob("*.md")]
    told = {name for page in pages for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)}

    assert told - NO_CHECKS <= {*CHECKS, *probes.known()}
    assert {*own_verdicts.CHECKS} <= CHECKS
