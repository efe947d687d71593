"""What does a Postgres say of itself and some of its tables, in the words of all sources?  Pure."""

from collections.abc import Mapping, Sequence

from pipeline.model import Missing
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import (
    PostgresFacts,
    PublicationFacts,
    SlotFacts,
)
from pipeline.sources.postgres.shard_facts import (
    NOTHING,
    WHOLE,
    PostgresShardFacts,
    PublishedFacts,
)
from pipeline.sources.source import LogBacklog, SourceDescription

INDEX = "i"  # a replica identity: some unique index's columns
ENDED = {
    "lost": "the server has removed log that was not read; a new slot, and a new base of all",
    "unreserved": "the next checkpoint may remove log that was not read",
}


def description(
    server: PostgresFacts,
    shards: Sequence[PostgresShardFacts],
    names: Replication,
    elsewhere: Mapping[str, str] | None = None,
) -> SourceDescription:
    """Sum up what was found; *elsewhere*: shard -> whose names its changes are sent under.

    The catalogue hides no table from anybody, so an absent shard is not there.
    """
    unlogged = {
        facts.shard.name: why
        for facts in shards
        if (why := unsent(facts, server.publication, names.publication) or keyless(facts))
    }
    told = {**unlogged, **(elsewhere or {})}
    rows = {facts.shard.name: facts.rows for facts in shards if facts.rows is not None}
    backlog = _backlog(server.slot) if server.slot else None
    filled = {facts.shard.name: filling(facts) for facts in shards if facts.filled}
    keeps = kept(server.slot, names.slot)
    return SourceDescription(keeps, frozenset(), told, rows, backlog, filled)


def filling(shard: PostgresShardFacts) -> str:
    """Say which columns of *shard* old rows may have got values in."""
    few = ", ".join(shard.filled)
    return f"old rows may have got values of {few} by a default, of which its log tells nothing"


def _backlog(slot: SlotFacts) -> LogBacklog:
    left = 0 if slot.status == "lost" else slot.safe
    return LogBacklog(slot.name, slot.written, slot.retained or 0, left)


def kept(slot: SlotFacts | None, name: str) -> Missing | None:
    """Whether the *slot* of that *name* keeps the log without an end of time.

    What its size limits, if anything does, its backlog tells.
    """
    if slot is None:
        return Missing(f"there is no slot {name}: nothing keeps the log")
    if slot.status in ENDED:
        return Missing(f"slot {name} is {slot.status}: {ENDED[slot.status]}")
    return None


def keyless(shard: PostgresShardFacts) -> str:
    """Why deletes of *shard*, or changes of its key, do not tell which row; empty if they do.

    Without a primary key, and the identity left as it is, the server refuses UPDATE and DELETE:
    nothing of them can be missed.  Nothing is said of a table without any key: it has no mirror.
    """
    if shard.identity == WHOLE or not shard.unique:
        return ""
    if shard.identity == NOTHING:
        return "REPLICA IDENTITY NOTHING: its log does not say which row was deleted"
    absent = unidentified(shard, shard.unique[0])
    if shard.identity == INDEX and absent:
        return f"its replica identity lacks {', '.join(absent)} of its key: a deleted row stays"
    return ""


def unidentified(shard: PostgresShardFacts, key: Sequence[str]) -> tuple[str, ...]:
    """Columns of *key* that are not sent of an old row."""
    return tuple(name for name in key if name not in shard.identified)


def unsent(shard: PostgresShardFacts, publication: PublicationFacts | None, name: str) -> str:
    """Why changes of *shard* are not sent by the publication of that *name*; empty if all are."""
    if not shard.logged:
        return "an UNLOGGED table writes nothing to the log"
    if publication is None:
        return f"there is no publication {name}"
    if shard.published is None:
        return f"publication {name} does not hold it"
    return _left_out(shard.published, publication)


def filtered(sent: PublishedFacts, publication: str) -> str:
    """What the row filter of a *publication* lets through."""
    return f"publication {publication} sends only rows where {sent.rows}"


def _left_out(sent: PublishedFacts, publication: PublicationFacts) -> str:
    """What of the table does not come, though it is published."""
    name = publication.name
    if sent.rows:
        return filtered(sent, name)
    if publication.lacks:
        return f"publication {name} leaves out each {', '.join(publication.lacks)}"
    if sent.left_out:
        return f"publication {name} leaves out its columns {', '.join(sent.left_out)}"
    return ""
