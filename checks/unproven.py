"""Do a table's logs show all of its changes, as its sources describe it?  Not asked is not yes.

Pure.
"""

from collections.abc import Iterator, Mapping

from pipeline.model import Missing, Table
from pipeline.sources.source import SourceDescription


def why_unproven(table: Table, told: Mapping[str, SourceDescription | Missing]) -> str | Missing:
    """What no log shows of *table*; empty if nothing; Missing if a source of it is not *told*."""
    for shard in table.shards:
        one = told.get(shard.source)
        if isinstance(one, SourceDescription) and shard.name in one.unlogged:
            return one.unlogged[shard.name]
    return next(_ignorance(table, told), "")


def _ignorance(table: Table, told: Mapping[str, SourceDescription | Missing]) -> Iterator[Missing]:
    for shard in table.shards:
        one = told.get(shard.source, Missing("it was not asked yet"))
        if isinstance(one, Missing):
            yield Missing(f"source {shard.source} has not described its tables: {one.why}")
        elif shard.name in one.hidden:
            yield Missing(f"source {shard.source} shows no {shard.name}: its user may not read it")
