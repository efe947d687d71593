"""Defines tables of the drill, with a column of nearly every type, and their ordinary changes.

An id decides who changes its row. The drill harms rows whose id is a multiple of 4 plus 2. Ordinary
changes affect multiples of 4. Odd ids have no row until the drill inserts one. So a later change
never repairs a fault.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from demo.connect import ConnectClient
from demo.shop.server import ShopServer

ROWS = 1_200
"""Rows of a table at first."""
TEMPLATE = 2
"""The id of a row that is never harmed: lost rows are copies of it."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the drill's own things on the servers, and of the source in incidents.

    ``schema`` is the part before the dot in a table's name: a database of MySQL, a schema of
    Postgres. ``prefix`` is that of the topics, and the name of the connector and its slot.
    """

    schema: str = "drill"
    source: str = "shop"
    prefix: str = "shop"
    heartbeats: str = "sluice.heartbeat"
    publication: str = "sluice"

    @property
    def marker(self) -> str:
        """Return a table without faults: its sent change shows that earlier ones were collected."""
        return self.table("marker")

    @property
    def lost(self) -> str:
        """Return the table whose topic is deleted; it has no other fault."""
        return self.table("topic")

    def table(self, kind: str, number: int = 0) -> str:
        """Return a table of the drill, as SQL names it."""
        return f"{self.schema}.{kind}_{number:02}"

    def tables(self, kind: str, count: int) -> tuple[str, ...]:
        """Return the first *count* tables of that kind."""
        return tuple(self.table(kind, number) for number in range(count))

    def topic(self, table: str) -> str:
        """Return the topic of *table*."""
        return f"{self.prefix}.{table}"


DEMO = Names()
"""The names on the drill's own servers."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, its value in row *n* of the fill, and SQL that changes the value."""

    name: str
    type: str
    fill: str
    change: str


def spell_columns(columns: Sequence[Column]) -> tuple[str, str]:
    """Return the declarations and the values of the fill, as SQL lists them."""
    declared = ", ".join(f"{one.name} {one.type}" for one in columns)
    return declared, ", ".join(one.fill for one in columns)


class DrillSource(Protocol):
    """A database whose tables are harmed."""

    @property
    def compared(self) -> Sequence[Column]:
        """Return the columns whose values are compared."""
        ...

    @property
    def uncompared(self) -> Sequence[Column]:
        """Return columns of types that systems write differently; `values` skips their values."""
        ...

    @property
    def names(self) -> Names:
        """Return the names of its things."""
        ...

    @property
    def shop(self) -> ShopServer | None:
        """Return the server of the demo's shop; None without a shop."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the keys of the service's config for it, in addition to the demo's."""
        ...

    @property
    def wide(self) -> tuple[str, ...]:
        """Return prefixes of subjects of incidents that `leave_out` causes for the whole source."""
        ...

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Set the *environment* of the server, from its next start on."""
        ...

    def prepare(self) -> None:
        """Create what must exist before any table."""
        ...

    def create_tables(self, names: Sequence[str]) -> None:
        """Create tables *names*, each with `ROWS` rows of even ids, and start to collect them."""
        ...

    def connect(self) -> Any:
        """Open a connection in autocommit; its cursors have `execute` and `rowcount`."""
        ...

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; return the rows of the last one."""
        ...

    def execute_hidden(self, table: str, *statements: str) -> None:
        """Run *statements* that change *table* in one session, hidden from every collector."""
        ...

    def date_changes(self, seconds: float) -> Sequence[str]:
        """Return statements that date the later changes of their session wrong, if possible."""
        ...

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Return the config of the connector that reads it."""
        ...

    def lock_heartbeats(self) -> AbstractContextManager[None]:
        """Prevent other sessions from writing a heartbeat inside the block."""
        ...

    def leave_out(self, connect: ConnectClient, table: str) -> AbstractContextManager[None]:
        """Drop the records of all changes of *table* inside the block."""
        ...

    def rows_read(self) -> int | None:
        """Return how many rows were read: by the service, if the server counts that separately.

        None if the server does not count.
        """
        ...


class Brokers(Protocol):
    """A Kafka."""

    @property
    def bootstrap(self) -> str:
        """Return the address with which clients begin."""
        ...


class DrillServers(Protocol):
    """Kafka, Connect and the database of a drill."""

    @property
    def kafka(self) -> Brokers:
        """Return the brokers of the topics."""
        ...

    @property
    def connect(self) -> ConnectClient:
        """Return where the connector runs."""
        ...

    def start(self, say: Callable[[str], None] = ...) -> None:
        """Return when all can be used; *say* gets a line for each."""
        ...

    def stop(self) -> None:
        """Stop what was started, and remove what was created."""
        ...


def harmed_ids(count: int, rows: int = ROWS) -> list[int]:
    """Return *count* ids of rows that the drill may harm, spread over the table, but no template.

    Raises:
        ValueError: the table has too few rows.
    """
    ids = range(TEMPLATE + 4, 2 * rows + 1, 4)
    if count > len(ids):
        msg = f"a table of {rows} rows has {len(ids)} rows to be harmed, not {count}"
        raise ValueError(msg)
    return [ids[number * len(ids) // count] for number in range(count)]


@dataclass(eq=False)
class OrdinaryChanges:
    """Logged updates, deletes and inserts, about ``rate`` rows a second in all."""

    source: DrillSource
    names: Sequence[str]
    rate: float
    rows: int = ROWS
    changes: int = 0

    def run(self, ended: threading.Event) -> None:
        """Change rows until *ended* is set."""
        rng, number = random.Random(1), 0
        with self.source.connect() as link, link.cursor() as cursor:
            while not ended.wait(10 / self.rate):
                name, number = self.names[number % len(self.names)], number + 1
                first = 4 * rng.randrange(1, self.rows // 2 - 10)
                ids = ", ".join(str(first + 4 * step) for step in range(10))
                if rng.random() < 0.8:
                    memo = f"CONCAT('memo ', {rng.random()})"
                    cursor.execute(
                        f"UPDATE {name} SET quantity = quantity + 1, memo = {memo}"
                        f" WHERE id IN ({ids})"
                    )
                    self.changes += cursor.rowcount
                    continue
                cursor.execute(f"DELETE FROM {name} WHERE id IN ({ids})")
                self.changes += cursor.rowcount
                cursor.execute(copy_template(self.source, name, range(first, first + 40, 4)))
                self.changes += cursor.rowcount


def copy_template(source: DrillSource, name: str, ids: Sequence[int]) -> str:
    """Return the statement that inserts copies of the template row with *ids*."""
    names = ", ".join(one.name for one in (*source.compared, *source.uncompared))
    new = " UNION ALL ".join(f"SELECT {one} AS new_id" for one in ids)
    return (
        f"INSERT INTO {name} (id, {names}) SELECT new_id, {names}"
        f" FROM {name}, ({new}) AS new_ids WHERE id = {TEMPLATE}"
    )
