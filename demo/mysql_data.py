"""Creates fresh data for an embedded MySQL: initialised once per machine, then copied.

A copy has no `auto.cnf`, so each server creates its own UUID.
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
RENAMED = Path("/usr/lib/x86_64-linux-gnu/libaio.so.1t64")  # its name in newer distributions


def program() -> tuple[str, ...]:
    """Return the server's command with the options that every use needs, and one more for root."""
    base = unpack.mysql()
    _link(base / "bin" / "libaio.so.1")
    command = (str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}")
    user = ("--user=root",) if os.geteuid() == 0 else ()
    return (*command, f"--lc-messages-dir={base / 'share'}", *user)


def make(place: Path) -> None:
    """Create fresh data at *place*, atomically."""
    scratch = place.with_name(f"{place.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(_template(), scratch)
    scratch.rename(place)


def _link(name: Path) -> None:
    """Link libaio under the name that mysqld needs, beside mysqld, where it looks first."""
    if RENAMED.exists():
        with suppress(FileExistsError):
            name.symlink_to(RENAMED)


def _template() -> Path:
    """Return initialised data on which no server has run.

    Raises:
        UnreachableError: the server cannot create it; with the path of the log.
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
    with suppress(OSError):  # another process was faster
        (scratch / "data").rename(template)
    shutil.rmtree(scratch)
    return template
