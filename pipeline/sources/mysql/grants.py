"""What do the lines of SHOW GRANTS allow?  Roles spelled out, rights on single columns left out.

Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINE = re.compile(r"(GRANT|REVOKE) (.+?) ON (?:TABLE )?(.+) (?:TO|FROM) (.+?)(?: WITH .*)?", re.I)
NAME = r"`((?:[^`]|``)*)`"


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


def _like(pattern: str, name: str) -> bool:
    r"""Whether a grant's database pattern, with ``%``, ``_`` and ``\_``, means *name*."""
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    said = "".join(wild.get(token, re.escape(token[-1])) for token in tokens)
    return re.fullmatch(said, name, re.DOTALL) is not None
