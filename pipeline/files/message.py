"""How is what a ledger holds written into messages?  The head is the message's key.

A row's message has the row as its value, as JSON; all rows of a file have one head.  Pure.
"""

from collections.abc import Sequence

import msgspec


class RowsHead(msgspec.Struct, tag="rows", frozen=True):
    """Rows of a file; ``first`` is the offset of its first row, ``at`` when it was written.

    ``at`` in microseconds since 1970, by the clock of the files' server.
    """

    shard: str
    file: str
    day: str
    hour: str
    first: int
    at: int
    key: tuple[str, ...] = ()


class ColumnsHead(msgspec.Struct, tag="columns", frozen=True):
    """Columns that a log has from here on, by name and type of the mirror; ``kind`` as told."""

    shard: str
    kind: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]


class BeatHead(msgspec.Struct, tag="beat", frozen=True):
    """All that lay in the folder before heartbeat ``n`` was asked for stands before this."""

    shard: str
    source: str
    n: int


class FaultHead(msgspec.Struct, tag="fault", frozen=True):
    """A file that was not taken, or is no longer what was taken, and why."""

    shard: str
    file: str
    why: str


MessageHead = RowsHead | ColumnsHead | BeatHead | FaultHead
_HEAD: msgspec.json.Decoder[MessageHead] = msgspec.json.Decoder(MessageHead)
FILE, LINE, DAY, HOUR = "_file", "_line", "_day", "_hour"
ADDED: tuple[tuple[str, str], ...] = (
    (FILE, "string"),
    (LINE, "bigint"),
    (DAY, "date"),
    (HOUR, "int"),
)
"""What each row gets beside its own columns: where it stood."""


def encoded(head: MessageHead) -> bytes:
    """The key of its message."""
    return msgspec.json.encode(head)


def decoded(key: bytes | None) -> MessageHead:
    """Read back what `encoded` wrote.

    Raises:
        ValueError: it did not.
    """
    if key is None:
        raise ValueError("a message without a key is none of a file")
    return _HEAD.decode(key)


def own_key(key: Sequence[str]) -> tuple[str, ...]:
    """The columns that a row is known by: those that its log's rule names, else where it stood."""
    return tuple(key) or (FILE, LINE)
