"""Stores a table in a local folder that stays intact after a power failure.

A file's content is synced to disk before its name, and its name before the call returns.

Replacing a folder swaps two directories in one step where Linux supports it (renameat2(2) with
RENAME_EXCHANGE, on most file systems). Python has no function for it. Elsewhere it takes two
renames, and a killed process may leave the old folder under a temporary name.
"""

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.errors import ConfigError, HeldError, UnreachableError

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


def exchange_paths(one: str, other: str) -> bool:
    """Swap two paths in one step; False if the system or the file system does not support it.

    Raises:
        OSError: one of them does not exist, or must not be moved.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), one)


LEFTOVER = ".sluice-"  # prefix of files that a killed `put_new` leaves; log readers skip dot files
_NO_LINKS = frozenset(
    {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV}
)
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
_RIGHTS = "allow Sluice's user to read and write there"
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
    errno.EFBIG: "raise the limit on the size of files",
    errno.EMFILE: "raise the limit on open files",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name as methods of a store take it, its size in bytes, its modification time."""

    name: str
    size: int
    modified: datetime


@dataclass(eq=False)
class Folder:
    """A local folder; a ``Store``."""

    path: str
    uri: str = field(init=False)
    ranged: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.path = self.uri = self.path.rstrip("/") or "/"

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with (
            _explain_disk_errors(self, name),
            open(self._at(name), "rb") as file,  # noqa: PTH123 - a third of Path.open's time
        ):
            if start:
                file.seek(start)
            return file.read() if length is None else file.read(length)

    def after(self, folder: str, name: str) -> list[str]:
        try:
            with _explain_disk_errors(self, folder):
                found = os.listdir(self._at(folder))  # noqa: PTH208 - it may hold 10,000 names
        except FileNotFoundError:
            return []
        return sorted(one for one in found if one > name)

    def names(self, folder: str) -> list[Entry]:
        found = []
        with (
            suppress(FileNotFoundError),
            _explain_disk_errors(self, folder),
            os.scandir(self._at(folder)) as entries,
        ):
            for entry in entries:
                with suppress(FileNotFoundError):  # removed after the listing
                    if entry.is_file(follow_symlinks=False):
                        stat = entry.stat(follow_symlinks=False)
                        at = datetime.fromtimestamp(stat.st_mtime, UTC)
                        found.append(Entry(_joined(folder, entry.name), stat.st_size, at))
        return sorted(found, key=lambda one: one.name)

    def put_new(self, name: str, data: bytes) -> None:
        """Make a complete file, or raise FileExistsError; never makes a folder.

        The file is written under another name, synced, then linked. A rename would replace another
        writer's file.

        Raises:
            ConfigError: the file system has no hard links.
        """
        with _explain_disk_errors(self, name):
            _make(Path(self._at(name)), data)

    def put(self, name: str, data: bytes) -> None:
        with _explain_disk_errors(self, name):
            target = self._room_for(name)
            write_file(target, data)
            sync_folder(target.parent)

    def sync(self, name: str) -> None:
        target = Path(self._at(name))
        with suppress(FileNotFoundError), _explain_disk_errors(self, name):
            sync_folder(target)
            sync_folder(target.parent)

    def exists(self, name: str) -> bool:
        return os.access(self._at(name), os.F_OK)  # os.path.exists takes three times as long

    def size(self, name: str) -> int:
        with _explain_disk_errors(self, name):
            return os.stat(self._at(name)).st_size  # noqa: PTH116 - runs for each file of a commit

    def remove(self, name: str) -> None:
        with _explain_disk_errors(self, name):
            Path(self._at(name)).unlink(missing_ok=True)

    def source(self, name: str) -> Any:
        with _explain_disk_errors(self, name):
            return pa.OSFile(self._at(name), "rb")

    @contextmanager
    def sink(self, name: str) -> Iterator[Any]:
        with _explain_disk_errors(self, name):
            target = self._room_for(name)
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        try:
            with (
                _explain_disk_errors(self, name, only=_DISK),
                pa.OSFile(str(target), "wb") as output,
            ):
                yield output
            with _explain_disk_errors(self, name):
                sync_folder(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        with _explain_disk_errors(self, name):
            sync_folder(target.parent)

    def make_folder(self, folder: str) -> None:
        missing = Path(self._at(folder))
        with _explain_disk_errors(self, folder):
            new = [one for one in (missing, *missing.parents) if not one.exists()]
            for one in reversed(new):
                one.mkdir(exist_ok=True)
                sync_folder(one.parent)

    def prove(self, folder: str) -> None:
        """Do nothing: on a file system without links each `put_new` raises."""

    def place(self, staged: str, folder: str) -> None:
        target, before = Path(self._at(folder)), Path(f"{self._at(staged)}-before")
        with _explain_disk_errors(self, folder):
            if not target.parent.exists():
                self.make_folder(folder.rpartition("/")[0])
            sync_folder(Path(self._at(staged)))
            if target.exists() and exchange_paths(self._at(staged), str(target)):
                before = Path(self._at(staged))
            else:
                if target.exists():
                    target.rename(before)
                Path(self._at(staged)).rename(target)
            sync_folder(target.parent)
            if before.exists():
                shutil.rmtree(before)

    def drop(self, folder: str) -> None:
        """Remove *folder* and its files; no reader sees a partly removed folder."""
        target = Path(self._at(folder))
        gone = target.with_name(f"{LEFTOVER}{uuid.uuid4()}")
        with _explain_disk_errors(self, folder), suppress(FileNotFoundError):
            target.rename(gone)
            shutil.rmtree(gone)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _room_for(self, name: str) -> Path:
        target = Path(self._at(name))
        if not target.parent.exists():
            os.stat(self.path)  # noqa: PTH116 - raises if the table was deleted
            self.make_folder(name.rpartition("/")[0])
        return target


def _make(target: Path, data: bytes) -> None:
    if target.exists():
        raise FileExistsError(errno.EEXIST, "another writer made it", str(target))
    draft = target.parent / f"{LEFTOVER}{uuid.uuid4()}.tmp"
    try:
        write_file(draft, data)
        # Hadoop checks a file against this checksum; a killed Hadoop writer may have left it
        (target.parent / f".{target.name}.crc").unlink(missing_ok=True)
        _link(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)


@contextmanager
def _explain_disk_errors(
    folder: Folder, name: str, *, only: Collection[int] = ()
) -> Iterator[None]:
    """Translate errors of the disk, with path and fix; other errors pass than *only*, if given."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except ValueError as error:
        detail = f"{folder.uri!r}: {error}; no file has such a name: ignore the table by a rule"
        raise HeldError("name", detail) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            what = "the name of its folder is longer than this file system allows"
            fix = "set another name: `table:` of its rule under `tables`"
            raise HeldError("name", f"{folder.uri[:500]}: {what}; {fix}") from error
        if only and error.errno not in only:
            raise
        advice = _ADVICE.get(error.errno or 0, "look at the disk")
        said = error.strerror or str(error)
        raise UnreachableError(
            f"{folder.uri}/{name}: {said}, which is retried automatically; {advice}"
        ) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and sync it."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise ConfigError(
            f"{target.parent}: this file system knows no hard links ({error.strerror}), so two "
            "writers could both win; put the lake on another one"
        ) from error


def sync_folder(path: Path) -> None:
    """Sync a folder's entries, or a file's content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
