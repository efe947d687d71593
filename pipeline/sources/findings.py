"""What does the doctor say of any source's tables and clock?  Its kind finds, this tells.  Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from pipeline.finding import REFUSE, WARN, Finding, FindingSeverity

SHARD = "<shard>"  # stands in a fix until all shards that need it are known

Told = tuple[FindingSeverity, str, str, str]  # severity, code, what, fix


def of_tables(told: Iterable[tuple[str, str, Told]]) -> list[Finding]:
    """Findings of (table, shard, what was found); what shards of one table share is told once."""
    names: dict[tuple[str, Told], list[str]] = defaultdict(list)
    for table, shard, one in told:
        names[table, one].append(shard)
    return [
        Finding(
            severity, code, f"table {table}", f"{_few(shards, table)}{what}", _spelled(fix, shards)
        )
        for (table, (severity, code, what, fix)), shards in names.items()
    ]


def no_key() -> list[Told]:
    """Of a table without a key, if no rule names one."""
    what = "no primary key and no unique, not-null index: landed, but its mirror is HELD(no_key)"
    fix = (
        f"ALTER TABLE {SHARD} ADD PRIMARY KEY (...), or name a unique, not-null set"
        " of columns as key: under tables"
    )
    return [(WARN, "no_key", what, fix)]


def of_named_key(
    key: Sequence[str], not_null: Collection[str], unique: Iterable[Sequence[str]]
) -> list[Told]:
    """Of a *key* that a rule names: all of *not_null*, and some *unique* index within it."""
    wrong = [name for name in key if name not in not_null]
    if wrong:
        what = f"key: names {', '.join(wrong)}, which is no column of it or may be NULL"
        return [(REFUSE, "key", what, "name columns that are NOT NULL as key: under tables")]
    if any(set(one) <= set(key) for one in unique):
        return []
    what = f"key: {', '.join(key)} is no unique index, so two rows may share it: one would be lost"
    return [(WARN, "key", what, f"ALTER TABLE {SHARD} ADD UNIQUE ({', '.join(key)})")]


def of_clock(ahead: timedelta, where: str, limit: timedelta) -> list[Finding]:
    """Of a server's clock that is *ahead* of ours, or behind it, by more than *limit*."""
    if abs(ahead) <= limit:
        return []
    way = "ahead of" if ahead > timedelta() else "behind"
    what = (
        f"its clock is {abs(ahead).total_seconds():.0f} s {way} ours,"
        f" more than readiness.clock_skew ({limit.total_seconds():.0f} s): no cut can be proven"
    )
    fix = "set both clocks by one time server (chronyc tracking tells which one is wrong)"
    return [Finding(WARN, "clock", where, what, fix)]


def _spelled(fix: str, names: Sequence[str]) -> str:
    more = f" (and the same for {len(names) - 1} more)" if len(names) > 1 and SHARD in fix else ""
    return fix.replace(SHARD, names[0]) + more


def _few(names: Sequence[str], table: str) -> str:
    """Name the shards, unless the table is its only shard."""
    if list(names) == [table]:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: "
