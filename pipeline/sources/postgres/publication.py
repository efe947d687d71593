"""Of which tables does a publication send all rows and all operations, under their own names?

Asked in every round of landing, so it reads what the publication names, and of the catalogue only
what it would leave out all the same: partitions or their roots, and what is in no log.
Cannot see: what was taken out and put in again between two looks.
"""

import json
from collections.abc import Iterable

from pipeline.capture import Capture
from pipeline.model import ShardId
from pipeline.sources.postgres.server_facts import PublicationFacts, publication_facts
from pipeline.sources.postgres.session import PostgresSession, Row

NAMED = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation
FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
CROSS JOIN LATERAL (SELECT r.prrelid AS oid
    UNION SELECT relid FROM pg_partition_tree(r.prrelid) WHERE isleaf AND NOT p.pubviaroot) AS part
JOIN pg_class c ON c.oid = part.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND r.prqual IS NULL
"""
SCHEMAS = """\
SELECT n.nspname::text AS schema FROM pg_publication p
JOIN pg_publication_namespace s ON s.pnpubid = p.oid JOIN pg_namespace n ON n.oid = s.pnnspid
WHERE p.pubname = %s
"""
ELSEWHERE = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND (c.relpersistence = 'u'
    OR CASE WHEN %s THEN c.relispartition ELSE c.relkind = 'p' END)
"""


def sent_by(session: PostgresSession, name: str) -> Capture:
    """What the publication of that *name* sends; a row that it may leave out is not sent.

    Raises:
        UnreachableError: the server does not answer.
    """
    said_by = f"publication {name}"
    facts = publication_facts(session, name)
    if facts is None or facts.lacks:
        return Capture(lambda _: False, "none" if facts is None else str(facts), said_by=said_by)
    named, schemas = frozenset[ShardId](), frozenset[str]()
    if not facts.all_tables:
        named = _names(session.ask(NAMED, name))
        schemas = frozenset(str(row["schema"]) for row in session.ask(SCHEMAS, name))
    elsewhere = _elsewhere(session, facts, named)

    def sends(shard: ShardId) -> bool:
        held = facts.all_tables or shard in named or shard.database in schemas
        return held and shard not in elsewhere

    lists = (sorted(map(str, named)), sorted(schemas), sorted(map(str, elsewhere)))
    return Capture(sends, json.dumps([str(facts), *lists]), said_by=said_by)


def _elsewhere(
    session: PostgresSession, facts: PublicationFacts, named: frozenset[ShardId]
) -> frozenset[ShardId]:
    """Tables whose rows come under other names, or not at all; a leaf may be named by itself."""
    found = _names(session.ask(ELSEWHERE, facts.via_root))
    return found - named if facts.via_root else found


def _names(rows: Iterable[Row]) -> frozenset[ShardId]:
    return frozenset(ShardId(str(row["schema"]), str(row["relation"])) for row in rows)
