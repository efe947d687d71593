"""Which files does nobody need any more?  Those that left longer ago than versions are kept.

Data files are deltalake's to find; it never looks below ``_v``, where vectors lie, so these are
found here: one that neither the newest version nor a kept one names, and that is not of a commit
which is still to come.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import HeldError
from pipeline.lake import checkpoint_reader, entries, vectors
from pipeline.lake.log import Snapshot
from pipeline.lake.store import Store


def vacuum(store: Store, kept: timedelta) -> int:
    """Remove data files that left longer than *kept* ago, and old ones nobody names; how many.

    Raises:
        HeldError: ``log_damaged``, deltalake cannot read the table.
    """
    import deltalake  # noqa: PLC0415  - it must not be loaded before a fork

    hours = max(0, int(kept / timedelta(hours=1)))
    try:
        table = deltalake.DeltaTable(store.uri)
        gone = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    except deltalake.exceptions.DeltaError as error:
        raise HeldError("log_damaged", f"{store.uri}: no vacuum, {error}") from error
    for name in gone:  # not by deltalake, whose entries that tell of it no power failure spares
        store.remove(name)
    return len(gone)


def sweep_vectors(store: Store, snapshot: Snapshot, before: datetime) -> int:
    """Remove vector files older than *before* that no version since then names; how many."""
    old = [one.name for one in store.names(vectors.PREFIX) if one.modified < before]
    if not old:
        return 0
    used = set(snapshot.vector_files) | set(_left_since(store, before))
    swept = [name for name in old if name not in used]
    for name in swept:
        store.remove(name)
    return len(swept)


def _left_since(store: Store, before: datetime) -> Iterator[str]:
    """Vector files that left the table at or after *before*: older versions may be read still."""
    stamp = int(before.timestamp() * 1_000)
    for gone in _removes(store):
        at, vector = gone.get("deletionTimestamp"), gone.get("deletionVector")
        if vector is not None and (at is None or int(at) >= stamp):
            name = vectors.file_name(vector)
            if name is not None:
                yield name


def _removes(store: Store) -> Iterator[Mapping[str, Any]]:
    """All ``remove`` actions that the newest checkpoint and the entries after it still tell."""
    names = store.after(entries.FOLDER, "")
    first = 0
    for checkpoint in checkpoint_reader.complete(names)[:1]:
        first = checkpoint.version + 1
        for name in checkpoint.names:
            yield from _told(store, f"{entries.FOLDER}/{name}")
    for name in names:
        if name.endswith(".json") and name[:20].isdigit() and int(name[:20]) >= first:
            path = f"{entries.FOLDER}/{name}"
            for action in entries.parse(store.uri, path, store.read(path)):
                if "remove" in action:
                    yield action["remove"]


def _told(store: Store, name: str) -> Iterator[Mapping[str, Any]]:
    with pq.ParquetFile(store.source(name)) as file:
        if "remove" not in file.schema_arrow.names:
            return
        column = file.read(columns=["remove"])["remove"]
    for chunk in column.chunks:
        yield from (row for row in chunk.filter(pc.is_valid(chunk)).to_pylist())
