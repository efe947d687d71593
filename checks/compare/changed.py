"""Compares each changed row with its source, by its key, after its change was merged.

The change log names the rows. They are compared in segments of batches. A segment begins where the
last one ended, and ends at the batch that the mirror is applied through. It takes as many rounds as
its rows need. A row that changes many times in a segment is read once, in its present state.

A row that is equal on both sides is verified, at once or by a position (`Comparison.unexplained`).
Any other row is ruled on once the mirror has passed the look, because it was read alone. A row that
a round cannot settle is pending, and the next round reads it again. All rows changed before an
instant are verified when none of them is pending or wrong.

The newest rows of the source are compared too, even if the log does not name them. These are the
ids above those that earlier looks have reached, up to the highest id that the last look saw. So
rows at the end of the table are found even if the log has no change of them.

A row that its source cannot read in time, even alone, is slow. It is pending and is retried later,
so that it does not delay the others.

Cannot detect: a lost row that was committed after a row with a higher id was compared; rows that a
TRUNCATE or a new base has removed, because the log does not name them; the rows of a new base,
which are the whole table; rows changed in batches that the change log has dropped. Ranges find
them. After a TRUNCATE, a new base or dropped batches, the ranges begin a new lap. After dropped
batches, the verified time also starts again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from checks.compare.look import Comparison, Look, RowSuspects
from checks.counting import Suspect, dump_suspects, load_suspects
from checks.world import Range
from pipeline.clocks import has_passed
from pipeline.errors import SlowError
from pipeline.model import Shard, Table
from pipeline.row_digest import RangeDigest

NO_IDS: Mapping[Shard, Any] = MappingProxyType({})
MOST_SHOWN = 60
"""Longest unreadable key that a message shows, in characters."""
TRIED_AGAIN = timedelta(minutes=10)
"""Time between attempts to read a slow row; each may take as long as the statement limit."""


@dataclass(frozen=True, slots=True)
class SlowRow:
    """A row that its source did not read in time, even alone; when it was last ``tried``."""

    tried: datetime
    why: str


SlowRows = Mapping[Suspect, SlowRow]
NO_SLOW: SlowRows = MappingProxyType({})


def dump_slow(slow: SlowRows) -> list[list[Any]]:
    """Return *slow* as JSON values."""
    return [[*dump_suspects([own])[0], one.tried.isoformat(), one.why] for own, one in slow.items()]


def load_slow(raw: Iterable[Sequence[Any]], table: Table) -> dict[Suspect, SlowRow]:
    """Read back what :func:`dump_slow` wrote; shards that no longer exist are left out."""
    shards = {str(one): one for one in table.shards}
    return {
        (shards[own], id_): SlowRow(datetime.fromisoformat(tried), why)
        for own, id_, tried, why in raw
        if own in shards
    }


def describe_slow(slow: SlowRows) -> str:
    """Describe which rows are slow, and what to do; empty without any."""
    for (shard, id_), one in slow.items():
        more = f" (and {len(slow) - 1} more)" if slow.keys() - {(shard, id_)} else ""
        why = f"{shard}:{id_} is not read in time{more}: {one.why}"
        later = f"it is tried again every {TRIED_AGAIN // timedelta(minutes=1)} minutes"
        return f"{why}; raise limits.statement of its source ({later}, and other rows are compared)"
    return ""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """Changed rows of batches in ``(after, until]``, above the key ``last`` if it is set.

    Keys ascend by source, shard and key.  ``held`` is the instant up to which the mirror held every
    change when the segment began; None if it is not known.
    """

    after: int
    until: int
    last: tuple[str, str, str] | None = None
    held: datetime | None = None

    def dumps(self) -> list[Any]:
        """Return JSON values for the memory of a check."""
        held = self.held.isoformat() if self.held else None
        return [self.after, self.until, None if self.last is None else [*self.last], held]

    @classmethod
    def loads(cls, raw: Sequence[Any]) -> "LogSegment":
        """Read back what :meth:`dumps` wrote; earlier versions did not write ``held``."""
        after, until, last, *held = raw
        known = datetime.fromisoformat(held[0]) if held and held[0] else None
        return cls(after, until, None if last is None else (last[0], last[1], last[2]), known)

    def continued(self, batch: int, held: datetime | None = None) -> "LogSegment":
        """Return the rest of this segment, or the next one if it has ended.

        *batch* is the batch that the mirror is applied through; it holds all changes up to *held*.
        A mirror that was set back merges batches again, so their rows are compared again too.
        """
        if self.last is not None and self.until <= batch:
            return self
        return LogSegment(self.put_back(batch).until, batch, held=held)

    def put_back(self, batch: int) -> "LogSegment":
        """Return an ended segment; the next one begins after it.

        It ends before the first batch that was not fully compared or that is above *batch*.
        """
        begin = min(self.until if self.last is None else self.after, batch)
        return LogSegment(begin, begin)


@dataclass(frozen=True, slots=True)
class NewestIds:
    """All rows of a shard up to the id ``compared`` are covered, by these looks or by ranges.

    ``highest`` is the highest id that the source had when the last look began.
    """

    compared: int
    highest: int

    def span(self, highest: int, changed: Iterable[int]) -> Range:
        """Return the ids to read, from the source's *highest* id and the ids that *changed*.

        Ids inserted after the last look wait for the next one, unless a change of the same or a
        higher id is merged.  Ids may start over after a TRUNCATE.
        """
        first = min(self.compared, highest) + 1
        last = min(max([self.highest, *changed]), highest)
        return first, max(last + 1, first)


@dataclass(frozen=True, slots=True)
class ChangedLook:
    """The looks of one round at changed rows; each row is a range of one id.

    ``rows`` counts the rows that were read, and ``rest`` is the remaining segment.
    ``held`` is the instant up to which the mirror held every change when the segment began; None if
    it is not known.
    ``emptied`` are shards that the segment emptied or gave a new base, set in its first round, or
    that a new loss may concern. Their rows are compared by ranges.
    ``losses`` are the open and waived gaps and quarantines.
    ``losing``: more changes may be lost, so the log may not name each changed row.
    ``unread`` are keys that are not whole numbers; their rows are compared by ranges too.
    ``landed`` is the newest batch known before the looks; -1 from an earlier version.
    ``newest`` are the newest ids of each shard, once the looks are explained.
    ``since`` is when comparing started again, because the change log had dropped batches of the
    segment; None if it has all.
    ``left`` are rows that still have to be read again. They are too many for one round, or
    ``slow``; a check stores the slow ones separately.
    """

    looks: tuple[Look, ...]
    rows: int
    rest: LogSegment
    held: datetime | None
    emptied: frozenset[Shard] = frozenset()
    unread: tuple[tuple[Shard, str], ...] = ()
    landed: int = -1
    newest: Mapping[Shard, NewestIds] = field(default_factory=dict)
    since: datetime | None = None
    left: tuple[Suspect, ...] = ()
    slow: SlowRows = field(default_factory=dict, compare=False)
    losses: tuple[str, ...] = ()
    losing: bool = False

    @property
    def whole(self) -> bool:
        """Whether all rows of the segment were read."""
        return self.rest.last is None

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        held = self.held.isoformat() if self.held else None
        looks = [look.dumps() for look in self.looks]
        values: dict[str, Any] = {"rows": self.rows, "rest": self.rest.dumps(), "held": held}
        values |= {"unread": [[str(shard), key] for shard, key in self.unread]}
        values |= {"emptied": sorted(map(str, self.emptied)), "landed": self.landed}
        since = self.since.isoformat() if self.since else None
        values |= {"newest": dump_newest(self.newest), "since": since}
        values |= {"left": dump_suspects(self.left), "losses": self.losses, "losing": self.losing}
        return {"looks": looks, **values}

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "ChangedLook":
        """Read back what :meth:`dumps` wrote; shards that no longer exist are left out.

        Earlier versions wrote no ``unread``, ``landed``, ``newest``, ``since``, ``left``,
        ``losses`` and ``losing``.
        """
        looks = tuple(look for one in raw["looks"] if (look := Look.loads(one, table)))
        held = datetime.fromisoformat(raw["held"]) if raw["held"] else None
        emptied = frozenset(one for one in table.shards if str(one) in raw["emptied"])
        shards = {str(one): one for one in table.shards}
        unread = tuple((shards[own], key) for own, key in raw.get("unread", ()) if own in shards)
        rest, landed = LogSegment.loads(raw["rest"]), raw.get("landed", -1)
        newest = load_newest(raw.get("newest", {}), table)
        since = datetime.fromisoformat(raw["since"]) if raw.get("since") else None
        left = load_suspects(raw.get("left", ()), table)
        fields = (emptied, unread, landed, newest, since, left)
        losses, losing = tuple(raw.get("losses", ())), raw.get("losing", False)
        return cls(looks, raw["rows"], rest, held, *fields, losses=losses, losing=losing)

    def describe_unread(self) -> str:
        """Describe which rows were not compared by their keys, and why; empty if all were."""
        if not self.unread:
            return ""
        shard, key = self.unread[0]
        more = f" (and {len(self.unread) - 1} more)" if self.unread[1:] else ""
        shown = f"key {key}" if len(key) <= MOST_SHOWN else "a long key"  # a cut key is no JSON
        why = f"{shard}: {shown} of the change log{more} is not a whole number"
        return f"{why}; its row is compared with the others of its shard, all from the beginning"


@dataclass(frozen=True, slots=True)
class ChangedProgress:
    """How far changed rows are verified.

    ``through``: all rows changed before then are verified; None if this is not known.
    ``looked``: all rows changed before then were read; those in ``pending`` must be read again.
    ``wrong`` are the rows that differ.  ``since`` is when comparing began.
    ``again``: the mirror was set back; nothing is known until all rows up to this batch are
    compared again. None otherwise.
    ``losses`` are the open and waived gaps and quarantines of the last look.
    """

    segment: LogSegment
    since: datetime
    pending: tuple[Suspect, ...] = ()
    wrong: tuple[Suspect, ...] = ()
    looked: datetime | None = None
    through: datetime | None = None
    again: int | None = None
    losses: tuple[str, ...] = ()

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        looked, through = (at.isoformat() if at else None for at in (self.looked, self.through))
        rows = {"pending": dump_suspects(self.pending), "wrong": dump_suspects(self.wrong)}
        times = {"since": self.since.isoformat(), "looked": looked, "through": through}
        more = {"again": self.again, "losses": self.losses}
        return {"segment": self.segment.dumps(), **rows, **times, **more}

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "ChangedProgress":
        """Read back what :meth:`dumps` wrote; shards that no longer exist are left out."""
        looked, through = (
            datetime.fromisoformat(raw[name]) if raw[name] else None
            for name in ("looked", "through")
        )
        pending, wrong = (load_suspects(raw[name], table) for name in ("pending", "wrong"))
        since = datetime.fromisoformat(raw["since"])
        segment, again = LogSegment.loads(raw["segment"]), raw.get("again")
        losses = tuple(raw.get("losses", ()))
        return cls(segment, since, pending, wrong, looked, through, again, losses)

    def put_back(self, batch: int, until: int, held: datetime | None) -> "ChangedProgress":
        """Return the progress after the mirror was set back from *until* to *batch*.

        The mirror holds every change up to *held*; None if that is not known.
        """
        looked, through = (
            min(at, held) if at and held else None for at in (self.looked, self.through)
        )
        segment, again = self.segment.put_back(batch), max(until, self.again or 0)
        return replace(self, segment=segment, looked=looked, through=through, again=again)

    def settled(
        self, look: ChangedLook, pending: Iterable[Suspect], wrong: Iterable[Suspect]
    ) -> "ChangedProgress":
        """Return the progress after *look*; all its rows are verified except *pending* and *wrong*.

        These are read again in the order given.

        The remaining rows belong to this segment or to an earlier one.  If none of them remained
        before, all belong to this one, and everything before it is verified.
        """
        if look.since is not None:
            fresh = replace(self, since=look.since, looked=None, through=None)
            return fresh.settled(replace(look, since=None), pending, wrong)
        pending, wrong = tuple(dict.fromkeys(pending)), tuple(dict.fromkeys(wrong))
        left = {*pending, *wrong}
        looked = look.held if look.whole and look.held else self.looked
        through = self.through
        if not left:
            through = looked
        elif not left & {*self.pending, *self.wrong}:
            through = self.looked
        ended = look.whole and look.rest.until >= (self.again or 0)
        again = None if ended else self.again
        rows = replace(self, pending=pending, wrong=wrong, again=again, losses=look.losses)
        return replace(rows, segment=look.rest, looked=looked, through=through)

    def waits_since(self) -> datetime:
        """Return the earliest time since which a changed row may be unverified."""
        return self.through or self.since


@dataclass(eq=False)
class _RowReader:
    """Reads rows by their ids, except ``slow`` ones.

    After the first row that is found to be slow, it reads no more, and the rest is ``unread``.
    """

    comparison: Comparison
    slow: dict[Suspect, SlowRow]
    unread: list[Suspect] = field(default_factory=list)
    stopped: bool = False

    def not_slow(self, rows: Iterable[Suspect]) -> list[Suspect]:
        return [one for one in rows if one not in self.slow]

    def look_at(self, shard: Shard, ids: Sequence[int], since: int) -> list[Look]:
        """Read the rows of *ids*, which ascend; one by one if only one may be read at once."""
        if len(ids) > 1 and self.comparison.at_once != 1 and not self.stopped:
            return [self.comparison.look_at_rows(shard, ids, since)]
        looks = list[Look]()
        for id_ in ids:
            if self.stopped:
                self.unread.append((shard, id_))
                continue
            try:
                looks.append(self.comparison.look_at_rows(shard, [id_], since))
            except SlowError as error:
                self._set_aside(shard, id_, error)
        return looks

    def look_at_newest(self, shard: Shard, span: Range, most: int) -> tuple[list[Look], int]:
        """Read rows of *span*; also return the id below which all were read or are slow."""
        try:
            look, end = self.comparison.look_at_newest(shard, span, most)
        except SlowError as error:
            first = self.comparison.first_id(shard, span) if most == 1 else None
            if first is None:
                raise
            self._set_aside(shard, first, error)
            return [], first + 1
        return [look], end

    def look_again(self, since: int) -> list[Look]:
        """Read the slow row that was tried longest ago, if `TRIED_AGAIN` has passed."""
        due = min(self.slow, key=lambda one: self.slow[one].tried, default=None)
        now = self.comparison.world.now
        if due is None or self.stopped or not has_passed(self.slow[due].tried, TRIED_AGAIN, now):
            return []
        del self.slow[due]
        return self.look_at(due[0], [due[1]], since)

    def cut_slow(self, shard: Shard, span: Range) -> Range:
        """Return *span* from its first id that is not slow up to the next slow one."""
        first, end = span
        while first < end and (shard, first) in self.slow:
            first += 1
        inside = [id_ for own, id_ in self.slow if own == shard and first < id_ < end]
        return first, min([end, *inside])

    def _set_aside(self, shard: Shard, id_: int, error: SlowError) -> None:
        """Record a row as slow; raises SlowError if its source cannot read anything in time."""
        self.comparison.read_no_row(shard)
        self.slow[shard, id_] = SlowRow(self.comparison.world.now, str(error))
        self.stopped = True


def look_at_changes(
    comparison: Comparison,
    progress: ChangedProgress,
    most: int,
    known: Sequence[Suspect] = (),
    newest: Mapping[Shard, tuple[NewestIds, int]] = NO_IDS,
    *,
    slow: SlowRows = NO_SLOW,
) -> ChangedLook:
    """Read pending rows and rows that have changed since, at *most* that many in total.

    Rows that are *known* to be wrong are read too, without counting towards *most*.  At *most* that
    many of the *newest* rows of each shard are read as well; *newest* also has the shard's highest
    id at the source.  A changed row among them is read once.  Only as many pending and as many
    known rows are read as *comparison* reads at once; the rest is in ``left``.  *slow* rows are in
    ``left`` too, except one that is tried again.

    Raises:
        SlowError: the source takes too long for so many rows.
        ProofError: the landed schema of a shard has no id column.
    """
    table, world = comparison.table, comparison.world
    held, landed = world.held_until(table), world.landed_batch()
    segment = progress.segment.continued(world.mirror(table).batch, held)
    dropped = min(world.log().dropped, segment.until)
    emptied, since = frozenset[Shard](), None
    if segment.after < dropped:
        emptied, since = frozenset(table.shards), world.now
        segment = replace(segment, after=dropped)
    elif segment.last is None:  # only the first round of a segment may start a new lap
        emptied = world.log().emptied_shards(table, segment.after, segment.until)
    losses = world.losses(table)
    # the log does not name the rows of a new loss
    emptied = emptied.union(*(losses[id_] for id_ in losses.keys() - {*progress.losses}))
    reader, at_once = _RowReader(comparison, dict(slow)), comparison.at_once
    pending = reader.not_slow(progress.pending)[:at_once]
    again = reader.not_slow(known)[:at_once]
    room = max(most - len(pending), 1)
    keys = world.log().changed_keys(
        table, segment.after, segment.until, above=segment.last, most=room
    )
    rest = LogSegment(segment.until, segment.until)
    if len(keys) >= room:
        rest = replace(segment, last=(keys[-1][0].source, keys[-1][0].name, keys[-1][1]))
    ids: dict[Shard, set[int]] = {}
    for shard, id_ in pending:
        ids.setdefault(shard, set()).add(id_)
    unread = list[tuple[Shard, str]]()
    for shard in comparison.columns:
        texts = [key for own, key in keys if own == shard]
        found = comparison.read_ids(shard, texts) if texts else []
        for key, number in zip(texts, found, strict=True):
            if number is None:
                unread.append((shard, key))
            elif (shard, number) not in slow:
                ids.setdefault(shard, set()).add(number)
    read = {*again, *((shard, id_) for shard, some in ids.items() for id_ in some)}
    looks, reached = list[Look](), dict[Shard, NewestIds]()
    for shard, (own, highest) in newest.items():
        first, end = reader.cut_slow(shard, own.span(highest, ids.get(shard, ())))
        if first < end:
            found_newest, end = reader.look_at_newest(shard, (first, end), most)
            looks += found_newest
            ids[shard] = {id_ for id_ in ids.get(shard, ()) if not first <= id_ < end}
        reached[shard] = NewestIds(end - 1, highest)
    rows = sum(map(len, ids.values())) + sum(look.ranges for look in looks)
    for shard, id_ in again:
        ids.setdefault(shard, set()).add(id_)
    for shard, some in ids.items():
        looks += reader.look_at(shard, sorted(some), segment.after)
    looks += reader.look_again(segment.after)
    read = {one for one in read if one not in reader.slow} - {*reader.unread}
    read |= {*slow} - {*reader.slow}
    every = dict.fromkeys((*progress.pending, *known, *reader.unread, *reader.slow))
    left = tuple(one for one in every if one not in read)
    return ChangedLook(
        *(tuple(looks), rows, rest, segment.held, emptied, tuple(unread), landed, reached),
        *(since, left, reader.slow, tuple(sorted(losses)), world.loses_changes(table)),
    )


def dump_newest(newest: Mapping[Shard, NewestIds]) -> dict[str, list[int]]:
    """Return *newest* as JSON values."""
    return {str(shard): [own.compared, own.highest] for shard, own in newest.items()}


def load_newest(raw: Mapping[str, Sequence[int]], table: Table) -> dict[Shard, NewestIds]:
    """Read back what :func:`dump_newest` wrote; shards that no longer exist are left out."""
    return {one: NewestIds(*raw[str(one)]) for one in table.shards if str(one) in raw}


def find_newest(
    memory: Mapping[str, Any], table: Table, highest: Mapping[Shard, int]
) -> dict[Shard, tuple[NewestIds, int]]:
    """Return each shard's newest ids from *memory*, and its *highest* id.

    If *memory* has none, they begin at the highest id.
    """
    known = load_newest(memory.get("newest", {}), table)
    return {shard: (known.get(shard, NewestIds(top, top)), top) for shard, top in highest.items()}


def unexplained_rows(comparison: Comparison, look: ChangedLook, ended: datetime) -> RowSuspects:
    """Return the rows of *look* that no position explains; the mirror must have passed *look*.

    They were read one by one, so `Comparison.judge` can rule on them now. *ended* is when *look*
    ended.
    """
    rows = dict[Suspect, RangeDigest]()
    for one in look.looks:
        if one.shard in comparison.columns:
            source = {row.span: row.source for row in one.differing}
            rows |= {(one.shard, span[0]): source[span] for span in comparison.unexplained(one)}
    oldest = min((one.batch for one in look.looks), default=-1)
    return RowSuspects(rows, oldest if look.landed < 0 else look.landed, ended)
