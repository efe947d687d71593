"""Computes the digests of `pipeline.row_digest` over a Delta table, without Spark.

The query engine of `deltalake` renders the texts and their MD5; the sums are made here, from
16 bytes a row.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.delta.reader import quote_name
from pipeline.errors import ProofError
from pipeline.row_digest import (
    DAY,
    END_DAY,
    FIRST_DAY,
    MODULUS,
    NULL,
    UNDEFINED,
    UNPROVEN,
    Bucketing,
    DigestColumn,
    Form,
    KeyedRow,
    RangeDigest,
    name_key,
)

INTEGERS = frozenset({"byte", "short", "integer", "long"})
KINDS = {
    Form.BOOLEAN: frozenset({"boolean"}),
    Form.INTEGER: INTEGERS,
    Form.DATE: frozenset({"date"}),
    Form.MOMENT: frozenset({"timestamp", "timestamp_ntz"}),
    Form.ZERO_DATE: frozenset({"date"}),
    Form.ZERO_MOMENT: frozenset({"timestamp", "timestamp_ntz"}),
    Form.TEXT: frozenset({"string"}),
    Form.LATIN: frozenset({"string"}),
    Form.BYTES: frozenset({"binary"}),
    Form.PADDED: frozenset({"binary"}),
}
ID, DIGEST = "id", "digest"
LARGEST = 2**63 - 1


def fits_form(form: Form, kind: str) -> bool:
    """Whether values of a Delta column of type *kind* can be written in *form*."""
    decimal = kind.startswith("decimal(")
    if form is Form.DECIMAL:
        return decimal
    return kind in KINDS[form] or (form is Form.INTEGER and decimal and kind.endswith(",0)"))


def digest_sql(columns: Sequence[DigestColumn], kinds: Mapping[str, str]) -> str:
    """The SQL for the MD5 of a row's text, as 16 bytes; *kinds* are Delta's types by name.

    Raises:
        ProofError: the table has no such column, or its type does not fit the form.
    """
    for one in columns:
        if one.name not in kinds:
            raise ProofError(f"the mirror has no column {one.name}")
        if not fits_form(one.form, kinds[one.name]):
            raise ProofError(f"{one.name} is a {kinds[one.name]} in the mirror, not {one.form}")
    texts = ", ".join(_text_sql(one) for one in columns)
    return f"digest(concat_ws('|', {texts}), 'md5')"


def _text_sql(column: DigestColumn) -> str:
    name, form = quote_name(column.name), column.form
    if form.base is Form.TEXT:
        length, text = f"coalesce({_text(f'character_length({name})')}, '{NULL}')", name
        if form is Form.LATIN:
            odd = f"regexp_like({name}, '[{UNDEFINED}]')"
            length, text = (
                f"CASE WHEN {odd} THEN '{UNPROVEN}' ELSE {length} END",
                f"CASE WHEN {odd} THEN '' ELSE {name} END",
            )
        return f"{length}, coalesce({text}, '')"
    if form in {Form.BYTES, Form.PADDED}:
        data = name
        if form is Form.PADDED:
            data = f"decode(regexp_replace(encode({name}, 'hex'), '(00)+$', ''), 'hex')"
        value = f"encode(digest({data}, 'md5'), 'hex')"
    elif form is Form.BOOLEAN:
        value = _text(f"CAST({name} AS int)")
    elif form in {Form.DATE, Form.ZERO_DATE}:
        value = _proven(f"arrow_cast({name}, 'Int32')", FIRST_DAY, END_DAY)
    elif form in {Form.MOMENT, Form.ZERO_MOMENT}:
        value = _proven(f"arrow_cast({name}, 'Int64')", FIRST_DAY * DAY, END_DAY * DAY)
    else:
        value = _text(name)
    if form in {Form.ZERO_DATE, Form.ZERO_MOMENT}:
        value = f"nullif({value}, '0')"
    return f"coalesce({value}, '{NULL}')"


def _text(value: str) -> str:
    return f"CAST({value} AS varchar)"


def _proven(value: str, first: int, end: int) -> str:
    inside = f"{value} >= {first} AND {value} < {end}"
    return f"CASE WHEN {inside} THEN {_text(value)} WHEN {value} IS NOT NULL THEN '{UNPROVEN}' END"


def sum_digests(
    batches: Iterable[pa.RecordBatch], ranges: Sequence[tuple[int, int]]
) -> tuple[RangeDigest, ...]:
    """Digests by range; *batches* have the columns ``id`` and ``digest``, in any order.

    *ranges* are half-open, ascending and disjoint. A row in none of them is ignored.
    """
    rows, sums = np.zeros(len(ranges) + 1, np.int64), np.zeros(len(ranges) + 1, np.uint64)
    for batch in batches:
        place = _find_ranges(_ids(batch.column(ID)), ranges)
        digests = first_bytes(batch.column(DIGEST))
        rows += np.bincount(place, minlength=len(rows))
        order = np.argsort(place, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(place[order]) != 0])
        if len(order):
            with np.errstate(over="ignore"):
                sums[place[order][starts]] += np.add.reduceat(digests[order], starts)
    return tuple(
        RangeDigest(int(n), int(total) % MODULUS)
        for n, total in zip(rows[:-1], sums[:-1], strict=True)
    )


def _find_ranges(ids: npt.NDArray[Any], ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """The index of the range that holds each id; ``len(ranges)`` if none does."""
    if ids.dtype == np.int64:
        lows = np.array([low for low, _ in ranges if low <= LARGEST], np.int64)
        lasts = np.array([min(high - 1, LARGEST) for _, high in ranges], np.int64)
    else:
        lows = np.array([low for low, _ in ranges], object)
        lasts = np.array([high - 1 for _, high in ranges], object)
    place = np.searchsorted(lows, ids, side="right") - 1
    place[(place < 0) | (ids > lasts[np.maximum(place, 0)]).astype(np.bool_)] = len(ranges)
    return place


def _ids(column: pa.Array) -> npt.NDArray[Any]:
    """Ids as 64-bit numbers; as Python's if the column may hold larger ones."""
    if not pa.types.is_integer(column.type):
        return np.array([int(one) for one in column.to_pylist()], object)
    ids: npt.NDArray[Any] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return ids


def list_digests(batch: pa.RecordBatch, digest: str = DIGEST) -> Iterator[tuple[int, int]]:
    """Id and digest of each row of *batch*; the digest is in the column of that name."""
    return zip(
        map(int, batch.column(ID).to_pylist()),
        first_bytes(batch.column(digest)).tolist(),
        strict=True,
    )


def bucket_sums(batches: Iterable[pa.RecordBatch], by: Bucketing) -> dict[int, RangeDigest]:
    """The sum of each bucket; *batches* have the key's digest as ``id``, and ``digest``."""
    rows, sums = np.zeros(by.buckets, np.int64), np.zeros(by.buckets, np.uint64)
    for batch in batches:
        place = _buckets(batch, by)
        rows += np.bincount(place, minlength=by.buckets)
        np.add.at(sums, place, first_bytes(batch.column(DIGEST)))
    return {
        int(bucket): RangeDigest(int(rows[bucket]), int(sums[bucket]))
        for bucket in np.flatnonzero(rows)
    }


def rows_of_buckets(
    batches: Iterable[pa.RecordBatch], by: Bucketing, chosen: Collection[int]
) -> Iterator[KeyedRow]:
    """Rows of the *chosen* buckets; *batches* also have the key's columns: ``n0``, ``n1``, ..."""
    for batch in batches:
        keys, digests = (first_bytes(batch.column(one)) for one in (ID, DIGEST))
        names = [batch.column(f"n{n}") for n in range(len(by.key))]
        for row in np.flatnonzero(np.isin(_buckets(batch, by), [*chosen])).tolist():
            name = name_key(one[row].as_py() for one in names)
            yield KeyedRow(int(keys[row]), int(digests[row]), name)


def list_columns(batch: pa.RecordBatch, columns: int) -> Iterator[KeyedRow]:
    """Rows with the digests of single columns; *batch* has the key's as ``id``, and ``d0``, ..."""
    keys = first_bytes(batch.column(ID)).tolist()
    each = [first_bytes(batch.column(f"d{n}")).tolist() for n in range(columns)]
    for key, *digests in zip(keys, *each, strict=True):
        yield KeyedRow(key, 0, columns=tuple(digests))


def _buckets(batch: pa.RecordBatch, by: Bucketing) -> npt.NDArray[np.int64]:
    return (first_bytes(batch.column(ID)) & np.uint64(by.buckets - 1)).astype(np.int64)


def first_bytes(column: pa.Array) -> npt.NDArray[np.uint64]:
    """The first 8 bytes of each 16-byte value as a number, the first byte most significant."""
    data = column.cast(pa.binary())
    if not len(data):
        return np.zeros(0, np.uint64)
    start = int(np.frombuffer(data.buffers()[1], np.int32)[data.offset])
    return np.frombuffer(data.buffers()[2], ">u8", 2 * len(data), start)[::2].astype(np.uint64)
