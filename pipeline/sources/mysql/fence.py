"""May a server be read behind a fence, and if not, what does it lack?  Pure.

The server whose log the fence stands in may, once the heartbeat after it is committed: with
``binlog_order_commits`` all that was logged before that is then committed, too.  (*Measured*: where
commits wait, whoever reads the end of the log and then the rows misses those that are logged and
not yet to be seen.)  Another one, a replica, must have executed all transactions that had ended by
that time; its place in its own log says nothing.

An XA transaction is the exception: its rows are in the log, and are sent, at XA PREPARE, and
become visible at XA COMMIT, which logs no row (*measured*: MySQL 8.0.15, Debezium 3.5).  A read
waits until those that were prepared before the fence have ended at the server that it reads.
Cannot see: an XA PREPARE that is in the log and takes longer than `SETTLING` to be listed.
"""

import json
from collections.abc import Set
from datetime import timedelta

from pipeline.errors import FormatError
from pipeline.model import Head
from pipeline.sources.mysql import gtid
from pipeline.sources.mysql.position import executed
from pipeline.sources.row_reader import ReadFence

SETTLING = timedelta(milliseconds=200)
SHOWN = 3


def awaited(prepared: Set[str]) -> str:
    """Names of XA transactions, in the words of a fence; empty without any."""
    return json.dumps(sorted(prepared)) if prepared else ""


def open_xa(fence: ReadFence, prepared: Set[str]) -> tuple[str, ...]:
    """Those that the fence waits for and that are still among the *prepared*."""
    names = json.loads(fence.awaited) if fence.awaited else []
    return tuple(name for name in names if name in prepared)


def told_open(names: tuple[str, ...], patience: timedelta) -> str:
    """What keeps a read waiting, and how to end it."""
    several = f"{len(names)} XA transaction{'s' if len(names) > 1 else ''}"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{several} prepared before the read remained open for {patience}:"
        f" {'; '.join(names[:SHOWN])}{more}; end them with XA COMMIT or XA ROLLBACK"
    )


def lacking(fence: ReadFence, server: Head) -> str | None:
    """What *server* lacks of what the fence needs; None if nothing."""
    if server.identity == fence.head.identity:
        return None
    needed, has = executed(fence.needed), executed(server.position)
    try:
        shown = bool(needed) and gtid.contains(has, needed)
    except FormatError:
        shown = False
    if shown:
        return None
    if not needed:
        return (
            f"it is {server.identity}, not {fence.head.identity}, and nothing tells how far it is"
        )
    return f"of {needed} it has executed {has or 'nothing'}"
