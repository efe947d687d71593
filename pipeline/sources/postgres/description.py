"""What does a Postgres say of itself and some of its tables, in the words of all sources?  Pure."""

from collections.abc import Sequence

from pipeline.sources.postgres.server_facts import (
    OPERATIONS,
    PostgresFacts,
    PublicationFacts,
    SlotFacts,
)
from pipeline.sources.postgres.shard_facts import PostgresShardFacts
from pipeline.sources.source import LogBacklog, SourceDescription


def description(
    server: PostgresFacts, shards: Sequence[PostgresShardFacts], publication: str
) -> SourceDescription:
    """Sum up what was found.

    The catalogue hides no table from anybody, so an absent shard is not there.  The log is kept by
    its size, never by time: how long that lasts is told by the slot.
    """
    unlogged = {
        facts.shard.name: why
        for facts in shards
        if (why := unsent(facts, server.publication, publication))
    }
    rows = {facts.shard.name: facts.rows for facts in shards if facts.rows is not None}
    backlog = _backlog(server.slot) if server.slot else None
    return SourceDescription(None, frozenset(), unlogged, rows, backlog)


def _backlog(slot: SlotFacts) -> LogBacklog:
    left = 0 if slot.status == "lost" else slot.safe
    return LogBacklog(slot.name, slot.written, slot.retained or 0, left)


def unsent(shard: PostgresShardFacts, publication: PublicationFacts | None, name: str) -> str:
    """Why changes of *shard* are not sent by the publication of that *name*; empty if all are."""
    if not shard.logged:
        return "an UNLOGGED table writes nothing to the log"
    if publication is None:
        return f"there is no publication {name}"
    if shard.published is None:
        return f"publication {name} does not hold it"
    if shard.published.rows:
        return f"publication {name} sends only rows where {shard.published.rows}"
    if missing := lacking(publication):
        return f"publication {name} leaves out each {', '.join(missing)}"
    return ""


def lacking(publication: PublicationFacts) -> tuple[str, ...]:
    """Operations that it leaves out."""
    return tuple(one for one in OPERATIONS if one not in publication.operations)
