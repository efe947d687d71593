"""Which commits are Sluice's own is told from their notes, not from their transaction ids."""

import json
from typing import Any

import pytest

from pipeline.apply.foreign_commits import find_intrusion
from pipeline.tables.delta.merge import read_commit


def lines(*actions: dict[str, Any]) -> list[str]:
    return [json.dumps(action) for action in actions]


def info(operation: str, note: str | None = None) -> dict[str, Any]:
    told = {"timestamp": 1_700_000_000_000, "operation": operation}
    return {"commitInfo": told | ({"userMetadata": note} if note else {})}


ADD = {"add": {"path": "a", "dataChange": True}}
MOVED = {"add": {"path": "a", "dataChange": False}}
GONE = {"remove": {"path": "b", "dataChange": True}}
TXN = {"txn": {"appId": "sluice:main", "version": 7}}
OWN = '{"sluice": {"after": 4}}'


@pytest.mark.parametrize(
    ("actions", "foreign"),
    [
        pytest.param([info("MERGE", OWN), TXN, ADD], False, id="noted, right after its own"),
        pytest.param([info("MERGE", OWN), TXN, GONE], False, id="noted delete"),
        pytest.param([info("WRITE"), ADD], True, id="no note"),
        pytest.param([info("DELETE", "by hand"), GONE], True, id="somebody else's note"),
        pytest.param([info("WRITE", "[1]"), ADD], True, id="a note of another shape"),
        pytest.param([info("RESTORE"), TXN, ADD], True, id="restore keeps transaction ids"),
        pytest.param([info("OPTIMIZE"), MOVED], False, id="compaction changes no data"),
        pytest.param([info("SET TBLPROPERTIES"), {"metaData": {}}], False, id="properties only"),
    ],
)
def test_a_commit_is_foreign_if_it_changed_data_without_our_note(
    actions: list[dict[str, Any]], foreign: bool
) -> None:
    assert (find_intrusion([read_commit(5, lines(*actions))])[0] is not None) is foreign


def test_a_commit_tells_what_it_was() -> None:
    told = read_commit(5, [*lines(info("MERGE", OWN), TXN, {"metaData": {}}, ADD), ""])

    assert (told.version, told.operation, told.at.year) == (5, "MERGE", 2023)
    assert (told.data_changing, told.after) == (True, 4)


def test_a_log_without_information_is_a_foreign_commit() -> None:
    assert find_intrusion([read_commit(0, lines(ADD))])[0] is not None
    assert find_intrusion([read_commit(0, [])])[0] is None
