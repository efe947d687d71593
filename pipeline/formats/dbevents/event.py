"""What does one DBEvent say?  A row, or the columns of it that changed, each in its own version.

The reference key is a row's version, and its order here: not a place in the source's log, but a
sequence of the sender's, so it proves less, and where it falls within a partition landing holds the
source.  ``changelog_columns`` say which columns changed, and in which version each did: those of a
lower one than the event's are told beside the row, so that it is merged column by column.  Without
any the row is whole.  An event that its sender could not conform is quarantined with its reason,
and so is one that asks to be applied though it is older: nothing here can tell what it is to lose
against.  Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from pipeline.errors import FormatError
from pipeline.formats import canonical, flat_rows
from pipeline.formats.canonical import quote
from pipeline.formats.format import SENDER_SAYS, Decoded
from pipeline.model import COLUMN_VERSIONS, Op

ROW_KEY = "row_key"
END_OF_TIME = 253_402_300_800_000  # milliseconds: the year 10000

NO_ROW = "the event is no record of columns beside its metadata"
NO_METADATA = "its metadata is missing, or a field of it is of a wrong kind"
NO_KEY = "its row key is missing, or a column of the table's key is missing, null or a list"
NO_COLUMN = "changelog_columns name a column that the event has not: {name}"
NEWER = "changelog_columns name a version above the event's own"
TAKEN = f"a column of it is named {COLUMN_VERSIONS}, where versions of columns are told"
FORCED = (
    "ForceUpdate: it is to be applied though it may be older; send the row again in a new version"
)


class ChangedColumns(msgspec.Struct):
    """Columns that changed together, and their version."""

    ref_key: int
    hadoop_changelog_fields: list[str]
    name: str = ""


class EventMetadata(msgspec.Struct):
    """What stands beside each row; ``timestamp`` is in milliseconds."""

    ref_key: int
    row_key: Raw = flat_rows.NULL
    changelog_columns: list[ChangedColumns] | None = None
    timestamp: int | None = None
    is_deleted: bool = False
    error_exception: str | None = None
    force_update: bool = False

    @property
    def at(self) -> datetime | None:
        """When the event was made; None if in no calendar."""
        if self.timestamp is None or not 0 <= self.timestamp < END_OF_TIME:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.timestamp)


@dataclass(frozen=True, slots=True)
class EventShape:
    """How events of a table are built: whose they are, which field is metadata, and their key.

    Without a ``key`` the row key is one, as a column of its own.  ``changing`` fields of the
    metadata are not kept beside the row: who sends an event again may tell others.
    """

    shard: str
    metadata: str
    key: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Names of the key's columns."""
        return self.key or (ROW_KEY,)


def change(text: bytes, shape: EventShape) -> Decoded:
    """What an event says, whose JSON is *text*.

    Raises:
        FormatError: it makes no sense, or is not to be applied.
    """
    row = flat_rows.read(Raw(text))
    if row is None:
        raise FormatError(NO_ROW)
    told = _metadata(row.get(shape.metadata, flat_rows.NULL))
    if told.error_exception is not None:
        raise FormatError(f"{SENDER_SAYS}{told.error_exception}")
    if told.force_update:
        raise FormatError(FORCED)
    if shape.changing:
        row = row | {shape.metadata: _lasting(row[shape.metadata], shape.changing)}
    if COLUMN_VERSIONS in row:
        raise FormatError(TAKEN)
    row, key = _keyed(row, told, shape)
    if told.is_deleted:
        before = flat_rows.written({name: row[name] for name in shape.keyed_by})
        return _placed(Op.DELETE, shape, key, told, before=before)
    if not told.changelog_columns:
        return _placed(Op.UPDATE, shape, key, told, after=flat_rows.written(row))
    return _placed(Op.UPDATE, shape, key, told, **_some(row, told, shape))


def _metadata(raw: Raw) -> EventMetadata:
    try:
        return _METADATA.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(NO_METADATA) from error


def _lasting(metadata: Raw, changing: Sequence[str]) -> Raw:
    """The *metadata* without what may be told otherwise when it is sent again."""
    fields = flat_rows.read(metadata) or {}
    kept = {name: one for name, one in fields.items() if name not in changing}
    return Raw(flat_rows.written(kept).encode())


def _keyed(row: flat_rows.Row, told: EventMetadata, shape: EventShape) -> tuple[flat_rows.Row, str]:
    """The row with its key's columns, and the key."""
    if not shape.key:
        row = row | {ROW_KEY: _row_key(told.row_key)}
    try:
        return row, flat_rows.key(row, shape.keyed_by)
    except (KeyError, ValueError) as error:
        raise FormatError(NO_KEY) from error


def _row_key(raw: Raw) -> Raw:
    """As a text, whatever it was sent as."""
    found = canonical.read('{"v":' + flat_rows.text_of(raw) + "}")
    try:
        text = None if found is None else canonical.write(found.get("v"))
    except ValueError as error:
        raise FormatError(NO_KEY) from error
    if text is None:
        raise FormatError(NO_KEY)
    return Raw(quote(text).encode())


def _some(row: flat_rows.Row, told: EventMetadata, shape: EventShape) -> dict[str, Any]:
    """The columns that changed, and beside them the versions of those that are older."""
    versions = _versions(told, row)
    if any(one > told.ref_key for one in versions.values()):
        raise FormatError(NEWER)
    beside = (*shape.keyed_by, shape.metadata)
    columns = {name: row[name] for name in dict.fromkeys((*beside, *versions))}
    late = {n: v for n, v in versions.items() if v < told.ref_key and n not in beside}
    if late:
        columns[COLUMN_VERSIONS] = Raw(msgspec.json.encode(late))
    others = tuple(name for name in row if name not in columns)
    return {"after": flat_rows.written(columns), "changed": tuple(columns), "left_out": others}


def _versions(told: EventMetadata, row: Mapping[str, Raw]) -> dict[str, int]:
    """By column; of one that is named twice, the newest counts."""
    newest: dict[str, int] = {}
    for one in told.changelog_columns or ():
        for name in one.hadoop_changelog_fields:
            if name not in row:
                raise FormatError(NO_COLUMN.format(name=name))
            newest[name] = max(one.ref_key, newest.get(name, one.ref_key))
    return newest


def _placed(op: Op, shape: EventShape, key: str, told: EventMetadata, **images: Any) -> Decoded:
    return Decoded(op, shape.shard, key, at=told.at, log=0, pos=told.ref_key, row=0, **images)


_METADATA = msgspec.json.Decoder(EventMetadata)
