"""The lane's mirrors as their own commits tell them: version, applied batch, what they remember.

Each look reads on from the one before, which costs next to nothing where nothing was committed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pipeline.apply.mirror import Commit, MirrorSnapshot, batch_of, incarnation_of
from pipeline.apply.table_format import TableFormat
from pipeline.checkpoint import Incarnations
from pipeline.errors import HeldError
from pipeline.settings import PipelineSettings

S = TypeVar("S", bound=MirrorSnapshot)


@dataclass(eq=False)
class Mirrors(Generic[S]):
    """Snapshots by table, kept from look to look."""

    settings: PipelineSettings
    table_format: TableFormat[S, Any]
    _known: dict[str, S] = field(default_factory=dict)
    _absent: set[str] = field(default_factory=set)

    def look(self, table: str) -> S | None:
        """The newest version; None if there is no mirror yet.

        Raises:
            HeldError: the mirror's log cannot be read.
        """
        try:
            found = self.table_format.look(self.settings.mirror(table), self._known.get(table))
        except HeldError:
            self._known.pop(table, None)
            raise
        if found is None:
            self._absent.add(table)
        else:
            self.remember(table, found)
        return found

    def remember(self, table: str, snapshot: S) -> None:
        """Go on from *snapshot*, which was committed here."""
        self._known[table] = snapshot
        self._absent.discard(table)

    def is_absent(self, table: str) -> bool:
        """Whether there was none when it was looked at last."""
        return table in self._absent

    def seen(self, table: str) -> S | None:
        """The version looked at last; None if it was never looked at, or does not exist."""
        return self._known.get(table)

    def applied(self, table: str) -> int:
        """The batch it was applied through when it was looked at last; -1 before the first."""
        known = self._known.get(table)
        if known is None and not self.is_absent(table):
            known = self.look(table)
        return -1 if known is None else batch_of(known, self.settings.lane)

    def applied_batch(self, table: str, last: int, lives: Incarnations) -> int:
        """As ``applied``, of a change log that ends at batch *last*.

        Raises:
            HeldError: ``log_lost``, that batch is gone, or another has its number.
        """
        applied, seen = self.applied(table), self._known.get(table)
        told = None if seen is None else incarnation_of(seen)
        known = lives.at(applied)
        if applied > last or (told is not None and known is not None and told != known):
            detail = (
                f"its mirror is applied through batch {applied}, which is not in the change log "
                f"(it ends at {last}): the log's newest entries were lost; restore it, or take a "
                "new base and rebuild the mirror"
            )
            raise HeldError("log_lost", detail)
        return applied

    def commits(self, table: str, until: int) -> Iterator[Commit]:
        """The commits up to version *until*, newest first, as far as the log has them."""
        return self.table_format.commits(self.settings.mirror(table), until)
