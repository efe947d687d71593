"""Detects foreign commits in mirrors, and tables that unlogged changes left in doubt.

Each commit is read once. A recreated mirror is read again, although its versions may have the
same numbers. So is a mirror whose log was put back and merged on since the last look: the entry
that was read last is then another one. Waivers of commits that the mirror no longer has end,
because a later foreign commit may get the same number. When a waiver has ended, its commit is
judged again.

Removing a foreign key with a cascade does not undo the changes that it made without a log entry.
The table stays in doubt until a new base has read it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from checks.blocks import SINCE_GONE
from checks.counting import shard_name
from monitor.store.history import CheckMemory
from pipeline.apply.foreign_commits import (
    Intrusion,
    KnownVersion,
    accepted_versions,
    find_intrusion,
    newest_foreign,
    waiver_id,
)
from pipeline.apply.mirror import Commit
from pipeline.errors import ProofError, UnreachableError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Missing, Order, Shard, Table
from pipeline.tables.lake import Lake

FIRST_LOOK = 100  # versions read at the start; the lane has judged earlier ones


@dataclass(eq=False)
class ForeignWrites:
    """Finds mirrors with foreign writes; each commit is read once.

    What was read belongs to the Delta table with that id. A recreated mirror is read again,
    although its versions may have the same numbers. ``withdraw`` ends the waiver of an id ``at`` a
    time. While that fails, the waiver accepts nothing here, and each look tries again.
    """

    lake: Lake
    waived: Callable[[], frozenset[str]]
    withdraw: Callable[[str, datetime], object] = lambda _id, _at: None
    _seen: dict[str, KnownVersion] = field(default_factory=dict)
    _found: dict[str, Intrusion] = field(default_factory=dict)
    _last: dict[str, MirrorPosition] = field(default_factory=dict)
    _foreign: dict[str, int] = field(default_factory=dict)
    _put_back: dict[str, datetime] = field(default_factory=dict)
    _accepted: dict[str, frozenset[int]] = field(default_factory=dict)
    _gone: dict[str, frozenset[int]] = field(default_factory=dict)

    def found(self) -> Mapping[str, Intrusion]:
        """Return, by table, the foreign writes that were found and not reverted."""
        return dict(self._found)

    def inspect(self, table: str, mirror: MirrorPosition, at: datetime) -> MirrorPosition:
        """Search *mirror*'s commits since the last call for a foreign one.

        Return *mirror* with its ``put_back`` and ``foreign``. *at* is a time after it was read.

        Raises:
            ProofError: the log has lost commits that were never read.
        """
        before = self._last.get(table)
        self._withdraw(table, at)
        if before is None:
            self._end_waivers(table, mirror.version, at)
        elif before.mirror != mirror.mirror:
            self._restart(table, -1, at)
        elif mirror.version < before.version or mirror.batch < before.batch:
            self._restart(table, min(mirror.version, before.version - 1), at)
        self._last[table] = mirror
        self._search(table, mirror, at)
        foreign = self._foreign.get(table, -1)
        return replace(mirror, put_back=self._put_back.get(table), foreign=foreign)

    def _end_waivers(self, table: str, newest: int, at: datetime) -> None:
        """End the waivers of foreign commits above version *newest*, which are gone."""
        gone = frozenset(one for one in self._find_accepted(table) if one > newest)
        self._gone[table] = self._gone.get(table, frozenset()) | gone
        self._withdraw(table, at)

    def _withdraw(self, table: str, at: datetime) -> None:
        """Withdraw the waivers of commits that are gone; the next look repeats what fails."""
        for version in sorted(self._gone.get(table, ())):
            try:
                self.withdraw(waiver_id(table, version), at)
            except UnreachableError:
                return
            self._gone[table] -= {version}

    def _find_accepted(self, table: str) -> frozenset[int]:
        """Return the versions that a person has waived, and that are not known to be gone."""
        return accepted_versions(table, self.waived()) - self._gone.get(table, frozenset())

    def _restart(self, table: str, same: int, at: datetime) -> None:
        """Record that the mirror was put back behind version *same*, and read its log again."""
        self._end_waivers(table, same, at)
        self._put_back[table] = at
        self._foreign.pop(table, None)
        self._seen.pop(table, None)
        self._accepted.pop(table, None)

    def _search(self, table: str, mirror: MirrorPosition, at: datetime) -> None:
        known, version = self._seen.get(table), mirror.version
        commits: Sequence[Commit] | None = ()
        if known is not None and not (
            known.version == version and _agree(known.entry, mirror.entry)
        ):
            commits = self._read_on(table, known, version)
            if commits is None:
                self._restart(table, known.version - 1, at)
        accepted = self._find_accepted(table)
        ended = self._accepted.get(table, frozenset()) - accepted
        if known is None or commits is None or ended:
            first = min([max(version - FIRST_LOOK, 0), *(one - 1 for one in ended)])
            known, commits = KnownVersion(first), self._read_first(table, first, version)
        elif not commits:
            return
        intrusion, good = find_intrusion(commits, known, accepted)
        foreign = newest_foreign(commits, known)
        self._foreign[table] = max(foreign, self._foreign.get(table, -1))
        if accepted or ended:
            self._accepted[table] = accepted
        if intrusion is not None:  # later commits are judged again until the write is reverted
            self._found[table], self._seen[table] = intrusion, good
            return
        self._found.pop(table, None)
        self._seen[table] = replace(good, version=version, entry=mirror.entry)

    def _read_first(self, table: str, first: int, version: int) -> Sequence[Commit]:
        try:
            return self.lake.history(table, first, version)
        except ProofError:  # the log was cleaned of some of them
            commits = self.lake.history(table, None, version)
            return [one for one in commits if one.version > first]

    def _read_on(self, table: str, known: KnownVersion, version: int) -> Sequence[Commit] | None:
        """Return the commits after *known*; None if another commit has its number now."""
        if not known.entry:
            return self.lake.history(table, known.version, version)
        try:
            found = self.lake.history(table, known.version - 1, version)
        except ProofError:  # maybe only the entry of the known version was cleaned out
            return self.lake.history(table, known.version, version)
        return found[1:] if found and _agree(found[0].entry, known.entry) else None


def _agree(entry: str, other: str) -> bool:
    """Whether two digests of log entries may be of the same entry; empty is unknown."""
    return not entry or not other or entry == other


CHECK = "unproven"


@dataclass(eq=False)
class UnloggedChanges:
    """Stores, over restarts, which tables have unlogged changes, from the sources' answers."""

    explain_unproven: Callable[[Table], str | Missing]
    memory: CheckMemory
    clock: Callable[[], datetime]
    _kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def unproven(self, table: Table, bases: Mapping[Shard, Order]) -> str | Missing:
        """Describe unlogged changes of *table*, now or since its base; empty if there are none.

        *bases* has the order of each shard's newest base; empty if it is not known.
        """
        reason, known = (
            self.explain_unproven(table),
            ((shard, bases.get(shard)) for shard in table.shards),
        )
        own = {shard_name(shard): [*base.parts] for shard, base in known if base is not None}
        try:
            kept = self._recall(table.name)
        except ProofError as error:
            if not own:
                return str(error)
            kept = {"why": f"{error}", "bases": own}  # as if it had been in doubt until now
            self._keep(table.name, {}, kept)
        if reason and isinstance(reason, str):
            self._keep(table.name, kept, {"why": reason, "bases": own or kept.get("bases", {})})
            return reason
        if not kept or isinstance(reason, Missing):
            return reason
        if own and all(own.get(shard, old) != old for shard, old in kept["bases"].items()):
            self._keep(table.name, kept, {})
            return reason
        return f"{kept['why']}{SINCE_GONE}"

    def _recall(self, table: str) -> Mapping[str, Any]:
        if table not in self._kept:
            self._kept[table] = self.memory.recall(table, CHECK) or {}
        return self._kept[table]

    def _keep(self, table: str, before: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        if before != kept:
            self.memory.remember(table, CHECK, kept, self.clock())
            self._kept[table] = kept
