"""Sends the log of a real MySQL into topics as canal or Ctrip's collector does, without output.

A stand-in for tests that do not run canal itself: `python -m demo.canal SETTINGS.json`. Like canal,
it reads a transaction from the log, sends all of it, waits until all is acknowledged, and then
reads the next. It stores its position at most twice a second, so after a kill it sends later
changes again. If another server answers, the stored position means nothing there: it then starts a
minute before the time of the last sent change. It stops at a change that it cannot send. It
supports plain types only.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pymysql
from confluent_kafka import Producer
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

REMEMBER = 0.5  # seconds between two writes of the position
BACK = 60  # seconds before the last sent change, if the position is of another server
EVENTS = (QueryEvent, XidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent)
KINDS = {WriteRowsEvent: "INSERT", UpdateRowsEvent: "UPDATE", DeleteRowsEvent: "DELETE"}
QUIET = ("BEGIN", "COMMIT", "SAVEPOINT", "ROLLBACK", "XA")
START = 4  # position of the first event of a log
SEQUENCES = 10**6  # highest count of messages within a millisecond of a SimpleBinlog's offset
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CollectedLog:
    """Source, target and format of a collected log; ``place`` is the file with the position.

    Only ``databases`` are sent. ``server_id`` is a replica's id that nothing else uses.
    """

    port: int
    kafka: str
    topic: str
    place: str
    databases: tuple[str, ...]
    server_id: int
    form: Literal["canal_json", "simple_binlog"] = "canal_json"
    host: str = "127.0.0.1"
    user: str = "debezium"
    password: str = "debezium"


@dataclass(frozen=True, slots=True)
class Place:
    """A position before which all was sent; ``moment`` and ``count`` are those of the last message.

    It belongs to ``server``, whose clock showed ``at``, in seconds, when the last change was
    logged.
    """

    log: str
    pos: int
    moment: int = 0
    count: int = 0
    server: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class TableTypes:
    """Types as SHOW COLUMNS spells them, by column, and the key's columns in the table's order."""

    types: Mapping[str, str]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """The table changes of one event: kind, and rows before and after, or a statement."""

    kind: str
    database: str
    table: str
    at: int
    rows: Sequence[tuple[Row | None, Row | None]] = ()
    sql: str = ""


@dataclass(eq=False)
class Catalogue:
    """Types of tables as they are now; read again after each statement."""

    log: CollectedLog
    _known: dict[tuple[str, str], TableTypes] = field(default_factory=dict)

    def of(self, database: str, table: str) -> TableTypes:
        """Return the types of one table."""
        if (database, table) not in self._known:
            self._known[database, table] = self._asked(database, table)
        return self._known[database, table]

    def forget(self) -> None:
        """Forget all types, because a statement may have changed them."""
        self._known.clear()

    def _asked(self, database: str, table: str) -> TableTypes:
        link = pymysql.connect(**connection(self.log))
        with link, link.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, column_type, column_key FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (database, table),
            )
            found = cursor.fetchall()
        types = {name: kind for name, kind, _ in found}
        return TableTypes(types, tuple(name for name, _, key in found if key == "PRI"))


@dataclass(eq=False)
class Sending:
    """A producer with one request in flight that waits for all replicas."""

    log: CollectedLog
    producer: Producer = field(init=False)
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the producer; nothing is sent yet."""
        settings = {"bootstrap.servers": self.log.kafka, "acks": "all", "linger.ms": 1}
        settings |= {"max.in.flight.requests.per.connection": 1, "log_level": 0}
        self.producer = Producer(settings)

    def send(self, messages: Sequence[tuple[bytes | None, bytes]]) -> None:
        """Send *messages*, and wait until all have arrived.

        Raises:
            RuntimeError: a message did not arrive.
        """
        for key, value in messages:
            self.producer.produce(self.log.topic, value, key, on_delivery=self._told)
        left = self.producer.flush(120)
        if left or self.failed:
            raise RuntimeError(f"{left} messages left; {self.failed[:3]}")

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))


@dataclass(eq=False)
class LogSender:
    """Continues at the stored position, and sends transaction after transaction."""

    log: CollectedLog
    place: Place
    catalogue: Catalogue = field(init=False)
    sending: Sending = field(init=False)
    _written: float = 0.0

    def __post_init__(self) -> None:
        """Connect on first use."""
        self.catalogue, self.sending = Catalogue(self.log), Sending(self.log)

    def run(self) -> None:
        """Send until the process is ended."""
        stream = BinLogStreamReader(
            connection_settings=connection(self.log),
            server_id=self.log.server_id,
            blocking=True,
            resume_stream=True,
            only_events=list(EVENTS),
            log_file=self.place.log,
            log_pos=self.place.pos,
            skip_to_timestamp=self.place.at if self.place.pos == START else None,
        )
        held: list[LoggedChange] = []
        for event in stream:
            held += self._changes(event)
            statement = isinstance(event, QueryEvent) and not _quiet(event.query)
            if isinstance(event, XidEvent) or statement:
                self.sending.send(list(self._messages(held)))
                held.clear()
                log, pos, at = stream.log_file, stream.log_pos, event.timestamp
                self._remember(replace(self.place, log=log, pos=pos, at=at))

    def _changes(self, event: Any) -> Iterator[LoggedChange]:
        at = event.timestamp * 1000
        if isinstance(event, QueryEvent):
            sql = _text(event.query)
            database, table = named(sql, _text(event.schema))
            if not _quiet(sql) and database in self.log.databases:
                self.catalogue.forget()
                yield LoggedChange(sql.split()[0].upper(), database, table, at, sql=sql)
        elif type(event) in KINDS and event.schema in self.log.databases:
            rows = tuple(_before_and_after(one) for one in event.rows)
            yield LoggedChange(KINDS[type(event)], event.schema, event.table, at, rows)

    def _messages(self, held: Sequence[LoggedChange]) -> Iterator[tuple[bytes | None, bytes]]:
        for number, one in enumerate(held, start=1):
            if self.log.form == "canal_json":
                types = None if one.sql else self.catalogue.of(one.database, one.table)
                yield None, json.dumps(flat(one, types, number), ensure_ascii=False).encode()
                continue
            for before, after in one.rows:
                told = simple(one, before, after, self._next(one.at))
                key = f"{one.database}{one.table}".encode()
                yield key, json.dumps(told, ensure_ascii=False).encode()

    def _next(self, at: int) -> int:
        """Return the offset of a message: a time that never decreases, and a count within it."""
        moment, count = self.place.moment, self.place.count
        moment, count = (moment, count + 1) if at <= moment else (at, 0)
        self.place = replace(self.place, moment=moment, count=count)
        return moment * SEQUENCES + count

    def _remember(self, place: Place) -> None:
        self.place = place
        if time.monotonic() - self._written >= REMEMBER:
            path = Path(self.log.place)
            beside = path.with_suffix(".new")
            beside.write_text(json.dumps(asdict(place)), encoding="utf-8")
            beside.replace(path)
            self._written = time.monotonic()


def flat(change: LoggedChange, table: TableTypes | None, number: int) -> dict[str, Any]:
    """Return a change as a flat message of canal."""
    told: dict[str, Any] = {"database": change.database, "table": change.table, "type": change.kind}
    told |= {"es": change.at, "ts": change.at, "id": number, "isDdl": table is None}
    if table is None:
        return {**told, "sql": change.sql, "data": None, "old": None, "mysqlType": None}
    now = [after if after is not None else before for before, after in change.rows]
    old = None
    if change.kind == "UPDATE":
        pairs = ((before or {}, after or {}) for before, after in change.rows)
        old = [{n: text(v) for n, v in was.items() if v != is_[n]} for was, is_ in pairs]
    return {
        **told,
        "sql": "",
        "data": [{n: text(v) for n, v in (row or {}).items()} for row in now],
        "old": old,
        "mysqlType": dict(table.types),
        "pkNames": list(table.key) or None,
    }


def simple(
    change: LoggedChange, before: Row | None, after: Row | None, offset: int
) -> dict[str, Any]:
    """Return a row change as a message of SimpleBinlog."""
    content = before if after is None else after
    return {
        "binlogOffset": offset,
        "executeTime": change.at,
        "eventType": change.kind,
        "schemaName": change.database,
        "tableName": change.table,
        "source": "BINLOG",
        "version": "1.0",
        "content": {name: text(value) for name, value in (content or {}).items()},
    }


def text(value: Any) -> str | None:
    """Return a value as the server writes it."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def connection(log: CollectedLog) -> dict[str, Any]:
    """Return the settings of a connection to the server."""
    return {"host": log.host, "port": log.port, "user": log.user, "password": log.password}


def beginning(log: CollectedLog) -> Place:
    """Return the stored position; without one, the current end of the log, as canal does.

    For another server than the stored one, it is the beginning of its first log, with a time before
    which changes are skipped.
    """
    path = Path(log.place)
    known = Place(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
    (server,) = _asked(log, "SELECT @@server_uuid")
    if known is not None and known.server == server:
        return known
    if known is not None:
        first, *_ = _asked(log, "SHOW BINARY LOGS")
        return replace(known, log=first, pos=START, server=server, at=known.at - BACK)
    file, pos, *_ = _asked(log, "SHOW MASTER STATUS")
    place = Place(file, pos, server=server)
    path.write_text(json.dumps(asdict(place)), encoding="utf-8")
    return place


def _asked(log: CollectedLog, statement: str) -> tuple[Any, ...]:
    """Return the first row of the answer."""
    link = pymysql.connect(**connection(log))
    with link, link.cursor() as cursor:
        cursor.execute(statement)
        found: tuple[Any, ...] = cursor.fetchone() or ("", START)
    return found


def _before_and_after(row: Mapping[str, Any]) -> tuple[Row | None, Row | None]:
    if "values" in row:
        return row["values"], row["values"]
    return row["before_values"], row["after_values"]


def _quiet(sql: str | bytes) -> bool:
    return _text(sql).upper().startswith(QUIET)


def named(sql: str, database: str) -> tuple[str, str]:
    """Return database and table of a plain statement, judged by its words.

    *database* is that of the session, for a statement that names none.
    """
    words = sql.replace("`", "").replace("(", " ").replace(";", " ").split()
    upper = [word.upper() for word in words]
    at = upper.index("TABLE") + 1 if "TABLE" in upper else len(words)
    left = [word for word in words[at:] if word.upper() not in ("IF", "NOT", "EXISTS")]
    own, _, table = left[0].rpartition(".") if left else ("", "", "")
    return own or database, table


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    own = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    settings = CollectedLog(**{**own, "databases": tuple(own["databases"])})
    LogSender(settings, beginning(settings)).run()
