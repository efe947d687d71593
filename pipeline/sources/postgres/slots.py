"""Checks that the publication sends every change and that the slot still retains the log.

Each iteration of the landing loop runs both checks. Their results are kept in the landing
checkpoint, so that another process can compare.

Publication: its table list and a digest of the catalog's tables are queried. The tables are
read again only if the digest differs. The log has no event for a DROP, a RENAME, or a partition
that is attached or detached with its rows. It has none for these operations either, which give
a table a new file (`relfilenode`):

* TRUNCATE of a partition that is sent under the name of its root;
* ALTER TABLE that computes values: ALTER COLUMN TYPE ... USING, SET EXPRESSION, ADD COLUMN with
  a volatile default. Each rewrites the rows of the columns in `pg_attribute`.

VACUUM FULL, CLUSTER, SET TABLESPACE, SET LOGGED and pg_repack also give a new file but leave
`pg_attribute` unchanged. So does a TRUNCATE that is sent. If a partition is sent under the name
of its root, a new file is harmless only if a row is older than the previous check. The first
three keep `xmin`; TRUNCATE leaves no row.
Cannot detect: a change that was made and undone between two checks.
False positives: ALTER COLUMN TYPE without USING; a new file and changed columns from two
statements between two checks (a TRUNCATE and an ADD COLUMN). For such a partition also
pg_repack, TRUNCATE of the root, and VACUUM FULL without an old row.

Slot: a slot that was dropped, or has lost unread log, is created again at the current end of
the log. The log before that is never sent, regardless of the offset that a connector has
stored. A slot that is still being created retains nothing.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from pipeline.errors import SluiceError
from pipeline.model import Break, CaptureScope, Head, RetainedLog, Shard, ShardId
from pipeline.sources.postgres.doctor import collect_publication_hazards
from pipeline.sources.postgres.facts import (
    HIDES_ROWS,
    INDEX,
    INDEXES,
    READER,
    PostgresShardFacts,
    PublicationFacts,
    PublishedFacts,
    read_publication_facts,
)
from pipeline.sources.postgres.replication import Row
from pipeline.sources.postgres.retained_log import SlotSnapshot
from pipeline.sources.postgres.session import PostgresSession, quote_name

KEPT = """\
SELECT confirmed_flush_lsn IS NOT NULL AND wal_status IS DISTINCT FROM 'lost' AS kept,
    restart_lsn::text AS restart,
    concat_ws(' ', active_pid, a.backend_start) AS reader,
    coalesce(total_txns, 0) AS decoded, concat_ws(' ', w.stats_reset, t.stats_reset) AS counted,
    pg_snapshot_xmax(pg_current_snapshot())::text AS begun
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name CROSS JOIN pg_stat_wal w
WHERE s.slot_name = %s AND s.database = current_database()
"""


@dataclass(eq=False)
class WatchedSlot:
    """The slot called ``name`` in the session's database."""

    session: PostgresSession
    name: str
    clock: Callable[[], float] = time.monotonic
    _broken: Break | None = None

    def look(self, head: Head) -> tuple[Break | None, RetainedLog | None]:
        """Return the last break in retention, None without one, and the log that is retained now.

        *head* is the server's, read just before: a slot created later begins at or above it.

        Raises:
            UnreachableError: the server does not answer.
        """
        found = self.session.ask(KEPT, self.name)
        known = self._broken
        if found and found[0]["kept"]:
            self._broken = known and replace(known, over=True)
            return self._broken, self._keeper(head, found[0])
        if known is None or known.over:
            self._broken = Break(self._why(bool(found)), self.clock())
        return self._broken, None

    def _keeper(self, head: Head, row: Row) -> RetainedLog:
        server, _, _ = head.identity.rpartition("/")
        return SlotSnapshot(
            name=self.name,
            server=server,
            end=head.position.words,
            restart=str(row["restart"]),
            reader=str(row["reader"]),
            decoded=int(row["decoded"]),
            counted=str(row["counted"]),
            begun=int(row["begun"]),
        ).keeper

    def _why(self, there: bool) -> str:
        how = "retained nothing (lost, or being created)" if there else "did not exist"
        return f"slot {self.name} {how}: changes before it was created again are never sent"


log = structlog.get_logger(__name__)

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
# Tables that store rows, with the names under which the rows are sent.
STORED = """\
FROM pg_class c JOIN pg_class t ON t.oid = CASE WHEN %s AND c.relispartition
    THEN pg_partition_root(c.oid)::oid ELSE c.oid END
JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname !~ '^pg_'
"""
DIGEST = f"""\
SELECT md5(coalesce(string_agg(
        concat_ws(' ', c.oid, n.nspname, t.relname, c.relfilenode, c.xmin), ',' ORDER BY c.oid
    ), '')) AS digest,
    pg_snapshot_xmin(pg_current_snapshot())::text AS ended {STORED}"""
STORES = f"""\
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, t.relname::text AS relation,
    c.relfilenode::bigint AS file, c.xmin::text AS written, c.oid <> t.oid AS part {STORED}"""
# Tables that a publication sends in part, tables with REPLICA IDENTITY NOTHING or USING INDEX, and
# tables of which row-level security hides rows from the present or last reader of the slot.
ODD = f"""\
WITH own AS (SELECT c.oid, t.oid AS root, n.nspname, t.relname, c.relreplident {STORED})
SELECT own.oid::bigint AS oid, own.nspname::text AS schema, own.relname::text AS relation,
    own.relreplident::text AS identity, r.oid IS NOT NULL AS named,
    CASE WHEN {HIDES_ROWS} THEN u.rolname::text END AS hidden_from, u.oid::bigint AS reader,
    pg_get_expr(r.prqual, r.prrelid) AS filter,
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND NOT a.attnum = ANY(r.prattrs::int2[])) AS left_out
FROM own JOIN pg_class t ON t.oid = own.root
    LEFT JOIN pg_publication_rel r ON r.prrelid IN (own.oid, own.root)
    AND r.prpubid = (SELECT oid FROM pg_publication WHERE pubname = %s)
    LEFT JOIN pg_roles u ON u.oid = coalesce({READER}, %s::bigint::oid)
WHERE own.relreplident IN ('n', 'i') OR r.prqual IS NOT NULL OR r.prattrs IS NOT NULL
    OR {HIDES_ROWS}
"""  # noqa: S608
COLUMNS = """\
SELECT attrelid::bigint AS oid,
    left(md5(string_agg(concat_ws(':', attnum, xmin), ' ' ORDER BY attnum)), 8) AS columns
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 GROUP BY 1
"""
LEAF = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s
"""

ENTRY = "entry "  # prefix of the keys of entries of the publication; other keys are oids
Stores = Mapping[ShardId, frozenset[str]]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table that stores rows, and the ``shard`` under whose name they are sent.

    A ``part`` is a partition that is sent under the name of its root.  ``file`` is its relfilenode;
    ``columns`` is a digest that changes when its rows in ``pg_attribute`` are written.
    """

    oid: int
    shard: ShardId
    file: int
    columns: str
    part: bool = False

    def __str__(self) -> str:
        """Format it for the landing checkpoint."""
        shown = [self.shard.database, self.shard.relation, self.file, self.columns, int(self.part)]
        return json.dumps(shown, separators=(",", ":"))

    @classmethod
    def parse(cls, oid: int, text: str) -> "StoredTable":
        """Parse the text of ``str``."""
        database, relation, file, columns, part = json.loads(text)
        return cls(oid, ShardId(database, relation), file, columns, bool(part))

    def is_rewritten(self, before: "StoredTable") -> bool:
        """Whether its rows may differ from those of *before*, as far as the catalog shows."""
        return self.file != before.file and (self.part or self.columns != before.columns)


@dataclass(eq=False)
class PublishedTables:
    """The tables that the publication ``name`` sends, compared with those of earlier checks."""

    session: PostgresSession
    name: str
    clock: Callable[[], float] = time.monotonic
    slot: str = ""
    _reader: int | None = None
    _digest: str = ""
    _ended: int = 0
    _written: Mapping[int, str] = field(default_factory=dict)
    _tables: Mapping[int, StoredTable] = field(default_factory=dict)
    _present: Stores = field(default_factory=dict)
    _entries: Stores = field(default_factory=dict)
    _remembered: Mapping[str, str] = field(default_factory=dict)
    _kept: set[tuple[int, int]] = field(default_factory=set)
    _replaced: dict[ShardId, float] = field(default_factory=dict)

    def capture(self) -> CaptureScope:
        """The tables that the publication sends, those replaced since, and hazards.

        No table is sent if the publication does not exist or omits an operation.

        Raises:
            UnreachableError: the server does not answer.
        """
        said_by = f"publication {self.name}"
        facts = read_publication_facts(self.session, self.name)
        if facts is None or facts.missing_operations:
            text = "none" if facts is None else str(facts)
            return CaptureScope(lambda _: False, text, said_by=said_by)
        entries, schemas = dict[ShardId, frozenset[str]](), frozenset[str]()
        if not facts.all_tables:
            named = self._ask(NAMED)
            entries = _group_by_name((row, f"{row['entry']} as {row['relation']}") for row in named)
            schemas = frozenset(str(row["schema"]) for row in self._ask(SCHEMAS))
        self._look(facts, entries)
        present = {*self._present, *entries} if facts.via_root else {*self._present}

        def sends(shard: ShardId) -> bool:
            held = facts.all_tables or shard in entries or shard.database in schemas
            return held and shard in present

        text = json.dumps([str(facts), sorted(map(str, entries)), sorted(schemas)])
        return CaptureScope(
            sends,
            text,
            said_by=said_by,
            replaced=dict(self._replaced),
            remembered=self._remembered,
            differs=self._differing,
            hazards=collect_publication_hazards(self._odd(facts, schemas), self.name, said_by),
        )

    def _odd(
        self, facts: PublicationFacts, schemas: Collection[str]
    ) -> Iterator[PostgresShardFacts]:
        """Yield tables sent in part, with hidden rows, or with identity NOTHING or USING INDEX."""
        rows = [
            row
            for row in self.session.ask(ODD, facts.via_root, self.name, self.slot, self._reader)
            if facts.all_tables or row["named"] or row["schema"] in schemas
        ]
        asked = [row["oid"] for row in rows if row["identity"] == INDEX]
        indexes = self.session.ask(INDEXES, asked) if asked else []
        for row in rows:
            self._reader = row["reader"]
            own = [one for one in indexes if one["oid"] == row["oid"] and one["filled"]]
            named = next((one["columns"] for one in own if one["identity"]), ())
            yield PostgresShardFacts(
                Shard("", str(ShardId(str(row["schema"]), str(row["relation"])))),
                identity=str(row["identity"]),
                identified=tuple(named),
                unique=tuple(tuple(one["columns"]) for one in own),
                published=PublishedFacts(str(row["filter"] or ""), tuple(row["left_out"] or ())),
                hidden_from=str(row["hidden_from"] or ""),
            )

    def _look(self, facts: PublicationFacts, entries: Stores) -> None:
        before, tables, present = self._tables, self._tables, self._present
        (answer,) = self.session.ask(DIGEST, facts.via_root)
        if answer["digest"] != self._digest:
            rows = self.session.ask(STORES, facts.via_root)
            tables = self._stored(rows)
            present = _group_by_name((row, str(row["oid"])) for row in rows)
            for oid, one in tables.items():
                known = before.get(oid)
                if known is not None and known.file != one.file and known.shard == one.shard:
                    self._rule(known, one)
            self._written = {int(row["oid"]): str(row["written"]) for row in rows}
        found = {*find_replaced(self._present, present), *find_replaced(self._entries, entries)}
        found |= {one.shard for oid, one in tables.items() if self._is_rewritten(before, oid, one)}
        if tables is not before or entries != self._entries:
            self._remembered = {str(oid): str(one) for oid, one in tables.items()} | {
                f"{ENTRY}{name}": json.dumps(sorted(stores)) for name, stores in entries.items()
            }
        self._digest, self._ended = str(answer["digest"]), int(answer["ended"])
        self._tables, self._present, self._entries = tables, present, entries
        self._replaced |= dict.fromkeys(found, self.clock())

    def _stored(self, rows: Iterable[Row]) -> Mapping[int, StoredTable]:
        """The tables of *rows*; columns are queried only if the table's catalog row has changed."""
        written = {int(row["oid"]): str(row["written"]) for row in rows}
        asked = [oid for oid, at in written.items() if self._written.get(oid) != at]
        columns = {oid: one.columns for oid, one in self._tables.items()}
        found = self.session.ask(COLUMNS, asked) if asked else []
        columns |= {int(row["oid"]): str(row["columns"]) for row in found}
        return {
            (oid := int(row["oid"])): StoredTable(
                oid,
                ShardId(str(row["schema"]), str(row["relation"])),
                int(row["file"]),
                columns.get(oid, ""),
                bool(row["part"]),
            )
            for row in rows
        }

    def _rule(self, before: StoredTable, now: StoredTable) -> None:
        """Remember that the new file of a partition has its old rows, if it has."""
        if now.part and now.columns == before.columns and self._holds_old_rows(now.oid):
            self._kept.add((now.oid, before.file))
            self._kept.add((now.oid, now.file))

    def _holds_old_rows(self, oid: int) -> bool:
        """Whether a row is older than the last check; False if the rows cannot be read."""
        try:
            for leaf in self.session.ask(LEAF, oid):
                table = f"{quote_name(str(leaf['schema']))}.{quote_name(str(leaf['relation']))}"
                older = f"SELECT 1 AS old FROM {table} WHERE age(xmin) > age(%s::xid8::xid)"  # noqa: S608
                return bool(self.session.ask(f"{older} LIMIT 1", str(self._ended)))
        except SluiceError as error:
            log.warning("rows of a partition were not looked at", oid=oid, why=str(error))
        return False

    def _is_rewritten(self, before: Mapping[int, StoredTable], oid: int, now: StoredTable) -> bool:
        known = before.get(oid)
        if known is None or not now.is_rewritten(known):
            return False
        kept = {(oid, known.file), (oid, now.file)} <= self._kept
        return not (kept and known.columns == now.columns)

    def _differing(self, remembered: Mapping[str, str]) -> frozenset[ShardId]:
        """Names that referred to other tables, or to rewritten rows, in *remembered*."""
        tables, entries = dict[int, StoredTable](), dict[ShardId, frozenset[str]]()
        for key, text in remembered.items():
            if key.startswith(ENTRY):
                name = ShardId.parse(key.removeprefix(ENTRY))
                entries[name] = frozenset(json.loads(text))
            else:
                tables[int(key)] = StoredTable.parse(int(key), text)
        found = {*find_replaced(_by_name(tables.values()), self._present)}
        found |= find_replaced(entries, self._entries)
        found |= {o.shard for oid, o in self._tables.items() if self._is_rewritten(tables, oid, o)}
        return frozenset(found)

    def _ask(self, statement: str) -> list[Row]:
        return self.session.ask(statement, self.name)


def find_replaced(before: Stores, now: Stores) -> frozenset[ShardId]:
    """Names that lost a table since *before*, or refer to one that had another name.

    A new table is assumed to be empty.
    """
    known = {store: name for name, stores in before.items() for store in stores}
    lost = {name for name, stores in before.items() if not stores <= now.get(name, frozenset())}
    come = {
        name for name, stores in now.items() for store in stores if known.get(store, name) != name
    }
    return frozenset(lost | come)


def _by_name(tables: Iterable[StoredTable]) -> Stores:
    found: dict[ShardId, set[str]] = {}
    for one in tables:
        found.setdefault(one.shard, set()).add(str(one.oid))
    return {name: frozenset(stores) for name, stores in found.items()}


def _group_by_name(stored: Iterable[tuple[Row, str]]) -> dict[ShardId, frozenset[str]]:
    found: dict[ShardId, set[str]] = {}
    for row, store in stored:
        found.setdefault(ShardId(str(row["schema"]), str(row["relation"])), set()).add(store)
    return {name: frozenset(stores) for name, stores in found.items()}
