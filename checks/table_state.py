"""Where does a table stand in its life?  One word, from facts that are known anyway.  Pure.

    new -> bootstrap -> incremental <-> held
                             |  ^         |
                             v  |         v
                   paused <-> any     re-bootstrap        retired, from any, and back

No state is remembered to be gone by: what is true of the table says which it is in.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from checks.blocks import Pause
from checks.model import Reason

NO_BASE = "no_base"


class TableState(StrEnum):
    """What a table is at."""

    NEW = "new"
    BOOTSTRAP = "bootstrap"
    INCREMENTAL = "incremental"
    HELD = "held"
    RE_BOOTSTRAP = "re-bootstrap"
    PAUSED = "paused"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class StateSince:
    """*table* is, or was, in *state* from that instant on; ``why`` as it was reported then."""

    table: str
    state: TableState
    since: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a state follows from.

    ``based``: each shard has a base.  ``bare``: there is no mirror yet.  ``first`` says how far
    its first snapshot is, ``reread`` how far it is read again by request; empty where it is not.
    ``blocked`` are the reasons for BLOCKED that no probe gave, gravest first.
    """

    based: bool
    bare: bool
    first: str = ""
    reread: str = ""
    blocked: tuple[Reason, ...] = ()
    pause: Pause | None = None


def state_of(facts: TableFacts) -> tuple[TableState, str]:
    """The state of a table that is there, and why it is in none better; no why if all goes on."""
    if facts.pause is not None:
        return TableState.PAUSED, facts.pause.told
    if facts.reread:
        again = facts.based or not facts.bare
        return TableState.RE_BOOTSTRAP if again else TableState.BOOTSTRAP, facts.reread
    if facts.first:
        return TableState.BOOTSTRAP, facts.first
    if facts.bare and all(one.code == NO_BASE for one in facts.blocked):
        why = facts.blocked[0].text if facts.blocked else "nothing is merged into its mirror yet"
        return TableState.NEW, why
    if facts.blocked:
        return TableState.HELD, facts.blocked[0].text
    return TableState.INCREMENTAL, ""
