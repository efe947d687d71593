"""How an older store becomes what this version expects."""

from collections.abc import Callable

from sqlalchemy import Connection, Table, delete, func, insert, inspect, select, update
from sqlalchemy.schema import CreateColumn

from checks.model import Outcome
from monitor.store.schema import METADATA, fail_ends, rereads, verdicts, version, waivers
from pipeline.errors import ConfigError


def _wishes(connection: Connection) -> None:
    """Which rows are read again, and what checks said of them."""
    _add_columns(connection, rereads, "wish", "proofs")


def _cut_off_findings(connection: Connection) -> None:
    """How many rows a FAIL does not name; how waivers end."""
    _add_columns(connection, verdicts, "more")
    _add_columns(connection, waivers, "until", "withdrawn", "withdrawn_by", "withdrawn_why")
    cut_off = verdicts.c.more.is_(None) & verdicts.c.reason.like("% more rows differ%")
    connection.execute(update(verdicts).where(cut_off).values(more=1))


def _ends_of_fails(connection: Connection) -> None:
    """When the last FAIL of each check ended, as far as the history shows it."""
    METADATA.create_all(connection)
    own = (verdicts.c.table, verdicts.c.check)
    failed = (
        select(*own, func.max(verdicts.c.id).label("id"))
        .where(verdicts.c.outcome == Outcome.FAIL.value)
        .group_by(*own)
        .subquery()
    )
    passed = (
        select(func.min(verdicts.c.id))
        .join(failed, (failed.c.table == own[0]) & (failed.c.check == own[1]))
        .where(verdicts.c.outcome == Outcome.PASS.value, verdicts.c.id > failed.c.id)
        .group_by(*own)
    )
    first = select(*own, verdicts.c.at).where(verdicts.c.id.in_(passed))
    connection.execute(delete(fail_ends))
    connection.execute(insert(fail_ends).from_select(["table", "check", "at"], first))


def _add_columns(connection: Connection, table: Table, *names: str) -> None:
    """Add the columns that the store does not have yet."""
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    name = connection.dialect.identifier_preparer.format_table(table)
    for column in (table.c[each] for each in names if each not in there):
        told = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {told}")


STEPS: tuple[Callable[[Connection], None], ...] = (
    *(METADATA.create_all,) * 3,
    _wishes,
    *(METADATA.create_all,) * 3,
    _cut_off_findings,
    _ends_of_fails,
)
"""The first makes a store, each after it the next version; a released step is never changed.

The second adds what is read again from its source, the third pauses and states of tables,
the fourth which rows are read again, the fifth what was corrected,
the sixth windows of archives, the seventh those that were withdrawn,
the eighth rows that a FAIL does not name and how waivers end,
the ninth when FAILs ended."""
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
