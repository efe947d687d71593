"""Which of the wanted keys stands where in a file's columns?  Whole keys, exactly; pure.

Text is compared byte by byte: case, accents and trailing blanks count.  Floats are refused: what
is written as equal need not be read as equal.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Integers, Mask
from pipeline.errors import HeldError
from pipeline.tables.delta.layout import Path

Window = tuple[int, int]  # of sorted values: from, to (not included)
Raw = int | bytes  # a bound as a footer has it
_SPOTS_A_VALUE = 16
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Wanted values of one column that are whole numbers underneath, sorted, each once.

    ``spots`` says of the lowest bits of a number whether any wanted value has them: most rows of
    a file are told apart from all wanted ones by it alone.
    """

    type: pa.DataType
    values: Integers
    spots: Mask = field(init=False)

    def __post_init__(self) -> None:
        """Mark the spots."""
        size = 1 << (_SPOTS_A_VALUE * len(self.values)).bit_length()
        spots = np.zeros(size, np.bool_)
        spots[self.values & (size - 1)] = True
        object.__setattr__(self, "spots", spots)

    def window(self, least: Raw, most: Raw) -> Window:
        """The values between two bounds, both of which count."""
        low, high = (min(max(_unscaled(raw), _LEAST), _MOST) for raw in (least, most))
        start = np.searchsorted(self.values, low, "left")
        return int(start), int(np.searchsorted(self.values, high, "right"))

    def hits(self, column: pa.Array, window: Window) -> tuple[Integers, Integers]:
        """Rows of *column* with a value in the window, and numbers of their values."""
        values, there = _numbers(column, self.type)
        wanted = self.values[slice(*window)]
        if there is None and (values[1:] >= values[:-1]).all():
            return _in_sorted(values, wanted, window[0])
        maybe = self.spots[values & (len(self.spots) - 1)]
        rows = np.flatnonzero(maybe if there is None else maybe & there)
        found = np.minimum(np.searchsorted(wanted, values[rows]), len(wanted) - 1)
        equal = wanted[found] == values[rows]
        return rows[equal], found[equal] + window[0]


@dataclass(frozen=True, slots=True, eq=False)
class TextValues:
    """Wanted values of one column of text, bytes, or decimals beyond 64 bits; sorted, each once."""

    type: pa.DataType
    values: pa.Array

    def window(self, least: Raw, most: Raw) -> Window:
        """The values between two bounds, both of which count."""
        numbers = range(len(self.values))
        if pa.types.is_decimal(self.type):
            low, high = _unscaled(least), _unscaled(most)
            start = bisect_left(numbers, low, key=self._decimal)
            return start, bisect_right(numbers, high, key=self._decimal)
        start = bisect_left(numbers, least, key=self._text)
        return start, bisect_right(numbers, most, key=self._text)

    def hits(self, column: pa.Array, window: Window) -> tuple[Integers, Integers]:
        """Rows of *column* with a value in the window, and numbers of their values."""
        wanted = self.values.slice(window[0], window[1] - window[0])
        found = pc.index_in(_as(column, self.type, wanted.type), value_set=wanted, skip_nulls=True)
        numbers = pc.fill_null(found, -1).to_numpy()
        rows = np.flatnonzero(numbers >= 0)
        return rows, numbers[rows].astype(np.int64) + window[0]

    def _text(self, number: int) -> bytes:
        found: bytes = self.values[number].as_py()
        return found

    def _decimal(self, number: int) -> int:
        at = (self.values.offset + number) * 16
        raw = self.values.buffers()[1][at : at + 16].to_pybytes()
        return int.from_bytes(raw, "little", signed=True)


Values = Numbers | TextValues


@dataclass(frozen=True, slots=True, eq=False)
class WantedKeys:
    """Keys to be found: the values of each of their columns, and how they go together.

    ``pairs`` holds, for each column after the first, the wanted pairs of (what the columns before
    it come to) and (number of its value), sorted; ``rows`` leads from the last to the keys' rows.
    """

    paths: tuple[Path, ...]
    columns: tuple[Values, ...]
    pairs: tuple[Integers, ...]
    rows: Integers

    def narrow(self, number: int, come_to: Integers, column: pa.Array) -> tuple[Integers, Integers]:
        """Which rows still match after column *number*, and what they come to with it.

        In: *column* at the rows that matched so far, *come_to* what these came to.
        """
        values = self.columns[number]
        rows, codes = values.hits(column, (0, len(values.values)))
        wanted = self.pairs[number - 1]
        pair = come_to[rows] * len(values.values) + codes
        found = np.minimum(np.searchsorted(wanted, pair), len(wanted) - 1)
        equal = wanted[found] == pair
        return rows[equal], found[equal]


def wanted(columns: Mapping[Path, pa.Array], *, last: Sequence[Path] = ()) -> WantedKeys:
    """Prepare to find the keys that *columns* hold, row by row, together.

    The column with the most different values is looked at first; those of *last* after all others.

    Raises:
        HeldError: ``null_key``, ``key_kind``, or ``duplicate_key``: two rows have one key.
    """
    parts = {path: _values(path, column) for path, column in columns.items()}
    paths = sorted(parts, key=lambda path: (path in last, -len(parts[path][0].values)))
    come_to = parts[paths[0]][1]
    pairs: list[Integers] = []
    for path in paths[1:]:
        values, codes = parts[path]
        known, come_to = np.unique(come_to * len(values.values) + codes, return_inverse=True)
        pairs.append(known)
    first = np.zeros(int(come_to.max(initial=-1)) + 1, np.int64)
    first[come_to] = np.arange(len(come_to))
    if len(first) < len(come_to):
        twice = int(np.flatnonzero(first[come_to] != np.arange(len(come_to)))[0])
        told = {".".join(path): str(column[twice]) for path, column in columns.items()}
        detail = f"changes of two keys have one key {told} once they are typed; report this"
        raise HeldError("duplicate_key", detail)
    return WantedKeys(tuple(paths), tuple(parts[path][0] for path in paths), tuple(pairs), first)


def bounded(own: pa.DataType, theirs: pa.DataType | None) -> bool:
    """Whether a file's bounds of a column speak of the wanted values, and in their units.

    *theirs* is the type the file keeps the column in, None if it has none.

    Raises:
        HeldError: ``key_kind``.
    """
    if theirs is None:
        return False
    _check(theirs, own)
    return not pa.types.is_timestamp(own) or bool(theirs.unit == own.unit)


def _values(path: Path, column: pa.Array) -> tuple[Values, Integers]:
    """The different values of one wanted column, and each row's number among them."""
    kind = column.type
    if column.null_count:
        detail = f"a change has NULL in the key column {'.'.join(path)}; name another `key:`"
        raise HeldError("null_key", detail)
    if _is_number(kind):
        numbers, fits = _numbers(column, kind)
        if fits is None or fits.all():
            unique, codes = np.unique(numbers, return_inverse=True)
            return Numbers(kind, unique), codes
    elif not (_is_text(kind) or pa.types.is_decimal(kind)):
        detail = f"key column {'.'.join(path)} is of type {kind}, which is not matched exactly"
        raise HeldError("key_kind", f"{detail}; name another `key:`")
    plain = _as(column, kind, kind if pa.types.is_decimal(kind) else pa.large_binary())
    values = pc.unique(plain)
    values = values.take(pc.sort_indices(values))
    return TextValues(kind, values), pc.index_in(plain, value_set=values).to_numpy().astype(
        np.int64
    )


def _in_sorted(values: Integers, wanted: Integers, start: int) -> tuple[Integers, Integers]:
    """As ``hits``, in rows that are sorted: the wanted are looked up, which are far fewer."""
    low = np.searchsorted(values, wanted, "left")
    times = np.searchsorted(values, wanted, "right") - low
    before = np.cumsum(times) - times
    rows = np.repeat(low - before, times) + np.arange(int(times.sum()))
    return rows, np.repeat(np.arange(start, start + len(wanted)), times)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    whole = types.is_integer(kind) or types.is_boolean(kind) or types.is_date32(kind)
    return bool(whole or types.is_timestamp(kind) or types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(text or plain or types.is_fixed_size_binary(kind))


def _numbers(column: pa.Array, kind: pa.DataType) -> tuple[Integers, Mask | None]:
    """*column* as 64-bit numbers, and where it is none (NULL, or beyond them); None: nowhere."""
    _check(column.type, kind)
    there = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if pa.types.is_decimal(kind):
        return _halves(column, there)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    whole = column.cast(pa.int64())
    return (whole if there is None else pc.fill_null(whole, 0)).to_numpy(), there


def _halves(column: pa.Array, there: Mask | None) -> tuple[Integers, Mask | None]:
    """Decimals by their lower halves, which are all of them where 64 bits suffice."""
    if not len(column):
        return np.empty(0, np.int64), there
    if column.type.bit_width != 128:
        column = column.cast(pa.decimal128(38, column.type.scale))
    until = column.offset + len(column)
    halves = np.frombuffer(column.buffers()[1], np.int64, 2 * until).reshape(-1, 2)
    low, high = halves[column.offset :].T
    fits = high == low >> 63
    if there is None and fits.all():
        return np.ascontiguousarray(low), None
    return np.ascontiguousarray(low), fits if there is None else fits & there


def _as(column: pa.Array, kind: pa.DataType, plain: pa.DataType) -> pa.Array:
    _check(column.type, kind)
    return column if column.type.equals(plain) else column.cast(plain)


def _check(theirs: pa.DataType, own: pa.DataType) -> None:
    """Refuse a file's column whose values do not mean what the wanted ones do."""
    if theirs.equals(own):
        return
    alike = [pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32, _is_text]
    if any(is_kind(theirs) and is_kind(own) for is_kind in alike):
        return
    if pa.types.is_timestamp(theirs) and pa.types.is_timestamp(own) and theirs.unit != "ns":
        return
    if pa.types.is_decimal(theirs) and pa.types.is_decimal(own) and theirs.scale == own.scale:
        return
    detail = f"a file keeps a key column as {theirs}, the table as {own}; rewrite the table"
    raise HeldError("key_kind", detail)


def _unscaled(raw: Raw) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
