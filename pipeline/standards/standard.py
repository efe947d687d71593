"""By what is a column's value replaced before it reaches the lake?

One file each; its name is its key.  A standard is asked for one value at a time, wherever a task
runs: it opens no server, and the same value always gets the same answer, whichever row, batch or
process asks.  Pure.
"""

from typing import Literal, Protocol, runtime_checkable

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
        """Whether nobody who reads the lake may see what the source has.

        Then what cannot be read of the table's messages stands in no quarantine.
        """
        ...

    @property
    def lake_type(self) -> StandardType:
        """Type of its answers in the mirror."""
        ...

    @property
    def fingerprint(self) -> str:
        """Another text wherever one value would get another answer than before; tells no secret."""
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
