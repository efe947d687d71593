"""A standard: the first and last characters stay, for people who must recognise a value.  Pure."""

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ConfigError
from pipeline.standards.standard import Standard, StandardType


@dataclass(frozen=True, slots=True)
class LetterMask:
    """``first`` and ``last`` characters stay, each other one is a ``sign``.

    A value of no more characters than these are is all signs.
    """

    columns: tuple[str, ...]
    """Columns that are masked."""
    first: int = 0
    last: int = 0
    sign: str = "*"
    distinct: ClassVar[bool] = False
    hides: ClassVar[bool] = True
    lake_type: ClassVar[StandardType] = "string"

    def __post_init__(self) -> None:
        """Refuse what masks nothing.

        Raises:
            ConfigError: says what.
        """
        if min(self.first, self.last) < 0:
            raise ConfigError(f"{'first' if self.first < 0 else 'last'}: must be 0 or more")
        if len(self.sign) != 1:
            raise ConfigError("sign: must be one character")

    @property
    def fingerprint(self) -> str:
        """All of its settings."""
        return f"{self.first}:{self.last}:{self.sign}"

    def value(self, text: str) -> str:
        """The value, masked; as long as it was."""
        hidden = len(text) - self.first - self.last
        if hidden <= 0:
            return self.sign * len(text)
        return text[: self.first] + self.sign * hidden + text[len(text) - self.last :]


STANDARD: type[Standard] = LetterMask
