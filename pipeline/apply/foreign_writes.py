"""Decides whether a mirror may be written to: not while a foreign commit stands in it.

Each commit of ours names the version it follows, so a stranger's is found by looking at the commits
since the last one known to be ours.  In a mirror that this process has not looked at, that is the
newest merge: none is committed on top of a foreign commit.  Where the log has no merge any more,
any other commit of ours serves, for none is put on a version that was not looked at.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog

from pipeline.apply.account import find_miscount
from pipeline.apply.foreign_commits import (
    KnownVersion,
    accepted_versions,
    foreign_hold,
    judge_commits,
    unread_hold,
)
from pipeline.apply.mirror import Commit, MirrorSnapshot
from pipeline.apply.mirrors import Mirrors
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Account
from pipeline.reports import Hold, MergeFailure

_ROTATED = 20  # mirrors with nothing to apply that are looked at in one pass
_FAR = 1_000  # commits that are searched for the account of a turn

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _FoundHold:
    """Why a mirror stands still as of one entry of its log; kept while nothing of that changes.

    It may stand so for days, with thousands of commits that others have made.
    """

    at: tuple[str, int, str]
    waived: frozenset[str]
    hold: Hold


@dataclass(eq=False)
class ForeignWatch:
    """Search mirrors' logs for foreign commits; what was found to be ours is not read again.

    ``_good`` goes by the tables' ids: a rebuilt mirror begins at version 0 again.
    """

    mirrors: Mirrors[Any]
    _good: dict[str, KnownVersion] = field(default_factory=dict)
    _asked: deque[str] = field(default_factory=deque)
    _found: dict[str, _FoundHold] = field(default_factory=dict)

    def choose_mirrors(self, due: Iterable[str], tables: Iterable[str]) -> set[str]:
        """Mirrors to look at in this pass: those *due*, and a few others in rotation."""
        if not self._asked:
            self._asked.extend(sorted(tables))
        return set(due) | {self._asked.popleft() for _ in range(min(_ROTATED, len(self._asked)))}

    def note_own(self, table: str, version: int) -> None:
        """Know that *version* was committed here, on top of the one before."""
        seen = self.mirrors.seen(table)
        if seen is None or seen.version != version:
            return
        known = self._good.get(seen.id)
        if known is not None and known.version == version - 1:
            self._good[seen.id] = KnownVersion(version, seen.shape, seen.entry, seen.rows)

    def find_hold_below(
        self, table: str, snapshot: MirrorSnapshot, waived: frozenset[str]
    ) -> Hold | None:
        """Why nothing of ours may come on top of *snapshot*; it may be newer than the last look."""
        return None if self._all_ours(snapshot) else self.find_hold(table, waived)

    def find_hold(self, table: str, waived: frozenset[str]) -> Hold | None:
        """Why *table* must stand still; None when all of its commits are ours or waived."""
        try:
            return self._looked(table, waived)
        except (HeldError, UnreachableError) as error:
            return MergeFailure.of(error).hold(table)
        except Exception as error:  # the boundary of one mirror: others write what they like there
            log.exception("log_unread", table=table)
            return MergeFailure.unforeseen(error, "its log cannot be judged: ").hold(table)

    def find_last_merge(self, table: str) -> tuple[int, Account] | None:
        """Return batch and account of the newest merge; None if the log has none."""
        snapshot = self.mirrors.seen(table)
        if snapshot is None:
            return None
        for commit in islice(self.mirrors.commits(table, snapshot.version), _FAR + 1):
            if "account" in commit.own:
                return int(commit.own["batch"]), Account(**commit.own["account"])
        return None

    def _looked(self, table: str, waived: frozenset[str]) -> Hold | None:
        snapshot = self.mirrors.look(table)
        if snapshot is None or self._all_ours(snapshot):
            return None
        at = (snapshot.id, snapshot.version, snapshot.entry)
        found = self._found.get(table)
        if found is not None and (found.at, found.waived) == (at, waived):
            return found.hold
        hold = self._judged(table, snapshot, waived)
        if hold is not None:
            self._found[table] = _FoundHold(at, waived, hold)
        return hold

    def _judged(self, table: str, snapshot: MirrorSnapshot, waived: frozenset[str]) -> Hold | None:
        wanted = accepted_versions(table, waived)
        known, commits = self._since(table, snapshot)
        first = min((one.version for one in commits), default=snapshot.version + 1)
        if (hold := _unread(table, known, commits, first)) is not None and hold.id not in waived:
            return hold
        rows = self.mirrors.table_format.count(snapshot)
        intrusion, good = judge_commits(commits, rows, known or KnownVersion(first - 1), wanted)
        doubts = (find_miscount(table, one) for one in commits)
        doubt = next((one for one in doubts if one and one.id not in waived), None)
        if intrusion is None and doubt is None:
            self._good[snapshot.id] = good
        return doubt if intrusion is None else foreign_hold(table, intrusion)

    def _all_ours(self, snapshot: MirrorSnapshot) -> bool:
        known = self._good.get(snapshot.id)
        there = snapshot.version, snapshot.entry
        return known is not None and (known.version, known.entry) == there

    def _since(
        self, table: str, snapshot: MirrorSnapshot
    ) -> tuple[KnownVersion | None, tuple[Commit, ...]]:
        """What is known, and the commits after it, ascending; if nothing is known, from a merge on.

        A log that was rolled back, so that other commits have the numbers of known ones, counts as
        unknown.
        """
        known = self._good.get(snapshot.id)
        found: list[Commit] = []
        for commit in self.mirrors.commits(table, snapshot.version):
            if known is not None and commit.version <= known.version:
                if (commit.version, commit.entry) == (known.version, known.entry):
                    break
                known = None
            found.append(commit)
            if known is None and "account" in commit.own and _follows(commit):
                break
        return known, tuple(found)[::-1]


def _unread(
    table: str, known: KnownVersion | None, commits: Sequence[Commit], first: int
) -> Hold | None:
    """Why *table* must stand still if commits below version *first* are gone, and count."""
    if known is not None:
        gone = known.version + 1
        return unread_hold(table, gone, first - 1) if gone < first else None
    if first == 0 or (commits and _follows(commits[0])):
        return None
    return unread_hold(table, 0, first - 1)


def _follows(commit: Commit) -> bool:
    """Whether it is ours, and right on top of the version that it was made from.

    Nothing foreign lies below one: that version was looked at before.
    """
    return commit.after == commit.version - 1
