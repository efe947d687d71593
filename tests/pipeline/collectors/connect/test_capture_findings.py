"""The heartbeat's changes must pass the connector's lists."""

from collections.abc import Mapping

import pytest

from pipeline.collectors.connect.capture_findings import heartbeat_findings
from pipeline.finding import REFUSE


def test_a_list_that_is_no_regular_expression_is_told() -> None:
    (found,) = heartbeat_findings({"table.include.list": "shop.("}, "sluice.heartbeat", "here")

    assert found.severity is REFUSE
    assert found.what.startswith(
        "table.include.list of the connector cannot be read, so it may leave out any table: "
    )


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
