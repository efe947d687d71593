"""Presents a folder of files as a source, by the ledger that its collector keeps.

Nothing is written into the folder. A position is a sweep and the offset at which the ledger
ended then. A collector that has completed a sweep has read, in full, every file that was in the
folder when the sweep began. The position of a heartbeat is the next sweep to begin.

Not supported: ids, counts and sums of rows, because files have no index (ProofError). The clock
of the file server is not read; heartbeats have the local time.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pipeline.aggregates import SpanTally, TalliedField, TimeSpan
from pipeline.errors import ConfigError, ProofError
from pipeline.files.ledger import Ledger
from pipeline.finding import NOTE, REFUSE, Finding
from pipeline.model import Head, Order, Position, Shard
from pipeline.schema.model import Column, Dialect
from pipeline.settings import SourceSettings, without_login
from pipeline.sources.files.dialect import FILES, FileColumn
from pipeline.sources.positions import PositionRules
from pipeline.sources.source import ExaminationScope, Heartbeat, Range, Source, SourceDescription


def ledger_path(settings: SourceSettings) -> str:
    """The path of the ledger's file.

    Raises:
        ConfigError: the settings name none, or another one for each process.
    """
    told = settings.collector.options.get("ledger")
    if not isinstance(told, str) or not told:
        raise ConfigError("collector.options.ledger: is required; write the path of a file")
    if not told.startswith("/"):
        raise ConfigError(f"collector.options.ledger: {told!r} must be a whole path")
    return told


KIND = "files"
_WORDS = re.compile(r"sweep (\d+) at offset (\d+)")


def sweep_position(sweep: int, end: int) -> Position:
    """All that was there when *sweep* began."""
    return Position(KIND, f"sweep {sweep} at offset {end}")


@dataclass(frozen=True, slots=True)
class SweepNumbers:
    """Each method as :class:`pipeline.sources.positions.PositionRules` says."""

    def locate(self, position: Position) -> tuple[int, int]:
        """Offsets are the order."""
        return 0, _read(position)[1]

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        """By the sweep alone."""
        return _read(passed)[0] >= _read(wanted)[0]

    def explain_reset(self, known: Position, now: Position) -> str | None:
        """Both only rise."""
        (sweep, end), (known_sweep, known_end) = _read(now), _read(known)
        if sweep >= known_sweep and end >= known_end:
            return None
        return f"the ledger stood at {known}, and stands at {now}"

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Another ledger knows nothing of what this one has told."""
        if known.identity == now.identity:
            return self.explain_reset(known.position, now.position)
        return f"the ledger {known.identity} was lost, and {now.identity} took its place"

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        """A sweep that was not begun."""
        return None if self.has_reached(end, said) else f"there was no {said} yet"

    def names_transactions(self, position: Position) -> bool:
        """It names no transaction."""
        return False

    def may_contain(self, position: Position, transaction: str) -> bool:
        """There are none."""
        return True


def _read(position: Position) -> tuple[int, int]:
    found = _WORDS.fullmatch(position.words)
    if found is None:
        raise ValueError(f"{position!r} is no place in a ledger of files")
    return int(found[1]), int(found[2])


@dataclass(eq=False)
class FilesSource:
    """Reads the ledger that its collector keeps."""

    dialect: ClassVar[Dialect] = FILES
    positions: ClassVar[PositionRules] = SweepNumbers()
    settings: SourceSettings
    _ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        """Open nothing yet.

        Raises:
            ConfigError: its settings name no ledger, no folder, or no way to its rows.
        """
        own = self.settings
        self._ledger = Ledger(Path(ledger_path(own)))
        if not Path(own.collector.url).is_absolute():
            msg = f"{without_login(own.collector.url)!r} is no folder of logs; write its whole path"
            raise ConfigError(f"collector.url: {msg}")
        if not own.transport:
            raise ConfigError("transport: is required; write files, which reads what was taken")

    @property
    def name(self) -> str:
        """The source's name in the settings."""
        return self.settings.name

    def head(self) -> Head:
        """The next sweep: what lies in the folder now is found by that."""
        count = self._ledger.count()
        return Head(self._ledger.id, sweep_position(count.begun + 1, count.end))

    def prepare_heartbeat(self) -> None:
        """The ledger has a place for it."""

    def beat(self, at_least: int, at: datetime) -> Heartbeat:
        """Ask for the next; the folder's server has no clock that is asked, so ours is told."""
        told = datetime.now(UTC)
        number = self._ledger.beat(at_least, self.settings.heartbeat, self.name)
        return Heartbeat(number, self.head(), told)

    def newest_heartbeat(self) -> int:
        """The last that was asked for."""
        return self._ledger.count().asked

    def sends(self) -> None:
        """All logs."""

    def describe(self, shards: Collection[str]) -> SourceDescription:
        """Files are kept for as long as they lie there; who deletes them, the ledger shows."""
        return SourceDescription(None)

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Logs of which a row was taken."""
        names = sorted(self._ledger.columns())
        return tuple(Shard(self.name, name) for name in names if re.fullmatch(pattern, name))

    def columns(self, shard: Shard) -> Sequence[Column]:
        """As the ledger has told them."""
        told = self._ledger.columns().get(shard.name)
        return () if told is None else tuple(FileColumn(*one) for one in told.columns)

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """The same of its key."""
        told = self._ledger.columns().get(shard.name)
        return () if told is None else told.key

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Files have no index."""
        raise _uncounted(shard)

    def min_id(self, shard: Shard, column: str) -> int | None:
        """Files have no index."""
        raise _uncounted(shard)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Files have no index."""
        raise _uncounted(shard)

    def tallies(
        self, shard: Shard, column: str, spans: Sequence[TimeSpan], fields: Sequence[TalliedField]
    ) -> tuple[SpanTally, ...]:
        """Files have no index."""
        raise _uncounted(shard)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Files have no index."""
        raise _uncounted(shard)

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        """Whether the folder and the ledger are there."""
        base, where = Path(self.settings.collector.url), f"source:{self.name}"
        if not base.is_dir():
            fix = "mount it, or name another as the collector's url"
            yield Finding(REFUSE, "no_folder", where, f"{base} is no folder", fix)
        for name in sorted(self._ledger.columns()):
            if scope.fold(name) is None:
                what = f"log {name} is ignored by a rule"
                yield Finding(NOTE, "ignored", where, what, "nothing")

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()


def _uncounted(shard: Shard) -> ProofError:
    return ProofError(f"rows of {shard} lie in files, which have no index of ids")


SOURCE: type[Source] = FilesSource
