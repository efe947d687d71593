"""Harm behind the service's back, and how each is put right.

Two kinds: rows that are written to the source and never to its log, and a row that somebody else
takes out of a mirror.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from demo.mysql import MySQL

# The widest hole below the highest id: rows in it are invisible to a look at the maximum.
HOLE = """
    SELECT id + 1, next - 1 FROM (
        SELECT id, LEAD(id) OVER (ORDER BY id) AS next FROM {0}
    ) AS ids WHERE next > id + 1 ORDER BY next - id DESC, id LIMIT 1
"""
COPY = """
    INSERT INTO {0} (id, number, user_id, state, total, placed, note, touched)
    SELECT %s, number, user_id, state, total, placed, 'never logged', touched
    FROM {0} ORDER BY id LIMIT 1
"""


@dataclass(eq=False)
class UnloggedRows:
    """Orders inserted into *shard* under `sql_log_bin=0`: no reader of the log can see them."""

    mysql: MySQL
    shard: str
    most: int = 3
    ids: tuple[int, ...] = ()

    def do(self) -> None:
        """Insert up to *most* rows with neighbouring ids, of rows that were deleted."""
        found = self.mysql.execute(HOLE.format(self.shard))
        if found:
            first, last = found[0]
        else:
            ((first,),) = self.mysql.execute(f"SELECT MAX(id) + 1 FROM {self.shard}")
            last = first
        self.ids = tuple(range(first, min(last, first + self.most - 1) + 1))
        with self.mysql.connect() as link, link.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            for id_ in self.ids:
                cursor.execute(COPY.format(self.shard), (id_,))

    def undo(self) -> None:
        """Touch the rows, this time with the log on."""
        ids = ", ".join(map(str, self.ids))
        self.mysql.execute(f"UPDATE {self.shard} SET note = 'touched' WHERE id IN ({ids})")

    @property
    def span(self) -> str:
        """The ids as an id range, the way the service spells one."""
        first, last = self.ids[0], self.ids[-1]
        return f"{self.shard}:{first}" + (f"-{last}" if last > first else "")


@dataclass(eq=False)
class ForeignDelete:
    """A row deleted from the mirror at *path* by a writer that is not the service."""

    path: str
    id: int = -1
    version: int = -1
    good: int = -1

    def do(self) -> None:
        """Delete the row with the lowest id."""
        table = DeltaTable(self.path)
        self.good = table.version()
        (self.id,) = _column(table, "SELECT min(id) AS id FROM t")
        table.delete(f"id = {self.id}")
        self.version = table.version()

    def undo(self) -> None:
        """Take the mirror back to the version just before."""
        DeltaTable(self.path).restore(self.good)


@dataclass(eq=False)
class Harm:
    """Both kinds, and the ids of the incidents that name them."""

    rows: UnloggedRows
    row: ForeignDelete
    incidents: tuple[str, ...] = ()


def _column(table: DeltaTable, query: str) -> Sequence[Any]:
    found = QueryBuilder().register("t", table).execute(query).read_all()
    values: list[Any] = pa.table(found).column(0).to_pylist()
    return values
