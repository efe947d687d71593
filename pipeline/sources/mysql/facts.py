"""Reads the settings, grants and table definitions of a MySQL or MariaDB server.

Facts only: `doctor` decides what they mean. Only the data dictionary and server variables are
queried; no row of a user's table is read.

Grants are the lines of SHOW GRANTS with roles expanded. Rights on single columns are ignored. A
server hides tables that the user cannot see, so an absent shard may exist.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pipeline.errors import ConfigError
from pipeline.model import Shard, ShardId
from pipeline.sources.mysql.session import Row, Session
from pipeline.sources.mysql.types import MySqlColumn, read_column
from pipeline.sources.source import SourceDescription


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's settings, and the grants of its user.

    ``variables`` have lower-case names; variables that the server does not have are absent.
    ``grants`` are the lines of SHOW GRANTS with roles expanded.  ``unlogged`` are filters of the
    log, ``binlog_do_db=...`` or ``binlog_ignore_db=...``.  Facts that the user may not read are
    empty; ``replica`` is None then.  ``ahead`` is how far the server's clock is ahead of ours
    (negative: behind), without the part that the duration of the query may explain.
    """

    version: tuple[int, int]
    mariadb: bool
    variables: Mapping[str, str] = field(default_factory=dict)
    grants: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    replica: bool | None = None
    ahead: timedelta = timedelta()


def read_server_facts(session: Session) -> ServerFacts:
    """Read all facts of a server.

    Raises:
        UnreachableError: if it does not answer.
        ConfigError: if the user may not log in.
    """
    found = session.ask("SHOW GLOBAL VARIABLES")
    return ServerFacts(
        version=session.version,
        mariadb=session.mariadb,
        variables={row["variable_name"].lower(): str(row["value"]) for row in found},
        grants=tuple(_grants(session)),
        unlogged=tuple(_unlogged(session)),
        replica=_replica(session),
        ahead=_ahead(session),
    )


def read_log_facts(session: Session, names: Sequence[str]) -> ServerFacts:
    """Read only the variables *names*, the log filters and the replica status; cheap."""
    asked = ", ".join(["%s"] * len(names))
    found = session.ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({asked})", *names)
    return ServerFacts(
        version=session.version,
        mariadb=session.mariadb,
        variables={row["variable_name"].lower(): str(row["value"]) for row in found},
        unlogged=tuple(_unlogged(session)),
        replica=_replica(session),
    )


def table_exists(session: Session, table: str) -> bool:
    """Whether ``database.table`` exists and the user may see it."""
    database, _, name = table.partition(".")
    statement = "SELECT 1 FROM information_schema.tables WHERE table_schema=%s AND table_name=%s"
    return bool(session.ask(statement, database, name))


def _grants(session: Session) -> list[str]:
    """The lines of SHOW GRANTS; roles, granted by lines without ON, are expanded by USING."""
    lines = [str(next(iter(row.values()))) for row in session.ask("SHOW GRANTS")]
    roles = [line.removeprefix("GRANT ").rpartition(" TO ")[0] for line in lines if _role(line)]
    if session.mariadb or not roles:
        return lines
    named = ", ".join(roles).replace("%", "%%")  # a role has a host, which may be %
    using = f"SHOW GRANTS FOR CURRENT_USER() USING {named}"
    return [str(next(iter(row.values()))) for row in session.ask(using)]


def _role(line: str) -> bool:
    return line.startswith("GRANT ") and " ON " not in line


def _unlogged(session: Session) -> list[str]:
    renamed = not session.mariadb and session.version >= (8, 4)
    rows = _allowed(session, f"SHOW {'BINARY LOG' if renamed else 'MASTER'} STATUS")
    return [
        f"{name}={row[name]}"
        for row in rows or ()
        for name in ("binlog_do_db", "binlog_ignore_db")
        if row.get(name)
    ]


def _replica(session: Session) -> bool | None:
    if session.mariadb:  # SHOW SLAVE STATUS shows only the unnamed connection
        rows = _allowed(session, "SHOW ALL SLAVES STATUS")
    else:
        word = "REPLICA" if session.version >= (8, 4) else "SLAVE"
        rows = _allowed(session, f"SHOW {word} STATUS")
    return None if rows is None else bool(rows)


def _ahead(session: Session) -> timedelta:
    """How far the server's clock is ahead, without what the duration of the query may explain."""
    asked = datetime.now(UTC)
    (row,) = session.ask("SELECT UTC_TIMESTAMP(6) AS server_time")
    server_time: datetime = row["server_time"].replace(tzinfo=UTC)
    answered = datetime.now(UTC)
    return max(server_time - answered, timedelta()) or min(server_time - asked, timedelta())


def _allowed(session: Session, statement: str) -> list[Row] | None:
    """The rows of *statement*; None if the user may not run it, which `doctor` reports."""
    try:
        return session.ask(statement)
    except ConfigError:
        return None


OWN = ("information_schema", "mysql", "performance_schema", "sys")
HARMLESS = ("NO ACTION", "RESTRICT")
DATED = ("DATE", "DATETIME", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key by which changes of ``parent`` change rows of the table that declares it."""

    name: str
    parent: str
    rule: str


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A table as its server describes it.

    ``unique`` are the sets of columns that identify a row, the primary key first; ``primary`` is
    whether there is one.  ``rows`` is the engine's estimate, None without one.  ``dated`` are the
    columns for `SourceDescription.dated`.
    """

    shard: Shard
    engine: str = "InnoDB"
    columns: tuple[MySqlColumn, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    primary: bool = False
    cascades: tuple[Cascade, ...] = ()
    rows: int | None = None
    dated: tuple[str, ...] = ()


def read_shard_facts(
    session: Session, source: str, wanted: Callable[[str], bool]
) -> tuple[ShardFacts, ...]:
    """Describe every table (not views) whose ``database.table`` is *wanted*, sorted."""
    tables = session.ask(
        "SELECT table_schema AS d, table_name AS t, engine AS e, table_rows AS n"
        " FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        " AND table_schema NOT IN (%s, %s, %s, %s)",
        *OWN,
    )
    named = {ShardId(row["d"], row["t"]): row for row in tables}
    chosen = {(own.database, own.relation): row for own, row in named.items() if wanted(str(own))}
    found: list[ShardFacts] = []
    for database in sorted({database for database, _ in chosen}):
        columns, indexes, keys = _described(session, database)
        found += [
            ShardFacts(
                Shard(source, str(ShardId(database, name))),
                str(row["e"]),
                tuple(read_column(column) for column in columns[name]),
                tuple(_unique(indexes[name])),
                any(index["index_name"] == "PRIMARY" for index in indexes[name]),
                tuple(_cascade(key) for key in keys[name]),
                None if row["n"] is None else int(row["n"]),
                tuple(_dated(columns[name], indexes[name])),
            )
            for (own, name), row in sorted(chosen.items(), key=lambda one: one[0])
            if own == database
        ]
    return tuple(found)


def _described(session: Session, database: str) -> tuple[Mapping[str, list[Row]], ...]:
    """Columns, indexes and cascading foreign keys of one database, each by table.

    Indexes that are not unique have only their first column.
    """
    used = "'YES'"
    if session.mariadb and session.version >= (10, 6):
        used = "IF(ignored = 'NO', 'YES', 'NO')"
    elif not session.mariadb and session.version >= (8, 0):
        used = "is_visible"
    return (
        _by_table(
            session.ask(
                "SELECT * FROM information_schema.columns WHERE table_schema = %s"
                " ORDER BY table_name, ordinal_position",
                database,
            )
        ),
        _by_table(
            session.ask(
                "SELECT table_name, index_name, column_name, nullable, sub_part, non_unique,"  # noqa: S608
                f" seq_in_index, index_type, {used} AS used FROM information_schema.statistics"
                " WHERE table_schema = %s AND (non_unique = 0 OR seq_in_index = 1)"
                " ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index",
                database,
            )
        ),
        _by_table(
            session.ask(
                "SELECT table_name, constraint_name, unique_constraint_schema,"
                " referenced_table_name, update_rule, delete_rule"
                " FROM information_schema.referential_constraints WHERE constraint_schema = %s"
                " AND (update_rule NOT IN (%s, %s) OR delete_rule NOT IN (%s, %s))",
                *(database, *HARMLESS, *HARMLESS),
            )
        ),
    )


def _by_table(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    tables: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tables[row["table_name"]].append(row)
    return tables


def _unique(indexes: Iterable[Row]) -> list[tuple[str, ...]]:
    """Column sets of the indexes that identify rows: whole columns that are NOT NULL."""
    sets: dict[str, list[Row]] = defaultdict(list)
    for row in indexes:
        if not int(row["non_unique"]):
            sets[row["index_name"]].append(row)
    return [
        tuple(str(row["column_name"]) for row in rows)
        for rows in sets.values()
        if not any(row["nullable"] == "YES" or row["sub_part"] for row in rows)
    ]


def _dated(columns: Iterable[Row], indexes: Iterable[Row]) -> list[str]:
    """The columns for `SourceDescription.dated`; an index that the optimizer ignores is no use."""
    first = {
        row["column_name"]
        for row in indexes
        if int(row["seq_in_index"]) == 1 and row["used"] == "YES"
        if row["index_type"] == "BTREE" and not row["sub_part"]
    }
    return [
        str(row["column_name"])
        for row in columns
        if row["column_name"] in first and row["is_nullable"] != "YES"
        if str(row["data_type"]).upper() in DATED
        if "on update" not in str(row["extra"]).lower()
    ]


def _cascade(row: Row) -> Cascade:
    rules = ((f"ON {on} ", row[f"{on.lower()}_rule"]) for on in ("DELETE", "UPDATE"))
    rule = " ".join(f"{on}{rule}" for on, rule in rules if rule not in HARMLESS)
    parent = f"{row['unique_constraint_schema']}.{row['referenced_table_name']}"
    return Cascade(str(row["constraint_name"]), parent, rule)


LINE = re.compile(r"(GRANT|REVOKE) (.+?) ON (?:TABLE )?(.+) (?:TO|FROM) (.+?)(?: WITH .*)?", re.I)
NAME = r"`((?:[^`]|``)*)`"


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on databases that match a LIKE pattern (``%``: all) and a table (``*``: all)."""

    privileges: frozenset[str]
    database: str
    table: str
    revoked: bool = False

    def covers(self, privilege: str, database: str, table: str) -> bool:
        """Whether it grants or revokes *privilege* on the table."""
        named = privilege in self.privileges or "ALL PRIVILEGES" in self.privileges
        return named and self.table in ("*", table) and _like(self.database, database)


def is_granted(grants: Sequence[Grant], privilege: str, database: str, table: str) -> bool:
    """Whether a grant allows *privilege* on the table, and no revoke takes it away."""
    covering = [grant for grant in grants if grant.covers(privilege, database, table)]
    return any(not g.revoked for g in covering) and not any(g.revoked for g in covering)


def parse_grant(line: str) -> Grant | None:
    """Parse a line of SHOW GRANTS; None for a role, a proxy, or rights on single columns only."""
    match = LINE.fullmatch(line)
    if not match:
        return None
    verb, words, place, _ = match.groups()
    privileges = frozenset(
        word.strip().upper() for word in re.split(r",(?![^(]*\))", words) if "(" not in word
    )
    on = re.fullmatch(rf"(?:\*|{NAME})\.(?:\*|{NAME})", place)
    if not privileges or not on:
        return None
    database = "%" if on[1] is None else on[1].replace("``", "`")
    table = "*" if on[2] is None else on[2].replace("``", "`")
    return Grant(privileges, database, table, revoked=verb.upper() == "REVOKE")


def _like(pattern: str, name: str) -> bool:
    r"""Whether a grant's database pattern, with ``%``, ``_`` and ``\_``, matches *name*."""
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    said = "".join(wild.get(token, re.escape(token[-1])) for token in tokens)
    return re.fullmatch(said, name, re.DOTALL) is not None


LOGGED = (9, 6)  # since this version MySQL's SQL layer executes foreign keys, and logs changes


def describe_source(
    server: ServerFacts, shards: Sequence[ShardFacts], asked: Collection[str]
) -> SourceDescription:
    """Describe the source, and the shards *asked*.

    A server hides tables that its user may not see, so an absent shard may exist: it is ``hidden``.
    An absent shard that the user may read was dropped.
    """
    grants = [grant for line in server.grants if (grant := parse_grant(line))]
    shown = {facts.shard.name for facts in shards}
    hidden = (n for n in asked if n not in shown and not _readable(grants, n))
    unlogged = {
        facts.shard.name: describe_cascades(facts)
        for facts in shards
        if facts.cascades and has_unlogged_cascades(server)
    }
    rows = {facts.shard.name: facts.rows for facts in shards if facts.rows is not None}
    dated = {facts.shard.name: facts.dated for facts in shards if facts.dated}
    return SourceDescription(
        read_log_retention(server.variables), frozenset(hidden), unlogged, rows, dated=dated
    )


def _readable(grants: Sequence[Grant], name: str) -> bool:
    own = ShardId.read(name)
    return is_granted(grants, "SELECT", own.database, own.relation)


def describe_cascades(shard: ShardFacts) -> str:
    """Name the foreign keys whose changes the log omits, even if the parent is captured."""
    rules = sorted(f"{one.parent} {one.rule} ({one.name})" for one in shard.cascades)
    return f"rows changed by foreign keys are not in the log: {'; '.join(rules)}"


def has_unlogged_cascades(server: ServerFacts) -> bool:
    """Whether the log omits rows that foreign keys change."""
    native = server.variables.get("innodb_native_foreign_keys", "OFF").upper() == "ON"
    return server.mariadb or server.version < LOGGED or native


def read_log_retention(variables: Mapping[str, str]) -> timedelta | None:
    """How long a server retains its binary log, by its variables; None if without end."""
    if variables.get("binlog_expire_logs_auto_purge", "ON").upper() in ("OFF", "0"):
        return None
    seconds = int(variables.get("binlog_expire_logs_seconds", 0))
    days = float(variables.get("expire_logs_days", 0))
    return timedelta(seconds=seconds or days * 86_400) or None
