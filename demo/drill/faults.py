"""Defines kinds of faults: each harms rows of a table, and reports which columns it has changed.

A kind of the source hides its changes, so that no collector can see them. A kind of the mirror
commits to its Delta table, as a writer that is not the service would. A kind of the topic drops or
repeats records of changes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from deltalake import DeltaTable, write_deltalake
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from demo.clocks import ServerClock
from demo.drill.tables import ROWS, TEMPLATE, DrillServers, DrillSource, copy_template
from demo.oracle.compare import mirror_path
from demo.oracle.rows import read_rows
from demo.processes import wait_until
from demo.story.harm import AT_ONCE, read_column

COLLECTED = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row that was harmed, ``at`` seconds after the drill began.

    ``column`` is the changed column; empty if the whole row is lost, duplicated or extra.
    ``logged``: an ordinary change of the row came just before.
    """

    kind: str
    table: str
    id: int
    at: float
    column: str = ""
    logged: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """The targets of faults: the servers, and the service's folder and lake.

    ``source_clock`` is None if no clock can be set, and ``clock_trouble`` says why.
    ``disk_trouble`` says why lake and store have no separate small disks; empty if they have.
    """

    servers: DrillServers
    source: DrillSource
    home: Path
    lake: str
    source_clock: ServerClock | None = None
    clock_trouble: str = ""
    disk_trouble: str = ""

    def mirror(self, table: str) -> DeltaTable:
        """Return the mirror of *table* at its newest version."""
        return DeltaTable(mirror_path(self.lake, table))

    def mirrored_ids(self, table: str) -> list[int]:
        """Return the ids in the mirror of *table*, one for each row."""
        return [*read_column(self.mirror(table), "SELECT id FROM t")]

    def mirrored_rows(self, table: str) -> set[tuple[int, int]]:
        """Return id and quantity of each row in the mirror of *table*."""
        rows = read_rows(self.mirror(table), "SELECT id, quantity FROM t")
        return set(zip(rows["id"].to_pylist(), rows["quantity"].to_pylist(), strict=True))

    def source_rows(self, table: str) -> set[tuple[int, int]]:
        """Return id and quantity of each row at the source."""
        return {(id_, n) for id_, n in self.source.execute(f"SELECT id, quantity FROM {table}")}

    def records(self, table: str, since: int = 0) -> list[Any]:
        """Return the messages of the topic of *table* from offset *since* to its end, in order."""
        found = list[Any]()
        with closing(KafkaConsumer(bootstrap_servers=self.servers.kafka.bootstrap)) as consumer:
            part = self._partition(table)
            consumer.assign([part])
            end = consumer.end_offsets([part])[part]
            consumer.seek(part, since)
            while consumer.position(part) < end:
                found += consumer.poll(1000).get(part, ())
        return found

    def end_of(self, table: str) -> int:
        """Return the offset of the next message of the topic of *table*."""
        with closing(KafkaConsumer(bootstrap_servers=self.servers.kafka.bootstrap)) as consumer:
            part = self._partition(table)
            return int(consumer.end_offsets([part])[part])

    def await_collected(self) -> None:
        """Return when all changes up to now were collected.

        Raises:
            UnreachableError: it takes too long.
        """
        marker = self.source.names.marker
        before = self.end_of(marker)
        self.source.execute(f"UPDATE {marker} SET quantity = quantity + 1 WHERE id = {TEMPLATE}")
        wait_until(lambda: self.end_of(marker) > before, COLLECTED, "record of a change")

    @contextmanager
    def dropping(self, table: str) -> Iterator[None]:
        """Drop the records of all changes of *table* in the block; all are collected at its end."""
        with self.source.leave_out(self.servers.connect, table):
            yield
            self.await_collected()

    def _partition(self, table: str) -> TopicPartition:
        return TopicPartition(self.source.names.topic(table), 0)


class FaultKind(Protocol):
    """A kind of fault."""

    @property
    def name(self) -> str:
        """Return its name in the table of results."""
        ...

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Harm rows of *table*; return harmed id -> the changed column.

        *ids* are ids of existing rows. A kind may instead harm neighbouring ids without a row.
        """
        ...


@dataclass(frozen=True, slots=True)
class LostRow:
    """Rows inserted at the source that are in no log; their ids are *ids* plus ``above``."""

    name: str = "lost row"
    above: int = 1

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Insert rows with ids that have none."""
        lost = [id_ + self.above for id_ in ids]
        site.source.execute_hidden(table, copy_template(site.source, table, lost))
        return dict.fromkeys(lost, "")


@dataclass(frozen=True, slots=True)
class ResurrectedRow:
    """Rows deleted at the source by a delete that is in no log: they stay in the mirror."""

    name: str = "resurrected row"

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Delete the rows."""
        site.source.execute_hidden(table, f"DELETE FROM {table} WHERE id IN ({_listed(ids)})")
        return dict.fromkeys(ids, "")


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """One value of each row changed at the source by an update that is in no log.

    ``compared`` selects a column whose values are compared, or one whose values are not. With
    ``follows``, an ordinary, logged change of the same row comes just before.
    """

    name: str = "changed value"
    compared: bool = True
    follows: bool = False

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Change one column of each row, the columns in rotation."""
        if self.follows:
            ordinary = "quantity = quantity + 1000, name = CONCAT(name, ' changed')"
            site.source.execute(f"UPDATE {table} SET {ordinary} WHERE id IN ({_listed(ids)})")
        columns = site.source.compared if self.compared else site.source.uncompared
        changed = dict(zip(ids, cycle(columns), strict=False))
        updates = [
            f"UPDATE {table} SET {column.name} = {column.change} WHERE id IN"
            f" ({_listed(id_ for id_ in ids if changed[id_] is column)})"
            for column in dict.fromkeys(changed.values())
        ]
        site.source.execute_hidden(table, *updates)
        return {id_: column.name for id_, column in changed.items()}


@dataclass(frozen=True, slots=True)
class DoubledRow:
    """Rows of the mirror that another writer appends a second time."""

    name: str = "doubled row in the mirror"

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Append copies, in one commit."""
        mirror = site.mirror(table)
        rows = read_rows(mirror, f"SELECT * FROM t WHERE id IN ({_listed(ids)})")
        write_deltalake(mirror, rows, mode="append", commit_properties=AT_ONCE)
        return dict.fromkeys(ids, "")


@dataclass(frozen=True, slots=True)
class DeletedRow:
    """Rows of the mirror that another writer deletes."""

    name: str = "deleted row in the mirror"

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Delete them, in one commit."""
        site.mirror(table).delete(f"id IN ({_listed(ids)})", commit_properties=AT_ONCE)
        return dict.fromkeys(ids, "")


@dataclass(frozen=True, slots=True)
class ForeignValue:
    """Values of the mirror that another writer changes."""

    name: str = "changed value in the mirror"

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Change the quantities, in one commit."""
        site.mirror(table).update(
            updates={"quantity": "quantity + 1"},
            predicate=f"id IN ({_listed(ids)})",
            commit_properties=AT_ONCE,
        )
        return dict.fromkeys(ids, "quantity")


@dataclass(frozen=True, slots=True)
class DroppedRecord:
    """Logged changes whose records a filter of the connector drops."""

    name: str = "record dropped by the connector"

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Update, delete and insert a third each while the connector drops the records."""
        updated, deleted, inserted = ids[::3], ids[1::3], [id_ + 1 for id_ in ids[2::3]]
        with site.dropping(table):
            site.source.execute(
                f"UPDATE {table} SET quantity = quantity + 1 WHERE id IN ({_listed(updated)})",
                f"DELETE FROM {table} WHERE id IN ({_listed(deleted)})",
                copy_template(site.source, table, inserted),
            )
        return dict.fromkeys(updated, "quantity") | dict.fromkeys([*deleted, *inserted], "")


@dataclass(frozen=True, slots=True)
class RepeatedRecord:
    """A record that is sent again after newer ones of its row; it must change nothing.

    With ``late``, it is the record before the newest of the row, else the newest.
    """

    name: str
    late: bool

    def harm(self, site: Site, table: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Update the rows twice, and send one of the two records again."""
        since = site.end_of(table)
        for _ in range(2):
            site.source.execute(
                f"UPDATE {table} SET quantity = quantity + 1 WHERE id IN ({_listed(ids)})"
            )
        site.await_collected()
        by_id = dict[int, list[Any]]()
        for message in site.records(table, since):
            by_id.setdefault(read_payload(message.key)["id"], []).append(message)
        with closing(KafkaProducer(bootstrap_servers=site.servers.kafka.bootstrap)) as producer:
            for id_ in ids:
                again = by_id[id_][-2 if self.late else -1]
                topic = site.source.names.topic(table)
                producer.send(topic, again.value, again.key, again.headers)
            producer.flush()
        return dict.fromkeys(ids, "")


ROW_KINDS: tuple[FaultKind, ...] = (
    LostRow(),
    ResurrectedRow(),
    ChangedValue(),
    ChangedValue("changed value just after a change", follows=True),
)
"""Kinds that share a table; each row is harmed by one of them."""
LARGE_KINDS: tuple[tuple[FaultKind, ...], ...] = (
    ROW_KINDS,
    (LostRow(), LostRow("lost newest row", above=2 * ROWS + 1)),
    ROW_KINDS[1:2],
    ROW_KINDS[2:],
)
"""Kinds of each large table: in two of the tables the numbers of rows differ and cannot balance."""
UNCOMPARED_KIND: FaultKind = ChangedValue(
    "changed value of a type that is left out", compared=False
)
MIRROR_KINDS: tuple[FaultKind, ...] = (DoubledRow(), DeletedRow(), ForeignValue())
"""Kinds of one foreign commit each, in a separate table, because the commit blocks the table."""

DROPPED_KIND: FaultKind = DroppedRecord()
HARMLESS_KINDS: tuple[FaultKind, ...] = (
    RepeatedRecord("record sent twice", late=False),
    RepeatedRecord("late copy of an older record", late=True),
)
"""Kinds that must change no mirror, because the position of a record shows that it is not new."""


def read_payload(message: bytes) -> Any:
    """Return the content of a key or value of a record, with or without its schema around it."""
    read = json.loads(message)
    return read["payload"] if read.keys() == {"schema", "payload"} else read


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
