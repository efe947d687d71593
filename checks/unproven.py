"""Do a table's logs show all of its changes, as its sources describe it?  Not asked is not yes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checks.doctor.grants import may, parse
from checks.doctor.tables import FoldedTable, unproven
from pipeline.model import Missing, Table
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.shard_facts import ShardFacts


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A source in its own words: its server, and of the shards it was asked for, those it showed.

    A server hides what its user may not see, so an absent shard may still be there.
    """

    server: ServerFacts
    shards: Mapping[str, ShardFacts]


def why_unproven(table: Table, told: Mapping[str, SourceDescription | Missing]) -> str | Missing:
    """What no log shows of *table*; empty if nothing; Missing if a source of it is not *told*."""
    for source in table.sources:
        one = told.get(source)
        shown = one.shards.values() if isinstance(one, SourceDescription) else ()
        own = [facts for facts in shown if facts.shard in table.shards]
        if isinstance(one, SourceDescription) and own:
            why = unproven(own, one.server, lambda _: FoldedTable(table.name)).get(table.name)
            if why:
                return why
    return next(_ignorance(table, told), "")


def _ignorance(table: Table, told: Mapping[str, SourceDescription | Missing]) -> Iterator[Missing]:
    for shard in table.shards:
        one = told.get(shard.source, Missing("it was not asked yet"))
        if isinstance(one, Missing):
            yield Missing(f"source {shard.source} has not described its tables: {one.why}")
        elif shard.name not in one.shards and not _would_show(one.server, shard.name):
            yield Missing(f"source {shard.source} shows no {shard.name}: its user may not read it")


def _would_show(server: ServerFacts, name: str) -> bool:
    """Whether a table of that *name* would be seen if it were there: else it was dropped."""
    grants = [grant for line in server.grants if (grant := parse(line))]
    return may(grants, "SELECT", *name.split(".", 1))
