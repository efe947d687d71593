"""How an older store becomes what this version expects."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.schema import CreateColumn

from monitor.store.schema import METADATA, rereads, version
from pipeline.errors import ConfigError


def _wishes(connection: Connection) -> None:
    """Which rows are read again, and what checks said of them."""
    there = {column["name"] for column in inspect(connection).get_columns(rereads.name)}
    name = connection.dialect.identifier_preparer.format_table(rereads)
    for column in (rereads.c.wish, rereads.c.proofs):
        if column.name not in there:
            told = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {told}")


STEPS: tuple[Callable[[Connection], None], ...] = (
    *(METADATA.create_all,) * 3,
    _wishes,
    *(METADATA.create_all,) * 3,
)
"""The first makes a store, each after it the next version; a released step is never changed.

The second adds what is read again from its source, the third pauses and states of tables,
the fourth which rows are read again, the fifth what was corrected,
the sixth windows of archives, the seventh those that were withdrawn."""
FIRST = 2
"""The version that the first step makes; no release has written an earlier one."""


def upgrade(connection: Connection) -> None:
    """Bring the store to this version, inside the caller's transaction.

    Raises:
        ConfigError: a newer version of Sluice wrote it, or a build before the first release.
    """
    found = 0
    if inspect(connection).has_table("version"):
        found = connection.scalar(select(version.c.number)) or 0
    newest = FIRST + len(STEPS) - 1
    if found > newest:
        raise ConfigError(
            f"the store has version {found}, this Sluice knows {newest}: "
            "run the newer Sluice, or give this one a store of its own"
        )
    if 0 < found < FIRST:
        raise ConfigError(
            f"the store has version {found}, of a build before the first release, and is not read: "
            "move it away, and Sluice begins with an empty one"
        )
    for step in STEPS[found - FIRST + 1 if found else 0 :]:
        step(connection)
    connection.execute(delete(version))
    connection.execute(insert(version).values(number=newest))
