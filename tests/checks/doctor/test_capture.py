"""A connector's lists are read as it reads them."""

from collections.abc import Mapping

import pytest

from checks.doctor.capture import captured, heartbeat_findings
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "table", "sent"),
    [
        pytest.param({}, "shop.users", True, id="no list, everything"),
        pytest.param({"database.include.list": "shop_.*, shop"}, "shop.users", True, id="listed"),
        pytest.param({"database.include.list": "shop"}, "shop_00.users", False, id="whole names"),
        pytest.param({"database.include.list": "SHOP"}, "shop.users", True, id="case is ignored"),
        pytest.param({"database.exclude.list": "shop"}, "shop.users", False, id="excluded"),
        pytest.param({"table.include.list": r"shop\.u.*"}, "shop.users", True, id="table"),
        pytest.param({"table.include.list": r"shop\.u.*"}, "shop.orders", False, id="not listed"),
        pytest.param({"table.exclude.list": r"shop\.users"}, "shop.users", False, id="no table"),
        pytest.param(
            {"database.include.list": "shop", "table.include.list": r"\w+\.users"},
            "crm.users",
            False,
            id="both lists hold",
        ),
        pytest.param(
            {"table.include.list": r"shop\.o{1\,2}rders"}, "shop.orders", True, id="escaped comma"
        ),
    ],
)
def test_captured_follows_the_lists(config: Mapping[str, str], table: str, sent: bool) -> None:
    assert captured(config)(table) is sent


def test_a_list_that_is_no_regular_expression_is_told() -> None:
    with pytest.raises(ConfigError, match=r"table\.include\.list .* no regular expression"):
        captured({"table.include.list": "shop.("})


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
