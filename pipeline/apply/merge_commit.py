"""Builds what the commit of a merge contains, in any table format: batch, properties and note.

The rows do not say through which batch the mirror is applied. Only the transaction number in
the commit does. The commit of an image has no account: the next merge takes the same changes
and accounts for all of them.

Floors may be committed before the rows, because nothing below them is ever inserted. The floor
of a table rename may not: without the moved rows it would be believed forever.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from pipeline.apply.decide import Floors, highest
from pipeline.apply.images import kept
from pipeline.apply.merge import Written
from pipeline.apply.merge_job import MirrorJob
from pipeline.apply.mirror import (
    CommitStamp,
    MirrorSnapshot,
    following,
    images_of,
    told_archived,
    told_floors,
    told_life,
)
from pipeline.changelog.table import app
from pipeline.image import Image, told_images

S = TypeVar("S", bound=MirrorSnapshot)


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """What is told with the rows: the applied batch's number, texts to be remembered, a note."""

    application: str
    batch: int
    remembered: Mapping[str, str]
    note: Mapping[str, object]


def turn_commit(job: MirrorJob[S], written: Written[Any], stamp: CommitStamp) -> TurnCommit:
    """What the commit of *written* tells, besides what others know already."""
    reached, floors = job.reached, highest(written.floors)
    images = _images(job, written)
    return TurnCommit(
        application=app(stamp.lane),
        batch=reached,
        remembered={
            **(told_floors(floors) if floors else {}),
            **told_life(stamp.life),
            **(told_archived() if job.archive is not None else {}),
            **(told_images(images) if images else {}),
        },
        note=following(job.snapshot, reached, stamp.lane, **told_turn(job, written)),
    )


def _images(job: MirrorJob[S], written: Written[Any]) -> tuple[Image, ...]:
    """What is to be remembered of images: that which the turn makes, or those it is late for."""
    if job.image is None:
        return job.images
    before, counts = job.snapshot.rows, written.counts
    gained = counts.inserted - counts.deleted - counts.floored
    made = replace(job.image, rows=None if before is None else before + gained)
    return tuple(kept(images_of(job.snapshot), made).values())


def floors_first(job: MirrorJob[S], written: Written[Any]) -> Floors:
    """Floors that may be remembered in a commit of their own before that of the turn's rows.

    Below them nothing is ever inserted, whatever becomes of the turn.  One that tells that moved
    rows have come is none of these: without the rows, it would be believed for good.
    """
    came = {move.shard: move.order for move in job.moves}
    own = {shard: order for shard, order in written.floors.items() if came.get(shard) != order}
    return highest(job.floors or {}, own)


def told_turn(job: MirrorJob[S], written: Written[Any]) -> Mapping[str, object]:
    """What the note of a turn says of it, besides the version that it follows.

    That of an image has no account: another turn takes the same changes, and tells of them all.
    """
    if job.image is not None:
        return {"since": job.wanted.after, "known": job.image.cut.isoformat(), "image": True}
    known = job.at.isoformat()
    return {"since": job.wanted.after, "known": known, "account": asdict(written.account)}
