"""Reads settings, rights, slot, publication and table definitions of a Postgres database.

Facts only: `doctor` decides what they mean. Only the catalog and server settings are queried;
no row of a user's table is read.

The rows of a partitioned table are sent under the name of each leaf, or of the root; the
publication decides. The catalog hides no table, so an absent shard does not exist.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.model import Missing, Shard, ShardId
from pipeline.sources.postgres.replication import Replication, Row
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.types import CATALOGUE, PostgresColumn, read_column
from pipeline.sources.source import LogBacklog, SourceDescription

OPERATIONS = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A replication slot; ``retained``, ``safe`` and ``written`` are bytes of the log.

    ``status`` is as the server reports it: reserved, extended, unreserved or lost.  ``retained`` is
    the log that the slot retains, None if it retains none.  ``safe`` may be written before the slot
    may be lost, None without a limit.  ``written`` is the whole log since the server was created.
    """

    name: str
    plugin: str = "pgoutput"
    database: str = ""
    active: bool = True
    status: str = "reserved"
    retained: int | None = 0
    safe: int | None = None
    written: int = 0


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication of ``all_tables`` or some, with the ``operations`` that it sends."""

    name: str
    all_tables: bool = True
    operations: tuple[str, ...] = OPERATIONS
    via_root: bool = False

    @property
    def missing_operations(self) -> tuple[str, ...]:
        """Operations that it does not send."""
        return tuple(one for one in OPERATIONS if one not in self.operations)


@dataclass(frozen=True, slots=True)
class HeartbeatFacts:
    """The heartbeat table: missing privileges (``lacking``), and whether the user may create it."""

    present: bool = True
    lacking: tuple[str, ...] = ()
    schema: bool = True
    creatable: bool = True


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A server's settings in its own spelling, and the state of one of its databases.

    ``slots`` and ``senders`` are the numbers in use; ``slot`` and ``publication`` are those in the
    config, None if they do not exist.  ``ahead`` is how far the server's clock is ahead of ours
    (negative: behind), without the part that the duration of the query may explain.
    """

    version: int = 180_000
    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = "sluice"
    standby: bool = False
    monitor: bool = True
    slots: int = 0
    senders: int = 0
    slot: SlotFacts | None = None
    publication: PublicationFacts | None = None
    heartbeat: HeartbeatFacts = HeartbeatFacts()
    ahead: timedelta = timedelta()


def read_server_facts(
    session: PostgresSession, names: Replication, heartbeat: str
) -> PostgresFacts:
    """Read all facts of the server and the database.

    Raises:
        UnreachableError: if it does not answer.
        ConfigError: if the user may not log in.
    """
    (own,) = session.ask(
        "SELECT current_setting('server_version_num')::int AS version, current_user::text AS who,"
        " pg_is_in_recovery() AS standby, pg_has_role('pg_monitor', 'USAGE') AS monitor,"
        " (SELECT count(*) FROM pg_replication_slots) AS slots,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender') AS senders"
    )
    found = session.ask("SELECT name, setting FROM pg_settings")
    return PostgresFacts(
        version=int(own["version"]),
        settings={str(row["name"]): str(row["setting"]) for row in found},
        user=str(own["who"]),
        standby=bool(own["standby"]),
        monitor=bool(own["monitor"]),
        slots=int(own["slots"]),
        senders=int(own["senders"]),
        slot=read_slot_facts(session, names.slot),
        publication=read_publication_facts(session, names.publication),
        heartbeat=_heartbeat(session, heartbeat),
        ahead=_ahead(session),
    )


def read_slot_facts(session: PostgresSession, name: str) -> SlotFacts | None:
    """Read the slot called *name*; None if it does not exist."""
    found = session.ask(
        "SELECT plugin::text AS plugin, database::text AS database, active, wal_status AS status,"
        " pg_wal_lsn_diff(now_at, restart_lsn)::bigint AS retained, safe_wal_size AS safe,"
        " pg_wal_lsn_diff(now_at, '0/0')::bigint AS written"
        " FROM pg_replication_slots, (SELECT CASE WHEN pg_is_in_recovery()"
        " THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS now_at) AS log"
        " WHERE slot_name = %s",
        name,
    )
    return _slot(name, found[0]) if found else None


def read_publication_facts(session: PostgresSession, name: str) -> PublicationFacts | None:
    """Read the publication called *name*; None if it does not exist."""
    found = session.ask(
        "SELECT puballtables AS every, pubviaroot AS root, pubinsert AS insert,"
        " pubupdate AS update, pubdelete AS delete, pubtruncate AS truncate"
        " FROM pg_publication WHERE pubname = %s",
        name,
    )
    if not found:
        return None
    (row,) = found
    operations = tuple(operation for operation in OPERATIONS if row[operation])
    return PublicationFacts(name, bool(row["every"]), operations, bool(row["root"]))


def _slot(name: str, row: Mapping[str, Any]) -> SlotFacts:
    """The slot of a row; after a restart, ``retained`` may be negative by a page: it becomes 0."""
    retained = row["retained"]
    return SlotFacts(
        name,
        str(row["plugin"] or ""),
        str(row["database"] or ""),
        bool(row["active"]),
        str(row["status"] or "lost"),
        None if retained is None else max(int(retained), 0),
        None if row["safe"] is None else max(int(row["safe"]), 0),
        int(row["written"]),
    )


def _heartbeat(session: PostgresSession, heartbeat: str) -> HeartbeatFacts:
    schema, _, table = heartbeat.partition(".")
    (made,) = session.ask(
        "SELECT count(*) > 0 AS there, coalesce(bool_or(has_schema_privilege(oid, 'USAGE')), false)"
        " AS usable, coalesce(bool_or(has_schema_privilege(oid, 'CREATE')), false) AS open,"
        " has_database_privilege(current_database(), 'CREATE') AS free"
        " FROM pg_namespace WHERE nspname = %s",
        schema,
    )
    rights = ("SELECT", "INSERT", "UPDATE")
    asked = ", ".join(f"has_table_privilege(c.oid, '{one}') AS \"{one}\"" for one in rights)
    found = session.ask(
        f"SELECT {asked} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"  # noqa: S608
        " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        *(schema, table),
    )
    lacking = [one for one in rights if not found[0][one]] if found else []
    if made["there"] and not made["usable"]:
        lacking.append("USAGE")
    creatable = bool(made["open"] if made["there"] else made["free"])
    return HeartbeatFacts(bool(found), tuple(lacking), bool(made["there"]), creatable)


def _ahead(session: PostgresSession) -> timedelta:
    """How far the server's clock is ahead, without what the duration of the query may explain."""
    asked = datetime.now(UTC)
    (row,) = session.ask("SELECT clock_timestamp() AS server_time")
    server_time: datetime = row["server_time"]
    answered = datetime.now(UTC)
    return max(server_time - answered, timedelta()) or min(server_time - asked, timedelta())


# Who reads a slot, and whether rows of *t* are hidden from role *u* (check_enable_rls in rls.c).
READER = """\
(SELECT a.usesysid FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.slot_name = %s AND s.database = current_database())"""
HIDES_ROWS = """\
(t.relrowsecurity AND NOT (u.rolsuper OR u.rolbypassrls
    OR (NOT t.relforcerowsecurity AND pg_has_role(u.oid, t.relowner, 'USAGE'))))"""
HIDDEN = f"""\
SELECT t.oid::bigint AS oid, u.rolname::text AS reader
FROM pg_class t JOIN pg_roles u ON u.oid = {READER}
WHERE {HIDES_ROWS} AND t.oid = ANY(%s::oid[])
"""  # noqa: S608
TABLES = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation, c.oid::bigint AS oid,
    c.relkind::text AS kind, c.relispartition AS leaf, c.relpersistence::text AS persistence,
    c.relreplident::text AS identity, CASE c.relkind WHEN 'r' THEN c.reltuples ELSE (
        SELECT sum(greatest(l.reltuples, 0)) FROM pg_partition_tree(c.oid) t
        JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf) END::bigint AS rows,
    has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS readable,
    row_security_active(c.oid) AS filtered, c.relkind = 'r' AND EXISTS (
        SELECT FROM pg_inherits h WHERE h.inhparent = c.oid) AS inherited
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
"""
# Indexes of expressions, partial ones and deferred ones are excluded: two rows may share a key.
INDEXES = """\
SELECT i.indrelid::bigint AS oid, i.indisprimary AS "primary", i.indisreplident AS identity,
    array_agg(a.attname::text ORDER BY k.place) AS columns, bool_and(a.attnotnull) AS filled
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE k.place <= i.indnkeyatts AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indrelid = ANY(%s::oid[])
GROUP BY i.indexrelid, i.indrelid, i.indisprimary, i.indisreplident
ORDER BY i.indisprimary DESC, i.indexrelid
"""
COLUMNS = """\
SELECT attrelid::bigint AS oid, array_agg(attname::text ORDER BY attnum) AS columns,
    array_agg(attname::text ORDER BY attnum) FILTER (WHERE NOT attnotnull) AS nullable
FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attrelid = ANY(%s::oid[]) GROUP BY attrelid
"""
# Partial, incomplete and invalid indexes, and those of expressions, cannot find a range of values.
DATED = """\
SELECT a.attrelid::bigint AS oid, a.attname::text AS name
FROM pg_attribute a WHERE a.attnotnull AND a.attrelid = ANY(%s::oid[])
    AND a.atttypid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
    AND EXISTS (
        SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
        WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
            AND i.indisvalid AND i.indisready AND i.indpred IS NULL)
ORDER BY a.attrelid, a.attnum
"""
TYPED = (
    CATALOGUE.replace("SELECT a.attname", "SELECT a.attrelid::bigint AS oid, a.attname")
    .replace("a.attrelid = %s", "a.attrelid = ANY(%s::oid[])")
    .replace("ORDER BY a.attnum", "ORDER BY a.attrelid, a.attnum")
)
WHOLE, NOTHING = "f", "n"  # replica identities
# For a column added with a constant default, the catalog stores the value of older rows
# (``missing``).  If the default differs by row, all rows are rewritten, and the column looks like
# an old one.  Rows of a partitioned table are in its leaves, and so are the stored values.
FILLED = """\
SELECT asked.oid::bigint AS oid, a.attname::text AS name, t.typname::text AS type,
    a.attmissingval::text AS missing, pg_get_expr(d.adbin, d.adrelid) AS default
FROM unnest(%s::oid[]) AS asked(oid) CROSS JOIN LATERAL
    (SELECT asked.oid UNION SELECT relid FROM pg_partition_tree(asked.oid)) AS part(oid)
JOIN pg_attribute a ON a.attrelid = part.oid JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped AND NOT a.attnotnull AND a.attgenerated = ''
    AND (a.atthasmissing OR (d.adbin IS NOT NULL AND pg_relation_filenode(part.oid) <> part.oid))
ORDER BY asked.oid, a.attnum
"""
DESCRIBED_DEFAULTS = (
    "bool",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar",
)
CONSTANT = re.compile(
    r"(?P<bare>-?[0-9.]+|true|false)|'(?P<text>(?:[^']|'')*)'(?:::[a-z ]+(?:\([0-9,]+\))?)?"
)
DETAILED = 150_000  # since this version a publication may omit rows and columns of a table


@dataclass(frozen=True, slots=True)
class PublishedFacts:
    """The part of a table that a publication sends.

    ``rows`` is the row filter, empty if all rows are sent; ``left_out`` are columns that it does
    not send.
    """

    rows: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PostgresShardFacts:
    """A table as its server describes it; ``columns`` are those that are not computed.

    ``identity`` is the replica identity, the part of an old row that is sent: d the primary key, i
    a unique index, f the whole row, n nothing.  ``identified`` are the columns of d or i.
    ``unique`` are the sets of columns that identify a row, the primary key first; ``primary`` is
    whether there is one.  ``published`` is None outside the publication; ``rows`` is the estimated
    number of rows, None before the first estimate.  ``filled`` are columns whose addition may have
    given old rows values that are in no event.  ``typed`` are all columns with their types.
    Row-level security hides rows from Sluice's user if ``filtered``, and from the slot's reader if
    ``hidden_from`` names it.  ``inherited``: a query without ONLY also returns rows of other
    tables.  ``dated`` are the columns for `SourceDescription.dated`.
    """

    shard: Shard
    columns: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    logged: bool = True
    identity: str = "d"
    identified: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    primary: bool = False
    readable: bool = True
    published: PublishedFacts | None = PublishedFacts()
    rows: int | None = None
    filled: tuple[str, ...] = ()
    typed: tuple[PostgresColumn, ...] = ()
    filtered: bool = False
    hidden_from: str = ""
    inherited: bool = False
    dated: tuple[str, ...] = ()


def list_shards(session: PostgresSession, source: str, publication: str) -> tuple[Shard, ...]:
    """All tables whose rows may be sent under their own names, sorted."""
    found = _sent_as_themselves(session, publication)
    return tuple(Shard(source, str(name)) for name in sorted(found))


def read_shard_facts(
    session: PostgresSession,
    source: str,
    publication: str,
    wanted: Callable[[ShardId], bool],
    *,
    slot: str = "",
) -> tuple[PostgresShardFacts, ...]:
    """Describe every table (not views) that is *wanted*, sorted.

    ``hidden_from`` is known only while a process reads the *slot*.
    """
    found = _sent_as_themselves(session, publication)
    chosen = {name: row for name, row in found.items() if wanted(name)}
    oids = [row["oid"] for row in chosen.values()]
    indexes = defaultdict(list)
    for row in session.ask(INDEXES, oids):
        indexes[row["oid"]].append(row)
    columns = {row["oid"]: row for row in session.ask(COLUMNS, oids)}
    sent, filled = _published(session, publication), defaultdict(list)
    for one in session.ask(FILLED, oids):
        if not is_default_in_rows(str(one["type"]), one["default"], one["missing"]):
            filled[one["oid"]].append(one["name"])
    typed = defaultdict(list)
    for one in session.ask(TYPED, oids):
        typed[one["oid"]].append(read_column(one))
    hidden = {row["oid"]: str(row["reader"]) for row in session.ask(HIDDEN, slot, oids)}
    dated = defaultdict(list)
    for one in session.ask(DATED, oids):
        dated[one["oid"]].append(str(one["name"]))
    none = {"columns": (), "nullable": None}
    return tuple(
        replace(
            _facts(
                Shard(source, str(name)),
                {**row, **columns.get(row["oid"], none), "filled": filled[row["oid"]]},
                indexes[row["oid"]],
                sent.get(name),
            ),
            typed=tuple(typed[row["oid"]]),
            hidden_from=hidden.get(row["oid"], ""),
            dated=tuple(dated[row["oid"]]),
        )
        for name, row in sorted(chosen.items())
    )


def is_default_in_rows(kind: str, default: str | None, missing: str | None) -> bool:
    """Whether rows report the default of an added column of type *kind*, which causes a hold.

    *missing* is the value that the catalog stores for older rows, as the text of an array; None if
    all values are in the rows.
    """
    found = CONSTANT.fullmatch(default or "")
    if found is None or kind not in DESCRIBED_DEFAULTS:
        return False
    text = (found["text"] or "").replace("''", "'") if found["bare"] is None else found["bare"]
    same = {"true": "t", "false": "f"}.get(text, text)
    return missing is None or missing[1:-1].strip('"') == same


def find_sent_elsewhere(
    session: PostgresSession, publication: str, wanted: Callable[[ShardId], bool]
) -> Mapping[str, str]:
    """The *wanted* tables whose changes are sent under another name, each with the reason.

    A snapshot reads such a table, so its mirror has rows, but gets no changes.
    """
    sent = _sent_as_themselves(session, publication)
    return {
        str(
            name
        ): f"it is a partition, and publication {publication} sends its changes as the root's"
        if row["leaf"]
        else f"it is partitioned, and publication {publication} sends each partition's changes"
        " under that one's name"
        for name, row in _tables(session).items()
        if name not in sent and wanted(name)
    }


def _tables(session: PostgresSession) -> Mapping[ShardId, Row]:
    return {ShardId(str(row["schema"]), str(row["relation"])): row for row in session.ask(TABLES)}


def _sent_as_themselves(session: PostgresSession, publication: str) -> Mapping[ShardId, Row]:
    sent = _published(session, publication)
    rows = session.ask(
        "SELECT 1 FROM pg_publication WHERE pubname = %s AND pubviaroot", publication
    )
    via_root = bool(rows)
    return {
        name: row
        for name, row in _tables(session).items()
        if name in sent or (not row["leaf"] if via_root else row["kind"] == "r")
    }


def _published(session: PostgresSession, publication: str) -> Mapping[ShardId, Row]:
    (version,) = session.ask("SELECT current_setting('server_version_num')::int AS number")
    detailed = version["number"] >= DETAILED
    more = ", attnames::text[] AS sent, rowfilter AS filter" if detailed else ""
    found = session.ask(
        f"SELECT schemaname::text AS schema, tablename::text AS relation{more}"  # noqa: S608
        " FROM pg_publication_tables WHERE pubname = %s",
        publication,
    )
    return {ShardId(str(row["schema"]), str(row["relation"])): row for row in found}


def _facts(
    shard: Shard, row: Row, indexes: Iterable[Row], published: Row | None
) -> PostgresShardFacts:
    unique = [one for one in indexes if one["filled"]]
    named = {"d": "primary", "i": "identity"}.get(row["identity"], "")
    identified = next((one["columns"] for one in unique if named and one[named]), ())
    return PostgresShardFacts(
        shard,
        columns=tuple(row["columns"]),
        nullable=tuple(row["nullable"] or ()),
        logged=row["persistence"] == "p",
        identity=str(row["identity"]),
        identified=tuple(identified),
        unique=tuple(tuple(one["columns"]) for one in unique),
        primary=any(one["primary"] for one in unique),
        readable=bool(row["readable"]),
        filtered=bool(row["filtered"]),
        inherited=bool(row["inherited"]),
        published=None if published is None else _read_published(published, row["columns"]),
        rows=None if row["rows"] is None or row["rows"] < 0 else int(row["rows"]),
        filled=tuple(dict.fromkeys(row["filled"])),
    )


def _read_published(row: Row, columns: Iterable[str]) -> PublishedFacts:
    sent = row.get("sent")
    left_out = () if sent is None else tuple(name for name in columns if name not in sent)
    return PublishedFacts(str(row.get("filter") or ""), left_out)


INDEX = "i"  # a replica identity: the columns of a unique index
ENDED = {
    "lost": "the server has removed log that was not read; a new slot, and a new base of all",
    "unreserved": "the next checkpoint may remove log that was not read",
}


def describe_source(
    server: PostgresFacts,
    shards: Sequence[PostgresShardFacts],
    names: Replication,
    elsewhere: Mapping[str, str] | None = None,
) -> SourceDescription:
    """Describe the source; *elsewhere*: shard -> why its changes are sent under another name.

    The catalog hides no table from any user, so an absent shard does not exist.
    """
    unlogged = {
        facts.shard.name: why
        for facts in shards
        if (why := why_unsent(facts, server.publication, names.publication) or why_keyless(facts))
    }
    unsent = {**unlogged, **(elsewhere or {})}
    rows = {facts.shard.name: facts.rows for facts in shards if facts.rows is not None}
    backlog = _backlog(server.slot) if server.slot else None
    filled = {facts.shard.name: describe_filled(facts) for facts in shards if facts.filled}
    dated = {facts.shard.name: facts.dated for facts in shards if facts.dated}
    keeps = check_retention(server.slot, names.slot)
    return SourceDescription(keeps, frozenset(), unsent, rows, backlog, filled, dated)


def describe_filled(shard: PostgresShardFacts) -> str:
    """A message with the columns of *shard* in which old rows may have got a default."""
    few = ", ".join(shard.filled)
    return f"old rows may have got a default in {few}, which is not in the log"


def _backlog(slot: SlotFacts) -> LogBacklog:
    left = 0 if slot.status == "lost" else slot.safe
    return LogBacklog(slot.name, slot.written, slot.retained or 0, left)


def check_retention(slot: SlotFacts | None, name: str) -> Missing | None:
    """None if the *slot* called *name* retains the log without a time limit, else Missing.

    A limit by size is in the backlog.
    """
    if slot is None:
        return Missing(f"slot {name} does not exist: the log is not retained")
    if slot.status in ENDED:
        return Missing(f"slot {name} is {slot.status}: {ENDED[slot.status]}")
    return None


def why_keyless(shard: PostgresShardFacts) -> str:
    """Why deletes of *shard*, or changes of its key, do not identify the row; empty if they do.

    Without a primary key, and with the default identity, the server rejects UPDATE and DELETE, so
    none can be missed.  A table without any key has no mirror, so the result is empty.
    """
    if shard.identity == WHOLE or not shard.unique:
        return ""
    if shard.identity == NOTHING:
        return "REPLICA IDENTITY NOTHING: its log does not say which row was deleted"
    absent = find_unidentified(shard, shard.unique[0])
    if shard.identity == INDEX and absent:
        missing = ", ".join(absent)
        return f"{missing} of its key is not in its replica identity: a deleted row remains"
    return ""


def find_unidentified(shard: PostgresShardFacts, key: Sequence[str]) -> tuple[str, ...]:
    """Columns of *key* that are not sent with an old row."""
    return tuple(name for name in key if name not in shard.identified)


def why_unsent(shard: PostgresShardFacts, publication: PublicationFacts | None, name: str) -> str:
    """Why the publication *name* does not send all changes of *shard*; empty if it does."""
    if not shard.logged:
        return "an UNLOGGED table writes nothing to the log"
    if publication is None:
        return f"publication {name} does not exist"
    if shard.published is None:
        return f"publication {name} does not contain it"
    return _left_out(shard.published, publication)


def describe_filter(sent: PublishedFacts, publication: str) -> str:
    """Describe the row filter of a *publication*."""
    return f"publication {publication} sends only rows where {sent.rows}"


def _left_out(sent: PublishedFacts, publication: PublicationFacts) -> str:
    """Which part of a published table is not sent; empty if all is sent."""
    name = publication.name
    if sent.rows:
        return describe_filter(sent, name)
    if publication.missing_operations:
        return f"publication {name} leaves out every {', '.join(publication.missing_operations)}"
    if sent.left_out:
        return f"publication {name} leaves out its columns {', '.join(sent.left_out)}"
    return ""
