"""The doctor on real servers: a clean bill for the demo's connector, a refusal for the defaults."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from demo.debezium import MYSQL_LOSSLESS, mysql_connector
from demo.processes import wait_until
from demo.servers import Servers
from monitor.commands.doctor import COMMAND
from pipeline.errors import UnreachableError
from pipeline.model import TopicPartition
from pipeline.transports.kafka import KafkaTransport

pytestmark = pytest.mark.stack

PATIENCE = timedelta(minutes=4)
NAME = "clinic"
CONFIG = """\
lake: lake
kafka: {kafka}
sources:
  - name: clinic
    host: {host}
    port: {port}
    user: {user}
    password: {{env: DOCTOR_PASSWORD}}
    prefix: clinic
    collector: {{url: "{connect}", connector: clinic}}
"""
TABLES = (
    f"CREATE DATABASE {NAME}",
    f"CREATE TABLE {NAME}.teams (id INT PRIMARY KEY)",
    f"CREATE TABLE {NAME}.people (id INT PRIMARY KEY, team INT, n INT NULL DEFAULT 7,"
    f" CONSTRAINT goes FOREIGN KEY (team) REFERENCES {NAME}.teams (id) ON DELETE CASCADE)",
    f"CREATE TABLE {NAME}.notes (body TEXT, place POINT)",
    f"INSERT INTO {NAME}.teams VALUES (1)",
    f"INSERT INTO {NAME}.people VALUES (1, NULL, NULL)",
)
WORKER = "offset.flush.interval.ms=1000\nproducer.retries=2147483647\n# producer.acks=0\n"


@pytest.fixture
def clinic(servers: Servers) -> Iterator[Servers]:
    servers.mysql.execute(*TABLES)
    servers.mysql.execute(
        "CREATE USER 'nobody'@'%' IDENTIFIED BY 'sluice'",
        f"GRANT SELECT ON {NAME}.people TO 'nobody'@'%'",
    )
    yield servers
    with suppress(UnreachableError):
        servers.connect.deregister(NAME)
    servers.mysql.execute(f"DROP DATABASE {NAME}", "DROP USER 'nobody'@'%'")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCTOR_PASSWORD", "sluice")
    (tmp_path / "worker.properties").write_text(WORKER, encoding="utf-8")
    return tmp_path


def register(servers: Servers, **settings: str) -> None:
    config = mysql_connector(
        servers.mysql,
        servers.kafka.bootstrap,
        prefix=NAME,
        databases=[NAME, "sluice"],
        settings={name.replace("_", "."): value for name, value in settings.items()},
    )
    servers.connect.register(NAME, config)


def run_doctor(servers: Servers, folder: Path, *, user: str = "sluice", kafka: str = "") -> Result:
    path = folder / "sluice.yaml"
    mysql = servers.mysql
    text = CONFIG.format(
        kafka=kafka or servers.kafka.bootstrap,
        host=mysql.host,
        port=mysql.port,
        user=user,
        connect=servers.connect.url,
    )
    path.write_text(text, encoding="utf-8")
    worker = str(folder / "worker.properties")
    return CliRunner().invoke(COMMAND, ["--config", str(path), "--worker", worker, "--json"])


def finding_codes(result: Result, severity: str) -> dict[str, str]:
    findings: list[dict[str, Any]] = json.loads(result.output)["findings"]
    return {one["code"]: one["where"] for one in findings if one["severity"] == severity}


def last_change(servers: Servers, table: str = "people") -> Mapping[str, Any] | None:
    """The last change of a table, as it arrived."""
    at = TopicPartition(f"{NAME}.{NAME}.{table}", 0)
    with KafkaTransport(servers.kafka.bootstrap) as kafka:
        last = kafka.last_records([at]).get(at)
    after: Mapping[str, Any] = json.loads(last.value)["after"] if last and last.value else {}
    return after or None


def test_the_demos_connector_has_a_clean_bill(clinic: Servers, folder: Path) -> None:
    register(clinic)
    wait_until(lambda: last_change(clinic) is not None, PATIENCE, "a row in the topic")

    result = run_doctor(clinic, folder)

    assert result.exit_code == 0, result.output
    assert finding_codes(result, "refuse") == {}
    assert finding_codes(result, "warn") == {
        "unproven": f"table {NAME}.people",
        "no_key": f"table {NAME}.notes",
    }
    assert finding_codes(result, "note")["unverifiable"] == f"table {NAME}.notes"


def test_null_in_a_column_with_a_default_stays_null_as_the_doctor_demands(clinic: Servers) -> None:
    register(clinic)
    wait_until(lambda: last_change(clinic) is not None, PATIENCE, "the snapshot's row")
    assert (last_change(clinic) or {})["n"] is None

    clinic.mysql.execute(f"INSERT INTO {NAME}.people VALUES (2, NULL, NULL)")

    wait_until(lambda: (last_change(clinic) or {}).get("id") == 2, PATIENCE, "the row from the log")
    assert (last_change(clinic) or {})["n"] is None


def test_a_connector_with_the_defaults_is_refused(clinic: Servers, folder: Path) -> None:
    stated = ("topic.creation.", "connector.class")
    config = mysql_connector(clinic.mysql, clinic.kafka.bootstrap, prefix=NAME, databases=[NAME])
    ours = {name for name in MYSQL_LOSSLESS if not name.startswith(stated)}
    clinic.connect.register(NAME, {n: v for n, v in config.items() if n not in ours})

    result = run_doctor(clinic, folder)

    assert result.exit_code == 1, result.output
    assert finding_codes(result, "refuse").keys() == {
        "bigint.unsigned.handling.mode",
        "decimal.handling.mode",
        "enable.time.adjuster",
        "event.converting.failure.handling.mode",
        "heartbeat_captured",
        "skipped.operations",
        "value.converter.replace.null.with.default",
    }
    clinic.mysql.execute(f"INSERT INTO {NAME}.people VALUES (3, NULL, NULL)")
    wait_until(lambda: (last_change(clinic) or {}).get("id") == 3, PATIENCE, "the row from the log")
    assert (last_change(clinic) or {})["n"] == 7  # NULL in the source: the refusal is no pedantry


def test_a_user_without_rights_is_told_the_statements(clinic: Servers, folder: Path) -> None:
    register(clinic)
    wait_until(
        lambda: last_change(clinic, "teams") is not None, PATIENCE, "a table that nobody may see"
    )

    result = run_doctor(clinic, folder, user="nobody")

    assert result.exit_code == 1, result.output
    assert finding_codes(result, "refuse").keys() == {
        "grant_log",
        "grant_heartbeat",
        "grant_select",
        "grant_xa",
    }


def test_what_does_not_answer_is_no_clean_bill(clinic: Servers, folder: Path) -> None:
    register(clinic)

    result = run_doctor(clinic, folder, kafka="127.0.0.1:9")

    assert result.exit_code == 3, result.output
    assert [one["where"] for one in json.loads(result.output)["unasked"]] == [f"kafka:{NAME}"]
