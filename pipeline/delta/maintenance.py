"""Writes checkpoints, cleans the Delta log, and removes files that no kept version uses.

deltalake writes the checkpoints, cleans the log and lists unused data files, in the process of
the writer. Its threads do not survive a fork, so it is imported inside the functions. It syncs
nothing, so `write_checkpoint` syncs the files. Neither deltalake nor Spark can open a table
whose newest checkpoint a power failure has truncated; `write_checkpoint` removes such a file if
the log is complete without it.

deltalake ignores `_v`, where deletion vectors are. `sweep_vectors` removes a vector file that
neither the newest version nor a kept one uses. A new file may belong to a future commit, so it
is kept.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.delta import deletion_vectors, log
from pipeline.delta.local import LEFTOVER
from pipeline.delta.log import LOG_FOLDER, Snapshot, load_snapshot, parse_entry
from pipeline.delta.store import Store
from pipeline.errors import HeldError

_NEWEST = "_last_checkpoint"
EVERY = 15  # versions; reading a log costs time per entry, writing a checkpoint per file


def is_checkpoint_due(snapshot: Snapshot, known: int) -> bool:
    """Whether `EVERY` or more versions follow the newest checkpoint.

    *known* is the version of a checkpoint that this process wrote, -1 if it wrote none.
    """
    return snapshot.version - max(known, snapshot.checkpoint) >= EVERY


def write_checkpoint(store: Store) -> None:
    """Write a checkpoint of the newest version.

    Raises:
        HeldError: ``log_damaged``, deltalake cannot read the table.
    """
    import deltalake  # noqa: PLC0415 - see above

    try:
        try:
            deltalake.DeltaTable(store.uri).create_checkpoint()
        except deltalake.exceptions.DeltaError:
            if not _without_torn(store):
                raise
            deltalake.DeltaTable(store.uri).create_checkpoint()
    except deltalake.exceptions.DeltaError as error:
        raise HeldError("log_damaged", f"{store.uri}: no checkpoint, {error}") from error
    for made in log.complete_checkpoints(store.after(LOG_FOLDER, ""))[:1]:
        for name in (*made.names, _NEWEST):
            store.sync(f"{LOG_FOLDER}/{name}")
    # remove Spark's checksums of files that deltalake replaced: Spark would wait, then list all
    for entry in store.names(LOG_FOLDER):
        name = entry.name.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".crc") and "checkpoint" in name:
            store.remove(entry.name)


def _without_torn(store: Store) -> bool:
    """Remove truncated checkpoints and `_last_checkpoint`, which may name one of them.

    Return false, and remove nothing, if no table can be loaded without them.
    """
    torn: list[str] = []
    for one in log.complete_checkpoints(store.after(LOG_FOLDER, "")):
        try:
            log.read_checkpoint(store, one)
        except HeldError:
            torn += one.names
        except FileNotFoundError:
            continue
    if load_snapshot(store) is None:  # it uses older checkpoints and entries
        return False
    for name in (_NEWEST, *torn):
        store.remove(f"{LOG_FOLDER}/{name}")
    return True


def clean_log(store: Store) -> None:
    """Remove entries and checkpoints that are older than the table's log retention.

    Raises:
        HeldError: ``log_damaged``, deltalake cannot read the table.
    """
    import deltalake  # noqa: PLC0415 - see above

    try:
        deltalake.DeltaTable(store.uri).cleanup_metadata()
    except deltalake.exceptions.DeltaError as error:
        raise HeldError("log_damaged", f"{store.uri}: no cleaning, {error}") from error


def sweep_files(store: Store, before: datetime) -> int:
    """Remove files that killed writers left in the log folder before *before*; return how many."""
    old = [
        entry.name
        for entry in store.names(LOG_FOLDER)
        if entry.name.startswith(f"{LOG_FOLDER}/{LEFTOVER}") and entry.modified < before
    ]
    for name in old:
        store.remove(name)
    return len(old)


def vacuum_files(store: Store, kept: timedelta) -> int:
    """Remove data files that were removed from the table more than *kept* ago; return how many.

    Files of that age that the log does not name are removed too.

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
    for name in gone:  # not by deltalake: it would commit entries to the log without a sync
        store.remove(name)
    return len(gone)


def sweep_vectors(store: Store, snapshot: Snapshot, before: datetime) -> int:
    """Remove vector files older than *before* that no version since then uses; return how many."""
    old = [one.name for one in store.names(deletion_vectors.PREFIX) if one.modified < before]
    if not old:
        return 0
    used = set(snapshot.vector_files) | set(_left_since(store, before))
    swept = [name for name in old if name not in used]
    for name in swept:
        store.remove(name)
    return len(swept)


def _left_since(store: Store, before: datetime) -> Iterator[str]:
    """Vector files removed from the table at or after *before*: older versions still need them."""
    stamp = int(before.timestamp() * 1_000)
    for gone in _removes(store):
        at, vector = gone.get("deletionTimestamp"), gone.get("deletionVector")
        if vector is not None and (at is None or int(at) >= stamp):
            name = deletion_vectors.file_name(vector)
            if name is not None:
                yield name


def _removes(store: Store) -> Iterator[Mapping[str, Any]]:
    """Yield all ``remove`` actions of the newest checkpoint and the entries after it."""
    names = store.after(LOG_FOLDER, "")
    first = 0
    for checkpoint in log.complete_checkpoints(names)[:1]:
        first = checkpoint.version + 1
        for name in checkpoint.names:
            yield from _read_removes(store, f"{LOG_FOLDER}/{name}")
    for name in names:
        if name.endswith(".json") and name[:20].isdigit() and int(name[:20]) >= first:
            path = f"{LOG_FOLDER}/{name}"
            for action in parse_entry(store.uri, path, store.read(path)):
                if "remove" in action:
                    yield action["remove"]


def _read_removes(store: Store, name: str) -> Iterator[Mapping[str, Any]]:
    with pq.ParquetFile(store.source(name)) as file:
        if "remove" not in file.schema_arrow.names:
            return
        column = file.read(columns=["remove"])["remove"]
    for chunk in column.chunks:
        yield from (row for row in chunk.filter(pc.is_valid(chunk)).to_pylist())
