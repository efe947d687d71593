"""Which invariants are there?  The files of this folder, by name; or modules of yours."""

from typing import cast

from pipeline import invariants, plugins
from pipeline.invariants.invariant import Invariant


def known() -> tuple[str, ...]:
    """Names of all, sorted."""
    return plugins.known(invariants, "INVARIANT")


def find(name: str) -> type[Invariant]:
    """The class of that name; ConfigError if there is none."""
    return cast("type[Invariant]", plugins.find(invariants, "INVARIANT", name))
