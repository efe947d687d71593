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
    """A rule that replaces values; its settings are the fields of its class.

    The replacement of a value is its answer.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns whose values it replaces."""
        ...

    @property
    def distinct(self) -> bool:
        """Whether different values get different answers, which key columns require."""
        ...

    @property
    def hides(self) -> bool:
        """Whether readers of the lake must not see the source's values.

        If so, the quarantine does not keep the bytes of messages that cannot be decoded.
        """
        ...

    @property
    def lake_type(self) -> StandardType:
        """Type of the answers in the mirror."""
        ...

    @property
    def fingerprint(self) -> str:
        """A text that changes whenever the answers change, and reveals no secret."""
        ...

    def value(self, text: str) -> str | None:
        """The answer to a value that is not NULL; None if the answer is NULL.

        *text* is the text of a string, or a number's digits, as the format sends them.

        Raises:
            FormatError: the value has no answer; the message says why, without the value.
        """
        ...


@runtime_checkable
class RestingStandard(Protocol):
    """A standard whose answers depend on more than its settings, such as a file."""

    @property
    def fault(self) -> str:
        """Why no value has an answer now, as ``setting: fault``; empty if no fault is known."""
        ...


def known_standards() -> tuple[str, ...]:
    """Names of all standards, sorted."""
    return plugins.list_keys(standards, "STANDARD")


def find_standard(name: str) -> type[Standard]:
    """The standard class called *name*.

    Raises:
        ConfigError: the name is unknown.
    """
    return cast("type[Standard]", plugins.find_class(standards, "STANDARD", name))


SHORTEST = 16  # characters; an attacker can try all shorter secrets
NO_VALUE = b"sluice: which secret is this?"
"""The result for this text identifies the secret of a standard, and reveals nothing of it."""


def require_long(secret: str) -> None:
    """Reject a secret that is too short.

    Raises:
        ConfigError: it is.
    """
    if len(secret) < SHORTEST:
        raise ConfigError(f"secret: has {len(secret)} characters; give it {SHORTEST} or more")
