"""How an older store becomes what this version expects."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, insert, inspect, select

from monitor.store.schema import METADATA, version
from pipeline.errors import ConfigError

STEPS: tuple[Callable[[Connection], None], ...] = (METADATA.create_all,)
"""Step n brings a store of version n to n + 1; a released step is never changed."""


def upgrade(connection: Connection) -> None:
    """Bring the store to this version, inside the caller's transaction.

    Raises:
        ConfigError: a newer version of Sluice wrote it.
    """
    found = 0
    if inspect(connection).has_table("version"):
        found = connection.scalar(select(version.c.number)) or 0
    if found > len(STEPS):
        raise ConfigError(
            f"the store has version {found}, this Sluice knows {len(STEPS)}: "
            "run the newer Sluice, or give this one a store of its own"
        )
    for step in STEPS[found:]:
        step(connection)
    connection.execute(delete(version))
    connection.execute(insert(version).values(number=len(STEPS)))
