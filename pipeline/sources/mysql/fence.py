"""May a server be read behind a fence, and if not, what does it lack?  Pure.

The server whose log the fence stands in may, once the heartbeat after it is committed: with
``binlog_order_commits`` all that was logged before that is then committed, too.  (*Measured*: where
commits wait, whoever reads the end of the log and then the rows misses those that are logged and
not yet to be seen.)  Another one, a replica, must have executed all transactions that had ended by
that time; its place in its own log says nothing.
"""

from pipeline.errors import FormatError
from pipeline.model import Head
from pipeline.sources.mysql import gtid
from pipeline.sources.mysql.position import executed
from pipeline.sources.row_reader import ReadFence


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
