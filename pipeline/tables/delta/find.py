"""Where do these keys stand in a mirror's files, and how new are the rows that stand there?

Row groups whose bounds hold none of the keys are never read; of the others the key's columns, and
``_sluice`` only where one of the keys stands.  One row group is in memory at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.adoption import RANK, SHARD, SOURCE
from pipeline.apply.decide import Found
from pipeline.apply.provenance import NOBODY, Integers, Owned, joined
from pipeline.apply.validation import Occurrences
from pipeline.errors import HeldError
from pipeline.lake.log import ActiveFile
from pipeline.tables.delta.data_file import DataFile, Footer, opened
from pipeline.tables.delta.layout import Path
from pipeline.tables.delta.match import Values, WantedKeys, Window, bounded, wanted
from pipeline.tables.delta.mirror_files import MirrorFiles, taken
from pipeline.tables.delta.positions import among


def find(keys: pa.Table, mirror: MirrorFiles, *, owners: Owned | None = None) -> Found:
    """Look up *keys*, each once, among the rows of *mirror* that are not deleted.

    In: the key's columns under the mirror's names, in the mirror's types.  With *owners* a row is
    that of the key only if it is of the same source and shard.

    Raises:
        HeldError: ``duplicate_key``, ``null_key``, ``key_kind``, ``no_shard``, or a file cannot
            be read.
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
    search = _Search(mirror, wanted(columns, last=own), own)
    for number, file in enumerate(mirror.files):
        if search.apart(file):
            continue
        windows = search.windows(mirror.footers.of(mirror.store, file))
        if not windows:
            continue
        with opened(mirror.store, file, mirror.footers) as data:
            for group, first in data.groups:
                if group in windows:
                    hits = search.hits(data, group, windows[group], first=first)
                    finding.take(number, first, search.sought.rows[hits.keys], hits)
    return finding.found()


def occurrences(values: pa.Table, mirror: MirrorFiles) -> Occurrences:
    """Every row of *mirror* that is not deleted and holds one of *values*, each once, none null.

    Unlike keys, values may stand in many rows, and NULL in others.

    Raises:
        HeldError: ``key_kind``, or a file cannot be read.
    """
    columns = {mirror.layout.path((n,)): values[n].combine_chunks() for n in values.column_names}
    search = _Search(mirror, wanted(columns), ())
    parts = [(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), NOBODY)]
    for number, file in enumerate(mirror.files):
        windows = (
            {} if search.apart(file) else search.windows(mirror.footers.of(mirror.store, file))
        )
        if not windows:
            continue
        with opened(mirror.store, file, mirror.footers) as data:
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
        owned=joined([part[3] for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Hits:
    """Rows of a row group that bear wanted keys, which keys (numbers), and their owners."""

    rows: Integers
    keys: Integers
    owned: Owned


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """What is sought in a mirror; ``own`` are the columns of source and shard, if they count."""

    mirror: MirrorFiles
    sought: WantedKeys
    own: Sequence[Path]

    def apart(self, file: ActiveFile) -> bool:
        """Whether the log tells that the file holds none of the keys: by whole numbers only.

        Other writers round decimals, cut texts and shorten times in the log.
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
        """Row groups that may hold a key, and between which of its leading column's values.

        NULL keys must be seen, so a group that has some is searched whatever its bounds.
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
                known = bounded(values.type, kind)
                if known and bounds.least is not None and bounds.most is not None:
                    windows.append(values.window(bounds.least, bounds.most))
                else:
                    windows.append((0, len(values.values)))
            if nulls or all(start < stop for start, stop in windows):
                found[group] = windows[0]
        return found

    def hits(self, data: DataFile, group: int, window: Window, *, first: int) -> _Hits:
        """The rows of a group that bear a key and are not deleted; *first* is its position."""
        look = _Look(data, group, first)
        leading, *others = [path for path in self.sought.paths if path not in self.own]
        rows, keys = look.leading(self.sought.columns[0], leading, window)
        for number, path in enumerate(others, start=1):
            if not len(rows) and data.footer.bounds(group, path).nulls == 0:
                break
            kept, keys = self.sought.narrow(number, keys, taken(look.column(path), rows))
            rows = rows[kept]
        return self._owned(_Hits(rows, keys, self.mirror.owned(data, group, rows)))

    def places(
        self, data: DataFile, group: int, window: Window, *, first: int
    ) -> tuple[Integers, Integers]:
        """As ``hits``, of columns that hold NULLs, too: rows, and which of the values they bear."""
        look = _Look(data, group, first)
        leading, *others = self.sought.paths
        column = data.columns(group, [leading])[0]
        rows, keys = look.among(column, self.sought.columns[0], window)
        for number, path in enumerate(others, start=1):
            rest = taken(data.columns(group, [path])[0], rows)
            kept, keys = self.sought.narrow(number, keys, rest)
            rows = rows[kept]
        return rows, keys

    def _owned(self, hits: _Hits) -> _Hits:
        """Leave out what another shard owns, if that counts."""
        if not self.own or not len(hits.rows):
            return hits
        if hits.owned.shard.null_count:
            detail = "a row has the key of a change, and nothing tells of which shard it is"
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
        """A column of the key, without a NULL in any row that is not deleted."""
        column = self.data.columns(self.group, [path])[0]
        if column.null_count:
            empty = np.flatnonzero(pc.is_null(column).to_numpy())
            if not among(self.data.gone, self.first + empty).all():
                detail = f"{self.data.name}: a row has NULL in the key column {'.'.join(path)}"
                raise HeldError("null_key", f"{detail}; name another `key:`, or rebuild the mirror")
        return column

    def leading(self, values: Values, path: Path, window: Window) -> tuple[Integers, Integers]:
        """Rows with a value of the window in the leading column, which are not deleted."""
        return self.among(self.column(path), values, window)

    def among(
        self, column: pa.ChunkedArray, values: Values, window: Window
    ) -> tuple[Integers, Integers]:
        """The same of a *column* at hand."""
        rows, keys, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for chunk in column.chunks if window[0] < window[1] else ():
            at, found = values.hits(chunk, window)
            rows.append(at + before)
            keys.append(found)
            before += len(chunk)
        place, key = np.concatenate(rows), np.concatenate(keys)
        alive = ~among(self.data.gone, self.first + place)
        return place[alive], key[alive]


class _FoundKeys:
    """What has been found so far; a key that is found again is an error."""

    def __init__(self, keys: pa.Table) -> None:
        self._keys = keys
        self._file = np.full(len(keys), -1, np.int32)
        self._position = np.zeros(len(keys), np.int64)
        self._parts: list[tuple[Integers, Owned]] = []

    def take(self, file: int, first: int, rows: Integers, hits: _Hits) -> None:
        """Note that the keys of *rows* stand at *hits*."""
        twice = rows[self._file[rows] >= 0]
        if not len(twice) and len(np.unique(rows)) < len(rows):
            twice = rows[np.flatnonzero(np.bincount(rows)[rows] > 1)]
        if len(twice):
            told = self._keys.slice(int(twice[0]), 1).to_pylist()[0]
            detail = f"the mirror has more than one row with the key {told}; rebuild it"
            raise HeldError("duplicate_key", detail)
        self._file[rows] = file
        self._position[rows] = first + hits.rows
        self._parts.append((rows, hits.owned))

    def found(self) -> Found:
        """All of it, in the order of the keys."""
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
        return Found(self._file, self._position, Owned(source, shard, rank, adopted, archived))


def _type(schema: pa.Schema, path: Path) -> pa.DataType | None:
    """Type of a file's column; None where the file has none."""
    kind: pa.DataType | pa.Schema = schema
    for name in path:
        at = kind.get_field_index(name)
        if at < 0:
            return None
        kind = kind.field(at).type
    return kind
