"""What do a database's tables look like to who replicates them?  Facts only; others rule.

Asked of the catalogue alone: no row of a user's table is read.  Of a partitioned table it depends
on the publication under which names rows are sent: each leaf's own, or that of the root.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pipeline.model import Shard, ShardId
from pipeline.sources.postgres.column import CATALOGUE, PostgresColumn, described
from pipeline.sources.postgres.session import PostgresSession, Row

TABLES = """\
SELECT n.nspname::text AS schema, c.relname::text AS relation, c.oid::bigint AS oid,
    c.relkind::text AS kind, c.relispartition AS leaf, c.relpersistence::text AS persistence,
    c.relreplident::text AS identity, CASE c.relkind WHEN 'r' THEN c.reltuples ELSE (
        SELECT sum(greatest(l.reltuples, 0)) FROM pg_partition_tree(c.oid) t
        JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf) END::bigint AS rows,
    has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') AS readable
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
"""
# An expression, a condition or a check at the end of the transaction lets two rows share a key.
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
TYPED = (
    CATALOGUE.replace("SELECT a.attname", "SELECT a.attrelid::bigint AS oid, a.attname")
    .replace("a.attrelid = %s", "a.attrelid = ANY(%s::oid[])")
    .replace("ORDER BY a.attnum", "ORDER BY a.attrelid, a.attnum")
)
WHOLE, NOTHING = "f", "n"  # replica identities
# A column that was added with a default keeps its value apart for the rows of before (``missing``);
# where it differs from row to row all are written anew, and nothing tells it from an old column.
# Rows of a partitioned table are in its leaves, and so is what was kept apart for them.
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
TOLD_DEFAULTS = ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar")
CONSTANT = re.compile(
    r"(?P<bare>-?[0-9.]+|true|false)|'(?P<text>(?:[^']|'')*)'(?:::[a-z ]+(?:\([0-9,]+\))?)?"
)
DETAILED = 150_000  # from here on a publication may leave out rows and columns of a table


@dataclass(frozen=True, slots=True)
class PublishedFacts:
    """What a publication sends of a table: rows for which ``rows`` holds, all where it is empty.

    ``left_out`` are columns that it does not send.
    """

    rows: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PostgresShardFacts:
    """A table as its server describes it, with the columns that are not computed.

    ``identity`` is of what an old row is sent: d its primary key, i a unique index, f all of it,
    n nothing; ``identified`` names these columns.  ``unique`` are the sets of columns that name one
    row, the primary key first; ``primary`` says whether there is one.  ``published`` is None where
    the publication does not hold it; ``rows`` None where nobody has counted yet.  ``filled`` are
    columns whose addition may have given old rows values that no row tells of.  ``typed`` are all
    columns with their types.
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


def shard_names(session: PostgresSession, source: str, publication: str) -> tuple[Shard, ...]:
    """Every table whose rows may be sent under its own name, sorted."""
    found = _sent_as_themselves(session, publication)
    return tuple(Shard(source, str(name)) for name in sorted(found))


def shard_facts(
    session: PostgresSession, source: str, publication: str, wanted: Callable[[ShardId], bool]
) -> tuple[PostgresShardFacts, ...]:
    """Describe every table that is *wanted*, sorted; a view is no table."""
    found = _sent_as_themselves(session, publication)
    chosen = {name: row for name, row in found.items() if wanted(name)}
    oids = [row["oid"] for row in chosen.values()]
    indexes = defaultdict(list)
    for row in session.ask(INDEXES, oids):
        indexes[row["oid"]].append(row)
    columns = {row["oid"]: row for row in session.ask(COLUMNS, oids)}
    sent, filled = _published(session, publication), defaultdict(list)
    for one in session.ask(FILLED, oids):
        if not is_told(str(one["type"]), one["default"], one["missing"]):
            filled[one["oid"]].append(one["name"])
    typed = defaultdict(list)
    for one in session.ask(TYPED, oids):
        typed[one["oid"]].append(described(one))
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
        )
        for name, row in sorted(chosen.items())
    )


def is_told(kind: str, default: str | None, missing: str | None) -> bool:
    """Whether rows tell what old rows got in a column of the type *kind*: it is not followed then.

    *missing* is what the server has for them, as an array's text, None where all is in the rows.
    """
    found = CONSTANT.fullmatch(default or "")
    if found is None or kind not in TOLD_DEFAULTS:
        return False
    text = (found["text"] or "").replace("''", "'") if found["bare"] is None else found["bare"]
    same = {"true": "t", "false": "f"}.get(text, text)
    return missing is None or missing[1:-1].strip('"') == same


def sent_elsewhere(
    session: PostgresSession, publication: str, wanted: Callable[[ShardId], bool]
) -> Mapping[str, str]:
    """Which *wanted* tables' changes are sent under other names, and in what words to say so.

    A snapshot reads such a table all the same, so it has rows, and then stands still.
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
    told = session.ask(
        "SELECT 1 FROM pg_publication WHERE pubname = %s AND pubviaroot", publication
    )
    via_root = bool(told)
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
        published=None if published is None else _seen(published, row["columns"]),
        rows=None if row["rows"] is None or row["rows"] < 0 else int(row["rows"]),
        filled=tuple(dict.fromkeys(row["filled"])),
    )


def _seen(row: Row, columns: Iterable[str]) -> PublishedFacts:
    sent = row.get("sent")
    left_out = () if sent is None else tuple(name for name in columns if name not in sent)
    return PublishedFacts(str(row.get("filter") or ""), left_out)
