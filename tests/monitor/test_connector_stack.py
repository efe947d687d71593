"""On a real Connect what the verb registers runs, and the doctor has nothing to say to it."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from demo.processes import wait_until
from demo.servers import Servers
from monitor.commands import connector, doctor
from pipeline.errors import ConfigError, UnreachableError
from pipeline.model import TopicPartition
from pipeline.transports.kafka import KafkaTransport

pytestmark = pytest.mark.stack

PATIENCE = timedelta(minutes=4)
NAME = "registrar"
CONFIG = """\
lake: lake
kafka: {kafka}
sources:
  - name: {name}
    host: 127.0.0.1
    port: {port}
    user: sluice
    password: {{env: REGISTRAR_PASSWORD}}
    prefix: {name}
    collector:
      url: {connect}
      connector: {name}
      options: {{settings: {{database.password: "${{file:{secrets}:debezium}}"}}}}
tables:
  - {{shards: '{name}\\.people_\\d{{1,2}}', table: {name}.people}}
"""


@pytest.fixture
def office(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The config of a source with one shard, of which nothing is collected yet."""
    monkeypatch.setenv("REGISTRAR_PASSWORD", "sluice")
    servers.mysql.execute(
        f"CREATE DATABASE {NAME}",
        f"CREATE TABLE {NAME}.people_07 (id INT PRIMARY KEY)",
        f"INSERT INTO {NAME}.people_07 VALUES (1)",
    )
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("debezium=debezium\n", encoding="utf-8")
    path = tmp_path / "sluice.yaml"
    text = CONFIG.format(
        name=NAME,
        kafka=servers.kafka.bootstrap,
        port=servers.mysql.port,
        connect=servers.connect.url,
        secrets=secrets,
    )
    path.write_text(text, encoding="utf-8")
    yield path
    with suppress(UnreachableError):
        servers.connect.deregister(NAME)
    servers.mysql.execute(f"DROP DATABASE {NAME}")


@pytest.fixture
def apply(office: Path) -> Callable[[], Result]:
    return lambda: CliRunner().invoke(connector.COMMAND, [NAME, "--apply", "--config", str(office)])


def read_doctor_findings(office: Path) -> dict[str, str]:
    """What the doctor says of the collector, by codes."""
    worker = office.with_name("worker.properties")
    worker.write_text("offset.flush.interval.ms=1000\n", encoding="utf-8")
    words = ["--config", str(office), "--worker", str(worker), "--json"]
    findings = json.loads(CliRunner().invoke(doctor.COMMAND, words).output)["findings"]
    ours = [one for one in findings if one["where"] == f"collector:{NAME}"]
    return {one["code"]: one["severity"] for one in ours}


def test_f52_a_source_is_collected_by_one_command(
    servers: Servers, office: Path, apply: Callable[[], Result]
) -> None:
    assert read_doctor_findings(office) == {"unregistered": "refuse"}

    result = apply()

    assert result.output.endswith("\nregistered\n"), result.exception
    at = TopicPartition(f"{NAME}.{NAME}.people_07", 0)
    with KafkaTransport(servers.kafka.bootstrap) as kafka:
        wait_until(lambda: at in kafka.last_records([at]), PATIENCE, "the row in its topic")
    wait_until(
        lambda: read_doctor_findings(office) == {},
        PATIENCE,
        "a collector with nothing to put right",
    )

    servers.connect.register(
        NAME, {**servers.connect.config(NAME), "decimal.handling.mode": "double"}
    )
    assert read_doctor_findings(office) == {"decimal.handling.mode": "refuse"}
    assert apply().output == "~ decimal.handling.mode: double -> string\nchanged\n"
    assert apply().output == "the connector has these settings already; nothing was changed\n"


def test_f52_a_password_that_is_wrong_is_told_in_connects_words(
    office: Path, apply: Callable[[], Result]
) -> None:
    office.with_name("secrets.properties").write_text("debezium=wrong\n", encoding="utf-8")

    result = apply()

    assert isinstance(result.exception, ConfigError)
    assert "Access denied" in str(result.exception)
