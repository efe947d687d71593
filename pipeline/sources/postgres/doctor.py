"""Reports settings, slot, grants and tables of a Postgres database that prevent a full mirror.

Rules only; the input comes from `facts`. The doctor prints `collect_findings`. The running service
withholds READY for the table findings of `collect_publication_hazards`. Both use the same rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from re import escape

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding, find_unmet
from pipeline.settings import SourceSettings
from pipeline.sources.doctor import (
    SHARD,
    TableFinding,
    check_clock,
    check_key,
    find_in_tables,
    name_few,
    report_uncompared,
    report_unverifiable,
)
from pipeline.sources.postgres.facts import (
    INDEX,
    NOTHING,
    OPERATIONS,
    WHOLE,
    PostgresFacts,
    PostgresShardFacts,
    PublicationFacts,
    SlotFacts,
    describe_filter,
    find_unidentified,
    why_unsent,
)
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.session import (
    ELSEWHERE,
    display_table,
    heartbeat_ddl,
    quote_for_display,
)
from pipeline.sources.postgres.types import why_unverifiable
from pipeline.sources.source import ExaminationScope, FoldedTable

RESTART = "ALTER SYSTEM SET {name} = '{value}', and a restart of the server"
DEMANDS = (
    Demand("wal_level", "the log does not say which rows changed", good=("logical",)),
    Demand(
        "fsync",
        "after a power cut the server may miss changes that the mirror has",
        good=("on",),
        severity=NOTE,
    ),
    Demand(
        "full_page_writes",
        "after a power cut the server may have damaged pages",
        good=("on",),
        severity=NOTE,
    ),
)
IDLE = "idle_replication_slot_timeout"  # in seconds, since version 18; 0: no timeout
KEPT = "max_slot_wal_keep_size"


def check_settings(
    facts: PostgresFacts, where: str, names: Replication, scope: ExaminationScope
) -> list[Finding]:
    """Findings on the server's settings and clock, and on the publication as a whole."""
    return [
        *find_unmet(DEMANDS, facts.settings, where, remedy=RESTART),
        *_standby(facts, where),
        *_check_free_slots(facts, where),
        *_idle(facts, where, scope.outage),
        *_publication(facts, where, names),
        *check_clock(facts.ahead, where, scope.clock_skew),
    ]


def check_grants(
    facts: PostgresFacts, where: str, heartbeat: str, hidden: Sequence[str]
) -> list[Finding]:
    """Findings on grants of the user; *hidden* are captured tables that it may not read."""
    user = quote_for_display(facts.user)
    found = _heartbeat(facts, where, heartbeat, user)
    if hidden:
        fix = f"GRANT pg_read_all_data TO {user}, or USAGE on the schemas and SELECT on the tables"
        what = f"{user} may not read {name_few(hidden)}"
        found.append(Finding(REFUSE, "grant_select", where, what, fix))
    if not facts.monitor:
        what = f"{user} may not see the load of the server, so limits.running has no effect"
        found.append(Finding(WARN, "grant_monitor", where, what, f"GRANT pg_monitor TO {user}"))
    return found


def _standby(facts: PostgresFacts, where: str) -> list[Finding]:
    if not facts.standby:
        return []
    return [Finding(REFUSE, "standby", where, "the heartbeat cannot be written here", ELSEWHERE)]


def _check_free_slots(facts: PostgresFacts, where: str) -> list[Finding]:
    """Report used-up senders or slots: a connector needs both, with a slot at most a sender."""
    found = []
    taken = {"max_wal_senders": facts.senders, "max_replication_slots": facts.slots}
    for name, used in taken.items():
        most = int(facts.settings.get(name, 1))
        needed = not (facts.slot and (facts.slot.active or name == "max_replication_slots"))
        if needed and used >= most:
            what = f"{name}={most}, and {used} are taken: the connector cannot start"
            fix = RESTART.format(name=name, value=used + 2)
            found.append(Finding(REFUSE, name, where, what, fix))
    return found


def _idle(facts: PostgresFacts, where: str, outage: timedelta) -> list[Finding]:
    seconds = int(facts.settings.get(IDLE, 0))
    if seconds == 0 or seconds >= outage.total_seconds():
        return []
    what = f"{IDLE}={seconds}s: an outage of {outage} would lose the slot, and changes with it"
    fix = f"ALTER SYSTEM SET {IDLE} = 0; SELECT pg_reload_conf()"
    return [Finding(WARN, IDLE, where, what, fix)]


def _publication(facts: PostgresFacts, where: str, names: Replication) -> list[Finding]:
    name = quote_for_display(names.publication)
    if facts.publication is None:
        what = f"publication {names.publication} does not exist in database {names.database}"
        fix = f"CREATE PUBLICATION {name} FOR ALL TABLES, as a superuser; or FOR TABLE a, b, ..."
        return [Finding(REFUSE, "publication", where, what, fix)]
    if not (missing := facts.publication.missing_operations):
        return []
    what = f"publication {names.publication} leaves out every {', '.join(missing)}"
    fix = f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}')"
    return [Finding(REFUSE, "publication", where, what, fix)]


def _heartbeat(facts: PostgresFacts, where: str, heartbeat: str, user: str) -> list[Finding]:
    state, schema = facts.heartbeat, quote_for_display(heartbeat.partition(".")[0])
    steps = []
    if not state.present and not state.creatable:
        steps += list(heartbeat_ddl(heartbeat)[state.schema :])
        steps.append(f"GRANT SELECT, INSERT, UPDATE ON {display_table(heartbeat)} TO {user}")
    tables = [right for right in state.lacking if right != "USAGE"]
    if tables:
        steps.append(f"GRANT {', '.join(tables)} ON {display_table(heartbeat)} TO {user}")
    if "USAGE" in state.lacking or (steps and not state.present):
        steps.append(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
    if not steps:
        return []
    absent = f" {heartbeat} does not exist and may not be created" if not state.present else ""
    rights = f" {', '.join(state.lacking)} is not granted" if state.lacking else ""
    what = f"the heartbeat cannot be written:{';'.join(one for one in (absent, rights) if one)}"
    return [Finding(REFUSE, "grant_heartbeat", where, what, "; ".join(steps))]


UNLIMITED = "-1"
PLUGIN = "pgoutput"


def check_slot(facts: PostgresFacts, where: str, names: Replication) -> list[Finding]:
    """Findings on the slot in the config."""
    return [
        Finding(severity, code, where, what, fix)
        for severity, code, what, fix in _slot_rules(facts, names)
    ]


def _slot_rules(facts: PostgresFacts, names: Replication) -> Iterator[TableFinding]:
    slot = facts.slot
    if slot is None:
        what = (
            f"slot {names.slot} does not exist: no log is retained until the connector creates it"
        )
        yield NOTE, "slot", what, "register the connector (sluice connector)"
        return
    yield from _check_slot_origin(slot, names)
    yield from _check_slot_status(slot)
    if not slot.active:
        kept = format_bytes(slot.retained or 0)
        what = f"slot {slot.name} has no reader and retains {kept} of the log"
        yield WARN, "slot_idle", what, "start the connector; the disk fills until it reads on"
    if facts.settings.get(KEPT) == UNLIMITED:
        what = f"{KEPT}=-1: while the connector is stopped, the log grows until the disk is full"
        fix = f"ALTER SYSTEM SET {KEPT} = '...GB', less than the disk has; SELECT pg_reload_conf()"
        yield NOTE, KEPT, what, fix


def _check_slot_origin(slot: SlotFacts, names: Replication) -> Iterator[TableFinding]:
    drop = f"SELECT pg_drop_replication_slot('{slot.name}'), then a new base of all its tables"
    if slot.plugin != PLUGIN:
        what = f"slot {slot.name} is of plugin {slot.plugin or 'none'}, not {PLUGIN}"
        yield REFUSE, "slot", what, drop
    elif slot.database != names.database:
        what = f"slot {slot.name} is of database {slot.database}, not {names.database}"
        yield REFUSE, "slot", what, "name another slot in options of the source"


def _check_slot_status(slot: SlotFacts) -> Iterator[TableFinding]:
    if slot.status == "lost":
        what = f"slot {slot.name} is lost: the server has removed log that was not read"
        fix = f"SELECT pg_drop_replication_slot('{slot.name}'), then a new base of all its tables"
        yield REFUSE, "slot_lost", what, fix
    elif slot.status == "unreserved":
        what = f"slot {slot.name} no longer retains its log: the next checkpoint may remove it"
        fix = (
            f"ALTER SYSTEM SET {KEPT} = -1; SELECT pg_reload_conf(); and let the connector catch up"
        )
        yield REFUSE, "slot_lost", what, fix


def format_bytes(number: int) -> str:
    """Format a number of bytes for messages."""
    for unit, step in (("GB", 2**30), ("MB", 2**20)):
        if number >= step:
            return f"{number / step:.1f} {unit}"
    return f"{number} bytes"


ROWS = Demand(
    "row filter of the publication",
    "rows for which it does not hold are not sent",
    effect=Effect.DROPS,
)
COLUMNS = Demand(
    "column list of the publication",
    "columns that it leaves out are not sent",
    severity=WARN,
    effect=Effect.REWRITES,
)
OTHER_INDEX = Demand(
    "REPLICA IDENTITY USING INDEX without the key",
    "a deleted row is sent without its key, and remains in the mirror",
    effect=Effect.DROPS,
)
NO_IDENTITY = Demand(
    "REPLICA IDENTITY NOTHING",
    "the log does not say which row is changed; while it is published, UPDATE and DELETE fail",
    severity=WARN,
    effect=Effect.DELAYS,
)
ROW_SECURITY = Demand(
    "row-level security",
    "the connector's snapshots contain only the rows that policies show to its user",
    effect=Effect.DROPS,
)
TABLE_DEMANDS = (ROWS, COLUMNS, OTHER_INDEX, NO_IDENTITY, ROW_SECURITY)
FULL = f"ALTER TABLE {SHARD} REPLICA IDENTITY FULL"


@dataclass(frozen=True, slots=True)
class _Harm:
    """A demand that a table does not meet; ``value`` identifies the setting in any wording."""

    demand: Demand
    value: str
    finding: TableFinding


def collect_publication_hazards(
    shards: Iterable[PostgresShardFacts], publication: str, where: str
) -> tuple[Finding, ...]:
    """Settings that drop or rewrite changes of published *shards*, one finding per table.

    The keys of the config are unknown here, so a finding lists the keys that are safe.
    """
    found = {
        _hazard(shard, harm, where)
        for shard in shards
        for harm in (
            *_left_out(shard, publication),
            *_hidden_rows(shard),
            *_harmful_identity(shard, next(iter(shard.unique), ())),
        )
    }
    return tuple(sorted(found, key=lambda one: one.what))


def _hazard(shard: PostgresShardFacts, harm: _Harm, where: str) -> Finding:
    severity, code, what, fix = harm.finding
    demand, name = harm.demand, shard.shard.name
    return Finding(
        severity,
        code,
        where,
        f"{demand.name} on {name}: {what}",
        fix.replace(SHARD, name),
        demand.effect,
        escape(name),
        shard.identified if demand is OTHER_INDEX else (),
        setting=f"{name}: {harm.value}",
    )


def check_tables(
    shards: Sequence[PostgresShardFacts],
    publication: PublicationFacts | None,
    names: Replication,
    fold: Callable[[str], FoldedTable | None],
    *,
    topic_keys: bool = False,
) -> list[Finding]:
    """Findings on all shards; equal findings of the shards of one table become one.

    *fold* returns None for a shard that the config ignores.  *topic_keys*: the connector sets its
    own keys.
    """

    def rules(shard: PostgresShardFacts, into: FoldedTable) -> Iterator[TableFinding]:
        not_null = {*shard.columns} - {*shard.nullable}
        yield from _sent(shard, publication, names)
        yield from check_key(into.key, shard.unique, not_null, topic_keys=topic_keys)
        yield from identity_findings(shard, into)
        yield from (harm.finding for harm in _hidden_rows(shard))
        yield from _unreadable_rows(shard)
        yield from report_unverifiable([why for c in shard.typed if (why := why_unverifiable(c))])
        known = {c.name for c in shard.typed if not why_unverifiable(c)}
        yield from report_uncompared(shard.typed, known)

    return find_in_tables(shards, fold, rules)


def _sent(
    shard: PostgresShardFacts, publication: PublicationFacts | None, names: Replication
) -> list[TableFinding]:
    """Report a shard that is not sent, or not whole; `_publication` reports the publication."""
    if publication is None:
        return []
    name = quote_for_display(names.publication)
    if not shard.logged:
        what, fix = (
            why_unsent(shard, publication, names.publication),
            f"ALTER TABLE {SHARD} SET LOGGED",
        )
        return [(REFUSE, "unlogged", what, fix)]
    if shard.published is None:
        what = why_unsent(shard, publication, names.publication)
        return [(REFUSE, "unpublished", what, f"ALTER PUBLICATION {name} ADD TABLE {SHARD}")]
    return [harm.finding for harm in _left_out(shard, names.publication)][:1]


def _left_out(shard: PostgresShardFacts, publication: str) -> Iterator[_Harm]:
    """Yield the row filter and the omitted columns of the publication for a shard."""
    name, sent = quote_for_display(publication), shard.published
    again = (
        f"ALTER PUBLICATION {name} DROP TABLE {SHARD}; ALTER PUBLICATION {name} ADD TABLE {SHARD}"
    )
    if sent is not None and sent.rows:
        what = describe_filter(sent, publication)
        found = (ROWS.severity, "unpublished", what, again)
        yield _Harm(ROWS, f"{publication} {sent.rows}", found)
    if sent is not None and sent.left_out:
        columns = ", ".join(sent.left_out)
        what = f"publication {publication} leaves out {columns}"
        what += ": the mirror does not have these columns"
        found = (COLUMNS.severity, "columns_unpublished", what, again)
        yield _Harm(COLUMNS, f"{publication} {columns}", found)


def _hidden_rows(shard: PostgresShardFacts) -> Iterator[_Harm]:
    """Yield policies that hide rows from the connector's snapshots, which report no error."""
    if user := shard.hidden_from:
        what = f"policies hide rows from {user}, which reads the slot: snapshots leave them out"
        fix = f"ALTER ROLE {quote_for_display(user)} BYPASSRLS, then a new base of {SHARD}"
        yield _Harm(ROW_SECURITY, f"hidden from {user}", (REFUSE, "row_security", what, fix))


def _unreadable_rows(shard: PostgresShardFacts) -> Iterator[TableFinding]:
    if shard.filtered:
        what = "policies hide rows from Sluice's user, so the server rejects each of its reads"
        fix = "ALTER ROLE ... BYPASSRLS for the user that the source names"
        yield REFUSE, "row_security", what, fix
    if shard.inherited:
        what = (
            "other tables inherit from it: a snapshot of the connector contains their rows, too,"
            " and no later change of them"
        )
        yield WARN, "inherited", what, f"after each snapshot, a bootstrap of {SHARD}"


def identity_findings(shard: PostgresShardFacts, into: FoldedTable) -> list[TableFinding]:
    """Findings on the replica identity, the sent columns of old rows: it must contain the key."""
    if shard.identity == WHOLE or shard.published is None:
        return []
    key = into.key or next(iter(shard.unique), ())
    harmful = [harm.finding for harm in _harmful_identity(shard, key)]
    if harmful or shard.identity == INDEX:
        return harmful
    return [_no_identity()] if not shard.identified else _key_not_sent(shard, key)


def _harmful_identity(shard: PostgresShardFacts, key: Sequence[str]) -> Iterator[_Harm]:
    if shard.identity == NOTHING or (shard.identity == INDEX and not shard.identified):
        yield _Harm(NO_IDENTITY, shard.identity, _no_identity())
    elif shard.identity == INDEX:
        absent = ", ".join(find_unidentified(shard, key))
        found = _key_not_sent(shard, key)
        yield from (_Harm(OTHER_INDEX, f"{INDEX} {absent}", one) for one in found)


def _no_identity() -> TableFinding:
    what = "it has no replica identity: the server rejects every UPDATE and DELETE of it"
    return NO_IDENTITY.severity, "replica_identity", what, FULL


def _key_not_sent(shard: PostgresShardFacts, key: Sequence[str]) -> list[TableFinding]:
    absent = find_unidentified(shard, key)
    if not absent:
        return []
    what = f"a deleted row is sent without {', '.join(absent)} of its key: it would remain"
    return [(OTHER_INDEX.severity, "replica_identity", what, FULL)]


def collect_findings(
    settings: SourceSettings,
    names: Replication,
    server: PostgresFacts,
    shards: Sequence[PostgresShardFacts],
    scope: ExaminationScope,
    *,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Findings on settings, the slot, then grants, then the captured *shards*.

    *elsewhere*: captured shard -> why its changes are sent under the name of another table.
    """

    def fold(shard: str) -> FoldedTable | None:
        """Fold shards; the heartbeat table, too, must be sent like a table."""
        return FoldedTable(shard) if shard == settings.heartbeat else scope.fold(shard)

    where = f"source:{settings.name}"
    tables = [one for one in shards if one.shard.name != settings.heartbeat]
    hidden = [one.shard.name for one in tables if not one.readable and scope.fold(one.shard.name)]
    return (
        *check_settings(server, where, names, scope),
        *check_slot(server, where, names),
        *check_grants(server, where, settings.heartbeat, hidden),
        *check_tables(shards, server.publication, names, fold, topic_keys=scope.own_keys),
        *_elsewhere(elsewhere or {}, scope),
    )


def _elsewhere(reasons: Mapping[str, str], scope: ExaminationScope) -> Iterator[Finding]:
    fix = "remove it from the connector's table.include.list, or ignore it under tables"
    for shard, why in sorted(reasons.items()):
        if (into := scope.fold(shard)) is not None:
            what = f"{shard}: {why}: its mirror does not change after the snapshot"
            yield Finding(WARN, "sent_elsewhere", f"table {into.table}", what, fix)
