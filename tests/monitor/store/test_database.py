import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event, update

from checks.model import Outcome, Ruling, Verdict
from monitor.store.alerts import Waiver
from monitor.store.database import Database
from monitor.store.schema import version
from monitor.store.store import ServiceStore
from pipeline.errors import ConfigError
from tests.builders.values import fence
from tests.monitor.store.kit import NOW, SECOND, newest


def test_a_second_service_on_the_same_file_is_refused_by_name(store: ServiceStore) -> None:
    with pytest.raises(ConfigError, match=r"in use by another service \(process \d+\)"):
        ServiceStore.open(store.database.path, service=True)


def test_a_command_may_use_the_store_beside_the_service(store: ServiceStore) -> None:
    beside = ServiceStore.open(store.database.path)
    beside.fences.add(fence(1, NOW))
    beside.close()

    assert newest(store) == fence(1, NOW)


def test_a_closed_store_can_be_taken_by_the_next_service(store: ServiceStore) -> None:
    store.fences.add(fence(1, NOW))
    store.close()

    again = ServiceStore.open(store.database.path, service=True)

    assert newest(again) == fence(1, NOW)
    again.close()


@pytest.mark.parametrize(
    ("number", "what_now"),
    [
        pytest.param(99, "version 99, .*; run the newer Sluice", id="newer"),
        pytest.param(1, "version 1, .*; move the file away", id="before the first release"),
    ],
)
def test_a_store_of_another_version_is_refused(
    store: ServiceStore, number: int, what_now: str
) -> None:
    with store.write() as connection:
        connection.execute(update(version).values(number=number))
    store.close()

    with pytest.raises(ConfigError, match=what_now):
        ServiceStore.open(store.database.path, service=True)


def test_a_refused_store_is_not_left_locked(store: ServiceStore) -> None:
    with store.write() as connection:
        connection.execute(update(version).values(number=99))
    store.close()
    with pytest.raises(ConfigError):
        ServiceStore.open(store.database.path, service=True)

    with closing(sqlite3.connect(store.database.path)) as raw, raw:
        raw.execute("UPDATE version SET number = 2")

    ServiceStore.open(store.database.path, service=True).close()


@pytest.mark.parametrize(
    "place", [pytest.param("text", id="not a database"), pytest.param("folder", id="a folder")]
)
def test_what_is_no_database_is_a_clear_error(tmp_path: Path, place: str) -> None:
    path = tmp_path / "state.db"
    if place == "text":
        path.write_text("this is not a database, but long enough to look like something" * 20)
    else:
        path.mkdir()

    with pytest.raises(ConfigError, match=r"state\.db"):
        ServiceStore.open(path, service=True)


def test_what_fails_inside_a_write_leaves_nothing_of_it(store: ServiceStore) -> None:
    def half() -> None:
        with store.write():
            store.fences.add(fence(1, NOW))
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError):
        half()

    assert newest(store) is None


def test_a_read_inside_a_write_sees_it_and_others_do_not(store: ServiceStore) -> None:
    with store.write():
        store.fences.add(fence(1, NOW))
        inside = newest(store)
        with ThreadPoolExecutor(1) as other:
            outside = other.submit(newest, store).result()

    assert inside == fence(1, NOW)
    assert outside is None


def test_many_threads_lose_no_write(store: ServiceStore) -> None:
    start = threading.Barrier(8)

    def write(thread: int) -> None:
        start.wait(timeout=120)
        for number in range(25):
            store.fences.add(fence(number, NOW + number * SECOND, source=f"s{thread}"))
            store.ticks.start(f"job{thread}", NOW + number * SECOND, NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))

    for thread in range(8):
        assert len(store.fences.since(f"s{thread}", NOW)) == 25
        assert len(store.ticks.list(f"job{thread}")) == 25


def test_two_processes_that_look_before_they_write_wait_for_each_other(store: ServiceStore) -> None:
    beside = ServiceStore.open(
        store.database.path
    )  # has its own lock, as a command's process would
    start = threading.Barrier(2)

    def write(one: ServiceStore, who: str) -> int:
        start.wait(timeout=120)
        return sum(one.waivers.add(Waiver(f"gap-{n}", "why", who, NOW)) for n in range(100))

    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(write, (store, beside), ("service", "command")))
    beside.close()

    assert sum(counts) == len(store.waivers.waived()) == 100


def test_a_commit_is_on_the_disk_and_links_are_enforced(store: ServiceStore) -> None:
    names = ("journal_mode", "synchronous", "foreign_keys")
    new: list[dict[str, object]] = []

    def look(connection: sqlite3.Connection, _record: object) -> None:
        new.append({name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names})

    event.listen(store.database.engine, "connect", look)
    store.database.engine.dispose()
    with store.database.read():
        pass

    assert new == [{"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}]


def test_a_naive_time_is_refused(store: ServiceStore) -> None:
    naive = NOW.replace(tzinfo=None)

    with pytest.raises(Exception, match="no time zone"):
        store.fences.add(fence(1, naive))


def test_f105_a_store_of_the_version_before_is_read(store: ServiceStore) -> None:
    """Its waivers end nowhere, a finding that was cut off is so, and a FAIL ended as it shows."""
    told = [
        Ruling(Outcome.FAIL, "200 rows missing; about 800 more rows differ", "x", ("s/t:1-200",)),
        Ruling(Outcome.PASS, "all"),
        Ruling(Outcome.PASS, "all"),
    ]
    verdicts = [
        Verdict("shop.t", "range_counts", one, NOW + at * SECOND) for at, one in enumerate(told)
    ]
    store.verdicts.add(verdicts)
    store.waivers.add(Waiver("gap-1", "a test", "me", NOW))
    store.close()
    with closing(sqlite3.connect(store.database.path)) as raw, raw:
        raw.execute("DROP TABLE fail_ends")
        raw.execute("ALTER TABLE verdicts DROP COLUMN more")
        for name in ("until", "withdrawn", "withdrawn_by", "withdrawn_why"):
            raw.execute(f"ALTER TABLE waivers DROP COLUMN {name}")
        raw.execute("UPDATE version SET number = 8")

    again = ServiceStore.open(store.database.path, service=True)

    assert again.waivers.waived() == {"gap-1"}
    assert [one.ruling.more for one in again.verdicts.list()] == [0, 0, 1]
    assert again.verdicts.fail_ends() == {("shop.t", "range_counts"): NOW + SECOND}
    again.close()


def test_f165_only_its_owner_may_read_the_store(tmp_path: Path) -> None:
    path = tmp_path / "sluice.db"
    before = os.umask(0)
    try:
        path.touch(0o666)
        database = Database.open(path, service=True)
        with database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE seen (n)")
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)

    assert modes.keys() == {f"sluice.db{end}" for end in ("", "-wal", "-shm", ".lock")}
    assert set(modes.values()) == {0o600}


def test_f165_a_symbolic_link_leads_to_the_same_lock(tmp_path: Path) -> None:
    path, link = tmp_path / "sluice.db", tmp_path / "elsewhere" / "other.db"
    link.parent.mkdir()
    database = Database.open(path, service=True)
    link.symlink_to(path)

    with pytest.raises(ConfigError, match="in use by another service"):
        Database.open(link, service=True)

    database.close()


def test_f165_a_second_name_of_the_file_is_refused(tmp_path: Path) -> None:
    path, second = tmp_path / "sluice.db", tmp_path / "second.db"
    Database.open(path, service=False).close()
    second.hardlink_to(path)

    with pytest.raises(ConfigError, match="2 hard links"):
        Database.open(second, service=True)


def test_times_keep_their_microseconds_and_their_zone(store: ServiceStore) -> None:
    other = NOW.astimezone()
    store.fences.add(fence(1, other))

    found = newest(store)

    assert found is not None
    assert found.at == NOW
    assert found.at.utcoffset() == timedelta(0)
    assert isinstance(found.at, datetime)
