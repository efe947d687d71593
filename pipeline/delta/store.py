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

    A file that is not there raises FileNotFoundError; what the disk or the bucket does not do now
    and may do later (no room, no right, no answer), UnreachableError.
    """

    @property
    def uri(self) -> str:
        """As it was opened, without a slash at its end."""

    @property
    def ranged(self) -> bool:
        """Whether `after` costs by what it finds; in a folder it costs by what is there."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """*length* bytes from *start* on (fewer at the end); the whole file by default."""

    def after(self, folder: str, name: str) -> list[str]:
        """Names without their folder, above *name*, ascending; none if there is no folder."""

    def names(self, folder: str) -> list[Entry]:
        """The files of one folder, not of those below it; none if it is not there."""

    def put_new(self, name: str, data: bytes) -> None:
        """Make a file whole, or raise FileExistsError; never makes a folder."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file under a name that is not in use; makes folders, but not the table's own."""

    def sync(self, name: str) -> None:
        """Sync a file that another library made here to disk; ignore a missing one."""

    def exists(self, name: str) -> bool:
        """Whether the file is there."""

    def size(self, name: str) -> int:
        """Size in bytes."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is no error."""

    def source(self, name: str) -> Any:
        """The open file, for ``pyarrow.parquet.ParquetFile``; read by ranges."""

    @contextmanager
    def sink(self, name: str) -> Iterator[Any]:
        """An output for pyarrow; the file is durable at the end, and gone if the block fails."""

    def make_folder(self, folder: str) -> None:
        """Make *folder* and the table's own, where the store knows folders."""

    def prove(self, folder: str) -> None:
        """Try out, where nothing else shows it, that `put_new` lets one writer win.

        Raises:
            ConfigError: it does not.
        """

    def place(self, staged: str, folder: str) -> None:
        """Let *folder* hold the files that are in *staged*, and no others; *staged* is gone then.

        In one step where the store knows folders, two if *folder* was there and its file system
        lets no two change places; else one file after the other: those whose names begin with an
        underscore go first, with those that are not replaced, and come last, so that they tell of a
        whole folder.  One that is killed may leave
        what was there as ``<staged>-before``.
        """

    def drop(self, folder: str) -> None:
        """Remove *folder* and all below it; one that is not there is no error."""


def open_store(uri: str) -> Store:
    """Open a table's folder: a path, ``file://``, or a bucket of S3, GCS or Azure.

    Raises:
        ConfigError: no way is known to make a file there exactly once.
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
