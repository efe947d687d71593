"""Finds rows in a mirror's files, by key, by value or below a floor, and reads their values.

Row groups whose bounds exclude all keys are not read. In the others the key columns are read,
and `_sluice` only where a key matches. One row group is in memory at a time. Statistics of the
Delta log are used for integers only: other writers round decimals, truncate texts and shorten
times there.

Keys are matched whole and exactly. Text is compared byte by byte: case, accents and trailing
blanks count. Floats are refused, because a value that is written as equal may be read as
unequal.

Archived rows are never below a floor: the source no longer reports them, so they stay when
their shard is emptied.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from pipeline.apply.decide import Floors, Found, is_below
from pipeline.apply.invariants import Occurrences
from pipeline.apply.row_metadata import (
    NO_ORIGINS,
    RANK,
    SHARD,
    SOURCE,
    Integers,
    Mask,
    RowOrigins,
    join_origins,
)
from pipeline.delta.log import ActiveFile
from pipeline.errors import HeldError
from pipeline.model import Order
from pipeline.tables.delta.files import (
    Bounds,
    DataFile,
    Footer,
    Layout,
    MirrorFiles,
    Path,
    is_among,
    open_file,
    take_rows,
    to_bitmap,
)

Window = tuple[int, int]  # of sorted values: start (inclusive), end (exclusive)
Raw = int | bytes  # a bound as a footer has it
_SPOTS_A_VALUE = 16
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Wanted values of one column that are stored as whole numbers, sorted, each once.

    ``spots`` says for the lowest bits of a number whether any wanted value has them. That check
    alone excludes most rows of a file.
    """

    type: pa.DataType
    values: Integers
    spots: Mask = field(init=False)

    def __post_init__(self) -> None:
        """Compute the spots."""
        size = 1 << (_SPOTS_A_VALUE * len(self.values)).bit_length()
        spots = np.zeros(size, np.bool_)
        spots[self.values & (size - 1)] = True
        object.__setattr__(self, "spots", spots)

    def window(self, least: Raw, most: Raw) -> Window:
        """The values between two bounds (inclusive)."""
        low, high = (min(max(_unscaled(raw), _LEAST), _MOST) for raw in (least, most))
        start = np.searchsorted(self.values, low, "left")
        return int(start), int(np.searchsorted(self.values, high, "right"))

    def hits(self, column: pa.Array, window: Window) -> tuple[Integers, Integers]:
        """Rows of *column* with a value in the window, and the numbers of their values."""
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
        """The values between two bounds (inclusive)."""
        numbers = range(len(self.values))
        if pa.types.is_decimal(self.type):
            low, high = _unscaled(least), _unscaled(most)
            start = bisect_left(numbers, low, key=self._decimal)
            return start, bisect_right(numbers, high, key=self._decimal)
        start = bisect_left(numbers, least, key=self._text)
        return start, bisect_right(numbers, most, key=self._text)

    def hits(self, column: pa.Array, window: Window) -> tuple[Integers, Integers]:
        """Rows of *column* with a value in the window, and the numbers of their values."""
        wanted = self.values.slice(window[0], window[1] - window[0])
        found = pc.index_in(
            _cast_values(column, self.type, wanted.type), value_set=wanted, skip_nulls=True
        )
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
    """Keys to be found: the values of each of their columns, and their combinations.

    ``pairs`` holds, for each column after the first, the wanted pairs, sorted: (number of the
    combination of the columns before, number of its value). ``rows`` maps the last combination to
    the keys' rows.
    """

    paths: tuple[Path, ...]
    columns: tuple[Values, ...]
    pairs: tuple[Integers, ...]
    rows: Integers

    def narrow(self, number: int, come_to: Integers, column: pa.Array) -> tuple[Integers, Integers]:
        """Which rows still match after column *number*, and their combinations with it.

        In: *column* at the rows that matched so far, *come_to* their combinations so far.
        """
        values = self.columns[number]
        rows, codes = values.hits(column, (0, len(values.values)))
        wanted = self.pairs[number - 1]
        pair = come_to[rows] * len(values.values) + codes
        found = np.minimum(np.searchsorted(wanted, pair), len(wanted) - 1)
        equal = wanted[found] == pair
        return rows[equal], found[equal]


def prepare_keys(columns: Mapping[Path, pa.Array], *, last: Sequence[Path] = ()) -> WantedKeys:
    """Prepare to find the keys that *columns* hold, row by row, together.

    The column with the most different values is searched first; those of *last* after all others.

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
        key = {".".join(path): str(column[twice]) for path, column in columns.items()}
        detail = f"changes of two keys have one key {key} once they are typed; report this"
        raise HeldError("duplicate_key", detail)
    return WantedKeys(tuple(paths), tuple(parts[path][0] for path in paths), tuple(pairs), first)


def bounded_type(own: pa.DataType, theirs: pa.DataType | None) -> bool:
    """Whether a file's bounds of a column can be compared with the wanted values.

    *theirs* is the column's type in the file, None if the file does not have it.

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
    plain = _cast_values(column, kind, kind if pa.types.is_decimal(kind) else pa.large_binary())
    values = pc.unique(plain)
    values = values.take(pc.sort_indices(values))
    return TextValues(kind, values), pc.index_in(plain, value_set=values).to_numpy().astype(
        np.int64
    )


def _in_sorted(values: Integers, wanted: Integers, start: int) -> tuple[Integers, Integers]:
    """Like ``hits``, for sorted rows: looks up the wanted values, which are far fewer."""
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
    """*column* as 64-bit numbers, and which are valid (not NULL, within range); None: all."""
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
    """The lower halves of decimals, and which decimals 64 bits can hold."""
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


def _cast_values(column: pa.Array, kind: pa.DataType, plain: pa.DataType) -> pa.Array:
    _check(column.type, kind)
    return column if column.type.equals(plain) else column.cast(plain)


def _check(theirs: pa.DataType, own: pa.DataType) -> None:
    """Refuse a file's column whose values have another meaning than the wanted ones."""
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


def find_rows(keys: pa.Table, mirror: MirrorFiles, *, owners: RowOrigins | None = None) -> Found:
    """Look up *keys*, each once, among the rows of *mirror* that are not deleted.

    In: the key's columns with the mirror's names and types. With *owners* a row has the key only if
    it is of the same source and shard.

    Raises:
        HeldError: ``duplicate_key``, ``null_key``, ``key_kind``, ``no_shard``, or a file cannot be
            read.
    """
    finding = _FoundKeys(keys)
    if not len(keys):
        return finding.found()
    columns = {
        mirror.layout.path((name,)): keys[name].combine_chunks() for name in keys.column_names
    }
    own = (mirror.layout.path(SOURCE), mirror.layout.path(SHARD)) if owners is not None else ()
    if owners is not None:
        columns |= dict(zip(own, (owners.source, owners.shard), strict=True))
    search = _Search(mirror, prepare_keys(columns, last=own), own)
    for number, file in enumerate(mirror.files):
        if search.apart(file):
            continue
        windows = search.windows(mirror.footers.of(mirror.store, file))
        if not windows:
            continue
        with open_file(mirror.store, file, mirror.footers) as data:
            for group, first in data.groups:
                if group in windows:
                    hits = search.hits(data, group, windows[group], first=first)
                    finding.take(number, first, search.sought.rows[hits.keys], hits)
    return finding.found()


def find_occurrences(values: pa.Table, mirror: MirrorFiles) -> Occurrences:
    """Every row of *mirror* that is not deleted and holds one of *values* (distinct, not null).

    Unlike keys, values may occur in many rows, and other rows may have NULL.

    Raises:
        HeldError: ``key_kind``, or a file cannot be read.
    """
    columns = {mirror.layout.path((n,)): values[n].combine_chunks() for n in values.column_names}
    search = _Search(mirror, prepare_keys(columns), ())
    parts = [(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), NO_ORIGINS)]
    for number, file in enumerate(mirror.files):
        windows = (
            {} if search.apart(file) else search.windows(mirror.footers.of(mirror.store, file))
        )
        if not windows:
            continue
        with open_file(mirror.store, file, mirror.footers) as data:
            for group, first in data.groups:
                if group in windows:
                    rows, keys = search.places(data, group, windows[group], first=first)
                    files = np.full(len(rows), number, np.int32)
                    of, owned = search.sought.rows[keys], mirror.owned(data, group, rows)
                    parts.append((of, files, first + rows, owned))
    return Occurrences(
        of=np.concatenate([part[0] for part in parts]),
        file=np.concatenate([part[1] for part in parts]),
        position=np.concatenate([part[2] for part in parts]),
        owned=join_origins([part[3] for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Hits:
    """Rows of a row group with wanted keys, the numbers of the keys, and the rows' owners."""

    rows: Integers
    keys: Integers
    owned: RowOrigins


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search in a mirror; ``own`` are the columns of source and shard, if they count."""

    mirror: MirrorFiles
    sought: WantedKeys
    own: Sequence[Path]

    def apart(self, file: ActiveFile) -> bool:
        """Whether the log shows that the file has none of the keys; uses whole numbers only.

        Other writers round decimals, truncate texts and shorten times in the log.
        """
        stats = file.stats or {}
        least, most, nulls = (
            stats.get(name) or {} for name in ("minValues", "maxValues", "nullCount")
        )
        for path, values in zip(self.sought.paths, self.sought.columns, strict=True):
            name = path[0]
            known = type(least.get(name)) is int and type(most.get(name)) is int
            if known and nulls.get(name) == 0 and pa.types.is_integer(values.type):
                start, stop = values.window(least[name], most[name])
                if start == stop:
                    return True
        return False

    def windows(self, footer: Footer) -> dict[int, Window]:
        """Row groups that may hold a key -> the window of values of the first column.

        NULL keys must be reported, so a group that has some is searched regardless of its bounds.
        """
        kinds = [_type(footer.schema, path) for path in self.sought.paths]
        found: dict[int, Window] = {}
        for group in range(footer.metadata.num_row_groups):
            windows, nulls = [], False
            for path, values, kind in zip(
                self.sought.paths, self.sought.columns, kinds, strict=True
            ):
                bounds = footer.bounds(group, path)
                nulls |= bounds.nulls != 0 and path not in self.own
                known = bounded_type(values.type, kind)
                if known and bounds.least is not None and bounds.most is not None:
                    windows.append(values.window(bounds.least, bounds.most))
                else:
                    windows.append((0, len(values.values)))
            if nulls or all(start < stop for start, stop in windows):
                found[group] = windows[0]
        return found

    def hits(self, data: DataFile, group: int, window: Window, *, first: int) -> _Hits:
        """Rows of a group that have a sought key and are not deleted; it starts at row *first*."""
        look = _Look(data, group, first)
        leading, *others = [path for path in self.sought.paths if path not in self.own]
        rows, keys = look.leading(self.sought.columns[0], leading, window)
        for number, path in enumerate(others, start=1):
            if not len(rows) and data.footer.bounds(group, path).nulls == 0:
                break
            kept, keys = self.sought.narrow(number, keys, take_rows(look.column(path), rows))
            rows = rows[kept]
        return self._owned(_Hits(rows, keys, self.mirror.owned(data, group, rows)))

    def places(
        self, data: DataFile, group: int, window: Window, *, first: int
    ) -> tuple[Integers, Integers]:
        """Like ``hits``, for columns that may hold NULL: rows, and the numbers of their values."""
        look = _Look(data, group, first)
        leading, *others = self.sought.paths
        column = data.columns(group, [leading])[0]
        rows, keys = look.among(column, self.sought.columns[0], window)
        for number, path in enumerate(others, start=1):
            rest = take_rows(data.columns(group, [path])[0], rows)
            kept, keys = self.sought.narrow(number, keys, rest)
            rows = rows[kept]
        return rows, keys

    def _owned(self, hits: _Hits) -> _Hits:
        """Exclude rows that another shard owns, if that counts."""
        if not self.own or not len(hits.rows):
            return hits
        if hits.owned.shard.null_count:
            detail = "a row has the key of a change and does not name its shard"
            raise HeldError("no_shard", f"{detail}; rebuild the mirror, or give it one shard")
        rows, keys, owned = hits.rows, hits.keys, hits.owned
        for number, path in enumerate(self.sought.paths):
            if path in self.own:
                column = owned.source if path == self.own[0] else owned.shard
                kept, keys = self.sought.narrow(number, keys, column)
                rows, owned = rows[kept], owned.take(kept)
        return _Hits(rows, keys, owned)


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """One row group of an open file, and the position of its first row."""

    data: DataFile
    group: int
    first: int

    def column(self, path: Path) -> pa.ChunkedArray:
        """A key column; refuses NULL in any row that is not deleted."""
        column = self.data.columns(self.group, [path])[0]
        if column.null_count:
            empty = np.flatnonzero(pc.is_null(column).to_numpy())
            if not is_among(self.data.gone, self.first + empty).all():
                detail = f"{self.data.name}: a row has NULL in the key column {'.'.join(path)}"
                raise HeldError("null_key", f"{detail}; name another `key:`, or rebuild the mirror")
        return column

    def leading(self, values: Values, path: Path, window: Window) -> tuple[Integers, Integers]:
        """Rows that are not deleted and have a value of the window in the first column."""
        return self.among(self.column(path), values, window)

    def among(
        self, column: pa.ChunkedArray, values: Values, window: Window
    ) -> tuple[Integers, Integers]:
        """The same for a *column* that was already read."""
        rows, keys, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for chunk in column.chunks if window[0] < window[1] else ():
            at, found = values.hits(chunk, window)
            rows.append(at + before)
            keys.append(found)
            before += len(chunk)
        place, key = np.concatenate(rows), np.concatenate(keys)
        alive = ~is_among(self.data.gone, self.first + place)
        return place[alive], key[alive]


class _FoundKeys:
    """The keys found so far; a key that is found twice is an error."""

    def __init__(self, keys: pa.Table) -> None:
        self._keys = keys
        self._file = np.full(len(keys), -1, np.int32)
        self._position = np.zeros(len(keys), np.int64)
        self._parts: list[tuple[Integers, RowOrigins]] = []

    def take(self, file: int, first: int, rows: Integers, hits: _Hits) -> None:
        """Record that the keys of *rows* are at *hits*."""
        twice = rows[self._file[rows] >= 0]
        if not len(twice) and len(np.unique(rows)) < len(rows):
            twice = rows[np.flatnonzero(np.bincount(rows)[rows] > 1)]
        if len(twice):
            key = self._keys.slice(int(twice[0]), 1).to_pylist()[0]
            detail = f"the mirror has more than one row with the key {key}; rebuild it"
            raise HeldError("duplicate_key", detail)
        self._file[rows] = file
        self._position[rows] = first + hits.rows
        self._parts.append((rows, hits.owned))

    def found(self) -> Found:
        """All positions, in the order of the keys."""
        at = np.full(len(self._keys), -1, np.int64)
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._parts)])
        at[rows] = np.arange(len(rows))
        place = pa.array(at, mask=at < 0)
        none = pa.array([], pa.string())
        source = pa.concat_arrays([none, *(owned.source for _, owned in self._parts)]).take(place)
        shard = pa.concat_arrays([none, *(owned.shard for _, owned in self._parts)]).take(place)
        rank = np.zeros((len(RANK), len(at)), np.int64)
        adopted, archived = np.zeros(len(at), np.bool_), np.zeros(len(at), np.bool_)
        for rows, owned in self._parts:
            rank[:, rows] = owned.rank
            adopted[rows], archived[rows] = owned.adopted, owned.archived
        return Found(self._file, self._position, RowOrigins(source, shard, rank, adopted, archived))


def _type(schema: pa.Schema, path: Path) -> pa.DataType | None:
    """Type of a file's column; None if the file does not have it."""
    kind: pa.DataType | pa.Schema = schema
    for name in path:
        at = kind.get_field_index(name)
        if at < 0:
            return None
        kind = kind.field(at).type
    return kind


def read_values(mirror: MirrorFiles, found: Found, names: Sequence[str]) -> pa.Table:
    """Columns *names* of the rows *found*, in their order; each row must exist.

    A column that a file does not have is null.

    Raises:
        HeldError: a file cannot be read.
    """
    paths = [mirror.layout.path((name,)) for name in names]
    parts, places = [], []
    for number in np.unique(found.file).tolist():
        here = np.flatnonzero(found.file == number)
        with open_file(mirror.store, mirror.files[number], mirror.footers) as data:
            for group, first in data.groups:
                end = first + data.footer.metadata.row_group(group).num_rows
                inside = here[(found.position[here] >= first) & (found.position[here] < end)]
                if len(inside):
                    rows = found.position[inside] - first
                    columns = [take_rows(column, rows) for column in data.columns(group, paths)]
                    parts.append(pa.table(columns, list(names)))
                    places.append(inside)
    order = np.argsort(np.concatenate(places))
    return pa.concat_tables(parts, promote_options="default").take(pa.array(order))


def rows_below_floor(mirror: MirrorFiles, floors: Floors) -> dict[int, BitMap64]:
    """File number -> positions of rows below the *floors* that are not deleted yet.

    Raises:
        HeldError: ``no_shard``, a row without ``_sluice`` has no known floor; or a file cannot be
            read.
    """
    found: dict[int, BitMap64] = {}
    for number in files_below_floor(mirror, floors):
        with open_file(mirror.store, mirror.files[number], mirror.footers) as data:
            gone = _gone(mirror, data, floors)
        if gone:
            found[number] = gone
    return found


def files_below_floor(mirror: MirrorFiles, floors: Floors) -> list[int]:
    """Numbers of the files that may have rows below the *floors*, by their footers."""
    found = []
    for number, file in enumerate(mirror.files) if floors else ():
        footer = mirror.footers.of(mirror.store, file)
        groups = range(footer.metadata.num_row_groups)
        if any(_judged(footer, mirror.layout, group, floors) is not False for group in groups):
            found.append(number)
    return found


def _gone(mirror: MirrorFiles, data: DataFile, floors: Floors) -> BitMap64:
    gone = BitMap64()
    for group, first in data.groups:
        size = data.footer.metadata.row_group(group).num_rows
        judged = _judged(data.footer, mirror.layout, group, floors)
        if judged and not mirror.keeps:
            gone |= BitMap64(range(first, first + size))
        elif judged is not False:
            alive = np.flatnonzero(~is_among(data.gone, np.arange(first, first + size)))
            rows = mirror.owned(data, group, alive)
            if rows.shard.null_count:
                detail = f"{data.name}: a row does not name its shard, and one shard was emptied"
                raise HeldError("no_shard", f"{detail}; rebuild the mirror")
            gone |= to_bitmap(first + alive[is_below(rows, floors) & ~rows.archived])
    return gone - data.gone


def _judged(footer: Footer, layout: Layout, group: int, floors: Floors) -> bool | None:
    """True if all rows of a group are below the floors, False if none is; None if unknown."""
    bounds = {path: footer.bounds(group, layout.path(path)) for path in (SOURCE, SHARD, *RANK)}
    if any(bound.nulls != 0 for bound in bounds.values()):
        return None
    order = [bounds[path] for path in RANK[:-1]]
    verdicts = [
        _judged_by(
            _owns(bounds[SOURCE], shard.source), _owns(bounds[SHARD], shard.name), order, top
        )
        for shard, top in floors.items()
    ]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _judged_by(
    source: bool | None, shard: bool | None, order: Sequence[Bounds], top: Order
) -> bool | None:
    if source is False or shard is False:
        return False
    floor = top.parts
    least = [bound.least for bound in order if isinstance(bound.least, int)]
    most = [bound.most for bound in order if isinstance(bound.most, int)]
    if len(least) < len(floor) or len(most) < len(floor):
        return None
    # each row is at or above the least of all parts, and at or below the greatest
    if tuple(least) >= floor:
        return False
    return True if source and shard and tuple(most) < floor else None


def _owns(bounds: Bounds, name: str) -> bool | None:
    """Whether all rows (True) or none (False) have that *name*; None if unknown."""
    wanted = name.encode()
    if bounds.only is not None:
        return bounds.only == wanted
    if not isinstance(bounds.least, bytes) or not isinstance(bounds.most, bytes):
        return None
    return None if bounds.least <= wanted <= bounds.most else False
