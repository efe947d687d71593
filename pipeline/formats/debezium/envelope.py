"""How does one Debezium message in JSON read, exactly?

This is what a message means; ``batch`` only says the same sooner.  The kind of a message is told
from what it holds; the topic's name only helps where the value says nothing (tombstones) or next
to nothing (Debezium's own heartbeats).  Debezium replaces odd letters in topic names, so a
tombstone's shard is a hint and nothing more.  Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pipeline.formats import json_text
from pipeline.formats.debezium import keys, postgres
from pipeline.formats.debezium.postgres import Placeholder
from pipeline.formats.format import AROUND, INCREMENTAL, Decoded, Tx
from pipeline.formats.json_text import integer_of, object_of, text_of
from pipeline.model import Op, Origin, ShardId

HEARTBEAT_TOPIC = "__debezium-heartbeat"
HEARTBEAT_KEY = "serverName"
ROW_OPS = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ, "t": Op.TRUNCATE}
WITH_AFTER = (Op.CREATE, Op.UPDATE, Op.READ)
TX_OPS = {"BEGIN": Op.BEGIN, "END": Op.END}
LOG_NUMBER = re.compile(r"\.([0-9]{1,18})\Z")  # of binlog.000003
QUOTED = r'"((?:[^"]|"")+)"'
TABLE_ID = re.compile(rf"{QUOTED}\.{QUOTED}")  # of a table change: "shop"."orders"
LIVE = (None, "", "false")
NO_SERVER = 2**32  # ids of MySQL servers are below
TOPIC_PARTS = 3  # prefix.database.table
END_OF_TIME = 253_402_300_800_000_000  # microseconds: the year 10000
BLANKS = " \t\r\n"

BAD_KEY = "key is not a JSON object in UTF-8"
BAD_VALUE = "value is not a JSON object in UTF-8, or a field of the envelope is of a wrong kind"
UNKNOWN_KIND = "value is no row, transaction, schema change or heartbeat of Debezium"
NO_SHARD = "source.db or source.table is missing"
NO_SCHEMA = "source.schema or source.table is missing"
NO_POSITION = "source.file, source.pos or source.row is missing"
NO_PLACE = "source.lsn or source.sequence is missing, or of a wrong kind"
NO_ROW = "before or after is no object, or after is missing"

AS_IT_IS = Placeholder()

Slices = Mapping[str, str]  # an object's values as they were sent, by name


def decode(
    key: bytes | None, value: bytes | None, topic: str, unavailable: Placeholder = AS_IT_IS
) -> Decoded:
    """Decode one message; one that cannot be decoded is ``Op.ERROR``, never an exception."""
    fields = keys.read(key)
    if fields is None:
        return Decoded(Op.ERROR, error=BAD_KEY, raw=value)
    texts = keys.values(fields)
    if value is None:
        return Decoded(Op.TOMBSTONE, shard_of_topic(topic), texts)
    heartbeat = topic.startswith(HEARTBEAT_TOPIC) or HEARTBEAT_KEY in dict(fields)
    try:
        found = _decode_value(value, unavailable, heartbeat=heartbeat)
    except (ValueError, RecursionError):
        found = Decoded(Op.ERROR, error=BAD_VALUE)
    return replace(found, key_values=texts, raw=None if found.error is None else value)


def shard_of_topic(topic: str) -> str | None:
    """Shard that a topic's name hints at; None if it has other than three parts."""
    parts = topic.split(".")
    return str(ShardId(parts[1], parts[2])) if len(parts) == TOPIC_PARTS else None


def log_number(file: str | None) -> int | None:
    """Number of a log's file; None without one."""
    found = LOG_NUMBER.search(file or "")
    return int(found[1]) if found else None


def instant(micros: int | None, millis: int | None) -> datetime | None:
    """Time in microseconds if there is one, else in milliseconds; None if in no calendar."""
    if micros is None and millis is not None:
        micros = millis * 1000
    if micros is None or not 0 <= micros < END_OF_TIME:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def is_signalled(server: int | None) -> bool:
    """Whether MySQL rows of a snapshot were read because a signal asked for that.

    Measured on 3.5: a snapshot of all tables tells 0 as its server's id, also where the connector
    had read that server before; one that a signal asks for tells the id that is in the log.
    """
    return server is not None and 0 < server < NO_SERVER


def _decode_value(value: bytes, unavailable: Placeholder, *, heartbeat: bool) -> Decoded:
    fields = json_text.read(value)
    if fields is None:
        return Decoded(Op.ERROR, error=BAD_VALUE)
    message = dict(fields)
    payload = object_of(message.get("payload"))
    envelope = message if payload is None else payload
    whole = value.decode("utf-8").strip(BLANKS) if payload is None else message["payload"]
    if (op := text_of(envelope.get("op"))) is not None:
        return _row(op, envelope, unavailable)
    if (status := text_of(envelope.get("status"))) is not None:
        return _transaction(status, envelope, whole)
    if text_of(envelope.get("ddl")) is not None:
        return _schema_change(envelope, whole)
    at = integer_of(envelope.get("ts_ms"))
    if heartbeat and at is not None:
        return Decoded(Op.HEARTBEAT, at=instant(None, at))
    return Decoded(Op.ERROR, error=UNKNOWN_KIND)


def _row(name: str, envelope: Slices, unavailable: Placeholder) -> Decoded:
    source = object_of(envelope.get("source")) or {}
    is_postgres = postgres.is_postgres(source)
    if is_postgres and name == postgres.MESSAGE:
        return Decoded(Op.HEARTBEAT, at=_at(source, envelope))
    op, table = ROW_OPS.get(name), text_of(source.get("table"))
    database = text_of(source.get("schema" if is_postgres else "db"))
    if op is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    if not database or not table:
        return Decoded(Op.ERROR, error=NO_SCHEMA if is_postgres else NO_SHARD)
    shard = str(ShardId(database, table))
    placed = _place(Decoded(op, shard, tx=_tx(envelope)), source, envelope)
    if placed is None:
        return Decoded(Op.ERROR, shard, error=NO_PLACE if is_postgres else NO_POSITION)
    before, after = _image(envelope, "before"), _image(envelope, "after")
    broken = any(image is not None and not image.startswith("{") for image in (before, after))
    if broken or (op in WITH_AFTER and after is None):
        return Decoded(Op.ERROR, shard, error=NO_ROW)
    whole = replace(placed, before=before, after=after)
    return _of_postgres(whole, unavailable) if is_postgres else whole


def _of_postgres(row: Decoded, unavailable: Placeholder) -> Decoded:
    """The row without placeholders, in the transaction that its beginning names."""
    tx = row.tx and Tx(postgres.tx_id(row.tx.id), row.tx.total_order)
    partial = unavailable.left_out(row.after, row.before) if row.after is not None else None
    if partial is None:
        return replace(row, tx=tx)
    names, left_out = partial.names, partial.left_out
    return replace(row, tx=tx, after=partial.text, changed=names, left_out=left_out)


def _image(envelope: Slices, name: str) -> str | None:
    image = envelope.get(name, "null")
    return None if image == "null" else image


def _tx(envelope: Slices) -> Tx | None:
    block = object_of(envelope.get("transaction")) or {}
    name, total_order = text_of(block.get("id")), integer_of(block.get("total_order"))
    return None if name is None else Tx(name, total_order)


def _transaction(status: str, envelope: Slices, whole: str) -> Decoded:
    at = instant(None, integer_of(envelope.get("ts_ms")))
    op, name = TX_OPS.get(status), text_of(envelope.get("id"))
    if op is None or name is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    return Decoded(op, after=whole, at=at, tx=Tx(postgres.tx_id(name)))


def _schema_change(envelope: Slices, whole: str) -> Decoded:
    source = object_of(envelope.get("source")) or {}
    if "file" not in source and object_of(envelope.get("position")) is not None:
        # the connector's own schema history, a topic that may lie below its prefix: told twice
        return Decoded(Op.HEARTBEAT, at=instant(None, integer_of(envelope.get("ts_ms"))))
    shard = _changed_shard(envelope, source)
    name = text_of(source.get("gtid"))  # no block tells of it
    told = Decoded(Op.DDL, shard, after=whole, tx=None if name is None else Tx(name))
    placed = _place(told, source, envelope)
    return placed or Decoded(Op.ERROR, shard, error=NO_POSITION)


def _changed_shard(envelope: Slices, source: Slices) -> str | None:
    """Shard of the first table change.

    Debezium leaves a name that begins or ends with a quote as it is, so such an id can be read in
    two ways; the source block's names are believed where they give the same id.
    """
    table_id = _table_id(envelope)
    told = ShardId(text_of(source.get("db")) or "", text_of(source.get("table")) or "")
    if table_id == f"{_quoted(told.database)}.{_quoted(told.relation)}":
        return str(told)
    found = TABLE_ID.fullmatch(table_id or "")
    return str(ShardId(*(name.replace('""', '"') for name in found.groups()))) if found else None


def _table_id(envelope: Slices) -> str | None:
    changes = json_text.load(envelope.get("tableChanges", "null"))
    if changes is None or changes == []:
        return None
    if not isinstance(changes, list) or not all(isinstance(one, dict | None) for one in changes):
        msg = "tableChanges is no list of objects"
        raise ValueError(msg)
    name = (changes[0] or {}).get("id")
    return json_text.whole(name) if isinstance(name, str) else None


def _quoted(name: str) -> str:
    """Quote a name as Debezium's ``TableId.toDoubleQuotedString`` does."""
    if name.startswith('"') or name.endswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'


def _place(decoded: Decoded, source: Slices, envelope: Slices) -> Decoded | None:
    """Add what the source block tells about the change's place in the log; None if it has none."""
    its = postgres.is_postgres(source)
    place = postgres.place(source, decoded.op) if its else _in_file(source)
    snapshot = text_of(source.get("snapshot"))
    if place is None:
        return None
    log, pos, row = place
    if snapshot in LIVE:
        snapshot = AROUND if its and postgres.is_first(source) else None
        origin = Origin.LIVE
    else:
        server = integer_of(source.get("server_id"))
        signalled = postgres.is_signalled(source) if its else is_signalled(server)
        snapshot = INCREMENTAL if signalled else snapshot
        origin = Origin.SNAPSHOT
    return replace(
        decoded,
        at=_at(source, envelope),
        log=log,
        pos=pos,
        row=row,
        snapshot=snapshot,
        origin=origin,
    )


def _in_file(source: Slices) -> tuple[int, int, int] | None:
    log = log_number(text_of(source.get("file")))
    pos, row = integer_of(source.get("pos")), integer_of(source.get("row"))
    return None if log is None or pos is None or row is None else (log, pos, row)


def _at(source: Slices, envelope: Slices) -> datetime | None:
    """The finest time that is told; of the others nothing is asked."""
    micros = integer_of(source.get("ts_us"))
    if micros is not None:
        return instant(micros, None)
    millis = integer_of(source.get("ts_ms"))
    return instant(None, integer_of(envelope.get("ts_ms")) if millis is None else millis)
