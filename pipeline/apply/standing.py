"""May this mirror be written to?  Not while somebody else's commit stands in it."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.apply.foreign import find
from pipeline.lake.commits import Commit
from pipeline.report import Hold

_ROTATED = 20  # mirrors with nothing to apply that are looked at in one pass
_PREFIX = "foreign_write:"


@dataclass(eq=False)
class Standing:
    """Search mirrors' Delta logs for foreign commits; ``commits`` lists those above a version.

    Versions once found to be ours are remembered, so that a look costs what is new.  The first look
    of a process (above None) need not go back far: a foreign commit stops the mirror, so that few
    come after it, and a log does not keep all that ever was.
    """

    commits: Callable[[str, int | None], Sequence[Commit]]
    _good: dict[str, int] = field(default_factory=dict)
    _blocked: dict[str, Hold] = field(default_factory=dict)
    _asked: deque[str] = field(default_factory=deque)

    def choose(self, due: Iterable[str], tables: Iterable[str]) -> set[str]:
        """Mirrors to look at in this pass: those *due*, and a few others in rotation."""
        if not self._asked:
            self._asked.extend(sorted(tables))
        return set(due) | {self._asked.popleft() for _ in range(min(_ROTATED, len(self._asked)))}

    def block(self, hold: Hold) -> None:
        """Let a table stand still until a person waives *hold*: trying again would hide it."""
        self._blocked[hold.subject] = hold

    def hold(self, table: str, waived: frozenset[str]) -> Hold | None:
        """Why *table* must stand still; None when all of its commits are ours or waived."""
        blocked = self._blocked.get(table)
        if blocked is not None and blocked.id not in waived:
            return blocked
        self._blocked.pop(table, None)
        prefix = f"{_PREFIX}{table}:"
        accepted = frozenset(int(w[len(prefix) :]) for w in waived if w.startswith(prefix))
        known = self._good.get(table)
        commits = self.commits(table, known)
        good = known if known is not None else min((c.version for c in commits), default=0) - 1
        intrusion = find(commits, good, accepted)
        if intrusion is None:
            self._good[table] = max((commit.version for commit in commits), default=good)
            return None
        back = f"restore version {intrusion.good}" if intrusion.good >= 0 else "rebuild the mirror"
        name = f"{prefix}{intrusion.version}"
        detail = (
            f"version {intrusion.version} of mirror {table} ({intrusion.operation}) changed data "
            f"and is not Sluice's; {back}, or waive {name}"
        )
        return Hold(name, table, "foreign_write", detail)
