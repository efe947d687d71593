"""What does a MySQL server say of itself and some of its tables, in the words of all sources?

Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from pipeline.model import ShardId
from pipeline.sources.mysql.grants import Grant, may, parse
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.shard_facts import ShardFacts
from pipeline.sources.source import SourceDescription

LOGGED = (9, 6)  # from here on MySQL's SQL layer acts on foreign keys, and logs it


def description(
    server: ServerFacts, shards: Sequence[ShardFacts], asked: Collection[str]
) -> SourceDescription:
    """Sum up what was found of *asked*.

    A server hides what its user may not see, so an absent shard may still be there; one that the
    user would see was dropped.
    """
    grants = [grant for line in server.grants if (grant := parse(line))]
    shown = {facts.shard.name for facts in shards}
    hidden = (n for n in asked if n not in shown and not _readable(grants, n))
    unlogged = {
        facts.shard.name: cascading(facts)
        for facts in shards
        if facts.cascades and cascades_unlogged(server)
    }
    rows = {facts.shard.name: facts.rows for facts in shards if facts.rows is not None}
    return SourceDescription(log_kept(server.variables), frozenset(hidden), unlogged, rows)


def _readable(grants: Sequence[Grant], name: str) -> bool:
    own = ShardId.read(name)
    return may(grants, "SELECT", own.database, own.relation)


def cascading(shard: ShardFacts) -> str:
    """Say which; whether the parent is captured makes no odds to what the log leaves out."""
    rules = sorted(f"{one.parent} {one.rule} ({one.name})" for one in shard.cascades)
    return f"rows changed by foreign keys are in no log: {'; '.join(rules)}"


def cascades_unlogged(server: ServerFacts) -> bool:
    """Whether rows that foreign keys change are in no log."""
    native = server.variables.get("innodb_native_foreign_keys", "OFF").upper() == "ON"
    return server.mariadb or server.version < LOGGED or native


def log_kept(variables: Mapping[str, str]) -> timedelta | None:
    """For how long a MySQL or MariaDB keeps its binary log by its variables; None without end."""
    if variables.get("binlog_expire_logs_auto_purge", "ON").upper() in ("OFF", "0"):
        return None
    seconds = int(variables.get("binlog_expire_logs_seconds", 0))
    days = float(variables.get("expire_logs_days", 0))
    return timedelta(seconds=seconds or days * 86_400) or None
