"""Settings, rights and tables of one server are ruled together, within what is asked about."""

from dataclasses import replace
from datetime import timedelta

from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.doctor import collect_findings
from pipeline.sources.mysql.facts import ServerFacts, ShardFacts
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.source import ExaminationScope, FoldedTable

SETTINGS = SourceSettings("shop", "db", 3306, "sluice", CollectorSettings("", ""), "shop")
GRANTS = (
    "GRANT REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`",
    "GRANT ALL PRIVILEGES ON `sluice`.* TO `sluice`@`%`",
    "GRANT SELECT ON `shop`.* TO `sluice`@`%`",
)
STRICT = {"sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE"}
SERVER = ServerFacts((9, 6), mariadb=False, variables=STRICT, grants=GRANTS)
USERS = ShardFacts(Shard("shop", "shop.users"), columns=(MySqlColumn("id", "INT", nullable=False),))
HEARTBEAT = replace(USERS, shard=Shard("shop", "sluice.heartbeat"))
SCOPE = ExaminationScope(
    lambda shard: None if shard == "sluice.heartbeat" else FoldedTable(shard),
    outage=timedelta(days=3),
    clock_skew=timedelta(seconds=2),
)


def ruled(
    scope: ExaminationScope = SCOPE, server: ServerFacts = SERVER, *, heartbeat: bool = True
) -> list[tuple[str, str]]:
    found = collect_findings(SETTINGS, server, (HEARTBEAT, USERS), scope, heartbeat=heartbeat)
    return [(one.code, one.where) for one in found]


def test_the_heartbeats_own_table_is_not_ruled() -> None:
    assert ruled() == [("no_key", "table shop.users")]


def test_a_key_that_the_collector_may_send_itself_is_no_lack() -> None:
    assert ruled(replace(SCOPE, own_keys=True)) == []


def test_a_table_that_only_a_topic_names_must_be_readable() -> None:
    named = replace(SCOPE, named=frozenset({"crm.people", "sluice.heartbeat"}))

    assert ruled(named)[0] == ("grant_select", "source:shop")


def test_the_heartbeats_table_must_be_there_or_may_be_created() -> None:
    beat = "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`"
    server = replace(SERVER, grants=(GRANTS[0], GRANTS[2], beat))

    assert ("grant_heartbeat", "source:shop") not in ruled(server=server)
    assert ("grant_heartbeat", "source:shop") in ruled(server=server, heartbeat=False)


def test_settings_are_ruled_for_the_databases_that_are_captured_and_for_the_outage() -> None:
    server = replace(SERVER, unlogged=("binlog_ignore_db=shop,crm",))
    kept = {**STRICT, "binlog_expire_logs_seconds": "86400"}

    assert ruled(server=server)[0] == ("binlog_ignore_db", "source:shop")
    assert ruled(server=replace(SERVER, variables=kept))[0] == ("log_retention", "source:shop")
    shorter = replace(SCOPE, outage=timedelta(hours=1))
    assert ruled(shorter, replace(SERVER, variables=kept)) == [("no_key", "table shop.users")]
