"""Which standards are there?  The files of this folder, by name; or modules of yours."""

from typing import cast

from pipeline import plugins, standards
from pipeline.standards.standard import Standard


def known() -> tuple[str, ...]:
    """Names of all, sorted."""
    return plugins.known(standards, "STANDARD")


def find(name: str) -> type[Standard]:
    """The class of that name; ConfigError if there is none."""
    return cast("type[Standard]", plugins.find(standards, "STANDARD", name))
