"""Creates a table's rows and changes with Arrow, from a row's number and version alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from pipeline.changelog.table import CHANGES, ORDER_TYPE
from pipeline.formats import json_text
from pipeline.model import Op, Order, Origin
from pipeline.schema.model import TableSchema, arrow_type
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import lake_type

SOURCE = "one"
AT = datetime(2026, 1, 1, tzinfo=UTC)
BORN = Order(1, 1, 0)
_WIRES = {"DECIMAL": "string", "DATE": "int", "VARCHAR": "string"}
_SCRAMBLE, _BITS = 0x9E3779B97F4A7C15, 62
Numbers = npt.NDArray[np.int64]

BIG = Column("", "BIGINT")
MONEY = Column("", "DECIMAL", 12, 2)
MOMENT = Column("", "DATETIME", 6)
DAY = Column("", "DATE")
TEXT = Column("", "VARCHAR", 64)


def _named(column: Column, *names: str) -> list[Column]:
    return [replace(column, name=name) for name in names]


NARROW: tuple[Column, ...] = (
    *_named(BIG, "id", "user_id"),
    *_named(MONEY, "total"),
    *_named(MOMENT, "placed"),
    *_named(TEXT, "state"),
)
WIDE: tuple[Column, ...] = (
    *NARROW,
    *_named(BIG, "shop_id", "clerk_id", "points", "weight"),
    *_named(MONEY, "tax", "discount", "freight"),
    *_named(MOMENT, "paid", "sent"),
    *_named(DAY, "due"),
    *_named(TEXT, "street", "city", "note", "coupon", "channel"),
)


@dataclass(frozen=True)  # without slots: the columns are computed once
class Workload:
    """A table of *rows* rows; each round changes *changed* among the newest *window*.

    ``width`` is the number of its columns. With ``text_keys`` the key is a text that does not
    depend on the age of a row, as a UUID.
    """

    width: tuple[Column, ...]
    rows: int
    changed: int
    window: int
    text_keys: bool = False
    shard: str = "shop.orders"

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns; values differ by their numbers."""
        first = replace(TEXT if self.text_keys else BIG, name="id")
        placed = enumerate((first, *self.width[1:]), start=1)
        return tuple(replace(column, position=place) for place, column in placed)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> TableSchema:
        """Return the columns as a schema event describes them."""
        return TableSchema(self.shard, BORN, self.columns, ("id",))

    @property
    def topic(self) -> str:
        """Return the topic of its changes, with one partition."""
        return f"bench.{self.shard}"

    def image(self, at_once: int) -> Iterator[pa.Table]:
        """Yield the table before the first round, by key: its columns, and ``order``."""
        numbers = np.arange(self.rows, dtype=np.int64)
        if self.text_keys:
            numbers = numbers[np.argsort(_scrambled(numbers))]
        for first in range(0, self.rows, at_once):
            part = numbers[first : first + at_once]
            rows = self._values(part, np.zeros(len(part), np.int64))
            yield pa.table({**rows, "order": make_order(1, part)})

    def changes(self, round_: int) -> pa.RecordBatch:
        """Return rows of ``CHANGES`` of one round, which numbers the batch; keys have no order.

        Of ten changed keys one is new, one is deleted, and one was changed twice.
        """
        place = np.random.default_rng(round_).permutation(self.changed)
        known = self.rows - self.window + self._drawn(place, round_)
        number = np.where(place % 10 == 0, self.rows + round_ * self.changed + place, known)
        op = np.where(place % 10 == 0, Op.CREATE, np.where(place % 10 == 1, Op.DELETE, Op.UPDATE))
        times = np.where(place % 10 == 2, 2, 1)
        last = np.append(np.repeat(number, times)[1:] != np.repeat(number, times)[:-1], True)
        keys, ops = np.repeat(number, times), np.repeat(op, times)
        return self._logged(keys, round_ * 2 + last, ops, round_)

    def _drawn(self, place: Numbers, round_: int) -> Numbers:
        """Return distinct positions of changed keys in the window."""
        return (place * (self.window // self.changed) + round_) % self.window

    def _logged(
        self, number: Numbers, version: Numbers, op: npt.NDArray[np.str_], round_: int
    ) -> pa.RecordBatch:
        count = len(number)
        ops = pa.array(op.astype(object), pa.string())
        created, deleted = pc.equal(ops, Op.CREATE), pc.equal(ops, Op.DELETE)
        nothing = pa.scalar(None, pa.string())
        place = np.arange(count, dtype=np.int64)
        return fill_changes(
            count,
            {
                **{"lane": "main", "batch": round_, "source": SOURCE, "topic": self.topic},
                **{"shard": self.shard, "table": self.shard, "op": ops, "key": self._keys(number)},
                "before": pc.if_else(created, nothing, self._json(number, version - 1)),
                "after": pc.if_else(deleted, nothing, self._json(number, version)),
                **{"order": make_order(round_ + 1, place), "origin": int(Origin.LIVE)},
                **{"partition": 0, "offset": place + round_ * 2 * count},
                **{"at": AT, "received": AT, "dt": AT.date()},
            },
        )

    def _values(self, number: Numbers, version: Numbers) -> dict[str, pa.Array]:
        """Return a row's values as the lake has them."""
        return {
            column.name: _value(column, _varied(place, number, version)).cast(arrow_type(column))
            for place, column in enumerate(self.columns)
        }

    def _json(self, number: Numbers, version: Numbers) -> pa.Array:
        """Return rows as Debezium writes them."""
        parts: list[pa.Array | str] = []
        for place, column in enumerate(self.columns):
            sign = "," if place else "{"
            parts += [f'{sign}"{column.name}":', _wired(column, _varied(place, number, version))]
        return pc.binary_join_element_wise(*parts, "}", "")

    def _keys(self, number: Numbers) -> pa.Array:
        texts = _value(self.columns[0], number).cast(pa.string())
        values = pc.binary_join_element_wise('["', texts, '"]', "")
        source, shard = pa.repeat(SOURCE, len(number)), pa.repeat(self.shard, len(number))
        return json_text.key_column(values, source, shard, unique=pa.repeat(False, len(number)))


def fill_changes(rows: int, known: Mapping[str, object]) -> pa.RecordBatch:
    """Return so many *rows* of ``CHANGES``, null but for the columns that are *known*.

    A column has an array of values, or one value for all rows.
    """
    columns = [_filled(known.get(one.name), rows, one.type) for one in CHANGES]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGES)


def _filled(values: object, rows: int, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if isinstance(values, list | np.ndarray):
        return pa.array(values, kind)
    return pa.repeat(pa.scalar(values, kind), rows)


def parsed(columns: Sequence[Column], image: SparkColumn) -> list[SparkColumn]:
    """Return the values of a row from its JSON, parsed by Spark alone."""
    shape = ", ".join(f"{one.name} {_WIRES.get(one.kind, 'bigint')}" for one in columns)
    row = F.from_json(image, shape)
    return [_unwired(column, row[column.name]).alias(column.name) for column in columns]


def _varied(place: int, number: Numbers, version: Numbers) -> Numbers:
    """Return the seed of a value of column *place*: different for each row, version and column."""
    return number * (place + 3) + version if place else number


def _value(column: Column, number: Numbers) -> pa.Array:
    if column.kind == "DECIMAL":
        halves = np.zeros((len(number), 2), np.int64)
        halves[:, 0] = number % 1_000_000 * 100 + 25
        return pa.Array.from_buffers(
            pa.decimal128(column.digits, column.fraction),
            len(number),
            [None, pa.py_buffer(halves)],
        )
    if column.kind == "DATETIME":
        return pa.array(number + 1_700_000_000_000_000).view(pa.timestamp("us"))
    if column.kind == "DATE":
        return pa.array((number % 20_000).astype(np.int32)).view(pa.date32())
    if column.kind == "VARCHAR":
        return pc.utf8_lpad(pa.array(_scrambled(number)).cast(pa.string()), 19, "0")
    return pa.array(number)


def _wired(column: Column, number: Numbers) -> pa.Array:
    """Return a value as Debezium writes it into JSON."""
    value = _value(column, number)
    if column.kind == "DATETIME":
        return value.view(pa.int64()).cast(pa.string())
    if column.kind == "DATE":
        return value.view(pa.int32()).cast(pa.string())
    text = value.cast(pa.string())
    quoted = column.kind in {"DECIMAL", "VARCHAR"}
    return pc.binary_join_element_wise('"', text, '"', "") if quoted else text


def _unwired(column: Column, value: SparkColumn) -> SparkColumn:
    """Return the value that Debezium's JSON means."""
    lake = lake_type(column)
    if column.kind == "DATETIME":
        return F.timestamp_micros(value).cast(lake)
    if column.kind == "DATE":
        return F.date_from_unix_date(value)
    return value.cast(lake)


def _scrambled(number: Numbers) -> Numbers:
    """Return a distinct number for each number, in no order."""
    mixed = number.astype(np.uint64) * np.uint64(_SCRAMBLE) & np.uint64((1 << _BITS) - 1)
    return mixed.astype(np.int64)


def make_order(log: int, pos: Numbers) -> pa.Array:
    """Return orders in file *log* of the source's log."""
    one, none = (pa.repeat(n, len(pos)) for n in (1, 0))
    logs = pa.repeat(log, len(pos))
    return pa.StructArray.from_arrays([one, logs, pa.array(pos), none], fields=list(ORDER_TYPE))
