"""What a server's settings cost is found; a server set up as the docs say has a clean bill."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.finding import NOTE, REFUSE, WARN, FindingSeverity
from pipeline.sources.mysql.doctor import check_settings
from pipeline.sources.mysql.facts import ServerFacts
from pipeline.sources.source import ExaminationScope

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
SERVER = ServerFacts((8, 0), mariadb=False, variables=GOOD, replica=False)
SCOPE = ExaminationScope(lambda _: None, timedelta(days=3), timedelta(seconds=2))


def ruled(server: ServerFacts) -> dict[str, FindingSeverity]:
    found = check_settings(server, "source:shop", ["shop", "crm"], SCOPE)
    assert all(finding.fix for finding in found)
    return {finding.code: finding.severity for finding in found}


def changed(**variables: str) -> ServerFacts:
    return replace(SERVER, variables={**GOOD, **variables})


def test_a_server_set_up_well_has_a_clean_bill() -> None:
    assert ruled(SERVER) == {}


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
    assert ruled(changed(**{name: value})) == {name: severity}


def test_a_server_that_does_not_know_a_setting_is_not_blamed_for_it() -> None:
    old = {name: GOOD[name] for name in ("log_bin", "binlog_format", "binlog_row_image")}

    assert ruled(replace(SERVER, variables=old)) == {}


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
    assert ruled(changed(**variables)) == ({"log_retention": WARN} if found else {})


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
    unlogged = replace(SERVER, unlogged=(line,))

    found = check_settings(unlogged, "source:shop", ["shop", "crm"], SCOPE)

    assert [finding.what for finding in found] == (
        [f"{line}: changes of {lost} are not in the log"] if lost else []
    )


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param(True, {"log_replica_updates": REFUSE, "replica": WARN}, id="a replica"),
        pytest.param(None, {"log_replica_updates": WARN}, id="it does not tell"),
        pytest.param(False, {}, id="no replica"),
    ],
)
def test_a_replica_must_log_what_it_replicates(
    replica: bool | None, expected: Mapping[str, FindingSeverity]
) -> None:
    variables = {**GOOD, "log_replica_updates": "OFF"}

    assert ruled(replace(SERVER, variables=variables, replica=replica)) == expected


@pytest.mark.parametrize(
    ("ahead", "told"),
    [(2, None), (-2, None), (63, "63 s ahead of ours"), (-63, "63 s behind ours")],
)
def test_a_clock_that_is_not_ours_is_found(ahead: int, told: str | None) -> None:
    server = replace(SERVER, ahead=timedelta(seconds=ahead))

    found = check_settings(server, "source:shop", ["shop"], SCOPE)

    assert [one.code for one in found] == ([] if told is None else ["clock"])
    assert all(told in one.what for one in found if told)
