"""Decodes one Debezium JSON message exactly, and reads keys one by one or as a column.

This module defines what a message means; `batch` gives the same result faster. The kind of a
message follows from its content. The topic name is used only for tombstones and for Debezium's own
heartbeats, whose values contain little or nothing. Debezium replaces special characters in topic
names, so the shard of a tombstone is only a hint.

Key texts are the canonical ones of `pipeline.formats.json_text`, so that two spellings of one key
are equal. Flat keys without escapes are read by patterns, with or without white space. Each other
key is read alone, without its message. A message with a broken key goes to the exact decoder.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.formats import json_text
from pipeline.formats.debezium.connector import Connector, Placeholder, Slices
from pipeline.formats.debezium.mysql import MYSQL, read_table_id
from pipeline.formats.debezium.postgres import POSTGRES
from pipeline.formats.format import Decoded, Tx
from pipeline.formats.json_text import Object, integer_of, object_of, text_of
from pipeline.model import Op, Origin, ShardId

Fields = tuple[tuple[str, str | None], ...]

NAME = r'"[^"\\:\x00-\x1f]+"'
NUMBER = r"(?:0|-?[1-9][0-9]*)"
BARE = rf"(?:{NUMBER}|true|false)"
VALUE = rf'(?:{BARE}|null|"[^"\\\x00-\x1f]*")'
ONE_NUMBER = rf"\A\{{{NAME}:({NUMBER})\}}\z"
FLAT = rf"\A\{{{NAME}:{VALUE}(?:,{NAME}:{VALUE})*\}}\z"
SPACE = r"[ \t\r\n]*"
PAIR = rf"{SPACE}{NAME}{SPACE}:{SPACE}{VALUE}{SPACE}"
FLAT_WITH_SPACE = rf"\A{SPACE}\{{{PAIR}(?:,{PAIR})*\}}{SPACE}\z"
TEXT_OR_SPACE = r'("[^"]*")|[ \t\r\n]+'
LONGEST = json_text.LONGEST_NUMBER  # bytes of a key that cannot hold a number too long
NOTHING = pa.scalar(None, pa.string())
PAYLOAD = b'"payload":{'
BEFORE_PAYLOAD = re.compile(rb'.*"payload"[ \t\r\n]*:[ \t\r\n]*(?=\{)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Key values of a column of keys; ``known`` is False for a broken key."""

    values: pa.StringArray
    known: NDArray[np.bool_]


def read_key(key: bytes | None) -> Fields | None:
    """Return names and texts of the key's fields, unwrapped; None if the key is broken.

    A missing or an empty key gives ``()``.
    """
    if key is None:
        return ()
    if json_text.read_fields(key) is None:
        return None
    found = json_text.read_exactly(key.decode("utf-8"))
    try:
        return None if found is None else _texts(_unwrapped(found))
    except ValueError:
        return None


def write_key(fields: Fields) -> str | None:
    """Return a JSON array of the texts; None without fields."""
    texts = ("null" if text is None else json_text.quote_text(text) for _, text in fields)
    return f"[{','.join(texts)}]" if fields else None


def read_key_column(keys: pa.BinaryArray) -> KeyColumn:
    """Return the values of many keys; null if a key is absent, empty or broken."""
    texts = _texts_or_null(keys)
    found = _filled(_unwrapped_texts(texts), texts, _wrapped)
    known = pc.or_(keys.is_null(), found.is_valid())
    return _with_single(keys, KeyColumn(found, known.to_numpy(zero_copy_only=False)))


def _with_single(keys: pa.BinaryArray, found: KeyColumn) -> KeyColumn:
    """Read each key that no pattern matches, one by one."""
    if found.known.all():
        return found
    fields = [read_key(key) for key in keys.filter(pa.array(~found.known)).to_pylist()]
    known = found.known.copy()
    known[~found.known] = [one is not None for one in fields]
    texts = pa.array([write_key(one or ()) for one in fields], pa.string())
    return KeyColumn(pc.replace_with_mask(found.values, pa.array(~found.known), texts), known)


def _unwrapped(key: Object) -> Object:
    match key.fields:
        case ("schema", _), ("payload", Object() as payload):
            return payload
    return key


def _texts(key: Object) -> Fields:
    return tuple((name, json_text.write_text(value)) for name, value in key.fields)


def _texts_or_null(keys: pa.BinaryArray) -> pa.StringArray:
    """Return the keys as texts; null where one is not UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_or_none(key) for key in keys.to_pylist()], pa.string())


def _text_or_none(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _filled(
    found: pa.StringArray, texts: pa.StringArray, step: Callable[[pa.StringArray], pa.StringArray]
) -> pa.StringArray:
    """Fill what was not *found* by *step*."""
    left = pc.and_(texts.is_valid(), found.is_null())
    if not pc.any(left).as_py():
        return found
    return pc.replace_with_mask(found, left, step(texts.filter(left)))


def _unwrapped_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return values of flat keys without a schema around them; null for others."""
    return _filled(_plain(texts), texts, _spaced)


def _plain(texts: pa.StringArray) -> pa.StringArray:
    """Return values of flat keys without a schema and without white space; null for others."""
    return _filled(_one_number(texts), texts, _flat)


def _spaced(texts: pa.StringArray) -> pa.StringArray:
    """Return values of flat keys with white space between their signs; null for others.

    White space is removed only if the whole key is valid: ``1 2`` must not become ``12``.
    """
    flat = pc.match_substring_regex(texts, FLAT_WITH_SPACE)
    nothing = pa.nulls(len(texts), pa.string())
    if not pc.any(flat).as_py():
        return nothing
    compact = pc.replace_substring_regex(texts.filter(flat), TEXT_OR_SPACE, r"\1")
    return pc.replace_with_mask(nothing, flat, _plain(compact))


def _one_number(texts: pa.StringArray) -> pa.StringArray:
    """Return values of keys of one integer, the most frequent ones; null for others."""
    found = pc.replace_substring_regex(texts, ONE_NUMBER, r'["\1"]')
    changed = pc.and_(pc.starts_with(texts, "{"), pc.starts_with(found, "["))
    return pc.if_else(pc.and_(changed, _short(texts)), found, NOTHING)


def _flat(texts: pa.StringArray) -> pa.StringArray:
    """Return values of keys of plain texts, integers and booleans; null for others.

    In such a key, quotes are only around names and texts, and only a name has a colon behind it. So
    a name with its colon is found nowhere else.
    """
    flat = pc.and_(pc.match_substring_regex(texts, FLAT), _short(texts))
    quoted = pc.replace_substring_regex(texts.filter(flat), f"{NAME}:({BARE})", r'"\1"')
    inner = pc.utf8_slice_codeunits(pc.replace_substring_regex(quoted, f"{NAME}:", ""), 1, -1)
    nothing = pa.nulls(len(texts), pa.string())
    listed = pc.binary_join_element_wise("[", inner, "]", "")
    return pc.replace_with_mask(nothing, flat, listed)


def _wrapped(texts: pa.StringArray) -> pa.StringArray:
    """Return values of keys with their schema around them; null for others.

    A wrapping is the text before the payload. If it is valid with null as payload, it is valid with
    any object. So it is judged once, and the payloads are read as keys of their own.
    """
    judged = cache(_is_wrapping)
    payloads = [_payload(key, judged) for key in texts.cast(pa.binary()).to_pylist()]
    return _unwrapped_texts(pa.array(payloads, pa.binary()).cast(pa.string()))


def _payload(key: bytes | None, judged: Callable[[bytes], bool]) -> bytes | None:
    """Return the payload of a wrapped key, with the white space behind it; None for another key."""
    if key is None:
        return None
    start = key.rfind(PAYLOAD) + len(PAYLOAD) - 1
    if key.endswith(b"}}") and judged(key[:start]):
        return key[start:-1]
    key = key.rstrip(json_text.BLANKS.encode())
    before = BEFORE_PAYLOAD.match(key)
    fits = before is not None and key.endswith(b"}") and judged(before[0])
    return key[before.end() : -1] if before is not None and fits else None


def _is_wrapping(before: bytes) -> bool:
    fields = json_text.read_fields(before + b"null}")
    return fields is not None and [name for name, _ in fields] == ["schema", "payload"]


def _short(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.less_equal(pc.binary_length(texts), LONGEST)


HEARTBEAT_TOPIC = "__debezium-heartbeat"
HEARTBEAT_KEY = "serverName"
ROW_OPS = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ, "t": Op.TRUNCATE}
WITH_AFTER = (Op.CREATE, Op.UPDATE, Op.READ)
TX_OPS = {"BEGIN": Op.BEGIN, "END": Op.END}
LIVE = (None, "", "false")
TOPIC_PARTS = 3  # prefix.database.table
END_OF_TIME = 253_402_300_800_000_000  # microseconds: the year 10000
BLANKS = " \t\r\n"

BAD_KEY = "key is not a JSON object in UTF-8"
BAD_VALUE = "value is not a JSON object in UTF-8, or a field of the envelope is of a wrong kind"
UNKNOWN_KIND = "value is no row, transaction, schema change or heartbeat of Debezium"
NO_ROW = "before or after is no object, or after is missing"

AS_IT_IS = Placeholder()

CONNECTORS = {one.name: one for one in (MYSQL, POSTGRES)}


def connector_of(name: str | None) -> Connector:
    """Return the rules of the connector *name*; those of MySQL for MariaDB, and without a name."""
    return CONNECTORS.get(name or "", MYSQL)


def marker_id(name: str) -> str:
    """Return the transaction id for the *name* in a marker.

    A marker has no source block, and the names of no two connectors have the same form.
    """
    for connector in CONNECTORS.values():
        name = connector.transaction_id(name)
    return name


def decode_message(
    key: bytes | None, value: bytes | None, topic: str, unavailable: Placeholder = AS_IT_IS
) -> Decoded:
    """Decode one message; one that cannot be decoded is ``Op.ERROR``, never an exception."""
    fields = read_key(key)
    if fields is None:
        return Decoded(Op.ERROR, error=BAD_KEY, raw=value)
    texts = write_key(fields)
    if value is None:
        return Decoded(Op.TOMBSTONE, shard_of_topic(topic), texts)
    heartbeat = topic.startswith(HEARTBEAT_TOPIC) or HEARTBEAT_KEY in dict(fields)
    try:
        found = _decode_value(value, unavailable, heartbeat=heartbeat)
    except (ValueError, RecursionError):
        found = Decoded(Op.ERROR, error=BAD_VALUE)
    return replace(found, key_values=texts, raw=None if found.error is None else value)


def shard_of_topic(topic: str) -> str | None:
    """Return the shard that a topic's name suggests; None unless it has three parts."""
    parts = topic.split(".")
    return str(ShardId(parts[1], parts[2])) if len(parts) == TOPIC_PARTS else None


def to_time(micros: int | None, millis: int | None) -> datetime | None:
    """Return the time in microseconds, or from milliseconds; None if it is out of range."""
    if micros is None and millis is not None:
        micros = millis * 1000
    if micros is None or not 0 <= micros < END_OF_TIME:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _decode_value(value: bytes, unavailable: Placeholder, *, heartbeat: bool) -> Decoded:
    fields = json_text.read_fields(value)
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
        return Decoded(Op.HEARTBEAT, at=to_time(None, at))
    return Decoded(Op.ERROR, error=UNKNOWN_KIND)


def _row(name: str, envelope: Slices, unavailable: Placeholder) -> Decoded:
    source = object_of(envelope.get("source")) or {}
    connector = connector_of(text_of(source.get("connector")))
    if name == connector.heartbeat_op:
        return Decoded(Op.HEARTBEAT, at=_source_time(source, envelope))
    op, table = ROW_OPS.get(name), text_of(source.get("table"))
    database = text_of(source.get(connector.database_field))
    if op is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    shard = name_shard(connector, database, table)
    if shard is None:
        missing = not database or not table
        return Decoded(Op.ERROR, error=connector.no_shard if missing else connector.long_name)
    placed = _place(connector, Decoded(op, shard, tx=_tx(envelope)), source, envelope)
    if placed is None:
        return Decoded(Op.ERROR, shard, error=connector.no_position)
    before, after = _image(envelope, "before"), _image(envelope, "after")
    broken = any(image is not None and not image.startswith("{") for image in (before, after))
    if broken or (op in WITH_AFTER and after is None):
        return Decoded(Op.ERROR, shard, error=NO_ROW)
    return connector.complete_row(replace(placed, before=before, after=after), unavailable)


def name_shard(connector: Connector, database: str | None, table: str | None) -> str | None:
    """Return the shard of a row; None if a name is missing, or longer than the database allows."""
    if not database or not table or not (connector.fits(database) and connector.fits(table)):
        return None
    return str(ShardId(database, table))


def _image(envelope: Slices, name: str) -> str | None:
    image = envelope.get(name, "null")
    return None if image == "null" else image


def _tx(envelope: Slices) -> Tx | None:
    block = object_of(envelope.get("transaction")) or {}
    name, total_order = text_of(block.get("id")), integer_of(block.get("total_order"))
    return None if name is None else Tx(name, total_order)


def _transaction(status: str, envelope: Slices, whole: str) -> Decoded:
    at = to_time(None, integer_of(envelope.get("ts_ms")))
    op, name = TX_OPS.get(status), text_of(envelope.get("id"))
    if op is None or name is None:
        return Decoded(Op.ERROR, error=UNKNOWN_KIND)
    return Decoded(op, after=whole, at=at, tx=Tx(marker_id(name)))


def _schema_change(envelope: Slices, whole: str) -> Decoded:
    source = object_of(envelope.get("source")) or {}
    if "file" not in source and object_of(envelope.get("position")) is not None:
        # the connector's own schema history, a topic that may be below its prefix: sent twice
        return Decoded(Op.HEARTBEAT, at=to_time(None, integer_of(envelope.get("ts_ms"))))
    connector = connector_of(text_of(source.get("connector")))
    changed = _changed_shard(envelope, source)
    if changed is not None and not all(map(connector.fits, (changed.database, changed.relation))):
        return Decoded(Op.ERROR, error=connector.long_name)
    shard = None if changed is None else str(changed)
    name = text_of(source.get("gtid"))  # there is no transaction block
    decoded = Decoded(Op.DDL, shard, after=whole, tx=None if name is None else Tx(name))
    placed = _place(connector, decoded, source, envelope)
    return placed or Decoded(Op.ERROR, shard, error=connector.no_position)


def _changed_shard(envelope: Slices, source: Slices) -> ShardId | None:
    """Return the shard of the first table change."""
    table_id = _table_id(envelope)
    named = ShardId(text_of(source.get("db")) or "", text_of(source.get("table")) or "")
    try:
        return None if table_id is None else read_table_id(table_id, named)
    except ValueError:
        return None


def _table_id(envelope: Slices) -> str | None:
    changes = json_text.load_slice(envelope.get("tableChanges", "null"))
    if changes is None or changes == []:
        return None
    if not isinstance(changes, list) or not all(isinstance(one, dict | None) for one in changes):
        msg = "tableChanges is no list of objects"
        raise ValueError(msg)
    name = (changes[0] or {}).get("id")
    return json_text.replace_surrogates(name) if isinstance(name, str) else None


def _place(
    connector: Connector, decoded: Decoded, source: Slices, envelope: Slices
) -> Decoded | None:
    """Add position, time and snapshot of the source block; None if it has no position."""
    position = connector.position(source, decoded.op)
    snapshot = text_of(source.get("snapshot"))
    if position is None:
        return None
    log, pos, row = position
    live = snapshot in LIVE
    return replace(
        decoded,
        at=_source_time(source, envelope),
        log=log,
        pos=pos,
        row=row,
        snapshot=connector.snapshot(source, None if live else snapshot),
        origin=Origin.LIVE if live else Origin.SNAPSHOT,
    )


def _source_time(source: Slices, envelope: Slices) -> datetime | None:
    """Return the finest time in the message; coarser ones are not read."""
    micros = integer_of(source.get("ts_us"))
    if micros is not None:
        return to_time(micros, None)
    millis = integer_of(source.get("ts_ms"))
    return to_time(None, integer_of(envelope.get("ts_ms")) if millis is None else millis)
