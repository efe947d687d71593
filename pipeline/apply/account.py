"""Every change read is explained by exactly one term, and each term is counted on its own."""

from dataclasses import dataclass

from pipeline.errors import HeldError
from pipeline.model import Account


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one slice before the MERGE, each from its own expression.

    ``read`` all rows; ``rows`` those with a key that may change the mirror; ``kept`` the newest of
    each key; ``distinct`` the changes left when repetitions are dropped; ``ordered`` truncates
    and settles, which act by themselves; ``tombstones`` and ``quarantined`` by their ops.
    """

    read: int
    rows: int
    kept: int
    distinct: int
    ordered: int
    tombstones: int
    quarantined: int


def balance(counted: Counted, applied: int, noop: int, again: int = 0) -> Account:
    """The account of one slice.

    *applied* comes from the mirror's own commit; *noop* and *again* (rows that equal, by order,
    what the mirror already had) from comparing with the mirror before it.

    Raises:
        HeldError: a change is unexplained, or explained twice; the table must stand still.
    """
    account = Account(
        read=counted.read,
        applied=applied + counted.ordered,
        noop=noop,
        superseded=counted.distinct - counted.kept,
        redelivered=counted.rows - counted.distinct + again,
        quarantined=counted.quarantined,
        ignored={"tombstone": counted.tombstones},
    )
    if account.residual:
        raise HeldError(
            "account",
            f"{account.residual} of {account.read} changes are unexplained: {account}; "
            f"nothing is lost, the change log still holds them: report this with the account",
        )
    return account
