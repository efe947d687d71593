"""May Sluice's user do what Sluice does?  Ruled from the lines of SHOW GRANTS, roles included."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checks.doctor.finding import REFUSE, Finding
from pipeline.sources.mysql.heartbeat import creation
from pipeline.sources.mysql.server_facts import ServerFacts

LINE = re.compile(r"(GRANT|REVOKE) (.+?) ON (?:TABLE )?(.+) (?:TO|FROM) (.+?)(?: WITH .*)?", re.I)
NAME = r"`((?:[^`]|``)*)`"
WATCH = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER")  # the second is MariaDB's new name
BEAT = ("SELECT", "INSERT", "UPDATE")


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on a database pattern of LIKE and a table; ``%`` and ``*`` for all of them."""

    privileges: frozenset[str]
    database: str
    table: str
    revoked: bool = False

    def covers(self, privilege: str, database: str, table: str) -> bool:
        """Whether it is about *privilege* on the table."""
        named = privilege in self.privileges or "ALL PRIVILEGES" in self.privileges
        return named and self.table in ("*", table) and _like(self.database, database)


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
    found += _heartbeat(grants, where, user, heartbeat, present=present)
    hidden = [t for t in sorted(set(tables)) if not may(grants, "SELECT", *t.split(".", 1))]
    if hidden:
        what = f"{user} may not read {_few(hidden)}"
        fix = "; ".join(
            f"GRANT SELECT ON `{database}`.* TO {user}"
            for database in sorted({name.partition(".")[0] for name in hidden})
        )
        found.append(Finding(REFUSE, "grant_select", where, what, fix))
    return found


def may(grants: Sequence[Grant], privilege: str, database: str, table: str) -> bool:
    """Whether the grants, less what was revoked, allow *privilege* on the table."""
    covering = [grant for grant in grants if grant.covers(privilege, database, table)]
    return any(not g.revoked for g in covering) and not any(g.revoked for g in covering)


def parse(line: str) -> Grant | None:
    """One line of SHOW GRANTS; None for a role, a proxy, or rights on single columns only."""
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


def _like(pattern: str, name: str) -> bool:
    r"""Whether a grant's database pattern, with ``%``, ``_`` and ``\_``, means *name*."""
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    said = "".join(wild.get(token, re.escape(token[-1])) for token in tokens)
    return re.fullmatch(said, name, re.DOTALL) is not None


def _user(lines: Iterable[str]) -> str:
    users = [match[4] for line in lines if (match := LINE.fullmatch(line))]
    return users[0].partition(" IDENTIFIED")[0] if users else "the user"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
