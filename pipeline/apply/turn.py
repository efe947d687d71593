"""One turn of one mirror: the newest change of each key, guarded, merged, and accounted for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.apply.account import Counted, balance, unexplained
from pipeline.apply.evolve import evolve
from pipeline.apply.fold import ROW_OPS, fold
from pipeline.apply.last_turn import LastTurn, told
from pipeline.apply.merge import count_untouched, delete_older, merge
from pipeline.apply.mirror import Mirror
from pipeline.apply.slices import Share, Slice
from pipeline.apply.typed import Look, as_struct, look, suspect, typed
from pipeline.errors import HeldError
from pipeline.model import Account, Op, Order, Table
from pipeline.report import Applied, Hold
from pipeline.schema.history import TableSchema
from pipeline.spark import described


@dataclass(frozen=True, slots=True)
class Turn:
    """What one mirror is to be brought to.

    ``after`` is its applied batch, -1 before the first.  ``high`` is the highest LIVE order of each
    partition it has applied, None if not known.  ``newest`` holds the newest landed schema of each
    ``source/shard``, ``schema`` all of them in one; ``schema_at`` finds an earlier one.
    """

    table: Table
    schema: TableSchema
    newest: Mapping[str, TableSchema]
    schema_at: Callable[[str, Order], TableSchema | None]
    after: int
    high: Mapping[str, Order] | None
    grown: bool


@dataclass(eq=False)
class Applier:
    """Apply turns in one worker's own Spark session."""

    session: SparkSession
    lane: str
    log: str
    clock: Callable[[], datetime]

    def apply(self, turn: Turn, slice_: Slice, path: str) -> Applied:
        """Bring one mirror to the slice's last batch, or say in ``hold`` why it stands still."""
        started = self.clock()
        mirror = Mirror(self.session, path, self.lane)
        account, hold, batch = Account(), None, turn.after
        try:
            with described(self.session, f"apply {turn.table.name} up to batch {slice_.until}"):
                account = self._apply(turn, slice_, mirror)
            batch = slice_.until
            hold = unexplained(turn.table.name, batch, account)
        except HeldError as error:
            hold = hold_of(turn.table.name, error)
        except (PySparkException, Py4JJavaError) as error:
            hold = hold_of(turn.table.name, _failed(error))
        took = self.clock() - started
        version = mirror.state.version
        return Applied(turn.table.name, batch, version, account, started, took, hold)

    def recount(self, turn: Turn, slice_: Slice, path: str, last: LastTurn) -> Account:
        """The account of *last*, a turn merged before, from its own changes in *slice_*."""
        mirror = Mirror(self.session, path, self.lane)
        with self._rows(turn, slice_, {}) as rows:
            _, kept = self._kept(turn, mirror, rows)
            return self._close(turn, mirror, kept, last)

    def _apply(self, turn: Turn, slice_: Slice, mirror: Mirror) -> Account:
        share = slice_.shares.get(turn.table.name, Share())
        born = evolve(mirror, turn.schema, turn.newest, turn.schema_at)
        if share.floors:
            mirror.raise_floors(share.floors)
            delete_older(mirror, share.floors, slice_.until)
        with self._rows(turn, slice_, born) as rows:
            return self._merge(turn, share, mirror, rows, slice_.until)

    @contextmanager
    def _rows(self, turn: Turn, slice_: Slice, born: Mapping[str, Order]) -> Iterator[DataFrame]:
        """The turn's changes, folded, typed and cached."""
        changes = slice_.of(self.session, turn.table.name)
        changes = changes.where(F.col("op").isin(list(ROW_OPS)))
        folded = fold(changes, unique=turn.table.unique_across_shards)
        rows = typed(folded, turn.schema, born).persist()
        try:
            yield rows
        finally:
            rows.unpersist()

    def _merge(
        self, turn: Turn, share: Share, mirror: Mirror, rows: DataFrame, until: int
    ) -> Account:
        seen, kept = self._kept(turn, mirror, rows)
        counted = _counted(share, seen)
        note = told(turn.after, counted)
        if seen.kept == 0:
            mirror.number(until, note)
            return balance(counted, 0, 0)
        before = mirror.state.version
        merged = merge(mirror, kept, turn.table, seen.bounds, batch=until, told=note)
        self._check_number(mirror, until)
        done = LastTurn(until, turn.after, before, counted, merged.applied)
        return self._close(turn, mirror, kept, done)

    def _kept(self, turn: Turn, mirror: Mirror, rows: DataFrame) -> tuple[Look, DataFrame]:
        """What the turn's changes are, and those of them that may act."""
        doubtful = _doubtful(turn)
        seen = look(rows, turn.table.key, doubtful)
        return seen, self._standing(turn, mirror, rows, doubtful if seen.suspects else None)

    def _close(self, turn: Turn, mirror: Mirror, kept: DataFrame, done: LastTurn) -> Account:
        """The account of what was *done*; compares with the mirror only where it must."""
        counted = done.counted
        if done.explained:
            return balance(counted, done.applied, counted.vanished)
        noop, again = count_untouched(mirror, kept, turn.table, done.before)
        return balance(counted, done.applied, noop + counted.kept - kept.count(), again)

    def _standing(
        self, turn: Turn, mirror: Mirror, rows: DataFrame, doubtful: Column | None
    ) -> DataFrame:
        """Rows without upserts that a truncate, a settle or a landed delete has outlived."""
        upsert = F.col("_sluice.op") != Op.DELETE
        gone = F.lit(False)
        for name, order in mirror.floors().items():
            source, _, shard = name.partition("/")
            own = (F.col("_sluice.source") == source) & (F.col("_sluice.shard") == shard)
            gone = gone | (own & (F.col("_sluice.order") < as_struct(order)))
        standing = rows.where(~(upsert & gone))
        if doubtful is None:
            return standing
        log = self.session.read.format("delta").load(self.log)
        deletes = log.where(
            (F.col("table") == turn.table.name)
            & (F.col("op") == Op.DELETE)
            & (F.col("batch") <= turn.after)
        )
        last = deletes.groupBy("key").agg(F.max("order").alias("deleted")).alias("d")
        outlived = doubtful & (F.col("d.deleted") >= F.col("_sluice.order"))
        same = F.col("_work.key") == F.col("d.key")
        return standing.join(last, same & outlived, "left_anti")

    def _check_number(self, mirror: Mirror, until: int) -> None:
        found = mirror.state.batch
        if found != until:
            raise HeldError("not_ours", f"{mirror.path} says batch {found}, expected {until}")


def _doubtful(turn: Turn) -> Column:
    """Which upserts may be older than a delete; none in a mirror that was never applied."""
    return F.lit(False) if turn.after < 0 else suspect(turn.high, turn.grown)


def _failed(error: Exception) -> HeldError:
    """What Spark said, on one line; a dead JVM is another error, and not one table's."""
    said = str(getattr(error, "java_exception", error)).splitlines()
    return HeldError("failed", said[0][:500] if said else type(error).__name__)


def hold_of(table: str, error: HeldError) -> Hold:
    """The hold of a table that stands still because of *error*; stable while the cause lasts."""
    return Hold(f"{error.reason}:{table}", table, error.reason, error.detail)


def _counted(share: Share, seen: Look) -> Counted:
    return Counted(
        read=share.read,
        rows=share.count(*ROW_OPS),
        kept=seen.kept,
        distinct=seen.distinct,
        ordered=share.count(Op.TRUNCATE, Op.SETTLE),
        tombstones=share.count(Op.TOMBSTONE),
        quarantined=share.count(Op.ERROR),
        vanished=seen.vanished,
    )
