"""Decides whether a mirror is still the one that a check has compared, changed only by Sluice.

What a check has compared is void for another Delta table in the same folder, for an older version,
and after a foreign commit, even a waived one. A mirror that was put back and merged again has the
same batch as before, so the log entry of the compared version is compared, too. If the log was
cleaned of that entry, the next one must be Sluice's and name that version.

A process reads each commit about once, and at most `MOST` in one call; see `MirrorTrail`.
Cannot detect: a foreign commit that changes only columns or properties.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

from pipeline.apply.foreign_commits import KnownVersion, newest_foreign
from pipeline.apply.mirror import Commit
from pipeline.errors import ProofError
from pipeline.model import Table

MOST = 1_000
"""Most commits that one call reads; the next one reads on."""
FEW = 8  # compared states of a mirror that a trail keeps

MIRROR = "mirror"
"""Key of the `MirrorState` in the memory of a check."""


@dataclass(frozen=True, slots=True)
class MirrorState:
    """A mirror as a check has read it: table id, version, applied batch, digest of the entry."""

    id: str
    version: int
    batch: int
    entry: str

    def dumps(self) -> list[str | int]:
        """Return JSON values for the memory of a check."""
        return [*astuple(self)]

    @classmethod
    def loads(cls, raw: Sequence[str | int] | None) -> "MirrorState | None":
        """Read back what :meth:`dumps` wrote; None without it, as from an earlier version."""
        if raw is None or len(raw) != len(cls.__slots__):
            return None
        return cls(str(raw[0]), int(raw[1]), int(raw[2]), str(raw[3]))

    def may_continue(self, known: "MirrorState") -> bool:
        """Whether this may be *known* with later commits, as far as that shows without its log."""
        if self.id != known.id or self.batch < known.batch:
            return False
        if self.version == known.version:
            return not known.entry or self.entry in (known.entry, "")
        return self.version > known.version


@dataclass(frozen=True, slots=True)
class MirrorTrail:
    """Up to where this process has read the log of a mirror.

    ``newest`` continues each state in ``since``, without a foreign commit between them.
    """

    newest: MirrorState
    since: tuple[MirrorState, ...]


class MirrorLogs(Protocol):
    """The part of :class:`checks.world.World` that concerns the logs of mirrors."""

    @property
    def trails(self) -> MutableMapping[str, MirrorTrail]:
        """By table: what this process has read of the mirror's log; kept between rounds."""
        ...

    def mirror_state(self, table: Table, since: MirrorState | None) -> MirrorState:
        """The state of the pinned mirror; if none is pinned, of the newest one, without opening it.

        If none is pinned, it may be some seconds old, unless it is older than *since*.

        Raises:
            ProofError: there is no mirror yet.
        """
        ...

    def mirror_commits(self, table: Table, since: int, until: int) -> Sequence[Commit]:
        """Commits of the mirror after version *since* up to version *until*, oldest first.

        Raises:
            ProofError: one of them is no longer in its log.
        """
        ...


def follow_mirror(
    table: Table, world: MirrorLogs, known: MirrorState | None
) -> tuple[MirrorState, str]:
    """Return the state of the mirror, and why it does not continue *known*; else empty.

    Also empty if *known* is None. The mirror is not opened.

    Raises:
        ProofError: there are too many commits for one call; the next one reads on.
    """
    trail = world.trails.get(table.name)
    read = trail.newest if trail is not None and known in trail.since else known
    state = world.mirror_state(table, read)
    if known is None or read is None:
        return state, ""
    commits, why = _read_on(table, world, read, state)
    if why and read != known:  # it was put back, but maybe to a version after the known one
        read = known
        commits, why = _read_on(table, world, read, state)
    if why:
        return state, why
    if (foreign := newest_foreign(commits, KnownVersion(read.version))) >= 0:
        return state, f"version {foreign} of the mirror is not Sluice's, and was not compared"
    reached = commits[-1].version if commits else read.version
    newest = state
    if reached < state.version:
        entry = commits[-1].entry if commits else read.entry
        newest = MirrorState(state.id, reached, read.batch, entry)
    others = trail.since if trail is not None and trail.newest in (read, newest) else ()
    since = (*(one for one in others if one != known), known)[-FEW:]
    world.trails[table.name] = MirrorTrail(newest, since)
    if reached < state.version:
        raise ProofError(
            f"{state.version - reached} commits of mirror {table.name} are not read yet; reading on"
        )
    return state, ""


def _read_on(
    table: Table, world: MirrorLogs, read: MirrorState, state: MirrorState
) -> tuple[Sequence[Commit], str]:
    """Return commits after *read* up to *state*, and why *state* has no such past; else empty."""
    if not state.may_continue(read):
        return (), _describe_other(read, state)
    if state.version == read.version:
        return (), ""
    until = min(state.version, read.version + MOST)
    try:
        found = world.mirror_commits(table, read.version - 1, until)
    except ProofError:  # maybe only the entry of the known version was cleaned out
        return _read_after(table, world, read, until)
    if read.entry and found and found[0].entry != read.entry:
        return (), _describe_replaced(read)
    return found[1:], ""


def _read_after(
    table: Table, world: MirrorLogs, read: MirrorState, until: int
) -> tuple[Sequence[Commit], str]:
    """Like `_read_on`, if the log no longer has the entry of *read*."""
    try:
        found = world.mirror_commits(table, read.version, until)
    except ProofError as error:
        return (), f"the mirror was compared earlier, and {error}"
    if found and found[0].after != read.version:
        gone = f"version {read.version}, which was compared, is no longer in its log"
        return (), f"{gone}, and Sluice has not written the next one"
    return found, ""


def _describe_other(read: MirrorState, state: MirrorState) -> str:
    now, was = (f"version {one.version} with batch {one.batch}" for one in (state, read))
    if state.id != read.id:
        return f"the mirror is another table now, at {now}, and was compared at {was}"
    if state.version < read.version or state.batch < read.batch:
        return f"the mirror is {now} again, and was compared at {was}"
    return _describe_replaced(read)


def _describe_replaced(read: MirrorState) -> str:
    return f"the mirror was put back behind version {read.version}, which was compared"
