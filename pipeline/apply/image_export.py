"""Exports images beside their mirrors, as Parquet files of a day or as a clone, and finds them.

Parquet: `<where>/<database>/<table>/dt=2026-03-28/part-00000-1f3c.parquet`, for engines that read
neither Delta nor deletion vectors. The manifest `_image.json` is in the same folder. A reader that
sees the manifest sees all parts and no others. The manifest may be absent while a day is replaced,
and the new parts have other names.

Clone: `<where>/<database>/<table>/2026-03-28.r0`, a table of its own with its manifest beside it.
Each correction is a new clone (`.r1`, ...). All corrections are made in a clone, also for pinned
and Parquet images, because an older version of a mirror cannot be changed.

Lookups are cached. A mirror may list months of images, it is checked every few seconds, and each
lookup is a request to the bucket. A new image is looked up at once, because an image that is not
reported counts as deleted. A found image is looked up again only rarely, so its removal is noticed
late.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from pipeline.apply.images import plan_correction
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror import MirrorSnapshot, images_of
from pipeline.apply.table_format import Mirrors
from pipeline.archive import ArchiveRules
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.store import Store, open_store
from pipeline.errors import ConfigError, HeldError, SluiceError, UnreachableError
from pipeline.image import Image
from pipeline.settings import PipelineSettings

MANIFEST = "_image.json"
DAY = "dt"  # the partition column that readers derive from a folder's name
STAGED = "_staged"  # a name that readers of folders ignore
GROUP_BYTES = 64 << 20  # Arrow bytes per row group
PART_BYTES = 256 << 20  # a part ends after these; in a bucket it is held in memory
_BEGUN = ".begun"
_CLONE = "-clone"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of an image's folder: ``rows`` of ``version`` of the ``mirror`` (id), at ``cut``.

    It includes the first ``revision`` late corrections, from batches up to ``through``; None if not
    recorded. A clone has no ``parts``.
    """

    table: str
    cut: datetime
    mirror: str
    version: int
    rows: int
    parts: int
    written: datetime
    until: datetime
    revision: int = 0
    through: int | None = None

    def describes(self, image: Image, mirror: str) -> bool:
        """Whether it describes *image*, including all its late changes."""
        own = (self.cut, self.version, self.mirror, self.revision)
        same = own == (image.cut, image.version, mirror, len(image.late))
        return same and self.through in (None, image.corrected().through)


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """Location of an image: its ``folder`` and ``manifest``, relative to the address ``uri``."""

    uri: str
    folder: str
    manifest: str
    cloned: bool

    @property
    def path(self) -> str:
        """The folder's address."""
        return f"{self.uri}/{self.folder}"


@dataclass(eq=False)
class WrittenImages:
    """Finds the locations of images beside their mirrors; each call looks up what exists."""

    settings: PipelineSettings
    _stores: dict[str, Store] = field(default_factory=dict)

    def place(self, table: str, image: Image) -> ImagePlace | None:
        """Return the location of *image* with its late changes, whether or not it exists yet.

        None if it is read as a version of the mirror: a pinned image without corrections.
        """
        if (place := self.settings.written_images(table)) is not None:
            folder = f"{place[1]}/{DAY}={image.day}"
            return ImagePlace(place[0], folder, f"{folder}/{MANIFEST}", cloned=False)
        rule, place = self.settings.published(table), self.settings.cloned_images(table)
        if rule is None or place is None or (rule.how == "pin" and not image.late):
            return None
        folder = f"{place[1]}/{image.day}.r{len(image.late)}"
        return ImagePlace(place[0], folder, f"{folder}.json", cloned=True)

    def path(self, table: str, image: Image) -> str | None:
        """The address of *image*, even if it does not exist; None for a version of the mirror."""
        place = self.place(table, image)
        return None if place is None else place.path

    def manifest(self, table: str, image: Image) -> Manifest | None:
        """The manifest of *image*; None if it is missing, or cannot be parsed.

        Raises:
            UnreachableError: the store does not answer.
        """
        place = self.place(table, image)
        return None if place is None else parse_manifest(self.store(place.uri), place.manifest)

    def store(self, uri: str) -> Store:
        """The store at *uri*, opened once."""
        if uri not in self._stores:
            self._stores[uri] = open_store(uri)
        return self._stores[uri]


def readable_rows(table: str, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the same *rows*, checked.

    Raises:
        ConfigError: a column has the name that readers of folders silently replace by the day.
    """
    for batch in rows:
        if taken := [name for name in batch.schema.names if name.casefold() == DAY]:
            raise ConfigError(
                f"{table} has a column {taken[0]}, and readers of its images would read the "
                f"folder's day ({DAY}=...) instead of it: set `how: pin` for the table in "
                "`publish`, and read its images as versions of the mirror"
            )
        yield batch


def write_image(
    store: Store, folder: str, rows: Iterator[pa.RecordBatch], about: Manifest
) -> Manifest:
    """Write *rows* as the *folder*, and replace its content; *about* has no counts yet.

    Until then the files are in a staging folder. Its ``.begun`` file shows when that was created,
    so that :func:`remove_stale` finds leftovers.
    """
    with staging_folder(store) as staged:
        store.make_folder(staged)
        made = _staged(store, staged, rows, about)
        store.place(staged, folder)
    return made


@contextmanager
def staging_folder(store: Store) -> Iterator[str]:
    """Yield a temporary folder name below *store*; its content is removed at the end.

    The content of :func:`clone_folder` is removed, too.
    """
    staged = f"{STAGED}/{uuid.uuid4()}"
    store.make_folder(STAGED)
    try:
        store.put(f"{staged}{_BEGUN}", b"")
        yield staged
    finally:
        with suppress(UnreachableError):  # else `remove_stale` removes it
            forsake(store, staged)


def clone_folder(staged: str) -> str:
    """The folder for a temporary table that is read while the parts are written."""
    return f"{staged}{_CLONE}"


def _staged(store: Store, staged: str, rows: Iterator[pa.RecordBatch], about: Manifest) -> Manifest:
    count, parts, groups, own = 0, 0, _groups(rows), uuid.uuid4().hex[:8]
    while (first := next(groups, None)) is not None:
        with store.sink(f"{staged}/part-{parts:05}-{own}.parquet") as output:
            count += _part(output, first, groups)
        parts += 1
    made = replace(about, rows=count, parts=parts)
    store.put(f"{staged}/{MANIFEST}", msgspec.json.encode(made))
    return made


def forsake(store: Store, staged: str) -> None:
    """Remove what remains of writing an image, and of the image that it replaced."""
    store.drop(staged)
    store.drop(f"{staged}-before")
    store.drop(clone_folder(staged))
    store.remove(f"{staged}{_BEGUN}")  # last: it records that the rest exists


def remove_stale(store: Store, before: datetime) -> None:
    """Remove staging folders begun before the time *before*, left by killed processes."""
    for entry in store.names(STAGED):
        if entry.name.endswith(_BEGUN) and entry.modified < before:
            forsake(store, entry.name.removesuffix(_BEGUN))


def read_manifest(store: Store, folder: str) -> Manifest | None:
    """The manifest in *folder*; None if it is missing or not valid."""
    return parse_manifest(store, f"{folder}/{MANIFEST}")


def parse_manifest(store: Store, manifest: str) -> Manifest | None:
    """Read *manifest*; None if it does not exist, or is not valid."""
    try:
        return msgspec.json.decode(store.read(manifest), type=Manifest)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _groups(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches until they reach a row group's size; yields at least one, for its columns."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _part(output: Any, first: pa.Table, groups: Iterator[pa.Table]) -> int:
    """Write row groups until the part is large enough; return the number of rows."""
    with pq.ParquetWriter(output, first.schema, compression="zstd") as writer:
        group, count, size = first, 0, 0
        while True:
            writer.write_table(group, row_group_size=max(1, len(group)))
            count, size = count + len(group), size + group.nbytes
            following = next(groups, None) if size < PART_BYTES else None
            if following is None:
                return count
            group = following


_FORSAKEN = timedelta(days=1)  # writing one image takes less
_SWEPT = 14  # days; after a longer outage older leftovers must be removed by hand
_AGAIN = timedelta(minutes=10)  # after which a refused image is tried again
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class ImageWriter:
    """Writes images that mirrors list and that do not exist yet; removes expired ones.

    Runs beside landing and merging, because a version of a mirror does not change. ``archive_of``
    returns the archive rules of a table.
    """

    settings: PipelineSettings
    mirrors: Mirrors[Any]
    clock: Callable[[], datetime]
    archive_of: Callable[[str], ArchiveRules | None] = lambda _: None
    written: WrittenImages = field(init=False)
    changes: ChangeLog = field(init=False)
    _refused: dict[tuple[str, datetime, int], datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the change log; nothing is looked up yet."""
        self.written = WrittenImages(self.settings)
        self.changes = ChangeLog(open_store(self.settings.changes), self.settings.lane)

    def run(self, landed: LandedState) -> tuple[Manifest, ...]:
        """Write the missing images of each table; a failed one is tried again next time."""
        made: list[Manifest] = []
        tidied: set[str] = set()
        for table in sorted(landed.checkpoint.tables):
            place = self.settings.written_images(table) or self.settings.cloned_images(table)
            if place is None:
                continue
            try:
                if place[0] not in tidied:
                    tidied.add(place[0])
                    remove_stale(self.written.store(place[0]), self.clock() - _FORSAKEN)
                made += self._table(table, landed)
            except SluiceError as error:
                log.warning("image_unwritten", table=table, why=str(error))
            except Exception:  # the boundary of one table: its failure does not stop the others
                log.exception("image_unwritten", table=table)
        return tuple(made)

    def _table(self, table: str, landed: LandedState) -> Iterator[Manifest]:
        seen, now = self.mirrors.look(table), self.clock()
        if seen is None:
            return
        for image in images_of(seen):
            place = self.written.place(table, image)
            if place is not None and image.held(now):
                yield from self._lacking(UnwrittenImage(table, seen, image, place, landed))

    def _lacking(self, one: "UnwrittenImage") -> Iterator[Manifest]:
        """Make the image if it is missing; a failure does not stop other images."""
        now, image = self.clock(), one.image
        known = self.written.manifest(one.table, image)
        key = (one.table, image.cut, image.corrected().through)
        tried = self._refused.get(key)
        if (known and known.describes(image, one.seen.id)) or (tried and now - tried < _AGAIN):
            return
        try:
            yield self._made(one)
        except SluiceError as error:
            if isinstance(error, HeldError):
                self._refused[key] = now
            log.warning("image_unwritten", table=one.table, day=image.day, why=str(error))
        except Exception:  # the boundary of one image
            self._refused[key] = now
            log.exception("image_unwritten", table=one.table, day=image.day)

    def _made(self, one: "UnwrittenImage") -> Manifest:
        store, now = self.written.store(one.place.uri), self.clock()
        if one.place.cloned:
            made = self._clone(store, one)
            _sweep_clones(store, one.place, one.image, now)
            return made
        if not one.image.late:
            made = self._days(store, one, one.seen.uri, one.image.version)
        else:
            with staging_folder(store) as staged:
                clone = f"{store.uri}/{clone_folder(staged)}"
                self._cloned(clone, one)
                made = self._days(store, one, clone, 0)
        _sweep(store, one.place.folder.rpartition("/")[0], one.image, now)
        return made

    def _days(self, store: Store, one: "UnwrittenImage", uri: str, version: int) -> Manifest:
        """Write the folder of the day, with the rows of that version of the table at *uri*."""
        rows: Iterator[pa.RecordBatch] = self.mirrors.table_format.rows(uri, version)
        return write_image(
            store, one.place.folder, readable_rows(one.table, rows), one.about(self.clock())
        )

    def _clone(self, store: Store, one: "UnwrittenImage") -> Manifest:
        """Make the clone, then its manifest; a clone without a manifest is made again."""
        store.remove(one.place.manifest)
        store.drop(one.place.folder)
        made = replace(one.about(self.clock()), rows=self._cloned(one.place.path, one))
        store.put(one.place.manifest, msgspec.json.encode(made))
        return made

    def _cloned(self, where: str, one: "UnwrittenImage") -> int:
        """Clone the image to *where*, with its late changes; return the number of rows."""
        now, correct = self.clock(), None
        if one.image.late:
            rules = self.archive_of(one.table)
            correct = plan_correction(
                one.image, one.table, one.landed, self.changes, now, rules=rules
            )
        table_format = self.mirrors.table_format
        return table_format.cloned(one.seen.uri, one.image.version, where, now, correct)


@dataclass(frozen=True, slots=True)
class UnwrittenImage:
    """An image listed by the mirror of ``table``, as ``seen``, that is not written yet."""

    table: str
    seen: MirrorSnapshot
    image: Image
    place: ImagePlace
    landed: LandedState

    def about(self, now: datetime) -> Manifest:
        """Return the manifest of the image before its rows and parts are counted."""
        image, named = self.image, (self.table, self.image.cut, self.seen.id, self.image.version)
        whole = image.corrected()
        return Manifest(*named, 0, 0, now, image.until, whole.revision, whole.through)


def _sweep(store: Store, folder: str, newest: Image, now: datetime) -> None:
    """Remove folders of expired days; only the last days before expiry are looked at."""
    last = date.fromisoformat(newest.day) - newest.keep
    for back in range(_SWEPT):
        old = f"{folder}/{DAY}={last - timedelta(days=back)}"
        known = read_manifest(store, old)
        if known is not None and known.until < now:
            store.drop(old)


def _sweep_clones(store: Store, place: ImagePlace, newest: Image, now: datetime) -> None:
    """Remove expired clones, each with all its corrections."""
    last = str(date.fromisoformat(newest.day) - newest.keep)
    for entry in store.names(place.folder.rpartition("/")[0]):
        clone = entry.name.removesuffix(".json")
        if clone == entry.name or clone.rpartition("/")[2][: len(last)] > last:
            continue
        known = parse_manifest(store, entry.name)
        if known is not None and known.until < now:
            store.drop(clone)
            store.remove(entry.name)  # last: it records that the rest exists


FEW = 3  # missing images that one look asks for again, in addition to the newest
AGAIN = 20  # looks after which a found image is asked for again, as it may have been removed

_Key = tuple[datetime, int, int, int, str]  # cut, version, revision, last batch, mirror's id


@dataclass(eq=False)
class _FolderAnswers:
    """The manifest of each image, if it is of that image; the oldest look first."""

    there: dict[_Key, Manifest | None] = field(default_factory=dict)
    looks: int = 0


@dataclass(eq=False)
class FoundImages:
    """Caches which images of each table exist; tables may be looked up in parallel."""

    written: WrittenImages
    _tables: dict[str, _FolderAnswers] = field(default_factory=dict)

    def of(self, table: str, images: Sequence[Image], mirror: str) -> tuple[Image, ...]:
        """Those of *images*, oldest first, that can be read, each with its position.

        An image whose version may be gone is listed only where it has a copy. An image with late
        changes has its corrected position. Without a copy it is listed all the same, so that
        certificates of its cut can be revoked.

        Raises:
            UnreachableError: the store does not answer.
        """
        asked = self._tables.setdefault(table, _FolderAnswers())
        places = {one.cut: self.written.place(table, one) for one in images}
        named = {
            (one.cut, one.version, len(one.late), one.corrected().through, mirror): one
            for one in images
            if places[one.cut] is not None
        }
        known = asked.there.copy()  # another thread may look at the same table
        there = {key: was for key, was in known.items() if key in named}
        asked.looks += 1
        try:
            for key in dict.fromkeys(_due(there, named, asked.looks)):
                manifest = self.written.manifest(table, named[key])
                there.pop(key, None)
                there[key] = (
                    manifest if manifest and manifest.describes(named[key], mirror) else None
                )
        finally:
            asked.there = there
        found = {key[0]: manifest for key, manifest in there.items() if manifest is not None}
        return tuple(
            _standing(one, places[one.cut], found.get(one.cut))
            for one in images
            if one.cut in found or (places[one.cut] is None and one.pinned) or one.late
        )


def _standing(image: Image, place: ImagePlace | None, found: Manifest | None) -> Image:
    """Return the image as readers see it: with its late changes if it has a location of its own."""
    if place is None or found is None:
        return image
    return replace(image.corrected(), path=place.path, rows=found.rows)


def _due(
    there: Mapping[_Key, Manifest | None], named: dict[_Key, Image], looks: int
) -> Iterator[_Key]:
    """The images to ask for in this look."""
    yield from [key for key in reversed(named) if key not in there]
    lacking = [key for key, was in there.items() if not was]
    found = [key for key, was in there.items() if was]
    if lacking:
        yield max(lacking)
        yield from lacking[:FEW]
    if found and looks % AGAIN == 0:
        yield found[0]
