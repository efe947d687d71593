"""S14, later: what belongs in a day and comes after its image corrects that, and is told.

On real servers, after a day of 25 hours: a change below the cut arrives when the image is READY, as
from a collector that acknowledged more than it had sent.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from demo.oracle.compare import compare
from demo.processes import wait_until
from demo.shop.link import Address
from demo.shop.schema import MIRRORS
from monitor.commands.late import COMMAND
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder
from tests.seeds.test_s14_midnight import (
    AHEAD,
    ORDERS,
    SOON,
    Midnight,
    around,
    odd_day,
    read_folder,
    ready,
    replica,
    restart,
)

TOPIC = "shop.shop_00.orders_00"
CHANGED = "UPDATE shop_00.orders_00 SET note = 'too late' WHERE note = 'in time'"


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand(new_folder("late"), 15, rate=40)
    yield made
    made.close()


@pytest.mark.stack
@pytest.mark.long
def test_s14_a_change_that_comes_after_the_image_of_its_day_corrects_it(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.open()
    night = odd_day(stand.home, datetime.now(UTC).replace(microsecond=0) + AHEAD, 25)
    monkeypatch.setenv("PYTHONTZPATH", f"{stand.home}:/usr/share/zoneinfo")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(restart, stand, night)
        around(stand, night)
        starting.result()
    answers = {table: ready(stand, table, night) for table in MIRRORS}
    before = read_folder(answers[ORDERS]["path"])
    stand.workload.stop()
    stand.recover()

    send_late(stand)
    corrected = certified_anew(stand, night, answers[ORDERS])

    assert revoked(stand, answers[ORDERS]) is not None
    late = stand.service.http.get("/v1/late").json()
    assert [(one["table"], one["day"], one["rows"]) for one in late] == [(ORDERS, night.day, 1)]
    ((day, rows),) = late[0]["days"].items()
    assert (day, rows) in {(night.day, 1), (str(night.at.date()), 1)}
    said = CliRunner().invoke(COMMAND, ["--server", stand.service.url]).output
    assert said.startswith(f"{ORDERS} {night.day}: 1 changes landed at ")
    assert said.rstrip().endswith(f"({day}: 1)")
    assert read_folder(corrected["path"]) == [
        {**one, "note": "too late"} if one["note"] == "in time" else one for one in before
    ]
    stand.finish()
    versions = {table: one["version"] for table, one in answers.items()}
    found = compare(replica(stand, night), stand.service.lake, versions=versions)
    assert {table: str(one) for table, one in found.items() if not one.clean} == {}
    mysql = stand.servers.mysql
    found = compare(Address(mysql.host, mysql.port), stand.service.lake)
    assert {table: str(one) for table, one in found.items() if not one.clean} == {}
    shutil.rmtree(stand.home)


def send_late(stand: Stand) -> None:
    """Change a row at the source without a word in its log, and send that word now.

    It stands right after the row's own in the log, before midnight; and in a partition of its own,
    in which nothing newer came before it.
    """
    key, told = sent_message(stand)
    stand.servers.mysql.execute("SET sql_log_bin = 0", CHANGED)
    told |= {"op": "u", "before": told["after"], "transaction": None}
    told["after"] = told["after"] | {"note": "too late"}
    told["source"]["pos"] += 1
    brokers = stand.servers.kafka.bootstrap
    admin = KafkaAdminClient(bootstrap_servers=brokers)
    admin.create_partitions({TOPIC: 2})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=brokers)
    producer.send(TOPIC, key=key, value=json.dumps(told).encode(), partition=1).get(timeout=30)
    producer.close()


def sent_message(stand: Stand) -> tuple[bytes, dict[str, Any]]:
    """Key and value of the message that brought the row."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=stand.servers.kafka.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=120_000,
    )
    try:
        for message in consumer:
            if message.value is not None and b'"in time"' in message.value:
                told: dict[str, Any] = json.loads(message.value)
                return message.key, told
    finally:
        consumer.close()
    pytest.fail("it was never sent")


def certified_anew(stand: Stand, night: Midnight, first: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the gate says of the image once another one is certified."""

    found: list[Mapping[str, Any]] = []

    def certified() -> bool:
        found.append(ready(stand, ORDERS, night))
        return bool(found[-1]["certificate"] != first["certificate"])

    wait_until(certified, SOON, "a corrected image")
    return found[-1]


def revoked(stand: Stand, answer: Mapping[str, Any]) -> object:
    """When the certificate was taken back."""
    told = stand.service.http.get(f"/v1/certificates/{answer['certificate']}").json()
    return told["revoked"]
