"""Keeps a log of page visits, large enough to be landed and merged by Spark jobs.

Only the story writes to it, so it is compared by sums instead of row by row.
"""

from dataclasses import dataclass
from zlib import crc32

from deltalake import DeltaTable, QueryBuilder

from demo.mysql import MySQL

NAME = "shop.visits"
ROWS = 300_000
CHANGED = 150_000
"""Rows of the bulk update: more than one merge run handles in the service's own process."""

TABLE = f"""
    CREATE TABLE {NAME} (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        user_id BIGINT NOT NULL,
        page VARCHAR(80) NOT NULL,
        seconds INT NOT NULL
    ) DEFAULT CHARSET utf8mb4
"""
FILL = f"""
    INSERT INTO {NAME} (user_id, page, seconds)
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
    SELECT n % 9973, CONCAT('/products/', n * 7919 % 100003), n % 600 FROM numbers
"""
SUM = "COUNT(*), SUM(CRC32(CONCAT_WS('|', id, user_id, page, seconds)))"


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of rows of one side, and the sum of their CRC-32."""

    rows: int
    crc: int


@dataclass(frozen=True, slots=True)
class Visits:
    """The table on ``mysql``."""

    mysql: MySQL

    def create(self) -> None:
        """Create it, with all its rows."""
        self.mysql.execute(f"SET cte_max_recursion_depth = {ROWS}", TABLE, FILL)

    def change(self) -> int:
        """Change many rows in one transaction; return how many."""
        self.mysql.execute(f"UPDATE {NAME} SET seconds = seconds + 1 WHERE id <= {CHANGED}")
        return CHANGED

    def source(self) -> Sum:
        """Sum up the source's rows."""
        ((rows, crc),) = self.mysql.execute(f"SELECT {SUM} FROM {NAME}")
        return Sum(rows, int(crc or 0))

    @staticmethod
    def mirror(path: str) -> Sum:
        """Sum up the rows of the mirror at *path*."""
        query = "SELECT id, user_id, page, seconds FROM t"
        told = QueryBuilder().register("t", DeltaTable(path)).execute(query).read_all()
        rows = zip(*(told[name].to_pylist() for name in told.column_names), strict=True)
        return Sum(told.num_rows, sum(crc32("|".join(map(str, row)).encode()) for row in rows))
