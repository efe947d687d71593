"""A drill on servers of somebody else: it finds its faults, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from demo.postgres import Postgres
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.spark import jars

pytestmark = pytest.mark.stack

SOON = timedelta(minutes=4)
LAST = timedelta(minutes=20)
SLOTS = "SELECT slot_name::text FROM pg_replication_slots"
DATABASE, PASSWORD = "sluice_drill_tested", "of the drill"
USER = (
    f"CREATE USER 'drill'@'%' IDENTIFIED BY '{PASSWORD}'",
    r"GRANT ALL ON `sluice\_drill\_%`.* TO 'drill'@'%'",
    "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT, SESSION_VARIABLES_ADMIN"
    " ON *.* TO 'drill'@'%'",
)
SMALL = (
    *("--faults", "4", "--tables", "1", "--calm", "0", "--wait", "900"),
    *("--short-paces", "--no-outages", "--no-compare"),
)


@pytest.fixture
def user(servers: Servers) -> Iterator[tuple[str, ...]]:
    """Options of a user who may do only what docs/drill.md says."""
    servers.mysql.execute(*USER)
    yield ("--mysql", f"{servers.mysql.host}:{servers.mysql.port}", *login(servers))
    servers.mysql.execute("DROP USER 'drill'@'%'")


def postgres_options(servers: Servers, postgres: Postgres) -> tuple[str, ...]:
    """Options of a user that is created on *postgres*."""
    postgres.execute(f"CREATE USER drill CREATEDB REPLICATION PASSWORD '{PASSWORD}'")
    return ("--postgres", f"{postgres.host}:{postgres.port}", *login(servers))


def login(servers: Servers) -> tuple[str, ...]:
    """Options of the user, Kafka and Connect."""
    return (
        *("--user", "drill", "--password-env", "DRILL_PASSWORD", "--name", DATABASE),
        *("--kafka", servers.kafka.bootstrap, "--connect", servers.connect.url),
    )


@contextmanager
def start_drill(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A drill in *home*, with the file of what it prints; it does not outlive the block."""
    log = home.with_name(f"{home.name}.log")
    command = [sys.executable, "-m", "demo", "drill", "--dir", str(home), *SMALL, *options]
    with log.open("w") as out:
        running = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=jars.ROOT,
            env={**os.environ, "DRILL_PASSWORD": PASSWORD},
        )
    try:
        yield running, log
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        running.wait(SOON.total_seconds())


def read_servers(servers: Servers) -> tuple[object, ...]:
    """What is on them: databases, topics, connectors."""
    with closing(KafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap)) as admin:
        topics = sorted(name for name in admin.list_topics() if not name.startswith("__"))
    return (servers.mysql.execute("SHOW DATABASES"), topics, servers.connect.connectors())


def test_a_drill_on_the_users_servers_reports_them_and_leaves_nothing(
    servers: Servers, user: tuple[str, ...], tmp_path: Path
) -> None:
    before = read_servers(servers)

    with start_drill(tmp_path, *user) as (running, log):
        running.wait(LAST.total_seconds())

    report = (tmp_path / "drill.md").read_text()
    assert running.returncode == 0, log.read_text()
    assert read_servers(servers) == before
    assert not [name for name in ("remove.txt", "lake") if (tmp_path / name).exists()]
    assert re.search(r"\* Servers: your MySQL 8.* user drill; your Kafka at .*; your Conn", report)
    assert PASSWORD not in report + log.read_text()
    assert all(f"| {kind} | 1 | 1 | 1 |" in report for kind in ("lost row", "resurrected row"))


def test_a_drill_on_the_users_postgres_reports_it_and_leaves_nothing(
    servers: Servers, start_postgres: Callable[..., Postgres], tmp_path: Path
) -> None:
    postgres, before = start_postgres("15"), read_servers(servers)
    options = postgres_options(servers, postgres)

    with start_drill(tmp_path, *options) as (running, log):
        running.wait(LAST.total_seconds())

    report = (tmp_path / "drill.md").read_text()
    assert running.returncode == 0, log.read_text()
    assert read_servers(servers) == before
    assert left_on(postgres) == []
    assert re.search(r"\* Servers: your Postgres 15.* user drill; your Kafka at .*; your C", report)
    assert all(f"| {kind} | 1 | 1 | 1 |" in report for kind in ("lost row", "resurrected row"))


def left_on(postgres: Postgres) -> list[object]:
    """Slots, and the drill's database."""
    database = f"SELECT datname::text FROM pg_database WHERE datname = '{DATABASE}'"
    return [*postgres.execute(SLOTS), *postgres.execute(database)]


def test_a_drill_that_is_interrupted_leaves_nothing_on_mysql(
    servers: Servers, user: tuple[str, ...], tmp_path: Path
) -> None:
    before = read_servers(servers)

    interrupt(tmp_path, user, lambda: DATABASE in servers.connect.connectors())

    assert read_servers(servers) == before


def test_a_database_of_that_name_is_refused_and_left_alone(
    servers: Servers, user: tuple[str, ...], tmp_path: Path
) -> None:
    servers.mysql.execute(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.t (id INT)")
    before = read_servers(servers)

    with start_drill(tmp_path, *user) as (refused, log):
        refused.wait(SOON.total_seconds())

    assert (refused.returncode, read_servers(servers)) == (1, before)
    assert f"has a database {DATABASE} already; give another --name" in log.read_text()
    servers.mysql.execute(f"DROP DATABASE {DATABASE}")


def test_a_drill_that_is_interrupted_leaves_nothing_on_postgres(
    servers: Servers, start_postgres: Callable[..., Postgres], tmp_path: Path
) -> None:
    postgres, before = start_postgres("18"), read_servers(servers)
    options = postgres_options(servers, postgres)

    interrupt(tmp_path, options, lambda: postgres.execute(SLOTS) == [(DATABASE,)])

    assert left_on(postgres) == []
    assert read_servers(servers) == before


def interrupt(home: Path, options: tuple[str, ...], moment: Callable[[], bool]) -> None:
    """Start a drill, and send it Ctrl-C at the *moment*."""
    with start_drill(home, *options) as (running, log):
        wait_until(lambda: moment() or running.poll() is not None, SOON, "a connector")
        assert running.poll() is None, log.read_text()
        running.send_signal(signal.SIGINT)
        running.wait(SOON.total_seconds())
    assert running.returncode != 0
    assert "everything that the drill has made is removed" in log.read_text()
