"""Compaction and VACUUM, each in the table's own turn, never taking what a reader still needs."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.apply.mirror import Mirror
from pipeline.errors import HeldError, ProofError
from pipeline.lake.pinned import open_table
from pipeline.mark import Mark
from pipeline.model import Op
from pipeline.settings import PipelineSettings
from pipeline.spark import described

DROPPED = "sluice.dropped"  # property of the change log: the last batch of a dropped day
_KEPT_OPS = (Op.DDL, Op.MARK, Op.ERROR)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_AT_ONCE = timedelta(seconds=15)
_BEGINNING = timedelta(minutes=10)
_LEAST = timedelta(hours=168)  # Delta's own guard; it is never turned off


def require_history(log: str, based: Mapping[str, int], shards: Collection[str]) -> None:
    """Make sure that the change log at *log* still holds all changes since the shards' bases.

    *based*: ``source/shard`` -> batch its base began in.

    Raises:
        HeldError: that day was dropped; a mirror begun now would lack rows.
    """
    found = open_table(log)
    dropped = int(found.properties().get(DROPPED, "-1")) if found is not None else -1
    lost = sorted(name for name in shards if based.get(name, dropped + 1) <= dropped)
    if lost:
        detail = f"changes of {lost[0]} since its base are no longer kept; take a new base"
        raise HeldError("no_base", detail)


@dataclass(eq=False)
class Upkeep:
    """Compact and clean one lane's lake; ``due`` says how long ago each table was last done.

    Runs in the process that merges, between merges: beside a MERGE of the same table, OPTIMIZE
    makes one of the two fail.
    """

    session: SparkSession
    settings: PipelineSettings
    clock: Callable[[], datetime]
    _compacted: dict[str, datetime] = field(default_factory=dict)
    _vacuumed: dict[str, datetime] = field(default_factory=dict)

    def run(
        self,
        mark: Mark,
        readers: Mapping[str, int],
        applied: Mapping[str, int],
        held: Callable[[str], bool],
    ) -> None:
        """Do what is due of the change log and all mirrors, for some seconds; the rest next time.

        Landing and merging wait meanwhile.  Whose turn is longest ago comes first.

        *readers*: table -> lowest version that a registered reader still needs.
        *applied*: table -> applied batch; no day that holds a later one is dropped.
        *held*: whether to leave a mirror alone: a commit of ours on top of somebody else's would
        make it impossible to take that one back.  Asked only of mirrors that are due.
        """
        began = self.clock()
        self._log(mark, applied)
        for table in sorted(
            mark.tables, key=lambda name: (self._compacted.get(name, _NEVER), name)
        ):
            compact, vacuum = self._due(table)
            if not (compact or vacuum) or held(table):
                continue
            mirror = Mirror(self.session, self.settings.mirror(table), self.settings.lane)
            if mirror.state.version < 0:
                continue
            with described(self.session, f"upkeep of {table}"):
                if compact:
                    self._compact(mirror, table)
                if vacuum:
                    self._vacuum(mirror, table, readers.get(table))
            if self.clock() - began > _AT_ONCE:
                return

    def _due(self, name: str) -> tuple[bool, bool]:
        """Whether it is time to compact, and to vacuum.  A process that began waits a little.

        Not for the whole time, or one that is restarted more often would never clean up.
        """
        every = self.settings.upkeep
        times = ((self._compacted, every.compact_every), (self._vacuumed, every.vacuum_every))
        now = self.clock()
        compact, vacuum = (
            now - done.setdefault(name, now - often + min(often, _BEGINNING)) >= often
            for done, often in times
        )
        return compact, vacuum

    def _compact(self, mirror: Mirror, name: str) -> None:
        self._compacted[name] = self.clock()
        with mirror.noted(-1):
            DeltaTable.forPath(self.session, mirror.path).optimize().executeCompaction()

    def _vacuum(self, mirror: Mirror, name: str, read: int | None) -> None:
        """Take what no kept version needs; nothing at all while somebody reads an older one.

        A longer time would not save that one: Delta forgets what was removed, and when, as soon as
        the mirror's own retention has passed.
        """
        self._vacuumed[name] = self.clock()
        kept = max(self.settings.upkeep.keep_versions, _LEAST)
        since = self._since(mirror.path, read)
        if since is None or self.clock() - since > kept:
            return
        mirror.keep(kept)
        DeltaTable.forPath(self.session, mirror.path).vacuum(kept / timedelta(hours=1))

    def _since(self, path: str, read: int | None) -> datetime | None:
        """When version *read* was committed, now if it is the newest; None if no log tells.

        What it needs was removed later than that, by the stamps of the log.
        """
        found = open_table(path)
        if found is None or read is None or read >= found.version:
            return self.clock()
        try:
            return found.commit(read).at
        except ProofError:
            return None

    def _log(self, mark: Mark, applied: Mapping[str, int]) -> None:
        """Compact the change log, and drop its oldest days that nobody needs any more."""
        path = self.settings.changes
        compact, vacuum = self._due("")
        if not (compact or vacuum):
            return
        table = DeltaTable.forPath(self.session, path)
        if vacuum:
            self._vacuumed[""] = self.clock()
            table.vacuum()  # what the log itself has forgotten: batches are never read by version
        if compact:
            self._compacted[""] = self.clock()
            table.optimize().executeCompaction()
            self._drop(table, mark, applied)

    def _drop(self, table: DeltaTable, mark: Mark, applied: Mapping[str, int]) -> None:
        """Drop whole days that are old, and that no mirror and no open question needs."""
        path = self.settings.changes
        oldest = (self.clock() - self.settings.upkeep.keep_changes).date()
        needed = self._first_needed(mark, applied)
        days = (
            self.session.read.format("delta")
            .load(path)
            .where(F.col("dt") < F.lit(oldest))
            .groupBy("dt")
            .agg(F.max("batch").alias("last"))
            .collect()
        )
        free = [row["dt"] for row in days if row["last"] < needed]
        if free and not mark.quarantined and not mark.gaps:
            kept = F.col("op").isin([str(op) for op in _KEPT_OPS])
            last = max(row["last"] for row in days if row["dt"] in free)
            self.session.sql(
                f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{DROPPED}' = '{last}')"
            )
            table.delete(F.col("dt").isin(free) & ~kept)

    def _first_needed(self, mark: Mark, applied: Mapping[str, int]) -> int:
        """The lowest batch that some mirror has not applied; the newest one is always needed."""
        behind = [
            applied.get(t, -1) + 1 for t, last in mark.tables.items() if applied.get(t, -1) < last
        ]
        return min([mark.batch, *behind])
