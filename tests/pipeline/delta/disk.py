"""A disk under the lake's folders that fails at a given step: killed, full, or without power.

It stands between ``pipeline/delta/local.py`` and the system: each call that changes something there
is a step.  After a kill every later step is refused too, so that nothing is cleaned up.
"""

import errno
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

from pipeline.delta import local


class KilledError(BaseException):
    """The process is gone: no handler of the product's may catch it."""


def nothing() -> None:
    """Happens at most steps."""


@dataclass(eq=False)
class Disk:
    """``event`` happens right before step *at*; what it raises comes out of that call.

    ``seen`` names every step.  ``full`` refuses whatever needs room, ``dead`` all.
    """

    at: int = 0
    event: Callable[[], object] = nothing
    seen: list[str] = field(default_factory=list)
    full: bool = False
    dead: bool = False
    cache: "Cache | None" = None

    def step(self, name: str, *, grows: bool = False) -> None:
        """Count one step."""
        if not self.dead:
            self.seen.append(name)
            if len(self.seen) == self.at:
                self.event()
        if self.dead:
            raise KilledError
        if self.full and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def kill(self) -> None:
        """End the process that works on it."""
        self.dead = True

    def fill(self) -> None:
        """Leave no room."""
        self.full = True

    @contextmanager
    def mounted(self) -> Iterator[Self]:
        """Let the product's folders lie on it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "os", _System(self))
            patch.setattr(local, "Path", _path_on(self))
            opened = SimpleNamespace(OSFile=lambda name, mode: _opened(self, name, mode))
            patch.setattr(local, "pa", opened)
            yield self


@dataclass(eq=False)
class Cache:
    """What has reached the platter of the disk's folder *home*, if the power fails now.

    A file is there as it was when it was synced last; a name, when its folder was.  ``pins`` is a
    folder in which every file that was ever synced stays, so that no number is given twice.
    """

    home: Path
    pins: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is there at first is safe."""
        self.pins.mkdir()
        for at in (self.home, *self.home.rglob("*")):
            self.synced(at)
            if at.is_file():
                self._pin(at)

    def synced(self, at: Path) -> None:
        """*at* was synced: a file's content, a folder's names."""
        if at.is_dir():
            self.names[at] = {one.name: one.stat().st_ino for one in at.iterdir()}
            for one in at.iterdir():
                self._pin(one)
        else:
            self._pin(at)
            self.contents[at.stat().st_ino] = at.read_bytes()

    def lose(self, unsynced: Callable[[bytes], bytes | None]) -> None:
        """Cut the power: of a file that was not synced is left what *unsynced* makes of it.

        None leaves not even the name; a name that was synced with nothing behind it is empty.
        """
        there = {at.stat().st_ino: at.read_bytes() for at in self.home.rglob("*") if at.is_file()}
        names = {at: self._left(at, unsynced, there) for at in (self.home, *self._folders())}
        shutil.rmtree(self.home)
        self.home.mkdir()
        for at, contents in names.items():
            if at != self.home and not at.is_dir():
                continue
            for name, content in contents.items():
                if content is None:
                    (at / name).mkdir()
                else:
                    (at / name).write_bytes(content)

    def _folders(self) -> list[Path]:
        return sorted(at for at in self.home.rglob("*") if at.is_dir())

    def _left(
        self, at: Path, unsynced: Callable[[bytes], bytes | None], there: dict[int, bytes]
    ) -> dict[str, bytes | None]:
        left: dict[str, bytes | None] = {}
        known = self.names.get(at, {})
        for one in at.iterdir():
            number = one.stat().st_ino
            named = known.get(one.name) == number
            if one.is_dir():
                if named or unsynced(b"") is not None:
                    left[one.name] = None
                continue
            safe = self.contents.get(number)
            if safe is not None and named:
                left[one.name] = safe
            elif (made := unsynced(there[number])) is not None:
                left[one.name] = made if safe is None else safe
            elif named:
                left[one.name] = b""
        for name, number in known.items():  # a name that went comes back
            if name not in left and not (at / name).exists() and number in self.contents:
                left[name] = self.contents[number]
        return left

    def _pin(self, at: Path) -> None:
        pin = self.pins / str(at.stat().st_ino)
        if at.is_file() and not pin.exists():
            os.link(at, pin)


class _System:
    """``os``, as far as the product's folders use it to change something."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        at = Path(f"/proc/self/fd/{handle}").resolve()
        self._disk.step("sync folder" if at.is_dir() else "sync")
        if self._disk.cache is not None:
            self._disk.cache.synced(at)

    def link(self, draft: Path, target: Path) -> None:
        self._disk.step("link", grows=True)
        os.link(draft, target)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            self._disk.step("create", grows=True)
        return os.open(path, flags, mode)


def _path_on(disk: Disk) -> type[Path]:
    class OnDisk(type(pathlib.Path())):  # type: ignore[misc]
        """A path whose changes are steps."""

        def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
            if "x" not in mode:
                return pathlib.Path(self).open(mode)
            disk.step("create", grows=True)
            return _Writing(disk, pathlib.Path(self))

        def unlink(self, missing_ok: bool = False) -> None:
            disk.step("unlink")
            super().unlink(missing_ok=missing_ok)

        def mkdir(self, *_: Any, exist_ok: bool = False, **__: Any) -> None:
            disk.step("mkdir", grows=True)
            super().mkdir(exist_ok=exist_ok)

    return OnDisk


class _Writing:
    """A file whose first piece is written in halves, each of them a step.

    Others are like these: nobody names a file before it is whole.
    """

    def __init__(self, disk: Disk, path: Path, mode: str = "xb") -> None:
        self._disk, self._file, self._pieces = disk, path.open(mode, buffering=0), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        whole = bytes(data)
        half = len(whole) // 2
        for part in (whole[:half], whole[half:]):
            if self._pieces < 2:
                self._disk.step("write", grows=True)
            elif self._disk.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            elif self._disk.dead:
                raise KilledError
            self._pieces += 1
            self._file.write(part)
        return len(whole)

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed


def _opened(disk: Disk, name: str, mode: str) -> Any:
    if mode == "rb":
        return pa.OSFile(name, mode)
    return pa.PythonFile(_Writing(disk, Path(name), "wb"), mode="w")
