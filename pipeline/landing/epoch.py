"""Has the log we read become another log?  Judged from the connected server, never from events.

Pure.
"""

from dataclasses import replace

from pipeline.checkpoint import Epoch
from pipeline.model import Head
from pipeline.sources.positions import reset


def moved(known: Epoch, head: Head) -> str | None:
    """Why *head* cannot continue the log of *known*; None when it does.

    Another identity is a fail-over.  The same one with a log that cannot have grown from what it
    was is a reset of its log.
    """
    if head.identity != known.identity:
        return f"server {known.identity} was replaced by {head.identity}"
    return reset(known.position, head.position)


def observe(known: Epoch | None, head: Head, heartbeat: int) -> Epoch:
    """The epoch after seeing *head*: the same one with a higher head, or the next one."""
    if known is None:
        return Epoch(1, head.identity, head.position)
    if moved(known, head):
        return Epoch(known.number + 1, head.identity, head.position, heartbeat, known.position)
    return replace(known, position=head.position)
