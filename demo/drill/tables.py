"""Tables of the drill, with one column of nearly every type, and ordinary changes of their rows.

An id says whose row it is: the drill harms rows whose id is 2 more than a multiple of 4, the
ordinary changes are of multiples of 4, and odd ids have no row until the drill inserts one. So a
later change never repairs a fault.
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
    """What the drill's own things are called on the servers, and the source in incidents.

    ``schema`` is what stands before the dot in a table's name: a database of MySQL, a schema of
    Postgres. ``prefix`` is that of the topics, and the name of the connector and its slot.
    """

    schema: str = "drill"
    source: str = "shop"
    prefix: str = "shop"
    heartbeats: str = "sluice.heartbeat"
    publication: str = "sluice"

    @property
    def marker(self) -> str:
        """A table without faults: once a change of it is sent, those before it were collected."""
        return self.table("marker")

    @property
    def lost(self) -> str:
        """The table whose topic is deleted; no other fault is of it."""
        return self.table("topic")

    def table(self, kind: str, number: int = 0) -> str:
        """A table of the drill, as SQL names it."""
        return f"{self.schema}.{kind}_{number:02}"

    def tables(self, kind: str, count: int) -> tuple[str, ...]:
        """The first *count* tables of that kind."""
        return tuple(self.table(kind, number) for number in range(count))

    def topic(self, table: str) -> str:
        """The topic of *table*."""
        return f"{self.prefix}.{table}"


DEMO = Names()
"""Those on servers of the drill's own."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, its value in row *n* of the fill, and SQL that changes the value."""

    name: str
    type: str
    fill: str
    change: str


def spell_columns(columns: Sequence[Column]) -> tuple[str, str]:
    """Their declarations and the values of the fill, as SQL lists them."""
    declared = ", ".join(f"{one.name} {one.type}" for one in columns)
    return declared, ", ".join(one.fill for one in columns)


class DrillSource(Protocol):
    """A database whose tables are harmed."""

    @property
    def compared(self) -> Sequence[Column]:
        """Columns whose values are compared."""
        ...

    @property
    def uncompared(self) -> Sequence[Column]:
        """Columns of types that systems write differently: the check of values leaves them out."""
        ...

    @property
    def names(self) -> Names:
        """What its things are called."""
        ...

    @property
    def shop(self) -> ShopServer | None:
        """Where the demo's shop is; None without a shop."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the service's config says of it, beside the demo's own."""
        ...

    @property
    def wide(self) -> tuple[str, ...]:
        """Beginnings of what an incident of `leave_out` is about, if it is of the whole source."""
        ...

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Give the server *environment* from its next start on."""
        ...

    def prepare(self) -> None:
        """Create what must be there before any table."""
        ...

    def create_tables(self, names: Sequence[str]) -> None:
        """Create tables *names*, each with `ROWS` rows of even ids, and let them be collected."""
        ...

    def connect(self) -> Any:
        """Open a connection in autocommit; its cursors have `execute` and `rowcount`."""
        ...

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; the rows of the last one."""
        ...

    def execute_hidden(self, table: str, *statements: str) -> None:
        """Run *statements* that change *table* in one session; no collector can see them."""
        ...

    def date_changes(self, seconds: float) -> Sequence[str]:
        """Statements that date the later changes of their session wrong; none if it cannot be."""
        ...

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Config of the connector that reads it."""
        ...

    def lock_heartbeats(self) -> AbstractContextManager[None]:
        """No other session can write a heartbeat inside the block."""
        ...

    def leave_out(self, connect: ConnectClient, table: str) -> AbstractContextManager[None]:
        """No change of *table* is sent inside the block."""
        ...

    def rows_read(self) -> int | None:
        """Rows that were read so far: by the service, where the server counts that apart.

        None if the server does not say.
        """
        ...


class Brokers(Protocol):
    """A Kafka."""

    @property
    def bootstrap(self) -> str:
        """The address clients begin with."""
        ...


class DrillServers(Protocol):
    """Kafka, Connect and the database of a drill."""

    @property
    def kafka(self) -> Brokers:
        """Where the topics are."""
        ...

    @property
    def connect(self) -> ConnectClient:
        """Where the connector runs."""
        ...

    def start(self, say: Callable[[str], None] = ...) -> None:
        """Return when all can be used; *say* gets a line for each."""
        ...

    def stop(self) -> None:
        """Stop what was started, and remove what was made."""
        ...


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
    """The statement that inserts rows with *ids*, otherwise equal to the row that is not harmed."""
    names = ", ".join(one.name for one in (*source.compared, *source.uncompared))
    new = " UNION ALL ".join(f"SELECT {one} AS new_id" for one in ids)
    return (
        f"INSERT INTO {name} (id, {names}) SELECT new_id, {names}"
        f" FROM {name}, ({new}) AS new_ids WHERE id = {TEMPLATE}"
    )
