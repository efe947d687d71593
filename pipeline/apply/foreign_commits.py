"""Detects foreign commits to a mirror, from the commits themselves.

Each commit of Sluice names the version it follows, and the shape and number of rows it found. A
commit that is not Sluice's is foreign if it changes rows, columns, Sluice's properties or the
number of the applied batch. The mirror stays foreign until all of that is undone or waived.
Nothing undoes a changed batch number, nor a foreign commit below one of Sluice's.

A commit that claims only to move rows is believed while the number of rows is unchanged. Cannot
detect: such a commit that replaces rows and keeps their number.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.apply.mirror import Commit, FileState
from pipeline.changelog.table import APPS
from pipeline.reports import Hold

_WAIVER = "foreign_write:"
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

    ``shape`` is the table's as of then, None if none of our commits has it; ``entry`` is the
    digest of that version's entry, which reveals a replaced one; ``rows`` are those of then,
    None where they are not known.
    """

    version: int = -1
    shape: str | None = None
    entry: str = ""
    rows: int | None = None

    def differs(self, shape: str | None) -> bool:
        """Whether *shape* is known to be another; None is a commit that does not change it."""
        return shape is not None and self.shape not in (None, shape)

    def after(self, commit: Commit) -> "KnownVersion":
        """With *commit* on top, which is taken for ours."""
        told = commit.own.get("shape", self.shape)
        if commit.shape is not None and (told is not None or commit.after is not None):
            told = commit.shape
        rows = _left(commit) if commit.own else self.rows
        return KnownVersion(commit.version, told, commit.entry, rows)


BEFORE = KnownVersion()  # nothing


@dataclass(frozen=True, slots=True)
class NetChange:
    """What foreign commits have changed in sum; what RESTORE says of itself is no matter."""

    came: frozenset[FileState] = frozenset()
    went: frozenset[FileState] = frozenset()
    shape: str | None = None
    numbered: bool = False

    def after(self, commit: Commit) -> "NetChange":
        """With one more."""
        came, went = commit.came - commit.went, commit.went - commit.came
        return NetChange(
            (self.came - went) | (came - self.went),
            (self.went - came) | (went - self.came),
            commit.shape or self.shape,
            self.numbered or _numbers(commit),
        )

    def is_back(self, known: KnownVersion) -> bool:
        """Whether the table is again what it was as of *known*."""
        return not (self.came or self.went or known.differs(self.shape) or self.numbered)


def waiver_id(table: str, version: int) -> str:
    """What a person closes to accept another writer's *version* of a mirror."""
    return f"{_WAIVER}{table}:{version}"


def accepted_versions(table: str, waived: Iterable[str]) -> frozenset[int]:
    """Versions of others in the mirror of *table* that a person has closed by name."""
    prefix = f"{_WAIVER}{table}:"
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
    """Why *table* is held after commits that are no longer in the log."""
    name = waiver_id(table, first)
    detail = (
        f"versions {first} to {last} of mirror {table} were cleaned out of its log before this "
        f"service looked at them; rebuild the mirror, or waive {name}"
    )
    return Hold(name, table, "foreign_write", detail)


def judge_commits(
    commits: Sequence[Commit], rows: int | None, known: KnownVersion, accepted: frozenset[int]
) -> tuple[Intrusion | None, KnownVersion]:
    """As ``find``, of a table that has *rows* after all *commits*; None if they cannot be counted.

    Where their number has changed, a commit that claims to have only moved rows is not believed.
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

    No intrusion: all is ours.  *known*: what lies before the first of *commits*.
    *accepted*: versions a person has waived.  *believing*: that who says so has only moved rows.
    """
    intrusion: Intrusion | None = None
    since = NetChange()
    for commit in commits:
        if intrusion is not None:
            since = since.after(commit)
            if commit.after is not None:
                # ours came on top: going back would undo it, not its number
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


def _intrudes(commit: Commit, known: KnownVersion, *, believing: bool) -> bool:
    """Whether a foreign commit changes a row, or what Sluice remembers in the table."""
    moved = commit.data_changing if believing else commit.came != commit.went
    return moved or known.differs(commit.shape) or _numbers(commit)


def _left(commit: Commit) -> int | None:
    """Rows after a commit of ours: those it found, and what it says it did to them."""
    found = commit.own.get("rows")
    return found + commit.gained if isinstance(found, int) else None


def _numbers(commit: Commit) -> bool:
    """Whether it sets the number of an applied batch, which no later commit takes back."""
    return any(name.startswith(APPS) for name in commit.txns)
