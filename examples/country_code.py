"""A standard: a phone number with its country's code, however it was typed.  Pure."""

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import FormatError
from pipeline.standards.standard import Standard, StandardType


@dataclass(frozen=True, slots=True)
class CountryCode:
    """``code`` is that of numbers which name none; the fields are the settings in `sluice.yaml`."""

    columns: tuple[str, ...]
    code: str = "+86"
    distinct: ClassVar[bool] = False  # two spellings become one: not for a key
    hides: ClassVar[bool] = False
    lake_type: ClassVar[StandardType] = "string"

    @property
    def fingerprint(self) -> str:
        """Another code gives other answers."""
        return self.code

    def value(self, text: str) -> str:
        """Digits after the country's code; the error for a value without digits omits it."""
        digits = "".join(letter for letter in text if letter.isdecimal())
        if not digits:
            raise FormatError("no digit in a phone number")
        return f"+{digits}" if text.startswith("+") else f"{self.code}{digits.lstrip('0')}"


STANDARD: type[Standard] = CountryCode
