"""Has the log we read become another log?  Judged from the connected server, never from events.

Pure.
"""

from dataclasses import replace

from pipeline.mark import Epoch
from pipeline.model import Head
from pipeline.sources.mysql import gtid


def moved(known: Epoch, head: Head) -> str | None:
    """Why *head* cannot continue the log of *known*; None when it does.

    Another identity is a fail-over.  The same identity with an earlier position, or without
    transactions it once had, is a reset of its log.
    """
    if head.identity != known.identity:
        return f"server {known.identity} was replaced by {head.identity}"
    if (head.log, head.pos) < (known.log, known.pos):
        return f"log went back from {known.log}/{known.pos} to {head.log}/{head.pos}"
    if known.executed and not gtid.contains(head.executed, known.executed):
        return "the server has forgotten transactions: its log was reset"
    return None


def observe(known: Epoch | None, head: Head, heartbeat: int) -> Epoch:
    """The epoch after seeing *head*: the same one with a higher head, or the next one."""
    if known is None:
        return Epoch(1, head.identity, head.log, head.pos, head.executed)
    if moved(known, head):
        number, before = known.number + 1, known.executed
        return Epoch(number, head.identity, head.log, head.pos, head.executed, heartbeat, before)
    return replace(known, log=head.log, pos=head.pos, executed=head.executed)
