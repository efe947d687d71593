"""Did all events arrive that the collector says it sent?  By counting; pure.

Cannot see what the collector never sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from checks.world import Transaction


@dataclass(frozen=True, slots=True)
class Tally:
    """Transactions by what became of them; ``undecided`` were begun again nobody knows where."""

    complete: int = 0
    short: tuple[Transaction, ...] = ()
    over: tuple[Transaction, ...] = ()
    undecided: int = 0


def expected(transaction: Transaction) -> int | None:
    """Events it has in truth; None if it was begun again and where is not known.

    Each run before the last counts up to the event the next one began with:
    ``total_order`` of that event in the older run - 1, and END states the last run.
    """
    if len(transaction.resumed) != transaction.begun - 1:
        return None
    return transaction.promised + sum(first - 1 for first in transaction.resumed)


def tally(transactions: Iterable[Transaction]) -> Tally:
    """Compare promise and landing of each, both ways."""
    complete, undecided = 0, 0
    short: list[Transaction] = []
    over: list[Transaction] = []
    for each in transactions:
        truth = expected(each)
        if truth is None:
            undecided += 1
        elif each.landed == truth:
            complete += 1
        else:
            (short if each.landed < truth else over).append(each)
    return Tally(complete, tuple(short), tuple(over), undecided)
