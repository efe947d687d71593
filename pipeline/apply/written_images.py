"""Images as folders of plain Parquet, one a day, for engines that know neither Delta nor vectors.

``<where>/<database>/<table>/dt=2026-03-28/part-00000.parquet``, and beside the parts
``_image.json``, which says of what they are.  Who sees the manifest sees all parts, and no others;
while a day is written anew it is not there.  Rows are the mirror's, without ``_sluice``.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from pipeline.apply.mirror_snapshot import images_of
from pipeline.apply.mirrors import Mirrors
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.image import Image
from pipeline.lake.store import Store, open_store
from pipeline.mark import Mark
from pipeline.settings import PipelineSettings

MANIFEST = "_image.json"
DAY = "dt"  # the column that readers of folders make of a folder's name
_STAGED = "_staged"  # a name that readers of folders pass over
_GROUP = 64 << 20  # bytes in Arrow that become one row group
_FILE = 256 << 20  # after which a part ends; a bucket's is held in memory
_BEGUN = ".begun"
_FORSAKEN = timedelta(days=1)  # nobody writes one image as long as that
_SWEPT = 14  # days; the service slept no longer, or somebody else must tidy up
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder holds: ``rows`` of ``version`` of the ``mirror``, a table's id, at ``cut``."""

    table: str
    cut: datetime
    mirror: str
    version: int
    rows: int
    parts: int
    written: datetime
    until: datetime

    def tells(self, image: Image, mirror: str) -> bool:
        """Whether it is of *image*."""
        return (self.cut, self.version, self.mirror) == (image.cut, image.version, mirror)


@dataclass(eq=False)
class WrittenImages:
    """Finds the folders that images are written out to; what is there is looked up each time."""

    settings: PipelineSettings
    _stores: dict[str, Store] = field(default_factory=dict)

    def path(self, table: str, image: Image) -> str | None:
        """The folder of *image*, whether or not it is there; None if none is written."""
        place = self.settings.written_images(table)
        return None if place is None else f"{place[0]}/{place[1]}/{_day(image)}"

    def manifest(self, table: str, image: Image) -> Manifest | None:
        """What is written out in the folder of its day; None if nothing is, or nobody knows what.

        Raises:
            UnreachableError: the store does not answer.
        """
        place = self.settings.written_images(table)
        return None if place is None else read(self.store(place[0]), f"{place[1]}/{_day(image)}")

    def store(self, uri: str) -> Store:
        """The place of all images of a rule, opened once."""
        if uri not in self._stores:
            self._stores[uri] = open_store(uri)
        return self._stores[uri]


@dataclass(eq=False)
class ImageWriting:
    """Writes out what mirrors remember of images and is not there yet; removes what is too old.

    Beside landing and merging: a version of a mirror stays as it is while others are made.
    """

    settings: PipelineSettings
    mirrors: Mirrors[Any]
    clock: Callable[[], datetime]
    written: WrittenImages = field(init=False)

    def __post_init__(self) -> None:
        """Look at nothing yet."""
        self.written = WrittenImages(self.settings)

    def run(self, mark: Mark) -> tuple[Manifest, ...]:
        """Write what is missing, of each table; one that fails is tried again the next time."""
        made: list[Manifest] = []
        tidied: set[str] = set()
        for table in sorted(mark.tables):
            place = self.settings.written_images(table)
            if place is None:
                continue
            try:
                if place[0] not in tidied:
                    tidied.add(place[0])
                    _tidy(self.written.store(place[0]), self.clock() - _FORSAKEN)
                made += self._table(table)
            except SluiceError as error:
                log.warning("image_unwritten", table=table, why=str(error))
            except Exception:  # the boundary of one table: its image stops no other, nor the rest
                log.exception("image_unwritten", table=table)
        return tuple(made)

    def _table(self, table: str) -> Iterator[Manifest]:
        seen, place = self.mirrors.look(table), self.settings.written_images(table)
        if seen is None or place is None:
            return
        store, now = self.written.store(place[0]), self.clock()
        for image in images_of(seen):
            if not image.held(now):
                continue
            known = self.written.manifest(table, image)
            if known is None or not known.tells(image, seen.id):
                rows = self.mirrors.table_format.rows(seen.uri, image.version)
                rows = readable(table, rows)
                told = Manifest(table, image.cut, seen.id, image.version, 0, 0, now, image.until)
                yield write(store, f"{place[1]}/{_day(image)}", rows, told)
                _sweep(store, place[1], image, now)


def readable(table: str, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same *rows*.

    Raises:
        ConfigError: they have a column that readers of folders replace by the day, silently.
    """
    for batch in rows:
        if taken := [name for name in batch.schema.names if name.casefold() == DAY]:
            raise ConfigError(
                f"{table} has a column {taken[0]}, and readers of its images would read the day of "
                f"the folder ({DAY}=...) in its place: write `how: pin` for it in `publish`, and "
                "read its images as versions of the mirror"
            )
        yield batch


def write(store: Store, folder: str, rows: Iterator[pa.RecordBatch], told: Manifest) -> Manifest:
    """Write *rows* as the *folder*, in the place of what was there; *told* lacks the numbers.

    Until then they are beside it, under a name that tells when that began, should it never end.
    """
    staged = f"{_STAGED}/{uuid.uuid4()}"
    store.make_folder(staged)
    try:
        store.put(f"{staged}{_BEGUN}", b"")
        made = _staged(store, staged, rows, told)
        store.place(staged, folder)
    finally:
        with suppress(UnreachableError):  # then another day
            _forsake(store, staged)
    return made


def _staged(store: Store, staged: str, rows: Iterator[pa.RecordBatch], told: Manifest) -> Manifest:
    count, parts, groups = 0, 0, _groups(rows)
    while (first := next(groups, None)) is not None:
        with store.sink(f"{staged}/part-{parts:05}.parquet") as output:
            count += _part(output, first, groups)
        parts += 1
    made = replace(told, rows=count, parts=parts)
    store.put(f"{staged}/{MANIFEST}", msgspec.json.encode(made))
    return made


def _forsake(store: Store, staged: str) -> None:
    """Remove what is left of writing an image, and of the one that it replaced."""
    store.drop(staged)
    store.drop(f"{staged}-before")
    store.remove(f"{staged}{_BEGUN}")  # last, or nobody knows of the rest


def _tidy(store: Store, before: datetime) -> None:
    """Remove what was begun *before* then by those that were killed."""
    for entry in store.names(_STAGED):
        if entry.name.endswith(_BEGUN) and entry.modified < before:
            _forsake(store, entry.name.removesuffix(_BEGUN))


def read(store: Store, folder: str) -> Manifest | None:
    """What is written out in *folder*; None if nothing is, or nobody knows what."""
    try:
        return msgspec.json.decode(store.read(f"{folder}/{MANIFEST}"), type=Manifest)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _day(image: Image) -> str:
    return f"{DAY}={image.day}"


def _groups(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches until they are a row group's size; one at least, with the columns."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= _GROUP:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _part(output: Any, first: pa.Table, groups: Iterator[pa.Table]) -> int:
    """Write row groups until the part is large enough; how many rows."""
    with pq.ParquetWriter(output, first.schema, compression="zstd") as writer:
        group, count, size = first, 0, 0
        while True:
            writer.write_table(group, row_group_size=max(1, len(group)))
            count, size = count + len(group), size + group.nbytes
            following = next(groups, None) if size < _FILE else None
            if following is None:
                return count
            group = following


def _sweep(store: Store, folder: str, newest: Image, now: datetime) -> None:
    """Remove folders of days that are kept no longer; those of some days are looked at."""
    last = date.fromisoformat(newest.day) - newest.keep
    for back in range(_SWEPT):
        old = f"{folder}/{DAY}={last - timedelta(days=back)}"
        known = read(store, old)
        if known is not None and known.until < now:
            store.drop(old)
