"""Every change read is explained by exactly one term, and each term is counted on its own.

Pure.
"""

from dataclasses import dataclass

from pipeline.apply.commits import Commit
from pipeline.model import Account
from pipeline.reports import Hold


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one slice before the MERGE, each from its own expression.

    ``read`` all rows; ``rows`` those with a key that may change the mirror; ``kept`` the newest of
    each key; ``distinct`` the changes left when repetitions are dropped; ``ordered`` truncates
    and settles, which act by themselves; ``tombstones`` and ``quarantined`` by their ops;
    ``corrected`` messages that were quarantined before.
    """

    read: int
    rows: int
    kept: int
    distinct: int
    ordered: int
    tombstones: int
    quarantined: int
    corrected: int = 0


def balance(
    counted: Counted, applied: int, noop: int, again: int = 0, archived: int = 0
) -> Account:
    """The account of one slice; its residual is 0 when each change is explained exactly once.

    *applied* comes from the mirror's own commit; *noop* and *again* (rows that equal, by order,
    what the mirror already had) from comparing with the mirror before it, as *archived*: deletes
    whose rows stay.
    """
    return Account(
        read=counted.read,
        applied=applied + counted.ordered,
        noop=noop,
        superseded=counted.distinct - counted.kept,
        redelivered=counted.rows - counted.distinct + again,
        quarantined=counted.quarantined,
        ignored={
            "tombstone": counted.tombstones,
            **({"archived": archived} if archived else {}),
        },
        corrected=counted.corrected,
    )


def unexplained(table: str, batch: int, account: Account) -> Hold | None:
    """The hold of a table whose *account* does not balance.  Trying again would hide it."""
    if not account.residual:
        return None
    name = f"account:{table}:{batch}"
    detail = (
        f"{account.residual} of {account.read} changes up to batch {batch} are unexplained: "
        f"{account}; the change log still holds them: report this and rebuild the mirror, "
        f"or waive {name}"
    )
    return Hold(name, table, "account", detail)


def miscounted(table: str, commit: Commit) -> Hold | None:
    """The hold of a table in whose log Spark counted otherwise than the turn before its MERGE."""
    wanted = commit.own.get("counts") or {}
    told = {name: commit.metrics.get(name) for name in wanted}
    if told == {name: str(count) for name, count in wanted.items()}:
        return None
    name = f"account:{table}:{commit.own['batch']}"
    detail = (
        f"version {commit.version} was to change {wanted}, but its log counts {told}; "
        f"report this and rebuild the mirror, or waive {name}"
    )
    return Hold(name, table, "account", detail)
