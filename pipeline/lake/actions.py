"""What does one file's coming, going or losing rows look like in the log?  Pure.

A file that stays with fewer rows is two actions: its ``remove`` with the old vector, exactly, and
its ``add`` with the new one and every other field as it was.  Without the first its rows count
twice.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pipeline.errors import HeldError
from pipeline.lake import statistics
from pipeline.lake.entries import Action
from pipeline.lake.log import ActiveFile

_PLAIN = "/=-_.~!$&'()*+,;@:"  # what stands for itself in a path of the log


def added(
    name: str,
    *,
    size: int,
    at: datetime,
    stats: Mapping[str, Any],
    partition: Mapping[str, str | None] | None = None,
    data_change: bool = True,
) -> Action:
    """A new file; *name* as the store takes it, *stats* from ``statistics.of``."""
    return {
        "add": {
            "path": quote(name, safe=_PLAIN),
            "partitionValues": dict(partition or {}),
            "size": size,
            "modificationTime": milliseconds(at),
            "dataChange": data_change,
            "stats": statistics.text(stats),
        }
    }


def removed(file: ActiveFile, *, at: datetime, data_change: bool = True) -> Action:
    """A file goes, as it is now."""
    kept = ("path", "partitionValues", "size", "tags", "deletionVector")
    own = {name: file.action[name] for name in kept if name in file.action}
    how = {
        "deletionTimestamp": milliseconds(at),
        "dataChange": data_change,
        "extendedFileMetadata": True,
    }
    return {"remove": {**own, **how}}


def marked(file: ActiveFile, descriptor: Mapping[str, Any], *, records: int) -> Action:
    """A file stays, without the rows of a vector that holds those of its old one too.

    *records*: rows in the file, from its footer where the log does not tell.

    Raises:
        HeldError: ``log_damaged``, the vector and the file do not go together.
    """
    told = file.records
    if told not in {None, records} or not 0 < descriptor["cardinality"] <= records:
        raise HeldError(
            "log_damaged",
            f"{file.action['path']}: a vector of {descriptor['cardinality']} rows for a file of "
            f"{records}, of which the log says {told}; rebuild the table",
        )
    stats = statistics.text(statistics.loosened(file.stats or {}, records))
    vector = dict(descriptor)
    return {"add": {**file.action, "dataChange": True, "stats": stats, "deletionVector": vector}}


def milliseconds(at: datetime) -> int:
    """Milliseconds since 1970; *at* has a zone."""
    return int(at.astimezone(UTC).timestamp() * 1_000)
