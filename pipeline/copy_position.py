"""As of which version of its mirror does a copy hold rows?  The copy itself says so; pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """All rows of ``mirror``, a table's id, as of ``version``, which ``entry`` tells from another.

    ``batch`` is the one that this version is applied through.  ``load`` counts how often the copy
    has been loaded whole.  While that goes on, ``parts`` of the version are in; None afterwards.
    """

    mirror: str
    version: int
    batch: int
    entry: str = ""
    load: int = 1
    parts: int | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing of that version is lacking."""
        return self.parts is None
