"""Runs a real Postgres with logical replication, unpacked from a jar, as root or as another user.

Postgres refuses to run as root. It then runs as the user `nobody`, with its data in a folder that
this user may reach; `home/data` links to it. It listens on TCP only, because the path of a socket
may be too long.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from demo import processes, unpack
from demo.daemon import Daemon
from demo.processes import Process
from pipeline.errors import UnreachableError

START = timedelta(minutes=4)
NOBODY = 65534
PUBLICATION = "sluice"
SYNCED = 17  # from this version on, a standby can take over logical slots
ACCESS = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""
USERS = (
    "CREATE USER debezium REPLICATION PASSWORD 'debezium'",
    "CREATE USER replica REPLICATION PASSWORD 'replica'",
    "CREATE USER sluice PASSWORD 'sluice'",
    "GRANT pg_read_all_data TO debezium, sluice",
    "GRANT pg_monitor TO sluice",
)
OPTIONS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "timezone": "UTC",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "fsync": "off",  # survives kill -9, not a power cut
    "wal_receiver_status_interval": "1s",
}


@dataclass(eq=False)
class Postgres:
    """One server; *options* are added to, or replace, the default ones.

    *environment* is set for the server only, not for the programs that start it.
    """

    home: Path
    port: int
    version: str = "18"
    options: Mapping[str, str] = field(default_factory=dict)
    leashed: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = field(default="127.0.0.1", init=False)
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.home = self.home.resolve()
        name = f"postgres {self.version}"
        self.daemon = Daemon(name, self.home / "postgres.log", self.leashed, asked=signal.SIGINT)

    @property
    def data(self) -> Path:
        """The server's data folder."""
        return self.home / "data"

    def start(self) -> None:
        """Start on existing or fresh data; returns when it answers queries."""
        fresh = not self.data.is_dir()
        if fresh:
            self._initialize()
        self.daemon.start(self._command(), self._answers, START)
        if fresh:
            self.execute(*USERS)

    def stop(self) -> None:
        """Shut down, even with open connections; the data remains."""
        children = self.children()
        if not self.daemon.stop():  # it was killed after all, and they are in other groups
            for child in children:
                child.kill()

    def kill(self) -> None:
        """`kill -9` of all its processes; the data stays."""
        if self.daemon.process is not None:
            self.daemon.process.hold()  # so that it starts no more
        children = self.children()
        self.daemon.kill()
        for child in children:  # each has its own session
            child.kill()

    def restart(self) -> None:
        """Kill it, and start it again on the same port and data."""
        self.kill()
        self.start()

    def remove(self) -> None:
        """Kill it, and remove its data, wherever the data is."""
        self.kill()
        if self.data.is_symlink():
            shutil.rmtree(self.data.resolve().parent)
        shutil.rmtree(self.home, ignore_errors=True)

    def connect(
        self,
        database: str = "postgres",
        user: str = "postgres",
        password: str = "",
        **settings: Any,
    ) -> Connection[Any]:
        """Open a connection, in autocommit unless *settings* (psycopg's) say otherwise."""
        settings = {"autocommit": True, "connect_timeout": 60, **settings}
        return psycopg.connect(
            host=self.host,
            port=self.port,
            dbname=database,
            user=user,
            password=password,
            **settings,
        )

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run *statements* as postgres in one session; return the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str, *statements: str) -> None:
        """Create a database that publishes all tables, and run *statements* in it."""
        self.execute(f'CREATE DATABASE "{name}"', f'GRANT CREATE ON DATABASE "{name}" TO sluice')
        publish = f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES"
        self.execute(publish, *statements, database=name)

    def replica(self, home: Path, port: int) -> Postgres:
        """Return a started standby that streams from this server.

        From version 17 on it also has the slots that were created for failover.
        """
        name = f"to_{port}"
        self.execute(f"SELECT pg_create_physical_replication_slot('{name}', true)")
        made = Postgres(home, port, self.version, {**self.options, **self._streamed(name)})
        made._find_place()
        with self.connect() as connection:
            connection.execute("SELECT pg_backup_start('replica', true)")
            _copy(self.data.resolve(), made.data.resolve())
            told = connection.execute("SELECT labelfile FROM pg_backup_stop(false)").fetchone()
        (made.data / "backup_label").write_text("" if told is None else told[0], encoding="utf-8")
        (made.data / "standby.signal").touch()
        if os.geteuid() == 0:
            for path in (made.data.resolve(), *made.data.resolve().rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        made.start()
        return made

    def cut_off_replicas(self) -> None:
        """Stop sending to standbys; readers of changes go on."""
        theirs = "FROM pg_stat_activity WHERE usename = 'replica'"
        self.execute("ALTER USER replica NOLOGIN", f"SELECT pg_terminate_backend(pid) {theirs}")
        processes.wait_until(
            lambda: self.execute(f"SELECT count(*) {theirs}") == [(0,)], START, "cut of replicas"
        )

    def promote(self) -> None:
        """Promote a standby to a server with its own timeline; returns when it is done.

        Raises:
            UnreachableError: it takes too long.
        """
        within = int(START.total_seconds())
        if self.execute(f"SELECT pg_promote(true, {within})") != [(True,)]:
            raise UnreachableError(f"{self.daemon.name} was not promoted; see {self.daemon.log}")

    def _streamed(self, slot: str) -> Mapping[str, str]:
        who = f"host={self.host} port={self.port} user=replica password=replica dbname=postgres"
        found = {"primary_conninfo": who, "primary_slot_name": slot, "hot_standby_feedback": "on"}
        return {**found, "sync_replication_slots": "on"} if int(self.version) >= SYNCED else found

    def _find_place(self) -> None:
        """Choose the folder of its data; for root, one that user `nobody` may reach."""
        self.home.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            place = Path(tempfile.mkdtemp(prefix="sluice-pg-"))
            os.chown(place, NOBODY, NOBODY)
            self.data.unlink(missing_ok=True)  # its folder was removed with others of the machine
            self.data.symlink_to(place / "data")
            if not _open_to_all(unpack.postgres(self.version)):
                shutil.copytree(unpack.postgres(self.version), place / "program")

    def _initialize(self) -> None:
        """Create fresh data; none is copied, because every server has its own identifier."""
        self._find_place()
        arguments = ("--no-sync", "--encoding=UTF8", "--locale=C", "--username=postgres")
        log = self.home / "initdb.log"
        Daemon("initdb", log).run(
            (
                *self._program("initdb"),
                *arguments,
                "--auth=trust",
                f"--pgdata={self.data.resolve()}",
            ),
            START,
        )
        if not (self.data / "PG_VERSION").exists():
            msg = f"Postgres could not initialise its data; see {log}"
            raise UnreachableError(msg)
        (self.data / "pg_hba.conf").write_text(ACCESS, encoding="utf-8")

    def _command(self) -> tuple[str, ...]:
        options = {**OPTIONS, **self.options, "port": str(self.port)}
        settings = (word for name, value in options.items() for word in ("-c", f"{name}={value}"))
        *starters, program = self._program("postgres")
        own = tuple(f"{name}={value}" for name, value in self.environment.items())
        env = ("/usr/bin/env", *own) if own else ()
        return (*starters, *env, program, "-D", str(self.data.resolve()), *settings)

    def _program(self, name: str) -> tuple[str, ...]:
        """Return a command of the server; as a change of user ends the leash, it is set again."""
        copied = self.data.resolve().parent / "program"
        base = copied if copied.is_dir() else unpack.postgres(self.version)
        program = base / "bin" / name
        if os.geteuid() != 0:
            return (str(program),)
        setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
        user = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        leash = ("--pdeathsig=KILL",) if self.leashed else ()
        return (setpriv, *user, *leash, str(program))

    def children(self) -> list[Process]:
        if not self.daemon.running or self.daemon.process is None:
            return []
        pid = self.daemon.process.pid
        try:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        except OSError:  # it has ended meanwhile, as requested
            return []
        started = ((int(child), processes.started(int(child))) for child in found)
        return [Process(child, since) for child, since in started if since is not None]

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


def _copy(data: Path, into: Path) -> None:
    """Copy the files of a server that is being backed up, without its log, slots and process."""

    def copy(source: str, target: str) -> str:
        with contextlib.suppress(FileNotFoundError):  # a table that was dropped meanwhile
            shutil.copy2(source, target)
        return target

    def left_out(folder: str, names: list[str]) -> set[str]:
        if Path(folder).name in ("pg_wal", "pg_replslot"):
            return {name for name in names if name != "archive_status"}
        return {name for name in names if name.startswith("postmaster.")}

    shutil.copytree(data, into, copy_function=copy, ignore=left_out)


def _open_to_all(place: Path) -> bool:
    """Tell whether any user may reach *place*: a clone in root's own folder is closed."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (place, *place.parents))
