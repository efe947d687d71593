"""Makes folders for the temporary files of Spark, which are removed even if its process is killed.

Spark removes its files when it ends. A killed process cannot, and a merge can leave many GiB. So
each process writes into folders of its own, and holds a lock of each. The next process that starts
removes the folders of this machine that no process has locked. Where locks of folders are not
supported, none is removed.
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

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # where Spark writes, above all settings; parted by commas
_TMPDIR = "-Djava.io.tmpdir="
_UNSAFE = {",", '"'}  # they part folders in the one place, and options in the other


@dataclass(frozen=True, slots=True)
class Scratch:
    """Folders of one process: of Java, for its libraries, and of Spark, for the data of jobs."""

    java: Path
    spark: tuple[Path, ...]

    @property
    def option(self) -> str:
        """The option of Java; of several, the last counts."""
        return f'"{_TMPDIR}{self.java}"'

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Name Spark's folders to a process that is started meanwhile, and to no other."""
        before = os.environ.get(LOCAL_DIRS)
        os.environ[LOCAL_DIRS] = ",".join(map(str, self.spark))
        try:
            yield
        finally:
            del os.environ[LOCAL_DIRS]
            if before is not None:
                os.environ[LOCAL_DIRS] = before


def open_scratch(java: str, local_dirs: str) -> Scratch:
    """Make a folder in each place where Spark would have written.

    *java* are the options of Java, and *local_dirs* the setting ``spark.local.dir``. Without one
    Spark writes where Java does: where *java* or ``TMPDIR`` say, or in ``/tmp``.

    Raises:
        UnreachableError: nothing can be written there.
    """
    default = Path(_named(java) or os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Java's own
    own = make_scratch(default)
    places = (os.environ.get(LOCAL_DIRS) or local_dirs).split(",")
    made, failed = list[Path](), list[UnreachableError]()
    for place in [Path(one.strip()) for one in places if one.strip()]:
        try:
            made.append(own if place == default else make_scratch(place))
        except UnreachableError as error:  # Spark goes on with its other folders, too
            failed.append(error)
    if failed and not made:
        raise failed[0]
    return Scratch(own, tuple(made) or (own,))


def _named(java: str) -> str:
    """Return the folder that options of Java name; empty if they name none."""
    try:
        options = shlex.split(f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java}")
    except ValueError:  # Java says what is wrong
        options = []
    return next((one[len(_TMPDIR) :] for one in options[::-1] if one.startswith(_TMPDIR)), "")


def make_scratch(parent: Path) -> Path:
    """Make a folder in *parent* that lasts as long as this process; remove those of killed ones.

    Raises:
        UnreachableError: nothing can be written there, or options cannot name it.
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
    """A folder gets its name once it is locked."""
    parent.mkdir(parents=True, exist_ok=True)
    ours = f"sluice-spark-{re.sub('[^A-Za-z0-9.]', '_', socket.gethostname())}-"
    for left in parent.glob(f"{ours}*"):
        _remove_left(left)
    made = Path(tempfile.mkdtemp(prefix="sluice-new-", dir=parent))
    with suppress(OSError):  # no lock there: then the folder is removed by its process only
        fcntl.flock(os.open(made, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)  # until it ends
    return made.rename(parent / f"{ours}{os.getpid()}-{made.name[-8:]}")


def _remove_own(folder: Path, process: int) -> None:
    """Remove *folder* at the end of the *process* that made it, but not of one that it forked."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove a *folder* of this user whose process has ended."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_uid == os.getuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
