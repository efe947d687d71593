"""How is a log kept short?  By deltalake's checkpoints and cleaning, in the writer's own process.

deltalake's threads survive no fork, so it is imported only when it is asked for.
"""

from datetime import datetime

from pipeline.errors import HeldError
from pipeline.lake.entries import FOLDER
from pipeline.lake.folder import LEFTOVER
from pipeline.lake.store import Store

EVERY = 15  # versions; reading a log costs by entry, a checkpoint by file


def due(version: int) -> bool:
    """Whether a checkpoint belongs to this version."""
    return version > 0 and version % EVERY == 0


def checkpoint(store: Store) -> None:
    """Write a checkpoint of the newest version.

    Raises:
        HeldError: ``log_damaged``, deltalake cannot read the table.
    """
    import deltalake  # noqa: PLC0415 - see above

    try:
        deltalake.DeltaTable(store.uri).create_checkpoint()
    except deltalake.exceptions.DeltaError as error:
        raise HeldError("log_damaged", f"{store.uri}: no checkpoint, {error}") from error
    # sums that Spark kept of what deltalake has just replaced: Spark would wait, then list all
    for entry in store.names(FOLDER):
        name = entry.name.rpartition("/")[2]
        if name.startswith(".") and name.endswith(".crc") and "checkpoint" in name:
            store.remove(entry.name)


def clean(store: Store) -> None:
    """Remove entries and checkpoints that are older than the table's log retention."""
    import deltalake  # noqa: PLC0415 - see above

    deltalake.DeltaTable(store.uri).cleanup_metadata()


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
