"""Lands corrected messages, and retries quarantined changes that can be read by now.

A corrected message lands with the order of the one that it replaces, or with the version that it
states itself. So newer changes win by order. Its id leaves the landing checkpoint in the same
commit, and with it the block of the table. Two cases are refused, because order alone does not
decide them. Either a statement about the table came since. Or the next newer change of its key
holds only some columns, and took the others from the row before.

A quarantined change is retried if more is known than when it came. The registry may know its schema
by now, a standard's file may have an entry for its value, or `clear` may name its column. Its
message is read again at its offset, and lands late with its own order, so newer changes win.

A new base is the only remedy in the following cases:

* a statement about the shard came since
* rows may omit values that earlier rows hold (rows that describe their own columns)
* the epoch of all messages is not certain
* some messages are not known by id, or no longer exist at their offsets (another topic, another
  leader's log)
* some messages are not live changes of rows
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import structlog

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.data_file import WrittenFile
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import Checkpoint, Quarantine, is_outdated, source_of
from pipeline.clocks import Retries
from pipeline.errors import FormatError, NoSchemasError, ProofError, UnreachableError
from pipeline.formats.schema_registry import decode_with_registry
from pipeline.landing.batch_stats import BatchStats, RunStats, described_schema, tally_rows
from pipeline.landing.listing import LandingSource, Listing
from pipeline.landing.plan import Plan
from pipeline.landing.staging import write_rows
from pipeline.landing.task import (
    SourceContext,
    TableRouter,
    TaskResult,
    TaskSource,
    shape_rows,
    slim_columns,
)
from pipeline.minute_counts import add_tables
from pipeline.model import Op, Order, Shard
from pipeline.resubmissions import (
    Resubmission,
    ResubmissionState,
    is_shard_subject,
    parse_change_name,
    to_raw_message,
)
from pipeline.settings import Router
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.transports.transport import OffsetRange

AT_ONCE = 20  # messages tried in a round: each costs some 50 ms, and all sources wait
GOLDEN = (5**0.5 - 1) / 2  # the fractional parts of its multiples cover the range 0 to 1 evenly
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Healed:
    """Quarantined changes by their ``ids``, and their rows in files that belong to no batch yet.

    ``counted_before`` are the ids that their table's account has counted as quarantined, each as
    often as it did: one message may hold many rows.
    """

    ids: frozenset[str] = frozenset()
    files: tuple[WrittenFile, ...] = ()
    tallies: tuple[RunStats, ...] = ()
    counted_before: tuple[str, ...] = ()

    def with_more(self, more: "Healed") -> "Healed":
        """Combine both."""
        return Healed(
            self.ids | more.ids,
            (*self.files, *more.files),
            (*self.tallies, *more.tallies),
            (*self.counted_before, *more.counted_before),
        )

    def counted(self, facts: BatchStats) -> BatchStats:
        """Return *facts* with these rows; what depends on the landing order does not change."""
        tables, shards = dict(facts.tables), dict(facts.shards)
        for one in self.tallies:
            for table, rows in one.tables.items():
                tables[table] = tables.get(table, 0) + rows
            shards |= one.shards
        rows = facts.rows + sum(one.rows for one in self.tallies)
        minutes = add_tables((facts.minutes, *(one.minutes for one in self.tallies)))
        return replace(facts, rows=rows, tables=tables, shards=shards, minutes=minutes)

    def noted(self, made: Checkpoint) -> Checkpoint:
        """Return *made* with the note that mirrors from before this batch miss these rows."""
        tables = {table for one in self.tallies for table in one.tables}
        return replace(made, belated={**made.belated, **dict.fromkeys(tables, made.batch)})


@dataclass(eq=False)
class QuarantineRetry:
    """Retries quarantines at intervals, if more may be known of their messages by then.

    More may be known in ``feeds`` with a registry, and for tables that have ``standards``.
    """

    feeds: tuple[LandingSource, ...]
    standards: Standards = NO_STANDARDS
    _retries: Retries = field(default_factory=Retries)
    _failures: Counter[str] = field(default_factory=Counter)

    def found(
        self,
        checkpoint: Checkpoint,
        listing: Listing,
        chosen: Plan,
        at: datetime,
        read: Callable[[TaskSource], TaskResult],
    ) -> Healed:
        """Return what can be read by now, of topics that exist and that *chosen* finds undisturbed.

        At most ``AT_ONCE`` messages are tried; later rounds try the rest. After a failure the next
        try begins at another message, so that no message keeps the others from a try.
        """
        found, left = Healed(), AT_ONCE
        for subject, intake in self._intakes(checkpoint, listing.source_of, chosen.disturbed):
            named = checkpoint.quarantine[subject].ids
            if not left or not self._retries.due(subject, named, at):
                continue
            rotated = _rotate_messages(intake, self._failures[subject])
            done, failed, tried = _try_messages(rotated, left, checkpoint, read)
            left -= tried
            one = _healed(subject, named, done)
            if failed:
                open_ = tuple(name for name in named if name not in one.ids)
                self._retries.failed(subject, open_, at)
                self._failures[subject] += 1
            if done:
                log.info("quarantine read at last", subject=subject, changes=len(one.ids))
            found = found.with_more(one)
        return found

    def _intakes(
        self, checkpoint: Checkpoint, source_of: Mapping[str, str], disturbed: Set[str]
    ) -> Iterator[tuple[str, TaskSource]]:
        """Yield the messages of each quarantine that may be read again."""
        feeds = {one.settings.name: one for one in self.feeds}
        for subject, one in checkpoint.quarantine.items():
            ranges = _ranges(one)
            sources = {source_of.get(each.topic) for each in ranges}
            feed = feeds.get(sources.pop() or "") if len(sources) == 1 else None
            if feed is None or not one.epoch or one.count != len(one.ids):
                continue
            table = checkpoint.shards.get(Shard.parse(subject))
            if feed.registry is None and self.standards.of(table) is None:
                continue
            if one.partitions & disturbed or subject in checkpoint.schemas:
                continue
            name, heartbeat = feed.settings.name, feed.settings.heartbeat
            came = SourceContext(name, heartbeat, one.epoch, ordering=feed.format.ordering)
            yield subject, TaskSource(came, feed.format, ranges, registry=feed.registry)


def _ranges(one: Quarantine) -> tuple[OffsetRange, ...]:
    """Return a range for each message; none if an id does not name a message."""
    found = dict.fromkeys(map(_range, one.ids))
    return () if None in found else tuple(each for each in found if each is not None)


def _range(name: str) -> OffsetRange | None:
    place = parse_change_name(name)
    if place is None:
        return None
    at, offset = place
    return OffsetRange(at.topic, at.partition, offset, offset + 1)


def _rotate_messages(intake: TaskSource, by: int) -> TaskSource:
    """Return the same messages, starting at one that is far from where the last tries began."""
    first = int(by * GOLDEN % 1 * len(intake.ranges))
    return replace(intake, ranges=(*intake.ranges[first:], *intake.ranges[:first]))


def _try_messages(
    intake: TaskSource, most: int, checkpoint: Checkpoint, read: Callable[[TaskSource], TaskResult]
) -> tuple[list[TaskResult], bool, int]:
    """Try the first *most* messages; return the whole ones, whether some failed, and how many ran.

    If the first fails, the others are left: usually none can be read then. Messages behind an
    unanswered one are not tried either.
    """
    done, failed, tried = list[TaskResult](), False, 0
    for tried, one in enumerate(intake.ranges[:most], 1):
        try:
            result = _read_whole(replace(intake, ranges=(one,)), checkpoint, read)
        except UnreachableError:
            return done, True, tried
        if result is not None:
            done.append(result)
        failed = failed or result is None
        if not done:
            break
    return done, failed, tried


def _read_whole(
    intake: TaskSource, checkpoint: Checkpoint, read: Callable[[TaskSource], TaskResult]
) -> TaskResult | None:
    """Return its rows; None if they cannot be read yet, or are not whole.

    Raises:
        UnreachableError: Kafka or the registry did not answer.
    """
    try:
        result = read(intake)
    except UnreachableError as error:
        log.info("quarantine not read yet", source=intake.came.source, why=str(error))
        if isinstance(error, NoSchemasError) and error.numbers:
            return None
        raise
    return result if is_whole(result, checkpoint) else None


def _healed(subject: str, named: Sequence[str], done: Sequence[TaskResult]) -> Healed:
    """Return the changes among *named* whose messages were read by *done*."""
    read = {each.asked for one in done for each in one.ranges}
    ids = tuple(name for name in named if _range(name) in read)
    files = tuple(one.file for one in done if one.file is not None)
    tallies = tuple(tally for one in done for tally in one.tallies)
    return Healed(frozenset(ids), files, tallies, ids if is_shard_subject(subject) else ())


def is_whole(result: TaskResult, checkpoint: Checkpoint) -> bool:
    """Return whether each message was found, and order alone decides where its changes belong."""
    if any(one.count != 1 for one in result.ranges):
        return False
    for one in result.tallies:
        if one.errors or one.statements or one.snapshots or one.around:
            return False
        if one.shards.keys() & checkpoint.schemas.keys():
            return False
        for name, first in one.firsts.items():
            known = checkpoint.existing.get(Shard.parse(name))
            if known is not None and known.order > first:
                return False
    return True


ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE})
JUDGED = (
    "op",
    "source",
    "shard",
    "table",
    "key",
    "order",
    "changed",
    "snapshot",
    "schema_id",
    "error",
)
PLACE = ("source", "table", "key")
COLUMNS = ("source", "table", "op", "order", "changed", "topic", "partition", "offset")
CLOSED = "{change} was closed by a new base, a waiver or another correction"
UNSURE = (
    "the log of its position is unknown (failover, or recreated topic);"
    " run `sluice bootstrap TABLE --reason ...`"
)
OCCUPIED = "another change of its key has the same version or position"
UNDESCRIBED = (
    "no landed change of {shard} describes its columns yet; it lands after the first that does"
)
Row = Mapping[str, Any]
ChangePlace = tuple[str, str, str, Order]
"""Source, table, key and order."""
Newer = Callable[[Row], Iterable[Row]]
"""Maps a row to landed changes of its key at its order or above."""


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """Corrected messages that land, as ``healed``, and those that do not.

    ``landed``: id -> batch in which it landed; None: in this batch. ``others`` wait or are refused.
    """

    healed: Healed = field(default_factory=Healed)
    landed: Mapping[str, int | None] = field(default_factory=dict)
    others: tuple[ResubmissionState, ...] = ()

    def left(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint without the quarantines that land here, so that they land once."""
        taken = self.healed.ids
        kept = {n: one for n, one in checkpoint.quarantine.items() if taken.isdisjoint(one.ids)}
        return replace(checkpoint, quarantine=kept)

    def noted(self, made: Checkpoint) -> Checkpoint:
        """Return *made*, which records the landed ones for as long as they are requested."""
        landed = {one: made.batch if batch is None else batch for one, batch in self.landed.items()}
        return replace(made, resubmitted=landed)

    def states(self, checkpoint: Checkpoint) -> tuple[ResubmissionState, ...]:
        """Return each state by *checkpoint*; without a committed batch it is requested again."""
        known = checkpoint.resubmitted
        done = (ResubmissionState(one, known[one]) for one in self.landed if one in known)
        return (*done, *self.others)


@dataclass(eq=False)
class Resubmitting:
    """Makes rows of corrected messages; *feeds* are read as for any batch."""

    feeds: tuple[LandingSource, ...]
    router: Router
    log: ChangeLog
    standards: Standards = NO_STANDARDS

    def found(
        self, checkpoint: Checkpoint, listing: Listing, asked: Sequence[Resubmission], at: datetime
    ) -> Resubmitted:
        """Return what lands of *asked*; *listing* maps topics to sources."""
        if not asked:
            return Resubmitted()
        self.log.opened(at)
        landed: dict[str, int | None] = {}
        others, rows, taken = list[ResubmissionState](), list[pa.RecordBatch](), dict[str, str]()
        places = set[ChangePlace]()
        for one in asked:
            if one.id in checkpoint.resubmitted:
                landed[one.id] = checkpoint.resubmitted[one.id]
                continue
            try:
                subject, made = self._rows(one, checkpoint, listing, at)
                own = _places(made, places)
            except (NoSchemasError, ProofError) as error:
                others.append(ResubmissionState(one.id, why=str(error)))
            except FormatError as error:
                others.append(ResubmissionState(one.id, why=str(error), refused=True))
            else:
                landed[one.id], taken[one.change] = None, subject
                rows += made
                places |= own
        return Resubmitted(self._healed(rows, taken, checkpoint, at), landed, tuple(others))

    def _healed(
        self,
        rows: Sequence[pa.RecordBatch],
        taken: Mapping[str, str],
        checkpoint: Checkpoint,
        at: datetime,
    ) -> Healed:
        if not rows:
            return Healed()
        whole = pa.Table.from_batches(rows).combine_chunks()
        (batch,) = whole.to_batches()
        stats = tally_rows(pa.Table.from_batches([slim_columns(batch)]))
        file = write_rows(self.log, batch, Stamp(checkpoint.lane, -1, at))
        counted = (
            checkpoint.quarantine[one].ids
            for one in dict.fromkeys(taken.values())
            if is_shard_subject(one)
        )
        before = tuple(name for ids in counted for name in ids if name in taken)
        return Healed(frozenset(taken), (file,), (stats,), before)

    def _rows(
        self, one: Resubmission, checkpoint: Checkpoint, listing: Listing, at: datetime
    ) -> tuple[str, list[pa.RecordBatch]]:
        """Return the subject and the rows of a correction.

        Raises:
            FormatError: it never lands; the message says why.
            NoSchemasError: it cannot be read yet.
            ProofError: its columns are unknown until a change that can be read describes them.
        """
        subject, open_ = _subject(one, checkpoint)
        feed = self._feed(subject, one, listing)
        name, heartbeat = feed.settings.name, feed.settings.heartbeat
        came = SourceContext(name, heartbeat, open_.epoch, ordering=feed.format.ordering)
        raw = to_raw_message(one, feed.format.columns)
        changes = decode_with_registry(feed.format, feed.registry, raw)
        stamp = Stamp(checkpoint.lane, -1, at)
        routes = TableRouter(self.router, self.standards)
        shaped = shape_rows(changes, raw, came, routes=routes, stamp=stamp)
        rows = _without_known_columns(shaped, checkpoint)
        judged = rows.select(list(JUDGED)).to_pylist()
        if undescribed := _find_undescribed(judged, checkpoint):
            raise ProofError(UNDESCRIBED.format(shard=undescribed))
        if why := explain_refusal(judged, subject, checkpoint, self._newer):
            raise FormatError(why)
        return subject, [rows]

    def _feed(self, subject: str, one: Resubmission, listing: Listing) -> LandingSource:
        place = parse_change_name(one.change)
        topic = place[0].topic if place is not None else ""
        name = source_of(subject) if is_shard_subject(subject) else listing.source_of.get(topic, "")
        for feed in self.feeds:
            if feed.settings.name == name:
                return feed
        raise FormatError(f"no source of the config has topic {topic!r} now")

    def _newer(self, row: Row) -> list[Row]:
        order = Order(**row["order"])
        found = self.log.of_key(row["table"], row["key"], order, COLUMNS)
        own: list[Row] = found.to_pylist()
        return [each for each in own if each["source"] == row["source"]]


def explain_refusal(rows: Sequence[Row], subject: str, checkpoint: Checkpoint, newer: Newer) -> str:
    """Return why rows of a corrected message do not land (``JUDGED``); empty if they do."""
    for row in rows:
        why = (
            _explain_odd(row, subject)
            or _explain_outdated(row, checkpoint)
            or _explain_overtaken(row, newer)
        )
        if why:
            return why
    return "" if rows else "it contains no change of a row"


def _without_known_columns(rows: pa.RecordBatch, checkpoint: Checkpoint) -> pa.RecordBatch:
    """Return *rows* without descriptions that equal the known columns, at any order."""
    kept = []
    for row in rows.select(["op", "source", "shard", "order", "after", "schema_id"]).to_pylist():
        describes = row["op"] == Op.DDL and row["schema_id"] is not None
        known = (
            checkpoint.schemas.get(str(Shard(row["source"], row["shard"]))) if describes else None
        )
        one = described_schema(Order(**row["order"]), row["after"]) if known is not None else None
        kept.append(one is None or known is None or one.digest != known.digest)
    return rows.filter(pa.array(kept, pa.bool_()))


def _find_undescribed(rows: Sequence[Row], checkpoint: Checkpoint) -> str:
    """Return the shard whose columns only a row of these describes; empty without one."""
    described = (row for row in rows if row["op"] == Op.DDL and row["schema_id"] is not None)
    names = (str(Shard(row["source"], row["shard"])) for row in described)
    return next((name for name in names if name not in checkpoint.schemas), "")


def _explain_odd(row: Row, subject: str) -> str:
    """Return why it is no live change of a row of the quarantined shard; empty if it is."""
    if row["op"] == Op.ERROR:
        return f"it cannot be read either: {row['error']}"
    if row["op"] == Op.DDL:
        if row["schema_id"] is not None:
            return f"its columns are not the known columns of {row['shard']}"
        return "it is a statement, which is valid only at its position: take a new base"
    if row["op"] not in ROWS or row["snapshot"] is not None:
        return f"it is no live change of a row, but {row['op']}"
    return _explain_misplaced(row, subject)


def _explain_misplaced(row: Row, subject: str) -> str:
    shard = str(Shard(row["source"], row["shard"]))
    if is_shard_subject(subject) and shard != subject:
        return f"the correction is of {shard}, but the quarantined message is of {subject}"
    if row["table"] is None:
        return f"{shard} belongs to no table; waive the message instead"
    if row["key"] is None or row["order"] is None:
        return f"the correction has no {'key' if row['key'] is None else 'position'}"
    return ""


def _explain_outdated(row: Row, checkpoint: Checkpoint) -> str:
    shard = Shard(row["source"], row["shard"])
    if not is_outdated(checkpoint, shard, Order(**row["order"])):
        return ""
    return f"a statement about {row['shard']} came since: take a new base"


def _explain_overtaken(row: Row, newer: Newer) -> str:
    """Return why landed changes of its key prevent it from landing; empty if none does."""
    own = Order(**row["order"])
    placed = [(Order(**one["order"]), one) for one in newer(row) if one["order"] is not None]
    if any(order == own for order, _ in placed):
        return OCCUPIED
    later = [(order, one) for order, one in placed if order > own]
    following = min(later, key=_order, default=None)
    if following is None or following[1]["changed"] is None or following[1]["op"] == Op.DELETE:
        return ""
    return (
        "the next newer change of its key has only some columns, and took the others from an"
        " older row; resend the row with a new version, or take a new base"
    )


def _places(rows: Iterable[pa.RecordBatch], taken: Set[ChangePlace]) -> set[ChangePlace]:
    """Return each row's position among the changes of its key; FormatError if it is *taken*."""
    listed = (row for each in rows for row in each.select([*PLACE, "order"]).to_pylist())
    found = {(*(row[name] for name in PLACE), Order(**row["order"])) for row in listed}
    if not taken.isdisjoint(found):
        raise FormatError(OCCUPIED)
    return found


def _order(one: tuple[Order, Row]) -> Order:
    return one[0]


def _subject(one: Resubmission, checkpoint: Checkpoint) -> tuple[str, Quarantine]:
    """Return the quarantine that the correction is to close.

    Raises:
        FormatError: no such quarantine is open, or its position is unknown.
    """
    for subject, open_ in checkpoint.quarantine.items():
        if one.change in open_.ids:
            if not open_.epoch:
                raise FormatError(UNSURE)
            return subject, open_
    raise FormatError(CLOSED.format(change=one.change))
