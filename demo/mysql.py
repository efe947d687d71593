"""Runs a real MySQL 8 with row-based binlog and GTIDs, unpacked from a jar, as root or other user.

Its users come from an init file outside the binlog. So they are not in the collected log, and each
replica has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from demo import mysql_data
from demo.daemon import Daemon

START = timedelta(minutes=4)
ANSWER = timedelta(seconds=10)
# An init file takes one statement a line.
USERS = """\
SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS 'debezium'@'%' IDENTIFIED BY 'debezium';
GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES ON *.* TO 'debezium'@'%';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'debezium'@'%';
CREATE USER IF NOT EXISTS 'sluice'@'%' IDENTIFIED BY 'sluice';
GRANT SELECT, SHOW DATABASES, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO 'sluice'@'%';
GRANT ALL ON sluice.* TO 'sluice'@'%';
"""
OPTIONS: Mapping[str, str] = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "mysqlx": "OFF",
    "socket": "mysql.sock",  # relative to the data: the full path must be below 108 bytes
    "log-bin": "binlog",
    "log-slave-updates": "ON",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "binlog-row-metadata": "FULL",
    "binlog-order-commits": "ON",
    "default-time-zone": "+00:00",
    "character-set-server": "utf8mb4",
    "max-connections": "200",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",  # survives kill -9, not a power cut
    "sync-binlog": "0",  # survives kill -9, not a power cut
    "innodb-fast-shutdown": "2",  # stop as after a crash, but flush the log
    "skip-slave-start": "ON",
}


@dataclass(eq=False)
class MySQL:
    """One server; *options* are added to, or replace, the default ones."""

    home: Path
    port: int
    server_id: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    leashed: bool = True
    host: str = field(default="127.0.0.1", init=False)
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.home = self.home.resolve()
        self.daemon = Daemon("mysql", self.home / "mysql.log", self.leashed)

    @property
    def data(self) -> Path:
        """The server's data folder."""
        return self.home / "data"

    def start(self) -> None:
        """Start on existing or fresh data; returns when it answers queries."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "users.sql").write_text(USERS, encoding="utf-8")
        if not self.data.is_dir():
            mysql_data.make(self.data)
        (self.data / "mysql.sock.lock").unlink(
            missing_ok=True
        )  # left by kill -9; its id may be reused
        self.daemon.start(self._command(), self._answers, START)

    def stop(self) -> None:
        """Shut down; the data stays."""
        if self.daemon.running:
            self._end_readers()
        self.daemon.stop()

    def kill(self) -> None:
        """`kill -9`; the data stays."""
        self.daemon.kill()

    def restart(self) -> None:
        """Kill it, and start it again on the same port and data."""
        self.kill()
        self.start()

    def connect(self, user: str = "root", password: str = "", **settings: Any) -> Connection[Any]:
        """Open a connection, in autocommit unless *settings* (PyMySQL's) say otherwise."""
        settings = {"autocommit": True, "charset": "utf8mb4", **settings}
        return pymysql.connect(
            host=self.host, port=self.port, user=user, password=password, **settings
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* as root in one session; return the rows of the last one."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def replica_of(self, primary: MySQL) -> None:
        """Follow *primary* by GTID from the beginning of its log; returns when it has begun."""
        self.execute(
            f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port},"
            " MASTER_USER = 'debezium', MASTER_PASSWORD = 'debezium', MASTER_AUTO_POSITION = 1,"
            " MASTER_CONNECT_RETRY = 1, GET_MASTER_PUBLIC_KEY = 1",
            "START SLAVE",
        )

    def _end_readers(self) -> None:
        """End the threads that send its log to readers: the shutdown waits 8 s for them."""
        reads = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        with (
            suppress(pymysql.Error),
            self.connect(read_timeout=10) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(reads)
            for (number,) in cursor.fetchall():
                with suppress(pymysql.Error):  # it has ended already
                    cursor.execute(f"KILL {number}")

    def _command(self) -> tuple[str, ...]:
        options = {**OPTIONS, **self.options}
        return (
            *mysql_data.program(),
            f"--datadir={self.data}",
            f"--init-file={self.home / 'users.sql'}",
            f"--port={self.port}",
            f"--server-id={self.server_id}",
            *(f"--{name}={value}" for name, value in options.items()),
        )

    def _answers(self) -> bool:
        """Tell whether it answers; do not wait for another program on its port."""
        try:
            self.connect(read_timeout=ANSWER.total_seconds()).close()
        except pymysql.Error:
            return False
        return True
