"""Harms the rides under load, and judges whether each READY given meanwhile was true."""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx
from kafka import KafkaAdminClient

from demo.kafka import Kafka
from demo.registry import Registry
from tests.pipeline.formats.avro_writer import Schema
from tests.proof.rides import Rides
from tests.proof.torment import partitions

GROWN = {"dbevents.rides.trips": 5, "dbevents.rides.drivers": 3}  # from 2 each
POISONED = 5
TIP: Mapping[str, Schema] = {"tip": ["null", "double"]}


@dataclass(eq=False)
class Witness:
    """Rows that each of its transactions rewrites: a mirror tells which of these it holds.

    ``false`` are READYs of a cut that the version they name lacks a transaction from before.
    """

    rides: Rides
    table: str = "rides.drivers"
    ids: range = range(2001, 2009)
    committed: list[datetime] = field(default_factory=list)
    ready: int = 0
    false: list[str] = field(default_factory=list)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Write and ask meanwhile.

        Raises:
            Exception: what the writer or the asker could not bear.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(one, ended) for one in (self._write, self._ask)]
            try:
                yield
            finally:
                ended.set()
        for one in both:
            one.result()

    def _write(self, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            self.rides.change(1)
            rows = [(id_, "witness", len(self.committed)) for id_ in self.ids]
            with self.rides.mysql.connect(autocommit=False) as link, link.cursor() as cursor:
                cursor.executemany(f"REPLACE INTO {self.table} VALUES (%s, %s, %s)", rows)
                link.commit()
            self.committed.append(datetime.now(UTC))

    def _ask(self, ended: threading.Event) -> None:
        chance = random.Random(3)
        while not ended.wait(0.3):
            self._judge(datetime.now(UTC) - timedelta(seconds=chance.uniform(0, 40)))

    def _judge(self, cut: datetime) -> None:
        asked = {"table": self.table, "cut": cut.isoformat()}
        try:
            answer = self.rides.service.http.get("/v1/gate", params=asked)
        except httpx.HTTPError:
            return  # it was killed
        due = sum(one < cut for one in self.committed) - 1
        if answer.status_code != httpx.codes.OK or due < 0:
            return
        self.ready += 1
        (told,) = answer.json()["tables"]
        rows = self.rides.mirror(self.table, told["version"])
        held = min(rows[id_]["trips"] if id_ in rows else -1 for id_ in self.ids)
        if held < due:
            self.false.append(f"{cut}: {due} was committed, version has {held}: {told}")


def restart(server: Kafka | Registry) -> None:
    """Kill it; it is away for a while."""
    server.kill()
    time.sleep(2)
    server.start()


def grow(rides: Rides) -> None:
    """Give the topics more partitions, so that keys move.

    The sender is started anew, for it asks for a topic's partitions every five minutes only.
    """
    admin = KafkaAdminClient(bootstrap_servers=rides.kafka.bootstrap)
    admin.create_partitions(GROWN)
    admin.close()
    rides.sender.kill()
    rides.send()
    for topic, count in GROWN.items():
        rides.until(
            lambda t=topic, n=count: len(partitions(rides.service.lake, t)) == n,  # type: ignore[misc]
            f"rows in each partition of {topic}",
        )


def alter(rides: Rides) -> None:
    """Add a column; their team lets its sender tell it in a new version of the schema.

    It ends its batch first: an event that is repeated in another version says something else.
    """
    rides.mysql.execute("ALTER TABLE rides.trips ADD COLUMN tip DOUBLE")
    rides.sender.stop()
    rides.added["rides.trips"] = TIP
    rides.send()
    rides.mysql.execute("UPDATE rides.trips SET tip = id / 2 WHERE id % 3 = 0")


def poison(rides: Rides) -> None:
    """Put what nobody can read between the messages; all of it is found, and waived by name."""
    for _ in range(POISONED):
        rides.rubbish()
        time.sleep(1)
    rides.until(lambda: len(rides.quarantined()) == POISONED, "quarantine")
    for one in rides.quarantined():
        rides.verb("waive", one["id"], "--reason", "rubbish of a test")
