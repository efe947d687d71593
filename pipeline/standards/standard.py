"""Defines the standard protocol: replaces the values of columns before they reach the lake.

Each standard has its own module, named by its config key; the config may also name modules of
yours. A standard gets one value at a time, wherever a task runs. It connects to no server. The
same value always gets the same answer, in any row, batch or process.

A secret must be long enough that it cannot be guessed. The answer to one fixed text
distinguishes two secrets without revealing either.
"""

from typing import Literal, Protocol, cast, runtime_checkable

from pipeline import plugins, standards
from pipeline.errors import ConfigError

StandardType = Literal["string", "bigint"]


class Standard(Protocol):
    """A way values are written; its settings are the fields of its class."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns whose values it replaces."""
        ...

    @property
    def distinct(self) -> bool:
        """Whether two values never get one answer; only then may a column of a key have it."""
        ...

    @property
    def hides(self) -> bool:
        """Whether readers of the lake must not see what the source has.

        Then what cannot be read of the table's messages stands in no quarantine.
        """
        ...

    @property
    def lake_type(self) -> StandardType:
        """Type of its answers in the mirror."""
        ...

    @property
    def fingerprint(self) -> str:
        """A text that changes whenever the answers change; reveals no secret."""
        ...

    def value(self, text: str) -> str | None:
        """What stands for a value that is not NULL; None for NULL.

        In: the text of a string, or a number's digits, as the format sends them.

        Raises:
            FormatError: nothing stands for it; says why, without the value.
        """
        ...


@runtime_checkable
class RestingStandard(Protocol):
    """A standard whose answers rest on something beside its settings, such as a file."""

    @property
    def fault(self) -> str:
        """Why it could answer nothing now, ``setting: fault``; empty if nothing is known."""
        ...


def known_standards() -> tuple[str, ...]:
    """Names of all, sorted."""
    return plugins.list_keys(standards, "STANDARD")


def find_standard(name: str) -> type[Standard]:
    """The class of that name.

    Raises:
        ConfigError: the name is unknown.
    """
    return cast("type[Standard]", plugins.find_class(standards, "STANDARD", name))


SHORTEST = 16  # characters: below, all can be tried
NO_VALUE = b"sluice: which secret is this?"
"""The result for this text identifies the secret of a standard, and reveals nothing of it."""


def require_long(secret: str) -> None:
    """Refuse a secret that can be guessed.

    Raises:
        ConfigError: it is too short.
    """
    if len(secret) < SHORTEST:
        raise ConfigError(f"secret: has {len(secret)} characters; give it {SHORTEST} or more")
