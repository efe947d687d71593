"""Few files and short logs of a Delta mirror; nothing is taken that a reader still needs."""

import math
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.apply.mirror_snapshot import CommitStamp, following
from pipeline.apply.table_format import Chores
from pipeline.lake import checkpoints, vacuum
from pipeline.lake.alterations import with_properties
from pipeline.lake.commit import commit
from pipeline.lake.log import ActiveFile, Snapshot
from pipeline.lake.protocol import refuse
from pipeline.lake.store import Store
from pipeline.tables.delta.layout import Layout
from pipeline.tables.delta.mirror_files import MirrorFiles
from pipeline.tables.delta.rewrite import rewrite
from pipeline.tables.delta.worn_files import LARGE, worn
from pipeline.tables.delta.write import Target

COMPACTS = "OPTIMIZE"
_KEPT = "delta.deletedFileRetentionDuration"
_HISTORY = timedelta(days=30)  # Delta's own default for its log


@dataclass(eq=False)
class MirrorUpkeep:
    """Compact, checkpoint and clean mirrors that we write ourselves, by their addresses."""

    _checkpointed: dict[str, int] = field(default_factory=dict)
    _whole: dict[str, int] = field(default_factory=dict)  # rows of files that do not become larger

    def worn(self, snapshot: Snapshot) -> tuple[ActiveFile, ...]:
        """The files that are to be written anew; none if it reads well enough."""
        return worn(snapshot.files.values(), self._whole.get(snapshot.uri, LARGE))

    def overdue(self, snapshot: Snapshot) -> bool:
        """Whether its log wants a checkpoint."""
        return checkpoints.overdue(snapshot, self._checkpointed.get(snapshot.uri, -1))

    def kept(self, store: Store, snapshot: Snapshot, chores: Chores) -> Snapshot:
        """Do what is due.

        Raises:
            LostRaceError: somebody else committed meanwhile.
            HeldError: ``protocol``, it is none that we write; or a file cannot be read.
        """
        refuse(snapshot)
        if files := self.worn(snapshot):
            snapshot = self._compacted(store, snapshot, files, chores)
        if self.overdue(snapshot):
            checkpoints.checkpoint(store)
            self._checkpointed[snapshot.uri] = snapshot.version
        if chores.keep is not None:
            snapshot = _remembering(store, snapshot, chores.keep, chores.stamp)
            since = chores.stamp.at - chores.keep
            vacuum.vacuum(store, chores.keep)
            vacuum.sweep_vectors(store, snapshot, since)
            checkpoints.sweep(store, since)
            checkpoints.clean(store)
        return snapshot

    def _compacted(
        self, store: Store, snapshot: Snapshot, files: tuple[ActiveFile, ...], chores: Chores
    ) -> Snapshot:
        mirror = MirrorFiles(store=store, files=files, layout=Layout.of(snapshot.metadata))
        stamp = chores.stamp
        target = Target(store, snapshot.metadata, chores.key, stamp.at, compression="zstd")
        made = rewrite(mirror, target, data_change=False)
        if len(made.files) > 1:  # those before the last have all that is held in memory at once
            self._whole[snapshot.uri] = min(made.files[:-1]) // 2
        return commit(
            store,
            snapshot,
            made.actions,
            operation=COMPACTS,
            clock=stamp.at,
            note=following(snapshot, -1, stamp.lane),
        )


def _remembering(store: Store, snapshot: Snapshot, kept: timedelta, stamp: CommitStamp) -> Snapshot:
    """Let the log remember for so long which files have left; a checkpoint forgets the rest."""
    files, entries = (
        f"interval {math.ceil(time / timedelta(hours=1))} hours"
        for time in (kept, max(kept, _HISTORY))
    )
    wanted = {_KEPT: files, "delta.logRetentionDuration": entries}
    actions = with_properties(snapshot, wanted)
    if not actions:
        return snapshot
    told = following(snapshot, -1, stamp.lane)
    return commit(
        store, snapshot, actions, operation="SET TBLPROPERTIES", clock=stamp.at, note=told
    )
