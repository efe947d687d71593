"""Is what is written to a table from now on sent, and if not, why?"""

from functools import partial

from pipeline.model import Shard, ShardId
from pipeline.sources.postgres.description import keyless, unsent
from pipeline.sources.postgres.server_facts import publication_facts
from pipeline.sources.postgres.shard_facts import sent_elsewhere, shard_facts
from pipeline.sources.postgres.source import PostgresSource

PUBLISHED = (
    "SELECT to_jsonb(p)->'attnames' AS sent FROM pg_publication_tables p"
    " WHERE p.pubname = %s AND p.schemaname = %s AND p.tablename = %s"
)


def unsent_by(source: PostgresSource, shard: Shard) -> str | None:
    """Why rows of *shard* that are written now are not all sent; None if they are."""
    session, name = source.session, source.publication
    asked = partial(_is, ShardId.parse(shard.name))
    if elsewhere := sent_elsewhere(session, name, asked):
        return elsewhere[shard.name]
    found = shard_facts(session, source.name, name, asked)
    if not found:
        return "there is no such table"
    publication = publication_facts(session, name)
    return unsent(found[0], publication, name) or keyless(found[0]) or None


def _is(wanted: ShardId, name: ShardId) -> bool:
    return name == wanted
