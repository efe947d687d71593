"""Do a commit's actions agree with the table, each other and the files that are there?

Nobody after us looks: a reader believes the log, and counts twice or fails.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.errors import HeldError
from pipeline.lake import columns, protocol, vectors
from pipeline.lake.entries import Action
from pipeline.lake.log import ActiveFile, Snapshot
from pipeline.lake.store import Store

_KINDS = {"add", "remove", "metaData", "protocol"}
_CHANGED = {"dataChange", "stats", "deletionVector"}  # what a vector changes in an add


def agree(snapshot: Snapshot, actions: Sequence[Action]) -> None:
    """Return only if the actions lead from *snapshot* to a table with every row once.

    Raises:
        ValueError: they do not; the caller is wrong, or worked on another version.
    """
    for action in actions:
        if len(action) != 1 or not _KINDS.issuperset(action):
            raise ValueError(f"an action is one of {sorted(_KINDS)}, not {sorted(action)}")
    removes = _by_path(action["remove"] for action in actions if "remove" in action)
    adds = _by_path(action["add"] for action in actions if "add" in action)
    for path, gone in removes.items():
        active = snapshot.files.get(path)
        if active is None:
            raise ValueError(f"remove of {path}, which is not in version {snapshot.version}")
        if active.vector != gone.get("deletionVector"):
            raise ValueError(f"remove of {path} with another vector than it has")
    partitions = columns.partition_names(snapshot.metadata)
    for path, new in adds.items():
        known = snapshot.files.get(path)
        if known is not None and path not in removes:
            raise ValueError(f"add of {path}, which is there, without a remove")
        if known is not None:
            _kept(known, new)
        if set(new["partitionValues"]) != partitions:
            raise ValueError(f"add of {path} with other partition columns than the table's")
        _counted(new)
    for described in (action["metaData"] for action in actions if "metaData" in action):
        if described["id"] != snapshot.metadata.id:
            raise ValueError("metaData of another table")


def vectors_heeded(following: Snapshot, actions: Iterable[Action]) -> None:
    """Refuse a vector in a table whose readers pass over it.

    Raises:
        HeldError: ``protocol``.
    """
    if protocol.writes_vectors(following):
        return
    if any(action.get("add", {}).get("deletionVector") for action in actions):
        raise HeldError(
            "protocol",
            f"{following.uri}: deletion vectors are not switched on; set {protocol.VECTORS}",
        )


def files_there(store: Store, snapshot: Snapshot, actions: Iterable[Action]) -> None:
    """Look at each new file and each new vector's: a writer may be later than a VACUUM.

    Raises:
        HeldError: ``missing_file``.
    """
    adds = [ActiveFile(action["add"]) for action in actions if "add" in action]
    for file in adds:
        if file.action["path"] not in snapshot.files:
            _look(store, file.path, file.size)
    new = [file.vector for file in adds if file.vector is not None]
    ends: dict[str, int] = {}
    for descriptor in new:
        if (name := vectors.file_name(descriptor)) is not None:
            end = int(descriptor.get("offset") or 0) + int(descriptor["sizeInBytes"]) + 8
            ends[name] = max(end, ends.get(name, 0))
    for name, end in ends.items():
        _look(store, name, end)


def _look(store: Store, name: str, size: int) -> None:
    try:
        found = store.size(name)
    except FileNotFoundError:
        found = -1
    wanted = found >= size if name.endswith(".bin") else found == size
    if not wanted:
        told = "is gone" if found < 0 else f"has {found} bytes instead of {size}"
        raise HeldError(
            "missing_file", f"{store.uri}/{name} {told}; nothing was committed, write it again"
        )


def _by_path(files: Iterable[Action]) -> dict[str, Action]:
    found: dict[str, Action] = {}
    for file in files:
        path = str(file["path"])
        if path in found:
            raise ValueError(f"two actions of one kind for {path}")
        found[path] = file
    return found


def _kept(known: ActiveFile, new: Action) -> None:
    if _unchanged(known.action) != _unchanged(new):
        raise ValueError(f"add of {new['path']} must keep every field that it had")


def _unchanged(action: Action) -> dict[str, Any]:
    return {name: value for name, value in action.items() if name not in _CHANGED}


def _counted(new: Action) -> None:
    """What Spark answers ``count(*)`` from."""
    file = ActiveFile(new)
    if file.vector is None:
        return
    if file.records is None or not 0 < file.vector["cardinality"] <= file.records:
        raise ValueError(f"add of {new['path']}: a vector needs numRecords, and no more rows")
    if (file.stats or {}).get("tightBounds") is not False:
        raise ValueError(f"add of {new['path']}: bounds beside a vector are not tight")
