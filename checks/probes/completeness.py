"""Checks that every event has landed that the collector counted in its END messages.

An END is judged only after the mirror has passed the moment at which it was seen landed. By
then every event of its transaction has landed, in any order of reading the topics. A collector
that reports no transactions promises nothing, so there is no ruling before the first END. A loss
below the newest base of its shard no longer counts once the mirror has that base.

If the change log dropped ENDs before they were judged, the check is UNKNOWN. This ends when newer
bases of all shards have what these ENDs announced.

After a pause there may be hours of ENDs, more than fit into memory.  They are judged in parts, one
per round, and the check is UNKNOWN until the last part is judged.

A loss stays known when the change log no longer has its END, because its day was dropped or the log
was set back. It cannot be counted again then. Only newer bases of all shards end it, or its END
landing again.

If changes name transactions, but no END of their source lands any more, the check is UNKNOWN after
`patience`. One transaction that sends its rows for that long has the same effect until it ends.

Cannot detect: changes that the collector never sent, extra events that land long after their END,
a transaction whose END alone is lost, and truncates and XA rows, which have no transaction. Cannot
decide: transactions that restarted at an event that the log does not show.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, ClassVar

from checks.counting import await_fences, base_orders, dump_parts
from checks.ledger import EVENTS, LedgerEntry, add_entries, minute_of
from checks.model import (
    MOST_KEYS,
    FailKind,
    NotYet,
    Outcome,
    Ruling,
    Span,
    Undecided,
)
from checks.run import Probe
from checks.world import LogReader, ShardBase, Transaction, World
from pipeline.model import Fence, Table


@dataclass(frozen=True, slots=True)
class EventCount:
    """Transactions by result; those ``undecided`` restarted at an unknown event."""

    complete: int = 0
    short: tuple[Transaction, ...] = ()
    over: tuple[Transaction, ...] = ()
    undecided: int = 0


def expected_events(transaction: Transaction) -> int | None:
    """Return how many events the transaction has; None if it restarted at an unknown event.

    Each run before the last counts up to the event with which the next run began: ``total_order``
    of that event in the older run - 1. END states the number of the last run.
    """
    if len(transaction.resumed) != transaction.begun - 1:
        return None
    return transaction.promised + sum(first - 1 for first in transaction.resumed)


def count_events(transactions: Iterable[Transaction]) -> EventCount:
    """Compare the promised and the landed events of each transaction."""
    complete, undecided = 0, 0
    short: list[Transaction] = []
    over: list[Transaction] = []
    for each in transactions:
        truth = expected_events(each)
        if truth is None:
            undecided += 1
        elif each.landed == truth:
            complete += 1
        else:
            (short if each.landed < truth else over).append(each)
    return EventCount(complete, tuple(short), tuple(over), undecided)


MOST_EVENTS = 2**40  # per transaction; an END that announces more is corrupt


def count_minutes(transactions: Iterable[Transaction], found: datetime) -> tuple[LedgerEntry, ...]:
    """Return announced and landed events by the minute of END; *found* is the time of this count.

    A restarted transaction is counted over all its tables, so its minute is unknown. So is the
    minute of an END with an impossible count.
    """
    return add_entries(_count_minute(each, found) for each in transactions)


def _count_minute(each: Transaction, found: datetime) -> LedgerEntry:
    minute = minute_of(each.at or found)
    if each.begun > 1 or not 0 <= each.promised <= MOST_EVENTS:
        return LedgerEntry(minute, unknown=True, batch=each.end_batch)
    differs = each.landed != each.promised
    return LedgerEntry(
        minute,
        {EVENTS: each.promised},
        {EVENTS: each.landed},
        batch=each.end_batch,
        found=found if differs else None,
    )


NAME = "completeness"
ENDED, UNREPORTED = "ended", "untold"  # last known state of a table's transactions
MOST_WRONG = 100  # most batches with wrong transactions that are counted again, oldest first
MOST_LOST = 1_000  # most wrong transactions that are stored one by one, oldest first
MOST_BATCHES = 1_000  # most batches that are judged in one round
MOST_ENDS = 200_000  # most ENDs of these batches, of all tables; about 0.5 kB each
END_BACK = 1_000  # batches before a change in which the END of its transaction may have landed
MOST_AGAIN = 1_000  # most batches searched for the point to which a change log was set back
GONE = -1  # batch of an END that the change log no longer has


@dataclass(frozen=True, slots=True)
class WrongTransaction:
    """A wrong transaction; its END landed in ``batch``, which is `GONE` if no longer in the log.

    ``seen`` is the newest batch when the loss was found: a base that begins later has its events.
    """

    id: str
    expected: int
    landed: int
    batch: int
    seen: int

    def dumps(self) -> list[Any]:
        """Return JSON values for the memory of the check."""
        return [self.id, self.expected, self.landed, self.batch, self.seen]


def _is_below(table: Table, bases: Mapping[str, ShardBase], batch: int) -> bool:
    """Whether each shard of *table* has a base that began after *batch* had landed."""
    known = [bases.get(str(shard)) for shard in table.shards]
    # partitions are not listed at one instant: a base may land a batch after it was read
    return bool(known) and all(base and base.since > batch + 1 for base in known)


@dataclass(frozen=True, slots=True)
class DroppedBatches:
    """Number of batches that the log dropped before their ENDs were judged, and the newest."""

    number: int = 0
    until: int = GONE

    def with_more(self, after: int, dropped: int) -> "DroppedBatches":
        """Add the batches above *after* up to *dropped*, the newest dropped batch."""
        first = max(after, self.until)
        if dropped <= first:
            return self
        return DroppedBatches(self.number + dropped - first, dropped)


@dataclass(frozen=True, slots=True)
class Promises:
    """The count of the transactions whose END landed in batches up to ``until`` (included).

    ``counted`` are the minutes of transactions that no earlier reading had.  ``advice`` says how to
    end losses that cannot be counted again; empty if all can.  ``unjudged`` says why some ENDs are
    not judged; empty if all are.
    """

    as_of: tuple[Fence, ...]
    until: int
    tally: EventCount
    ended: datetime | None = None
    counted: tuple[LedgerEntry, ...] = ()
    advice: str = ""
    unjudged: str = ""
    suspicious: bool = False
    """Whether the next part can be judged at once."""

    @property
    def value(self) -> float:
        """Number of events that were promised and have not landed; negative if too many landed."""
        wrong = (*self.tally.short, *self.tally.over)
        return float(sum((expected_events(each) or 0) - each.landed for each in wrong))


@dataclass(frozen=True, slots=True)
class Completeness:
    """Fail when a transaction has fewer or more events in the change log than it promised."""

    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position, and for the END of changes; after
    that it is UNKNOWN."""
    limit: Span = timedelta(seconds=20)
    every: ClassVar[timedelta] = timedelta(seconds=30)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST
    whole: ClassVar[bool] = True

    def measure(self, table: Table, world: World) -> Promises | NotYet | Undecided:
        """Judge the ENDs that had landed in the last round, and count earlier losses again."""
        memory = world.recall(table, NAME)
        if memory is None:
            _begin(table, world)
            return NotYet("waiting for the first transactions to settle")
        fences = await_fences(table, world, datetime.fromisoformat(memory["ended"]), self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        count = _count_since(table, world, memory)
        ended, found = world.clock(), count.tally
        shown = _describe_newest(found, table, world, memory, count.until)
        is_told = shown == ENDED  # else there is no ruling, so nothing is waited for
        unended = _find_unended(table, world, memory, count, ended) if is_told else {}
        count.remember(table, world, memory, shown=shown, unended=unended)
        if shown == UNREPORTED:
            return Undecided("unsupported", "its changes name no transaction: none can be counted")
        unjudged = _describe_dropped(table, count.dropped)
        if not shown and not unjudged:
            return NotYet("no transaction has ended yet")
        waits = _describe_unended(unended)
        if has_waited := _is_over(unended, ended, self.patience):
            unjudged = unjudged or waits
        if waits and not has_waited and not unjudged and found == EventCount():
            return NotYet(waits)
        counted, advice = count_minutes(count.new, ended), _advise(table, count.lost)
        left = count.describe_left(memory["until"])
        why = unjudged or left
        return Promises(fences, count.until, found, ended, counted, advice, why, bool(left))

    def judge(self, reading: Promises, past: Sequence[float]) -> Ruling:
        """Rule on the count; *past* is not used."""
        found = reading.tally
        wrong = (*found.short, *found.over)
        if wrong:
            code = "missing_events" if found.short else "extra_events"
            keys = tuple(each.id for each in wrong[:MOST_KEYS])
            reason = f"{len(wrong)} transactions: {_describe_count(wrong[0])}{reading.advice}"
            return Ruling(Outcome.FAIL, reason, code, keys, len(wrong[MOST_KEYS:]))
        if reading.unjudged:
            return Ruling(Outcome.UNKNOWN, reading.unjudged, "behind")
        if found.undecided and not found.complete:
            why = f"{found.undecided} transactions restarted at an unknown event"
            return Ruling(Outcome.UNKNOWN, why, "begun_again")
        reason = f"{found.complete} transactions complete up to batch {reading.until}"
        return Ruling(Outcome.PASS, reason)


@dataclass(frozen=True, slots=True)
class SettledCount:
    """The result for the transactions since the last judgement, and for those wrong before.

    ``new`` are transactions that no earlier count had, up to batch ``until``.
    ``wrong`` are the batches to count again next time. ``rest`` is a range (low, high] with more of
    them, which are counted again when enough of the older ones are complete.
    ``lost`` are the wrong transactions to store.  ``dropped`` are batches that were never judged
    and that no newer base makes good.
    """

    new: Sequence[Transaction]
    until: int
    tally: EventCount
    wrong: Sequence[int]
    rest: Sequence[int]
    lost: Sequence[WrongTransaction]
    dropped: DroppedBatches

    def remember(
        self,
        table: Table,
        world: World,
        before: Mapping[str, Any],
        *,
        shown: str,
        unended: Mapping[str, str],
    ) -> None:
        """Store it; the range to judge stays that of *before* until all of it is judged."""
        memory = {"wrong": self.wrong, "rest": self.rest, "told": shown, "after": self.until}
        if unended:
            memory["unended"] = unended
        if self.dropped.number:
            memory["dropped"] = [self.dropped.number, self.dropped.until]
        _remember(table, world, memory, self.lost, before if self.until < before["until"] else None)

    def describe_left(self, until: int) -> str:
        """Describe which batches up to *until* are not judged yet; empty if all are."""
        if self.until < until:
            return f"transactions are judged up to batch {self.until}, not yet up to {until}"
        if self.rest and not self.wrong:
            low, high = self.rest
            return f"transactions of batches {low + 1} to {high} are not yet counted again"
        return ""


def _count_since(table: Table, world: World, memory: Mapping[str, Any]) -> SettledCount:
    """Count the transactions since the last judgement, and those of the batches wrong before."""
    log, bases = world.log(), world.bases(table)
    rest = _clip_span(memory.get("rest") or [], log.dropped)
    spans = [(end - 1, end) for end in memory["wrong"] if end > log.dropped]
    counted = [each for span in spans for each in log.transactions(table, *span, bases)]
    if rest and len(_wrong(count_events(counted))) < MOST_WRONG:
        spans.append((rest[0], _limit_span(log, rest[0], rest[1])))
        counted += log.transactions(table, *spans[-1], bases)
        rest = _clip_span(rest, spans[-1][1])
    after = max(memory["after"], log.dropped)
    until = _limit_span(log, after, memory["until"])
    new = log.transactions(table, after, until, bases) if after < until else ()
    found = count_events((*counted, *new))
    wrong = _wrong(found)
    if more := wrong[MOST_WRONG:]:
        rest = [min([*rest[:1], more[0] - 1]), max([*rest[1:], more[-1]])]
    known, every = _load_lost(memory), (*counted, *new)
    stated = {each.id: expected_events(each) for each in every}
    if memory.get("bases") != dump_parts(base_orders(table, world)):
        stated |= {one.id: None for one in known if one.id not in stated}  # bases are above these
    kept = [*_find_uncounted(known, spans, stated, log.dropped)]
    left = [one for one in kept if one.batch != GONE]
    gone = [
        one
        for one in kept
        if one.batch == GONE
        and stated.get(one.id) is None
        and not _is_below(table, bases, one.seen)
    ]
    lost = (*gone, *left, *_find_lost(found, known, world.landed_batch()))
    short = (*(_spell_gone(one) for one in gone if one.landed < one.expected), *found.short)
    over = (*(_spell_gone(one) for one in gone if one.landed > one.expected), *found.over)
    found = replace(found, short=short, over=over)
    dropped = _load_dropped(memory).with_more(memory["after"], log.dropped)
    if _is_below(table, bases, dropped.until):
        dropped = DroppedBatches(until=dropped.until)
    return SettledCount(new, until, found, wrong[:MOST_WRONG], rest, lost, dropped)


def _limit_span(log: LogReader, after: int, until: int) -> int:
    """Return the newest batch, at most *until*, up to which one round judges all above *after*."""
    until = min(until, after + MOST_BATCHES)
    return log.limit_ends(after, until, MOST_ENDS) if until > after + 1 else until


def _find_uncounted(
    known: Iterable[WrongTransaction],
    spans: Collection[tuple[int, int]],
    stated: Container[str],
    dropped: int,
) -> Iterator[WrongTransaction]:
    """Yield those of *known* that were not counted again.

    *spans* were counted, and *stated* has the ids found there. A transaction is `GONE` if it was
    not found, or if its batch is not above *dropped*.
    """
    for one in known:
        counted = any(low < one.batch <= high for low, high in spans)
        if one.batch <= dropped or (counted and one.id not in stated):
            yield replace(one, batch=GONE)
        elif not counted:
            yield one


def _spell_gone(one: WrongTransaction) -> Transaction:
    return Transaction(one.id, one.expected, one.landed, one.batch)


def _find_lost(
    found: EventCount, known: Iterable[WrongTransaction], newest: int
) -> Iterator[WrongTransaction]:
    """Yield the wrong transactions of *found*, by batch; unless *known*, they are found now."""
    seen = {(one.id, one.batch): one.seen for one in known}
    for each in sorted((*found.short, *found.over), key=lambda each: each.end_batch):
        batch = each.end_batch
        expected, since = expected_events(each) or 0, seen.get((each.id, batch), newest)
        yield WrongTransaction(each.id, expected, each.landed, batch, since)


def _load_dropped(memory: Mapping[str, Any]) -> DroppedBatches:
    return DroppedBatches(*memory.get("dropped", ()))


def _describe_dropped(table: Table, dropped: DroppedBatches) -> str:
    if not dropped.number:
        return ""
    what = f"the change log dropped {dropped.number} batches, the newest {dropped.until}"
    fix = f"sluice bootstrap {quote(table.name)} --reason ..."
    return f"{what}, before the transactions that ended in them were counted; run `{fix}`"


def _advise(table: Table, lost: Iterable[WrongTransaction]) -> str:
    gone = sum(one.batch == GONE for one in lost)
    if not gone:
        return ""
    why = f"the change log no longer has {gone} of them, so they cannot be counted again"
    fix = f"sluice bootstrap {quote(table.name)} --reason ..."
    return f"; {why}; run `{fix}`, or waive them"


def _clip_span(span: Sequence[int], dropped: int, until: int | None = None) -> list[int]:
    """Return the part of batches ``(low, high]`` above *dropped*, up to *until*; may be empty."""
    if not span:
        return []
    low, high = max(span[0], dropped), span[1] if until is None else min(span[1], until)
    return [low, high] if low < high else []


def _wrong(found: EventCount) -> list[int]:
    return sorted({each.end_batch for each in (*found.short, *found.over)})


def _describe_newest(
    found: EventCount, table: Table, world: World, memory: Mapping[str, Any], until: int
) -> str:
    """Return whether newer batches, up to *until*, have transactions; as before without changes."""
    if found != EventCount():
        return ENDED
    if world.log().changes_without_transaction(table, memory["after"], until):
        return UNREPORTED
    return str(memory["told"])


def _find_unended(
    table: Table, world: World, memory: Mapping[str, Any], count: SettledCount, now: datetime
) -> dict[str, str]:
    """Return sources whose changes name transactions without an END, and since when.

    An END of the source, of any transaction, ends this state. So does one that has landed but is
    not judged yet. A new state begins *now*: after a pause, the judged batches are old.
    """
    if count.new and len(table.sources) == 1:
        return {}
    known, log = memory.get("unended", {}), world.log()
    after = max(memory["after"], log.dropped)
    newest = max(count.until, min(log.batch, count.until + MOST_BATCHES))
    silent = {*table.sources} - log.ended_sources(after, newest)
    found = {source: since for source, since in known.items() if source in silent}
    if silent - found.keys():
        back = max(after - END_BACK, log.dropped)
        fresh = log.unended_sources(table, after, count.until, back) & silent
        found |= dict.fromkeys(sorted(fresh - found.keys()), now.isoformat())
    return found


def _is_over(unended: Mapping[str, str], now: datetime, patience: timedelta) -> bool:
    return any(now - datetime.fromisoformat(since) > patience for since in unended.values())


def _describe_unended(unended: Mapping[str, str]) -> str:
    if not unended:
        return ""
    source = min(unended, key=lambda one: unended[one])
    since = datetime.fromisoformat(unended[source])
    return (
        f"since {since:%Y-%m-%d %H:%M:%S %Z}, changes of source {source} name transactions, and no"
        " END has landed: one still runs, or ENDs are no longer sent"
    )


def _begin(table: Table, world: World) -> None:
    """Begin with the newest batch, or continue from where the change log was set back.

    Later batches have new content, so they are judged again.  Losses that were found in them stay,
    unless their END lands again.
    """
    newest, known = world.landed_batch(), world.recall(table, NAME, lasting=True)
    if known is None:
        _remember(table, world, {"wrong": [], "rest": [], "told": "", "after": newest - 1}, ())
        return
    same = _last_common_batch(world, known)
    wrong = [batch for batch in known["wrong"] if batch <= same]
    rest = _clip_span(known.get("rest") or [], GONE, same)
    memory = {"wrong": wrong, "rest": rest, "told": known["told"]}
    if number := _load_dropped(known).number:
        memory["dropped"] = [number, newest]
    lost = [
        replace(one, batch=one.batch if one.batch <= same else GONE, seen=newest)
        for one in _load_lost(known)
    ]
    _remember(table, world, {**memory, "after": min(known["after"], same)}, lost)


def _last_common_batch(world: World, known: Mapping[str, Any]) -> int:
    """Return the newest batch that the change log had then and still has unchanged."""
    then: int | None = known.get("incarnation")
    batch: int = min(known["until"], world.landed_batch())
    last = max(batch - MOST_AGAIN, GONE)
    while batch > last and then is not None and (world.incarnation(batch) or 0) > then:
        batch -= 1
    return batch


def _load_lost(memory: Mapping[str, Any]) -> list[WrongTransaction]:
    """Return the lost transactions of *memory*; earlier versions stored none."""
    return [WrongTransaction(*one) for one in memory.get("lost", ())]


def _remember(
    table: Table,
    world: World,
    memory: Mapping[str, Any],
    lost: Sequence[WrongTransaction],
    before: Mapping[str, Any] | None = None,
) -> None:
    """Store *memory* with the range to judge next: all that has landed, or that of *before*."""
    more = dict[str, Any]()
    if lost:
        more["lost"] = [one.dumps() for one in lost[:MOST_LOST]]
        more["bases"] = dump_parts(base_orders(table, world))
    if before is None:
        until, ended = world.landed_batch(), world.clock().isoformat()
        before = {"until": until, "incarnation": world.incarnation(until), "ended": ended}
    more |= {one: before.get(one) for one in ("until", "incarnation", "ended")}
    world.remember(table, NAME, {**memory, **more})


def _describe_count(each: Transaction) -> str:
    return f"{each.id} promised {expected_events(each)} events, {each.landed} landed"


PROBE: type[Probe[Promises]] = Completeness
