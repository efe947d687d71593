"""Reports settings, grants and tables of a MySQL server that prevent a complete mirror.

Rules only; the input comes from `facts`. The doctor prints `collect_findings`. The running service
uses `collect_hazards`: settings that drop, rewrite or delay changes of any table.

Cannot detect: sessions that set `sql_log_bin` or `binlog_format` for themselves.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from shlex import quote

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding, find_unmet
from pipeline.model import ShardId
from pipeline.settings import SourceSettings
from pipeline.sources.doctor import (
    NOT_COMPARED,
    SHARD,
    TableFinding,
    check_clock,
    check_key,
    find_in_tables,
    name_few,
    report_uncompared,
    report_unverifiable,
)
from pipeline.sources.mysql.facts import (
    LINE,
    Grant,
    ServerFacts,
    ShardFacts,
    describe_cascades,
    has_unlogged_cascades,
    is_granted,
    parse_grant,
    read_log_retention,
)
from pipeline.sources.mysql.session import heartbeat_ddl
from pipeline.sources.mysql.types import is_rounded, why_unverifiable
from pipeline.sources.source import ExaminationScope, FoldedTable

WATCH = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER")  # the second is MariaDB's new name
HEARTBEAT_RIGHTS = ("SELECT", "INSERT", "UPDATE")


def check_grants(
    facts: ServerFacts, where: str, heartbeat: str, *, present: bool, tables: Iterable[str]
) -> list[Finding]:
    """Findings on missing grants.

    *present*: the heartbeat table exists.  *tables* are the names (``database.table``) of captured
    tables that are known; a server hides tables that its user may not see.
    """
    grants = [grant for line in facts.grants if (grant := parse_grant(line))]
    user = _user(facts.grants)
    found = []
    if not any(is_granted(grants, privilege, "", "*") for privilege in WATCH):
        what = f"{user} may not read the position of the log"
        fix = f"GRANT REPLICATION CLIENT ON *.* TO {user}"
        found.append(Finding(REFUSE, "grant_log", where, what, fix))
    listed = facts.mariadb or facts.version < (8, 0)  # there, every user may list them
    if not listed and not is_granted(grants, "XA_RECOVER_ADMIN", "", "*"):
        what = f"{user} may not list prepared XA transactions, so no table can be backfilled"
        what += " (bootstrap, repair, replay)"
        fix = f"GRANT XA_RECOVER_ADMIN ON *.* TO {user}"
        found.append(Finding(REFUSE, "grant_xa", where, what, fix))
    found += _heartbeat(grants, where, user, heartbeat, present=present)
    owns = {name: ShardId.read(name) for name in sorted(set(tables))}
    hidden = [
        name
        for name, own in owns.items()
        if not is_granted(grants, "SELECT", own.database, own.relation)
    ]
    if hidden:
        what = f"{user} may not read {name_few(hidden)}"
        fix = "; ".join(
            f"GRANT SELECT ON `{database}`.* TO {user}"
            for database in sorted({owns[name].database for name in hidden})
        )
        found.append(Finding(REFUSE, "grant_select", where, what, fix))
    return found


def _heartbeat(
    grants: Sequence[Grant], where: str, user: str, heartbeat: str, *, present: bool
) -> list[Finding]:
    database, _, table = heartbeat.partition(".")
    lacking = [
        right for right in HEARTBEAT_RIGHTS if not is_granted(grants, right, database, table)
    ]
    creates = present or is_granted(grants, "CREATE", database, table)
    if not lacking and creates:
        return []
    steps = [] if creates else list(heartbeat_ddl(heartbeat))
    if lacking:
        steps.append(f"GRANT {', '.join(HEARTBEAT_RIGHTS)} ON `{database}`.`{table}` TO {user}")
    absent = "" if creates else f" {heartbeat} does not exist or is hidden, and cannot be created;"
    rights = f" {', '.join(lacking)} on it is not granted;" if lacking else ""
    what = f"the heartbeat cannot be written:{absent}{rights}".rstrip(";")
    return [Finding(REFUSE, "grant_heartbeat", where, what, "; ".join(steps))]


def _user(lines: Iterable[str]) -> str:
    users = [match[4] for line in lines if (match := LINE.fullmatch(line))]
    return users[0].partition(" IDENTIFIED")[0] if users else "the user"


RELAYING = ("log_replica_updates", "log_slave_updates")
REMEDY = "SET GLOBAL {name} = '{value}', and {name}={value} in the server's option file"
STEPS = (
    "gtid_mode=ON and enforce_gtid_consistency=ON; while running: SET GLOBAL"
    " enforce_gtid_consistency = ON, then gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON"
)
DEMANDS = (
    Demand(
        "log_bin",
        "without a binary log no changes can be read",
        good=("on",),
        fix="log_bin=binlog in the server's option file, and a restart",
    ),
    Demand(
        "binlog_format",
        "a logged statement does not say which rows it changed",
        good=("row",),
        effect=Effect.DROPS,
    ),
    Demand(
        "binlog_row_image",
        "columns are missing in row images",
        good=("full",),
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_row_value_options",
        "an update of JSON is logged only as a difference",
        bad=("partial_json",),
        fix="SET GLOBAL binlog_row_value_options = '', and the same in the server's option file",
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_transaction_compression",
        "all rows of a transaction have one position, so their order is lost",
        good=("off",),
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_order_commits",
        "transactions become visible in another order than in the log",
        good=("on",),
        effect=Effect.DELAYS,
    ),
    Demand(
        "binlog_error_action",
        "after a log error the server continues without a log",
        good=("abort_server",),
        effect=Effect.DROPS,
    ),
    Demand(
        "log_bin_compress",
        "Debezium ignores the compressed row events of MariaDB",
        good=("off",),
        effect=Effect.DROPS,
    ),
    Demand(
        "wsrep_on",
        "a heartbeat of this Galera node does not cover what other nodes have"
        " committed and this one has not applied yet",
        good=("off",),
        severity=WARN,
        fix="waive the blocks that the gate names, if READY may speak of this node only",
        effect=Effect.DELAYS,
    ),
    Demand(
        "group_replication_single_primary_mode",
        "with several primaries, a heartbeat that is written on this one does not cover what"
        " others have committed and this one has not applied yet",
        good=("on",),
        severity=WARN,
        fix="SELECT group_replication_switch_to_single_primary_mode(), and name the primary under"
        " sources; or waive the blocks that the gate names",
        effect=Effect.DELAYS,
    ),
    Demand(
        "read_only",
        "the heartbeat cannot be written here",
        good=("off",),
        fix="name the server that takes writes under sources, and let the connector read it",
    ),
    Demand(
        "gtid_mode",
        "completeness can be proven only by position, and not across a failover",
        good=("on",),
        severity=WARN,
        fix=STEPS,
    ),
    Demand(
        "binlog_row_metadata",
        "the log does not have names, signs and labels of columns",
        good=("full",),
        severity=WARN,
    ),
    Demand(
        "sync_binlog",
        "after a power cut the server may miss changes that the mirror has",
        good=("1",),
        severity=NOTE,
    ),
    Demand(
        "innodb_flush_log_at_trx_commit",
        "after a power cut the server may miss changes that the mirror has",
        good=("1",),
        severity=NOTE,
    ),
)


ASKED = (*(one.name for one in DEMANDS if one.effect is not Effect.NONE), *RELAYING)
"""Variables that `collect_hazards` needs."""


def collect_hazards(facts: ServerFacts, where: str) -> tuple[Finding, ...]:
    """Settings that drop, rewrite or delay changes, regardless of the captured tables."""
    found = (
        *find_unmet(DEMANDS, facts.variables, where, remedy=REMEDY),
        *(_filter_finding(line, where) for line in facts.unlogged),
        *_check_relaying(facts, where),
        *_check_replica(facts, where),
    )
    return tuple(one for one in found if one.effect is not Effect.NONE)


def check_settings(
    facts: ServerFacts, where: str, databases: Iterable[str], scope: ExaminationScope
) -> list[Finding]:
    """Findings on the settings of a server; *databases* are the captured ones."""
    return [
        *find_unmet(DEMANDS, facts.variables, where, remedy=REMEDY),
        *_check_filters(facts.unlogged, where, sorted(set(databases))),
        *_check_relaying(facts, where),
        *_check_replica(facts, where),
        *_check_retention(facts, where, scope.outage),
        *check_clock(facts.ahead, where, scope.clock_skew),
    ]


def _check_filters(unlogged: Sequence[str], where: str, databases: Sequence[str]) -> list[Finding]:
    found = []
    for line in unlogged:
        name, _, value = line.partition("=")
        listed = {database.strip() for database in value.split(",")}
        only = name == "binlog_do_db"
        lost = [database for database in databases if (database in listed) != only]
        if lost:
            what = f"{line}: changes of {', '.join(lost)} are not in the log"
            found.append(replace(_filter_finding(line, where), what=what))
    return found


def _filter_finding(line: str, where: str) -> Finding:
    """The finding for all tables of the databases that the log omits."""
    name, _, value = line.partition("=")
    listed = "|".join(re.escape(database.strip()) for database in value.split(","))
    shards = rf"(?!(?:{listed})\.).+" if name == "binlog_do_db" else rf"(?:{listed})\..+"
    what = f"{line}: changes of other databases are not in the log"
    if name != "binlog_do_db":
        what = f"{line}: changes of these databases are not in the log"
    fix = f"remove {name} from the server's option file, and restart it"
    return Finding(REFUSE, name, where, what, fix, Effect.DROPS, shards, setting=line)


def _check_replica(facts: ServerFacts, where: str) -> list[Finding]:
    """Warn if the server is a replica: its heartbeats do not cover changes not replicated yet."""
    if facts.replica is False:
        return []
    if facts.replica is None:
        what = (
            "whether it is a replica is unknown, as Sluice's user may not ask: heartbeats that are"
            " written on a replica do not cover what its primary has committed"
        )
        right = "SLAVE MONITOR" if facts.mariadb else "REPLICATION CLIENT"
        fix = f"GRANT {right} ON *.* TO the user that the source names"
        if facts.mariadb:
            fix += " (before MariaDB 10.5.9: REPLICATION CLIENT)"
        unknown = "replica=unknown"
        return [Finding(WARN, "replica", where, what, fix, Effect.DELAYS, setting=unknown)]
    what = (
        "it is a replica: heartbeats are written here, so a cut is proven for what this server has"
        " applied, not for what its primary has committed"
    )
    fix = (
        "name the primary under sources and let the connector read it; on a server that was"
        " promoted: STOP REPLICA; RESET REPLICA ALL; or waive the blocks that the gate names"
    )
    return [Finding(WARN, "replica", where, what, fix, Effect.DELAYS, setting="replica")]


def _check_relaying(facts: ServerFacts, where: str) -> list[Finding]:
    name = next((n for n in RELAYING if n in facts.variables), None)
    if name is None or facts.variables[name].upper() == "ON" or facts.replica is False:
        return []
    certain = "it is a replica" if facts.replica else "if it is a replica (its user may not ask)"
    setting = f"{name}=OFF"
    what = f"{setting}: {certain}, replicated changes are not in its log"
    fix = f"{name}=ON in the server's option file, and a restart"
    effect = Effect.DROPS if facts.replica else Effect.DELAYS  # while it is unknown
    severity = REFUSE if facts.replica else WARN
    return [Finding(severity, name, where, what, fix, effect, setting=setting)]


def _check_retention(facts: ServerFacts, where: str, outage: timedelta) -> list[Finding]:
    kept = read_log_retention(facts.variables)
    if kept is None or kept >= outage:
        return []
    seconds = int(facts.variables.get("binlog_expire_logs_seconds", 0))
    name = "binlog_expire_logs_seconds" if seconds else "expire_logs_days"
    wanted = int(outage.total_seconds()) if seconds else -(-outage // timedelta(days=1))
    what = f"{name}: the log is retained for {kept}, an outage of {outage} would lose changes"
    fix = f"SET GLOBAL {name} = {wanted}, and the same in the server's option file"
    return [Finding(WARN, "log_retention", where, what, fix)]


LONGEST = {  # largest size of a value in bytes
    **dict.fromkeys(("MEDIUMTEXT", "MEDIUMBLOB"), 2**24),
    **dict.fromkeys(("LONGTEXT", "LONGBLOB", "JSON"), 2**32),
}
TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster")


def check_tables(
    shards: Sequence[ShardFacts],
    server: ServerFacts,
    fold: Callable[[str], FoldedTable | None],
    *,
    topic_keys: bool = False,
    largest: int | None = None,
) -> list[Finding]:
    """Findings on all shards; equal findings of the shards of one table become one.

    *fold* returns None for a shard that the config ignores.  *topic_keys*: the connector sets its
    own keys.  *largest* is the size in bytes of the largest record that the connector can send.
    """

    def rules(shard: ShardFacts, into: FoldedTable) -> Iterator[TableFinding]:
        yield from _key(shard, into, topic_keys=topic_keys)
        yield from _cascades(shard, server, into.table)
        yield from _engine(shard)
        yield from _columns(shard, server)
        yield from _rounded(shard)
        yield from _too_large(shard, server, largest)

    return find_in_tables(shards, fold, rules)


def allows_zero_dates(server: ServerFacts) -> bool:
    """Whether ``0000-00-00`` is allowed: NO_ZERO_DATE rejects it only in strict mode."""
    modes = set(server.variables.get("sql_mode", "").upper().split(","))
    if "TRADITIONAL" in modes:
        return False
    return "NO_ZERO_DATE" not in modes or not modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}


def _key(shard: ShardFacts, into: FoldedTable, *, topic_keys: bool) -> list[TableFinding]:
    not_null = {column.name for column in shard.columns if not column.nullable}
    found = check_key(into.key, shard.unique, not_null, topic_keys=topic_keys)
    return found if topic_keys or not into.key else [*_key_sent(shard, into.key), *found]


def _key_sent(shard: ShardFacts, key: tuple[str, ...]) -> list[TableFinding]:
    """Report a *key* other than the primary key, which the connector sends by default."""
    sent = shard.unique[0] if shard.primary else ()
    if set(sent) == set(key):
        return []
    what = f"key: is {', '.join(key)}, the connector sends ({', '.join(sent)}): updates are lost"
    fix = f"message.key.columns={SHARD}:{','.join(key)} in the connector, then a new base"
    return [(REFUSE, "key_sent", what, fix)]


def _cascades(shard: ShardFacts, server: ServerFacts, table: str) -> list[TableFinding]:
    if not shard.cascades or not has_unlogged_cascades(server):
        return []
    fix = (
        "change these rows in the application, and drop the rule of the foreign key; or use MySQL"
        f" 9.6 with innodb_native_foreign_keys=OFF; or waive the blocks that"
        f" `sluice explain {quote(table)}` shows"
    )
    return [(WARN, "unproven", describe_cascades(shard), fix)]


def _engine(shard: ShardFacts) -> list[TableFinding]:
    if shard.engine.lower() in TRANSACTIONAL:
        return []
    what = f"engine {shard.engine} has no transactions: its snapshot has no position in the log"
    return [(WARN, "engine", what, f"ALTER TABLE {SHARD} ENGINE=InnoDB")]


def _columns(shard: ShardFacts, server: ServerFacts) -> list[TableFinding]:
    zero = allows_zero_dates(server)
    whys = [why for c in shard.columns if (why := why_unverifiable(c, zero_dates=zero))]
    avoidable = zero and any("0000-00-00" in why for why in whys)
    fix = (
        "sql_mode with STRICT_TRANS_TABLES and NO_ZERO_DATE, once no row holds one"
        if avoidable
        else NOT_COMPARED
    )
    known = {c.name for c in shard.columns if not why_unverifiable(c, zero_dates=zero)}
    return [*report_unverifiable(whys, fix), *report_uncompared(shard.columns, known)]


def _too_large(shard: ShardFacts, server: ServerFacts, largest: int | None) -> list[TableFinding]:
    """Report columns whose values may exceed *largest*: one such row stops the whole source."""
    if largest is None:
        return []
    packet = server.variables.get("max_allowed_packet", "")
    most = int(packet) if packet.isdigit() else LONGEST["LONGTEXT"]
    sizes = {c.name: min(LONGEST.get(c.kind.upper(), 0), most) for c in shard.columns}
    names = [name for name, size in sizes.items() if size > largest]
    if not names:
        return []
    what = (
        f"{', '.join(names)} may hold more than the {largest} bytes of a record: one such row"
        " stops the whole source"
    )
    fix = (
        "raise producer.override.max.request.size of the connector (sluice connector SOURCE"
        " --apply), message.max.bytes of the brokers, and max.message.bytes of topics that set it"
    )
    return [(WARN, "too_large", what, fix)]


def _rounded(shard: ShardFacts) -> list[TableFinding]:
    names = [column.name for column in shard.columns if is_rounded(column)]
    if not names:
        return []
    what = (
        f"FLOAT in {', '.join(names)}: a snapshot rounds it to six digits, so a row that was not"
        " changed since differs in the mirror, and no check detects it"
    )
    fix = (  # no statement: it would drop attributes that are unknown here
        f"where more digits matter: make {', '.join(names)} of {SHARD} DOUBLE by ALTER TABLE ..."
        " MODIFY with all else of their definitions (NOT NULL, DEFAULT: MODIFY takes away what is"
        " left out), then a new base; else nothing"
    )
    return [(WARN, "rounded", what, fix)]


def collect_findings(
    settings: SourceSettings,
    server: ServerFacts,
    shards: Sequence[ShardFacts],
    scope: ExaminationScope,
    *,
    heartbeat: bool,
) -> tuple[Finding, ...]:
    """Findings on settings, then grants, then the captured *shards*.

    *heartbeat*: the heartbeat table exists.
    """
    where = f"source:{settings.name}"
    tables = {shard.shard.name for shard in shards}
    databases = {ShardId.read(name).database for name in tables}
    return (
        *check_settings(server, where, databases, scope),
        *check_grants(
            server,
            where,
            settings.heartbeat,
            present=heartbeat,
            tables=(tables | scope.named) - {settings.heartbeat},
        ),
        *check_tables(shards, server, scope.fold, topic_keys=scope.own_keys, largest=scope.largest),
    )
