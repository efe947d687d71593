"""Presents a folder of files as a source, by the ledger that its collector keeps.

Nothing is written into the folder. The position of a heartbeat is the next sweep.

Not supported: ids, counts and sums of rows, because files have no index (ProofError). The clock
of the file server is not read; heartbeats have the local time.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pipeline.errors import ConfigError
from pipeline.files.ledger import Ledger
from pipeline.finding import NOTE, REFUSE, Finding
from pipeline.model import Head, Shard
from pipeline.schema.model import Column, Dialect
from pipeline.settings import SourceSettings, without_login
from pipeline.sources.files.dialect import FILES, FileColumn
from pipeline.sources.files.position import POSITIONS, sweep_position
from pipeline.sources.positions import PositionRules
from pipeline.sources.source import (
    ExaminationScope,
    Heartbeat,
    Source,
    SourceDescription,
    TableQueries,
)


def ledger_path(settings: SourceSettings) -> str:
    """The path of the ledger's file.

    Raises:
        ConfigError: the settings name none, or a relative path.
    """
    path = settings.collector.options.get("ledger")
    if not isinstance(path, str) or not path:
        raise ConfigError("collector.options.ledger: is required; write the path of a file")
    if not path.startswith("/"):
        raise ConfigError(f"collector.options.ledger: {path!r} must be an absolute path")
    return path


@dataclass(eq=False)
class FilesSource(TableQueries):
    """A source whose log is the ledger that its collector keeps."""

    dialect: ClassVar[Dialect] = FILES
    positions: ClassVar[PositionRules] = POSITIONS
    settings: SourceSettings
    _ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        """Validate the settings; open no file.

        Raises:
            ConfigError: they name no ledger, no absolute folder, or no transport.
        """
        own = self.settings
        self._ledger = Ledger(Path(ledger_path(own)))
        if not Path(own.collector.url).is_absolute():
            msg = f"collector.url: {without_login(own.collector.url)!r} is not an absolute path"
            raise ConfigError(f"{msg}; write the path of the folder of logs")
        if not own.transport:
            raise ConfigError("transport: is required; write files, which reads what was taken")

    @property
    def name(self) -> str:
        return self.settings.name

    def head(self) -> Head:
        """The position of the next sweep, which finds every file that is in the folder now."""
        count = self._ledger.count()
        return Head(self._ledger.id, sweep_position(count.begun + 1, count.end))

    def prepare_heartbeat(self) -> None:
        """Do nothing: the ledger stores heartbeats."""

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        """Request the next sweep; the time is ours, because the file server's clock is not read."""
        requested = datetime.now(UTC)
        number = self._ledger.write_heartbeat(at_least, self.settings.heartbeat, self.name)
        return Heartbeat(number, self.head(), requested)

    def newest_heartbeat(self) -> int:
        return self._ledger.count().asked

    def sends(self) -> None:
        pass

    def describe(self, shards: Collection[str]) -> SourceDescription:
        """Retention has no end: files stay until they are deleted, which the ledger records."""
        return SourceDescription(None)

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Logs with at least one row in the ledger."""
        names = sorted(self._ledger.columns())
        return tuple(Shard(self.name, name) for name in names if re.fullmatch(pattern, name))

    def columns(self, shard: Shard) -> Sequence[Column]:
        """The columns in the ledger; empty for an unknown log."""
        head = self._ledger.columns().get(shard.name)
        return () if head is None else tuple(FileColumn(*one) for one in head.columns)

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        head = self._ledger.columns().get(shard.name)
        return () if head is None else head.key

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        """Report a missing folder, and logs that a rule ignores."""
        base, where = Path(self.settings.collector.url), f"source:{self.name}"
        if not base.is_dir():
            fix = "mount it, or change collector.url"
            yield Finding(REFUSE, "no_folder", where, f"{base} is not a directory", fix)
        for name in sorted(self._ledger.columns()):
            if scope.fold(name) is None:
                what = f"log {name} is ignored by a rule"
                yield Finding(NOTE, "ignored", where, what, "none, if that is intended")

    def close(self) -> None:
        self._ledger.close()


SOURCE: type[Source] = FilesSource
