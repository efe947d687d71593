"""Detects foreign commits to a mirror, from the commits themselves.

Each commit of Sluice names the version it follows, and the shape and number of rows it found. A
commit that is not Sluice's is foreign if it changes rows, columns, Sluice's properties or the
number of the applied batch. The mirror stays foreign until all of that is undone or waived.
Nothing undoes a changed batch number, nor a foreign commit below one of Sluice's.

A commit that claims only to move rows is believed while the number of rows is unchanged. Cannot
detect: such a commit that replaces rows and keeps their number.

Foreign commits are looked for since the last commit known to be Sluice's. In a mirror that this
process has not looked at, that is the newest merge: none is committed on top of a foreign commit.
Where the log has no merge any more, any other commit of Sluice's serves.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from pipeline.apply.account import find_miscount
from pipeline.apply.mirror import Commit, FileState, MirrorSnapshot
from pipeline.changelog.table import APPS
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Account
from pipeline.reports import Hold, MergeFailure

if TYPE_CHECKING:  # it loads pandas, which nothing that reads a config needs
    from pipeline.apply.table_format import Mirrors

FOREIGN_WRITE = "foreign_write:"  # begins the ids of foreign commits
_VERSION = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Intrusion:
    """The first foreign commit that still counts, and the version to go back to.

    ``good`` is -1 where Sluice has written on top of the foreign commit.
    """

    version: int
    operation: str
    good: int


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version up to which all commits are ours, or accepted by a person.

    ``shape`` is the table's at that version, None if no commit of ours has it. ``entry`` is the
    digest of the version's log entry, which reveals a replaced one. ``rows`` is the row count at
    that version, None if unknown.
    """

    version: int = -1
    shape: str | None = None
    entry: str = ""
    rows: int | None = None

    def differs(self, shape: str | None) -> bool:
        """Whether *shape* is known to be different; None is a commit that does not change it."""
        return shape is not None and self.shape not in (None, shape)

    def after(self, commit: Commit) -> "KnownVersion":
        """Return the version after *commit*, which counts as ours."""
        shape = commit.own.get("shape", self.shape)
        if commit.shape is not None and (shape is not None or commit.after is not None):
            shape = commit.shape
        rows = _left(commit) if commit.own else self.rows
        return KnownVersion(commit.version, shape, commit.entry, rows)


BEFORE = KnownVersion()  # before the first commit


@dataclass(frozen=True, slots=True)
class NetChange:
    """The sum of changes of foreign commits; what RESTORE reports about itself is ignored."""

    came: frozenset[FileState] = frozenset()
    went: frozenset[FileState] = frozenset()
    shape: str | None = None
    numbered: bool = False

    def after(self, commit: Commit) -> "NetChange":
        """Return the sum including *commit*."""
        came, went = commit.came - commit.went, commit.went - commit.came
        return NetChange(
            (self.came - went) | (came - self.went),
            (self.went - came) | (went - self.came),
            commit.shape or self.shape,
            self.numbered or _numbers(commit),
        )

    def is_back(self, known: KnownVersion) -> bool:
        """Return whether the table is the same again as at *known*."""
        return not (self.came or self.went or known.differs(self.shape) or self.numbered)


def waiver_id(table: str, version: int) -> str:
    """The id that a person waives to accept a foreign *version* of a mirror."""
    return f"{FOREIGN_WRITE}{table}:{version}"


def accepted_versions(table: str, waived: Iterable[str]) -> frozenset[int]:
    """Foreign versions of the mirror of *table* that a person has waived."""
    prefix = f"{FOREIGN_WRITE}{table}:"
    named = (one.removeprefix(prefix) for one in waived if one.startswith(prefix))
    return frozenset(int(text) for text in named if _VERSION.fullmatch(text))


def foreign_hold(table: str, found: Intrusion) -> Hold:
    """Return the hold of *table*, with the ways to release it."""
    name = waiver_id(table, found.version)
    back = f"restore version {found.good}" if found.good >= 0 else "rebuild the mirror"
    detail = (
        f"version {found.version} of mirror {table} ({found.operation}) changed data "
        f"and is not Sluice's; {back}, or waive {name}"
    )
    return Hold(name, table, "foreign_write", detail)


def unread_hold(table: str, first: int, last: int) -> Hold:
    """The hold of *table* if commits were removed from its log before Sluice read them."""
    name = waiver_id(table, first)
    detail = (
        f"versions {first} to {last} of mirror {table} were cleaned out of its log before this "
        f"service looked at them; rebuild the mirror, or waive {name}"
    )
    return Hold(name, table, "foreign_write", detail)


def judge_commits(
    commits: Sequence[Commit], rows: int | None, known: KnownVersion, accepted: frozenset[int]
) -> tuple[Intrusion | None, KnownVersion]:
    """Like ``find_intrusion``, for a table with *rows* after all *commits*; None if not countable.

    If the row count has changed, commits that claim to move rows only are not believed.
    """
    believed = find_intrusion(commits, known, accepted)
    if believed[0] is None and believed[1].rows in (None, rows):
        return believed
    strict = find_intrusion(commits, known, accepted, believing=False)
    return strict if strict[0] is None or believed[0] is None else believed


def find_intrusion(
    commits: Iterable[Commit],
    known: KnownVersion = BEFORE,
    accepted: frozenset[int] = frozenset(),
    *,
    believing: bool = True,
) -> tuple[Intrusion | None, KnownVersion]:
    """The intrusion that still counts after all *commits*, ascending, and what is ours before it.

    The intrusion is None if all commits are ours. *known*: the state before the first of *commits*.
    *accepted*: versions that a person has waived. *believing*: accept a commit's claim that it only
    moved rows.
    """
    intrusion: Intrusion | None = None
    since = NetChange()
    for commit in commits:
        if intrusion is not None:
            since = since.after(commit)
            if commit.after is not None:
                # our commit is on top: a restore would undo our rows, but not the batch number
                intrusion = replace(intrusion, good=-1)
            elif intrusion.good >= 0 and since.is_back(known):
                known, intrusion = replace(known, version=commit.version, entry=commit.entry), None
        elif commit.version in accepted:
            known = replace(known.after(commit), rows=None)
        elif commit.after is not None or not _intrudes(commit, known, believing=believing):
            known = known.after(commit)
        else:
            intrusion = Intrusion(commit.version, commit.operation, known.version)
            since = NetChange().after(commit)
    return intrusion, known


def newest_foreign(commits: Iterable[Commit], known: KnownVersion) -> int:
    """Return the newest version of *commits*, ascending, that is foreign; -1 without one.

    A foreign commit counts even if it is waived or reverted. *known*: see ``find_intrusion``.
    """
    return max(foreign_versions(commits, known), default=-1)


def foreign_versions(commits: Iterable[Commit], known: KnownVersion) -> Iterator[int]:
    """Yield the versions of *commits* that are foreign, also waived or reverted ones."""
    for commit in commits:
        if commit.after is None and _intrudes(commit, known, believing=True):
            yield commit.version
        known = known.after(commit)


def _intrudes(commit: Commit, known: KnownVersion, *, believing: bool) -> bool:
    """Whether a foreign commit changes a row, or what Sluice stores in the table."""
    moved = commit.data_changing if believing else commit.came != commit.went
    return moved or known.differs(commit.shape) or _numbers(commit)


def _left(commit: Commit) -> int | None:
    """Row count after a commit of ours: the rows it found, plus those it says it gained."""
    found = commit.own.get("rows")
    return found + commit.gained if isinstance(found, int) else None


def _numbers(commit: Commit) -> bool:
    """Whether the commit sets the number of an applied batch, which no later commit can undo."""
    return any(name.startswith(APPS) for name in commit.txns)


_ROTATED = 20  # mirrors without due changes that one merge run checks
_FAR = 1_000  # commits that are searched for the account of a merge

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _FoundHold:
    """The hold of a mirror at one log entry; cached while the entry does not change.

    A mirror may be held for days, with thousands of foreign commits.
    """

    at: tuple[str, int, str]
    waived: frozenset[str]
    hold: Hold


@dataclass(eq=False)
class ForeignWatch:
    """Searches mirrors' logs for foreign commits; commits known to be ours are not read again.

    ``_good`` is keyed by table id, because a rebuilt mirror begins at version 0 again.
    """

    mirrors: "Mirrors[Any]"
    _good: dict[str, KnownVersion] = field(default_factory=dict)
    _asked: deque[str] = field(default_factory=deque)
    _found: dict[str, _FoundHold] = field(default_factory=dict)

    def choose_mirrors(self, due: Iterable[str], tables: Iterable[str]) -> set[str]:
        """Mirrors to check in this merge run: those *due*, and a few others in rotation."""
        if not self._asked:
            self._asked.extend(sorted(tables))
        return set(due) | {self._asked.popleft() for _ in range(min(_ROTATED, len(self._asked)))}

    def note_own(self, table: str, version: int) -> None:
        """Record that this process committed *version*, on top of the one before."""
        seen = self.mirrors.seen(table)
        if seen is None or seen.version != version:
            return
        known = self._good.get(seen.id)
        if known is not None and known.version == version - 1:
            self._good[seen.id] = KnownVersion(version, seen.shape, seen.entry, seen.rows)

    def find_hold_below(
        self, table: str, snapshot: MirrorSnapshot, waived: frozenset[str]
    ) -> Hold | None:
        """The hold that forbids a commit on *snapshot*, which may be newer than the last check."""
        return None if self._all_ours(snapshot) else self.find_hold(table, waived)

    def find_hold(self, table: str, waived: frozenset[str]) -> Hold | None:
        """The hold of *table*; None when all of its commits are ours or waived."""
        try:
            return self._looked(table, waived)
        except (HeldError, UnreachableError) as error:
            return MergeFailure.of(error).hold(table)
        except Exception as error:  # the boundary of one mirror: others write anything
            log.exception("log_unread", table=table)
            return MergeFailure.unforeseen(error, "its log cannot be judged: ").hold(table)

    def find_last_merge(self, table: str) -> tuple[int, int | None, Account] | None:
        """Return batch, previous batch, and account of the newest merge; None without one."""
        snapshot = self.mirrors.seen(table)
        if snapshot is None:
            return None
        for commit in islice(self.mirrors.commits(table, snapshot.version), _FAR + 1):
            if "account" in commit.own:
                since = commit.own.get("since")
                known = since if isinstance(since, int) else None
                return int(commit.own["batch"]), known, Account(**commit.own["account"])
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
        """The known version and the commits after it, ascending; without one, from a merge on.

        The version counts as unknown if the log was rolled back and other commits have its number.
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
    """The hold of *table* if commits below version *first* are missing from the log and matter."""
    if known is not None:
        gone = known.version + 1
        return unread_hold(table, gone, first - 1) if gone < first else None
    if first == 0 or (commits and _follows(commits[0])):
        return None
    return unread_hold(table, 0, first - 1)


def _follows(commit: Commit) -> bool:
    """Whether the commit is ours, and directly follows the version that it was made from.

    No foreign commit is below such a commit, because that version was checked before.
    """
    return commit.after == commit.version - 1
