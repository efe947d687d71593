"""Decides which mirror becomes the image of a cut, how long it waits, and how to correct it.

A mirror with images gets no merge after a cut until all below the cut is proven to have landed.
Then one merge takes only the changes below the cut, and its commit is the image. So an image is
a version of the mirror, and nothing is copied. A mirror that waits longer than `hold_back`
continues without an image of that cut. A table without log positions has no images.

A correction merges changes of later batches that are below the cut into a clone of the image.
Everything above the cut is ignored, deletes too. Backfilled rows describe the time of their
read, so they are included only if the backfill ended below the cut.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pipeline.apply.archive_evidence import LandedArchives, find_archives
from pipeline.apply.decide import AppliedBefore, base_floors, highest_orders
from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge import MergeTask
from pipeline.apply.merge_job import LandedDeletes, below_cut
from pipeline.apply.mirror import Commit, batch_of, floors_of, images_of
from pipeline.apply.row_metadata import flat_column
from pipeline.apply.table_format import Mirrors
from pipeline.archive import ArchiveRules
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import APPLIED_COLUMNS, WantedBatches, find_parts, read_tables
from pipeline.changelog.table import DROPPED
from pipeline.checkpoint import Checkpoint
from pipeline.errors import HeldError
from pipeline.image import DueCut, Image, cut_positions, find_missing, shards_digest
from pipeline.model import Op, Order, Shard, Table
from pipeline.settings import PipelineSettings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CutDelay:
    """The mirror must not merge until all changes below ``cut`` have landed, or until ``until``."""

    cut: datetime
    until: datetime


@dataclass(eq=False)
class DueImages:
    """Decides which image of a cut each table's next merge makes.

    Its state is a cache of what the mirrors' commits say, and since when a mirror waits.
    ``unplaced`` are sources without log positions. Their orders are offsets, which cannot be
    compared with a heartbeat's position.
    """

    settings: PipelineSettings
    mirrors: Mirrors[Any]
    clock: Callable[[], datetime]
    cuts: tuple[DueCut, ...] = ()
    unplaced: frozenset[str] = frozenset()
    _waiting: dict[tuple[str, datetime], datetime] = field(default_factory=dict)
    _missed: set[tuple[str, datetime]] = field(default_factory=set)
    _refused: set[tuple[str, datetime]] = field(default_factory=set)
    _making: dict[str, datetime] = field(default_factory=dict)  # cuts, by table

    def set_cuts(self, cuts: Sequence[DueCut]) -> None:
        """Use *cuts* from now on; images of other cuts are no longer made."""
        self.cuts = tuple(sorted(cuts, key=lambda one: one.at))
        known = {one.at for one in cuts}
        self._waiting = {key: at for key, at in self._waiting.items() if key[1] in known}
        self._missed = {key for key in self._missed if key[1] in known}
        self._refused = {key for key in self._refused if key[1] in known}

    def has_due_cut(self, table: str) -> bool:
        """Whether a cut has passed whose image *table* does not have yet, but may still get."""
        return next(self._open(table, self.clock()), None) is not None

    def find_image(
        self, table: Table, checkpoint: Checkpoint, at: datetime
    ) -> Image | CutDelay | None:
        """The image that the next merge makes, or the delay until it can be made.

        None: an ordinary merge. *checkpoint* was read before *at*: if no cut has passed at *at*,
        the checkpoint contains nothing that was committed after a cut.

        Raises:
            UnreachableError: the mirror's commits cannot be read.
        """
        self._making.pop(table.name, None)
        due = next(self._open(table.name, at), None)
        if due is None:
            return None
        if why := self._never(table, due.at, at):
            self.note_missed(table.name, due.at, why)
            return None
        found = cut_positions(due, table.sources, checkpoint)
        if found is None:
            return self._patient(table.name, due, at)
        rule, seen = self.settings.published(table.name), self.mirrors.seen(table.name)
        if rule is None or seen is None:
            return None
        if why := find_doubts(table, found, checkpoint, floors_of(seen)):
            self.note_missed(table.name, due.at, why)
            return None
        fences = tuple(due.fences[source] for source in table.sources)
        until, shards = at + rule.keep, shards_digest(table.shards)
        self._making[table.name] = due.at
        made = (seen.version + 1, checkpoint.batch, fences, found, at, until, due.day)
        return Image(due.at, *made, shards=shards, pinned=rule.how != "parquet")

    def note_missed(self, table: str, cut: datetime, why: str) -> None:
        """Record that there is no image of *cut*; the next merge is an ordinary one."""
        self._making.pop(table, None)
        self._missed.add((table, cut))
        log.warning("image_missed", table=table, cut=cut.isoformat(), why=why)

    def note_held(self, table: str) -> None:
        """Record that the newest merge of *table* was held; its image is given up after a time.

        The change that would release an ordinary merge (a base, a repair) may be after the cut.
        """
        if table in self._making:
            self._refused.add((table, self._making[table]))

    def is_given_up(self, table: str, at: datetime) -> bool:
        """Whether an image of *table* was refused, and its wait time is over."""
        return any(self._hopeless(table, cut.at, at) for cut in self.cuts)

    def _never(self, table: Table, cut: datetime, at: datetime) -> str:
        """Why there can be no image, even after more has landed; empty if there can be one."""
        if not self.unplaced.isdisjoint(table.sources):
            return "its changes have no position in a log, so no cut can be made"
        if self._hopeless(table.name, cut, at):
            return "the merge that makes the image was refused for too long"
        return ""

    def _hopeless(self, table: str, cut: datetime, at: datetime) -> bool:
        rule, since = self.settings.published(table), self._waiting.get((table, cut))
        if rule is None or since is None or (table, cut) not in self._refused:
            return False
        return at - since > rule.hold_back

    def _open(self, table: str, at: datetime) -> Iterator[DueCut]:
        for cut in self.cuts:
            due = cut.at <= at and self.settings.published(table) is not None
            if due and not self._settled(table, cut.at):
                yield cut

    def _settled(self, table: str, cut: datetime) -> bool:
        """Whether there is an image of *cut*, or there can no longer be one."""
        if (table, cut) in self._missed:
            return True
        seen = self.mirrors.seen(table)
        if seen is None or batch_of(seen, self.settings.lane) < 0:
            return True  # its mirror was built after that, from nothing
        if any(one.cut >= cut for one in images_of(seen)):
            return True
        if self.mirrors.table_format.engine(seen) is not None:
            self.note_missed(table, cut, "another engine writes its mirror")
            return True
        if (table, cut) not in self._waiting:
            if not self._before(table, seen.version, cut):
                self.note_missed(
                    table, cut, "the mirror had merged past the cut before the cut was known"
                )
                return True
            self._waiting[table, cut] = self.clock()
        return False

    def _before(self, table: str, version: int, cut: datetime) -> bool:
        """Whether the newest merge contains only changes that landed before *cut*."""
        merges = (one for one in self.mirrors.commits(table, version) if "since" in one.own)
        merge = next(merges, None)
        return merge is not None and _read_known_time(merge) < cut

    def _patient(self, table: str, due: DueCut, at: datetime) -> CutDelay | None:
        rule, since = self.settings.published(table), self._waiting[table, due.at]
        if rule is not None and at - since <= rule.hold_back:
            return CutDelay(due.at, since + rule.hold_back)
        self.note_missed(
            table, due.at, "what is below the cut was not proven to have landed in time"
        )
        return None


def _read_known_time(merge: Commit) -> datetime:
    """Return a time at which all changes in *merge* had landed."""
    known = merge.own.get("known")
    return datetime.fromisoformat(known) if isinstance(known, str) else merge.at


def find_doubts(
    table: Table, places: Mapping[str, Order], checkpoint: Checkpoint, based: Mapping[Shard, Order]
) -> str:
    """Return why the landed changes do not show *table* as of *places*; empty if they do.

    *based*: see :func:`pipeline.image.find_missing`.
    """
    again = _explain_lost(table, checkpoint) or _read_again(table, places, checkpoint)
    return again or find_missing(table, places, checkpoint, based)


def _read_again(table: Table, places: Mapping[str, Order], checkpoint: Checkpoint) -> str:
    """Return which backfill was active at the cut, so that rows may be later; empty without one."""
    for shard in table.shards:
        one, cut = checkpoint.backfills.get(shard), places[shard.source]
        if one is not None and one.lowest < cut and (one.closing is None or one.closing > cut):
            return f"{shard} was being read again over the cut"
    return ""


def _explain_lost(table: Table, checkpoint: Checkpoint) -> str:
    """Return an open loss of *table*, before or after the cut; empty without one."""
    own = {str(shard) for shard in table.shards}
    for gap in checkpoint.gaps.values():
        if table.name in gap.tables or own & {*gap.shards} or not (gap.tables or gap.shards):
            return f"changes were lost before landing ({gap.id})"
    for subject, one in checkpoint.quarantine.items():
        if one.table == table.name or own & {*one.shards}:
            return f"changes could not be read ({subject})"
    return ""


REFUSED = "image_uncorrected"


@dataclass(frozen=True, slots=True)
class DeletesBelow:
    """Finds landed deletes of keys below a cut."""

    landed: LandedDeletes
    places: Mapping[str, Order]

    def __call__(self, keys: pa.StringArray) -> pa.Table:
        """Key, source, shard, order and origin of the landed deletes of *keys*."""
        return below_cut(self.landed(keys), self.places)


def plan_correction(
    image: Image,
    name: str,
    landed: LandedState,
    changes: ChangeLog,
    at: datetime,
    *,
    rules: ArchiveRules | None,
) -> Callable[[Any], MergeTask[Any]]:
    """Return a function from the version that is *image* to the merge that corrects it.

    *name* is its table, *rules* are the table's archive rules.

    Raises:
        HeldError: ``image_uncorrected``; the table as of the cut is no longer known.
        UnreachableError: the change log cannot be read.
    """
    table = landed.catalog.table(name, landed.checkpoint.shards)
    _refuse_other_sources(table, image)
    changes.look()
    archive = find_archives(table, rules, changes, landed.checkpoint, image.batch)
    late = _joined(_find_late_changes(image, name, landed.checkpoint, changes), archive, image)
    schema, newest = landed.catalog.schema(table), landed.catalog.newest_of(table)

    def task(snapshot: Any) -> MergeTask[Any]:
        floors = floors_of(snapshot)
        if why := find_doubts(table, image.positions, landed.checkpoint, floors):
            raise HeldError(REFUSED, f"{name}: {why}")
        return MergeTask(
            table=table,
            snapshot=snapshot,
            columns=schema.columns,
            changes=late,
            at=at,
            deletes=_deletes(image, name, changes),
            known=AppliedBefore(None),  # so each insert is looked up among the deletes
            floors=highest_orders(floors, base_floors(table, landed.checkpoint, image)),
            fills=tuple(fill for one in newest for fill in landed.catalog.fills(one)),
            archive=None if archive is None else archive.evidence,
        )

    return task


def _refuse_other_sources(table: Table, image: Image) -> None:
    if any(source not in image.positions for source in table.sources):
        detail = f"{table.name}: it is now folded from a source that the image does not have"
        raise HeldError(REFUSED, detail)


def _deletes(image: Image, name: str, changes: ChangeLog) -> DeletesBelow:
    files = find_parts(changes.snapshot, -1, image.batch, (Op.DELETE,))
    return DeletesBelow(LandedDeletes(changes.store.uri, files, name, image.batch), image.positions)


def _joined(late: pa.Table, archive: LandedArchives | None, image: Image) -> pa.Table:
    """*late* changes, and earlier deletes of rows that took the keys of creates among them."""
    return late if archive is None else below_cut(archive.with_rows(late), image.positions)


def _find_late_changes(
    image: Image, name: str, checkpoint: Checkpoint, changes: ChangeLog
) -> pa.Table:
    """Return all changes below the image's cut that landed after it was made."""
    until = image.corrected().through
    wanted = WantedBatches(image.batch, until)
    files = find_parts(changes.snapshot, image.batch, until)
    columns = (*APPLIED_COLUMNS, "tx")  # `tx` names the transaction that may have a marker
    rows = read_tables(changes.store, files, {name: wanted}, columns=columns).get(name)
    dropped = int(changes.snapshot.metadata.configuration.get(DROPPED, "-1"))
    if (
        rows is None or checkpoint.batch < until or dropped > image.batch
    ):  # with deletes from before it
        raise HeldError(REFUSED, f"{name}: late changes are no longer in the change log")
    late = below_cut(rows, image.positions)
    _refuse_read_later(late, checkpoint)
    return late


def _refuse_read_later(late: pa.Table, checkpoint: Checkpoint) -> None:
    """Check that each row that Sluice read from a source is of a backfill known to *checkpoint*.

    `find_doubts` checks whether that backfill ended below the cut.
    """
    again = late.filter(pc.equal(flat_column(late["op"]), str(Op.READ)))
    for row in again.select(["source", "shard", "order"]).to_pylist():
        shard, order = Shard(row["source"], row["shard"]), Order(**row["order"])
        known = checkpoint.backfills.get(shard)
        if known is None or order < known.lowest:
            raise HeldError(REFUSED, f"{shard}: its rows were read again until an unknown time")
