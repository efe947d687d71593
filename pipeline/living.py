"""Which shards are there, and for which table?  What is dropped or ignored is retired.

A retired table blocks nothing and keeps its mirror; it is back as soon as it is created again, or
no longer ignored.
"""

from collections.abc import Mapping

from pipeline.mark import Mark
from pipeline.model import Order, Shard
from pipeline.route import Router


def is_there(mark: Mark, name: str) -> bool:
    """Whether no schema change says that the shard *name* (``source/db.table``) is gone."""
    told = mark.existing.get(name)
    return told is None or told.there


def is_outdated(mark: Mark, name: str, order: Order) -> bool:
    """Whether a statement about the shard *name* has landed that is newer than *order*.

    A row that comes so late is in no mirror that the statement has met.
    """
    known, told = mark.existing.get(name), mark.schemas.get(name)
    if known is None or known.order <= order:
        return False
    return told is None or told.order != known.order  # else rows told the columns that it has, too


def living_shards(mark: Mark, router: Router) -> Mapping[str, str]:
    """``source/shard`` -> table, of the shards that are there and that no rule ignores."""
    return {
        name: table
        for name, table in mark.shards.items()
        if table is not None and is_there(mark, name) and router.table(Shard.parse(name).name)
    }


def has_live(mark: Mark, router: Router, *, tier: int) -> bool:
    """Whether a table of *tier* has a shard that is past its first snapshot, or never had one."""
    return any(
        (name in mark.bases or name not in mark.snaps)
        and (rule := router.rule(Shard.parse(name).name)) is not None
        and rule.tier == tier
        for name, table in mark.shards.items()
        if table is not None
    )


def living_tables(mark: Mark, router: Router) -> Mapping[str, int]:
    """Table -> the last batch that holds a change of it, of tables with a shard that is there."""
    names = set(living_shards(mark, router).values())
    return {name: last for name, last in mark.tables.items() if name in names}
