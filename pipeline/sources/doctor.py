"""Builds the findings that the doctors of all databases have in common.

A rule about a table returns `TableFinding`s. `find_in_tables` runs the rules on every shard and
joins equal findings of the shards of one table. `SHARD` in a fix is replaced with the name of the
first shard.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from pipeline.finding import NOTE, REFUSE, WARN, Finding, FindingSeverity
from pipeline.model import Shard
from pipeline.row_digest import Form
from pipeline.schema.model import Column
from pipeline.sources.source import FoldedTable

SHARD = "<shard>"
"""Placeholder in a fix for the shard that needs it."""

NOT_COMPARED = "none: these columns are mirrored, but not compared"

TableFinding = tuple[FindingSeverity, str, str, str]
"""Severity, code, what and fix of a finding about one shard."""


class DescribedTable(Protocol):
    """The common part of the table descriptions of all databases."""

    @property
    def shard(self) -> Shard:
        """The shard that is described."""
        ...


Described = TypeVar("Described", bound=DescribedTable)


def find_in_tables(
    shards: Iterable[Described],
    fold: Callable[[str], FoldedTable | None],
    rules: Callable[[Described, FoldedTable], Iterable[TableFinding]],
) -> list[Finding]:
    """Run *rules* on *shards*; equal findings of the shards of one table become one.

    *fold* returns None for a shard that the config ignores.
    """
    names: dict[tuple[str, TableFinding], list[str]] = defaultdict(list)
    for one in shards:
        if (into := fold(one.shard.name)) is not None:
            for found in rules(one, into):
                names[into.table, found].append(one.shard.name)
    return [
        Finding(severity, code, f"table {table}", _prefix(own, table) + what, _for_shards(fix, own))
        for (table, (severity, code, what, fix)), own in names.items()
    ]


def check_key(
    key: Sequence[str],
    unique: Sequence[Sequence[str]],
    not_null: Collection[str],
    *,
    topic_keys: bool,
) -> list[TableFinding]:
    """Check the *key* in the config, or if it is empty, that the table has one.

    *unique* are the sets of columns that identify a row.  *topic_keys*: the connector sets its own
    keys, so a table without a key may have one in its topic.
    """
    if key:
        return _check_named_key(key, unique, not_null)
    if unique or topic_keys:
        return []
    what = "no primary key and no unique, not-null index: landed, but its mirror is HELD(no_key)"
    fix = (
        f"ALTER TABLE {SHARD} ADD PRIMARY KEY (...), or name a unique, not-null set"
        " of columns as key: under tables"
    )
    return [(WARN, "no_key", what, fix)]


def _check_named_key(
    key: Sequence[str], unique: Sequence[Sequence[str]], not_null: Collection[str]
) -> list[TableFinding]:
    columns = ", ".join(key)
    if wrong := [name for name in key if name not in not_null]:
        what = f"key: names {', '.join(wrong)}, which the table does not have or which may be NULL"
        return [(REFUSE, "key", what, "name columns that are NOT NULL as key: under tables")]
    if any(set(one) <= set(key) for one in unique):
        return []
    what = f"key: {columns} is not a unique index: of two rows with equal keys, one would be lost"
    return [(WARN, "key", what, f"ALTER TABLE {SHARD} ADD UNIQUE ({columns})")]


def report_unverifiable(reasons: Sequence[str], fix: str = NOT_COMPARED) -> list[TableFinding]:
    """Report the columns that cannot be compared, each with its reason."""
    if not reasons:
        return []
    return [(NOTE, "unverifiable", f"not verifiable: {'; '.join(reasons)}", fix)]


def report_uncompared(columns: Iterable[Column], verifiable: Collection[str]) -> list[TableFinding]:
    """Report the *verifiable* columns that the probe `values` omits, each with its reason."""
    reasons = [
        f"{one.name}: {why}"
        for one in columns
        if one.name in verifiable and not isinstance(why := one.dialect.digest_form(one), Form)
    ]
    if not reasons:
        return []
    return [(NOTE, "uncompared", f"not compared by `values`: {'; '.join(reasons)}", NOT_COMPARED)]


def check_clock(ahead: timedelta, where: str, limit: timedelta) -> list[Finding]:
    """Report a server's clock that is *ahead* of Sluice's, or behind it, by more than *limit*."""
    if abs(ahead) <= limit:
        return []
    way = "ahead of" if ahead > timedelta() else "behind"
    what = (
        f"its clock is {abs(ahead).total_seconds():.0f} s {way} Sluice's,"
        f" more than readiness.clock_skew ({limit.total_seconds():.0f} s): no cut can be proven"
    )
    fix = "synchronize both clocks with one time server (chronyc tracking shows which one is wrong)"
    return [Finding(WARN, "clock", where, what, fix)]


def name_few(names: Sequence[str]) -> str:
    """The first three of *names*, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _for_shards(fix: str, names: Sequence[str]) -> str:
    more = f" (and the same for {len(names) - 1} more)" if len(names) > 1 and SHARD in fix else ""
    return fix.replace(SHARD, names[0]) + more


def _prefix(names: Sequence[str], table: str) -> str:
    """Name the shards, unless the table is its only shard."""
    return "" if list(names) == [table] else f"{name_few(names)}: "
