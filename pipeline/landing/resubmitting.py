"""Which corrected messages land with a batch, and why do the others not?

A message that was quarantined and is corrected lands where the one stood that it stands for: with
that one's place, or the version that it tells itself, so what is newer wins by order.  Its name
goes from the mark in the very same commit, and with it what kept the table: nothing opens by word.
What order alone does not put in its place is refused: a statement about the table came since, or
the next newer change of its key tells some columns only, and took the others from before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import Mark, Quarantine, is_outdated, source_of
from pipeline.errors import FormatError, NoSchemasError, ProofError
from pipeline.formats.schema_registry import decoded
from pipeline.landing.healing import Healed
from pipeline.landing.listing import Listing
from pipeline.landing.shape import Provenance, Routes, shape, slim
from pipeline.landing.source_feed import Feed
from pipeline.landing.staging import write_rows
from pipeline.landing.tally import tally
from pipeline.landing.told_schemas import told_schema
from pipeline.model import Op, Order, Shard
from pipeline.resubmissions import Resubmission, ResubmissionState, is_shard, place_of, raw_message
from pipeline.settings import Router
from pipeline.standards.table_standards import NO_STANDARDS, Standards

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
CLOSED = "{change} is not open any more: a new base, a waiver or another correction closed it"
UNSURE = (
    "nobody knows any more to which log its place belongs (a fail-over, or its topic was made"
    " anew): take a new base of its table"
)
OCCUPIED = "another change of its key has landed in its version, or place"
UNTOLD = "no change of {shard} has told its columns yet: it lands once one that can be read has"
Row = Mapping[str, Any]
ChangePlace = tuple[str, str, str, Order]
"""Source, table, key and order."""
Newer = Callable[[Row], Iterable[Row]]
"""A row -> landed changes of its key at its order or above."""


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """What lands of those asked for, as `Healed`; ``landed`` are they, by id, None in this batch.

    ``others`` wait or are refused.
    """

    healed: Healed = field(default_factory=Healed)
    landed: Mapping[str, int | None] = field(default_factory=dict)
    others: tuple[ResubmissionState, ...] = ()

    def left(self, mark: Mark) -> Mark:
        """*mark* without the quarantines of which something lands here: nothing lands twice."""
        taken = self.healed.ids
        kept = {n: one for n, one in mark.quarantine.items() if taken.isdisjoint(one.ids)}
        return replace(mark, quarantine=kept)

    def noted(self, made: Mark) -> Mark:
        """*made*, which knows which ones have landed, as long as they are asked for."""
        told = {one: made.batch if batch is None else batch for one, batch in self.landed.items()}
        return replace(made, resubmitted=told)

    def states(self, mark: Mark) -> tuple[ResubmissionState, ...]:
        """What became of each by *mark*; one whose batch was not committed is asked for again."""
        known = mark.resubmitted
        done = (ResubmissionState(one, known[one]) for one in self.landed if one in known)
        return (*done, *self.others)


@dataclass(eq=False)
class Resubmitting:
    """Makes rows of corrected messages; *feeds* are read as for any batch."""

    feeds: tuple[Feed, ...]
    router: Router
    log: ChangeLog
    standards: Standards = NO_STANDARDS

    def found(
        self, mark: Mark, listing: Listing, asked: Sequence[Resubmission], at: datetime
    ) -> Resubmitted:
        """What lands of *asked* after *mark*; *listing* tells whose the topics are."""
        if not asked:
            return Resubmitted()
        self.log.opened(at)
        landed: dict[str, int | None] = {}
        others, rows, taken = list[ResubmissionState](), list[pa.RecordBatch](), dict[str, str]()
        places = set[ChangePlace]()
        for one in asked:
            if one.id in mark.resubmitted:
                landed[one.id] = mark.resubmitted[one.id]
                continue
            try:
                subject, made = self._rows(one, mark, listing, at)
                own = _places(made, places)
            except (NoSchemasError, ProofError) as error:
                others.append(ResubmissionState(one.id, why=str(error)))
            except FormatError as error:
                others.append(ResubmissionState(one.id, why=str(error), refused=True))
            else:
                landed[one.id], taken[one.change] = None, subject
                rows += made
                places |= own
        return Resubmitted(self._healed(rows, taken, mark, at), landed, tuple(others))

    def _healed(
        self, rows: Sequence[pa.RecordBatch], taken: Mapping[str, str], mark: Mark, at: datetime
    ) -> Healed:
        if not rows:
            return Healed()
        whole = pa.Table.from_batches(rows).combine_chunks()
        (batch,) = whole.to_batches()
        told = tally(pa.Table.from_batches([slim(batch)]))
        file = write_rows(self.log, batch, Stamp(mark.lane, -1, at))
        counted = (
            mark.quarantine[one].ids for one in dict.fromkeys(taken.values()) if is_shard(one)
        )
        before = tuple(name for ids in counted for name in ids if name in taken)
        return Healed(frozenset(taken), (file,), (told,), before)

    def _rows(
        self, one: Resubmission, mark: Mark, listing: Listing, at: datetime
    ) -> tuple[str, list[pa.RecordBatch]]:
        """The subject it is of, and its rows.

        Raises:
            FormatError: it never lands, and why.
            NoSchemasError: it cannot be read yet.
            ProofError: its columns are not known yet; a change that can be read will tell them.
        """
        subject, open_ = _subject(one, mark)
        feed = self._feed(subject, one, listing)
        name, beat = feed.settings.name, feed.settings.heartbeat
        came = Provenance(name, beat, open_.epoch, ordering=feed.format.ordering)
        raw = raw_message(one, feed.format.columns)
        changes = decoded(feed.format, feed.registry, raw)
        stamp = Stamp(mark.lane, -1, at)
        routes = Routes(self.router, self.standards)
        shaped = shape(changes, raw, came, routes=routes, stamp=stamp)
        rows = _without_known_columns(shaped, mark)
        judged = rows.select(list(JUDGED)).to_pylist()
        if untold := _untold(judged, mark):
            raise ProofError(UNTOLD.format(shard=untold))
        if why := refusal(judged, subject, mark, self._newer):
            raise FormatError(why)
        return subject, [rows]

    def _feed(self, subject: str, one: Resubmission, listing: Listing) -> Feed:
        place = place_of(one.change)
        topic = place[0].topic if place is not None else ""
        name = source_of(subject) if is_shard(subject) else listing.source_of.get(topic, "")
        for feed in self.feeds:
            if feed.settings.name == name:
                return feed
        raise FormatError(f"no source of the config has topic {topic!r} now")

    def _newer(self, row: Row) -> list[Row]:
        order = Order(**row["order"])
        found = self.log.of_key(row["table"], row["key"], order, COLUMNS)
        own: list[Row] = found.to_pylist()
        return [each for each in own if each["source"] == row["source"]]


def refusal(rows: Sequence[Row], subject: str, mark: Mark, newer: Newer) -> str:
    """Why rows of a corrected message do not land (``JUDGED``); empty if they do."""
    for row in rows:
        why = _odd(row, subject) or _outdated(row, mark) or _overtaken(row, newer)
        if why:
            return why
    return "" if rows else "it says nothing: no change of a row is in it"


def _without_known_columns(rows: pa.RecordBatch, mark: Mark) -> pa.RecordBatch:
    """*rows* but those that tell the very columns that are known, from whichever order on."""
    kept = []
    for row in rows.select(["op", "source", "shard", "order", "after", "schema_id"]).to_pylist():
        told = row["op"] == Op.DDL and row["schema_id"] is not None
        known = mark.schemas.get(str(Shard(row["source"], row["shard"]))) if told else None
        one = told_schema(Order(**row["order"]), row["after"]) if known is not None else None
        kept.append(one is None or known is None or one.digest != known.digest)
    return rows.filter(pa.array(kept, pa.bool_()))


def _untold(rows: Sequence[Row], mark: Mark) -> str:
    """The shard whose columns only a row of these tells; empty if there is none."""
    told = (row for row in rows if row["op"] == Op.DDL and row["schema_id"] is not None)
    names = (str(Shard(row["source"], row["shard"])) for row in told)
    return next((name for name in names if name not in mark.schemas), "")


def _odd(row: Row, subject: str) -> str:
    """Why it is no live change of a row, or of none of the shard that it is to be of."""
    if row["op"] == Op.ERROR:
        return f"it cannot be read either: {row['error']}"
    if row["op"] == Op.DDL:
        if row["schema_id"] is not None:
            return f"its columns are not those that are known of {row['shard']}"
        return "it is a statement, which is known in its place only: take a new base"
    if row["op"] not in ROWS or row["snapshot"] is not None:
        return f"it is no live change of a row, but {row['op']}"
    return _misplaced(row, subject)


def _misplaced(row: Row, subject: str) -> str:
    shard = str(Shard(row["source"], row["shard"]))
    if is_shard(subject) and shard != subject:
        return f"it is of {shard}, and the message that it is to correct is of {subject}"
    if row["table"] is None:
        return f"{shard} belongs to no table: waive it instead"
    if row["key"] is None or row["order"] is None:
        return f"it has no {'key' if row['key'] is None else 'place among its changes'}"
    return ""


def _outdated(row: Row, mark: Mark) -> str:
    name = str(Shard(row["source"], row["shard"]))
    if not is_outdated(mark, name, Order(**row["order"])):
        return ""
    return f"a statement about {row['shard']} came since: take a new base"


def _overtaken(row: Row, newer: Newer) -> str:
    """Why what has landed of its key does not let it in."""
    own = Order(**row["order"])
    placed = [(Order(**one["order"]), one) for one in newer(row) if one["order"] is not None]
    if any(order == own for order, _ in placed):
        return OCCUPIED
    later = [(order, one) for order, one in placed if order > own]
    following = min(later, key=_order, default=None)
    if following is None or following[1]["changed"] is None or following[1]["op"] == Op.DELETE:
        return ""
    return (
        "the next newer change of its key tells some of its columns only, and took the others"
        " from what was before: send the row again in a new version, or take a new base"
    )


def _places(rows: Iterable[pa.RecordBatch], taken: Set[ChangePlace]) -> set[ChangePlace]:
    """Where each of *rows* stands among the changes of its key; FormatError if that is *taken*."""
    told = (row for each in rows for row in each.select([*PLACE, "order"]).to_pylist())
    found = {(*(row[name] for name in PLACE), Order(**row["order"])) for row in told}
    if not taken.isdisjoint(found):
        raise FormatError(OCCUPIED)
    return found


def _order(one: tuple[Order, Row]) -> Order:
    return one[0]


def _subject(one: Resubmission, mark: Mark) -> tuple[str, Quarantine]:
    """What of the mark it is to close.

    Raises:
        FormatError: nothing, or nobody knows where it stands.
    """
    for subject, open_ in mark.quarantine.items():
        if one.change in open_.ids:
            if not open_.epoch:
                raise FormatError(UNSURE)
            return subject, open_
    raise FormatError(CLOSED.format(change=one.change))
