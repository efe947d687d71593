"""How do values of columns become rows of JSON, as a collector would have written them?  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class WireTexts:
    """A column's values as texts; ``quoted`` if they stand in quotes in JSON."""

    texts: list[str | None]
    quoted: bool

    @property
    def fragments(self) -> list[str]:
        """Each as JSON."""
        if self.quoted:
            return [msgspec.json.encode(text).decode() for text in self.texts]
        return ["null" if text is None else text for text in self.texts]


def rows_of(names: Sequence[str], told: Sequence[WireTexts]) -> list[str]:
    """Each row as a JSON object, *told* column by column."""
    fields = [msgspec.json.encode(name).decode() for name in names]
    body = ",".join(f"{name.replace('%', '%%')}:%s" for name in fields)
    shape = "{" + body + "}"
    return [shape % row for row in zip(*(one.fragments for one in told), strict=True)]
