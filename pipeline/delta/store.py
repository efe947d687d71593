"""Defines how a table's files are stored, so that exactly one writer creates each name.

Names are relative to the folder of the table and use `/`. A name passed to `put_new` appears
complete or not at all, and for one writer only. What `put` and `sink` wrote survives a power
failure once they have returned.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pipeline.delta.local import Entry, Folder
from pipeline.errors import ConfigError

OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")


class Store(Protocol):
    """One table's folder.

    A missing file raises FileNotFoundError.  A failure of the disk or the bucket that may pass (no
    space, no permission, no answer) raises UnreachableError.
    """

    @property
    def uri(self) -> str:
        """The address that was opened, without a slash at its end."""

    @property
    def ranged(self) -> bool:
        """Whether the cost of `after` depends on its result, not on all files in the folder."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read *length* bytes from *start* (fewer at the end); the whole file by default."""

    def after(self, folder: str, name: str) -> list[str]:
        """Names above *name* without the folder, ascending; empty if the folder is missing."""

    def names(self, folder: str) -> list[Entry]:
        """The files directly in *folder*, by name; empty if it is missing."""

    def put_new(self, name: str, data: bytes) -> None:
        """Make a complete file, or raise FileExistsError; never makes a folder."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file under an unused name; makes folders, except the table's own."""

    def sync(self, name: str) -> None:
        """Sync to disk a file that another library wrote here; ignore a missing one."""

    def exists(self, name: str) -> bool:
        """Whether the file exists."""

    def size(self, name: str) -> int:
        """Size in bytes."""

    def remove(self, name: str) -> None:
        """Remove a file; ignore a missing one."""

    def source(self, name: str) -> Any:
        """The open file for ``pyarrow.parquet.ParquetFile``, which reads it by ranges."""

    @contextmanager
    def sink(self, name: str) -> Iterator[Any]:
        """An output for pyarrow; the file is durable at the end, and removed if the block fails."""

    def make_folder(self, folder: str) -> None:
        """Make *folder*, and the table's own if it is missing; do nothing in a bucket."""

    def prove(self, folder: str) -> None:
        """Test that `put_new` lets only one writer succeed, if the store may not support that.

        Raises:
            ConfigError: it does not.
        """

    def place(self, staged: str, folder: str) -> None:
        """Replace all files of *folder* by those of *staged*, and remove *staged*.

        A local folder is replaced in one step, or in two if it exists and the file system cannot
        swap folders.  A process killed between them leaves the old one as ``<staged>-before``.

        A bucket is changed file by file.  Files whose names begin with an underscore are removed
        first, with files that are not replaced, and copied last.  So they always describe a
        complete folder.
        """

    def drop(self, folder: str) -> None:
        """Remove *folder* and all below it; ignore a missing one."""


def open_store(uri: str) -> Store:
    """Open a table's folder: a path, ``file://``, or a bucket of S3, GCS or Azure.

    Raises:
        ConfigError: Sluice does not support that kind of store.
    """
    scheme = urlsplit(uri).scheme if ":/" in uri else ""  # Hadoop writes `file:/folder`
    if not scheme:
        return Folder(uri)
    if scheme == "file":
        return Folder(unquote(urlsplit(uri).path))
    if scheme in OBJECT_STORES:
        return _bucket(uri)
    if scheme in {"hdfs", "viewfs"}:
        raise ConfigError(
            f"{uri}: Sluice does not write tables on HDFS itself; put the lake on a local folder "
            "or on S3, GCS or Azure"
        )
    known = ", ".join(f"{name}://" for name in ("file", *OBJECT_STORES))
    raise ConfigError(f"{uri}: no such kind of lake; known: a path, {known}")


def _bucket(uri: str) -> Store:
    from pipeline.delta.object_store import open_bucket  # noqa: PLC0415 - its threads survive no fork

    return open_bucket(uri)
