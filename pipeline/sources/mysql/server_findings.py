"""Does the source write a log from which every row can be told?

Cannot see: sessions that set ``sql_log_bin`` or ``binlog_format`` for themselves.  Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding, unmet
from pipeline.sources.findings import of_clock
from pipeline.sources.mysql.description import log_kept
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.scope import ExaminationScope

RELAYING = ("log_replica_updates", "log_slave_updates")
REMEDY = "SET GLOBAL {name} = '{value}', and {name}={value} in the server's option file"
STEPS = (
    "gtid_mode=ON and enforce_gtid_consistency=ON; while running: SET GLOBAL"
    " enforce_gtid_consistency = ON, then gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON"
)
DEMANDS = (
    Demand(
        "log_bin",
        "without a binary log there are no changes to read",
        good=("on",),
        fix="log_bin=binlog in the server's option file, and a restart",
    ),
    Demand(
        "binlog_format",
        "statements do not say which rows they changed",
        good=("row",),
        effect=Effect.DROPS,
    ),
    Demand(
        "binlog_row_image",
        "columns are missing from the images of rows",
        good=("full",),
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_row_value_options",
        "an update of JSON is logged as a difference only",
        bad=("partial_json",),
        fix="SET GLOBAL binlog_row_value_options = '', and the same in the server's option file",
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_transaction_compression",
        "all rows of a transaction get one position, so their order is lost",
        good=("off",),
        effect=Effect.REWRITES,
    ),
    Demand(
        "binlog_order_commits",
        "transactions become visible in another order than that of the log",
        good=("on",),
        effect=Effect.DELAYS,
    ),
    Demand(
        "binlog_error_action",
        "after an error of its log the server goes on without one",
        good=("abort_server",),
        effect=Effect.DROPS,
    ),
    Demand(
        "read_only",
        "the heartbeat cannot be written here",
        good=("off",),
        fix="name the server that takes writes under sources, and let the connector read it",
    ),
    Demand(
        "gtid_mode",
        "completeness can be proven by position only, and not across a fail-over",
        good=("on",),
        severity=WARN,
        fix=STEPS,
    ),
    Demand(
        "binlog_row_metadata",
        "the log does not say names, signs and labels of columns",
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
"""Variables that `hazards` goes by."""


def hazards(facts: ServerFacts, where: str) -> tuple[Finding, ...]:
    """What in the settings drops, rewrites or delays changes, whatever tables are captured."""
    found = (
        *unmet(DEMANDS, facts.variables, where, remedy=REMEDY),
        *(_unlogged_from(line, where) for line in facts.unlogged),
        *_relayed(facts, where),
        *_replicating(facts, where),
    )
    return tuple(one for one in found if one.effect is not Effect.NONE)


def server_findings(
    facts: ServerFacts, where: str, databases: Iterable[str], scope: ExaminationScope
) -> list[Finding]:
    """Rule on the settings of a server whose *databases* are captured."""
    return [
        *unmet(DEMANDS, facts.variables, where, remedy=REMEDY),
        *_unlogged(facts.unlogged, where, sorted(set(databases))),
        *_relayed(facts, where),
        *_replicating(facts, where),
        *_short(facts, where, scope.outage),
        *of_clock(facts.ahead, where, scope.clock_skew),
    ]


def _unlogged(unlogged: Sequence[str], where: str, databases: Sequence[str]) -> list[Finding]:
    found = []
    for line in unlogged:
        name, _, value = line.partition("=")
        listed = {database.strip() for database in value.split(",")}
        only = name == "binlog_do_db"
        lost = [database for database in databases if (database in listed) != only]
        if lost:
            what = f"{line}: changes of {', '.join(lost)} are not in the log"
            found.append(replace(_unlogged_from(line, where), what=what))
    return found


def _unlogged_from(line: str, where: str) -> Finding:
    """Of all tables of databases that are left out."""
    name, _, value = line.partition("=")
    listed = "|".join(re.escape(database.strip()) for database in value.split(","))
    shards = rf"(?!(?:{listed})\.).+" if name == "binlog_do_db" else rf"(?:{listed})\..+"
    what = f"{line}: changes of other databases are not in the log"
    if name != "binlog_do_db":
        what = f"{line}: changes of these databases are not in the log"
    fix = f"remove {name} from the server's option file, and restart it"
    return Finding(REFUSE, name, where, what, fix, Effect.DROPS, shards)


def _replicating(facts: ServerFacts, where: str) -> list[Finding]:
    """The heartbeat that is written here says nothing of what has not been replicated yet."""
    if not facts.replica:
        return []
    what = (
        "it is a replica: heartbeats are written here, so a cut is proven for what this server has"
        " applied, not for what its primary has committed"
    )
    fix = (
        "name the primary under sources and let the connector read it; on a server that was"
        " promoted: STOP REPLICA; RESET REPLICA ALL; or waive what the gate then names"
    )
    return [Finding(WARN, "replica", where, what, fix, Effect.DELAYS)]


def _relayed(facts: ServerFacts, where: str) -> list[Finding]:
    name = next((n for n in RELAYING if n in facts.variables), None)
    if name is None or facts.variables[name].upper() == "ON" or facts.replica is False:
        return []
    certain = "it is a replica" if facts.replica else "if it is a replica (it does not tell)"
    what = f"{name}=OFF: {certain}, changes that it replicates are not in its log"
    fix = f"{name}=ON in the server's option file, and a restart"
    effect = Effect.DROPS if facts.replica else Effect.NONE
    return [Finding(REFUSE if facts.replica else WARN, name, where, what, fix, effect)]


def _short(facts: ServerFacts, where: str, outage: timedelta) -> list[Finding]:
    kept = log_kept(facts.variables)
    if kept is None or kept >= outage:
        return []
    seconds = int(facts.variables.get("binlog_expire_logs_seconds", 0))
    name = "binlog_expire_logs_seconds" if seconds else "expire_logs_days"
    wanted = int(outage.total_seconds()) if seconds else -(-outage // timedelta(days=1))
    what = f"{name}: the log is kept for {kept}, an outage of {outage} would lose changes"
    fix = f"SET GLOBAL {name} = {wanted}, and the same in the server's option file"
    return [Finding(WARN, "log_retention", where, what, fix)]
