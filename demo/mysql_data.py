"""Fresh data for an embedded MySQL: initialised once on a machine, then copied.

A copy has no `auto.cnf`, so that each server gives itself a UUID of its own.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from demo import unpack
from demo.daemon import Daemon
from pipeline.errors import UnreachableError

INITIALIZE = timedelta(minutes=4)
TEMPLATE = "mysql-data"
RENAMED = Path("/usr/lib/x86_64-linux-gnu/libaio.so.1t64")  # as newer distributions call it


def program() -> tuple[str, ...]:
    """The server's command with the options that every use needs; as root it needs one more."""
    base = unpack.mysql()
    _link(base / "bin" / "libaio.so.1")
    command = (str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}")
    user = ("--user=root",) if os.geteuid() == 0 else ()
    return (*command, f"--lc-messages-dir={base / 'share'}", *user)


def make(place: Path) -> None:
    """Put fresh data at *place*; a half-made copy is never seen there."""
    scratch = place.with_name(f"{place.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(_template(), scratch)
    scratch.rename(place)


def _link(name: Path) -> None:
    """Give libaio the name that mysqld asks for, beside it: there it looks first."""
    if RENAMED.exists():
        with suppress(FileExistsError):
            name.symlink_to(RENAMED)


def _template() -> Path:
    """Initialised data that no server has run on.

    Raises:
        UnreachableError: if the server cannot make it; with the log's path.
    """
    template = unpack.UNPACKED / TEMPLATE
    if template.is_dir():
        return template
    unpack.UNPACKED.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=unpack.UNPACKED, prefix=".data-"))
    log = unpack.UNPACKED / f"{TEMPLATE}.log"
    Daemon("mysqld --initialize", log).run(
        (*program(), "--initialize-insecure", f"--datadir={scratch / 'data'}", "--skip-log-bin"),
        INITIALIZE,
    )
    if not (scratch / "data" / "auto.cnf").exists():
        msg = f"MySQL could not initialise its data; see {log}"
        raise UnreachableError(msg)
    (scratch / "data" / "auto.cnf").unlink()
    with suppress(OSError):  # somebody else was faster
        (scratch / "data").rename(template)
    shutil.rmtree(scratch)
    return template
