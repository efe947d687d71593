"""The system of docs/systems/ctrip.md on real servers, by the config that stands there.

Only addresses, memory and paces are others.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable, QueryBuilder

from demo import processes
from demo.canal import CollectedLog
from demo.connect import Connect
from demo.kafka import Kafka
from demo.mysql import MySQL
from demo.oracle.compare import Diff, judge, mirror_path
from demo.oracle.rows import Source, read_mirror, read_sources
from demo.ports import free_ports
from demo.processes import Process, wait_until
from demo.shop.link import Address
from demo.story.service import Service, read_config
from pipeline.errors import UnreachableError
from tests.docs.markdown import ROOT, blocks
from tests.mirror_maker import mirroring

PAGE = ROOT / "docs" / "systems" / "ctrip.md"
FOLDED = "ordercenter.orderinfo"
SHARDS = {
    1: ("ordercenter_00.orderinfo_00", "ordercenter_00.orderinfo_01"),
    2: ("ordercenter_01.orderinfo_00", "ordercenter_02.orderinfo_00"),
}
TABLE = (
    "(id BIGINT PRIMARY KEY, customer VARCHAR(32) NOT NULL, amount DECIMAL(10,2) NOT NULL,"
    " created DATETIME NOT NULL, touched BIGINT NOT NULL)"
)
TOPICS = {1: ("canal-order-1", 1), 2: ("simple-order-2", 3)}
FORMS = {1: "canal_json", 2: "simple_binlog"}
SOON = timedelta(minutes=6)


@dataclass(frozen=True, slots=True)
class Touch:
    """What became of a row at one moment: ``number`` stands in it, None once it is gone.

    It was committed between ``begun`` and ``ended``.
    """

    begun: datetime
    ended: datetime
    number: int | None


@dataclass(eq=False)
class Orders:
    """Writes to both instances, one transaction after the other, and knows what it wrote.

    It stands still while somebody has ``resting``; ``extra`` is a column that a shard got later.
    """

    servers: Mapping[int, MySQL]
    seed: int = 7
    known: dict[tuple[str, int], list[Touch]] = field(default_factory=dict)
    where: dict[int, tuple[int, str]] = field(default_factory=dict)
    resting: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)
    moved: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    _number: int = 0
    _thread: threading.Thread | None = None

    def create(self, rows: int) -> None:
        """Make the shards, with rows that no topic ever tells of."""
        for server, shards in SHARDS.items():
            for shard in shards:
                database, _, _ = shard.partition(".")
                self.servers[server].execute(
                    f"CREATE DATABASE IF NOT EXISTS {database}", f"CREATE TABLE {shard} {TABLE}"
                )
        for _ in range(rows):
            self._insert()

    def start(self) -> None:
        """Go on until :meth:`stop`."""
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction that runs."""
        self.stopped.set()
        if self._thread is not None:
            self._thread.join()

    def allowed(self, shard: str, key: int, cut: datetime) -> set[int | None]:
        """What a mirror complete up to *cut* may hold of a row: that, or what came since."""
        touches = self.known.get((shard, key), [])
        before = [one for one in touches if one.ended < cut]
        later = {one.number for one in touches if one.ended >= cut}
        return {before[-1].number if before else None, *later}

    def _run(self) -> None:
        chance = random.Random(self.seed)
        while not self.stopped.wait(0.02):
            with self.resting:
                self._step(chance)

    def _step(self, chance: random.Random) -> None:
        what = chance.random()
        if what < 0.4 or not self.where:
            self._insert()
            return
        key = chance.choice(tuple(self.where))
        if what < 0.8:
            self._update(key)
        elif what < 0.9:
            self._delete(key)
        else:
            self._move(key)

    def _insert(self, key: int | None = None, onto: int | None = None) -> None:
        self._number += 1
        key = self._number if key is None else key
        server = onto or (1 + key % 2)
        shard = SHARDS[server][key // 2 % 2]
        self._commit(
            server,
            shard,
            key,
            self._number,
            f"INSERT INTO {shard} (id, customer, amount, created, touched) VALUES ({key},"
            f" 'c{key % 97}', {key % 1000}.25, UTC_TIMESTAMP(), {self._number})",
        )
        self.where[key] = server, shard

    def _update(self, key: int) -> None:
        self._number += 1
        server, shard = self.where[key]
        more = f", {self.extra[shard]} = {self._number % 9}" if shard in self.extra else ""
        changes = f"touched = {self._number}, amount = amount + 1{more}"
        text = f"UPDATE {shard} SET {changes} WHERE id = {key}"
        self._commit(server, shard, key, self._number, text)

    def _delete(self, key: int) -> None:
        server, shard = self.where.pop(key)
        self._commit(server, shard, key, None, f"DELETE FROM {shard} WHERE id = {key}")

    def _move(self, key: int) -> None:
        """To the other instance: gone here, made there."""
        server, _ = self.where[key]
        self._delete(key)
        self._insert(key, onto=3 - server)
        self.moved += 1

    def _commit(
        self, server: int, shard: str, key: int, number: int | None, statement: str
    ) -> None:
        begun = datetime.now(UTC)
        self.servers[server].execute(statement)
        touch = Touch(begun, datetime.now(UTC), number)
        self.known.setdefault((shard, key), []).append(touch)


@dataclass(eq=False)
class Site:
    """Two instances, who sends their logs, two clusters with a mirror between, and the service."""

    home: Path
    mysql: dict[int, MySQL] = field(init=False)
    senders: dict[str, Process] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    given: list[tuple[datetime, dict[tuple[str, int], int]]] = field(default_factory=list)
    sound: bool = False
    _closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Name all servers; nothing is started."""
        ports = free_ports(8)
        self.mysql = {n: MySQL(self.home / f"mysql-{n}", ports[n - 1], n) for n in (1, 2)}
        self.there = Kafka(self.home / "there", ports[2], ports[3])
        self.here = Kafka(self.home / "here", ports[4], ports[5])
        self.maker = Connect(
            self.home / "connect", ports[6], self.here.bootstrap, beside=("mirror",)
        )
        self.service = Service(
            self.home, {"ORDER_PASSWORD": "sluice"}, ports[7], config=self.home / "sluice.yaml"
        )
        self.orders, self._began = Orders(self.mysql), time.monotonic()
        self._asker = threading.Thread(target=self.watch, name="asker", daemon=True)

    @property
    def _servers(self) -> Sequence[MySQL | Kafka | Connect]:
        return (*self.mysql.values(), self.there, self.here, self.maker)

    def open(self, rows: int = 200) -> None:
        """Start all of it; there are rows before anybody sends anything."""
        for server in self._servers:
            server.start()
        self.note("servers are up")
        self.orders.create(rows)
        admin = AdminClient({"bootstrap.servers": self.there.bootstrap})
        made = admin.create_topics([NewTopic(*one, 1) for one in TOPICS.values()])
        for waiting in made.values():
            waiting.result()
        for number in self.mysql:
            self.send(number)
        carried = ",".join(name for name, _ in TOPICS.values())
        self.maker.register(
            "mirror", mirroring(self.there.bootstrap, self.here.bootstrap, carried, "there")
        )
        written(self)
        self.service.start()
        self.note("the service is up")
        self.orders.start()
        self._asker.start()

    def close(self) -> None:
        """End all of it."""
        self.orders.stop()
        self._closing.set()
        if self._asker.is_alive():
            self._asker.join()
        for sender in self.senders.values():
            sender.kill()
        self.service.stop()
        for server in reversed(self._servers):
            server.stop()

    def send(self, number: int, name: str = "", place: str = "") -> str:
        """Start who sends the log of one instance; *name* is another who does so, too."""
        name = name or f"sender-{number}"
        log = CollectedLog(
            port=self.mysql[number].port,
            kafka=self.there.bootstrap,
            topic=TOPICS[number][0],
            place=str(self.home / (place or f"place-{number}.json")),
            databases=("sluice", *sorted({one.partition(".")[0] for one in SHARDS[number]})),
            server_id=1_000 + 10 * number + len(self.senders),
            form=FORMS[number],  # type: ignore[arg-type]
        )
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(asdict(log)), encoding="utf-8")
        command = (sys.executable, "-m", "demo.canal", str(path))
        self.senders[name] = processes.start(command, log=self.home / f"{name}.log")
        return name

    def kill_sender(self, number: int) -> None:
        """`kill -9`, and start it again where it remembers that it was."""
        self.senders[f"sender-{number}"].kill()
        self.send(number)
        self.note(f"sender {number} killed, and started")

    def send_beside(self, number: int) -> None:
        """Start another one, which takes up where the first one was some time ago."""
        self.send(number, "twin", "place-before.json")
        self.note(f"two send the log of {number}")

    def remember_place(self, number: int) -> None:
        """Keep where the sender is now, as another one may remember it."""
        now = self.home / f"place-{number}.json"
        (self.home / "place-before.json").write_text(now.read_text("utf-8"), encoding="utf-8")

    def end_twin(self) -> None:
        """`kill -9` to the other one."""
        self.senders.pop("twin").kill()
        self.note("one sends alone")

    def kill_service(self) -> None:
        """`kill -9`, and start it again."""
        self.service.daemon.kill()
        self.service.start()
        self.note("service killed, and started")

    def gate(self, cut: str = "now") -> list[dict[str, Any]]:
        """What the gate says of the folded table; empty while nobody answers."""
        try:
            answer = self.service.http.get("/v1/gate", params={"table": FOLDED, "cut": cut})
        except httpx.HTTPError:
            return []
        found: list[dict[str, Any]] = answer.json().get("tables", [])
        return found

    def ready(self) -> dict[str, Any]:
        """Wait until the table is complete up to now; what the gate says."""
        cut = datetime.now(UTC)
        try:
            return wait_until(lambda: self._ready(cut), SOON, "READY")
        except UnreachableError:
            self.note(f"never READY: {self.gate(cut.isoformat())}")
            raise

    def _ready(self, cut: datetime) -> dict[str, Any]:
        (found,) = self.gate(cut.isoformat()) or ({},)
        return found if found.get("ready") else {}

    def watch(self) -> None:
        """Ask all the while, each time up to now, and keep what each READY names."""
        while not self._closing.wait(0.2):
            cut = datetime.now(UTC)
            while not self._closing.wait(0.2):
                if found := self._ready(cut):
                    self.given.append((cut, self._held(found)))
                    break

    def wrong(self) -> list[str]:
        """Rows of the versions that READYs named which are older than their cuts."""
        return [
            f"{shard} {key}: {held.get((shard, key))} at {cut}, not one of {allowed}"
            for cut, held in self.given
            for shard, key in {*self.orders.known} | {*held}
            if held.get((shard, key)) not in (allowed := self.orders.allowed(shard, key, cut))
        ]

    def _held(self, answer: Mapping[str, Any]) -> dict[tuple[str, int], int]:
        path = mirror_path(self.service.lake, FOLDED)
        table = DeltaTable(path, version=answer["version"])
        asked = "SELECT id, touched, _sluice['shard'] AS shard FROM t"
        rows = pa.table(QueryBuilder().register("t", table).execute(asked).read_all())
        return {(row["shard"], row["id"]): row["touched"] for row in rows.to_pylist()}

    def difference(self) -> Diff:
        """The mirror against both instances, row by row and value by value."""
        parts = [
            read_sources(Address(one.host, one.port), {FOLDED: SHARDS[n]})[FOLDED]
            for n, one in self.mysql.items()
        ]
        rows = {row: values for part in parts for row, values in part.rows.items()}
        shards = tuple(shard for part in parts for shard in part.shards)
        source = Source(shards, parts[0].columns, parts[0].key, rows)
        return judge(source, read_mirror(mirror_path(self.service.lake, FOLDED), source))

    def incidents(self, check: str) -> list[dict[str, Any]]:
        """All of one check, also those that are over."""
        params: dict[str, Any] = {
            "state": ["pending", "firing", "recovering", "resolved"],
            "limit": 1000,
        }
        found = self.service.http.get("/v1/incidents", params=params).json()
        return [one for one in found if check in json.dumps(one)]

    def note(self, what: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:6.1f} s  {what}")


def written(site: Site) -> None:
    """The page's config as a file: its own words, with these addresses, and short paces."""
    (text,) = blocks(PAGE, "yaml")
    told, demo = yaml.safe_load(text), read_config()
    for name in ("readiness", "schedule"):
        told[name] = demo[name]
    told["pipeline"] = demo["pipeline"]
    told |= {"lake": site.service.lake, "store": str(site.home / "sluice.db")}
    told |= {"kafka": site.here.bootstrap, "http": {"port": site.service.port}}
    told["rebootstrap"] = [{"tables": "*", "how": "auto", "after": "PT1S", "again": "PT10S"}]
    told["probes"] = {name: {"every": "PT3S"} for name in told["probes"]}
    for source, server in zip(told["sources"], site.mysql.values(), strict=True):
        source |= {"host": server.host, "port": server.port}
        source["mirrored"] |= {"kafka": site.there.bootstrap, "url": site.maker.url}
    site.service.config.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
