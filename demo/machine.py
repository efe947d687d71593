"""Reports what is missing on this machine: one line each, with the remedy."""

import ctypes
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.spark import jars

JAVAS = (17, 21)  # both Spark 4.0 and Kafka 4.1 run on these
DISK = 3 * 2**30  # bytes: servers, lake and logs of one demo
LIBRARIES = {"libaio.so.1": "libaio1", "libnuma.so.1": "libnuma1"}  # mysqld is linked with these
RENAMED = "t64"  # suffix of some library names in newer distributions


def require(home: Path, *, servers: bool = True) -> None:
    """Return if servers can be started in *home*; without *servers*, check for the service alone.

    Raises:
        ConfigError: lists everything that is missing, a line each.
    """
    if missing := [*(_missing_of_mysql() if servers else ()), *_missing(home)]:
        raise ConfigError("\n".join(missing))


def _missing_of_mysql() -> Iterator[str]:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        yield (
            f"the embedded MySQL runs on Linux x86-64, this is {platform.system()}"
            f" {platform.machine()}; use such a machine"
        )
    for library, package in LIBRARIES.items():
        if not _loads(library) and not _loads(library + RENAMED):
            yield (
                f"{library} is missing, MySQL needs it; run: sudo apt-get install {package}"
                f" (newer distributions: {package}{RENAMED})"
            )


def _missing(home: Path) -> Iterator[str]:
    yield from _java_trouble()
    free = shutil.disk_usage(_existing(home)).free
    if free < DISK:
        yield (
            f"only {free / 2**30:.1f} GiB of disk are free under {home},"
            f" {DISK // 2**30} are needed; free some space"
        )


def _java_trouble() -> Iterator[str]:
    try:
        java = jars.find_java()
    except ConfigError as error:
        yield str(error)
        return
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(\d+)', asked.stderr)
    found = int(said[1]) if said else None
    if found not in JAVAS:
        yield (
            f"{java} is Java {found}, Java 17 or 21 is needed;"
            " run: sudo apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _existing(path: Path) -> Path:
    """Return the deepest existing folder on the way to *path*."""
    path = path.resolve()
    return next(folder for folder in (path, *path.parents) if folder.exists())
