"""A standard: masks all but the first and last characters, so people recognise values.  Pure."""

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ConfigError
from pipeline.standards.standard import Standard, StandardType


@dataclass(frozen=True, slots=True)
class LetterMask:
    """The ``first`` and ``last`` characters stay; each other one becomes a ``sign``.

    If no character is left between them, the whole value is masked.
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
        """Reject invalid settings.

        Raises:
            ConfigError: ``first`` or ``last`` is negative, or ``sign`` is not one character.
        """
        if min(self.first, self.last) < 0:
            raise ConfigError(f"{'first' if self.first < 0 else 'last'}: must be 0 or more")
        if len(self.sign) != 1:
            raise ConfigError("sign: must be one character")

    @property
    def fingerprint(self) -> str:
        """All settings."""
        return f"{self.first}:{self.last}:{self.sign}"

    def value(self, text: str) -> str:
        """The masked value, which has the same length."""
        hidden = len(text) - self.first - self.last
        if hidden <= 0:
            return self.sign * len(text)
        return text[: self.first] + self.sign * hidden + text[len(text) - self.last :]


STANDARD: type[Standard] = LetterMask
