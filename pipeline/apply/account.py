"""Builds the account of a merge: exactly one term explains each change read.

Each term is counted by its own expression, so that an error shows as a residual. A merge with a
residual is not committed unless it is waived. A MERGE by Spark is compared with the counts in
its own Delta commit afterwards.

Stored accounts add up to where each change that was read is: in the main table or in the error
table. A corrected message was read twice and is no longer in the error table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.apply.mirror import Commit
from pipeline.model import Account
from pipeline.reports import Hold


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Counts of one slice before the MERGE, each from its own expression.

    ``read`` counts all rows, ``rows`` those with a key that may change the mirror. ``kept`` counts
    the newest of each key, ``distinct`` the changes left when repetitions are dropped. ``ordered``
    counts truncates and settles, which have no key. ``tombstones`` and ``quarantined`` are counted
    by their ops, ``corrected`` are messages that were quarantined before.
    """

    read: int
    rows: int
    kept: int
    distinct: int
    ordered: int
    tombstones: int
    quarantined: int
    corrected: int = 0


def balance_account(
    counted: ChangeCounts, applied: int, noop: int, again: int = 0, archived: int = 0
) -> Account:
    """The account of one slice; its residual is 0 when each change is explained exactly once.

    *applied* comes from the mirror's own commit. *noop*, *again* and *archived* come from a
    comparison with the mirror before it. *again*: the mirror has the row at the same order.
    *archived*: deletes whose rows stay.
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


def find_unexplained(table: str, batch: int, account: Account) -> Hold | None:
    """The hold of a table whose *account* does not balance; a retry would hide the error."""
    if not account.residual:
        return None
    name = f"account:{table}:{batch}"
    detail = (
        f"{account.residual} of {account.read} changes up to batch {batch} are unexplained: "
        f"{account}; the change log still holds them: report this and rebuild the mirror, "
        f"or waive {name}"
    )
    return Hold(name, table, "account", detail)


def find_miscount(table: str, commit: Commit) -> Hold | None:
    """The hold of a table if the counts in its Delta log differ from those of the merge."""
    wanted = commit.own.get("counts") or {}
    metrics = {name: commit.metrics.get(name) for name in wanted}
    if metrics == {name: str(count) for name, count in wanted.items()}:
        return None
    name = f"account:{table}:{commit.own['batch']}"
    detail = (
        f"version {commit.version} was to change {wanted}, but its log counts {metrics}; "
        f"report this and rebuild the mirror, or waive {name}"
    )
    return Hold(name, table, "account", detail)


@dataclass(frozen=True, slots=True)
class MainAndError:
    """How many of a table's read changes are in its mirror, and how many in the error table.

    ``main`` counts changes that the mirror has accounted for, ``error`` those still quarantined.
    """

    read: int
    main: int
    error: int

    @property
    def lost(self) -> int:
        """Changes that are in neither; it must be 0."""
        return self.read - self.main - self.error


def main_and_error(totals: Mapping[str, int]) -> MainAndError:
    """Add up accounts; *totals* are their terms by name (also ``ignored:`` and its rule).

    A corrected message was read twice, and is no longer in the error table.
    """
    corrected = totals.get("corrected", 0)
    explained = ("applied", "noop", "superseded", "redelivered")
    ignored = sum(count for term, count in totals.items() if term.startswith("ignored:"))
    return MainAndError(
        read=totals.get("read", 0) - corrected,
        main=sum(totals.get(term, 0) for term in explained) + ignored,
        error=totals.get("quarantined", 0) - corrected,
    )
