"""Tables of the drill, with one column of nearly every type, and ordinary changes of their rows.

An id says whose row it is: the drill harms rows whose id is 2 more than a multiple of 4, the
ordinary changes are of multiples of 4, and odd ids have no row until the drill inserts one. So a
later change never repairs a fault.
"""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from demo.mysql import MySQL

DATABASE = "drill"
ROWS = 1_200
"""Rows of a table at first."""
TEMPLATE = 2
"""The id of a row that is never harmed: lost rows are copies of it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, its value in row *n* of the fill, and SQL that changes the value."""

    name: str
    type: str
    fill: str
    change: str


COMPARED = (
    Column("small", "SMALLINT NOT NULL", "n % 30000", "small + 1"),
    Column("quantity", "INT NOT NULL", "n", "quantity + 1"),
    Column("large", "BIGINT NOT NULL", "n * 1000003", "large + 1"),
    Column("total", "BIGINT UNSIGNED NOT NULL", "18446744073709551615 - n", "total - 1"),
    Column("amount", "DECIMAL(12,4) NOT NULL", "n / 7", "amount + 0.0001"),
    Column("price", "DECIMAL(38,10) NULL", "n / 3", "price + 0.0000000001"),
    Column("due", "DATE NOT NULL", "DATE '2020-01-01' + INTERVAL n DAY", "due + INTERVAL 1 DAY"),
    Column(
        "placed",
        "DATETIME(6) NOT NULL",
        "TIMESTAMP '2021-01-01 00:00:00' + INTERVAL n MICROSECOND",
        "placed + INTERVAL 1 MICROSECOND",
    ),
    Column(
        "paid",
        "TIMESTAMP(3) NULL",
        "TIMESTAMP '2022-01-01 00:00:00' + INTERVAL n SECOND",
        "paid + INTERVAL 1 SECOND",
    ),
    Column("open_for", "TIME NOT NULL", "SEC_TO_TIME(n)", "ADDTIME(open_for, '00:00:01')"),
    Column("name", "VARCHAR(80) NOT NULL", "CONCAT('name ', n)", "UPPER(name)"),
    Column("memo", "TEXT NULL", "CONCAT('memo ', n)", "CONCAT(memo, ' ')"),
    Column("note", "VARCHAR(40) NULL", "NULL", "''"),
    Column("state", "ENUM('new', 'paid', 'sent') NOT NULL", "ELT(1 + n % 2, 'new', 'paid')", "3"),
    Column("marks", "SET('fraud', 'manual') NULL", "'fraud'", "'fraud,manual'"),
    Column("approved", "BIT(1) NOT NULL", "n % 2", "approved ^ 1"),
    Column("digest", "VARBINARY(32) NULL", "UNHEX(MD5(n))", "CONCAT(digest, 0x00)"),
    Column("receipt", "BLOB NULL", "UNHEX(SHA1(n))", "REVERSE(receipt)"),
)
UNCOMPARED = (
    Column("score", "DOUBLE NULL", "n / 9", "score + 1"),
    Column("detail", "JSON NULL", "JSON_OBJECT('n', n)", "JSON_OBJECT('n', -1)"),
    Column("mask", "BIT(9) NULL", "n % 511", "mask ^ 1"),
)
"""Types whose values systems write differently: the check of values leaves them out."""
COLUMNS = (*COMPARED, *UNCOMPARED)


def create_tables(mysql: MySQL, names: Sequence[str], rows: int = ROWS) -> None:
    """Create the database and tables *names*, each with *rows* rows of even ids; drop old ones."""
    declared = ", ".join(f"{one.name} {one.type}" for one in COLUMNS)
    fill = ", ".join(one.fill for one in COLUMNS)
    statements = [f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}"]
    statements.append(f"SET cte_max_recursion_depth = {rows}")
    for name in names:
        statements += (
            f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, {declared})"
            " DEFAULT CHARSET utf8mb4",
            f"INSERT INTO {name} WITH RECURSIVE numbers (n) AS"
            f" (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})"
            f" SELECT 2 * n, {fill} FROM numbers",
        )
    mysql.execute(*statements)


def harmed_ids(count: int, rows: int = ROWS) -> list[int]:
    """*count* ids of rows that the drill may harm, spread over the table, the template excepted.

    Raises:
        ValueError: if the table has too few rows.
    """
    ids = range(TEMPLATE + 4, 2 * rows + 1, 4)
    if count > len(ids):
        msg = f"a table of {rows} rows has {len(ids)} rows to be harmed, not {count}"
        raise ValueError(msg)
    return [ids[number * len(ids) // count] for number in range(count)]


@dataclass(eq=False)
class OrdinaryChanges:
    """Updates, deletes and inserts with the log on, about ``rate`` rows a second in all."""

    mysql: MySQL
    names: Sequence[str]
    rate: float
    rows: int = ROWS
    changes: int = 0

    def run(self, ended: threading.Event) -> None:
        """Change rows until *ended* is set."""
        rng, number = random.Random(1), 0
        with self.mysql.connect() as link, link.cursor() as cursor:
            cursor.execute("SET SESSION transaction_isolation = 'READ-COMMITTED'")
            while not ended.wait(10 / self.rate):
                name, number = self.names[number % len(self.names)], number + 1
                first = 4 * rng.randrange(1, self.rows // 2 - 10)
                ids = ", ".join(str(first + 4 * step) for step in range(10))
                if rng.random() < 0.8:
                    self.changes += cursor.execute(
                        f"UPDATE {name} SET quantity = quantity + 1, memo = UUID()"
                        f" WHERE id IN ({ids})"
                    )
                    continue
                self.changes += cursor.execute(f"DELETE FROM {name} WHERE id IN ({ids})")
                self.changes += cursor.execute(copy_template(name, range(first, first + 40, 4)))


def copy_template(name: str, ids: Sequence[int]) -> str:
    """The statement that inserts rows with *ids*, otherwise equal to the row that is not harmed."""
    names = ", ".join(one.name for one in COLUMNS)
    new = " UNION ALL ".join(f"SELECT {one} AS new_id" for one in ids)
    return (
        f"INSERT INTO {name} (id, {names}) SELECT new_id, {names}"
        f" FROM {name}, ({new}) AS new_ids WHERE id = {TEMPLATE}"
    )
