"""Detects foreign commits in mirrors, and tables that unlogged changes left in doubt.

Each commit is read once. A recreated mirror is read again, although its versions may have the
same numbers. So is a mirror whose log was put back and merged on since the last look: the entry
that was read last is then another one. Waivers of commits that the mirror no longer has end,
because a later foreign commit may get the same number. When a waiver has ended, its commit is
judged again, also after a restart. If the log no longer has that commit, it blocks as well.

A foreign commit that nothing can revert blocks until it is waived, or the mirror is another one.

Removing a foreign key with a cascade does not undo the changes that it made without a log entry.
The table stays in doubt until a new base has read it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from typing import Any

from checks.blocks import ALSO_UNKNOWN, SINCE_GONE
from checks.counting import shard_name
from monitor.store.alerts import SERVICE, Waiver
from monitor.store.history import CheckMemory
from pipeline.apply.foreign_commits import (
    Intrusion,
    KnownVersion,
    accepted_versions,
    find_intrusion,
    foreign_versions,
    waiver_id,
)
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ProofError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Missing, Order, Shard, Table
from pipeline.tables.lake import Lake

FIRST_LOOK = 100  # versions read at the start; the lane has judged earlier ones
UNKNOWN = "unknown operation"


@dataclass(eq=False)
class ForeignWrites:
    """Finds mirrors with foreign writes; each commit is read once.

    What was read belongs to the Delta table with that id. A recreated mirror is read again,
    although its versions may have the same numbers. ``withdraw`` ends the waivers of ids ``at`` a
    time. ``past`` returns all waivers, also those that have ended.
    """

    lake: Lake
    waived: Callable[[], frozenset[str]]
    withdraw: Callable[[Collection[str], datetime], object] = lambda _ids, _at: None
    past: Callable[[], Iterable[Waiver]] = tuple
    _seen: dict[str, KnownVersion] = field(default_factory=dict)
    _found: dict[str, Intrusion] = field(default_factory=dict)
    _last: dict[str, MirrorPosition] = field(default_factory=dict)
    _foreign: dict[str, frozenset[int]] = field(default_factory=dict)
    _put_back: dict[str, datetime] = field(default_factory=dict)
    _accepted: dict[str, frozenset[int]] = field(default_factory=dict)
    _ended: dict[str, frozenset[int]] = field(default_factory=dict)

    def found(self) -> Mapping[str, Intrusion]:
        """Return, by table, the foreign writes that were found and not reverted."""
        return dict(self._found)

    def inspect(self, table: str, mirror: MirrorPosition, at: datetime) -> MirrorPosition:
        """Search *mirror*'s commits since the last call for a foreign one.

        Return *mirror* with its ``put_back``, ``foreign`` and ``accepted``. *at* is a time after it
        was read.

        Raises:
            ProofError: the log has lost commits that were never read.
        """
        before = self._last.get(table)
        if before is None:
            self._end_waivers(table, mirror.version, at)
            self._ended[table] = self._find_past(table, mirror.version, at)
        elif before.mirror != mirror.mirror:
            self._restart(table, -1, at)
        elif mirror.version < before.version or mirror.batch < before.batch:
            self._restart(table, min(mirror.version, before.version - 1), at)
        self._last[table] = mirror
        self._search(table, mirror, at)
        foreign = max(self._foreign.get(table, ()), default=-1)
        accepted = self._accepted.get(table, frozenset())
        put_back = self._put_back.get(table)
        return replace(mirror, put_back=put_back, foreign=foreign, accepted=accepted)

    def _end_waivers(self, table: str, newest: int, at: datetime) -> None:
        """End the waivers of foreign commits above version *newest*, which are gone."""
        gone = [waiver_id(table, one) for one in self._find_accepted(table) if one > newest]
        if gone:
            self.withdraw(gone, at)

    def _find_accepted(self, table: str) -> frozenset[int]:
        """Return the versions that a person has waived."""
        return accepted_versions(table, self.waived())

    def _find_past(self, table: str, newest: int, at: datetime) -> frozenset[int]:
        """Return the versions up to *newest* whose waivers have ended, but not by the service."""
        ended = (one for one in self.past() if not one.is_open(at) and one.withdrawn_by != SERVICE)
        versions = accepted_versions(table, (one.id for one in ended))
        return frozenset(one for one in versions if one <= newest)

    def _restart(self, table: str, same: int, at: datetime) -> None:
        """Record that the mirror was put back behind version *same*, and read its log again."""
        self._end_waivers(table, same, at)
        self._put_back[table] = at
        waived, found = self._accepted.pop(table, frozenset()), self._found.get(table)
        known = self._ended.get(table, frozenset()) | waived | _version_of(found)
        self._ended[table] = frozenset(one for one in known if one <= same)
        self._foreign.pop(table, None)
        self._seen.pop(table, None)

    def _search(self, table: str, mirror: MirrorPosition, at: datetime) -> None:
        read = self._read_new(table, mirror, at)
        found = None if read is None else self._found.get(table)
        accepted, before = self._find_accepted(table), self._accepted.get(table, frozenset())
        ended = (self._ended.get(table, frozenset()) | before) - accepted
        stays = found if found is not None and found.good < 0 else None
        if read is None or before - accepted or _version_of(stays) & accepted:
            due = ended | _version_of(found)
            known, commits = self._read_again(table, due, mirror.version)
            intrusion, good = find_intrusion(commits, known, accepted)
            intrusion = self._find_lost(table, due, accepted, known) or intrusion
        else:
            known, commits = read
            if not commits:
                return
            judged = find_intrusion(commits, known, accepted)
            intrusion, good = judged if stays is None else (stays, known)
        foreign = self._foreign.get(table, frozenset())
        self._foreign[table] = foreign.union(foreign_versions(commits, known))
        self._accepted[table] = accepted
        if intrusion is None:
            self._found.pop(table, None)
            self._ended.pop(table, None)
        else:
            self._found[table], self._ended[table] = intrusion, ended
            if intrusion.good >= 0:  # later commits are judged again until the write is reverted
                self._seen[table] = good
                return
            good = reduce(KnownVersion.after, commits, known)
        self._seen[table] = replace(good, version=mirror.version, entry=mirror.entry)

    def _find_lost(
        self, table: str, due: frozenset[int], accepted: frozenset[int], known: KnownVersion
    ) -> Intrusion | None:
        """Return the first foreign commit, *due* or later, that the log does not have any more."""
        later = {one for one in self._foreign.get(table, ()) if one > min(due, default=one)}
        lost = [one for one in (due | later) - accepted if one <= known.version]
        if not lost:
            return None
        found = self._found.get(table)
        same = found is not None and found.version == min(lost)
        return Intrusion(min(lost), found.operation if same and found else UNKNOWN, -1)

    def _read_new(
        self, table: str, mirror: MirrorPosition, at: datetime
    ) -> tuple[KnownVersion, Sequence[Commit]] | None:
        """Return the known version, and the commits after it; None if the log is read again."""
        known, found = self._seen.get(table), self._found.get(table)
        if known is None:
            return None
        if known.version == mirror.version and _agree(known.entry, mirror.entry):
            return known, ()
        try:
            commits = self._read_on(table, known, mirror.version)
        except ProofError:
            if found is None:
                raise
            # the log does not have the version to go back to any more
            self._found[table] = replace(found, good=-1)
            self._seen[table] = KnownVersion(mirror.version, entry=mirror.entry)
            return self._seen[table], ()
        if commits is None:
            self._restart(table, known.version - 1, at)
            return None
        return known, commits

    def _read_again(
        self, table: str, due: frozenset[int], version: int
    ) -> tuple[KnownVersion, Sequence[Commit]]:
        """Return the newest commits, from the first that is *due* on, and the version before them.

        One more is read below a commit that is due: if it is Sluice's, it shows the shape.
        """
        newest = max(version - FIRST_LOOK, 0)
        below = {max(one - far, -1) for one in due for far in (1, 2)}
        for first in sorted({newest, *below}):
            with suppress(ProofError):  # the log was cleaned of some of them
                return KnownVersion(first), self.lake.history(table, first, version)
        commits = [one for one in self.lake.history(table, None, version) if one.version > newest]
        return KnownVersion(commits[0].version - 1 if commits else version), commits

    def _read_on(self, table: str, known: KnownVersion, version: int) -> Sequence[Commit] | None:
        """Return the commits after *known*; None if another commit has its number now."""
        if not known.entry:
            return self.lake.history(table, known.version, version)
        try:
            found = self.lake.history(table, known.version - 1, version)
        except ProofError:  # maybe only the entry of the known version was cleaned out
            return self.lake.history(table, known.version, version)
        return found[1:] if found and _agree(found[0].entry, known.entry) else None


def _version_of(found: Intrusion | None) -> frozenset[int]:
    return frozenset() if found is None else frozenset((found.version,))


def _agree(entry: str, other: str) -> bool:
    """Whether two digests of log entries may be of the same entry; empty is unknown."""
    return not entry or not other or entry == other


CHECK = "unproven"
_WORDS = re.compile(r"[^\s:;,]+")
_COUNTED = re.compile(r"[0-9]+|\(@[0-9a-f]{8}\)")  # of the causes that a text does not name


@dataclass(eq=False)
class UnloggedChanges:
    """Stores, over restarts, which tables have unlogged changes, from the sources' answers."""

    explain_unproven: Callable[[Table], str | Missing]
    memory: CheckMemory
    clock: Callable[[], datetime]
    _kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def unproven(self, table: Table, checkpoint: Checkpoint | None) -> str | Missing:
        """Describe unlogged changes of *table*, now or since its base; empty if there are none.

        A base counts if its rows began to be read after the cause was last reported.
        """
        reason, unreadable = self.explain_unproven(table), ""
        kept: Mapping[str, Any] = {}
        try:
            kept = self._recall(table.name)
        except ProofError as error:
            unreadable = str(error)
        if not (reason or kept or unreadable):
            return ""
        begun = None if checkpoint is None else _find_begun(table, checkpoint)
        if unreadable:
            if not begun:
                return unreadable
            kept = {"why": unreadable, "bases": begun}  # as if it had been in doubt until now
            self._keep(table.name, {}, kept)
        if isinstance(reason, Missing):
            return reason
        cause, also, unknown = reason.partition(ALSO_UNKNOWN)
        known = _doubts(kept)
        same = [one for one in known if _has(cause, one["why"])]
        gone = [one for one in known if one not in same]
        if checkpoint is not None:
            gone = [one for one in gone if not _is_read_since(table, checkpoint, one["bases"])]
            # a doubt from while nothing was known of the bases
            gone = [{**one, "bases": begun} if one["bases"] is None else one for one in gone]
        bases = same[-1]["bases"] if begun is None and same else begun
        doubts = [*gone, {"why": cause, "bases": bases}] if cause else gone
        self._keep(table.name, kept, {"doubts": doubts} if doubts else {})
        earlier = "; ".join(one["why"] for one in gone)
        since = f"{earlier}{SINCE_GONE}" if earlier else ""
        return "; ".join(filter(None, (f"{cause}{also}{unknown}", since)))

    def _recall(self, table: str) -> Mapping[str, Any]:
        if table not in self._kept:
            self._kept[table] = self.memory.recall(table, CHECK) or {}
        return self._kept[table]

    def _keep(self, table: str, before: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        if before != kept:
            self.memory.remember(table, CHECK, kept, self.clock())
            self._kept[table] = kept


def _find_begun(table: Table, checkpoint: Checkpoint) -> Mapping[str, list[int]]:
    """Return, by shard, the order of its newest base or reading that has begun."""
    found = ((shard, max(_begun_orders(shard, checkpoint), default=None)) for shard in table.shards)
    return {shard_name(shard): [*order.parts] for shard, order in found if order is not None}


def _begun_orders(shard: Shard, checkpoint: Checkpoint) -> Iterator[Order]:
    backfill, snap = checkpoint.backfills.get(shard), checkpoint.snaps.get(shard)
    known = [checkpoint.bases.get(shard), None if snap is None else snap.order]
    known += [one.get(shard.source) for one in (checkpoint.snapshots, checkpoint.initial)]
    known += [backfill.order] if backfill is not None and backfill.done is None else []
    yield from (order for order in known if order is not None)


def _doubts(kept: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the doubts that are stored, each with its cause and what had begun; newest last.

    Earlier versions stored one doubt.
    """
    return list(kept["doubts"]) if "doubts" in kept else [kept] if kept else []


def _has(cause: str, earlier: str) -> bool:
    """Whether *cause* names all that *earlier* names, such as one of two foreign keys."""
    words = (one for one in _WORDS.findall(earlier) if not _COUNTED.fullmatch(one))
    return {*words} <= {*_WORDS.findall(cause)}


def _is_read_since(
    table: Table, checkpoint: Checkpoint, begun: Mapping[str, Sequence[int]] | None
) -> bool:
    """Whether each shard has a base that began after *begun*; a lower epoch is of a new log."""
    if begun is None:
        return False
    bases = {shard_name(one): checkpoint.bases.get(one) for one in table.shards}
    if all(base is None for base in bases.values()):
        return False
    pairs = ((bases[name], Order(*begun[name])) for name in bases if name in begun)
    return all(
        base is not None and (base.event > old.event or base.epoch < old.epoch)
        for base, old in pairs
    )
