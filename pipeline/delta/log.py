"""Reads a Delta log into a snapshot: files, metadata and transactions as of one version.

An `add` is kept exactly as written, because adding a file again must keep every field. Its path
is decoded only to open the file. A log with a missing entry is never read past it: a reader
would see rows twice or not at all.

Checkpoints are found by listing the log folder. `_last_checkpoint` may be missing or old, and a
reader that trusts it reads files that were removed long ago. Supported are classic checkpoints
(one file), multi-part ones, and v2 (a file that names its sidecars). If a checkpoint cannot be
read, an older one and more entries are used.

`shape_of` digests what the metadata says about rows. Table name, comments, column order and
most properties do not count. A column that is dropped, renamed or retyped does, although no
file changes. So do Sluice's own properties, which store the state that belongs to a mirror's
rows.
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
ENGINE = "Sluice"  # how every commit of ours names its writer
Action = Mapping[str, Any]  # one line of an entry: {"add": {...}}

_lines = msgspec.json.Decoder()


def entry_name(version: int) -> str:
    """File of one version's entry."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def entry_digest(content: bytes) -> str:
    """A digest of one entry's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def parse_entry(uri: str, name: str, content: bytes) -> list[Action]:
    """Actions of one file of the log, one JSON object in a line.

    Raises:
        HeldError: ``log_damaged``.
    """
    try:
        return [_lines.decode(line) for line in content.split(b"\n") if line.strip()]
    except msgspec.DecodeError as error:
        raise log_damaged(uri, f"{name} cannot be read ({error})") from error


def encode_entry(actions: Sequence[Action]) -> bytes:
    """An entry's file."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def commit_id(actions: Iterable[Action]) -> str | None:
    """Id of the commit that an entry's actions make up, if it is one of Sluice's."""
    for action in actions:
        info = action.get("commitInfo")
        if info and str(info.get("engineInfo", "")).startswith(ENGINE):
            return str(info.get("txnId"))
    return None


def log_damaged(uri: str, what: str) -> HeldError:
    """It is not known what the table holds."""
    return HeldError(
        "log_damaged", f"{uri}: {what}; restore {LOG_FOLDER} from a backup, or rebuild the table"
    )


_WHOLE = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-fA-F-]{36})?\.(?:parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_KINDS = ("protocol", "metaData", "txn", "add", "sidecar")  # tombstones are of no use here
_PARSED = {"stats_parsed", "partitionValues_parsed"}


@dataclass(frozen=True, slots=True)
class DeltaCheckpoint:
    """A complete checkpoint: the files it is made of, sidecars aside."""

    version: int
    names: tuple[str, ...]


def complete_checkpoints(names: Sequence[str]) -> list[DeltaCheckpoint]:
    """Complete checkpoints among the names of a log's folder, newest first."""
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
        FileNotFoundError: a part of it is gone.
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
    """All that is needed; what is there twice, as JSON and parsed, is read as JSON."""
    wanted = [kind for kind in _KINDS if kind in schema.names and kind != "add"]
    if "add" in schema.names:
        fields = {field.name for field in schema.field("add").type}
        spare = _PARSED if "stats" in fields else _PARSED - {"stats_parsed"}
        wanted += [f"add.{name}" for name in sorted(fields - spare)]
    return wanted


def _values(column: pa.StructArray) -> Iterator[dict[str, Any]]:
    """One dict a valid row, without what is null; by columns, since rows take ten times as long."""
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
    """Maps as dicts, structs without what is null."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(value[field.name], field.type) for field in kind}
        return {name: inner for name, inner in fields.items() if inner is not None}
    return value


def _stats(parsed: Mapping[str, Any]) -> str:
    """Statistics that were kept parsed only, as JSON; bounds whose text differs are left out."""
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
    """The digest of a ``metaData`` action."""
    properties = (described.get("configuration") or {}).items()
    own = sorted((name, value) for name, value in properties if name.startswith(_OWN))
    columns = _column_shape(str(described.get("schemaString") or "{}"))
    parts = (described.get("id"), described.get("partitionColumns") or [], columns, own)
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4_096)
def _column_shape(schema_string: str) -> str:
    """Columns with their names in files and their types, in no order."""
    fields = json.loads(schema_string).get("fields") or []
    return json.dumps(sorted((_kind(one) for one in fields), key=lambda one: str(one["name"])))


def _kind(node: Any) -> Any:
    """A field or type of Delta's schema JSON, without what is said beside it."""
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
_AHEAD = 16  # names asked for beyond the newest entry found, so that a hole is seen as one
_ATTEMPTS = 3  # a listing may miss what is made meanwhile, and name what is cleaned away
_exact = msgspec.json.Decoder(float_hook=Decimal)


@dataclass(frozen=True)  # without slots: statistics are parsed once, when they are first asked for
class ActiveFile:
    """One file of a table: its ``add`` as the log has it."""

    action: Action

    @cached_property
    def path(self) -> str:
        """Name for the store.

        Raises:
            HeldError: the file lies outside of the table's folder, as in a shallow clone.
        """
        written = str(self.action["path"])
        if _ABSOLUTE.match(written):
            raise HeldError(
                "protocol", f"shallow clone: {written} lies in another folder; make a deep copy"
            )
        return unquote(written)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.action["size"])

    @cached_property
    def stats(self) -> Mapping[str, Any] | None:
        """Statistics with exact numbers; None if there are none, or none that can be read."""
        text = self.action.get("stats")
        try:
            found = _exact.decode(text) if text else None
        except (msgspec.DecodeError, ArithmeticError):  # such as another writer's NaN
            return None
        return found if isinstance(found, dict) else None

    @property
    def records(self) -> int | None:
        """Rows in the file, deleted ones among them."""
        found = (self.stats or {}).get("numRecords")
        return found if isinstance(found, int) else None

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Descriptor of the rows that went."""
        return self.action.get("deletionVector")

    @property
    def partition(self) -> Mapping[str, str | None]:
        """Partition values as text."""
        return self.action.get("partitionValues") or {}


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's identity, columns and properties; *action* is all that the log says."""

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
    version; ``commit_id`` is our newest commit's, None if it lies before what was read; ``entry``
    is a digest of the newest entry, "" if only a checkpoint holds it; ``checkpoint`` is the version
    of the one that was read, -1 if it was read without one.
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
        """Rows that are not deleted; None where the log does not tell of each file."""
        total = 0
        for file in self.files.values():
            if (records := file.records) is None:
                return None
            total += records - (int(file.vector["cardinality"]) if file.vector else 0)
        return total

    @property
    def id(self) -> str:
        """The table's id; it is the same in any folder."""
        return self.metadata.id

    @property
    def shape(self) -> str:
        """What its metadata says of its rows, as a digest."""
        return shape_of(self.metadata.action)

    @property
    def remembered(self) -> Mapping[str, str]:
        """Its properties, Sluice's own among them."""
        return self.metadata.configuration

    @property
    def vector_files(self) -> frozenset[str]:
        """Names of the vector files in use beside the table."""
        used = (file.vector for file in self.files.values())
        names = (deletion_vectors.file_name(one) for one in used if one is not None)
        return frozenset(name for name in names if name is not None)


def load_snapshot(store: Store, known: Snapshot | None = None) -> Snapshot | None:
    """The newest version, read on from *known* where that still stands; None: there is no table.

    Raises:
        HeldError: ``log_damaged``, the log has a hole or cannot be read; ``table_replaced``, not
            the known table stands in the folder.
        UnreachableError: an entry says nothing yet.
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
    """An older version.

    Raises:
        HeldError: ``log_damaged``, the log cannot be read whole up to it.
        UnreachableError: the log does not go back, or does not come, to it.
    """
    found = _read_again(store, version)
    if found is None or found.version != version:
        raise UnreachableError(f"{store.uri}: its log has no version {version}")
    return found


def empty_snapshot(uri: str) -> Snapshot:
    """What is there before version 0."""
    return Snapshot(uri, -1, {}, Metadata({}, "", "", (), {}), {}, {})


def advance_snapshot(snapshot: Snapshot, actions: Sequence[Action], *, entry: str) -> Snapshot:
    """The next version, which *actions* make; within one entry what goes leaves before what comes.

    Raises:
        HeldError: ``log_damaged``, a file is added beside itself; its rows would count twice.
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
    """Read the entries above the known one; None if all must be read again."""
    if not known.entry:
        return None
    try:
        if entry_digest(store.read(entry_name(known.version))) != known.entry:
            return None
        return _advance(store, known, max(_newer(store, known.version), default=known.version))
    except FileNotFoundError:  # cleaned away meanwhile, or a hole
        return None


def read_digest(store: Store, version: int) -> str:
    """The digest of one version's entry; empty if the log does not have that entry (any more)."""
    try:
        return entry_digest(store.read(entry_name(version)))
    except FileNotFoundError:
        return ""


def is_newest(store: Store, version: int, digest: str) -> bool:
    """Whether the entry of *version* is still the one with *digest*, and none comes after it."""
    same = bool(digest) and read_digest(store, version) == digest
    return same and not _newer(store, version)


def _newer(store: Store, version: int) -> list[int]:
    """Versions above *version* whose entry is there; what lies beyond a wide hole is not.

    A folder is asked for names instead of listed: a log holds the entries of a month's merges.
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
    """The newest version, or the last one up to *until*; None: there is no table."""
    missing = ""
    for _ in range(_ATTEMPTS):
        names = store.after(LOG_FOLDER, "")
        versions = [one for one in _versions(names) if one <= until]
        checkpoints = [one for one in complete_checkpoints(names) if one.version <= until]
        if not versions and not checkpoints:
            return None
        # the log is the truth: where a checkpoint is of no use, an older one and more entries do
        for checkpoint in (*checkpoints, None):
            try:
                return _read_log(store, checkpoint, versions)
            except (FileNotFoundError, HeldError) as error:
                missing = missing or str(error)
    raise log_damaged(store.uri, f"its log cannot be read whole ({missing})")


def _read_log(
    store: Store, checkpoint: DeltaCheckpoint | None, versions: Sequence[int]
) -> Snapshot:
    """Read a checkpoint and what follows it; FileNotFoundError is a hole."""
    snapshot = empty_snapshot(store.uri)
    if checkpoint is not None:
        version, held = checkpoint.version, read_checkpoint(store, checkpoint)
        entry = ""
        if version in versions:  # what no checkpoint holds: who wrote the newest entry
            own, entry = _entry(store, version)
            held += [action for action in own if "commitInfo" in action]
        before = replace(snapshot, version=version - 1, checkpoint=version)
        snapshot = advance_snapshot(before, held, entry=entry)
    snapshot = _advance(store, snapshot, max(versions, default=-1))
    if not snapshot.protocol or not snapshot.metadata.action:
        raise log_damaged(store.uri, "its log names no protocol or no columns")
    return snapshot


def _advance(store: Store, snapshot: Snapshot, newest: int) -> Snapshot:
    """Take in every entry up to version *newest*, without a gap."""
    for version in range(snapshot.version + 1, newest + 1):
        actions, entry = _entry(store, version)
        snapshot = advance_snapshot(snapshot, actions, entry=entry)
    return snapshot


def _entry(store: Store, version: int) -> tuple[list[Action], str]:
    """Actions of one entry, and its digest.

    Raises:
        UnreachableError: there is no action in it.  Ours are whole from the first moment; another
            writer's may still be filled in, and a commit on top would not know of its rows.
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
    if path not in files:  # another writer may spell a path in another way
        path = next((one for one in files if unquote(one) == unquote(path)), path)
    active = files.get(path)
    # a remove names a file together with its vector; with another one it speaks of an older state
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
