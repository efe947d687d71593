"""How is a log kept short?  By deltalake's checkpoints and cleaning, in the writer's own process.

deltalake's threads survive no fork, so it is imported only when it is asked for.  It syncs nothing,
and neither it nor Spark can open a table whose newest checkpoint the power has cut.
"""

from datetime import datetime

from pipeline.errors import HeldError
from pipeline.lake import checkpoint_reader
from pipeline.lake.entries import FOLDER
from pipeline.lake.folder import LEFTOVER
from pipeline.lake.log import Snapshot, load
from pipeline.lake.store import Store

_NEWEST = "_last_checkpoint"
EVERY = 15  # versions; reading a log costs by entry, a checkpoint by file


def overdue(snapshot: Snapshot, known: int) -> bool:
    """Whether so many versions have come since a checkpoint that reading by them costs.

    *known*: the version of one that was made here, -1 if none was.
    """
    return snapshot.version - max(known, snapshot.checkpoint) >= EVERY


def checkpoint(store: Store) -> None:
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
    for made in checkpoint_reader.complete(store.after(FOLDER, ""))[:1]:
        for name in (*made.names, _NEWEST):
            store.sync(f"{FOLDER}/{name}")
    # sums that Spark kept of what deltalake has just replaced: Spark would wait, then list all
    for entry in store.names(FOLDER):
        name = entry.name.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".crc") and "checkpoint" in name:
            store.remove(entry.name)


def _without_torn(store: Store) -> bool:
    """Take away what the power has cut: checkpoints, and the hint that may name one of them.

    Only where the log says all without them; the hint is nothing but a short cut.
    """
    torn: list[str] = []
    for one in checkpoint_reader.complete(store.after(FOLDER, "")):
        try:
            checkpoint_reader.read(store, one)
        except HeldError:
            torn += one.names
        except FileNotFoundError:
            continue
    if load(store) is None:  # which goes by older ones, and by entries
        return False
    for name in (_NEWEST, *torn):
        store.remove(f"{FOLDER}/{name}")
    return True


def clean(store: Store) -> None:
    """Remove entries and checkpoints that are older than the table's log retention."""
    import deltalake  # noqa: PLC0415 - see above

    try:
        deltalake.DeltaTable(store.uri).cleanup_metadata()
    except deltalake.exceptions.DeltaError as error:
        raise HeldError("log_damaged", f"{store.uri}: no cleaning, {error}") from error


def sweep(store: Store, before: datetime) -> int:
    """Remove what killed writers left in the log's folder before an instant; how many files."""
    old = [
        entry.name
        for entry in store.names(FOLDER)
        if entry.name.startswith(f"{FOLDER}/{LEFTOVER}") and entry.modified < before
    ]
    for name in old:
        store.remove(name)
    return len(old)
