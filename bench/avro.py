"""Measures decoding of Avro, or of JSON with its schema, against bare JSON of the same rows.

    python -m bench.avro --rows 20000 --rounds 5

All decode the same changes of one table, in batches of 10,000, as landing reads them. Then batches
get smaller, down to one row: this shows the cost of a schema if a batch has many tables. Contenders
alternate, and only the CPU time of this process counts.
"""

import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import click
import msgspec
import pyarrow as pa

from bench.kit.rounds import under_load
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import RAW
from pipeline.settings import RegistrySettings

Row = dict[str, object]
WANTED = 0.5
SIZES = ((10_000, 1), (1_000, 1), (10, 50), (1, 100))
"""Messages of a batch, and from how many rows one batch is read."""
TEXT = ["null", "string"]
COLUMNS = (("id", "long"), ("name", TEXT), ("amount", TEXT), ("note", TEXT), ("at", "long"))
PLACE = (("db", "string"), ("table", "string"), ("file", "string"), ("pos", "long"), ("row", "int"))
TOLD = (("version", "string"), ("connector", "string"), ("name", "string"), ("ts_ms", "long"))
FINE = (("ts_us", "long"), ("ts_ns", "long"), ("server_id", "long"), ("snapshot", "string"))
SOURCE = (*TOLD, *PLACE, *FINE)
CONNECT = {"long": "int64", "int": "int32", "string": "string"}


def _record(name: str, fields: Sequence[tuple[str, object]]) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


KEY = _record("Key", (("id", "long"),))
ENVELOPE = _record(
    "Envelope",
    (
        ("before", ["null", _record("Value", COLUMNS)]),
        ("after", ["null", "Value"]),
        ("source", _record("Source", SOURCE)),
        ("op", "string"),
        ("ts_ms", ["null", "long"]),
    ),
)


@click.command()
@click.option("--rows", default=20_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, rounds: int) -> None:
    """Print the pace of each, and their ratios."""
    texts = {1: msgspec.json.encode(KEY).decode(), 2: msgspec.json.encode(ENVELOPE).decode()}
    avro, json = DebeziumAvro(RegistrySettings("http://none")), DebeziumJson()
    plainly = partial(json.decode, schemas={})
    ways = (
        ("JSON", plainly, _json),
        ("Avro", partial(avro.decode, schemas=texts), _avro),
        ("JSON of Postgres", plainly, _postgres),
        ("with its schema", plainly, _wrapped),
    )
    for size, few in SIZES:
        count = max(size, rows // few)
        batches = {name: _batches(write, size, count) for name, _, write in ways}
        spent: dict[str, list[float]] = {name: [] for name in batches}
        for _ in range(rounds):
            for name, decode, _ in ways:
                spent[name].append(_spent(decode, batches[name], count))
        told = {name: median(all_) for name, all_ in spent.items()}
        each = ", ".join(f"{name} {one:.1f}" for name, one in told.items())
        plain, packed, bare, wrapped = told.values()
        click.echo(f"batches of {size}: us a row: {each}; {under_load()}")
        click.echo(f"  Avro's pace is {plain / packed:.2f} of JSON's (wanted: {WANTED})")
        click.echo(f"  JSON's with its schema is {bare / wrapped:.2f} of that without")


def _spent(
    decode: Callable[[pa.RecordBatch], object], batches: Sequence[pa.RecordBatch], count: int
) -> float:
    begun = time.process_time()
    for batch in batches:
        decode(batch)
    return (time.process_time() - begun) / count * 1e6


def _batches(
    write: Callable[[int], tuple[bytes, bytes]], size: int, count: int
) -> list[pa.RecordBatch]:
    made = []
    for first in range(0, count, size):
        keys, values = zip(*(write(n) for n in range(first, first + size)), strict=True)
        told = {"topic": "shop.shop.orders", "partition": 0}
        columns = [keys, values, *([one] * size for one in told.values()), range(size)]
        arrays = [pa.array(one, field.type) for one, field in zip(columns, RAW, strict=True)]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=RAW))
    return made


def _values(number: int) -> tuple[Row, Row]:
    note = f"some words of what a person may have written about order {number}"
    row = {
        "id": number,
        "name": f"name {number}",
        "amount": "12.50",
        "note": note,
        "at": 17 * 10**14,
    }
    source: Row = dict.fromkeys((name for name, _ in SOURCE), "")
    source |= {"connector": "mysql", "db": "shop"}
    source |= {"version": "3.5.0.Final", "name": "shop", "table": "orders", "file": "binlog.000003"}
    numbers: Row = {"pos": 1000 + number, "row": 0, "server_id": 1, "ts_ms": 17 * 10**11}
    return row, source | numbers | {"ts_us": 17 * 10**14, "ts_ns": 17 * 10**17, "snapshot": "false"}


def _json(number: int) -> tuple[bytes, bytes]:
    row, source = _values(number)
    told = {"before": row, "after": row, "source": source, "op": "u", "ts_ms": 17 * 10**11}
    return msgspec.json.encode({"id": number}), msgspec.json.encode(told)


def _postgres(number: int) -> tuple[bytes, bytes]:
    key, told = _told(number)
    return msgspec.json.encode(key), msgspec.json.encode(told)


def _wrapped(number: int) -> tuple[bytes, bytes]:
    key, told = _told(number)
    written = ((KEY_SCHEMA, key), (ENVELOPE_SCHEMA, told))
    one, other = (msgspec.json.encode({"schema": s, "payload": p}) for s, p in written)
    return one, other


def _told(number: int) -> tuple[Row, Row]:
    row, source = _values(number)
    source |= {"connector": "postgresql", "schema": "shop", "lsn": 1000 + number, "xmin": None}
    source |= {"sequence": f'["{900 + number}","{1000 + number}"]', "txId": number}
    told: Row = {"before": None, "after": row, "source": source, "op": "u", "ts_ms": 17 * 10**11}
    return {"id": number}, told


def _struct(name: str, fields: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a schema as Connect writes it."""
    return {
        "type": "struct",
        "fields": [_field(one, kind) for one, kind in fields],
        "optional": True,
        "name": f"shop.shop.orders.{name}",
        "field": name,
    }


def _field(name: str, kind: object) -> dict[str, object]:
    parameters = {f"__debezium.source.column.{one}": name for one in ("name", "type", "length")}
    sent = CONNECT.get(str(kind), "string")
    return {"type": sent, "optional": True, "field": name, "parameters": parameters}


KEY_SCHEMA = _struct("Key", (("id", "long"),))
_IMAGES = [_struct(name, COLUMNS) for name in ("before", "after")]
_REST = [_struct("source", SOURCE), _field("op", "string"), _field("ts_ms", "long")]
ENVELOPE_SCHEMA = {**_struct("Envelope", ()), "fields": [*_IMAGES, *_REST]}


def _avro(number: int) -> tuple[bytes, bytes]:
    row, source = _values(number)
    image = b"\x02" + _fields(COLUMNS, row)
    rest = _fields(SOURCE, source) + _one("string", "u") + b"\x02" + _one("long", 17 * 10**11)
    return _framed(1, _one("long", number)), _framed(2, image + image + rest)


def _framed(schema: int, body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema) + body


def _fields(fields: Sequence[tuple[str, object]], values: dict[str, object]) -> bytes:
    return b"".join(_one(kind, values[name]) for name, kind in fields)


def _one(kind: object, value: object) -> bytes:
    if isinstance(kind, list):
        return b"\x02" + _one("string", value)
    if kind == "string":
        text = str(value).encode()
        return _one("long", len(text)) + text
    left, out = int(str(value)) << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


if __name__ == "__main__":
    main()
