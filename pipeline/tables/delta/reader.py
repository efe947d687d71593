"""Reads one version of a mirror for probes, from pruned files and without Spark.

Rows are assigned to shards by `_sluice`. In a table with one shard they are not. So adopted
mirrors without that column can be read, and rows of unknown shards are counted too. Archived
rows are left out, because their source no longer has them.

Answers of the pinned version are cached. Each is repeated up to 20 times without a read, so a
lost data file is noticed only after that.
"""

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa

from pipeline.aggregates import (
    DIGITS,
    AggregatedColumn,
    Moment,
    RangeAggregate,
    TimeSpan,
    parse_aggregate,
)
from pipeline.apply.mirror import ARCHIVED, digest_rewrites
from pipeline.delta.reader import (
    SnapshotReader,
    open_table,
    quote_literal,
    quote_name,
)
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import ORDER_PARTS, Op, Order, Shard, Table
from pipeline.readings import LogKey
from pipeline.row_digest import (
    Bucketing,
    DigestColumn,
    KeyedRow,
    KeyValues,
    RangeDigest,
    name_key,
    sum_columns,
    sum_ids,
)
from pipeline.tables.delta.digest import (
    DIGEST,
    ID,
    bucket_sums,
    digest_sql,
    list_columns,
    list_digests,
    rows_of_buckets,
    sum_digests,
)

META = "_sluice"
OWNER = (f"{quote_name(META)}['source']", f"{quote_name(META)}['shard']")
INTEGERS = ("byte", "short", "integer", "long")
TIMES = {
    "date": "Date32",
    "timestamp_ntz": "Timestamp(Microsecond, None)",
    "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
}
WIDEST = "decimal(38,0)"
RANGES_AT_ONCE = 20
KEYS_AT_ONCE = 100
IDS_AT_ONCE = 5000  # in one statement
FILES_FIRST = 4  # files searched for a maximum at first, then eight times as many
SAID_AGAIN = 20  # times that an answer is repeated without a read; then a lost file is noticed
MOST_ROWS = 1_000  # with one key: one of each shard
KNOWN = 200  # answers of one reader that are cached

Range = tuple[int, int]
T = TypeVar("T")


@dataclass(eq=False)
class Answers:
    """Cached answers about a version, which does not change; each is repeated a few times."""

    _known: dict[Hashable, tuple[Any, int]] = field(default_factory=dict)

    def of(self, asked: Hashable, look: Callable[[], T]) -> T:
        """The cached answer, or the result of *look*."""
        known: tuple[T, int] | None = self._known.get(asked)
        if known is not None and known[1] > 0:
            self._known[asked] = (known[0], known[1] - 1)
            return known[0]
        answer = look()
        if known is not None or len(self._known) < KNOWN:
            self._known[asked] = (answer, SAID_AGAIN)
        return answer


@dataclass(eq=False)
class MirrorReader:
    """One mirror at one version; ``app`` is the transaction id that numbers applied batches."""

    pinned: SnapshotReader
    table: Table
    app: str
    _answers: Answers = field(default_factory=Answers)

    @cached_property
    def id(self) -> str:
        return self.pinned.id

    @property
    def version(self) -> int:
        return self.pinned.version

    @cached_property
    def batch(self) -> int:
        """The batch of its lane through which it is applied; -1 before the first.

        Cached, because the library reads the log for each answer, which takes milliseconds.
        """
        batch = self.pinned.transaction(self.app)
        return -1 if batch is None else batch

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.pinned.columns() if name != META)

    @cached_property
    def rewritten(self) -> str:
        return digest_rewrites(self.pinned.id, self.pinned.table.metadata().configuration)

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        own = self.pinned.columns()
        where = self._kept
        if batch is not None and META in own:
            where = f"{where} AND {quote_name(META)}['batch'] > {int(batch)}"
        read = [one for one in own if columns is None or one in columns or one == META] or [*own]
        names = ", ".join(map(quote_name, read))
        none = True
        for one in self.pinned.batches(f"SELECT {names} FROM t WHERE {where}"):  # noqa: S608
            none = False
            yield one
        if none:
            schema = self.pinned.schema
            yield pa.RecordBatch.from_pylist([], pa.schema([schema.field(one) for one in read]))

    def rows(self) -> int:
        asked = f"SELECT count(*) AS n FROM t WHERE {self._kept}"  # noqa: S608
        return self._answers.of("rows", lambda: int(self.pinned.select(asked)[0]["n"]))

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id of the shard's rows; None if it has no rows.

        Files with the highest bounds are read first: an id found in them is above all ids in the
        others.
        """
        return self._answers.of(("max_id", shard, column), lambda: self._find_max_id(shard, column))

    def _find_max_id(self, shard: Shard, column: str) -> int | None:
        tops = sorted((int(high) for _, high in self.pinned.bounds(column)), reverse=True)
        wanted, kind = FILES_FIRST, self._kind(column)
        while wanted < len(tops):
            most = f"{self.pinned.compared_sql(column)} >= {_literal(tops[wanted], kind)}"
            found = self._highest(shard, column, f" AND {most}")
            if found is not None:
                return found
            wanted *= 8
        return self._highest(shard, column, "")

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        return self._answers.of(
            ("count_ids", shard, column, tuple(ranges)),
            lambda: self._count_ids(shard, column, ranges),
        )

    def _count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        counts: list[int] = []
        for start in range(0, len(ranges), RANGES_AT_ONCE):
            some = [self._inside(column, span) for span in ranges[start : start + RANGES_AT_ONCE]]
            asked = ", ".join(f"count(*) FILTER (WHERE {s}) AS c{i}" for i, s in enumerate(some))
            where = f"{self._of(shard)} AND ({' OR '.join(some)})"
            row = self.pinned.select(f"SELECT {asked} FROM t WHERE {where}")[0]  # noqa: S608
            counts += [int(row[f"c{i}"]) for i in range(len(some))]
        return tuple(counts)

    def tallies(
        self,
        shards: Sequence[Shard],
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> dict[Shard, tuple[RangeAggregate, ...]]:
        if not spans:
            return dict.fromkeys(shards, ())
        kinds = self.pinned.columns()
        kind = kinds.get(column, "nothing")
        values = [_added(one, kinds.get(one.name, "nothing")) for one in fields]
        inside = [
            _between(quote_name(column), *(_moment(one, kind) for one in span)) for span in spans
        ]
        owner = () if len(self.table.shards) == 1 else OWNER
        names = (f"{one} AS o{number}" for number, one in enumerate(owner))
        asked = ", ".join([*_sums(inside, values), *names])
        own = self._of(shards[0]) if len(shards) == 1 else self._kept  # a long OR is slow to plan
        where = f"({own}) AND ({' OR '.join(inside)})"
        group = f" GROUP BY {', '.join(owner)}" if owner else ""
        rows = self.pinned.select(f"SELECT {asked} FROM t WHERE {where}{group}")  # noqa: S608
        known = {Shard(row["o0"], row["o1"]) if owner else shards[0]: row for row in rows}
        return {one: _tallies(known.get(one), len(spans), tuple(fields)) for one in shards}

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        if not ranges:
            return ()
        digest = digest_sql(columns, self.pinned.columns())
        asked = _joined(ranges)
        if len(asked) > RANGES_AT_ONCE:
            asked = [(ranges[0][0], ranges[-1][1])]
        inside = " OR ".join(self._inside(column, span) for span in asked)
        found = self.pinned.batches(
            f"SELECT {quote_name(column)} AS {ID}, {digest} AS {DIGEST} FROM t"  # noqa: S608
            f" WHERE {self._of(shard)} AND ({inside})"
        )
        return sum_digests(found, ranges)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        digest = digest_sql(columns, self.pinned.columns())
        found = self.pinned.batches(
            f"SELECT {quote_name(column)} AS {ID}, {digest} AS {DIGEST} FROM t"  # noqa: S608
            f" WHERE {self._of(shard)} AND {self._inside(column, span)} ORDER BY {ID} LIMIT {limit}"
        )
        return tuple(row for batch in found for row in list_digests(batch))

    def id_digests(
        self,
        shard: Shard,
        column: str,
        ids: Sequence[int],
        columns: Sequence[DigestColumn],
        since: int | None = None,
    ) -> tuple[RangeDigest, ...]:
        """Rows and digests by id; recent files first, and of older ones only those with its row."""
        found: list[tuple[int, int]] = []
        left = set(ids)
        if since is not None and META in self.pinned.columns():
            later = f" AND {quote_name(META)}['batch'] > {int(since)}"
            found = self._digests_among(shard, column, left, columns, later)
            left -= {id_ for id_, _ in found}
            left = self._present_ids(shard, column, left)
        return sum_ids(found + self._digests_among(shard, column, left, columns), ids)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        kinds = self.pinned.columns()
        listed = "".join(f", {digest_sql([one], kinds)} AS d{n}" for n, one in enumerate(columns))
        asked = f"SELECT {quote_name(column)} AS {ID}{listed} FROM t"  # noqa: S608
        found = [list[tuple[int, int]]() for _ in columns]
        for condition in self._among(shard, column, set(ids)):
            for batch in self.pinned.batches(f"{asked} WHERE {condition}"):
                for n, own in enumerate(found):
                    own.extend(list_digests(batch, f"d{n}"))
        return sum_columns(found, ids)

    def _digests_among(
        self,
        shard: Shard,
        column: str,
        ids: Collection[int],
        columns: Sequence[DigestColumn],
        more: str = "",
    ) -> list[tuple[int, int]]:
        digest = digest_sql(columns, self.pinned.columns())
        asked = f"SELECT {quote_name(column)} AS {ID}, {digest} AS {DIGEST} FROM t"  # noqa: S608
        return [
            row
            for condition in self._among(shard, column, ids)
            for batch in self.pinned.batches(f"{asked} WHERE {condition}{more}")
            for row in list_digests(batch)
        ]

    def _present_ids(self, shard: Shard, column: str, ids: Collection[int]) -> set[int]:
        """Those of *ids* that have a row; reads only the columns of the key and the origin."""
        asked = f"SELECT {quote_name(column)} AS {ID} FROM t"  # noqa: S608
        return {
            int(row[ID])
            for condition in self._among(shard, column, ids)
            for row in self.pinned.select(f"{asked} WHERE {condition}")
        }

    def row_orders(self, shard: Shard, column: str, ids: Sequence[int]) -> dict[int, Order]:
        if META not in self.pinned.columns():
            return {}
        order = f"{quote_name(META)}['order']"
        parts = [f"{order}['{part}'] AS p{n}" for n, part in enumerate(ORDER_PARTS)]
        asked = f"SELECT {quote_name(column)} AS {ID}, {', '.join(parts)} FROM t"  # noqa: S608
        found: dict[int, Order] = {}
        for condition in self._among(shard, column, ids):
            for row in self.pinned.select(f"{asked} WHERE {condition}"):
                if row["p0"] is not None:
                    own = Order(*(int(row[f"p{n}"] or 0) for n in range(len(ORDER_PARTS))))
                    found[int(row[ID])] = max(own, found.get(int(row[ID]), own))
        return found

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        return bucket_sums(self._keyed(shard, by, columns), by)

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        found = rows_of_buckets(self._keyed(shard, by, columns), by, chosen)
        return tuple(islice(found, limit))

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        kinds = self.pinned.columns()
        key = digest_sql(by.key, kinds)
        listed = "".join(f", {digest_sql([one], kinds)} AS d{n}" for n, one in enumerate(columns))
        chosen = ", ".join(f"('{one:016x}')" for one in sorted(keys))
        where = f"left(encode({key}, 'hex'), 16) IN (SELECT column1 FROM (VALUES {chosen}))"  # noqa: S608
        found = self.pinned.batches(
            f"SELECT {key} AS {ID}{listed} FROM t WHERE {self._of(shard)} AND {where}"  # noqa: S608
            f" LIMIT {limit}"
        )
        return tuple(row for batch in found for row in list_columns(batch, len(columns)))

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        kinds, every = self.pinned.columns(), [*keys.items()]
        key, digest = digest_sql(by.key, kinds), digest_sql(columns, kinds)
        asked = f"SELECT {key} AS {ID}, {digest} AS d0 FROM t WHERE {self._of(shard)}"  # noqa: S608
        found, names = list[KeyedRow](), [one.name for one in by.key]
        for start in range(0, len(every), KEYS_AT_ONCE):
            some = dict(every[start : start + KEYS_AT_ONCE])
            among = self._any_key(names, [tuple(map(str, values)) for values in some.values()])
            for batch in self.pinned.batches(f"{asked} AND {among}"):
                found += (one for one in list_columns(batch, 1) if one.key in some)
        return tuple(KeyedRow(one.key, one.columns[0], name_key(keys[one.key])) for one in found)

    def _keyed(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> Iterator[pa.RecordBatch]:
        kinds = self.pinned.columns()
        key, digest = digest_sql(by.key, kinds), digest_sql(columns, kinds)
        names = "".join(f", {quote_name(one.name)} AS n{n}" for n, one in enumerate(by.key))
        asked = f"SELECT {key} AS {ID}, {digest} AS {DIGEST}{names} FROM t"  # noqa: S608
        return self.pinned.batches(f"{asked} WHERE {self._of(shard)}")

    def _among(self, shard: Shard, column: str, ids: Collection[int]) -> Iterator[str]:
        """Conditions that together select the rows of *ids*; each has bounds, to skip files.

        The engine joins with VALUES, because it takes seconds to plan a list of thousands of
        literals.
        """
        ordered = sorted(ids)
        for start in range(0, len(ordered), IDS_AT_ONCE):
            some = ordered[start : start + IDS_AT_ONCE]
            bounds = self._inside(column, (some[0], some[-1] + 1))
            decimal = _is_decimal(self._kind(column))
            texts = (f"('{int(id_)}')" if decimal else f"({int(id_)})" for id_ in some)
            value = f"CAST(column1 AS {WIDEST})" if decimal else "column1"
            listed = f"SELECT {value} FROM (VALUES {', '.join(texts)})"  # noqa: S608
            yield f"{self._of(shard)} AND {bounds} AND {quote_name(column)} IN ({listed})"

    def as_of(self, version: int) -> "MirrorReader":
        pinned = open_table(self.pinned.path, version)
        if pinned is None or pinned.id != self.pinned.id:
            raise UnreachableError(f"{self.table.name}: version {version} of its mirror is gone")
        return replace(self, pinned=pinned, _answers=Answers())

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        found = self.pinned.select(
            f"SELECT {quote_name(column)} AS id FROM t WHERE {self._of(shard)}"  # noqa: S608
            f" AND {self._inside(column, span)} ORDER BY id LIMIT {int(limit)}"
        )
        return tuple(int(row["id"]) for row in found)

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        where = f"{self._of(shard)} AND {self._inside(column, span)}"
        return self.pinned.select(f"SELECT * FROM t WHERE {where}")  # noqa: S608

    def rows_with_key(self, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        types = self.pinned.columns()
        each = (
            _is_value(self.pinned.compared_sql(name), name, types.get(name, "nothing"), value)
            for name, value in key.items()
        )
        asked = f"SELECT * FROM t WHERE {' AND '.join(each)} LIMIT {MOST_ROWS}"  # noqa: S608
        return self.pinned.select(asked)

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        """Whether each key has a row, in the order of *keys*.

        Raises:
            ProofError: the table has no key, or one that two systems may write differently.
        """
        asked = [(key.shard, self._values(key)) for key in keys]
        found: set[tuple[Shard, tuple[str, ...]]] = set()
        for shard in sorted({shard for shard, _ in asked}):
            own = [values for of, values in asked if of == shard]
            for start in range(0, len(own), KEYS_AT_ONCE):
                there = self._present(shard, own[start : start + KEYS_AT_ONCE])
                found |= {(shard, values) for values in there}
        return tuple(row in found for row in asked)

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        columns = [quote_name(column) for column in self.pinned.columns() if column != META]
        asked = f"SELECT {', '.join(columns)} FROM t"  # noqa: S608
        batches = [int(high) for _, high in self.pinned.bounds(f"{META}.batch")]
        where = f" WHERE {self._kept}"
        newest = f"{where} AND {quote_name(META)}['batch'] >= {max(batches)}" if batches else where
        bound = f" LIMIT {int(limit)}"
        return self.pinned.select(asked + newest + bound) or self.pinned.select(
            asked + where + bound
        )

    def _highest(self, shard: Shard, column: str, condition: str) -> int | None:
        asked = f"SELECT max({quote_name(column)}) AS id FROM t WHERE {self._of(shard)}"  # noqa: S608
        found = self.pinned.select(asked + condition)[0]["id"]
        return None if found is None else int(found)

    def _kind(self, column: str) -> str:
        return self.pinned.columns().get(column, "nothing")

    def _inside(self, column: str, span: Range) -> str:
        """Condition that an integer of *column* is in the half-open *span*."""
        kind = self._kind(column)
        return _between(self.pinned.compared_sql(column), *(_literal(one, kind) for one in span))

    @property
    def _kept(self) -> str:
        """Condition that excludes archived rows; true if the mirror never had any."""
        if ARCHIVED not in self.pinned.table.metadata().configuration:
            return "true"
        return f"coalesce({quote_name(META)}['op'], '') <> '{Op.DELETE}'"

    def _of(self, shard: Shard) -> str:
        if len(self.table.shards) == 1:
            return self._kept
        source, relation = OWNER
        own = (
            f"{source} = {quote_literal(shard.source)} AND {relation} = {quote_literal(shard.name)}"
        )
        return f"{own} AND {self._kept}"

    def _values(self, key: LogKey) -> tuple[str, ...]:
        texts = json.loads(key.key)
        values = tuple(texts if self.table.unique_across_shards else texts[2:])
        if not values or len(values) != len(self.table.key) or None in values:
            msg = f"{len(values)} key values do not fit {self.table.name} and its {self.table.key}"
            raise ProofError(msg)
        return values

    def _present(self, shard: Shard, rows: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Those of *rows* that exist."""
        asked = ", ".join(
            f"{quote_name(column)} AS k{i}" for i, column in enumerate(self.table.key)
        )
        among = self._any_key(self.table.key, rows)
        found = self.pinned.select(
            f"SELECT DISTINCT {asked} FROM t WHERE {self._of(shard)} AND {among}"  # noqa: S608
        )
        return {tuple(str(row[f"k{i}"]) for i in range(len(self.table.key))) for row in found}

    def _any_key(self, names: Sequence[str], keys: Sequence[tuple[str, ...]]) -> str:
        """Condition that a row has one of *keys*, which are texts of the columns *names*."""
        types = self.pinned.columns()
        columns = [
            (self.pinned.compared_sql(column), column, types.get(column, "nothing"))
            for column in names
        ]
        each = [
            " AND ".join(
                _equals(*column, value) for column, value in zip(columns, key, strict=True)
            )
            for key in keys
        ]
        return f"({' OR '.join(each)})"


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Ascending *ranges* with adjacent ones merged."""
    joined: list[Range] = []
    for low, high in ranges:
        if joined and joined[-1][1] == low:
            joined[-1] = joined[-1][0], high
        else:
            joined.append((low, high))
    return joined


def _between(column: str, first: str, until: str) -> str:
    return f"({column} >= {first} AND {column} < {until})"


def _is_decimal(kind: str) -> bool:
    return kind.startswith("decimal(")


def _literal(value: int, kind: str) -> str:
    """An integer literal for a comparison with a column of that *kind*.

    The engine would read a plain literal beyond 64 bits as a float.
    """
    return f"CAST('{int(value)}' AS {WIDEST})" if _is_decimal(kind) else quote_literal(value)


def _sums(inside: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    """The SELECT expressions of each span: its row count, and the sum of each of *values*."""
    for span, condition in enumerate(inside):
        yield f"count(*) FILTER (WHERE {condition}) AS n{span}"
        for number, value in enumerate(values):
            yield f"sum({value}) FILTER (WHERE {condition}) AS s{span}_{number}"


def _tallies(
    row: Mapping[str, Any] | None, spans: int, fields: tuple[AggregatedColumn, ...]
) -> tuple[RangeAggregate, ...]:
    """Parse the answer of one shard; *row* is None if it has no row in any span."""
    none: dict[str, Any] = {}
    values = row or none
    return tuple(
        parse_aggregate(
            {
                "n": values.get(f"n{span}", 0),
                **{f"s{n}": values.get(f"s{span}_{n}") for n in range(len(fields))},
            },
            fields,
        )
        for span in range(spans)
    )


def _moment(moment: Moment, kind: str) -> str:
    """A literal for a comparison with a column of that *kind*, a Delta type."""
    if kind not in TIMES:
        raise ProofError(f"a column of type {kind} holds no dates or times")
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return f"arrow_cast({quote_literal(moment.isoformat())}, {quote_literal(TIMES[kind])})"


def _added(field: AggregatedColumn, kind: str) -> str:
    """The SQL value that is summed for a field: an exact number, or the digest of a text."""
    if field.text and kind == "string":
        digits = (
            f"(strpos('0123456789abcdef', substr(md5({quote_name(field.name)}), {at}, 1)) - 1)"
            f" * {16 ** (DIGITS - at)}"
            for at in range(1, DIGITS + 1)
        )
        return f"CAST({' + '.join(digits)} AS decimal(38,0))"
    if not field.text and kind in INTEGERS:
        return f"CAST({quote_name(field.name)} AS decimal(38,0))"
    if not field.text and kind.startswith("decimal("):
        scale = kind.removesuffix(")").partition(",")[2]
        return f"CAST({quote_name(field.name)} AS decimal(38,{int(scale)}))"
    raise ProofError(f"{field.name} is of type {kind} in the mirror, which is not added up so")


def _is_value(compared: str, column: str, kind: str, value: Any) -> str:
    """Condition that a column of that *kind* has a *value* of its own type; *compared* is SQL."""
    if kind in TIMES and isinstance(value, date):
        return f"{compared} = {_moment(value, kind)}"
    if kind == "binary" and isinstance(value, bytes):
        return f"{compared} = decode({quote_literal(value.hex())}, 'hex')"
    if kind.startswith("decimal(") and isinstance(value, Decimal):
        return f"{compared} = CAST({quote_literal(f'{value:f}')} AS {kind})"
    if kind == "boolean" and isinstance(value, bool):
        return f"{compared} = {str(value).lower()}"
    return _equals(compared, column, kind, str(value))


def _equals(compared: str, column: str, kind: str, text: str) -> str:
    """Condition on one key column; only for types whose text is the same in every system."""
    if kind in INTEGERS:
        return f"{compared} = {int(text)}"
    if kind == "string":
        return f"{compared} = {quote_literal(text)}"
    if kind.startswith("decimal(") and kind.endswith(",0)"):
        return f"{compared} = CAST({quote_literal(text)} AS {kind})"
    msg = f"key column {column} is of type {kind}, which systems write differently"
    raise ProofError(msg)
