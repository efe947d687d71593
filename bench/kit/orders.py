"""Creates copies of a MySQL table of orders, and changes one of them."""

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import pymysql

from demo.mysql import MySQL

DATABASE = "bench"
COLUMNS = "user_id, state, total, placed, coupon, note, touched"
CREATE = f"""CREATE TABLE {DATABASE}.{{table}} (
    id BIGINT NOT NULL PRIMARY KEY, user_id INT NOT NULL, state VARCHAR(12) NOT NULL,
    total DECIMAL(12,2) NOT NULL, placed DATETIME(6) NOT NULL, coupon VARCHAR(20),
    note VARCHAR(120) NOT NULL, touched BIGINT NOT NULL)"""
DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
SOME = 100_000  # rows of one statement of the fill
ROW = """n, n * 7919 % 100000, ELT(1 + n % 3, 'new', 'paid', 'sent'), n % 900 + 0.25,
    TIMESTAMP('2024-01-01') + INTERVAL n SECOND, NULL,
    CONCAT('a note with "quotes" and ', MD5(n)), n"""
TICK = 0.02  # seconds between two transactions of the writer
MOST = 200  # statements of one transaction, if the writer is late


@dataclass(eq=False)
class Orders:
    """Tables of ``rows`` rows each in ``server``; their fill is not in its log."""

    server: MySQL
    rows: int
    written: int = field(default=0, init=False)

    def create(self) -> None:
        """Create the database."""
        self.server.execute(f"CREATE DATABASE {DATABASE}")

    def fill(self, table: str) -> None:
        """Create one more table: orders 1 to ``rows``."""
        statements = [CREATE.format(table=table), "SET sql_log_bin = 0"]
        parts = " CROSS JOIN ".join(f"({DIGITS}) AS t{at}" for at in range(5))
        number = " + ".join(f"t{at}.d * {10**at}" for at in range(5))
        for first in range(0, self.rows, SOME):
            count = min(SOME, self.rows - first)
            numbers = f"SELECT {first + 1} + {number} AS n FROM {parts}"
            told = f"SELECT {ROW} FROM ({numbers}) AS numbers WHERE n <= {first + count}"
            statements.append(f"INSERT INTO {DATABASE}.{table} {told}")
        self.server.execute(*statements)

    @contextmanager
    def changing(self, table: str, a_second: int) -> Iterator[None]:
        """Change so many rows each second during the block: updates, inserts, deletes, keys.

        The writer is a process, because a thread would wait for other computations of this one.
        """
        own = multiprocessing.get_context("spawn")
        ended, told = own.Event(), own.Queue()
        server = self.server
        load = _Load(server.host, server.port, f"{DATABASE}.{table}", a_second, self.rows)
        writer = own.Process(target=_write, args=(load, ended, told))
        writer.start()
        try:
            yield
        finally:
            ended.set()
            self.written += told.get(timeout=60)
            writer.join()


@dataclass(frozen=True, slots=True)
class _Load:
    """The work of one writer: ``a_second`` changes of ``table``, which has ``rows`` rows first."""

    host: str
    port: int
    table: str
    a_second: int
    rows: int


def _write(load: _Load, ended: Event, told: "Queue[int]") -> None:
    """Write until *ended*; then put how many rows have changed into *told*."""
    chance, written, begun, sent = random.Random(7), 0, time.monotonic(), 0
    with pymysql.connect(host=load.host, port=load.port, user="root") as link:
        while not ended.wait(TICK):
            due = int((time.monotonic() - begun) * load.a_second)
            with link.cursor() as cursor:
                for _ in range(min(due - sent, MOST)):
                    written += cursor.execute(*_change(load.table, chance, load.rows))
                    sent += 1
            link.commit()
    told.put(written)


def _change(name: str, chance: random.Random, rows: int) -> tuple[str, tuple[int, ...]]:
    key, other = chance.randint(1, rows), rows + chance.randint(1, rows)
    kind = chance.random()
    if kind < 0.7:
        return f"UPDATE {name} SET state = 'paid', touched = %s WHERE id = %s", (other, key)
    if kind < 0.8:
        return f"UPDATE IGNORE {name} SET id = %s WHERE id = %s", (other, key)
    if kind < 0.9:
        return f"DELETE FROM {name} WHERE id = %s", (key,)
    values = "%s, 1, 'new', 1.5, '2025-01-01', 'x', 'late', 0"
    return f"INSERT IGNORE INTO {name} VALUES ({values})", (other,)
