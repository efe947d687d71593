"""What did each commit to a mirror do, and did Sluice make it?

Sluice's commits bear ``{"sluice": {"after": <version before>, ...}}`` as a note.  A commit without
it is foreign; one that changes data makes the mirror a different table from the one that the
applied batch speaks of, whatever number that has.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

FileState = tuple[str, str | None]  # a file's path, and what hides rows of it


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a mirror, as its log tells it.

    ``data_changing`` is false for compaction, and for a new schema or new properties.  ``note`` is
    what the writer said of it, parsed if it is JSON; ``txns`` are numbers of applied batches by
    their applications; ``parameters`` and ``metrics`` those of the operation, as its writer told
    them.  ``shape`` is the mirror's, where it was told anew; ``came`` and ``went`` are files as
    they stand after it and stood before it; ``gained`` is by how many rows it says there are more;
    ``entry`` tells the commit's own text from any other, if known.
    """

    version: int
    operation: str
    at: datetime
    data_changing: bool = False
    note: Any = None
    txns: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shape: str | None = None
    came: frozenset[FileState] = frozenset()
    went: frozenset[FileState] = frozenset()
    gained: int = 0
    entry: str = ""

    @property
    def own(self) -> Mapping[str, Any]:
        """What Sluice noted in a commit of its own; empty for others'."""
        own = self.note.get("sluice") if isinstance(self.note, dict) else None
        return own if isinstance(own, dict) else {}

    @property
    def after(self) -> int | None:
        """The version Sluice saw before this commit of its own; None for a foreign commit."""
        after = self.own.get("after")
        return after if isinstance(after, int) else None
