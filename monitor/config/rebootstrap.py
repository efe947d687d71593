"""Which tables may the service read again by itself, and how often?"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from monitor.config.plans import Every


@dataclass(frozen=True, slots=True)
class RebootstrapRule:
    """Whether a table that only a new base helps gets one by itself; the first that fits decides.

    ``tables`` is a glob on the table's name.  With ``auto`` one is begun once it has been needed
    for ``after``, and not again within ``again`` of the last; ``at_once`` are read side by side.
    With ``ask``, as without a rule, `sluice explain` says what to type.
    """

    tables: str
    how: Literal["ask", "auto"] = "ask"
    """`auto` starts a new base; `ask` only prints the command."""
    after: Every = timedelta(minutes=5)
    """How long a table must have needed a new base."""
    again: Every = timedelta(hours=6)
    """The shortest time between two bases of one table."""
    at_once: int = 1
    """How many tables are read at the same time."""
