"""What sends DBEvents from a real MySQL's binlog, as a team of Uber's would: for tests.

It takes whole transactions from the log, sends them to a topic a table, waits until all of them are
acknowledged, and only then notes how far it is: a promise of batches.  Killed in between, it sends
the last batch again; asked to end, it ends between two.  A row whose ``note`` is `ODD` it cannot
conform: that one goes out with its error.  It is a process: its settings are a JSON text.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Producer
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.pipeline.formats.avro_writer import Schema, message, record
from tests.pipeline.formats.dbevents_writer import METADATA

ODD = "odd"
MOST = 200  # transactions of a batch
PAUSE = 0.25  # seconds; each look at the log is a new replica of MySQL
ROWS, POSITIONS = 12, 32  # bits of a version: row of an event, its place in a file of the log
COLUMNS: Mapping[str, Mapping[str, Schema]] = {
    "rides.trips": {
        "id": "long",
        "rider": ["null", "string"],
        "fare": ["null", "double"],
        "note": ["null", "string"],
        "photo": ["null", "bytes"],
    },
    "rides.drivers": {"id": "long", "name": ["null", "string"], "trips": ["null", "long"]},
    "sluice.heartbeat": {"source": "string", "n": "long"},
}
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the log; ``changed`` are the columns of an update that are others now."""

    table: str
    row: Row
    version: int
    at: int
    changed: tuple[str, ...] | None = None
    deleted: bool = False


@dataclass(eq=False)
class Sender:
    """Reads on from where ``state`` says that all was acknowledged.

    ``added`` are columns by table beside `COLUMNS`.
    """

    mysql: Mapping[str, Any]
    kafka: str
    registry: str
    state: Path
    prefix: str
    added: Mapping[str, Mapping[str, Schema]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Until it is asked to end, or killed."""
        self.numbers = {table: self._registered(table) for table in COLUMNS}
        producer = Producer({"bootstrap.servers": self.kafka, "acks": "all", "linger.ms": 1})
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
        while not ended:
            file, place = json.loads(self.state.read_text(encoding="utf-8"))
            changes, end = self._taken(file, place)
            for one in changes:
                key, topic = str(_key(one)), f"{self.prefix}.{one.table}"
                producer.produce(topic, self._written(one), key.encode())
                producer.poll(0)
            if producer.flush(60):
                raise SystemExit("not all of it was acknowledged")
            if end == (file, place):
                time.sleep(PAUSE)
            self._note(end)

    def _note(self, end: tuple[str, int]) -> None:
        made = self.state.with_suffix(".new")
        made.write_text(json.dumps(end), encoding="utf-8")
        made.replace(self.state)

    def _taken(self, file: str, place: int) -> tuple[list[Change], tuple[str, int]]:
        """Whole transactions from there on, and where the last of them ends."""
        changes, whole, end, done = list[Change](), list[Change](), (file, place), 0
        stream = BinLogStreamReader(
            dict(self.mysql), 4711, resume_stream=True, log_file=file, log_pos=place,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, XidEvent, RotateEvent],
        )  # fmt: skip
        try:
            for event in stream:
                if isinstance(event, RotateEvent):
                    continue
                if isinstance(event, XidEvent):
                    whole += changes
                    changes, done = [], done + 1
                    end = (stream.log_file, event.packet.log_pos)
                    if done >= MOST:
                        break
                else:
                    changes += self._changes(event, stream.log_file)
        finally:
            stream.close()
        return whole, end

    def _changes(self, event: Any, file: str) -> Iterator[Change]:
        table, at = f"{event.schema}.{event.table}", int(event.timestamp) * 1000
        if table not in COLUMNS:
            return
        for number, one in enumerate(event.rows):
            version = version_of(file, event.packet.log_pos, number)
            if isinstance(event, UpdateRowsEvent):
                before, after = one["before_values"], one["after_values"]
                changed = tuple(
                    name for name in self._columns(table) if before.get(name) != after.get(name)
                )
                whole = table == "sluice.heartbeat"
                yield Change(table, after, version, at, None if whole else changed)
            else:
                deleted = isinstance(event, DeleteRowsEvent)
                yield Change(table, one["values"], version, at, deleted=deleted)

    def _registered(self, table: str) -> int:
        url = f"{self.registry}/subjects/{self.prefix}.{table}-value/versions"
        answer = httpx.post(url, json={"schema": json.dumps(self._schema(table))}, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def _written(self, one: Change) -> bytes:
        kinds = self._columns(one.table)
        values = {n: _avro(kind, one.row.get(n)) for n, kind in kinds.items()}
        told = {**values, "hadoop_metadata": _metadata(one)}
        return message(self.numbers[one.table], self._schema(one.table), told)

    def _columns(self, table: str) -> Mapping[str, Schema]:
        return {**COLUMNS[table], **self.added.get(table, {})}

    def _schema(self, table: str) -> Schema:
        return schema(table, self.added.get(table, {}))


def schema(table: str, added: Mapping[str, Schema] | None = None) -> Schema:
    """That of its events, with columns that were *added*."""
    columns = {**COLUMNS[table], **(added or {})}
    return record(table.replace(".", "_"), **columns, hadoop_metadata=METADATA)


def version_of(file: str, place: int, row: int) -> int:
    """A reference key: a place in the log as one number, which rises."""
    number = int(file.rpartition(".")[2])
    return (number << POSITIONS | place) << ROWS | row


def _key(one: Change) -> Any:
    return one.row.get("id", one.row.get("source"))


def _metadata(one: Change) -> dict[str, Any]:
    odd = None if one.row.get("note") != ODD else "the rider's note is odd"
    named = [
        {"name": "c", "ref_key": one.version, "hadoop_changelog_fields": list(one.changed or ())}
    ]
    return {
        "row_key": str(_key(one)),
        "ref_key": one.version,
        "changelog_columns": (1, named) if one.changed else (0, None),
        "source": "MySQL",
        "timestamp": one.at,
        "is_deleted": one.deleted,
        "error_exception": (0, None) if odd is None else (1, odd),
        "error_source_data": (0, None),
        "force_update": False,
        "data_center": "dca1",
    }


def _avro(kind: Schema, value: Any) -> Any:
    if not isinstance(kind, list):
        return value
    return (0, None) if value is None else (1, value)


def main(words: Sequence[str]) -> None:
    """Send as the settings in the first word say."""
    told = json.loads(words[0])
    Sender(**{**told, "state": Path(told["state"])}).run()


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    main(sys.argv[1:])
