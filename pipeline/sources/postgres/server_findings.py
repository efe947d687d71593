"""Can the server be replicated, and does nothing of it end by itself?  Pure."""

from collections.abc import Sequence
from datetime import timedelta

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Finding, unmet
from pipeline.sources.findings import of_clock
from pipeline.sources.postgres.heartbeat import creation, named
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import OPERATIONS, PostgresFacts
from pipeline.sources.postgres.session import ELSEWHERE, spelled
from pipeline.sources.scope import ExaminationScope

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
        "after a power cut the server may hold torn pages",
        good=("on",),
        severity=NOTE,
    ),
)
IDLE = "idle_replication_slot_timeout"  # in seconds, since version 18; 0: none
KEPT = "max_slot_wal_keep_size"


def server_findings(
    facts: PostgresFacts, where: str, names: Replication, scope: ExaminationScope
) -> list[Finding]:
    """Rule on its settings, the publication as a whole, and its clock."""
    return [
        *unmet(DEMANDS, facts.settings, where, remedy=RESTART),
        *_standby(facts, where),
        *_room(facts, where),
        *_idle(facts, where, scope.outage),
        *_publication(facts, where, names),
        *of_clock(facts.ahead, where, scope.clock_skew),
    ]


def grant_findings(
    facts: PostgresFacts, where: str, heartbeat: str, hidden: Sequence[str]
) -> list[Finding]:
    """Rule on what its user may do; *hidden* are captured tables that it may not read."""
    user = spelled(facts.user)
    found = _heartbeat(facts, where, heartbeat, user)
    if hidden:
        few = ", ".join(hidden[:3]) + (f" and {len(hidden) - 3} more" if len(hidden) > 3 else "")
        fix = f"GRANT pg_read_all_data TO {user}, or USAGE on the schemas and SELECT on the tables"
        found.append(Finding(REFUSE, "grant_select", where, f"{user} may not read {few}", fix))
    if not facts.monitor:
        what = f"{user} may not see whether the server is loaded, so it is asked whatever it does"
        found.append(Finding(WARN, "grant_monitor", where, what, f"GRANT pg_monitor TO {user}"))
    return found


def _standby(facts: PostgresFacts, where: str) -> list[Finding]:
    if not facts.standby:
        return []
    return [Finding(REFUSE, "standby", where, "the heartbeat cannot be written here", ELSEWHERE)]


def _room(facts: PostgresFacts, where: str) -> list[Finding]:
    """Who has a slot already needs a sender at most; who has none needs both."""
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
    name = spelled(names.publication)
    if facts.publication is None:
        what = f"there is no publication {names.publication} in database {names.database}"
        fix = f"CREATE PUBLICATION {name} FOR ALL TABLES, as a superuser; or FOR TABLE a, b, ..."
        return [Finding(REFUSE, "publication", where, what, fix)]
    if not (missing := facts.publication.lacks):
        return []
    what = f"publication {names.publication} leaves out each {', '.join(missing)}"
    fix = f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}')"
    return [Finding(REFUSE, "publication", where, what, fix)]


def _heartbeat(facts: PostgresFacts, where: str, heartbeat: str, user: str) -> list[Finding]:
    beat, schema = facts.heartbeat, spelled(heartbeat.partition(".")[0])
    steps = []
    if not beat.present and not beat.creatable:
        steps += list(creation(heartbeat)[beat.schema :])
        steps.append(f"GRANT SELECT, INSERT, UPDATE ON {named(heartbeat)} TO {user}")
    tables = [right for right in beat.lacking if right != "USAGE"]
    if tables:
        steps.append(f"GRANT {', '.join(tables)} ON {named(heartbeat)} TO {user}")
    if "USAGE" in beat.lacking or (steps and not beat.present):
        steps.append(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
    if not steps:
        return []
    absent = f" {heartbeat} is not there, nor may it be created" if not beat.present else ""
    rights = f" {', '.join(beat.lacking)} is not granted" if beat.lacking else ""
    what = f"the heartbeat cannot be written:{';'.join(one for one in (absent, rights) if one)}"
    return [Finding(REFUSE, "grant_heartbeat", where, what, "; ".join(steps))]
