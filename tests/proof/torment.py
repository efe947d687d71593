"""What else befalls a topic under load: sent again, grown, its shards altered, and poisoned."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from kafka import KafkaAdminClient, KafkaProducer

from demo.processes import wait_until
from demo.shop.schema import ORDER_SHELVES
from demo.web import LOCAL
from tests.proof.asking import questions
from tests.proof.stand import PATIENCE, Stand

TABLE = "shop.orders"
PARTITIONS = 6
EVERY = 1_000  # changes between two poisoned messages
POISON = (
    *(b"\xff\xfe", b"{", b'{"op":"c"}', b'{"payload":{"op":"u","source":{}}}', b"[]"),
    *(b"\0\0\0\0\1", b"\0\xff\xff\xff\xffno schema has this number"),
)


@dataclass(eq=False)
class Torment:
    """Each is done under load; all tables are READY before and after.

    ``topic`` holds changes of orders.
    """

    stand: Stand
    topic: str
    poisoned: int = 0
    waived: set[str] = field(default_factory=set)

    def send_again(self, changes: int) -> None:
        """Let the collector go back by that many *changes*, as if it had lost what it knew."""
        stand = self.stand
        connect, name, tally = stand.system.site.connect, stand.connector, stand.workload.tally
        known, begun = connect.offsets(name), tally["changes"]
        wait_until(
            lambda: self.stand.workload.tally["changes"] > begun + changes, PATIENCE, "changes"
        )
        connect.halt(name)
        url = f"{connect.url}/connectors/{name}/offsets"
        LOCAL.patch(url, json={"offsets": known}).raise_for_status()
        connect.resume(name)
        self._over(f"{changes} changes and more sent again")

    def grow(self) -> None:
        """Give the topic more partitions, so that keys move."""
        admin = KafkaAdminClient(bootstrap_servers=self.stand.system.site.kafka.bootstrap)
        admin.create_partitions({self.topic: PARTITIONS})
        admin.close()
        self.stand.load(3)
        self._over(f"{self.topic} has {PARTITIONS} partitions")
        wait_until(self._everywhere, PATIENCE, "changes in each of them")

    def alter(self) -> None:
        """Add a column to the shards, one after the other."""
        for shelf in ORDER_SHELVES:
            self.stand.servers.mysql.execute(
                f"ALTER TABLE {shelf.name} ADD COLUMN level INT NOT NULL DEFAULT 7"
            )
            self.stand.load(1)
        self._over("every shard altered")

    def poison(self) -> None:
        """Put what nobody can read between the messages; all of it is found, and waived by name."""
        producer = KafkaProducer(bootstrap_servers=self.stand.system.site.kafka.bootstrap)
        for value in POISON:
            begun = self.stand.workload.tally["changes"]
            producer.send(self.topic, key=b'{"id":1}', value=value).get(timeout=30)
            self.poisoned += 1
            wait_until(
                lambda since=begun: self.stand.workload.tally["changes"] > since + EVERY,  # type: ignore[misc]
                PATIENCE,
                "changes",
            )
        producer.close()
        wait_until(lambda: len(self._waive()) >= self.poisoned, PATIENCE, "quarantine")
        self._over(f"{self.poisoned} messages poisoned, one in {EVERY} changes, and waived")

    def _everywhere(self) -> bool:
        return len(partitions(self.stand.service.lake, self.topic)) == PARTITIONS

    def _waive(self) -> set[str]:
        """Waive what holds their table up, as far as it is told."""
        http = self.stand.service.http
        (asked,) = [
            one
            for one in questions(datetime.now(UTC))
            if (one.table, one.stage) == (TABLE, "mirror")
        ]
        params: dict[str, Any] = {"table": asked.table, "cut": asked.cut.isoformat()}
        (told,) = http.get("/v1/gate", params=params).json()["tables"] or [{"reasons": ()}]
        for name in {one["id"] for one in told["reasons"] if one["id"]} - self.waived:
            waiver = {"id": name, "reason": "poisoned by a test", "who": "a test"}
            if http.post("/v1/waivers", json=waiver).is_success:
                self.waived.add(name)
        return self.waived

    def _over(self, what: str) -> None:
        self.stand.note(what)
        self.stand.recover()
        self.stand.note("recovered")


def partitions(lake: str, topic: str) -> list[int]:
    """Those of *topic* that rows of tables were landed from, ascending."""
    log = DeltaTable(f"{lake}/changes")
    asked = f"""
        SELECT DISTINCT partition FROM log WHERE topic = '{topic}' AND "table" IS NOT NULL
        ORDER BY partition
    """
    found = pa.table(QueryBuilder().register("log", log).execute(asked).read_all())
    return [row["partition"] for row in found.to_pylist()]
