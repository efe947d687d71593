"""What does a mirror tell as of one version, and what does Sluice let it remember?

What Sluice knows of a mirror stands in the mirror's own commits and nowhere else: the number of the
batch that it is applied through, some short texts, and a note on each commit of ours.  Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pipeline.apply.floors import Floors
from pipeline.changelog.table import app
from pipeline.image import IMAGES, Image, images_in
from pipeline.model import Order, Shard

FLOORS, SCHEMAS, LIFE = "sluice.floors", "sluice.schemas", "sluice.life"  # names of texts
ARCHIVED = "sluice.archived"
STANDARDS = "sluice.standards"
_images: dict[str, tuple[str, tuple[Image, ...]]] = {}  # by address; as many as there are mirrors


class MirrorSnapshot(Protocol):
    """A mirror as of one version; it can be pickled, and is kept from look to look."""

    @property
    def uri(self) -> str:
        """The mirror's address."""
        ...

    @property
    def version(self) -> int:
        """From 0 on, without gaps."""
        ...

    @property
    def entry(self) -> str:
        """Tells this version's commit from another that may come to stand in its place."""
        ...

    @property
    def id(self) -> str:
        """Tells this mirror from another that may be made in its folder."""
        ...

    @property
    def shape(self) -> str:
        """Another one where other columns, or other remembered texts, go with the same rows."""
        ...

    @property
    def rows(self) -> int | None:
        """How many there are; None where only its files would tell."""
        ...

    @property
    def transactions(self) -> Mapping[str, int]:
        """Numbers of applied batches, by their applications."""
        ...

    @property
    def remembered(self) -> Mapping[str, str]:
        """Texts that Sluice has told the mirror to keep; there may be others."""
        ...


@dataclass(frozen=True, slots=True)
class CommitStamp:
    """Whose commit it is, and when; ``life`` is that of the batch which is applied."""

    lane: str
    at: datetime
    life: int | None = None


def batch_of(snapshot: MirrorSnapshot, lane: str) -> int:
    """The batch a mirror is applied through; -1 before the first."""
    return snapshot.transactions.get(app(lane), -1)


def floors_of(snapshot: MirrorSnapshot) -> dict[Shard, Order]:
    """The highest truncate or settle of each shard that the mirror remembers."""
    text = snapshot.remembered.get(FLOORS, "{}")
    return {Shard.parse(name): Order(*parts) for name, parts in json.loads(text).items()}


def schemas_of(snapshot: MirrorSnapshot) -> dict[str, Order]:
    """``source/shard`` -> order of the schema change that the mirror follows."""
    text = snapshot.remembered.get(SCHEMAS, "{}")
    return {name: Order(*parts) for name, parts in json.loads(text).items()}


def told_floors(floors: Floors) -> dict[str, str]:
    """The text that remembers *floors*."""
    return {FLOORS: _told({str(s): order for s, order in floors.items()})}


def images_of(snapshot: MirrorSnapshot) -> tuple[Image, ...]:
    """The versions of the mirror that are images of cuts, oldest cut first.

    Asked for in every pass and every look: the newest text of each mirror is kept as it was read.
    """
    text = snapshot.remembered.get(IMAGES)
    if text is None:
        return ()
    known = _images.get(snapshot.uri)
    if known is None or known[0] != text:
        known = text, images_in(text)
        _images[snapshot.uri] = known
    return known[1]


def standards_of(snapshot: MirrorSnapshot) -> str:
    """The digest of the standards by which its rows are written; empty if by none."""
    return snapshot.remembered.get(STANDARDS, "")


def told_standards(snapshot: MirrorSnapshot | None, digest: str) -> dict[str, str]:
    """The text that remembers *digest*, where there is or was one."""
    known = snapshot is not None and STANDARDS in snapshot.remembered
    return {STANDARDS: digest} if digest or known else {}


def life_of(snapshot: MirrorSnapshot) -> int | None:
    """The life of landing whose batch was applied last; see :mod:`pipeline.checkpoint`."""
    text = snapshot.remembered.get(LIFE)
    return None if text is None else int(text)


def keeps_archived(snapshot: MirrorSnapshot) -> bool:
    """Whether it may hold rows that went to an archive; once it may, it says so for good."""
    return ARCHIVED in snapshot.remembered


def told_archived() -> dict[str, str]:
    """The text that remembers it."""
    return {ARCHIVED: "kept"}


def told_life(life: int | None) -> dict[str, str]:
    """The text that remembers it."""
    return {} if life is None else {LIFE: str(life)}


def told_schemas(orders: Mapping[str, Order]) -> dict[str, str]:
    """The text that remembers which schema changes are followed."""
    return {SCHEMAS: _told(orders)}


def following(snapshot: MirrorSnapshot, batch: int, lane: str, **more: object) -> dict[str, object]:
    """As ``note``, of a commit that follows *snapshot*; with its shape and how many rows it has.

    Others' commits are held against these.
    """
    return note(snapshot.version, batch, lane, shape=snapshot.shape, rows=snapshot.rows, **more)


def note(after: int, batch: int, lane: str, **more: object) -> dict[str, object]:
    """What a commit of ours says of itself: it follows version *after*."""
    return {"sluice": {"after": after, "batch": batch, "lane": lane, **more}}


def _told(orders: Mapping[str, Order]) -> str:
    return json.dumps({name: order.parts for name, order in orders.items()}, sort_keys=True)
