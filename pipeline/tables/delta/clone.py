"""Makes one version of a mirror a table of its own, without copying its files.

The result is a shallow clone. Its log names the files, and their deletion vectors, by their
addresses in the mirror's folder. See "Add File and Remove File" and "Deletion Vectors" (storage
type ``p``) in Delta's protocol. It can be read while the mirror keeps them. The rows that a
correction adds or deletes are stored in the clone's own folder, so the mirror does not change.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.apply.merge import MergeTask
from pipeline.delta import deletion_vectors
from pipeline.delta.actions import to_milliseconds
from pipeline.delta.commit import create_clone
from pipeline.delta.log import ActiveFile, Metadata, Snapshot, advance_snapshot
from pipeline.delta.protocol import fields_in_files
from pipeline.delta.store import Store
from pipeline.errors import HeldError
from pipeline.tables.delta.files import Footers
from pipeline.tables.delta.merge import run_merge

_OWN = "sluice."  # properties that make a table a mirror

Correct = Callable[[Snapshot], MergeTask[Snapshot]]


def clone_version(
    base: Snapshot, mirror: Store, into: Store, at: datetime, correct: Correct | None = None
) -> int:
    """Create a table with the rows of *base* after *correct*; return how many more rows it has.

    Raises:
        HeldError: ``table_exists``; ``missing_file``, *base* can no longer be read; or the merge
            cannot be done; the reason says why.
        LostRaceError: another writer created a table there meanwhile.
    """
    _require_files(base, mirror)
    after, more = base, 0
    if correct is not None:
        task = _as_then(correct(base), base)
        written = run_merge(task, footers=Footers(), into=into)
        after = advance_snapshot(base, written.work, entry="")
        counts = written.counts
        more = counts.inserted - counts.deleted - counts.floored
    address = to_address(mirror.uri)
    files = [_abroad(file, address, base) for file in after.files.values()]
    described = replace(
        after,
        metadata=_another(after.metadata, at),
        files={str(file.action["path"]): file for file in files},
    )
    parameters = {"source": address, "sourceVersion": str(base.version)}
    create_clone(into, described, clock=at, parameters=parameters)
    return more


def _require_files(base: Snapshot, mirror: Store) -> None:
    """Check that all files of *base* exist, because its log names them for longer."""
    named = {*base.vector_files, *(file.path for file in base.files.values())}
    folders = {name.rpartition("/")[0] for name in named}
    there = {one.name for folder in sorted(folders) for one in mirror.names(folder)}
    if gone := sorted(named - there):
        what = f"{base.uri}: a vacuum deleted {len(gone)} files of version {base.version}"
        fix = "increase pipeline.upkeep.keep_versions"
        raise HeldError("missing_file", f"{what}, such as {gone[0]}; {fix}")


def _as_then(task: MergeTask[Snapshot], base: Snapshot) -> MergeTask[Snapshot]:
    """The merge without columns added later; a change that has one is refused by name."""
    known = {field["name"] for field in fields_in_files(base.metadata)}
    columns = tuple(one for one in task.columns if one.name in known)
    fills = tuple(one for one in task.fills if one.column in known)
    return replace(task, columns=columns, fills=fills)


def to_address(uri: str) -> str:
    """The address of a folder as a log must name it.

    A bucket of S3 gets the scheme that all readers except Hadoop know (``s3``); Hadoop can be
    configured for it.
    """
    if ":/" in uri:
        return uri.replace("s3a://", "s3://", 1)
    return f"file://{quote(str(Path(uri).absolute()))}"


def _abroad(file: ActiveFile, address: str, base: Snapshot) -> ActiveFile:
    """The file as it is named from elsewhere; a file that is not the mirror's is unchanged."""
    action, path = dict(file.action), str(file.action["path"])
    if path in base.files:
        action["path"] = f"{address}/{path}"
    if file.vector is not None:
        action["deletionVector"] = _vector_abroad(file.vector, address, base)
    return ActiveFile(action)


def _vector_abroad(vector: Mapping[str, Any], address: str, base: Snapshot) -> Mapping[str, Any]:
    name = deletion_vectors.file_name(vector)
    if name is None or name not in base.vector_files:
        return vector
    return {**vector, "storageType": "p", "pathOrInlineDv": f"{address}/{name}"}


def _another(metadata: Metadata, at: datetime) -> Metadata:
    """The same columns, for a table that is not a mirror."""
    kept = {name: one for name, one in metadata.configuration.items() if not _is_ours(name)}
    changed = {"id": str(uuid.uuid4()), "configuration": kept, "createdTime": to_milliseconds(at)}
    return Metadata.of({**metadata.action, **changed})


def _is_ours(name: str) -> bool:
    return name.startswith(_OWN)
