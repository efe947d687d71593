"""How does one Debezium message in JSON read, without Spark?

The kind of a message is told from what it holds; the topic's name only helps where the value
says nothing (tombstones) or next to nothing (Debezium's own heartbeats).  Debezium replaces odd
letters in topic names, so a tombstone's shard is a hint and nothing more.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.messages import jsonshape, jsontext
from pipeline.messages.format import Decoded, Tx
from pipeline.messages.jsonshape import Shape
from pipeline.messages.jsontext import Object
from pipeline.model import Op, Origin

ENVELOPE: dict[str, Shape] = {
    "op": "string",
    "before": "string",
    "after": "string",
    "source": {
        **dict.fromkeys(("db", "table", "file", "snapshot", "gtid"), "string"),
        **dict.fromkeys(("pos", "row", "ts_ms", "ts_us"), "bigint"),
    },
    "transaction": {"id": "string", "total_order": "bigint"},
    "ts_ms": "bigint",
    "status": "string",
    "id": "string",
    "ddl": "string",
    "tableChanges": [{"id": "string"}],
}
MESSAGE: dict[str, Shape] = {**ENVELOPE, "payload": ENVELOPE}

HEARTBEAT_TOPIC = "__debezium-heartbeat"
HEARTBEAT_KEY = "serverName"
ROW_OPS = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ, "t": Op.TRUNCATE}
WITH_AFTER = (Op.CREATE, Op.UPDATE, Op.READ)
TX_OPS = {"BEGIN": Op.BEGIN, "END": Op.END}
LOG_NUMBER = r"\.([0-9]{1,18})$"  # of binlog.000003
TABLE_ID = r'^"([^"]+)"\."([^"]+)"$'  # of a table change: "shop"."orders"
LIVE = (None, "", "false")
TOPIC_PARTS = 3  # prefix.database.table
END_OF_TIME = 253_402_300_800_000_000  # microseconds: the year 10000

BAD_KEY = "key is not a JSON object in UTF-8"
BAD_VALUE = "value is not a JSON object in UTF-8, or a field of the envelope is of a wrong kind"
UNKNOWN_KIND = "value is no row, transaction, schema change or heartbeat of Debezium"
NO_SHARD = "source.db or source.table is missing"
NO_POSITION = "source.file, source.pos or source.row is missing"
NO_ROW = "before or after is no object, or after is missing"


Envelope = Mapping[str, Any]
Fields = tuple[tuple[str, str | None], ...]


def decode(key: bytes | None, value: bytes | None, topic: str) -> Decoded:
    """Decode one message; one that cannot be decoded is ``Op.ERROR``, never an exception."""
    key_object = _read(key)
    if key is not None and key_object is None:
        return Decoded(Op.ERROR, error=BAD_KEY, raw=value)
    fields = _key_fields(key_object) if key_object is not None else ()
    texts = _key_values(fields)
    if value is None:
        return Decoded(Op.TOMBSTONE, _shard_of_topic(topic), texts)
    heartbeat = topic.startswith(HEARTBEAT_TOPIC) or HEARTBEAT_KEY in dict(fields)
    try:
        found = _decode_value(value, heartbeat=heartbeat)
    except ValueError:
        found = Decoded(Op.ERROR, error=BAD_VALUE)
    return replace(found, key_values=texts, raw=None if found.error is None else value)


def _read(data: bytes | None) -> Object | None:
    """Read the bytes as one JSON object; None if they hold none."""
    try:
        text = (data or b"").decode("utf-8")
    except UnicodeDecodeError:
        return None
    return jsontext.read(text) if text.rstrip(jsontext.BLANKS).endswith("}") else None


def _key_fields(key: Object) -> Fields:
    fields = _texts(key)
    match fields:
        case ("schema", _), ("payload", str(inner)) if inner.startswith("{"):
            payload = jsontext.read(inner)
            return _texts(payload) if payload is not None else ()
    return fields


def _texts(key: Object) -> Fields:
    return tuple((name, jsontext.write(value)) for name, value in key.fields)


def _key_values(fields: Fields) -> str | None:
    texts = ("null" if text is None else jsontext.quote(text) for _, text in fields)
    return f"[{','.join(texts)}]" if fields else None


def _shard_of_topic(topic: str) -> str | None:
    parts = topic.split(".")
    return f"{parts[1]}.{parts[2]}" if len(parts) == TOPIC_PARTS else None


def _decode_value(value: bytes, *, heartbeat: bool) -> Decoded:
    root = _read(value)
    if root is None:
        return Decoded(Op.ERROR, error=BAD_VALUE)
    message = jsonshape.cut(root, MESSAGE)
    envelope = message["payload"] or message
    if envelope["op"] is not None:
        return _row(envelope)
    whole = jsontext.write(root.get("payload")) if message["payload"] else value.decode()
    if envelope["status"] is not None:
        return _transaction(envelope, whole)
    if envelope["ddl"] is not None:
        return _schema_change(envelope, whole)
    if heartbeat and envelope["ts_ms"] is not None:
        return Decoded(Op.HEARTBEAT, at=_at({}, envelope))
    return Decoded(Op.ERROR, error=UNKNOWN_KIND)


def _row(envelope: Envelope) -> Decoded:
    op, source = ROW_OPS.get(envelope["op"]), envelope["source"] or {}
    if op is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    if not source.get("db") or not source.get("table"):
        return Decoded(Op.ERROR, error=NO_SHARD)
    shard = f"{source['db']}.{source['table']}"
    before, after = envelope["before"], envelope["after"]
    if not _placed(source):
        return Decoded(Op.ERROR, shard, error=NO_POSITION)
    if not _is_object(before) or not _is_object(after) or (op in WITH_AFTER and after is None):
        return Decoded(Op.ERROR, shard, error=NO_ROW)
    block = envelope["transaction"] or {}
    tx = Tx(block["id"], block["total_order"]) if block.get("id") is not None else None
    return _place(Decoded(op, shard, before=before, after=after, tx=tx), envelope)


def _transaction(envelope: Envelope, whole: str | None) -> Decoded:
    op = TX_OPS.get(envelope["status"])
    if op is None or envelope["id"] is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    return Decoded(op, after=whole, at=_at({}, envelope), tx=Tx(envelope["id"]))


def _schema_change(envelope: Envelope, whole: str | None) -> Decoded:
    first = (envelope["tableChanges"] or [None])[0] or {}
    found = re.search(TABLE_ID, first.get("id") or "")
    shard = f"{found[1]}.{found[2]}" if found else None
    if not _placed(envelope["source"] or {}):
        return Decoded(Op.ERROR, shard, error=NO_POSITION)
    return _place(Decoded(Op.DDL, shard, after=whole), envelope)


def _place(decoded: Decoded, envelope: Envelope) -> Decoded:
    """Add what the source block tells about the change's place in the log."""
    source = envelope["source"]
    snapshot = source["snapshot"] if source["snapshot"] not in LIVE else None
    return replace(
        decoded,
        at=_at(source, envelope),
        log=_log(source),
        pos=source["pos"],
        row=source["row"],
        snapshot=snapshot,
        origin=Origin.LIVE if snapshot is None else Origin.SNAPSHOT,
        gtid=source["gtid"],
    )


def _placed(source: Envelope) -> bool:
    return None not in (_log(source), source.get("pos"), source.get("row"))


def _log(source: Envelope) -> int | None:
    found = re.search(LOG_NUMBER, source.get("file") or "")
    return int(found[1]) if found else None


def _is_object(row: str | None) -> bool:
    """Whether *row* is an object, or nothing at all."""
    return row is None or row.startswith("{")


def _at(source: Envelope, envelope: Envelope) -> datetime | None:
    """Time the source gives: microseconds if it has them, else milliseconds."""
    micros = source.get("ts_us")
    for millis in (source.get("ts_ms"), envelope["ts_ms"]):
        if micros is None and millis is not None:
            micros = millis * 1000
    if micros is None or not 0 <= micros < END_OF_TIME:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
