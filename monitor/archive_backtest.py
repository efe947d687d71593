"""Evaluates archive rules against the landed changes, table by table, for operators.

Without table names it covers only tables that have an archive rule or a purge rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from monitor.clients import LandedSchemas
from monitor.config.model import Config
from monitor.display_text import similar_names
from pipeline.apply.archive_backtest import ArchiveBacktest, BacktestDay
from pipeline.archive import ArchiveRules, ArchiveWindow, RegisteredWindow, rules_of
from pipeline.build import open_table_format, schema_readings
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import find_parts
from pipeline.delta.store import open_store
from pipeline.errors import ConfigError
from pipeline.invariants.archive_purge import ArchivePurge
from pipeline.model import Op
from pipeline.settings import PipelineSettings
from pipeline.tables.lake import Lake


def run_backtests(
    config: Config,
    names: Sequence[str],
    registered: Iterable[RegisteredWindow],
    trial: ArchivePurge | None,
) -> Iterator[tuple[str, tuple[BacktestDay, ...]]]:
    """Yield each table and its days; without *names*, all tables that have a rule.

    *trial*, if given, replaces the rule of `invariants` about archive purges.

    Raises:
        ConfigError: nothing has landed, or there is no such table.
        HeldError: a rule names a column that does not fit.
    """
    settings, windows = config.settings, tuple(registered)
    lake = Lake(settings, open_table_format(settings))
    checkpoint = lake.checkpoint()
    if checkpoint is None:
        raise ConfigError(f"nothing has landed in {settings.changes}")
    shards = {shard: table for shard, table in checkpoint.shards.items() if table is not None}
    known = sorted(set(shards.values()))
    for name in names:
        if name not in known:
            raise ConfigError(f"no table {name!r}; known: {similar_names(name, known)}")
    log = ChangeLog(open_store(settings.changes), settings.lane)
    log.look()
    schemas, reader = LandedSchemas(schema_readings(config.sources)), lake.changes()
    for table in names or known:
        rules, purge = rules_of(table, settings.archive, windows), trial or _purge(settings, table)
        if not names and rules is None and purge is None:
            continue
        own = (shard for shard in sorted(shards, key=str) if shards[shard] == table)
        found = [schema for shard in own if (schema := schemas.newest(shard, reader)) is not None]
        columns = found[0].columns if found else ()
        files = find_parts(log.snapshot, -1, checkpoint.batch, (Op.CREATE, Op.UPDATE, Op.DELETE))
        test = ArchiveBacktest(
            settings.changes, files, table, columns, rules or ArchiveRules(), purge
        )
        yield table, test.days()


def counted_windows(windows: Iterable[Mapping[str, Any]]) -> tuple[RegisteredWindow, ...]:
    """Return the windows that count, from the answer of ``GET /v1/archives``."""
    return tuple(
        RegisteredWindow(
            str(one["table"]),
            ArchiveWindow(
                datetime.fromisoformat(str(one["since"])).astimezone(UTC),
                datetime.fromisoformat(str(one["until"])).astimezone(UTC),
                one["column"] or "",
                one["before"] or "",
            ),
        )
        for one in windows
        if one["withdrawn"] is None
    )


def _purge(settings: PipelineSettings, table: str) -> ArchivePurge | None:
    demanded = (one for _, one in settings.demanded(table))
    return next((one for one in demanded if isinstance(one, ArchivePurge)), None)
