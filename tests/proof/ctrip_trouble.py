"""What befalls the system of docs/systems/ctrip.md beside kills; each ends when all is READY."""

from collections.abc import Callable
from typing import Any

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from demo.kafka import Kafka
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import wait_until
from demo.story.service import read_config
from tests.proof.ctrip import SHARDS, SOON, TOPICS, Site
from tests.proof.torment import POISON, partitions

LEVEL = "level"  # the column that is added
PARTITIONS = 11  # by which each key of the second topic goes to one that is new


def restart_there(site: Site) -> None:
    """The broker that the senders write to."""
    _restart(site, site.there, "there")


def restart_here(site: Site) -> None:
    """The broker that is read."""
    _restart(site, site.here, "here")


def poison(site: Site) -> None:
    """Put what nobody can read between the messages of both topics, and waive it by name."""
    producer = Producer({"bootstrap.servers": site.there.bootstrap})
    for topic, _ in TOPICS.values():
        for value in POISON:
            producer.produce(topic, value, b"nobody")
    assert producer.flush(30) == 0
    waived = set[str]()
    wait_until(lambda: len(_waive(site, waived)) >= 2 * len(POISON), SOON, "quarantine")
    site.note(f"{len(waived)} poisoned, and waived")
    site.ready()


def alter(site: Site) -> None:
    """Add a column to every shard; where no statement is sent, the config tells it first."""
    told = read_config(site.service.config)
    for table in told["sources"][1]["format_options"]["tables"].values():
        table["columns"][LEVEL] = "int(11)"
    site.service.config.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    site.kill_service()
    for number, shards in SHARDS.items():
        for shard in shards:
            site.mysql[number].execute(f"ALTER TABLE {shard} ADD COLUMN {LEVEL} INT")
            with site.orders.resting:
                site.orders.extra[shard] = LEVEL
    site.note("a column added to every shard")
    site.ready()


def grow(site: Site) -> None:
    """Give the second topic more partitions: tables and heartbeats go another way from now on.

    Who sends is started anew, for it asks for a topic's partitions every five minutes only.
    """
    name, count = TOPICS[2]
    admin = AdminClient({"bootstrap.servers": site.there.bootstrap})
    for made in admin.create_partitions([NewPartitions(name, PARTITIONS)]).values():
        made.result()
    site.note(f"{name} has {PARTITIONS} partitions")
    site.kill_sender(2)
    wait_until(lambda: _new_ones(site, count), SOON, "rows in the new partitions")
    site.note(f"rows landed from {_new_ones(site, count)}")
    site.ready()


def fail_over(site: Site, number: int) -> None:
    """An instance dies, and a replica takes its address; who sends its log goes on there."""
    old = site.mysql[number]
    heir = MySQL(site.home / f"heir-{number}", free_ports(1)[0], server_id=10 + number)
    heir.start()
    try:
        heir.replica_of(old)
        with site.orders.resting:
            done = old.execute("SELECT @@gtid_executed")[0][0]
            caught = f"SELECT GTID_SUBSET({done!r}, @@gtid_executed)"
            wait_until(lambda: heir.execute(caught)[0][0] == 1, SOON, "replica")
            site.senders[f"sender-{number}"].kill()
            old.kill()
            heir.execute("STOP SLAVE", "RESET SLAVE ALL")
            heir.stop()
            heir.port = old.port
            heir.start()
            site.mysql[number] = heir
    except BaseException:
        heir.stop()
        raise
    site.send(number)
    site.note(f"instance {number} failed over")
    site.ready()


def fail_over_canal(site: Site) -> None:
    """Of the instance that canal sends."""
    fail_over(site, 1)


def fail_over_simple(site: Site) -> None:
    """Of the instance that is sent as SimpleBinlog."""
    fail_over(site, 2)


TROUBLES: tuple[Callable[[Site], None], ...] = (
    *(restart_there, restart_here, poison, grow, fail_over_canal, fail_over_simple, alter),
)


def _new_ones(site: Site, count: int) -> list[int]:
    """Partitions from *count* on of which rows of the table have landed."""
    name, _ = TOPICS[2]
    return [one for one in partitions(site.service.lake, f"there.{name}") if one >= count]


def _restart(site: Site, broker: Kafka, name: str) -> None:
    broker.restart()
    site.note(f"the broker {name} killed, and started")
    site.ready()


def _waive(site: Site, waived: set[str]) -> set[str]:
    """Waive what holds the table up, as far as it is told."""
    reasons: list[dict[str, Any]] = [one for told in site.gate() for one in told["reasons"]]
    for name in {one["id"] for one in reasons if one["code"] == "quarantine"} - waived:
        waiver = {"id": name, "reason": "poisoned by a test", "who": "a test"}
        if site.service.http.post("/v1/waivers", json=waiver).is_success:
            waived.add(name)
    return waived
