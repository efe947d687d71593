"""Reads a Delta log into a snapshot: files, metadata and transactions as of one version.

An `add` is kept exactly as written, because adding a file again must keep every field. Its path
is decoded only to open the file. A log is never read past a missing entry, because rows would
appear twice or not at all.

Checkpoints are found by listing the log folder. `_last_checkpoint` may be missing or old, and a
reader that trusts it reads files that were removed long ago. Classic checkpoints (one file),
multi-part ones, and v2 (a file that names its sidecars) are supported. If a checkpoint cannot
be read, an older one and more entries are used.

`shape_of` digests the part of the metadata that affects rows. Table name, comments, column
order and most properties do not count. A column that is dropped, renamed or retyped counts,
although no file changes. Sluice's own properties count too: they store state that belongs to a
mirror's rows.
"""

import hashlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.delta import deletion_vectors
from pipeline.delta.store import Store
from pipeline.delta.types import physical_name
from pipeline.errors import HeldError, UnreachableError

LOG_FOLDER = "_delta_log"
ENGINE = "Sluice"  # `engineInfo` of each commit of ours begins with it
Action = Mapping[str, Any]  # one line of an entry: {"add": {...}}

_lines = msgspec.json.Decoder()


def entry_name(version: int) -> str:
    """Name of the file of one version's entry."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def entry_digest(content: bytes) -> str:
    """A digest of one entry's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def parse_entry(uri: str, name: str, content: bytes) -> list[Action]:
    """Actions of one file of the log, which has one JSON object per line.

    Raises:
        HeldError: ``log_damaged``.
    """
    try:
        return [_lines.decode(line) for line in content.split(b"\n") if line.strip()]
    except msgspec.DecodeError as error:
        raise log_damaged(uri, f"{name} cannot be read ({error})") from error


def encode_entry(actions: Sequence[Action]) -> bytes:
    """Content of an entry's file."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def commit_id(actions: Iterable[Action]) -> str | None:
    """Id of the commit in an entry's actions; None if Sluice did not write it."""
    for action in actions:
        info = action.get("commitInfo")
        if info and str(info.get("engineInfo", "")).startswith(ENGINE):
            return str(info.get("txnId"))
    return None


def log_damaged(uri: str, what: str) -> HeldError:
    """The error of a log from which the table's content cannot be determined."""
    return HeldError(
        "log_damaged", f"{uri}: {what}; restore {LOG_FOLDER} from a backup, or rebuild the table"
    )


_WHOLE = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-fA-F-]{36})?\.(?:parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_KINDS = ("protocol", "metaData", "txn", "add", "sidecar")  # a snapshot needs no tombstones
_PARSED = {"stats_parsed", "partitionValues_parsed"}


@dataclass(frozen=True, slots=True)
class DeltaCheckpoint:
    """A complete checkpoint; ``names`` are its files, without sidecars."""

    version: int
    names: tuple[str, ...]


def complete_checkpoints(names: Sequence[str]) -> list[DeltaCheckpoint]:
    """Complete checkpoints among the file names of a log folder, newest first."""
    found = [DeltaCheckpoint(int(m[1]), (m[0],)) for m in map(_WHOLE.fullmatch, names) if m]
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for match in map(_PART.fullmatch, names):
        if match:
            parts[int(match[1]), int(match[3])].append(match[0])
    found += [
        DeltaCheckpoint(version, tuple(own)) for (version, n), own in parts.items() if len(own) == n
    ]
    return sorted(found, key=lambda one: one.version, reverse=True)


def read_checkpoint(store: Store, checkpoint: DeltaCheckpoint) -> list[Action]:
    """Protocol, metadata, transactions and active files as of the checkpoint's version.

    Raises:
        FileNotFoundError: a part of it is missing.
        HeldError: ``log_damaged``, a part of it cannot be read.
    """
    actions: list[Action] = []
    for name in checkpoint.names:
        actions += _read(store, f"{LOG_FOLDER}/{name}")
    for sidecar in [action["sidecar"] for action in actions if "sidecar" in action]:
        file = str(sidecar["path"]).rpartition("/")[2]
        actions += _read(store, f"{LOG_FOLDER}/_sidecars/{file}")
    return actions


def _read(store: Store, name: str) -> Iterator[Action]:
    if name.endswith(".json"):
        yield from parse_entry(store.uri, name, store.read(name))
        return
    try:
        with store.source(name) as source:
            file = pq.ParquetFile(source)
            table = file.read(columns=_columns(file.schema_arrow))
    except pa.ArrowException as error:
        raise log_damaged(store.uri, f"{name} cannot be read ({error})") from error
    for kind in table.column_names:
        for value in _values(table[kind].combine_chunks()):
            yield {kind: value}


def _columns(schema: pa.Schema) -> list[str]:
    """Columns to read; what a checkpoint has both as JSON and parsed is read as JSON."""
    wanted = [kind for kind in _KINDS if kind in schema.names and kind != "add"]
    if "add" in schema.names:
        fields = {field.name for field in schema.field("add").type}
        spare = _PARSED if "stats" in fields else _PARSED - {"stats_parsed"}
        wanted += [f"add.{name}" for name in sorted(fields - spare)]
    return wanted


def _values(column: pa.StructArray) -> Iterator[dict[str, Any]]:
    """One dict per valid row, without nulls; conversion by column takes a tenth of the time."""
    rows = column.filter(pc.is_valid(column))
    names = [field.name for field in rows.type]
    fields = [_texts(rows.field(i)) for i in range(len(names))]
    for values in zip(*fields, strict=True):
        row = {name: v for name, v in zip(names, values, strict=True) if v is not None}
        if (parsed := row.pop("stats_parsed", None)) is not None and "stats" not in row:
            row["stats"] = _stats(parsed)
        yield row


def _texts(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not pa.types.is_nested(column.type):
        return values
    return [_plain(value, column.type) for value in values]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert maps to dicts, and structs to dicts without nulls."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(value[field.name], field.type) for field in kind}
        return {name: inner for name, inner in fields.items() if inner is not None}
    return value


def _stats(parsed: Mapping[str, Any]) -> str:
    """Parsed statistics as JSON, without bounds of types whose JSON text would differ."""
    return msgspec.json.encode(_safe(parsed)).decode()


def _safe(values: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            kept[name] = _safe(value)
        elif isinstance(value, bool | int | str) or type(value) is date:
            kept[name] = value
    return kept


_OWN = "sluice."
_ASIDE = {"metadata", "nullable", "containsNull", "valueContainsNull"}


def shape_of(described: Action) -> str:
    """Digest of the part of a ``metaData`` action that affects rows."""
    properties = (described.get("configuration") or {}).items()
    own = sorted((name, value) for name, value in properties if name.startswith(_OWN))
    columns = _column_shape(str(described.get("schemaString") or "{}"))
    parts = (described.get("id"), described.get("partitionColumns") or [], columns, own)
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4_096)
def _column_shape(schema_string: str) -> str:
    """Columns with their names in files and their types, sorted by name."""
    fields = json.loads(schema_string).get("fields") or []
    return json.dumps(sorted((_kind(one) for one in fields), key=lambda one: str(one["name"])))


def _kind(node: Any) -> Any:
    """A field or type of Delta's schema JSON, without nullability and comments."""
    if isinstance(node, list):
        return [_kind(one) for one in node]
    if isinstance(node, str):
        return node.replace(" ", "")  # decimal(10, 0)
    if not isinstance(node, dict):
        return node
    kept = {name: _kind(value) for name, value in node.items() if name not in _ASIDE}
    if "metadata" in node:
        kept |= {"name": node["name"], "in files": physical_name(node)}
    return dict(sorted(kept.items()))


_ENTRY = re.compile(r"(\d{20})\.json")
_ABSOLUTE = re.compile(r"/|[a-zA-Z][a-zA-Z0-9+.-]*:/")
_AHEAD = 16  # versions probed beyond the newest entry found, to notice a hole in the log
_ATTEMPTS = 3  # a listing may miss new files, and contain files that are removed meanwhile
_exact = msgspec.json.Decoder(float_hook=Decimal)


@dataclass(frozen=True)  # without slots, because of the cached properties
class ActiveFile:
    """One active file of a table; ``action`` is its ``add`` as the log has it."""

    action: Action

    @cached_property
    def path(self) -> str:
        """Decoded path, as the store takes it.

        Raises:
            HeldError: ``protocol``, the file is outside the table's folder, as in a shallow clone.
        """
        written = str(self.action["path"])
        if _ABSOLUTE.match(written):
            raise HeldError(
                "protocol", f"shallow clone: {written} lies in another folder; make a deep copy"
            )
        return unquote(written)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self.action["size"])

    @cached_property
    def stats(self) -> Mapping[str, Any] | None:
        """Statistics, fractions as Decimal; None if they are missing or unreadable."""
        text = self.action.get("stats")
        try:
            found = _exact.decode(text) if text else None
        except (msgspec.DecodeError, ArithmeticError):  # such as another writer's NaN
            return None
        return found if isinstance(found, dict) else None

    @property
    def records(self) -> int | None:
        """Rows in the file, deleted ones included; None if the log does not have the number."""
        found = (self.stats or {}).get("numRecords")
        return found if isinstance(found, int) else None

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Descriptor of the deletion vector; None if no row is deleted."""
        return self.action.get("deletionVector")

    @property
    def partition(self) -> Mapping[str, str | None]:
        """Partition values as text."""
        return self.action.get("partitionValues") or {}


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's identity, columns and properties; ``action`` is the whole ``metaData``."""

    action: Action
    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def of(cls, action: Action) -> "Metadata":
        """Read a ``metaData`` action."""
        return cls(
            action,
            str(action["id"]),
            str(action["schemaString"]),
            tuple(action.get("partitionColumns") or ()),
            dict(action.get("configuration") or {}),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version.

    ``files`` is keyed by the paths as in the log; ``transactions`` has each application's newest
    version.  ``commit_id`` is that of Sluice's newest commit, None if no entry that was read has
    one.  ``entry`` is the digest of the newest entry, "" if only a checkpoint was read.
    ``checkpoint`` is the version of the checkpoint that was read, -1 without one.
    """

    uri: str
    version: int
    protocol: Action
    metadata: Metadata
    files: Mapping[str, ActiveFile] = field(repr=False)
    transactions: Mapping[str, int]
    commit_id: str | None = None
    entry: str = ""
    checkpoint: int = field(default=-1, compare=False)

    @property
    def rows(self) -> int | None:
        """Number of rows that are not deleted; None if the log does not have each file's number."""
        total = 0
        for file in self.files.values():
            if (records := file.records) is None:
                return None
            total += records - (int(file.vector["cardinality"]) if file.vector else 0)
        return total

    @property
    def id(self) -> str:
        """The table's id, which does not depend on its folder."""
        return self.metadata.id

    @property
    def shape(self) -> str:
        """Digest of the part of the metadata that affects rows."""
        return shape_of(self.metadata.action)

    @property
    def remembered(self) -> Mapping[str, str]:
        """The table's properties, Sluice's own included."""
        return self.metadata.configuration

    @property
    def vector_files(self) -> frozenset[str]:
        """Names of the vector files that the table uses, relative to the table."""
        used = (file.vector for file in self.files.values())
        names = (deletion_vectors.file_name(one) for one in used if one is not None)
        return frozenset(name for name in names if name is not None)


def load_snapshot(store: Store, known: Snapshot | None = None) -> Snapshot | None:
    """Load the newest version; None if no table exists.

    If the entry of *known* is unchanged, only the entries after it are read.

    Raises:
        HeldError: ``log_damaged``, the log has a hole or cannot be read; ``table_replaced``, the
            folder does not have the table of *known* any more.
        UnreachableError: an entry is empty.
    """
    newest = None if known is None else _read_on(store, known)
    if newest is not None:
        return newest
    newest = _read_again(store)
    if known is not None and (newest is None or newest.metadata.id != known.metadata.id):
        raise HeldError(
            "table_replaced",
            f"table {known.metadata.id} at {store.uri} was deleted or replaced; restore it, or"
            " change `lake:`",
        )
    return newest


def load_version(store: Store, version: int) -> Snapshot:
    """Load a given version.

    Raises:
        HeldError: ``log_damaged``, the log cannot be read completely up to it.
        UnreachableError: the log does not have that version.
    """
    found = _read_again(store, version)
    if found is None or found.version != version:
        raise UnreachableError(f"{store.uri}: its log has no version {version}")
    return found


def empty_snapshot(uri: str) -> Snapshot:
    """The snapshot before version 0, whose version is -1."""
    return Snapshot(uri, -1, {}, Metadata({}, "", "", (), {}), {}, {})


def advance_snapshot(snapshot: Snapshot, actions: Sequence[Action], *, entry: str) -> Snapshot:
    """The version after *snapshot*: apply all ``remove`` of *actions*, then all ``add``.

    *entry* is the digest of the entry.

    Raises:
        HeldError: ``log_damaged``, an active file is added with another vector, so its rows would
            count twice.
    """
    files = dict(snapshot.files)
    for action in actions:
        if (gone := action.get("remove")) is not None:
            _drop(files, gone)
    for action in actions:
        if (new := action.get("add")) is not None:
            _take(files, new, snapshot.uri)
    done = dict(snapshot.transactions)
    for action in actions:
        if (txn := action.get("txn")) is not None:
            done[txn["appId"]] = int(txn["version"])
    described = _last(actions, "metaData")
    return replace(
        snapshot,
        version=snapshot.version + 1,
        protocol=_last(actions, "protocol") or snapshot.protocol,
        metadata=Metadata.of(described) if described else snapshot.metadata,
        files=files,
        transactions=done,
        commit_id=commit_id(actions) or snapshot.commit_id,
        entry=entry,
    )


def _read_on(store: Store, known: Snapshot) -> Snapshot | None:
    """Read the entries after *known*; None if the whole log must be read again."""
    if not known.entry:
        return None
    try:
        if entry_digest(store.read(entry_name(known.version))) != known.entry:
            return None
        return _advance(store, known, max(_newer(store, known.version), default=known.version))
    except FileNotFoundError:  # log cleaning removed an entry, or the log has a hole
        return None


def read_digest(store: Store, version: int) -> str:
    """The digest of one version's entry; empty if the log does not have that entry."""
    try:
        return entry_digest(store.read(entry_name(version)))
    except FileNotFoundError:
        return ""


def is_newest(store: Store, version: int, digest: str) -> bool:
    """Whether the entry of *version* still has *digest*, and no entry follows it."""
    same = bool(digest) and read_digest(store, version) == digest
    return same and not _newer(store, version)


def _newer(store: Store, version: int) -> list[int]:
    """Versions above *version* that have an entry, ascending.

    A local folder is probed, not listed, because a log has the entries of a month.  Entries after
    a hole of more than ``_AHEAD`` versions are then not found.
    """
    if store.ranged:
        return _versions(store.after(LOG_FOLDER, f"{version:020d}.json"))
    found: list[int] = []
    ahead = version + 1
    while ahead <= (found or [version])[-1] + _AHEAD:
        if store.exists(entry_name(ahead)):
            found.append(ahead)
        ahead += 1
    return found


def _read_again(store: Store, until: int = sys.maxsize) -> Snapshot | None:
    """Load the newest version up to *until* from the whole log; None if no table exists."""
    missing = ""
    for _ in range(_ATTEMPTS):
        names = store.after(LOG_FOLDER, "")
        versions = [one for one in _versions(names) if one <= until]
        checkpoints = [one for one in complete_checkpoints(names) if one.version <= until]
        if not versions and not checkpoints:
            return None
        # if a checkpoint cannot be used, an older one or none, and more entries, are read
        for checkpoint in (*checkpoints, None):
            try:
                return _read_log(store, checkpoint, versions)
            except (FileNotFoundError, HeldError) as error:
                missing = missing or str(error)
    raise log_damaged(store.uri, f"its log cannot be read whole ({missing})")


def _read_log(
    store: Store, checkpoint: DeltaCheckpoint | None, versions: Sequence[int]
) -> Snapshot:
    """Read *checkpoint* and all entries of *versions* after it.

    Raises:
        FileNotFoundError: the log has a hole.
        HeldError: ``log_damaged``.
    """
    snapshot = empty_snapshot(store.uri)
    if checkpoint is not None:
        version, held = checkpoint.version, read_checkpoint(store, checkpoint)
        entry = ""
        if version in versions:  # a checkpoint does not say who wrote the newest entry
            own, entry = _entry(store, version)
            held += [action for action in own if "commitInfo" in action]
        before = replace(snapshot, version=version - 1, checkpoint=version)
        snapshot = advance_snapshot(before, held, entry=entry)
    snapshot = _advance(store, snapshot, max(versions, default=-1))
    if not snapshot.protocol or not snapshot.metadata.action:
        raise log_damaged(store.uri, "its log names no protocol or no columns")
    return snapshot


def _advance(store: Store, snapshot: Snapshot, newest: int) -> Snapshot:
    """Apply every entry up to version *newest*; FileNotFoundError if one is missing."""
    for version in range(snapshot.version + 1, newest + 1):
        actions, entry = _entry(store, version)
        snapshot = advance_snapshot(snapshot, actions, entry=entry)
    return snapshot


def _entry(store: Store, version: int) -> tuple[list[Action], str]:
    """Actions of one entry, and its digest.

    Raises:
        UnreachableError: it has no action.  Our entries are complete when they appear.  Another
            writer's may still be written, and a commit after it would not know its rows.
    """
    name = entry_name(version)
    content = store.read(name)
    actions = parse_entry(store.uri, name, content)
    if not any(actions):
        raise UnreachableError(
            f"{store.uri}: {name} is empty: another writer is writing it, or has crashed; "
            "Sluice reads it again automatically. If that writer is gone, remove the file, or "
            "restore it from a backup if later entries exist"
        )
    return actions, entry_digest(content)


def _versions(names: Sequence[str]) -> list[int]:
    return [int(match[1]) for match in map(_ENTRY.fullmatch, names) if match]


def _drop(files: dict[str, ActiveFile], gone: Action) -> None:
    path = gone["path"]
    if path not in files:  # another writer may encode a path differently
        path = next((one for one in files if unquote(one) == unquote(path)), path)
    active = files.get(path)
    # a remove refers to a file with its vector; with another vector it means an older state
    if active is not None and _same(active.vector, gone.get("deletionVector")):
        del files[path]


def _take(files: dict[str, ActiveFile], new: Action, uri: str) -> None:
    path = str(new["path"])
    active = files.get(path)
    if active is not None and not _same(active.vector, new.get("deletionVector")):
        raise log_damaged(uri, f"its log holds {path} twice, with two deletion vectors")
    files[path] = ActiveFile(new)


def _same(one: Action | None, other: Action | None) -> bool:
    return deletion_vectors.vector_identity(one) == deletion_vectors.vector_identity(other)


def _last(actions: Sequence[Action], kind: str) -> Action | None:
    found = [action[kind] for action in actions if action.get(kind) is not None]
    return found[-1] if found else None
