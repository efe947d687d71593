"""Of which tables does a publication send all rows and all operations, under their own names?

Asked in every round of landing: what the publication names, and a digest of the catalogue's tables;
these are read only when they are others.  Which of them stands under a name is remembered, as no
log tells of a DROP, a RENAME, or a partition that comes with its rows or goes with them.
Cannot see: what was done and undone between two looks, or before the first of this process.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.capture import Capture
from pipeline.model import ShardId
from pipeline.sources.postgres.server_facts import PublicationFacts, publication_facts
from pipeline.sources.postgres.session import PostgresSession, Row

NAMED = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation, r.oid::bigint AS entry
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
# What holds rows, and under which name they are sent.
STORED = """\
FROM pg_class c JOIN pg_class t ON t.oid = CASE WHEN %s AND c.relispartition
    THEN pg_partition_root(c.oid)::oid ELSE c.oid END
JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname !~ '^pg_'
"""
DIGEST = f"""\
SELECT md5(coalesce(string_agg(concat_ws(' ', c.oid, n.nspname, t.relname), ',' ORDER BY c.oid),
    '')) AS digest {STORED}"""
STORES = f"""\
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, t.relname::text AS relation {STORED}"""

Stores = Mapping[ShardId, frozenset[str]]


@dataclass(eq=False)
class PublishedTables:
    """What the publication called *name* sends, and what stood under each name at the last look."""

    session: PostgresSession
    name: str
    clock: Callable[[], float] = time.monotonic
    _digest: str = ""
    _present: Stores = field(default_factory=dict)
    _entries: Stores = field(default_factory=dict)
    _replaced: dict[ShardId, float] = field(default_factory=dict)

    def capture(self) -> Capture:
        """A row that it may leave out is not sent.

        Raises:
            UnreachableError: the server does not answer.
        """
        said_by = f"publication {self.name}"
        facts = publication_facts(self.session, self.name)
        if facts is None or facts.lacks:
            text = "none" if facts is None else str(facts)
            return Capture(lambda _: False, text, said_by=said_by)
        entries, schemas = dict[ShardId, frozenset[str]](), frozenset[str]()
        if not facts.all_tables:
            named = self._ask(NAMED)
            entries = _gathered((row, f"{row['entry']} as {row['relation']}") for row in named)
            schemas = frozenset(str(row["schema"]) for row in self._ask(SCHEMAS))
        self._look(facts, entries)
        present = {*self._present, *entries} if facts.via_root else {*self._present}

        def sends(shard: ShardId) -> bool:
            held = facts.all_tables or shard in entries or shard.database in schemas
            return held and shard in present

        text = json.dumps([str(facts), sorted(map(str, entries)), sorted(schemas)])
        return Capture(sends, text, said_by=said_by, replaced=dict(self._replaced))

    def _look(self, facts: PublicationFacts, entries: Stores) -> None:
        present = self._present
        (told,) = self.session.ask(DIGEST, facts.via_root)
        if told["digest"] != self._digest:
            rows = self.session.ask(STORES, facts.via_root)
            present = _gathered((row, str(row["oid"])) for row in rows)
        found = {*replaced(self._present, present), *replaced(self._entries, entries)}
        self._digest, self._present, self._entries = str(told["digest"]), present, entries
        self._replaced |= dict.fromkeys(found, self.clock())

    def _ask(self, statement: str) -> list[Row]:
        return self.session.ask(statement, self.name)


def replaced(before: Stores, now: Stores) -> frozenset[ShardId]:
    """Names under which something stands no more, or now stands what had another name.

    What is new to all is empty, for as far as anybody knows.
    """
    known = {store: name for name, stores in before.items() for store in stores}
    lost = {name for name, stores in before.items() if not stores <= now.get(name, frozenset())}
    come = {
        name for name, stores in now.items() for store in stores if known.get(store, name) != name
    }
    return frozenset(lost | come)


def _gathered(told: Iterable[tuple[Row, str]]) -> dict[ShardId, frozenset[str]]:
    found: dict[ShardId, set[str]] = {}
    for row, store in told:
        found.setdefault(ShardId(str(row["schema"]), str(row["relation"])), set()).add(store)
    return {name: frozenset(stores) for name, stores in found.items()}
