"""Which turn puts into an image what landed too late for it, and may it have one?

Its changes are those of later batches that stand below the cut; what stands above it is as if it
had never been, deletes too.  Rows that were read from a source again tell of it as of when they
were read: they go in only if that ended below the cut.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.decide import AppliedBefore
from pipeline.apply.due_images import doubts
from pipeline.apply.floors import highest, of_bases
from pipeline.apply.landed_archives import LandedArchives, landed_archives
from pipeline.apply.landed_state import LandedState
from pipeline.apply.late_changes import below_cut
from pipeline.apply.mirror_job import LandedDeletes
from pipeline.apply.mirror_snapshot import floors_of
from pipeline.apply.provenance import plain
from pipeline.apply.turn import TurnTask
from pipeline.archive import ArchiveRules
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import APPLIED_COLUMNS, WantedBatches, parts, read
from pipeline.changelog.table import DROPPED
from pipeline.checkpoint import Mark
from pipeline.errors import HeldError
from pipeline.image import Image
from pipeline.model import Op, Order, Shard, Table

REFUSED = "image_uncorrected"


@dataclass(frozen=True, slots=True)
class DeletesBelow:
    """Asks the change log for deletes of keys, but for those above a cut."""

    landed: LandedDeletes
    places: Mapping[str, Order]

    def __call__(self, keys: pa.StringArray) -> pa.Table:
        """Key, source, shard, order and origin of the landed deletes of *keys*."""
        return below_cut(self.landed(keys), self.places)


def correction(
    image: Image,
    name: str,
    landed: LandedState,
    changes: ChangeLog,
    at: datetime,
    *,
    rules: ArchiveRules | None,
) -> Callable[[Any], TurnTask[Any]]:
    """The turn, for the version that is the *image* of table *name*; *rules* are of its archive.

    Raises:
        HeldError: ``image_uncorrected``; nobody can tell the table as it was at the cut any more.
        UnreachableError: the change log cannot be read.
    """
    table = landed.catalog.table(name, landed.mark.shards)
    _refuse_other_sources(table, image)
    changes.look()
    archive = landed_archives(table, rules, changes, landed.mark, image.batch)
    late = _joined(_late(image, name, landed.mark, changes), archive, image)
    schema, newest = landed.catalog.schema(table), landed.catalog.newest_of(table)

    def task(snapshot: Any) -> TurnTask[Any]:
        floors = floors_of(snapshot)
        if why := doubts(table, image.positions, landed.mark, floors):
            raise HeldError(REFUSED, f"{name}: {why}")
        return TurnTask(
            table=table,
            snapshot=snapshot,
            columns=schema.columns,
            changes=late,
            at=at,
            deletes=_deletes(image, name, changes),
            known=AppliedBefore(None),  # so each insert is looked for among the deletes
            floors=highest(floors, of_bases(table, landed.mark, image)),
            fills=tuple(fill for one in newest for fill in landed.catalog.fills(one)),
            archive=None if archive is None else archive.evidence,
        )

    return task


def _refuse_other_sources(table: Table, image: Image) -> None:
    if any(source not in image.positions for source in table.sources):
        raise HeldError(REFUSED, f"{table.name}: it is folded from other sources now")


def _deletes(image: Image, name: str, changes: ChangeLog) -> DeletesBelow:
    files = parts(changes.snapshot, -1, image.batch, (Op.DELETE,))
    return DeletesBelow(LandedDeletes(changes.store.uri, files, name, image.batch), image.positions)


def _joined(late: pa.Table, archive: LandedArchives | None, image: Image) -> pa.Table:
    """With the deletes of before of keys that were left for those that *late* changes have."""
    return late if archive is None else below_cut(archive.joined(late), image.positions)


def _late(image: Image, name: str, mark: Mark, changes: ChangeLog) -> pa.Table:
    """All that came after the image was made and stands below its cut."""
    until = image.corrected().through
    wanted = WantedBatches(image.batch, until)
    files = parts(changes.snapshot, image.batch, until)
    columns = (*APPLIED_COLUMNS, "tx")  # a marker may stand in the transaction
    rows = read(changes.store, files, {name: wanted}, columns=columns).get(name)
    dropped = int(changes.snapshot.metadata.configuration.get(DROPPED, "-1"))
    if rows is None or mark.batch < until or dropped > image.batch:  # with deletes from before it
        raise HeldError(REFUSED, f"{name}: what was late is not in the change log any more")
    late = below_cut(rows, image.positions)
    _refuse_read_later(late, mark)
    return late


def _refuse_read_later(late: pa.Table, mark: Mark) -> None:
    """Return only if rows that were read from a source are of a reading that the mark knows.

    Whether that ended below the cut is asked with all other doubts.
    """
    again = late.filter(pc.equal(plain(late["op"]), str(Op.READ)))
    for row in again.select(["source", "shard", "order"]).to_pylist():
        shard, order = Shard(row["source"], row["shard"]), Order(**row["order"])
        known = mark.rereads.get(str(shard))
        if known is None or order < known.lowest:
            raise HeldError(REFUSED, f"{shard}: rows were read again, and nobody knows until when")
