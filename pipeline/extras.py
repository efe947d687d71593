"""Packages that only one feature needs: each is installed by an extra of Sluice.

The names are those that are imported.  A part that needs one asks here where the config names it;
plug-ins say it where their import fails.
"""

from collections.abc import Mapping
from importlib.util import find_spec

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
    """Whether *package* can be imported; it is not."""
    return find_spec(package) is not None


def require(package: str) -> None:
    """Return only if *package*, one of an extra, is installed.

    Raises:
        ConfigError: it is not; the message has the command that installs it.
    """
    if not is_installed(package):
        raise ConfigError(fix(package))


def fix(package: str) -> str:
    """What is said of *package* where it is missing; empty if no extra has it."""
    package = package.partition(".")[0]
    if package not in EXTRAS:
        return ""
    return f"needs the package {package}; run `pip install 'sluice[{EXTRAS[package]}]'`"
