"""Heads, fences, verdicts and settings of a source, each with the defaults of table shop.orders."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from checks.model import FailKind, Outcome, Ruling, Verdict
from pipeline.model import Fence, Head, Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.position import binlog_position

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


def mysql_head(pos: int, *, log: int = 1, identity: str = "A") -> Head:
    """The end of binlog *log* of the server *identity*."""
    return Head(identity, binlog_position(log, pos))


def fence(
    number: int,
    at: datetime = NOON,
    source: str = "shop",
    identity: str = "A",
    *,
    pos: int | None = None,
    log: int = 1,
) -> Fence:
    """Heartbeat *number*; it is at 100 times its number in the log unless *pos* is given."""
    pos = number * 100 if pos is None else pos
    return Fence(source, number, at, mysql_head(pos, log=log, identity=identity))


def verdict(
    outcome: Outcome | str,
    *keys: str,
    table: str = "shop.orders",
    check: str = "range_counts",
    code: str = "",
    more: int = 0,
    at: datetime = NOON,
    **fields: Any,
) -> Verdict:
    """A verdict of *outcome* that names *keys*; *fields* are further fields of `Verdict`."""
    ruling = Ruling(Outcome(outcome), "because", code, keys, more)
    return Verdict(table, check, ruling, at, **fields)


def source_settings(
    server: Any = None, *, name: str = "shop", user: str = "sluice", **fields: Any
) -> SourceSettings:
    """Settings of a source at *server*, which has a host and a port; nothing listens without one.

    Its collector answers nowhere.
    """
    host, port = ("127.0.0.1", 1) if server is None else (server.host, server.port)
    given: dict[str, Any] = {
        "collector": CollectorSettings("http://127.0.0.1:1", name),
        "prefix": name,
    }
    return SourceSettings(name, host, port, user, **given | fields)


def lost_rows(check: str, *keys: str, table: str = "shop.orders", more: int = 0) -> Verdict:
    """A FAIL of one of Sluice's own probes that names rows of *table*."""
    return verdict(
        "fail",
        *keys,
        table=table,
        check=check,
        code="missing_rows",
        more=more,
        kind=FailKind.LOST,
    )


T = TypeVar("T")


def by_shard(entries: Mapping[str, T]) -> dict[Shard, T]:
    """Entries of a checkpoint by shard, of those by the shards' texts."""
    return {Shard.parse(name): value for name, value in entries.items()}
