"""Reports the progress of first snapshots and backfills, their rate, and when they end.

A table in its first snapshot has no base and no mirror yet. This is one line per source, and not a
problem while it makes progress. It is a problem if there is no progress for `PATIENCE`.

The end of a backfill is unknown once it has read more rows than were estimated.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from monitor.board import FirstLanding
from monitor.observe.sampler import NO_MIRROR, NOT_LANDED, Sampling
from monitor.store.requests import StoredBackfill
from pipeline.checkpoint import Checkpoint, OpenSnapshot
from pipeline.model import Missing, Shard, Table

PATIENCE = timedelta(minutes=15)
LOGGED = timedelta(seconds=30)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a first landing.

    ``rows`` landed for shards without a base, ``based`` is the number of shards with a base, and
    ``mirrors`` the number of existing mirrors.
    """

    rows: int = 0
    based: int = 0
    mirrors: int = 0


@dataclass(frozen=True, slots=True)
class _Watched:
    """A first landing since it was first seen: progress then and now, and the last change."""

    since: datetime
    began: Progress
    moved: datetime
    now: Progress


@dataclass(eq=False)
class FirstLandings:
    """Tracks first landings; ``expected`` estimates the rows of each shard of a source."""

    expected: Callable[[str], Mapping[str, int]] = field(default=lambda _: {})
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _logged: dict[str, datetime] = field(default_factory=dict)

    def look(
        self, look: Sampling, tables: Sequence[Table], now: datetime
    ) -> tuple[FirstLanding, ...]:
        """Return the first landings in progress, in the order of the sources."""
        found = tuple(
            one for name in look.sources if (one := self._source(name, look, tables, now))
        )
        for one in found:
            self._tell(one, now)
        for name in self._watched.keys() - {one.source for one in found}:
            log.info("first landing is done", source=name)
            del self._watched[name]
        return found

    def _source(
        self, name: str, look: Sampling, tables: Sequence[Table], now: datetime
    ) -> FirstLanding | None:
        if isinstance(look.checkpoint, Missing):
            if tables:
                return None  # there were batches before, so the lake does not answer now
            return self._waiting(name, look, now)
        checkpoint = look.checkpoint.value
        waiting = [t for t in tables if name in t.sources and is_first(t, look, checkpoint)]
        if not waiting:
            return None
        snaps = _read(waiting, name, checkpoint)
        here = Progress(
            rows=sum(snap.rows for snap in snaps.values()),
            based=sum(shard in checkpoint.bases for table in waiting for shard in table.shards),
            mirrors=sum(not isinstance(look.mirrors.get(t.name), Missing) for t in tables),
        )
        known = self._moved(name, here, now)
        total = _total(snaps, self.expected(name))
        eta = _eta(known, total, now)
        return FirstLanding(
            source=name,
            description=_words(snaps, waiting, here, total),
            since=known.since,
            tables=tuple(table.name for table in waiting),
            eta=eta,
            stuck=_stuck(known, now),
        )

    def _waiting(self, name: str, look: Sampling, now: datetime) -> FirstLanding:
        known = self._moved(name, Progress(), now)
        why = _why(name, look)
        reason = NOT_LANDED if why in ("", NOT_LANDED) else f"{NOT_LANDED}: {why}"
        return FirstLanding(name, reason, known.since, stuck=_stuck(known, now))

    def _moved(self, name: str, here: Progress, now: datetime) -> _Watched:
        known = self._watched.get(name) or _Watched(now, here, now, here)
        moved = known.moved if here == known.now else now
        self._watched[name] = _Watched(known.since, known.began, moved, here)
        return self._watched[name]

    def _tell(self, one: FirstLanding, now: datetime) -> None:
        if now - self._logged.get(one.source, one.since - LOGGED) >= LOGGED:
            self._logged[one.source] = now
            done = one.eta.isoformat(timespec="seconds") if one.eta else "not known yet"
            log.info("first landing", source=one.source, description=one.description, done=done)


def landings_by_table(landings: Iterable[FirstLanding]) -> Mapping[str, FirstLanding]:
    """Return the first landing of each table; of several sources, a stuck one is preferred."""
    moving_first = sorted(landings, key=lambda one: one.stuck is not None)
    return {table: one for one in moving_first for table in one.tables}


def is_first(table: Table, look: Sampling, checkpoint: Checkpoint) -> bool:
    """Whether the table is in its first landing.

    Either each shard without a base is being read, or all have one and the mirror does not exist.
    """
    bare = [shard for shard in table.shards if shard not in checkpoint.bases]
    if bare:
        return all(shard in checkpoint.snaps or _snapshot(shard, look) for shard in bare)
    return look.unreadable.get(table.name) == NO_MIRROR


def _snapshot(shard: Shard, look: Sampling) -> bool:
    source = look.sources.get(shard.source)
    if source is None or isinstance(source.acknowledged, Missing):
        return False
    return source.acknowledged.value.snapshot


def _read(
    waiting: Iterable[Table], source: str, checkpoint: Checkpoint
) -> Mapping[str, OpenSnapshot]:
    """Return the open first snapshots of the source, by shard name."""
    shards = (shard for table in waiting for shard in table.shards if shard.source == source)
    return {
        shard.name: checkpoint.snaps[shard]
        for shard in shards
        if shard in checkpoint.snaps and shard not in checkpoint.bases
    }


def _total(snaps: Mapping[str, OpenSnapshot], expected: Mapping[str, int]) -> int | None:
    """Return the estimated number of rows; None if the source has not reported all shards."""
    if not snaps or any(name not in expected for name in snaps):
        return None
    return sum(
        one.rows if one.ended else max(one.rows, expected[name]) for name, one in snaps.items()
    )


def _eta(known: _Watched, total: int | None, now: datetime) -> datetime | None:
    landed, took = known.now.rows - known.began.rows, now - known.since
    if total is None or landed <= 0 or took <= timedelta():
        return None
    return now + took * ((total - known.now.rows) / landed)


def _stuck(known: _Watched, now: datetime) -> datetime | None:
    return known.moved if now - known.moved > PATIENCE else None


def _words(
    snaps: Mapping[str, OpenSnapshot], waiting: Collection[Table], here: Progress, total: int | None
) -> str:
    count = f"{len(waiting)} table" + ("s" if len(waiting) != 1 else "")
    reading = sorted(name for name, one in snaps.items() if not one.ended)
    if not snaps and here.based:
        return f"{count} landed completely, and wait for their first merge"
    if not snaps:
        return f"{count} to be read; the collector is in its first snapshot"
    of = f" of about {total:,}" if total else ""
    now = f"; {_some(reading)} being read" if reading else "; all of them read"
    return f"{here.rows:,}{of} rows of {count} landed{now}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more are" if len(names) > 1 else " is"
    return f"{names[0]}{more}"


def _why(name: str, look: Sampling) -> str:
    trouble, source = look.troubles.get(name), look.sources[name]
    if trouble is not None:
        return f"the collector is {trouble.description}"
    if isinstance(source.acknowledged, Missing):
        return source.acknowledged.why
    if source.acknowledged.value.snapshot:
        return "the collector is reading its first snapshot"
    return (
        look.checkpoint.why
        if isinstance(look.checkpoint, Missing)
        else "the first batch has not landed yet"
    )


Estimates = Callable[[str], Mapping[str, int]]
"""Source -> estimated rows of each of its shards."""

BRAKES = {
    "rate": "held to its rate",
    "time": "fewer rows are read at once, because more took too long",
    "running": "its server is busy",
    "lag": "the replica that is read is behind",
}
"""Why a backfill is slowed down, by the limit that does it."""


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Progress of a backfill; a number that is not known is None.

    ``about`` is the estimated total of rows, ``rate`` is in rows per second since the request, and
    ``left`` is the estimated remaining time.
    """

    rows: int
    about: int | None
    rate: float
    left: timedelta | None
    brakes: tuple[str, ...]

    @property
    def description(self) -> str:
        """The progress as text, without the reason why it waits."""
        text = f"{self.rows} rows" + (f" of about {self.about}" if self.about else "")
        text += f", {self.rate:.0f} rows/s" if self.rate else ""
        if self.left is not None:
            text += f", about {round(self.left.total_seconds())} s left"
        return text + "".join(f"; {BRAKES[one]}" for one in self.brakes)


def backfill_progress(one: StoredBackfill, estimates: Estimates, now: datetime) -> BackfillProgress:
    """Sum up all shards of *one*; a shard that has ended counts with its rows.

    The remaining time is unknown as soon as it has read more rows than estimated.
    """
    seconds = (now - one.at).total_seconds()
    rate = one.rows / seconds if seconds > 0 else 0.0
    some = one.ended or one.wish.rows.some or one.wish.rows.where  # the end drops the selection
    about = None if some else _about(one, estimates)
    left = None
    if rate and about is not None and about > one.rows:
        left = timedelta(seconds=(about - one.rows) / rate)
    brakes = {state.brake for state in one.states if state.brake and state.done is None}
    return BackfillProgress(one.rows, about, rate, left, tuple(sorted(brakes)))


def _about(one: StoredBackfill, estimates: Estimates) -> int | None:
    """Return the estimated rows of its shards; None if that of one shard is not known."""
    shards = [Shard.parse(state.shard) for state in one.states if state.shard]
    counts = (estimates(shard.source).get(shard.name) for shard in shards)
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(shards) else None
