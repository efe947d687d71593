"""Finds what is installed with Sluice: its data files, and the packages of its extras.

Data files are `jars.lock`, the documentation and the dashboards. A checkout has them at its
root. A wheel installs them as data files below `share/sluice` of the environment.

Packages that only one feature needs belong to an extra. They are listed by their import names.
A component that needs one asks here when the config names it. A missing package of a plug-in is
reported when its import fails.
"""

import os
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError

EXTRAS: Mapping[str, str] = {
    "great_expectations": "expectations",
    "phonenumbers": "plaintext",
    "stdnum": "plaintext",
    "psycopg": "postgres",
    "redis": "redis",
    "obstore": "s3",
}


def is_installed(package: str) -> bool:
    """Whether *package* can be imported; does not import it."""
    return find_spec(package) is not None


def require_package(package: str) -> None:
    """Check that *package*, one of an extra, is installed.

    Raises:
        ConfigError: it is not; the message has the command that installs it.
    """
    if not is_installed(package):
        raise ConfigError(explain_install(package))


def explain_install(package: str) -> str:
    """The install command for a missing *package*, as a sentence; empty if it is in no extra."""
    package = package.partition(".")[0]
    if package not in EXTRAS:
        return ""
    install = f"pip install '.[{EXTRAS[package]}]'"
    return f"needs the package {package}; run `{install}` in the checkout of Sluice"


CHECKOUT = Path(__file__).resolve().parent.parent


def is_checkout() -> bool:
    """Whether this package runs from its repository, also by an editable installation."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "jars.lock").is_file()


def data_file(name: str) -> Path:
    """Path of a file or folder that is installed with Sluice, by its path in the repository."""
    base = CHECKOUT if is_checkout() else Path(sysconfig.get_path("data")) / "share" / "sluice"
    return base / name


def find_cache_folder() -> Path:
    """Folder for downloads that can be fetched again: `$XDG_CACHE_HOME/sluice`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "sluice"
