"""`sluice run` with standards, lineage and a copy: values stay hidden, under a new name too.

A real MySQL, Kafka, Debezium and Spark, a receiver of OpenLineage's events on a port of its own,
and the service as a process; each step stands on the one before.
"""

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable, QueryBuilder

from demo.daemon import Daemon
from demo.debezium import mysql_connector
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from demo.web import LOCAL
from monitor.commands.lineage import COMMAND
from pipeline.standards.hash import KeyedHash
from tests.monitor.receiver import Receiver, receiver
from tests.monitor.test_openlineage import required
from tests.patience import answered
from tests.toy.copy import FileCopy

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NAME, TABLE, SECRET = "hidden", "hidden.users", "0123456789abcdef"
SOON = timedelta(minutes=6)
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
HASH = KeyedHash(("phone",), SECRET)


@dataclass(eq=False)
class Hiding:
    """A table of people, with their phones, and a service that must not keep them."""

    home: Path
    servers: Servers
    url: str
    heard: type[Receiver]
    people: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)
        self.copy = FileCopy(str(self.home / "copy.json"))
        told = {"HASH_KEY": SECRET, "MYSQL_PASSWORD": "sluice"}
        self.service = Daemon("service", self.home / "service.log", environment=told)

    def start(self) -> None:
        self.servers.mysql.execute(
            f"CREATE DATABASE {NAME}",
            f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, phone VARCHAR(40), city VARCHAR(40))",
        )
        self.add(20)
        kafka, only = self.servers.kafka.bootstrap, [NAME, "sluice"]
        wanted = mysql_connector(self.servers.mysql, kafka, databases=only, prefix=NAME)
        self.servers.connect.register(NAME, wanted)
        path = self.home / "sluice.yaml"
        path.write_text(yaml.safe_dump(self._config()), encoding="utf-8")
        run = (sys.executable, "-m", "monitor", "run", "--config", str(path))
        self.service.start(run, self._answers, SOON)

    def stop(self) -> None:
        self.service.stop()
        self.servers.connect.deregister(NAME)
        self.servers.mysql.execute(f"DROP DATABASE IF EXISTS {NAME}")

    def add(self, many: int, *columns: str) -> None:
        """So many people more; the phone is in the first of *columns* that there is."""
        for number in range(len(self.people) + 1, len(self.people) + many + 1):
            phone = f"+8613800{number:06}"
            for column in columns or ("phone",):
                try:
                    self.servers.mysql.execute(
                        f"INSERT INTO {TABLE} (id, {column}, city)"
                        f" VALUES ({number}, '{phone}', 'Wien')"
                    )
                except Exception:  # noqa: BLE001, S112 - the column has its other name by now
                    continue
                self.people[number] = phone
                break

    def ask(self, path: str, **params: Any) -> httpx.Response:
        return LOCAL.get(f"{self.address}{path}", params=params)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def gate(self) -> tuple[int, str]:
        answer = self.ask("/v1/gate", table=TABLE, cut=datetime.now(UTC).isoformat())
        return answer.status_code, answer.text

    def ready(self) -> None:
        cut = datetime.now(UTC).isoformat()
        wait_until(
            lambda: self.ask("/v1/gate", table=TABLE, cut=cut).status_code == 200, SOON, "READY"
        )

    def mirrored(self) -> list[dict[str, Any]]:
        found = DeltaTable(str(self.home / "lake" / "mirrors" / NAME / "users"))
        asked = QueryBuilder().register("t", found).execute("SELECT * FROM t")
        rows: list[dict[str, Any]] = pa.table(asked.read_all()).to_pylist()
        return rows

    def in_the_clear(self) -> list[str]:
        """Files in which a phone stands: lake, copy, store and logs, and answers of the service."""
        found = []
        for one in _files(self.home):
            text = _text(one)
            found += [str(one)] if any(phone in text for phone in self.people.values()) else []
        for path in ("/v1/quarantine", "/v1/incidents", "/v1/tables", "/", "/metrics"):
            text = self.ask(path).text
            found += [path] if any(phone in text for phone in self.people.values()) else []
        heard = str(self.heard.heard)
        return found + [phone for phone in self.people.values() if phone in heard]

    def _config(self) -> dict[str, Any]:
        mysql, connect = self.servers.mysql, self.servers.connect
        source = {"name": NAME, "host": mysql.host, "port": mysql.port, "user": "sluice"}
        source |= {"password": {"env": "MYSQL_PASSWORD"}, "prefix": NAME}
        source |= {"collector": {"url": connect.url, "connector": NAME}}
        hidden = {"columns": ["phone"], "secret": {"env": "HASH_KEY"}}
        copy = {"kind": "tests.toy.copy", "tables": TABLE, "path": self.copy.path}
        return {
            "lake": str(self.home / "lake"),
            "store": str(self.home / "sluice.db"),
            "kafka": self.servers.kafka.bootstrap,
            "sources": [source],
            "standards": [{"tables": TABLE, "key": ["id"], "clear": "*", "hash": hidden}],
            "openlineage": {"url": self.url, "file": str(self.home / "events.jsonl")},
            "copies": {"downstream": copy},
            "readiness": {"margin": "PT1S"},
            "schedule": {"land": "PT1S", "merge": "PT1S", "watch": "PT1S", "probe": "PT2S"},
            "pipeline": {
                "driver_memory": "1g",
                "spark": {"spark.driver.extraJavaOptions": QUICK},
            },
            "http": {"port": self.port},
        }

    def _answers(self) -> bool:
        try:
            return self.ask("/livez").is_success
        except httpx.HTTPError:
            return False


def _files(home: Path) -> Iterator[Path]:
    """All that are there now; folders come and go meanwhile."""
    for folder, _, names in os.walk(home):
        yield from (Path(folder, name) for name in names)


def _text(path: Path) -> str:
    """What a file holds, once it is whole; nothing if it is gone by then."""
    brief = timedelta(minutes=1)
    try:  # what is invalid is being written
        return answered(lambda: _read(path), meanwhile=pa.ArrowInvalid, says="", within=brief)
    except FileNotFoundError:
        return ""


def _read(path: Path) -> str:
    if path.suffix == ".parquet":
        return str(pq.read_table(path).to_pylist())
    return path.read_bytes().decode("utf-8", "replace")


@pytest.fixture(scope="module")
def hiding(server_folder: Path, servers: Servers) -> Iterator[Hiding]:
    home = server_folder / NAME
    home.mkdir()
    with receiver() as (url, heard):
        made = Hiding(home, servers, url, heard)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def test_the_mirror_and_its_copy_have_the_answers_and_nothing_else_has_the_values(
    hiding: Hiding,
) -> None:
    hiding.ready()

    wanted = {number: HASH.value(phone) for number, phone in hiding.people.items()}
    assert {row["id"]: row["phone"] for row in hiding.mirrored()} == wanted
    copied = hiding.copy.rows
    wait_until(lambda: len(copied(TABLE)) == len(wanted), SOON, "all rows in the copy")
    assert {row["phone"] for row in copied(TABLE).values()} == {*wanted.values()}
    assert not hiding.in_the_clear()


def test_events_of_openlineage_come_to_a_receiver_and_tell_the_standard(hiding: Hiding) -> None:
    wait_until(lambda: len(_completed(hiding)) > 0, SOON, "the end of a run")
    wait_until(lambda: len(hiding.heard.heard) >= 2, SOON, "two events")

    for _, event in list(hiding.heard.heard):
        required(event)
    made, *_ = _completed(hiding)
    mysql = hiding.servers.mysql
    place = {"namespace": f"mysql://{mysql.host}:{mysql.port}", "name": TABLE}
    assert made["inputs"] == [place]
    (output,) = made["outputs"]
    assert output["name"] == str(hiding.home / "lake" / "mirrors" / NAME / "users")
    fields = output["facets"]["columnLineage"]["fields"]
    (phone,) = fields["phone"]["inputFields"]
    assert phone["field"] == "phone"
    assert phone["transformations"][0]["masking"]
    assert not fields["city"]["inputFields"][0]["transformations"][0]["masking"]


def test_the_verb_tells_both_sides(hiding: Hiding) -> None:
    told = CliRunner().invoke(COMMAND, [f"{TABLE}.phone", "--server", hiding.address])

    wanted = f"{NAME}/{TABLE}.phone VARCHAR(40) -> {TABLE}.phone string, by the standard hash\n"
    assert told.output == wanted


def test_a_column_that_gets_another_name_under_load_brings_no_value_with_it(
    hiding: Hiding,
) -> None:
    before, done = len(hiding.people), threading.Event()

    def load() -> None:
        while not done.is_set():
            hiding.add(5, "phone", "mobile")

    writing = threading.Thread(target=load)
    writing.start()
    try:
        wait_until(lambda: len(hiding.people) > before + 20, SOON, "rows before")
        hiding.servers.mysql.execute(f"ALTER TABLE {TABLE} RENAME COLUMN phone TO mobile")
        renamed = len(hiding.people)
        wait_until(lambda: len(hiding.people) > renamed + 50, SOON, "rows after")
    finally:
        done.set()
        writing.join()
    hiding.servers.mysql.execute(
        f"UPDATE {TABLE} SET city = 'Graz' WHERE id < 5", f"DELETE FROM {TABLE} WHERE id = 6"
    )

    wait_until(lambda: hiding.gate()[0] == 409, SOON, "BLOCKED")
    wait_until(lambda: _counted(hiding) >= 55, SOON, "all of them in quarantine")
    assert "has no column phone, whose values may be in another column" in _quarantined(hiding)
    assert not hiding.in_the_clear()


def _completed(hiding: Hiding) -> list[dict[str, Any]]:
    return [event for _, event in list(hiding.heard.heard) if event["eventType"] == "COMPLETE"]


def _quarantined(hiding: Hiding) -> str:
    return hiding.ask("/v1/quarantine", table=TABLE).text


def _counted(hiding: Hiding) -> int:
    found: dict[str, int] = hiding.ask("/v1/quarantine", table=TABLE).json()["open"]
    return found.get(TABLE, 0)
