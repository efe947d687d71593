"""What a schema shows of tables: no key, changes that no log has, columns that prove nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.finding import NOTE, REFUSE, WARN, FindingSeverity
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.doctor import (
    allows_zero_dates,
    check_grants,
    check_settings,
    check_tables,
    collect_findings,
)
from pipeline.sources.mysql.facts import (
    Cascade,
    ServerFacts,
    ShardFacts,
    describe_source,
    is_granted,
    parse_grant,
)
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.source import ExaminationScope, FoldedTable

STRICT = "STRICT_TRANS_TABLES,NO_ZERO_DATE"
SERVER = ServerFacts((8, 0), mariadb=False, variables={"sql_mode": STRICT})
ID = Column("id", "BIGINT", nullable=False)
USERS = ShardFacts(Shard("shop", "shop.users"), columns=(ID,), unique=(("id",),), primary=True)
CASCADE = Cascade("fk", "shop.teams", "ON DELETE CASCADE")
BORN = Column("born", "DATE")


def fold(shard: str) -> FoldedTable | None:
    return None if shard.startswith("tmp.") else FoldedTable(shard)


def severities(*shards: ShardFacts, server: ServerFacts = SERVER) -> dict[str, FindingSeverity]:
    return {finding.code: finding.severity for finding in check_tables(shards, server, fold)}


RULED = {
    "nothing to say": (USERS, {}),
    "no key": (replace(USERS, unique=(), primary=False), {"no_key": WARN}),
    "a unique index is a key, too": (replace(USERS, primary=False), {}),
    "cascade": (replace(USERS, cascades=(CASCADE,)), {"unproven": WARN}),
    "no transactions": (replace(USERS, engine="MyISAM"), {"engine": WARN}),
    "geometry": (replace(USERS, columns=(ID, Column("at", "POINT"))), {"unverifiable": NOTE}),
    "a label that the server cannot say": (
        replace(USERS, columns=(ID, Column("size", "ENUM", values=("s", "?")))),
        {"unverifiable": NOTE},
    ),
    "FLOAT": (
        replace(USERS, columns=(ID, Column("w", "FLOAT", 12))),
        {"rounded": WARN, "uncompared": NOTE},
    ),
    "a FLOAT that is printed whole": (
        replace(USERS, columns=(ID, Column("w", "FLOAT", 10, 2), Column("v", "FLOAT", 30))),
        {"uncompared": NOTE},
    ),
    "ignored by a rule": (replace(USERS, shard=Shard("shop", "tmp.users"), unique=()), {}),
}


@pytest.mark.parametrize(("shard", "expected"), RULED.values(), ids=RULED)
def test_a_table_is_ruled_by_its_schema(
    shard: ShardFacts, expected: Mapping[str, FindingSeverity]
) -> None:
    assert severities(shard) == expected


def test_columns_that_values_leaves_out_are_named_with_the_reason() -> None:
    """One that cannot be verified at all is named once."""
    gbk, computed = Column("a", "TEXT", charset="gbk"), Column("b", "INT", computed=True)
    shard = replace(USERS, columns=(ID, gbk, computed, Column("c", "POINT")))

    (found,) = (one for one in check_tables([shard], SERVER, fold) if one.code == "uncompared")

    assert found.what == (
        "not compared by `values`: a: the collector converts gbk by a table of its own;"
        " b: it is computed, and no log shows when its expression changes"
    )


def test_columns_that_a_snapshot_rounds_are_named_with_the_way_out() -> None:
    shard = replace(
        USERS, columns=(ID, Column("weight", "FLOAT"), Column("size", "FLOAT UNSIGNED"))
    )

    _, told = check_tables([shard], SERVER, fold)

    assert told.what.startswith("FLOAT in weight, size: a snapshot rounds it to six digits")
    assert "make weight, size of shop.users DOUBLE by ALTER TABLE ... MODIFY with all" in told.fix
    assert "MODIFY takes away what is left out" in told.fix
    assert "MODIFY weight" not in told.fix  # whoever copied that would lose NOT NULL


CASCADES = {
    "MySQL 8": (SERVER, True),
    "MySQL 9.5": (replace(SERVER, version=(9, 5)), True),
    "MySQL 9.6 and later log it": (replace(SERVER, version=(9, 7)), False),
    "unless told to leave it to InnoDB": (
        replace(SERVER, version=(9, 7), variables={"innodb_native_foreign_keys": "ON"}),
        True,
    ),
    "MariaDB": (replace(SERVER, version=(11, 4), mariadb=True), True),
}


@pytest.mark.parametrize(("server", "found"), CASCADES.values(), ids=CASCADES)
def test_cascades_are_unproven_where_the_engine_acts_on_them(
    server: ServerFacts, found: bool
) -> None:
    cascading = replace(USERS, cascades=(CASCADE,))

    assert ("unproven" in severities(cascading, server=server)) is found
    assert describe_source(server, [cascading], {"shop.users"}).unlogged == (
        {
            "shop.users": "rows changed by foreign keys are not in the log:"
            " shop.teams ON DELETE CASCADE (fk)"
        }
        if found
        else {}
    )


@pytest.mark.parametrize(
    ("modes", "possible"),
    [
        (STRICT, False),
        ("NO_ZERO_DATE,STRICT_ALL_TABLES", False),
        ("TRADITIONAL", False),
        ("NO_ZERO_DATE", True),
        ("STRICT_TRANS_TABLES", True),
        ("", True),
    ],
)
def test_zero_dates_are_kept_out_only_by_both_modes(modes: str, possible: bool) -> None:
    server = replace(SERVER, variables={"sql_mode": modes})

    found = check_tables([replace(USERS, columns=(ID, BORN))], server, fold)

    assert allows_zero_dates(server) is possible
    assert [(f.code, "NO_ZERO_DATE" in f.fix) for f in found] == (
        [("unverifiable", True)] if possible else []
    )


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(("id",), {}, id="unique"),
        pytest.param(("id", "born"), {"key": REFUSE}, id="may be NULL"),
        pytest.param(("nobody",), {"key": REFUSE}, id="no such column"),
        pytest.param(("name",), {"key": WARN}, id="not shown to be unique"),
    ],
)
def test_a_key_from_the_config_is_held_to_the_schema(
    key: tuple[str, ...], expected: Mapping[str, FindingSeverity]
) -> None:
    users = replace(USERS, columns=(ID, BORN, Column("name", "TEXT", nullable=False)))

    folded = FoldedTable(USERS.shard.name, key)
    found = check_tables([users], SERVER, lambda _: folded, topic_keys=True)

    assert {finding.code: finding.severity for finding in found} == expected


@pytest.mark.parametrize(
    ("shard", "key", "topic_keys", "refused"),
    [
        pytest.param(USERS, ("id",), False, False, id="the primary key"),
        pytest.param(USERS, ("name",), False, True, id="another than is sent"),
        pytest.param(USERS, ("name",), True, False, id="the connector names keys itself"),
        pytest.param(replace(USERS, primary=False), ("id",), False, True, id="none is sent"),
    ],
)
def test_f11_a_key_that_the_connector_does_not_send_is_refused(
    shard: ShardFacts, key: tuple[str, ...], topic_keys: bool, refused: bool
) -> None:
    named = replace(shard, columns=(ID, Column("name", "TEXT", nullable=False)))
    folded = FoldedTable(shard.shard.name, key)

    found = check_tables([named], SERVER, lambda _: folded, topic_keys=topic_keys)

    sent = [finding for finding in found if finding.code == "key_sent"]
    assert [one.severity for one in sent] == ([REFUSE] if refused else [])
    assert all(f":{key[0]} in the connector" in one.fix for one in sent)


def test_keys_of_the_connector_stand_in_for_a_missing_key() -> None:
    assert check_tables([replace(USERS, unique=())], SERVER, fold, topic_keys=True) == []


GOOD = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_transaction_compression": "OFF",
    "binlog_order_commits": "ON",
    "binlog_error_action": "ABORT_SERVER",
    "gtid_mode": "ON",
    "read_only": "OFF",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "log_slave_updates": "ON",
    "binlog_expire_logs_seconds": "2592000",
    "expire_logs_days": "0",
}
PRIMARY = ServerFacts((8, 0), mariadb=False, variables=GOOD, replica=False)
SCOPE = ExaminationScope(lambda _: None, timedelta(days=3), timedelta(seconds=2))


def settings_ruled(server: ServerFacts) -> dict[str, FindingSeverity]:
    found = check_settings(server, "source:shop", ["shop", "crm"], SCOPE)
    assert all(finding.fix for finding in found)
    return {finding.code: finding.severity for finding in found}


def changed(**variables: str) -> ServerFacts:
    return replace(PRIMARY, variables={**GOOD, **variables})


def test_a_server_set_up_well_has_a_clean_bill() -> None:
    assert settings_ruled(PRIMARY) == {}


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("log_bin", "OFF", REFUSE),
        ("binlog_format", "STATEMENT", REFUSE),
        ("binlog_format", "MIXED", REFUSE),
        ("binlog_row_image", "MINIMAL", REFUSE),
        ("binlog_row_image", "NOBLOB", REFUSE),
        ("binlog_row_value_options", "PARTIAL_JSON", REFUSE),
        ("binlog_transaction_compression", "ON", REFUSE),
        ("binlog_order_commits", "OFF", REFUSE),
        ("binlog_error_action", "IGNORE_ERROR", REFUSE),
        ("read_only", "ON", REFUSE),
        ("gtid_mode", "OFF", WARN),
        ("binlog_row_metadata", "MINIMAL", WARN),
        ("sync_binlog", "0", NOTE),
        ("innodb_flush_log_at_trx_commit", "2", NOTE),
    ],
)
def test_a_setting_that_harms_is_found(name: str, value: str, severity: FindingSeverity) -> None:
    assert settings_ruled(changed(**{name: value})) == {name: severity}


def test_a_server_that_does_not_know_a_setting_is_not_blamed_for_it() -> None:
    old = {name: GOOD[name] for name in ("log_bin", "binlog_format", "binlog_row_image")}

    assert settings_ruled(replace(PRIMARY, variables=old)) == {}


def test_the_fix_is_a_statement() -> None:
    found = check_settings(changed(binlog_row_image="MINIMAL"), "source:shop", [], SCOPE)

    assert found[0].fix.startswith("SET GLOBAL binlog_row_image = 'full'")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        pytest.param({"binlog_expire_logs_seconds": "86400"}, True, id="a day is short"),
        pytest.param({"binlog_expire_logs_seconds": "259200"}, False, id="three days will do"),
        pytest.param({"binlog_expire_logs_seconds": "0"}, False, id="kept for ever"),
        pytest.param(
            {"binlog_expire_logs_seconds": "0", "expire_logs_days": "1"}, True, id="told in days"
        ),
    ],
)
def test_a_log_kept_for_less_than_the_outage_is_warned_of(
    variables: Mapping[str, Any], found: bool
) -> None:
    assert settings_ruled(changed(**variables)) == ({"log_retention": WARN} if found else {})


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("binlog_do_db=shop", "crm"),
        ("binlog_do_db=shop,crm", None),
        ("binlog_ignore_db=crm,test", "crm"),
        ("binlog_ignore_db=test", None),
    ],
)
def test_databases_that_the_log_leaves_out_are_named(line: str, lost: str | None) -> None:
    unlogged = replace(PRIMARY, unlogged=(line,))

    found = check_settings(unlogged, "source:shop", ["shop", "crm"], SCOPE)

    assert [finding.what for finding in found] == (
        [f"{line}: changes of {lost} are not in the log"] if lost else []
    )


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param(True, {"log_replica_updates": REFUSE, "replica": WARN}, id="a replica"),
        pytest.param(None, {"log_replica_updates": WARN, "replica": WARN}, id="it does not tell"),
        pytest.param(False, {}, id="no replica"),
    ],
)
def test_a_replica_must_log_what_it_replicates(
    replica: bool | None, expected: Mapping[str, FindingSeverity]
) -> None:
    variables = {**GOOD, "log_replica_updates": "OFF"}

    assert settings_ruled(replace(PRIMARY, variables=variables, replica=replica)) == expected


def test_a_clock_that_is_not_ours_is_found() -> None:
    assert settings_ruled(replace(PRIMARY, ahead=timedelta(seconds=-63))) == {"clock": WARN}


WATCH = "GRANT SELECT, SHOW DATABASES, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`"
BEAT = "GRANT ALL PRIVILEGES ON `sluice`.* TO `sluice`@`%`"
NARROW = "GRANT REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`"


def grants_ruled(lines: Sequence[str], *, present: bool = True) -> dict[str, str]:
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


IS_GRANTED = {
    "everywhere": ([WATCH], "SELECT shop.users", True),
    "not granted": ([WATCH], "INSERT shop.users", False),
    "all on a database": ([BEAT], "INSERT sluice.heartbeat", True),
    "another database": ([BEAT], "INSERT shop.users", False),
    "pattern": (["GRANT SELECT ON `shop\\_%`.* TO `u`@`%`"], "SELECT shop_01.x", True),
    "escaped": (["GRANT SELECT ON `shop\\_%`.* TO `u`@`%`"], "SELECT shopx.x", False),
    "table": (["GRANT SELECT ON `shop`.`users` TO `u`@`%`"], "SELECT shop.users", True),
    "other": (["GRANT SELECT ON `shop`.`users` TO `u`@`%`"], "SELECT shop.items", False),
    "some columns are not the table": (
        ["GRANT SELECT (`id`, `n`) ON `shop`.`users` TO `u`@`%`"],
        "SELECT shop.users",
        False,
    ),
    "revoked in part": (
        [WATCH, "REVOKE SELECT ON `shop`.* FROM `sluice`@`%`"],
        "SELECT shop.users",
        False,
    ),
    "MariaDB": (
        ["GRANT SELECT ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*AB' WITH GRANT OPTION"],
        "SELECT shop.users",
        True,
    ),
    "role": (["GRANT `reader`@`%` TO `u`@`%`"], "SELECT shop.users", False),
    "proxy": (["GRANT PROXY ON ''@'' TO 'root'@'localhost'"], "SELECT a.b", False),
}


@pytest.mark.parametrize(("lines", "asked", "allowed"), IS_GRANTED.values(), ids=IS_GRANTED)
def test_may_reads_grants(lines: Sequence[str], asked: str, allowed: bool) -> None:
    privilege, _, table = asked.partition(" ")
    grants = [grant for line in lines if (grant := parse_grant(line))]

    assert is_granted(grants, privilege, *table.split(".")) is allowed


MISSING = {
    "all that Sluice needs": ([WATCH, BEAT], False, {}),
    "no more than it needs": (
        [WATCH, "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`"],
        True,
        {},
    ),
    "may not see the log's end": (
        ["GRANT SELECT, XA_RECOVER_ADMIN ON *.* TO `sluice`@`%`", BEAT],
        True,
        {"grant_log": "GRANT REPLICATION CLIENT ON *.* TO `sluice`@`%`"},
    ),
    "may not write the heartbeat": (
        [WATCH],
        True,
        {"grant_heartbeat": "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`"},
    ),
    "may not read one database": (
        [NARROW, BEAT, "GRANT SELECT ON `shop`.* TO `sluice`@`%`"],
        True,
        {"grant_select": "GRANT SELECT ON `crm`.* TO `sluice`@`%`"},
    ),
}


@pytest.mark.parametrize(("lines", "present", "fixes"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_named_with_the_statement(
    lines: Sequence[str], present: bool, fixes: dict[str, str]
) -> None:
    assert grants_ruled(lines, present=present) == fixes


def test_a_heartbeat_that_is_not_there_comes_with_its_table() -> None:
    fix = grants_ruled([WATCH], present=False)["grant_heartbeat"]

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


SETTINGS = SourceSettings("shop", "db", 3306, "sluice", CollectorSettings("", ""), "shop")
GRANTS = (NARROW, BEAT, "GRANT SELECT ON `shop`.* TO `sluice`@`%`")
STRICT_MODE = {"sql_mode": STRICT}
GRANTED = ServerFacts((9, 6), mariadb=False, variables=STRICT_MODE, grants=GRANTS, replica=False)
KEYLESS = ShardFacts(Shard("shop", "shop.users"), columns=(Column("id", "INT", nullable=False),))
HEARTBEAT = replace(KEYLESS, shard=Shard("shop", "sluice.heartbeat"))
DAY = ExaminationScope(
    lambda shard: None if shard == "sluice.heartbeat" else FoldedTable(shard),
    outage=timedelta(days=3),
    clock_skew=timedelta(seconds=2),
)


def examined(
    scope: ExaminationScope = DAY, server: ServerFacts = GRANTED, *, heartbeat: bool = True
) -> list[tuple[str, str]]:
    found = collect_findings(SETTINGS, server, (HEARTBEAT, KEYLESS), scope, heartbeat=heartbeat)
    return [(one.code, one.where) for one in found]


def test_the_heartbeats_own_table_is_not_ruled() -> None:
    assert examined() == [("no_key", "table shop.users")]


def test_a_key_that_the_collector_may_send_itself_is_no_lack() -> None:
    assert examined(replace(DAY, own_keys=True)) == []


def test_a_table_that_only_a_topic_names_must_be_readable() -> None:
    named = replace(DAY, named=frozenset({"crm.people", "sluice.heartbeat"}))

    assert examined(named)[0] == ("grant_select", "source:shop")


def test_the_heartbeats_table_must_be_there_or_may_be_created() -> None:
    beat = "GRANT SELECT, INSERT, UPDATE ON `sluice`.`heartbeat` TO `sluice`@`%`"
    server = replace(GRANTED, grants=(GRANTS[0], GRANTS[2], beat))

    assert ("grant_heartbeat", "source:shop") not in examined(server=server)
    assert ("grant_heartbeat", "source:shop") in examined(server=server, heartbeat=False)


def test_settings_are_ruled_for_the_databases_that_are_captured_and_for_the_outage() -> None:
    server = replace(GRANTED, unlogged=("binlog_ignore_db=shop,crm",))
    kept = {**STRICT_MODE, "binlog_expire_logs_seconds": "86400"}

    assert examined(server=server)[0] == ("binlog_ignore_db", "source:shop")
    assert examined(server=replace(GRANTED, variables=kept))[0] == ("log_retention", "source:shop")
    shorter = replace(DAY, outage=timedelta(hours=1))
    assert examined(shorter, replace(GRANTED, variables=kept)) == [("no_key", "table shop.users")]
