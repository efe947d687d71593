"""Defines an image of a mirror, and which changes belong in it.

An image is the mirror exactly as of a cut. The cut is a position in each source's log: the head
that was read after the first heartbeat after it. A change belongs in the image if its order is
below that position; its time stamp is irrelevant. Pure.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from pipeline.checkpoint import Checkpoint
from pipeline.model import Fence, Order, Shard, Table
from pipeline.sources.positions import locate_position

IMAGES = "sluice.images"  # name of the mirror's property


@dataclass(frozen=True, slots=True)
class DueCut:
    """A cut with images due; ``fences`` are its fences by source, once written.

    It may be in the future: then merges stop before it. ``day`` is the business day that it ends,
    as text: ``2026-03-29``.
    """

    at: datetime
    fences: Mapping[str, Fence] = field(default_factory=dict)
    day: str = ""


@dataclass(frozen=True, slots=True)
class LateChanges:
    """Changes of batches up to ``batch`` that belong in an image which was made without them.

    ``days``: day of their date column -> number of changes; empty if the table has no such column.
    """

    batch: int
    rows: int
    days: Mapping[str, int] = field(default_factory=dict)
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """A mirror as of ``cut``: its ``version``, and the ``positions`` below which changes belong.

    ``fences`` represent the cut, one per source of the table. ``batch`` is the batch whose
    checkpoint proved that all below them had landed. The image is kept ``until`` a time. ``path``
    is the folder of ``day`` to which it is exported; empty if it is read as a version of the
    mirror.

    ``late`` are the changes that landed since and belong in it; the first ``revision`` of these are
    in the export at ``path``. ``shards`` is the :func:`shards_digest` of its shards, ``rows`` its
    row count, if known. ``pinned``: the files of its version are kept as long as the image, and not
    only the export at ``path``.
    """

    cut: datetime
    version: int
    batch: int
    fences: tuple[Fence, ...]
    positions: Mapping[str, Order]
    made: datetime
    until: datetime
    day: str = ""
    path: str = ""
    late: tuple[LateChanges, ...] = ()
    shards: str = ""
    revision: int = 0
    rows: int | None = None
    pinned: bool = True

    @property
    def left_out(self) -> tuple[LateChanges, ...]:
        """The late changes that are not in it."""
        return self.late[self.revision :]

    @property
    def through(self) -> int:
        """The last batch whose changes from before the cut are in the image."""
        return self.late[self.revision - 1].batch if self.revision else self.batch

    def belongs(self, shard: Shard, order: Order) -> bool:
        """Whether a change of *shard* at *order* is from before the cut."""
        return order < self.positions[shard.source]

    def corrected(self) -> "Image":
        """The same image with all known late changes."""
        return replace(self, revision=len(self.late))

    def held(self, now: datetime) -> bool:
        """Whether it must still be kept."""
        return now <= self.until

    @property
    def keep(self) -> timedelta:
        """How long it is kept in total."""
        return self.until - self.made


def cut_positions(
    cut: DueCut, sources: Sequence[str], checkpoint: Checkpoint
) -> Mapping[str, Order] | None:
    """Source -> order of the cut; None unless *checkpoint* proves that all below it has landed.

    After a fail-over the fences must be of the current server: positions in another server's log,
    or in an earlier epoch of a server that has returned, are not comparable.
    """
    found: dict[str, Order] = {}
    for source in sources:
        fence = cut.fences.get(source)
        if fence is None or not checkpoint.covers(fence):
            return None
        if fence.number <= checkpoint.epochs[source].heartbeat:
            return None  # it had landed before this epoch began
        found[source] = Order(
            checkpoint.epochs[source].number, *locate_position(fence.head.position)
        )
    return found


def shards_digest(shards: Sequence[Shard]) -> str:
    """A short digest of the shards."""
    names = "\n".join(sorted(map(str, shards)))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def find_missing(
    table: Table, places: Mapping[str, Order], checkpoint: Checkpoint, based: Mapping[Shard, Order]
) -> str:
    """Why the mirror may miss changes below *places*, judged by bases; empty if it does not.

    A base that closed a gap or a quarantine proves rows from its own order on only: the mirror
    never had what was lost below it. *based*: shard -> an older base, or a truncate, if one is
    known; the checkpoint has only the newest.
    """
    for shard in table.shards:
        base, place_of_cut = checkpoint.bases.get(shard), places[shard.source]
        if base is None:
            return f"{shard} has no complete base yet"
        if shard in checkpoint.lost and checkpoint.lost[shard] >= place_of_cut:
            return (
                f"{shard} lacked changes at the cut: a base after it closed a gap or a quarantine"
            )
        if min(base, based.get(shard, base)) >= place_of_cut:
            return f"{shard} had no base before the cut"
    return ""


def fence_of(fences: Sequence[Fence], cut: datetime) -> Fence | None:
    """The first of *fences*, ascending, after *cut*, if one server has written all after it.

    None without such a fence, and if one with a higher number is before the cut. The first fence of
    a previous server only shows where its log ended; that of the newest server is later.
    """
    found = None
    for fence in reversed(fences):
        if fence.at < cut:
            break
        if fence.head.identity != fences[-1].head.identity:
            return None
        found = fence
    return found


def parse_images(text: str | None) -> tuple[Image, ...]:
    """Parse a mirror's property with its images, oldest cut first."""
    return () if text is None else tuple(msgspec.json.decode(text, type=list[Image]))


def images_property(images: Sequence[Image]) -> dict[str, str]:
    """The property that stores *images*."""
    ordered = sorted(images, key=lambda one: one.cut)
    return {IMAGES: msgspec.json.encode(ordered, order="sorted").decode()}


def add_image(images: Sequence[Image], made: Image) -> tuple[Image, ...]:
    """*made*, and those of the other *images* that are still kept, oldest cut first.

    A day has one image, the newest, although it ends twice if the time zone has changed.
    """
    others = (one for one in images if not one.day or one.day != made.day)
    held = {one.cut: one for one in (*others, made) if one.held(made.made)}
    return tuple(held.values())
