"""Checks that every event landed that the collector counted in its END messages.

An END is judged only after the mirror has passed the moment at which it was seen landed. By
then every event of its transaction has landed, in any order of reading the topics. A collector
that reports no transactions promises nothing, so there is no ruling before a transaction was
seen to end. A loss below the newest base of its shard no longer counts once the mirror has that
base.

Cannot see: changes that the collector never sent, and truncates and XA rows, which carry no
transaction. Cannot decide: transactions that restarted at an event that the log does not show.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from checks.counting import await_fences
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
from checks.world import Transaction, World
from pipeline.model import Fence, Table


@dataclass(frozen=True, slots=True)
class EventCount:
    """Transactions by what became of them; ``undecided`` restarted at an unknown event."""

    complete: int = 0
    short: tuple[Transaction, ...] = ()
    over: tuple[Transaction, ...] = ()
    undecided: int = 0


def expected_events(transaction: Transaction) -> int | None:
    """Events it has in truth; None if it was begun again and where is not known.

    Each run before the last counts up to the event the next one began with:
    ``total_order`` of that event in the older run - 1, and END states the last run.
    """
    if len(transaction.resumed) != transaction.begun - 1:
        return None
    return transaction.promised + sum(first - 1 for first in transaction.resumed)


def count_events(transactions: Iterable[Transaction]) -> EventCount:
    """Compare promise and landing of each, both ways."""
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


MOST_EVENTS = 2**40  # of a transaction; an END that announces more is garbled


def count_minutes(transactions: Iterable[Transaction], found: datetime) -> tuple[LedgerEntry, ...]:
    """Return what was announced and what landed, by the minute of END; *found* now.

    One that began again is counted over all its tables, so its minute is unknown. So is that of an
    END whose count no transaction can have.
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
ENDED, UNREPORTED = "ended", "untold"  # what was seen last of a table's transactions
MOST_WRONG = 100  # batches with wrong transactions that are counted again, the oldest


@dataclass(frozen=True, slots=True)
class Promises:
    """The tally of the transactions whose END landed in batches up to ``until`` (included).

    ``counted`` are the minutes of those that no reading before had.
    """

    as_of: tuple[Fence, ...]
    until: int
    tally: EventCount
    ended: datetime | None = None
    counted: tuple[LedgerEntry, ...] = ()

    @property
    def value(self) -> float:
        """Events promised and not landed; negative if more landed than were promised."""
        wrong = (*self.tally.short, *self.tally.over)
        return float(sum((expected_events(each) or 0) - each.landed for each in wrong))


@dataclass(frozen=True, slots=True)
class Completeness:
    """Fail when a transaction has fewer or more events in the change log than it promised."""

    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=20)
    every: ClassVar[timedelta] = timedelta(seconds=30)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST
    whole: ClassVar[bool] = True

    def measure(self, table: Table, world: World) -> Promises | NotYet | Undecided:
        """Judge what had landed when last looked; what was wrong before is counted again."""
        memory = world.recall(table, NAME)
        if memory is None:
            newest = world.landed_batch()
            _remember(table, world, after=newest - 1, until=newest)
            return NotYet("waiting for the first transactions to settle")
        fences = await_fences(table, world, datetime.fromisoformat(memory["ended"]), self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        new, found, wrong, rest = _count_since(table, world, memory)
        ended = world.clock()
        until, shown = memory["until"], _describe_newest(found, table, world, memory)
        landed = world.landed_batch()
        _remember(table, world, after=until, until=landed, wrong=(wrong, rest), shown=shown)
        if shown == UNREPORTED:
            return Undecided("unsupported", "its changes name no transaction: none can be counted")
        return (
            Promises(fences, until, found, ended, count_minutes(new, ended))
            if shown
            else NotYet("no transaction has ended yet")
        )

    def judge(self, reading: Promises, past: Sequence[float]) -> Ruling:
        """Rule on the tally; history plays no part."""
        found = reading.tally
        wrong = (*found.short, *found.over)
        if wrong:
            code = "missing_events" if found.short else "extra_events"
            keys = tuple(each.id for each in wrong[:MOST_KEYS])
            reason = f"{len(wrong)} transactions: {_describe_count(wrong[0])}"
            return Ruling(Outcome.FAIL, reason, code, keys)
        if found.undecided and not found.complete:
            why = f"{found.undecided} transactions restarted at an unknown event"
            return Ruling(Outcome.UNKNOWN, why, "begun_again")
        reason = f"{found.complete} transactions complete up to batch {reading.until}"
        return Ruling(Outcome.PASS, reason)


def _count_since(
    table: Table, world: World, memory: Mapping[str, Any]
) -> tuple[Sequence[Transaction], EventCount, list[int], list[int]]:
    """Those since the last judgement, and with them those of the batches that were wrong before.

    With which batches are wrong, and between which two there are more of those: they are counted
    again when enough of the older ones are good.
    """
    log, bases = world.log(), world.bases(table)
    rest: list[int] = memory.get("rest") or []
    spans = [(end - 1, end) for end in memory["wrong"]]
    counted = [each for span in spans for each in log.transactions(table, *span, bases)]
    if rest and len(_wrong(count_events(counted))) < MOST_WRONG:
        counted += log.transactions(table, rest[0], rest[1], bases)
        rest = []
    new = log.transactions(table, memory["after"], memory["until"], bases)
    found = count_events((*counted, *new))
    wrong = _wrong(found)
    if more := wrong[MOST_WRONG:]:
        rest = [rest[0] if rest else more[0] - 1, more[-1]]
    return new, found, wrong[:MOST_WRONG], rest


def _wrong(found: EventCount) -> list[int]:
    return sorted({each.end_batch for each in (*found.short, *found.over)})


def _describe_newest(
    found: EventCount, table: Table, world: World, memory: Mapping[str, Any]
) -> str:
    """What the newest batches show of transactions; as before where they hold no change."""
    if found != EventCount():
        return ENDED
    if world.log().changes_without_transaction(table, memory["after"], memory["until"]):
        return UNREPORTED
    return str(memory["told"])


def _remember(
    table: Table,
    world: World,
    *,
    after: int,
    until: int,
    wrong: tuple[Sequence[int], Sequence[int]] = ((), ()),
    shown: str = "",
) -> None:
    memory = {
        "told": shown,
        "after": after,
        "until": until,
        "wrong": list(wrong[0]),
        "rest": list(wrong[1]),
        "ended": world.clock().isoformat(),
    }
    world.remember(table, NAME, memory)


def _describe_count(each: Transaction) -> str:
    return f"{each.id} promised {expected_events(each)} events, {each.landed} landed"


PROBE: type[Probe[Promises]] = Completeness
