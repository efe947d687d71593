"""Stores W and all other landing state: one checkpoint row in each commit of the change log.

A checkpoint row holds what its batch changed, so its size follows the batch. It holds everything
every 50 batches, and when the difference would be no smaller. Each row names the newest full row,
and reading starts there.

Landing draws an incarnation number each time it starts. A change log that lost its newest commits
uses their batch numbers again, but in another incarnation. Compare incarnations before you trust a
remembered batch number. The newest 1,000 incarnations are kept.

A dropped or ignored shard is not active. It blocks nothing, and its mirror stays. It becomes active
again when it is created again or is no longer ignored. The checkpoint also records since which
batch the rows of a shard are written by the current standards.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from types import GenericAlias
from typing import Any, cast, get_args, get_origin

import msgspec

from pipeline.backfill_state import Backfill
from pipeline.errors import HeldError, text_or_cause
from pipeline.finding import Finding
from pipeline.heartbeats import HeartbeatHistory
from pipeline.model import (
    Acknowledged,
    Fence,
    Order,
    Ordering,
    PartitionEnd,
    Position,
    RetainedLog,
    Shard,
    SnapshotAgain,
    SourcePartition,
    Table,
    TopicPartition,
)
from pipeline.settings import Router
from pipeline.sources.positions import has_reached, locate_position


@dataclass(frozen=True, slots=True)
class RowStandards:
    """Digest of the standards that a shard's rows are written by; empty: no standards.

    ``since`` is the first batch of such rows, -1 if no row was written by other standards.
    """

    digest: str = ""
    since: int = -1


NO_STANDARDS = RowStandards()
"""The value for a shard that was never written with standards."""


MAX_NAMED_CHANGES = 20  # quarantined changes of a subject that are listed by name
FULL_EVERY = 50  # batches; no reader replays more texts than this
_PLAIN = ("lane", "batch", "full")  # fields that do not hold entries


@dataclass(frozen=True, slots=True)
class Epoch:
    """Sluice's counter for one collector's log, and the highest head seen of its server.

    ``heartbeat`` is the highest number landed when the epoch began. Until a higher one has landed,
    the collector may still be redelivering what it sent in the previous epoch. ``before`` is the
    end of the previous log when it was last seen. ``passed`` is what was acknowledged of that log:
    a collector that continues where it stopped sends nothing older.
    """

    number: int
    identity: str
    position: Position
    heartbeat: int = -1
    before: Position | None = None
    passed: Acknowledged | None = None


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The start of an epoch of a source in one partition."""

    source: str
    number: int
    at: TopicPartition

    def __str__(self) -> str:
        """Render as ``source/epoch/topic:partition``, the form used in checkpoints."""
        return f"{self.source}/{self.number}/{self.at}"

    @classmethod
    def parse(cls, text: str) -> "EpochStart":
        """Parse the output of ``str``."""
        source, number, at = text.split("/", 2)
        return cls(source, int(number), TopicPartition.parse(at))


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """A snapshot of one shard while its rows arrive: its order, and whether its end was seen.

    ``batch`` is the one that held its first row (or its schema event, for an empty shard). ``told``
    if schema events of its source show that it is of all tables. ``described`` is the order of a
    newer snapshot that described the shard and has sent no row yet.
    """

    order: Order
    batch: int
    rows: int = 0
    ended: bool = False
    told: bool = False
    described: Order | None = None

    def waiver(self, shard: Shard) -> str:
        """The id that a person waives to give up this snapshot of *shard*, and no later one."""
        return f"snapshot:{shard}@{self.batch}"


@dataclass(frozen=True, slots=True)
class Existence:
    """Whether a shard exists, by the newest schema event that concerns it."""

    order: Order
    there: bool


@dataclass(frozen=True, slots=True)
class DescribedSchema:
    """Digest of the newest columns that a shard's rows describe, and the order they begin at."""

    order: Order
    digest: str


@dataclass(frozen=True, slots=True)
class CollectorLists:
    """Digest of the lists that select the tables a collector sends.

    ``since`` is when they were first seen. It is None if no other lists were seen before, or if
    everything ``above`` was surely sent with these lists. ``unseen`` is the first batch that landed
    while the collector was silent, -1 if it answered for the newest batch.
    """

    digest: str
    since: datetime | None = None
    unseen: int = -1
    above: Order | None = None


@dataclass(frozen=True, slots=True)
class ActiveHazard:
    """A setting of *source* that drops or rewrites changes; ``batch`` recorded its newest state.

    ``batch`` is the first batch that saw it. Once the setting is surely gone, ``above`` is the end
    of the source's log at that time, and ``batch`` the batch that recorded it; before, ``above`` is
    None.
    """

    source: str
    hazard: Finding
    batch: int
    above: Order | None = None


SETTING, DELAY = "setting", "delay"
"""Kinds of gaps caused by a setting: closed by a later base, or when the setting is gone."""
LASTING = (SETTING, "hidden", "lists", "unkept")
"""Kinds of gaps whose cause loses changes for as long as it lasts."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition that can no longer be read, ``[first, until)``, and why.

    ``id`` is stable across rounds (``topic:partition:first``, once landed with ``@batch``).
    ``sluice waive ID`` closes it, and so does a base of each of ``shards`` (as ``source/db.table``)
    that is later than ``batch``. A CREATE closes it only once everything up to an end listed after
    the gap was read (``passed``). Until then it may be older than the loss.

    If nothing is lost ``above`` an order, a base from there on closes it, whenever it came. Nothing
    is lost up to ``below`` either, if that is known.

    For missing heartbeats, ``again`` is the newest number up to which the log was redelivered,
    without a jump, from the heartbeat before them on; -1 if it was not. ``shared`` if the gap was
    of several tables, even if it is now open for one only.
    """

    id: str
    topic: str
    partition: int
    first: int
    until: int
    why: str
    tables: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    batch: int = -1
    passed: bool = False
    above: Order | None = None
    again: int = -1
    shared: bool = False
    below: Order | None = None

    def __post_init__(self) -> None:
        """Fill in a reason if none was given."""
        object.__setattr__(self, "why", text_or_cause(self.why, "gap"))

    @property
    def sent_again(self) -> bool:
        """Whether all missing heartbeats came again; the rows between them may not have landed."""
        return self.again >= self.until

    @property
    def lasts(self) -> bool:
        """Whether its cause lasts, so that more changes may be lost."""
        return self.above is None and self.topic.partition(":")[0] in LASTING

    def concerns(self, table: Table) -> bool:
        """Return whether it may hold changes of *table*; without names it concerns every table."""
        if not self.tables and not self.shards:
            return True
        return table.name in self.tables or any(str(own) in self.shards for own in table.shards)

    @property
    def doubt(self) -> str:
        """SETTING or DELAY if only a setting causes it, else empty; topic names have no colon."""
        kind, colon, _ = self.topic.partition(":")
        return kind if colon and kind in (SETTING, DELAY) else ""

    def is_of_several(self, tables: Mapping[Shard, str | None]) -> bool:
        """Return whether it is, or was, of several tables; *tables*: shard -> table."""
        if self.shared or len(self.shards) < 2:
            return self.shared
        return len({tables.get(Shard.parse(name), name) for name in self.shards}) > 1

    def after(self, earlier: Iterable["Gap"], tables: Mapping[Shard, str | None]) -> "Gap":
        """Return this gap, shared by several *tables* if it or one of *earlier* is."""
        every = (self, *earlier)
        return replace(self, shared=any(one.is_of_several(tables) for one in every))

    @classmethod
    def noticed(
        cls,
        topic: str,
        first: int,
        why: str,
        shards: Iterable[str],
        *,
        batch: int | None = None,
        above: Order | None = None,
    ) -> "Gap":
        """Return a gap that no offsets show; *topic* contains its kind and its subject.

        It was noticed when batch *first* landed, which is the default of *batch*.
        """
        return cls(
            id=f"{topic}:0:{first}@{first}",
            topic=topic,
            partition=0,
            first=first,
            until=first,
            why=why,
            shards=tuple(sorted(shards)),
            batch=first if batch is None else batch,
            above=above,
        )


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Open unreadable changes of one shard, or of one topic whose shards are unknown.

    ``batch`` is the newest that landed one. ``ids`` are the first of them, by name, each ending in
    ``@`` and its batch; ``count`` includes those without a name. A base of each of ``shards`` that
    begins after ``batch`` closes it. Without shards only a waiver does. ``passed`` is as in
    :class:`Gap`. ``epoch`` is that of all of them; it is 0 if unsure, or if their offsets may hold
    other messages now.
    """

    table: str | None
    batch: int
    count: int
    ids: tuple[str, ...]
    shards: tuple[str, ...] = ()
    passed: bool = False
    epoch: int = 0

    def names(self, subject: str) -> tuple[str, ...]:
        """The ids that a person may waive: the first by name, and all others as one, the last."""
        more = self.count - min(len(self.ids), MAX_NAMED_CHANGES)
        rest = (f"{subject}:and {more} more@{self.batch}",) if more else ()
        return (*self.ids[:MAX_NAMED_CHANGES], *rest)

    @property
    def partitions(self) -> frozenset[str]:
        """``topic:partition`` of the changes that are listed by name."""
        return frozenset(name.rpartition("@")[0].rpartition(":")[0] for name in self.ids)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a batch proves about itself and all batches before it, of one lane.

    Keys of type `Shard` are objects in memory; they are stored as text, like all keys. Keys named
    ``source/shard`` are that text. ``quarantine`` and ``stores`` have text keys, because
    ``topic:NAME`` and ``source/NAME`` do not name shards.

    ``offsets``       W: partition -> next offset, and leader epoch of the last record.
    ``gone``          partitions that no longer exist -> their last W.
    ``acknowledged``  source -> what was acknowledged *before* the end offsets were listed that
                      W has passed: every such transaction has landed. Dropped when the epoch moves.
    ``heartbeats``    source -> highest heartbeat number landed.
    ``heartbeat_histories``  source -> `HeartbeatHistory`, where changes have no log position.
    ``tables``        table -> the last batch that holds a change of it.
    ``epochs``        source -> its current epoch; ``starts``: each `EpochStart` -> first offset
                      that belongs to it, while W is below it.
    ``high``          each `SourcePartition` -> highest LIVE order landed.
    ``shards``        `Shard` -> its table, of every shard ever seen; None if ignored.
    ``existing``      `Shard` -> whether it exists, of every shard named in a schema event.
    ``departed``      table -> newest batch in which a shard was dropped or renamed away: a mirror
                      before it has rows of that shard, which no proof covers any more.
    ``belated``       table -> newest batch with changes that came late because they were
                      quarantined, skipped or repaired: older mirrors do not have them.
    ``bases``         `Shard` -> order at which its newest base is complete.
    ``based``         `Shard` -> batch in which the rows of that base began.
    ``complete``      `Shard` -> batch in which that base became complete.
    ``lost``          `Shard` -> order of the base that closed its newest gap or
                      quarantine: changes below it may be missing.
    ``snapshots``     source -> order of its newest snapshot with landed rows that stand for
                      all tables: the heartbeat's, or those before any table had a base.
    ``initial``       source -> order of its newest snapshot of all tables, by its schema changes.
    ``snaps``         `Shard` -> its snapshot that is not complete yet.
    ``schemas``       ``source/shard`` -> its newest columns, where rows describe them.
    ``standards``     `Shard` -> the standards of its rows, if it has or had any.
    ``backfills``     `Shard` -> its newest backfill, done or not.
    ``resubmitted``   id of a corrected message, while it is requested -> batch that landed it.
    ``lists``         source -> the lists by which its collector selects tables.
    ``orderings``     source -> what the orders of its changes are based on.
    ``again``         source -> its newest snapshot that was not its first.
    ``keepers``       source -> what retained its log for its collector at the last look.
    ``stores``        ``source/NAME`` -> what the source reported at the last look about the storage
                      of its tables (`CaptureScope.remembered`).
    ``hazards``       gap id -> the setting that drops or rewrites changes, until everything that
                      was sent with it has landed.
    ``trimmed``       topics whose beginning was deleted before they were first read: the rest
                      shows neither an empty table nor a new one.
    ``parts``         `Shard` -> order of a snapshot that is split or partly deleted.
    ``grown``         topics that have gained partitions: their keys may have moved.
    ``gaps``          gap id -> the open `Gap`.
    ``quarantine``    ``source/shard`` (or ``topic:NAME`` if unknown) -> its open `Quarantine`.
    ``incarnations``  first batch of each incarnation of landing -> its number: see `Incarnations`.
    ``full``          the newest batch at or before this whose text is full; -1: none yet.
    """

    lane: str
    batch: int
    offsets: Mapping[TopicPartition, PartitionEnd] = field(default_factory=dict)
    gone: Mapping[TopicPartition, PartitionEnd] = field(default_factory=dict)
    acknowledged: Mapping[str, Acknowledged] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    heartbeat_histories: Mapping[str, HeartbeatHistory] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, Epoch] = field(default_factory=dict)
    starts: Mapping[EpochStart, int] = field(default_factory=dict)
    high: Mapping[SourcePartition, Order] = field(default_factory=dict)
    shards: Mapping[Shard, str | None] = field(default_factory=dict)
    existing: Mapping[Shard, Existence] = field(default_factory=dict)
    departed: Mapping[str, int] = field(default_factory=dict)
    belated: Mapping[str, int] = field(default_factory=dict)
    bases: Mapping[Shard, Order] = field(default_factory=dict)
    based: Mapping[Shard, int] = field(default_factory=dict)
    complete: Mapping[Shard, int] = field(default_factory=dict)
    lost: Mapping[Shard, Order] = field(default_factory=dict)
    snapshots: Mapping[str, Order] = field(default_factory=dict)
    initial: Mapping[str, Order] = field(default_factory=dict)
    snaps: Mapping[Shard, OpenSnapshot] = field(default_factory=dict)
    schemas: Mapping[str, DescribedSchema] = field(default_factory=dict)
    standards: Mapping[Shard, RowStandards] = field(default_factory=dict)
    backfills: Mapping[Shard, Backfill] = field(default_factory=dict)
    resubmitted: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, CollectorLists] = field(default_factory=dict)
    orderings: Mapping[str, Ordering] = field(default_factory=dict)
    keepers: Mapping[str, RetainedLog] = field(default_factory=dict)
    again: Mapping[str, SnapshotAgain] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)
    hazards: Mapping[str, ActiveHazard] = field(default_factory=dict)
    trimmed: tuple[str, ...] = ()
    parts: Mapping[Shard, Order] = field(default_factory=dict)
    grown: tuple[str, ...] = ()
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    quarantine: Mapping[str, Quarantine] = field(default_factory=dict)
    incarnations: Mapping[str, int] = field(default_factory=dict)
    full: int = field(default=-1, compare=False)

    def dumps(self) -> str:
        """Return canonical JSON of all entries: a full text, read back by :meth:`loads`."""
        return CheckpointDelta(replace(self, full=self.batch)).dumps()

    @classmethod
    def loads(cls, text: str) -> "Checkpoint":
        """Parse the output of :meth:`dumps`.

        Raises:
            HeldError: ``mark_lost``; the text has only what its batch changed.
        """
        delta = CheckpointDelta.loads(text)
        if not delta.full:
            detail = f"batch {delta.changed.batch} holds only what it changed"
            raise HeldError("mark_lost", f"{detail}; read from batch {delta.changed.full} on")
        return delta.changed

    def changes_since(self, previous: "Checkpoint") -> str:
        """Return the text to commit after *previous*: the changes, or a full text if it is due.

        A full text is due every ``FULL_EVERY`` batches, and when it is no longer than the changes.
        """
        due = previous.full < 0 or self.batch - previous.full >= FULL_EVERY
        if due:
            return self.dumps()
        delta = _subtract(self, previous)
        whole = sum(len(getattr(self, name)) for name in _NAMES)
        return self.dumps() if delta.size >= whole else delta.dumps()

    def advanced(self, text: str) -> "Checkpoint":
        """Return the checkpoint after the batch of *text*.

        Raises:
            HeldError: ``mark_lost``; it is of another lane, or not of the next batch.
        """
        delta = CheckpointDelta.loads(text)
        changed = delta.changed
        if (changed.lane, changed.batch) != (self.lane, self.batch + 1):
            after = f"batch {self.batch} of lane {self.lane}"
            found = f"batch {changed.batch} of lane {changed.lane}"
            fix = "restore the batches between them"
            raise HeldError("mark_lost", f"{found} cannot follow {after}; {fix}")
        return changed if delta.full else _apply(self, delta)

    @property
    def quarantined(self) -> Mapping[str, tuple[str, ...]]:
        """Table (or ``topic:NAME`` if unknown) -> ids of its open quarantined changes."""
        found: dict[str, list[str]] = {}
        for name, one in sorted(self.quarantine.items()):
            found.setdefault(one.table or name, []).extend(one.names(name))
        return {subject: tuple(ids) for subject, ids in found.items()}

    def reached(self, source: str) -> tuple[int, int, int] | None:
        """Return epoch, log and pos below which all of *source* has landed; None if unknown."""
        known, epoch = self.acknowledged.get(source), self.epochs.get(source)
        if known is None or known.snapshot or epoch is None:
            return None
        return epoch.number, *locate_position(known.position)

    def passed(self, source: str, order: Order) -> bool:
        """Whether everything of *source* up to and including *order* has landed."""
        reached = self.reached(source)
        return reached is not None and (order.epoch, order.log, order.pos) < reached

    def covers(self, fence: Fence) -> bool:
        """Whether everything at or below *fence* has landed in this batch or before.

        The heartbeat itself must have landed. The collector must have finished all below the
        fence's head before the end offsets that W has passed were listed.
        """
        known = self.acknowledged.get(fence.source)
        epoch = self.epochs.get(fence.source)
        if known is None or known.snapshot or epoch is None:
            return False
        if any(shard.source == fence.source for shard in self.snaps):
            return False  # rows deleted before the snapshot are not yet known to be deleted
        if epoch.identity != fence.head.identity:
            return False  # positions of two servers are never compared
        if self.heartbeats.get(fence.source, -1) < fence.number:
            return False
        return has_reached(known.position, fence.head.position)


_NAMES = tuple(each.name for each in fields(Checkpoint) if each.name not in _PLAIN)


@dataclass(frozen=True, slots=True)
class CheckpointDelta:
    """What one batch changed of the checkpoint; a full text holds everything.

    ``changed`` holds the entries that were set; ``gone`` has, by field, the keys that were removed.
    """

    changed: Checkpoint
    gone: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether it can be read without an earlier checkpoint."""
        return self.changed.full == self.changed.batch

    @property
    def size(self) -> int:
        """Number of its entries."""
        entries = sum(len(getattr(self.changed, name)) for name in _NAMES)
        return entries + sum(len(names) for names in self.gone.values())

    @classmethod
    def loads(cls, text: str) -> "CheckpointDelta":
        """Parse the text of a checkpoint.

        Raises:
            HeldError: ``mark_lost``; it is not the text of a checkpoint.
        """
        try:
            stored: Any = msgspec.json.decode(text, type=_StoredDelta)
            entries = {name: _parse(name, getattr(stored.changed, name)) for name in _NAMES}
            plain = {name: getattr(stored.changed, name) for name in _PLAIN}
            named = ((_NAMES_OF_STORED.get(name, name), keys) for name, keys in stored.gone.items())
            gone = {name: tuple(_parse_keys(name, keys)) for name, keys in named}
        except (msgspec.DecodeError, ValueError, LookupError, TypeError) as error:
            raise HeldError("mark_lost", f"a marker cannot be read: {error}") from error
        return cls(Checkpoint(**plain, **entries), gone)

    def dumps(self) -> str:
        """Return canonical JSON, which :meth:`loads` parses."""
        plain = {name: getattr(self.changed, name) for name in _PLAIN}
        entries = {_stored(name): _render(name, getattr(self.changed, name)) for name in _NAMES}
        gone = {_stored(name): sorted(map(str, keys)) for name, keys in self.gone.items()}
        stored = {"changed": {**plain, **entries}, "gone": gone}
        return msgspec.json.encode(stored, order="sorted").decode()


_TYPES = {
    each.name: get_args(each.type)
    for each in fields(Checkpoint)
    if get_origin(each.type) is Mapping
}
"""Field -> types of its keys and values."""

_STORED_NAMES = {
    "heartbeat_histories": "beats",
    "backfills": "rereads",
    "incarnations": "lives",
}
"""Field -> its name in stored JSON, if that differs."""

_NAMES_OF_STORED = {stored: name for name, stored in _STORED_NAMES.items()}

_PARSERS = {name: key.parse for name, (key, _) in _TYPES.items() if key is not str}
"""Field -> parser of its keys, for fields whose keys are text only in storage."""


def _stored(name: str) -> str:
    return _STORED_NAMES.get(name, name)


def _parse(name: str, stored: Any) -> Any:
    """Return the entries of the field *name* as they are in memory."""
    if name == "gaps":
        return {id_: _parse_gap(text) for id_, text in stored.items()}
    parse = _PARSERS.get(name)
    return stored if parse is None else {parse(text): value for text, value in stored.items()}


def _parse_keys(name: str, texts: Iterable[str]) -> Iterable[Any]:
    return map(_PARSERS[name], texts) if name in _PARSERS else texts


def _render(name: str, entries: Any) -> Any:
    """Return the entries of the field *name* as they are stored."""
    if name == "gaps":
        return {id_: _render_gap(gap) for id_, gap in entries.items()}
    return {str(k): v for k, v in entries.items()} if name in _PARSERS else entries


def _render_gap(gap: Gap) -> str:
    return json.dumps({name: getattr(gap, name) for name in _GAP_PARTS}, default=asdict)


_GAP_PARTS = tuple(each.name for each in fields(Gap))


def _parse_gap(text: str) -> Gap:
    raw = json.loads(text)
    ends = {name: Order(**raw[name]) for name in ("above", "below") if raw.get(name)}
    names = {name: tuple(raw[name]) for name in ("tables", "shards")}
    return Gap(**{**raw, **names, **ends})


def _stored_mapping(value: Any) -> Any:
    return GenericAlias(dict, (str, str if value is Gap else value))


_StoredCheckpoint = msgspec.defstruct(
    "_StoredCheckpoint",
    [
        ("lane", str),
        ("batch", int),
        ("full", int, -1),
        ("trimmed", tuple[str, ...], ()),
        ("grown", tuple[str, ...], ()),
        *(
            (
                name,
                _stored_mapping(value),
                msgspec.field(default_factory=dict, name=_stored(name)),
            )
            for name, (_, value) in _TYPES.items()
        ),
    ],
)
_StoredDelta = msgspec.defstruct(
    "_StoredDelta",
    [
        ("changed", _StoredCheckpoint),
        ("gone", dict[str, tuple[str, ...]], msgspec.field(default_factory=dict)),
    ],
)


def source_of(name: str) -> str:
    """The source of a shard or partition named in a checkpoint; source names have no slash."""
    return name.partition("/")[0]


def _entries(checkpoint: Checkpoint, name: str) -> Mapping[Any, Any]:
    """The entries of one field; for a tuple, its members."""
    value = getattr(checkpoint, name)
    return dict.fromkeys(value) if isinstance(value, tuple) else cast("Mapping[Any, Any]", value)


def _with_entries(checkpoint: Checkpoint, entries: Mapping[str, Mapping[Any, Any]]) -> Checkpoint:
    names = {name for name in entries if isinstance(getattr(checkpoint, name), tuple)}
    fresh: dict[str, Any] = {**entries, **{name: tuple(sorted(entries[name])) for name in names}}
    return replace(checkpoint, **fresh)


_ABSENT = object()  # because None is a value


def _subtract(checkpoint: Checkpoint, previous: Checkpoint) -> CheckpointDelta:
    changed, gone = {}, {}
    for name in _NAMES:
        now, before = _entries(checkpoint, name), _entries(previous, name)
        if now is before:
            continue
        changed[name] = {
            k: v for k, v in now.items() if (was := before.get(k, _ABSENT)) is not v and was != v
        }
        added = sum(key not in before for key in changed[name])
        if len(now) - added < len(before):
            gone[name] = tuple(before.keys() - now.keys())
    empty = Checkpoint(checkpoint.lane, checkpoint.batch, full=previous.full)
    return CheckpointDelta(_with_entries(empty, changed), gone)


def _apply(checkpoint: Checkpoint, delta: CheckpointDelta) -> Checkpoint:
    entries = {}
    for name in _NAMES:
        changed, gone = _entries(delta.changed, name), delta.gone.get(name, ())
        if not changed and not gone:
            continue
        kept = {**_entries(checkpoint, name), **changed}
        for key in gone:
            kept.pop(key, None)
        entries[name] = kept
    made = _with_entries(checkpoint, entries)
    return replace(made, batch=delta.changed.batch, full=delta.changed.full)


MAX_INCARNATIONS = 1_000  # older ones are useless for the newest entries of a log


@dataclass(frozen=True, slots=True)
class Incarnations:
    """Numbers of incarnations and the first batch of each, both ascending by batch."""

    firsts: tuple[int, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, incarnations: Mapping[str, int]) -> "Incarnations":
        """Convert a checkpoint's mapping: first batch -> incarnation."""
        pairs = sorted((int(first), number) for first, number in incarnations.items())
        return cls(tuple(first for first, _ in pairs), tuple(number for _, number in pairs))

    def at(self, batch: int) -> int | None:
        """The incarnation that landed *batch*; None if that is no longer known."""
        place = bisect_right(self.firsts, batch)
        return self.numbers[place - 1] if place else None


def with_incarnation(incarnations: Mapping[str, int], batch: int, number: int) -> Mapping[str, int]:
    """Add that *batch* landed in incarnation *number*; return the same object if that is known."""
    if Incarnations.of(incarnations).at(batch) == number:
        return incarnations
    kept = sorted(incarnations, key=int)[1 - MAX_INCARNATIONS :]
    return {**{first: incarnations[first] for first in kept}, str(batch): number}


def is_rolled_back(known: Checkpoint, now: Checkpoint) -> bool:
    """Whether the log has lost the batch of *known*, even if another has its number by *now*."""
    if now.batch < known.batch:
        return True
    incarnations = (Incarnations.of(one.incarnations).at(known.batch) for one in (known, now))
    return now.incarnations is not known.incarnations and len({*incarnations}) > 1


def shard_exists(checkpoint: Checkpoint, shard: Shard) -> bool:
    """Whether no schema event says that *shard* was dropped."""
    existence = checkpoint.existing.get(shard)
    return existence is None or existence.there


def is_outdated(checkpoint: Checkpoint, shard: Shard, order: Order) -> bool:
    """Whether a statement about *shard* has landed that is newer than *order*.

    A row that arrives this late is missing in mirrors that have followed the statement.
    """
    existence = checkpoint.existing.get(shard)
    if existence is None or existence.order <= order:
        return False
    described = checkpoint.schemas.get(str(shard))
    return (
        described is None or described.order != existence.order
    )  # else rows described its columns


def active_shards(checkpoint: Checkpoint, router: Router) -> Mapping[Shard, str]:
    """Shard -> table, of the shards that exist and that no rule ignores."""
    return {
        shard: table
        for shard, table in checkpoint.shards.items()
        if table is not None and shard_exists(checkpoint, shard) and router.table(shard.name)
    }


def has_streaming_table(checkpoint: Checkpoint, router: Router, *, tier: int) -> bool:
    """Whether a table of *tier* has a shard that is past its first snapshot, or never had one."""
    return any(
        (shard not in checkpoint.snaps or shard in checkpoint.bases)
        and (rule := router.rule(shard.name)) is not None
        and rule.tier == tier
        for shard, table in checkpoint.shards.items()
        if table is not None
    )


def active_tables(checkpoint: Checkpoint, router: Router) -> Mapping[str, int]:
    """Table -> the last batch that holds a change of it, of tables with an active shard."""
    names = set(active_shards(checkpoint, router).values())
    return {name: last for name, last in checkpoint.tables.items() if name in names}
