"""Makes folders for the temporary files of Spark, which are removed even if its process is killed.

Spark removes its files when it ends. A killed process cannot, and a merge can leave many GiB. So
each process writes into folders of its own, and keeps each of them locked. The next process that
starts removes those of this machine's folders that no process has locked. It removes no folder
where the file system does not support locks of folders.
"""

import atexit
import fcntl
import os
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UnreachableError

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # overrides spark.local.dir; folders separated by commas
_TMPDIR = "-Djava.io.tmpdir="
_UNSAFE = {",", '"'}  # a comma separates folders in LOCAL_DIRS, a quote ends a Java option


@dataclass(frozen=True, slots=True)
class Scratch:
    """Folders of one process: ``java`` for Java's libraries, ``spark`` for the data of jobs."""

    java: Path
    spark: tuple[Path, ...]

    @property
    def option(self) -> str:
        """The Java option for its temporary folder; Java uses the last such option."""
        return f'"{_TMPDIR}{self.java}"'

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Set the environment variable of Spark's folders inside the block, then restore it."""
        before = os.environ.get(LOCAL_DIRS)
        os.environ[LOCAL_DIRS] = ",".join(map(str, self.spark))
        try:
            yield
        finally:
            del os.environ[LOCAL_DIRS]
            if before is not None:
                os.environ[LOCAL_DIRS] = before


def open_scratch(java: str, local_dirs: str) -> Scratch:
    """Make a folder in each directory where Spark would have written.

    *java* is Java's options, *local_dirs* the setting ``spark.local.dir``. Without local
    directories Spark writes where Java does: the folder in *java*, else ``TMPDIR``, else ``/tmp``.

    Raises:
        UnreachableError: no folder can be made in Java's directory, or in any local directory.
    """
    default = Path(_named(java) or os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Java's own
    own = make_scratch(default)
    places = (os.environ.get(LOCAL_DIRS) or local_dirs).split(",")
    made, failed = list[Path](), list[UnreachableError]()
    for place in [Path(one.strip()) for one in places if one.strip()]:
        try:
            made.append(own if place == default else make_scratch(place))
        except UnreachableError as error:  # Spark, too, continues with its other folders
            failed.append(error)
    if failed and not made:
        raise failed[0]
    return Scratch(own, tuple(made) or (own,))


def _named(java: str) -> str:
    """Return the temporary folder that the options *java* name; empty if they name none."""
    try:
        options = shlex.split(f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java}")
    except ValueError:  # Java reports what is wrong
        options = []
    return next((one[len(_TMPDIR) :] for one in options[::-1] if one.startswith(_TMPDIR)), "")


def make_scratch(parent: Path) -> Path:
    """Make a folder in *parent* for this process, and remove those of killed processes.

    Raises:
        UnreachableError: *parent* is not writable, or its name has a comma or quotation mark.
    """
    parent = parent.absolute()
    fix = f"or name another one by TMPDIR or {LOCAL_DIRS}"
    if _UNSAFE & {*str(parent)}:
        raise UnreachableError(
            f"a comma or quotation mark is in the name of {parent}; rename it, {fix}"
        )
    try:
        made = _make_locked(parent)
    except OSError as error:
        why = f"Spark's temporary folder cannot be made in {parent}: {error.strerror}"
        raise UnreachableError(f"{why}; make it writable, {fix}") from error
    atexit.register(_remove_own, made, os.getpid())
    return made


def _make_locked(parent: Path) -> Path:
    """Make a folder, lock it, and only then give it the name that other processes look for."""
    parent.mkdir(parents=True, exist_ok=True)
    ours = f"sluice-spark-{re.sub('[^A-Za-z0-9.]', '_', socket.gethostname())}-"
    for left in parent.glob(f"{ours}*"):
        _remove_left(left)
    made = Path(tempfile.mkdtemp(prefix="sluice-new-", dir=parent))
    with suppress(OSError):  # without locks only its own process removes the folder
        fcntl.flock(os.open(made, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)  # until it ends
    return made.rename(parent / f"{ours}{os.getpid()}-{made.name[-8:]}")


def _remove_own(folder: Path, process: int) -> None:
    """Remove *folder* when its *process* ends; do nothing in a fork of that process."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove *folder* if it belongs to this user and its process has ended."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.getuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
