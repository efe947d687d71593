"""The heartbeat's changes must pass the connector's lists."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.collectors.connect.findings import heartbeat_findings
from pipeline.finding import REFUSE


def test_a_list_that_is_no_regular_expression_is_told() -> None:
    (found,) = heartbeat_findings({"table.include.list": "shop.("}, "sluice.heartbeat", "here")

    assert found.severity is REFUSE
    assert found.what.startswith(
        "table.include.list of the connector cannot be read, so it may leave out any table: "
    )


def test_what_cannot_be_read_is_said_and_stands_where_the_fix_says() -> None:
    (found,) = heartbeat_findings({"table.include.list": r"\bshop\..*"}, "sluice.heartbeat", "here")
    page, _, heading = found.fix.rpartition(": ")[2].partition("#")
    told = (Path(__file__).resolve().parents[4] / page).read_text(encoding="utf-8")
    _, _, after = told.partition(f"## {heading.capitalize().replace('-', ' ')}\n")

    for words in (
        "ets of sets",
        "[a-z&&[^t]]",
        "classes of Unicode",
        "ends of words",
        "epeats of repeats",
        "new base",
    ):
        assert words in found.fix
        assert words in " ".join(after.partition("\n## ")[0].split())


@pytest.mark.parametrize(
    ("config", "fix"),
    [
        pytest.param({}, None, id="all is captured"),
        pytest.param({"database.include.list": "shop,sluice"}, None, id="listed"),
        pytest.param(
            {"database.include.list": "shop"}, "add sluice to database.include.list", id="database"
        ),
        pytest.param(
            {"database.include.list": "shop,sluice", "table.include.list": r"shop\..*"},
            r"add sluice\.heartbeat to table.include.list",
            id="table",
        ),
        pytest.param(
            {"database.exclude.list": "sluice", "table.exclude.list": "x"},
            "let database.exclude.list spare sluice",
            id="excluded",
        ),
    ],
)
def test_the_heartbeat_must_be_captured(config: Mapping[str, str], fix: str | None) -> None:
    found = heartbeat_findings(config, "sluice.heartbeat", "collector:shop")

    assert [finding.fix for finding in found] == ([fix] if fix else [])
