"""May Sluice's user do what Sluice does?  Ruled from the lines of SHOW GRANTS, roles included.

Pure.
"""

from collections.abc import Iterable, Sequence

from pipeline.finding import REFUSE, Finding
from pipeline.model import ShardId
from pipeline.sources.mysql.grants import LINE, Grant, may, parse
from pipeline.sources.mysql.heartbeat import creation
from pipeline.sources.mysql.server_facts import ServerFacts

WATCH = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER")  # the second is MariaDB's new name
BEAT = ("SELECT", "INSERT", "UPDATE")


def grant_findings(
    facts: ServerFacts, where: str, heartbeat: str, *, present: bool, tables: Iterable[str]
) -> list[Finding]:
    """Findings for rights that are missing.

    *present*: the heartbeat's table is there.  *tables* are the captured ones that can be named,
    ``database.table``; a server hides those that its user may not see.
    """
    grants = [grant for line in facts.grants if (grant := parse(line))]
    user = _user(facts.grants)
    found = []
    if not any(may(grants, privilege, "", "*") for privilege in WATCH):
        what = f"{user} may not ask where the log ends"
        fix = f"GRANT REPLICATION CLIENT ON *.* TO {user}"
        found.append(Finding(REFUSE, "grant_log", where, what, fix))
    listed = facts.mariadb or facts.version < (8, 0)  # there, everybody may list them
    if not listed and not may(grants, "XA_RECOVER_ADMIN", "", "*"):
        what = f"{user} may not list prepared XA transactions, so no table can be read again"
        what += " (bootstrap, repair, replay)"
        fix = f"GRANT XA_RECOVER_ADMIN ON *.* TO {user}"
        found.append(Finding(REFUSE, "grant_xa", where, what, fix))
    found += _heartbeat(grants, where, user, heartbeat, present=present)
    owns = {name: ShardId.read(name) for name in sorted(set(tables))}
    hidden = [
        name for name, own in owns.items() if not may(grants, "SELECT", own.database, own.relation)
    ]
    if hidden:
        what = f"{user} may not read {_few(hidden)}"
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
    lacking = [right for right in BEAT if not may(grants, right, database, table)]
    creates = present or may(grants, "CREATE", database, table)
    if not lacking and creates:
        return []
    steps = [] if creates else list(creation(heartbeat))
    if lacking:
        steps.append(f"GRANT {', '.join(BEAT)} ON `{database}`.`{table}` TO {user}")
    absent = "" if creates else f" {heartbeat} is not there (or hidden), nor may it be created;"
    rights = f" {', '.join(lacking)} on it is not granted;" if lacking else ""
    what = f"the heartbeat cannot be written:{absent}{rights}".rstrip(";")
    return [Finding(REFUSE, "grant_heartbeat", where, what, "; ".join(steps))]


def _user(lines: Iterable[str]) -> str:
    users = [match[4] for line in lines if (match := LINE.fullmatch(line))]
    return users[0].partition(" IDENTIFIED")[0] if users else "the user"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
