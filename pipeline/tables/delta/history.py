"""Reads which rows each commit of a Delta mirror added and removed.

The source is the entries of the Delta log: added and removed files, and deletion vectors that
change. Files whose rows were only moved (`dataChange` is false) are not read. Removed rows have
only the key columns and `_sluice`.

Added rows have the mirror's current columns. Values of partition columns are only in the log.
Partitions by time or bytes are refused, because the log may write their values in more than one
way. A commit that the log no longer has raises `ProofError`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from pipeline.apply.mirror import RowChanges, RowPart
from pipeline.apply.row_metadata import SLUICE
from pipeline.delta import deletion_vectors
from pipeline.delta.log import Action, ActiveFile, Snapshot, entry_digest, entry_name, parse_entry
from pipeline.delta.protocol import partition_keys
from pipeline.delta.store import Store
from pipeline.delta.types import to_arrow
from pipeline.errors import HeldError, ProofError
from pipeline.tables.delta.files import Footers, Layout, is_among, open_file
from pipeline.tables.delta.merge import read_commit
from pipeline.tables.delta.rewrite import fit_columns


@dataclass(eq=False)
class MirrorRows:
    """Rows of the files that *snapshot*'s log has named, in the columns of *snapshot*."""

    store: Store
    snapshot: Snapshot
    footers: Footers = field(default_factory=Footers)

    def __post_init__(self) -> None:
        """Refuse partition columns whose values the log may write in more than one way.

        Raises:
            HeldError: ``protocol``, a column of times (in an unknown zone) or bytes.
        """
        metadata = self.snapshot.metadata
        self._layout, self._schema = Layout.of(metadata), to_arrow(metadata.schema_string)
        self._keys = partition_keys(metadata)
        for name in self._keys:
            kind = self._schema.field(name).type
            if pa.types.is_timestamp(kind) or pa.types.is_binary(kind):
                what = f"{self.snapshot.uri} is partitioned by {name}, a {kind}"
                raise HeldError("protocol", f"{what}; rebuild the mirror without that")

    def contents(self) -> tuple[RowPart, ...]:
        """All rows of the snapshot, a file each, in an order that is the same each time."""
        files = self.snapshot.files.items()
        return tuple(partial(self._alive, file) for _, file in sorted(files))

    def changes(self, since: int, key: Sequence[str]) -> Iterator[RowChanges]:
        """The row changes of each commit after version *since*, oldest first.

        Raises:
            ProofError: a commit is no longer in the log.
        """
        for version in range(since + 1, self.snapshot.version + 1):
            name = entry_name(version)
            try:
                content = self.store.read(name)
            except FileNotFoundError as error:
                msg = f"{self.snapshot.uri}: its log no longer has version {version}"
                raise ProofError(msg) from error
            actions = parse_entry(self.snapshot.uri, name, content)
            commit = read_commit(
                version, content.decode().splitlines(), entry=entry_digest(content)
            )
            came, went = self._moved(actions, (*key, SLUICE))
            yield RowChanges(commit, came, went)

    def _moved(
        self, actions: Iterable[Action], names: Sequence[str]
    ) -> tuple[tuple[RowPart, ...], tuple[RowPart, ...]]:
        old, new = _changed(actions, "remove"), _changed(actions, "add")
        came = [partial(self._alive, file) for path, file in new.items() if path not in old]
        went = [partial(self._alive, file, names) for path, file in old.items() if path not in new]
        for path in old.keys() & new.keys():
            before, after = self._gone(old[path]), self._gone(new[path])
            if back := before - after:  # a commit was undone
                came.append(partial(self._at, new[path], back))
            if gone := after - before:
                went.append(partial(self._at, new[path], gone, names))
        return tuple(came), tuple(went)

    def _gone(self, file: ActiveFile) -> BitMap64:
        return deletion_vectors.read_vector(self.store, file.vector) if file.vector else BitMap64()

    def _alive(self, file: ActiveFile, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        return self._at(file, None, names)

    def _at(
        self, file: ActiveFile, places: BitMap64 | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Rows at *places*, or all that are not deleted; of the columns *names*, if given."""
        schema = self._schema
        if names is not None:
            schema = pa.schema([one for one in schema if one.name in names])
        physical = {self._layout.path((name,))[0] for name in schema.names}
        with open_file(self.store, file, self.footers) as data:
            for group, first in data.groups:
                count = data.footer.metadata.row_group(group).num_rows
                here = np.arange(first, first + count)
                wanted = ~is_among(data.gone, here) if places is None else is_among(places, here)
                if wanted.any():
                    rows = self._with_partition(data.rows(group, physical), file)
                    # texts of another writer may be views, which filters do not accept
                    yield fit_columns(rows, schema, data.name).filter(pa.array(wanted))

    def _with_partition(self, rows: pa.Table, file: ActiveFile) -> pa.Table:
        """*file*'s rows with the table's column names, and its partition values from the log."""
        table = self._layout.of_files(rows)
        for name, key in self._keys.items():
            text = pa.scalar(file.partition.get(key) or None, pa.string())  # empty means null
            table = table.append_column(name, pa.repeat(text, len(rows)))
        return table


def _changed(actions: Iterable[Action], kind: str) -> dict[str, ActiveFile]:
    """Files of *kind* by their paths, without those whose rows were only moved."""
    entries = (action[kind] for action in actions if action.get(kind) is not None)
    files = (ActiveFile(one) for one in entries if one.get("dataChange", True))
    return {file.path: file for file in files}
