"""Has somebody else written to a mirror since it was last looked at?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pipeline.apply.foreign_commits import Intrusion, Known, accepted, find
from pipeline.apply.mirror import Commit
from pipeline.errors import ProofError

FIRST_LOOK = 100  # versions read back at the start; the lane has judged those before


class MirrorHistory(Protocol):
    """The logs of the mirrors, without Spark."""

    def history(self, table: str, since: int) -> Sequence[Commit]:
        """Commits after version *since*, ascending."""
        ...


@dataclass(eq=False)
class ForeignWrites:
    """Mirrors that others have written to; each commit is read once.

    What was seen is of the table with that id: one that was made anew is looked through anew,
    though its versions may have numbers that were seen before.
    """

    lake: MirrorHistory
    waived: Callable[[], frozenset[str]]
    _seen: dict[str, Known] = field(default_factory=dict)
    _found: dict[str, Intrusion] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)

    def found(self) -> Mapping[str, Intrusion]:
        """What was found and not taken back, by table."""
        return dict(self._found)

    def inspect(self, table: str, version: int, mirror: str) -> None:
        """Look through *mirror*'s commits since the last look, up to *version*, for one not ours.

        Raises:
            ProofError: the log has lost commits that nobody has looked at.
        """
        if self._ids.setdefault(table, mirror) != mirror:
            self._ids[table] = mirror
            self._seen.pop(table, None)
        known = self._seen.get(table, Known(max(version - FIRST_LOOK, 0)))
        if version == known.version:
            return
        try:
            commits = self.lake.history(table, known.version)
        except ProofError:
            if table in self._seen:
                raise
            commits = ()  # too old to be told by anyone
        intrusion, good = find(commits, known, accepted(table, self.waived()))
        if intrusion is not None:
            self._found[table] = intrusion
            return  # what follows is judged from here again, until it is taken back
        self._found.pop(table, None)
        self._seen[table] = replace(good, version=version)
