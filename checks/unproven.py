"""Do a table's logs show all of its changes, as its sources describe it?  Not asked is not yes.

Pure.
"""

import re
from collections.abc import Iterator, Mapping

from checks.model import Reason
from checks.waivable import told_of
from pipeline.model import Missing, Table
from pipeline.sources.source import SourceDescription

SINCE_GONE = "; not any more, but what they changed before needs a new base"
"""What follows a cause that is not there any more."""


def why_unproven(table: Table, told: Mapping[str, SourceDescription | Missing]) -> str | Missing:
    """What no log shows of *table*; empty if nothing; Missing if a source of it is not *told*."""
    for shard in table.shards:
        one = told.get(shard.source)
        if isinstance(one, SourceDescription) and shard.name in one.unlogged:
            return one.unlogged[shard.name]
    return next(_ignorance(table, told), "")


def unlogged(table: Table, unproven: str | Missing) -> tuple[Reason, ...]:
    """Why *table* is not READY for what :func:`why_unproven` said, or what is left of it.

    What a person waives is that foreign key, or that kind of not knowing, and no other.
    """
    if not unproven:
        return ()
    if isinstance(unproven, Missing):
        kind = re.sub(r"\d+", "#", unproven.why)
        return (Reason("not_described", unproven.why, told_of(f"unproven:{table.name}", kind)),)
    cause = unproven.partition(SINCE_GONE)[0]
    return (Reason("unproven", unproven, told_of(f"unproven:{table.name}", cause)),)


def _ignorance(table: Table, told: Mapping[str, SourceDescription | Missing]) -> Iterator[Missing]:
    for shard in table.shards:
        one = told.get(shard.source, Missing("it was not asked yet"))
        if isinstance(one, Missing):
            why = one.why.removeprefix(f"source:{shard.source}: ")
            yield Missing(f"source {shard.source} has not described its tables: {why}")
        elif shard.name in one.hidden:
            yield Missing(f"source {shard.source} shows no {shard.name}: its user may not read it")
