"""Which messages could not be read, as the change log has them: the error table."""

from dataclasses import dataclass
from datetime import datetime

from pipeline.lake.pinned import PinnedTable
from pipeline.lake.query import literal
from pipeline.model import Op, Shard
from pipeline.resubmissions import place_of

SIZE = "coalesce(octet_length(encode(raw, 'hex')) / 2, 0)"  # it has no length for bytes
COLUMNS = 'batch, source, shard, "table", topic, "partition", "offset", received, error'


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One of them: ``change`` is its name, as in a mark; ``size`` is in bytes.

    ``shard`` and ``table`` are None where nobody knows of which it is.
    """

    change: str
    source: str
    shard: str | None
    table: str | None
    batch: int
    received: datetime
    why: str
    size: int

    @property
    def subject(self) -> str:
        """As a mark names what is open: the shard, if its table is known, or else the topic."""
        if self.shard is not None and self.table is not None:
            return str(Shard(self.source, self.shard))
        place = place_of(self.change)
        return f"topic:{place[0].topic if place is not None else ''}"


def rows(pinned: PinnedTable, lane: str, table: str | None, most: int) -> tuple[ErrorRow, ...]:
    """The newest, of one table (or ``topic:NAME``) or of all; at *most* so many."""
    topic = table.removeprefix("topic:") if table is not None else None
    about = "" if topic is None else _about(table or "", topic)
    found = pinned.select(
        f"SELECT {COLUMNS}, {SIZE} AS size FROM t"  # noqa: S608
        f" WHERE op = {literal(str(Op.ERROR))} AND lane = {literal(lane)}{about}"
        f' ORDER BY batch DESC, topic, "partition", "offset" LIMIT {most}'
    )
    return tuple(_row(one) for one in found)


def row(pinned: PinnedTable, lane: str, change: str) -> tuple[ErrorRow, bytes] | None:
    """That of one name, with its bytes; None if there is none."""
    place, _, batch = place_of(change), *change.rpartition("@")[1:]
    if place is None or not batch.isdigit():
        return None
    at, offset = place
    found = pinned.select(
        f"SELECT {COLUMNS}, {SIZE} AS size, raw FROM t"  # noqa: S608
        f" WHERE op = {literal(str(Op.ERROR))} AND lane = {literal(lane)}"
        f" AND batch = {int(batch)} AND topic = {literal(at.topic)}"
        f' AND "partition" = {at.partition} AND "offset" = {offset} LIMIT 1'
    )
    return (_row(found[0]), found[0]["raw"] or b"") if found else None


def _about(table: str, topic: str) -> str:
    if table != topic:
        return f' AND "table" IS NULL AND topic = {literal(topic)}'
    return f' AND "table" = {literal(table)}'


def _row(one: dict[str, object]) -> ErrorRow:
    place = f"{one['topic']}:{one['partition']}:{one['offset']}"
    return ErrorRow(
        change=f"{place}@{one['batch']}",
        source=str(one["source"]),
        shard=None if one["shard"] is None else str(one["shard"]),
        table=None if one["table"] is None else str(one["table"]),
        batch=int(str(one["batch"])),
        received=one["received"],  # type: ignore[arg-type]
        why=str(one["error"] or ""),
        size=int(str(one["size"])),
    )
