"""Files that come with the program but are not Python: jars.lock, documentation, dashboards.

A checkout has them at its root.  A wheel has them as data files, which an installation puts below
`share/sluice` of the environment.
"""

import os
import sysconfig
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def is_checkout() -> bool:
    """Whether this package is run from its repository, also by an editable installation."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "jars.lock").is_file()


def data_file(name: str) -> Path:
    """Path of a file or folder that comes with the program, by its path in the repository."""
    base = CHECKOUT if is_checkout() else Path(sysconfig.get_path("data")) / "share" / "sluice"
    return base / name


def cache() -> Path:
    """Folder for what is fetched once and can be fetched again: `$XDG_CACHE_HOME/sluice`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "sluice"
