"""May this mirror be written to?  Not while somebody else's commit stands in it.

Each commit of ours names the version it follows, so a stranger's is found by looking at the commits
since the last one known to be ours.  In a mirror that this process has not looked at, that is the
newest turn: no turn is committed on top of a foreign commit.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.apply.account import miscounted
from pipeline.apply.foreign import accepted, find, foreign_hold
from pipeline.apply.mirrors import Mirrors
from pipeline.errors import HeldError, UnreachableError
from pipeline.lake.commits import Commit
from pipeline.model import Account
from pipeline.report import Hold

_ROTATED = 20  # mirrors with nothing to apply that are looked at in one pass
_FAR = 1_000  # commits that are searched for a turn at first


@dataclass(eq=False)
class Watch:
    """Search mirrors' logs for foreign commits; what was found to be ours is not read again.

    ``_good`` goes by the tables' ids: a mirror made anew in its folder begins at version 0 again.
    """

    mirrors: Mirrors
    _good: dict[str, int] = field(default_factory=dict)
    _asked: deque[str] = field(default_factory=deque)

    def choose(self, due: Iterable[str], tables: Iterable[str]) -> set[str]:
        """Mirrors to look at in this pass: those *due*, and a few others in rotation."""
        if not self._asked:
            self._asked.extend(sorted(tables))
        return set(due) | {self._asked.popleft() for _ in range(min(_ROTATED, len(self._asked)))}

    def ours(self, table: str, version: int) -> None:
        """Know that *version* was committed here, on top of the one before."""
        seen = self.mirrors.seen(table)
        if seen is not None and self._good.get(seen.metadata.id) == version - 1:
            self._good[seen.metadata.id] = version

    def hold(self, table: str, waived: frozenset[str]) -> Hold | None:
        """Why *table* must stand still; None when all of its commits are ours or waived."""
        try:
            snapshot = self.mirrors.look(table)
        except HeldError as error:
            return Hold(f"{error.reason}:{table}", table, error.reason, error.detail)
        except UnreachableError as error:
            return Hold(f"unreachable:{table}", table, "unreachable", str(error))
        if snapshot is None:
            return None
        known = self._good.get(snapshot.metadata.id)
        if known == snapshot.version:
            return None
        commits = tuple(self._since(table, snapshot.version, known))[::-1]
        good = known if known is not None else min((c.version for c in commits), default=0) - 1
        intrusion = find(commits, good, accepted(table, waived))
        doubts = (miscounted(table, one) for one in commits)
        doubt = next((one for one in doubts if one and one.id not in waived), None)
        if intrusion is None and doubt is None:
            self._good[snapshot.metadata.id] = max((one.version for one in commits), default=good)
        return doubt if intrusion is None else foreign_hold(table, intrusion)

    def last_turn(self, table: str) -> tuple[int, Account] | None:
        """Batch and account of the newest turn; None if the log tells of none."""
        snapshot = self.mirrors.seen(table)
        if snapshot is None:
            return None
        for commit in self._since(table, snapshot.version, None):
            if "account" in commit.own:
                return int(commit.own["batch"]), Account(**commit.own["account"])
        return None

    def _since(self, table: str, until: int, known: int | None) -> Iterator[Commit]:
        """Commits after version *known*, newest first; without it, back to the newest turn."""
        for commit in self.mirrors.commits(table, until):
            if known is not None and commit.version <= known:
                return
            yield commit
            told = known is None and "account" in commit.own
            if told or commit.version <= until - _FAR:
                return
