"""S14: partitioned by one clock and checked by another, rows around midnight count on two days.

A real midnight under load, at the end of a day of 23 hours: the image is what a replica of the
source holds that was stopped where the cut stands in its log.
"""

import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.dataset as ds
import pymysql
import pytest
import yaml
from deltalake import DeltaTable, QueryBuilder

from demo.mysql import MySQL
from demo.oracle.compare import compare, mirror_path
from demo.ports import free_ports
from demo.processes import wait_until
from demo.shop.link import Address
from demo.shop.schema import MIRRORS
from demo.story.service import read_config
from monitor.store.store import ServiceStore
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

AHEAD = timedelta(seconds=25)  # of midnight, when the service is started again
BEFORE = timedelta(seconds=15)  # of midnight, when orders of the old day are placed
HOUR = timedelta(hours=1)
SOON = timedelta(minutes=6)
PLACED = "INSERT INTO shop_00.orders_00 (number, total, placed, note) VALUES (%s, 1, %s, %s)"
ORDERS, USERS = "shop.orders", "shop.users"


@dataclass(frozen=True, slots=True)
class Midnight:
    """The end of the business ``day`` in the zone named ``zone``."""

    at: datetime
    zone: str
    day: str


def odd_day(folder: Path, end: datetime, hours: int) -> Midnight:
    """Write a time zone in which a day of so many hours ends at *end* (TZif, RFC 8536, version 1).

    Its clocks are put forward, or back, six hours before that.
    """
    jumps = (hours - 24) * 3600
    offset = -(int(end.timestamp()) % 86_400)
    offset += 86_400 if offset < -43_200 else 0
    head = struct.pack(">4s16x6l", b"TZif", 0, 0, 0, 1, 2, 8)
    before, after = struct.pack(">lBB", offset + jumps, 0, 0), struct.pack(">lBB", offset, 1, 4)
    jump = struct.pack(">lB", int((end - 6 * HOUR).timestamp()), 1)
    (folder / "Test").mkdir()
    (folder / "Test" / "Odd").write_bytes(head + jump + before + after + b"OLD\0NEW\0")
    with (folder / "Test" / "Odd").open("rb") as file:
        zone = ZoneInfo.from_file(file, "Test/Odd")
    last = (end - timedelta(seconds=1)).astimezone(zone)
    assert end.astimezone(zone).time() == datetime.min.time()
    assert (end - hours * HOUR).astimezone(zone).time() == datetime.min.time()
    assert (end - hours * HOUR).astimezone(zone).date() == last.date()
    return Midnight(end, "Test/Odd", str(last.date()))


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand(new_folder("midnight"), 14, rate=40)
    yield made
    made.close()


@pytest.mark.stack
def test_s14_at_midnight_an_image_is_the_source_at_the_cut_whatever_time_rows_bear(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.open()
    night = odd_day(stand.home, datetime.now(UTC).replace(microsecond=0) + AHEAD, 23)
    monkeypatch.setenv("PYTHONTZPATH", f"{stand.home}:/usr/share/zoneinfo")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(restart, stand, night)
        around(stand, night)
        starting.result()
    answers = {table: ready(stand, table, night) for table in MIRRORS}
    stand.finish()

    versions = {table: one["version"] for table, one in answers.items()}
    other, lake = replica(stand, night), stand.service.lake
    found = compare(other, lake, versions=versions)
    assert {table: str(one) for table, one in found.items() if not one.clean} == {}
    assert not compare(other, lake)[ORDERS].clean, "nothing came after the cut"
    assert read_folder(answers[ORDERS]["path"]) == imaged(stand, versions[ORDERS])
    clone = read_version(answers[USERS]["path"], None)
    assert sorted(map(str, clone)) == sorted(
        map(str, read_version(mirror_path(lake, USERS), versions[USERS]))
    )
    notes = {one["note"] for one in imaged(stand, versions[ORDERS])}
    assert notes >= {"in time", "ahead of its time"}
    assert "open over midnight" not in notes
    by_time = {one["note"] for one in stamped(stand, night)}
    assert "open over midnight" in by_time, "their rule: the row's own time says the day before"
    assert any(one["note"] == "open over midnight" for one in imaged(stand, None))
    shutil.rmtree(stand.home)


def restart(stand: Stand, night: Midnight) -> None:
    """Start the service anew, with images of all its tables."""
    stand.service.stop()
    told = read_config()
    told["time_zone"] = night.zone
    told["publish"] = [
        {"tables": ORDERS, "how": "parquet", "day": "placed"},
        {"tables": USERS, "how": "clone"},
        {"tables": "*", "how": "pin"},
    ]
    stand.service.config = stand.home / "sluice.yaml"
    stand.service.config.write_text(yaml.safe_dump(told), encoding="utf-8")
    stand.service = type(stand.service)(
        stand.home, stand.system.environment, stand.service.port, config=stand.service.config
    )
    stand.service.start()


def around(stand: Stand, night: Midnight) -> None:
    """Place orders before midnight, after it, and one that is open until the day's place is known.

    That is read after the first heartbeat of the new day, so it is once the second is there.
    """
    first: set[datetime] = set()
    until(night.at - BEFORE)
    with stand.servers.mysql.connect(autocommit=False) as late, late.cursor() as open_one:
        placed = night.at - timedelta(seconds=2)
        open_one.execute(PLACED, (1, placed, "open over midnight"))
        ordered(stand, night.at - timedelta(seconds=1), "in time")
        ordered(stand, night.at + timedelta(seconds=1), "ahead of its time")
        wait_until(lambda: len(fences_of_day(stand, night, first)) > 1, SOON, "two heartbeats")
        late.commit()
    ordered(stand, night.at + timedelta(seconds=6), "in the new day")


def fences_of_day(stand: Stand, night: Midnight, seen: set[datetime]) -> set[datetime]:
    """Those of the new day that were *seen* by now."""
    found = stand.servers.mysql.execute("SELECT at FROM sluice.heartbeat")
    seen |= {at for (at,) in found if at >= night.at.replace(tzinfo=None)}
    return seen


def ordered(stand: Stand, placed: datetime, note: str) -> None:
    with stand.servers.mysql.connect() as link, link.cursor() as cursor:
        cursor.execute(PLACED, (1, placed, note))


def until(moment: datetime) -> None:
    wait_until(lambda: datetime.now(UTC) >= moment, SOON, f"{moment}")


def ready(stand: Stand, table: str, night: Midnight) -> Mapping[str, Any]:
    """What the gate says of the image, once it is there."""
    asked: dict[str, str | int] = {"table": table, "cut": night.day, "stage": "image", "wait": 20}

    def opened() -> Any:
        answer = stand.service.http.get("/v1/gate", params=asked)
        return answer.json()["tables"][0] if answer.status_code == 200 else time.sleep(0.5)

    found: Mapping[str, Any] = wait_until(opened, SOON, f"image of {table}")
    assert found["cut"] == night.at.isoformat()
    return found


def replica(stand: Stand, night: Midnight) -> Address:
    """Where another server stands that has followed the source's log up to the cut's place."""
    store = ServiceStore.open(stand.home / "sluice.db")
    (first,) = store.fences.since("shop", night.at, 1)
    store.close()
    log, pos = str(first.head.position).split()[0].split("/")
    (port,) = free_ports(1)
    other = MySQL(stand.home / "replica", port, server_id=2)
    stand.ends.callback(other.stop)
    other.start()
    other.execute(
        f"CHANGE MASTER TO MASTER_HOST = '{stand.servers.mysql.host}',"
        f" MASTER_PORT = {stand.servers.mysql.port}, MASTER_USER = 'debezium',"
        " MASTER_PASSWORD = 'debezium', GET_MASTER_PUBLIC_KEY = 1,"
        " MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4",
        f"START SLAVE UNTIL MASTER_LOG_FILE = 'binlog.{int(log):06}', MASTER_LOG_POS = {pos}",
    )
    wait_until(lambda: _stopped(other), SOON, "end of the replica's way")
    return Address(other.host, other.port)


def _stopped(other: MySQL) -> bool:
    with other.connect(cursorclass=pymysql.cursors.DictCursor) as link, link.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        told = cursor.fetchone()
    assert told is not None
    assert not told["Last_SQL_Error"], told
    assert not told["Last_IO_Error"], told
    return bool(told["Slave_SQL_Running"] == "No")


def imaged(stand: Stand, version: int | None) -> list[dict[str, Any]]:
    """Rows of orders, of one version or the newest, by id."""
    return in_order(read_version(mirror_path(stand.service.lake, ORDERS), version))


def read_version(path: str, version: int | None) -> list[dict[str, Any]]:
    """Rows of a version of a Delta table, or of the newest, in no order."""
    table = DeltaTable(path, version=version)
    rows = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    told: list[dict[str, Any]] = pa.table(rows).drop_columns(["_sluice"]).to_pylist()
    return told


def stamped(stand: Stand, night: Midnight) -> list[dict[str, Any]]:
    """Rows of orders that were placed before midnight, by their own time."""
    before = night.at.replace(tzinfo=None)
    return [one for one in imaged(stand, None) if one["placed"].replace(tzinfo=None) < before]


def read_folder(folder: str) -> list[dict[str, Any]]:
    """Rows of a folder of Parquet."""
    return in_order(ds.dataset(folder, format="parquet").to_table().to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: (one["number"], one["id"], str(one)))
