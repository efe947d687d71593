"""What a newcomer's file says wrongly is told in words of this project; for pipeline/faults.py."""

import pytest

from tests.monitor.config.test_config import MINIMAL
from tests.monitor.config.test_mistakes import faults

REMOVE = "is empty; write its value, or remove the line"


@pytest.mark.parametrize(
    "section",
    [
        *("tables", "pipeline", "readiness", "alerts", "http", "schedule", "kafka_security"),
        *("time_zone", "heartbeat", "store"),
    ],
)
def test_a_section_that_was_left_empty_says_so(section: str) -> None:
    assert faults(f"{MINIMAL}\n{section}:\n") == [f"{section}: {REMOVE}"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param("lake: lake", "lake:", "lake: is empty; write its value", id="required"),
        pytest.param(
            "host: 127.0.0.1", "host:", "sources[0].host: is empty; write its value", id="within"
        ),
    ],
)
def test_what_must_be_there_is_not_to_be_removed(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new)) == [line]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        pytest.param("alerts: {routes: }", f"alerts.routes: {REMOVE}", id="a list left empty"),
        pytest.param(
            "pipeline: 3",
            "pipeline: must be a mapping of settings, such as `name: value`",
            id="a number for a section",
        ),
        pytest.param(
            "tables: {shards: a}",
            "tables: must be a list; write each entry on a line of its own, after `- `",
            id="one entry for a list",
        ),
        pytest.param(
            "alerts: {routes: [{kinds: [losst]}]}",
            "alerts.routes[0].kinds[0]: must be 'late', 'lost', 'suspect',",
            id="a wrong word",
        ),
    ],
)
def test_what_is_of_another_kind_is_told_without_a_librarys_words(more: str, line: str) -> None:
    (told,) = faults(f"{MINIMAL}\n{more}\n")

    assert told.startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "lake: a\n\tb: 1\n",
            "is not YAML: while scanning for the next token, found character '\\t' that cannot"
            " start any token (line 2, column 1)",
            id="a tab",
        ),
        pytest.param(
            "lake: a: b\n",
            "is not YAML: mapping values are not allowed here (line 1, column 8)",
            id="a colon",
        ),
        pytest.param(
            "lake: a\nkafka: b\nlake: c\n",
            "is not YAML: key 'lake' occurs twice; remove one (line 3, column 1)",
            id="the second of two keys",
        ),
        pytest.param(
            "lake: a\nb: \x01\n",
            "is not YAML: special characters are not allowed: character #x0001 (line 2, column 4)",
            id="an odd letter",
        ),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(text: str, line: str) -> None:
    assert faults(text) == [line]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param(
            "port: 3306",
            "port: '3306'",
            'sources[0].port: must be a whole number, not "3306"; remove the quotes',
            id="a number in quotes",
        ),
        pytest.param(
            "port: 3306",
            "port: many",
            'sources[0].port: must be a whole number, not "many"',
            id="a word",
        ),
        pytest.param(
            "port: 3306",
            "port: 33.5",
            "sources[0].port: must be a whole number, not 33.5",
            id="a fraction",
        ),
        pytest.param(
            "user: sluice",
            "user: sluice\n    follow_collector: 'no'",
            'sources[0].follow_collector: must be true or false without quotes, not "no"',
            id="a truth in quotes",
        ),
        pytest.param(
            "lake: lake",
            "lake: lake\ndisks: {free_share: '0.2'}",
            'disks.free_share: must be a number, not "0.2"; remove the quotes',
            id="a fraction in quotes",
        ),
        pytest.param(
            "user: sluice",
            "user: true",
            "sources[0].user: must be a text, not true; write it in quotes",
            id="a truth for a text",
        ),
        pytest.param(
            "user: sluice",
            "user: [a]",
            "sources[0].user: must be a text, not a list",
            id="a list for a text",
        ),
        pytest.param(
            "lake: lake", "lake: ''", "lake: is empty; write its value", id="an empty text"
        ),
        pytest.param(
            "lake: lake", "lake: lake\nstore: ''", f"store: {REMOVE}", id="one with a default"
        ),
    ],
)
def test_a_value_of_another_type_is_shown_with_the_way_out(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new)) == [line]
