"""Commits the next version of a Delta table at most once, and validates its actions first.

A writer that read version v writes entry v + 1 if it does not exist. Nothing is rebased or
retried here. The commit id in the entry identifies its writer, even if the response was lost.

The actions must be consistent with the table, with each other and with the existing files. No
later step checks this: readers trust the log, and would count rows twice or fail.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from pipeline.delta import deletion_vectors, protocol
from pipeline.delta.actions import to_milliseconds
from pipeline.delta.log import (
    ENGINE,
    LOG_FOLDER,
    Action,
    ActiveFile,
    Snapshot,
    advance_snapshot,
    commit_id,
    empty_snapshot,
    encode_entry,
    entry_digest,
    entry_name,
    parse_entry,
)
from pipeline.delta.store import Store
from pipeline.errors import HeldError, LostRaceError, UnreachableError

_KINDS = {"add", "remove", "metaData", "protocol"}
_CHANGED = {"dataChange", "stats", "deletionVector"}  # fields that differ in an add with a vector


def require_agreement(snapshot: Snapshot, actions: Sequence[Action]) -> None:
    """Raise unless the actions lead from *snapshot* to a table in which each row counts once.

    Raises:
        ValueError: the caller has an error, or worked on another version.
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
    partitions = protocol.partition_names(snapshot.metadata)
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


def require_vectors_kept(following: Snapshot, actions: Iterable[Action]) -> None:
    """Reject deletion vectors in a table whose readers would ignore them.

    Raises:
        HeldError: ``protocol``, the table does not enable deletion vectors.
    """
    if protocol.writes_vectors(following):
        return
    if any(action.get("add", {}).get("deletionVector") for action in actions):
        raise HeldError(
            "protocol",
            f"{following.uri}: deletion vectors are not switched on; set {protocol.VECTORS}",
        )


def require_files(store: Store, snapshot: Snapshot, actions: Iterable[Action]) -> None:
    """Require the size of each new data file and vector file: a VACUUM may have removed it.

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
        if (name := deletion_vectors.file_name(descriptor)) is not None:
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
        problem = "is gone" if found < 0 else f"has {found} bytes instead of {size}"
        raise HeldError(
            "missing_file", f"{store.uri}/{name} {problem}; nothing was committed, write it again"
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
    """Require statistics that fit the vector, because Spark answers ``count(*)`` from them."""
    file = ActiveFile(new)
    if file.vector is None:
        return
    if file.records is None or not 0 < file.vector["cardinality"] <= file.records:
        raise ValueError(f"add of {new['path']}: a vector needs numRecords, and no more rows")
    if (file.stats or {}).get("tightBounds") is not False:
        raise ValueError(f"add of {new['path']}: bounds beside a vector are not tight")


def commit_actions(
    store: Store,
    snapshot: Snapshot,
    actions: Sequence[Action],
    *,
    operation: str,
    clock: datetime,
    note: Mapping[str, Any] | None = None,
    txn: tuple[str, int] | None = None,
    metrics: Mapping[str, int] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Snapshot:
    """Write *actions* as the version after *snapshot*, and return its snapshot.

    The actions are ``add``, ``remove``, ``metaData`` and ``protocol``.  *note* is stored as JSON in
    the commit's user metadata; *txn* is an application's id and transaction number.

    Raises:
        LostRaceError: another commit has that version; ours is not in the log.
        UnreachableError: it is unknown whether ours is in the log; read the log again.
        HeldError: ``protocol``, Sluice does not write such a table; ``missing_file``, a file is
            missing or has another size; ``table_replaced``, the entry of *snapshot* is missing or
            differs.
        ValueError: the actions contradict the snapshot or each other.
    """
    protocol.require_writable(snapshot)
    require_agreement(snapshot, actions)
    info = _make_commit_info(operation, clock, note, metrics or {}, parameters or {})
    info |= {"readVersion": snapshot.version}
    lines = [{"commitInfo": info}, *_transaction(txn, clock), *_ordered(actions)]
    content = encode_entry(lines)
    following = advance_snapshot(snapshot, lines, entry=entry_digest(content))
    protocol.require_writable(following)
    require_vectors_kept(following, actions)
    require_files(store, snapshot, actions)
    _still_there(store, snapshot)
    _put(store, following.version, content, own=info["txnId"])
    return following


def create_table(
    store: Store,
    schema: pa.Schema,
    *,
    clock: datetime,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    note: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Create an empty table, with deletion vectors unless *configuration* disables them.

    Raises:
        HeldError: ``table_exists``, or Delta cannot hold *schema*.
        LostRaceError: another writer created a table there at the same time.
    """
    if store.after(LOG_FOLDER, "0"):
        raise _exists(store.uri)
    asked = {protocol.VECTORS: "true", **(configuration or {})}
    if protocol.mapping_needed(schema):
        asked[protocol.MODE] = "name"
    text, properties = protocol.describe_table(schema, asked)
    described = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": list(partition_columns),
        "configuration": properties,
        "createdTime": to_milliseconds(clock),
    }
    info = _make_commit_info(
        "CREATE TABLE", clock, note, {}, _listed(partition_columns, properties)
    )
    lines = [
        {"commitInfo": info},
        protocol.our_protocol(schema, properties),
        {"metaData": described},
    ]
    return _begin_table(store, lines)


def create_clone(
    store: Store, table: Snapshot, *, clock: datetime, parameters: Mapping[str, str]
) -> Snapshot:
    """Create a table in *store* with the protocol, metadata and ``add`` actions of *table*.

    The data files are not copied.

    Raises:
        HeldError: ``table_exists``; ``protocol``, Sluice does not write such a table.
        LostRaceError: another writer created a table there at the same time.
    """
    if store.after(LOG_FOLDER, "0"):
        raise _exists(store.uri)
    lines: list[Action] = [
        {"commitInfo": _make_commit_info("CLONE", clock, None, {}, parameters)},
        {"protocol": table.protocol},
        {"metaData": table.metadata.action},
        *({"add": file.action} for file in table.files.values()),
    ]
    return _begin_table(store, lines)


def _begin_table(store: Store, lines: Sequence[Action]) -> Snapshot:
    """Write version 0 if it is absent; the first of *lines* identifies its writer."""
    content = encode_entry(lines)
    made = advance_snapshot(empty_snapshot(store.uri), lines, entry=entry_digest(content))
    protocol.require_writable(made)
    store.make_folder(LOG_FOLDER)
    _put(store, 0, content, own=lines[0]["commitInfo"]["txnId"])
    return made


def _exists(uri: str) -> HeldError:
    return HeldError(
        "table_exists",
        f"{uri}: a table's log is there already; a rebuild is a commit in that log, since a late "
        "writer of the old table would damage a new one",
    )


def _make_commit_info(
    operation: str,
    clock: datetime,
    note: Mapping[str, Any] | None,
    metrics: Mapping[str, int],
    parameters: Mapping[str, str],
) -> dict[str, Any]:
    """The ``commitInfo`` of an entry; its values must be flat texts, or DESCRIBE HISTORY fails."""
    said = {} if note is None else {"userMetadata": msgspec.json.encode(note).decode()}
    return {
        "timestamp": to_milliseconds(clock),
        "operation": operation,
        "operationParameters": {name: str(value) for name, value in parameters.items()},
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        **said,
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid4()),
    }


def _transaction(txn: tuple[str, int] | None, clock: datetime) -> list[Action]:
    if txn is None:
        return []
    app, version = txn
    return [{"txn": {"appId": app, "version": version, "lastUpdated": to_milliseconds(clock)}}]


def _ordered(actions: Iterable[Action]) -> list[Action]:
    kinds = ("protocol", "metaData", "remove", "add")
    return sorted(actions, key=lambda action: kinds.index(next(iter(action))))


def _listed(partition_columns: Sequence[str], properties: Mapping[str, str]) -> dict[str, str]:
    parts = msgspec.json.encode(list(partition_columns)).decode()
    return {"partitionBy": parts, "properties": msgspec.json.encode(properties).decode()}


def _still_there(store: Store, snapshot: Snapshot) -> None:
    """Require the entry of *snapshot*: a commit after a missing version makes the log unreadable.

    Raises:
        HeldError: ``table_replaced``.
    """
    name = entry_name(snapshot.version)
    try:
        found = entry_digest(store.read(name))
    except FileNotFoundError:
        found = ""
    if not found or found != snapshot.entry:
        raise HeldError(
            "table_replaced",
            f"{store.uri}: the table was deleted or replaced while Sluice wrote ({name} is missing"
            " or differs); restore its folder, or set `lake` to another one",
        )


def _put(store: Store, version: int, content: bytes, *, own: str) -> None:
    name = entry_name(version)
    try:
        store.put_new(name, content)
    except (OSError, UnreachableError) as error:  # the existing entry may be ours, sent twice
        found = _outcome(store, name, own)
        if found is None:
            raise UnreachableError(
                f"{store.uri}: whether version {version} was written is not known ({error}); "
                "read the log again"
            ) from error
        if not found:
            raise LostRaceError(f"{store.uri}: another commit is version {version}") from error


def _outcome(store: Store, name: str, own: str) -> bool | None:
    """Whether the existing entry is ours; None if it is missing or cannot be read."""
    try:
        return _is_ours(store, name, own)
    except (OSError, UnreachableError):
        return None


def _is_ours(store: Store, name: str, own: str) -> bool:
    return commit_id(parse_entry(store.uri, name, store.read(name))) == own
