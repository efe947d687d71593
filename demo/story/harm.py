"""Harms data outside the service, and repairs each harm.

There are three kinds. Rows are written to the source and not to its log. A value is changed there
without the log. Another writer deletes a row from a mirror.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from demo.mysql import MySQL
from demo.oracle.rows import read_rows
from pipeline.errors import UnreachableError

AT_ONCE = CommitProperties(max_commit_retries=0)  # on top of the compared version, or not at all
TIMES = 20
# The widest hole below the highest id: rows in it do not change the highest id.
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
        """Return the ids as an id range, as the service spells it."""
        first, last = self.ids[0], self.ids[-1]
        return f"{self.shard}:{first}" + (f"-{last}" if last > first else "")


@dataclass(eq=False)
class UnloggedChange:
    """The total of one order changed under `sql_log_bin=0`: no count differs."""

    mysql: MySQL
    shard: str
    id: int = -1

    def do(self) -> None:
        """Change the order with the lowest id."""
        ((self.id,),) = self.mysql.execute(
            f"SELECT MIN(id) FROM {self.shard} WHERE total IS NOT NULL"
        )
        other = "IF(total > 0, total - 1, total + 1)"  # differs from any total, also the highest
        change = f"UPDATE {self.shard} SET total = {other} WHERE id = {self.id}"
        self.mysql.execute("SET sql_log_bin = 0", change)

    def undo(self) -> None:
        """Touch the row, this time with the log on."""
        self.mysql.execute(f"UPDATE {self.shard} SET note = 'touched' WHERE id = {self.id}")


@dataclass(eq=False)
class ForeignDelete:
    """A row deleted from the mirror at *path* by a writer that is not the service.

    ``good`` is the version before the delete, even if the service commits meanwhile.
    """

    path: str
    id: int = -1
    version: int = -1
    good: int = -1

    def do(self) -> None:
        """Delete the row with the lowest id, as of the newest version.

        Raises:
            UnreachableError: another commit was faster, each time.
        """
        for _ in range(TIMES):
            if self._deleted(DeltaTable(self.path)):
                return
        raise UnreachableError(
            f"{self.path} changes too often for a foreign hand; rest its writers"
        )

    def undo(self) -> None:
        """Restore the version before the delete."""
        DeltaTable(self.path).restore(self.good)

    def _deleted(self, table: DeltaTable) -> bool:
        """Delete; False if another commit came since the table was read."""
        good = table.version()
        (first,) = read_column(table, "SELECT min(id) AS id FROM t")
        try:
            table.delete(f"id = {first}", commit_properties=AT_ONCE)
        except CommitFailedError:
            return False
        self.id, self.good, self.version = first, good, good + 1
        return True


@dataclass(eq=False)
class Harm:
    """All kinds of harm, and the ids of the incidents that name them."""

    rows: UnloggedRows
    value: UnloggedChange
    row: ForeignDelete
    incidents: tuple[str, ...] = ()


def read_column(table: DeltaTable, query: str) -> Sequence[Any]:
    """Return the first column that *query* selects from *table*, which it calls ``t``."""
    values: list[Any] = read_rows(table, query).column(0).to_pylist()
    return values
