"""The system of docs/systems/liulishuo.md on real servers, by the config that stands there.

Only addresses, memory and paces are others: what takes minutes there takes seconds here.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH

import httpx
import pyarrow as pa
import pyarrow.dataset as ds
import yaml
from click.testing import CliRunner
from deltalake import CommitProperties, DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError

from checks.certificate import Certificate
from demo.oracle.compare import mirror_path
from demo.processes import wait_until
from demo.story.service import Service, read_config
from monitor.commands.connector import COMMAND
from monitor.store.store import ServiceStore
from tests.docs.markdown import ROOT, blocks
from tests.oracle.promise import judge_ready
from tests.proof.stand import CONNECTOR, PATIENCE, Stand, exact_floats
from tests.proof.zone import day_ending

PAGE = ROOT / "docs" / "systems" / "liulishuo.md"
FOLDED, ORDERS = "shop.orders", "cdc-shop-orders"
COUNTS = "range_counts"
MONITORS = ("offset_keys", "max_id", COUNTS)
FOREIGN = "foreign_write"


def written(home: Path) -> Path:
    """The page's config as a file in *home*: its own words, with the demo's addresses and paces."""
    (text,) = blocks(PAGE, "yaml")
    told, demo = yaml.safe_load(text), read_config()
    for name in ("lake", "kafka", "store", "readiness", "schedule", "http"):
        told[name] = demo[name]
    told["pipeline"] |= demo["pipeline"]
    told["probes"] = {name: {"every": "PT3S"} for name in told["probes"]}
    (source,), (theirs,) = told["sources"], demo["sources"]
    source |= {name: theirs[name] for name in ("host", "port", "password")}
    source["collector"]["url"] = theirs["collector"]["url"]
    path = home / "sluice.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def collect(stand: Stand) -> None:
    """Register the connector by the verb, as anybody would; a password is a reference."""
    secrets = stand.home / "secrets.properties"
    secrets.write_text("debezium=debezium\n", encoding="utf-8")
    told = read_config(stand.config)
    settings = told["sources"][0]["collector"]["options"]["settings"]
    settings["database.password"] = f"${{file:{secrets}:debezium}}"
    settings |= exact_floats(stand.servers.mysql)
    path = stand.home / "collecting.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    with stand.environment():
        words = ["shop", "--apply", "--config", str(path)]
        CliRunner().invoke(COMMAND, words, catch_exceptions=False)
    connect = stand.servers.connect
    connect.register(CONNECTOR, connect.config(CONNECTOR))  # which has it come back after a restart


@dataclass(eq=False)
class Nightly:
    """The business day that ends while the service runs, and its image of the folded table.

    The day ends at the head that was read after the first heartbeat of after midnight: what began
    at ``next_beat`` or later stands behind it, while the heartbeat's own ``at`` is from before it.
    """

    stand: Stand
    soon: timedelta = timedelta(seconds=20)
    cut: datetime = field(init=False)
    day: str = field(init=False)
    next_beat: datetime = field(init=False)
    version: int = field(init=False)
    path: str = field(init=False)

    def let_midnight_come(self) -> None:
        """Kill the service, and start it in a zone in which this day ends soon."""
        self.stand.kill_service()
        self.cut = datetime.now(UTC).replace(microsecond=0) + self.soon
        zone = yaml.safe_load(self.stand.config.read_text(encoding="utf-8"))["time_zone"]
        folder = self.stand.home / "zones"
        self.day = str(day_ending(self.cut, folder, zone))
        daemon, zones = self.stand.service.daemon, os.pathsep.join([str(folder), *TZPATH])
        daemon.environment = {**daemon.environment, "PYTHONTZPATH": zones}
        self.stand.service.start()
        self.stand.note(f"killed, and started {self.soon.total_seconds():.0f} s before midnight")

    def wait(self) -> None:
        """Wait at the gate as a job does, by the day's name."""
        asked = {"table": FOLDED, "stage": "image", "cut": self.day}
        (table,) = wait_until(lambda: self._ready(asked), PATIENCE, f"image of {self.day}")
        assert datetime.fromisoformat(table["cut"]) == self.cut
        self.version, self.path = table["version"], table["path"]
        number = table["certificate"]
        evidence = self.stand.service.http.get(f"/v1/certificates/{number}").json()
        (fence,) = evidence["fences"]
        (self.next_beat,) = wait_until(
            lambda: self._beats_after(fence), PATIENCE, f"the heartbeat after {fence['number']}"
        )
        self.stand.note(f"image of {self.day} is READY")

    def wrong(self) -> list[str]:
        """What of the written table is not the mirror's version, or not the day's."""
        written = ds.dataset(str(Path(self.path).parent), partitioning="hive").to_table()
        lake, ledger = self.stand.service.lake, self.stand.ledger.entries()
        version = DeltaTable(mirror_path(lake, FOLDED), version=self.version)
        query = QueryBuilder().register("t", version).execute("SELECT * FROM t")
        found = pa.table(query.read_all())
        own = [name for name in found.column_names if name != "_sluice"]
        days = sorted({*written["dt"].to_pylist()})
        wrong = [] if days == [self.day] else [f"folders of {days}"]
        if not len(found) or _texts(written.select(own)) != _texts(found.select(own)):
            wrong.append(f"{len(written)} rows written, {len(found)} of the version, or other ones")
        carried = {
            (row["_sluice"]["shard"], (row["id"],)): row["touched"] for row in found.to_pylist()
        }
        wrong += map(str, judge_ready(ledger, FOLDED, self.cut, carried))
        late = {number for number, one in ledger.items() if one.begun >= self.next_beat}
        return wrong + [f"{row} is of after the day" for row, by in carried.items() if by in late]

    def _beats_after(self, fence: Mapping[str, Any]) -> list[datetime]:
        """When the heartbeat that follows *fence* began; none before there is one."""
        store = ServiceStore.open(self.stand.home / "sluice.db")
        try:
            known = store.fences.since(fence["source"], datetime.fromisoformat(fence["at"]))
        finally:
            store.close()
        return [one.at for one in known if one.number > fence["number"]][:1]

    def _ready(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            answer = self.stand.service.http.get("/v1/gate", params=dict(asked))
        except httpx.HTTPError:
            return []
        assert answer.status_code in {httpx.codes.OK, httpx.codes.NOT_FOUND}, answer.text
        found: list[dict[str, Any]] = answer.json()["tables"]
        return found if answer.status_code == httpx.codes.OK else []


@dataclass(eq=False)
class Loss:
    """The newest rows of one shard, gone from the mirror, as a person thought was right.

    The mirror lacked them from ``version`` on, which was not before ``begun``, until a version that
    was there by ``healed``.
    """

    stand: Stand
    shard: str = "shop_01.orders_01"
    rows: int = 3
    ids: tuple[int, ...] = ()
    begun: datetime = field(init=False)
    version: int = field(init=False)
    healed: datetime = field(init=False)

    def plant(self) -> None:
        """Delete them behind the service's back, and waive that they are gone."""
        mysql = self.stand.servers.mysql
        mysql.execute(f"UPDATE {self.shard} SET note = 'the last of their partitions'")
        self.stand.recover()
        newest = mysql.execute(f"SELECT id FROM {self.shard} ORDER BY id DESC LIMIT {self.rows}")
        self.ids = tuple(id_ for (id_,) in newest)
        self.begun = datetime.now(UTC)
        self.version = wait_until(self._deleted, PATIENCE, "theft")
        stolen = f"{FOREIGN}:{FOLDED}:{self.version}"
        waiver = {"id": stolen, "reason": "for a test", "who": "a test"}
        http = self.stand.service.http
        wait_until(
            lambda: http.post("/v1/waivers", json=waiver).is_success, PATIENCE, "foreign write told"
        )
        self.stand.note(f"rows {self.ids} of {self.shard} deleted: version {self.version}")

    def alarm(self) -> None:
        """Wait until somebody was told of it: it may be mended before that."""
        service = self.stand.service
        wait_until(lambda: _names_counts(service), PATIENCE, "alarm")
        self.stand.note("told")

    def touch(self) -> None:
        """Change them at the source, so that they come again; returns when all monitors pass."""
        ids = ", ".join(map(str, self.ids))
        mysql = self.stand.servers.mysql
        mysql.execute(f"UPDATE {self.shard} SET note = 'touched' WHERE id IN ({ids})")
        ruled(self.stand, "pass", *MONITORS)
        self.healed = datetime.now(UTC)

    def unrevoked(self) -> list[str]:
        """READY answers about versions that lack the rows, and that nobody took back.

        Decisions of that time, and those about it that came later, are judged by this alone.  An
        answer names the version that a job is to read, whose rows decide: one of before the theft
        is true a moment later, and one that has them again is so before anybody looks.
        """
        decisions = self.stand.asker.decisions
        told = [one for one in decisions if self.begun < one.asked < self.healed and one.ready]
        decisions[:] = [
            one for one in decisions if one.answered < self.begun or one.question.cut > self.healed
        ]
        store = ServiceStore.open(self.stand.home / "sluice.db")
        try:
            given = {each: store.certificates.get(each.certificate or "") for each in told}
        finally:
            store.close()
        return [
            f"{each}: {one}"
            for each, one in given.items()
            if (each.question.table, each.question.stage) == (FOLDED, "mirror")
            and (one is None or (one.revoked is None and self._lacking(one)))
        ]

    def _lacking(self, given: Certificate) -> bool:
        """Whether it names a version of after the theft in which one of the rows is not."""
        version = given.evidence.version
        assert version is not None, given
        if version < self.version:
            return False
        table = DeltaTable(mirror_path(self.stand.service.lake, FOLDED), version=version)
        query = QueryBuilder().register("t", table).execute(f"SELECT id FROM t WHERE {self._them}")
        return sorted(pa.table(query.read_all())["id"].to_pylist()) != sorted(self.ids)

    @property
    def _them(self) -> str:
        """The rows, as a condition."""
        return f"id IN ({', '.join(map(str, self.ids))}) AND _sluice['shard'] = '{self.shard}'"

    def _deleted(self) -> int:
        """The version without them; 0 while the service is faster."""
        table = DeltaTable(mirror_path(self.stand.service.lake, FOLDED))
        try:
            told = table.delete(
                self._them,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            return 0
        assert told["num_deleted_rows"] == self.rows
        return int(table.version())


def ruled(stand: Stand, outcome: str, *checks: str) -> dict[str, dict[str, Any]]:
    """Wait until what each of the *checks* says of the folded table is *outcome*; verdicts."""
    found: dict[str, dict[str, Any]] = {}

    def all_ruled() -> bool:
        for check in checks:
            asked: dict[str, Any] = {"table": FOLDED, "check": check, "limit": 1}
            for one in _listed(stand, "/v1/verdicts", asked):
                found[check] = one
        return [one["outcome"] for one in found.values()] == [outcome] * len(checks)

    wait_until(all_ruled, PATIENCE, f"{outcome} of {checks}")
    return found


def _listed(stand: Stand, path: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = stand.service.http.get(path, params=asked).json()
    return told


def _texts(rows: pa.Table) -> list[str]:
    """Rows as texts, sorted: the same rows have the same."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist())


def _names_counts(service: Service) -> bool:
    """Whether an incident is about the counts; another monitor may have found the loss first."""
    failing = [member for one in service.incidents("firing") for member in one["failing"]]
    return COUNTS in {member["check"] for member in failing}
