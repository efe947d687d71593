"""Rights are read from the lines of SHOW GRANTS as a server writes them."""

from collections.abc import Sequence

import pytest

from pipeline.finding import REFUSE
from pipeline.sources.mysql.doctor import check_grants
from pipeline.sources.mysql.facts import ServerFacts, is_granted, parse_grant

WATCH = "GRANT SELECT, SHOW DATABASES, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`"
BEAT = "GRANT ALL PRIVILEGES ON `sluice`.* TO `sluice`@`%`"
NARROW = "GRANT REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`"


def ruled(lines: Sequence[str], *, present: bool = True) -> dict[str, str]:
    server = ServerFacts((8, 0), mariadb=False, grants=tuple(lines))
    found = check_grants(
        server,
        "source:shop",
        "sluice.heartbeat",
        present=present,
        tables=["shop.users", "crm.people"],
    )
    assert all(finding.severity is REFUSE for finding in found)
    return {finding.code: finding.fix for finding in found}


@pytest.mark.parametrize(
    ("lines", "privilege", "table", "allowed"),
    [
        pytest.param([WATCH], "SELECT", "shop.users", True, id="everywhere"),
        pytest.param([WATCH], "INSERT", "shop.users", False, id="not granted"),
        pytest.param([BEAT], "INSERT", "sluice.heartbeat", True, id="all on a database"),
        pytest.param([BEAT], "INSERT", "shop.users", False, id="another database"),
        pytest.param(
            ["GRANT SELECT ON `shop\\_%`.* TO `u`@`%`"], "SELECT", "shop_01.x", True, id="pattern"
        ),
        pytest.param(
            ["GRANT SELECT ON `shop\\_%`.* TO `u`@`%`"], "SELECT", "shopx.x", False, id="escaped"
        ),
        pytest.param(
            ["GRANT SELECT ON `shop`.`users` TO `u`@`%`"], "SELECT", "shop.users", True, id="table"
        ),
        pytest.param(
            ["GRANT SELECT ON `shop`.`users` TO `u`@`%`"], "SELECT", "shop.items", False, id="other"
        ),
        pytest.param(
            ["GRANT SELECT (`id`, `n`) ON `shop`.`users` TO `u`@`%`"],
            "SELECT",
            "shop.users",
            False,
            id="some columns are not the table",
        ),
        pytest.param(
            [WATCH, "REVOKE SELECT ON `shop`.* FROM `sluice`@`%`"],
            "SELECT",
            "shop.users",
            False,
            id="revoked in part",
        ),
        pytest.param(
            ["GRANT SELECT ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*AB' WITH GRANT OPTION"],
            "SELECT",
            "shop.users",
            True,
            id="MariaDB",
        ),
        pytest.param(["GRANT `reader`@`%` TO `u`@`%`"], "SELECT", "shop.users", False, id="role"),
        pytest.param(
            ["GRANT PROXY ON ''@'' TO 'root'@'localhost'"], "SELECT", "a.b", False, id="proxy"
        ),
    ],
)
def test_may_reads_grants(lines: Sequence[str], privilege: str, table: str, allowed: bool) -> None:
    grants = [grant for line in lines if (grant := parse_grant(line))]

    assert is_granted(grants, privilege, *table.split(".")) is allowed


@pytest.mark.parametrize(
    ("lines", "present", "fixes"),
    [
        pytest.param([WATCH, BEAT], False, {}, id="all that Sluice needs"),
        pytest.param(
            [WATCH, "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`"],
            True,
            {},
            id="no more than it needs",
        ),
        pytest.param(
            ["GRANT SELECT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`", BEAT],
            True,
            {"grant_log": "GRANT REPLICATION CLIENT ON *.* TO `sluice`@`%`"},
            id="may not see the log's end",
        ),
        pytest.param(
            [WATCH],
            True,
            {
                "grant_heartbeat": "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat`"
                " TO `sluice`@`%`"
            },
            id="may not write the heartbeat",
        ),
        pytest.param(
            [NARROW, BEAT, "GRANT SELECT ON `shop`.* TO `sluice`@`%`"],
            True,
            {"grant_select": "GRANT SELECT ON `crm`.* TO `sluice`@`%`"},
            id="may not read one database",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_statement(
    lines: Sequence[str], present: bool, fixes: dict[str, str]
) -> None:
    assert ruled(lines, present=present) == fixes


def test_a_heartbeat_that_is_not_there_comes_with_its_table() -> None:
    fix = ruled([WATCH], present=False)["grant_heartbeat"]

    assert fix.startswith("CREATE DATABASE IF NOT EXISTS `sluice`; CREATE TABLE IF NOT EXISTS ")
    assert fix.endswith("; GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`")


@pytest.mark.parametrize(
    ("version", "mariadb", "grants", "found"),
    [
        pytest.param((8, 0), False, [BEAT, "GRANT SELECT, SUPER ON *.* TO `u`@`%`"], True, id="8"),
        pytest.param((8, 0), False, ["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"], False, id="all"),
        pytest.param((5, 7), False, [], False, id="5.7"),
        pytest.param((10, 11), True, [], False, id="MariaDB"),
    ],
)
def test_f108_a_user_who_may_not_list_xa_transactions_is_found(
    version: tuple[int, int], mariadb: bool, grants: list[str], found: bool
) -> None:
    server = ServerFacts(version, mariadb=mariadb, grants=tuple(grants))

    told = check_grants(server, "source:s", "sluice.heartbeat", present=True, tables=())

    fixes = [one.fix for one in told if one.code == "grant_xa"]
    assert bool(fixes) is found
    assert all(one.startswith("GRANT XA_RECOVER_ADMIN ON *.* TO ") for one in fixes)
