"""Holds what one monitoring round measured of a table, when, and the age up to which it counts.

The batches seen so far are part of it: they translate a mirror's batch into the heartbeats that the
mirror covers. A mirror that has applied the last change of a table at or before a batch is applied
through that batch. So the newest such batch shows what the mirror holds, without an empty merge.

A long history is thinned: the older its entries, the wider apart. A dropped entry makes an answer
later, never wrong. The delay is normally a fixed share of the entry's age. So a question about this
morning is never answered with the afternoon.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pipeline.checkpoint import Checkpoint
from pipeline.copies.copy import CopyPosition
from pipeline.image import Image
from pipeline.model import Acknowledged, Fence, Missing, Shard, Table

T = TypeVar("T")


def thin_history(
    history: Sequence[T], place: Callable[[T], float], *, share: int, limit: int
) -> tuple[T, ...]:
    """Thin *history*, ascending by *place*, if it has more than *limit* entries.

    The gap between two kept entries is at most 1/*share* of their distance to the newest, unless
    there was no entry between them. The newest and the oldest are always kept. If more than *limit*
    remain, every second one of the older half is dropped.
    """
    if len(history) <= limit:
        return tuple(history)
    newest, kept = place(history[-1]), [history[-1]]
    for number in range(len(history) - 2, 0, -1):
        gap = place(kept[-1]) - place(history[number - 1])
        if gap * share > newest - place(history[number - 1]):
            kept.append(history[number])
    found = (history[0], *reversed(kept))
    half = len(found) // 2
    return found if len(found) <= limit else (*found[:half:2], *found[half:])


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """A measurement, when it was taken, and the greatest age at which it may still be used."""

    value: T
    at: datetime
    budget: timedelta


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    """The version of a mirror, and the batch of its lane that it is applied through.

    ``mirror`` is its table id, which differs for a recreated table in the same folder. ``images``
    are the versions that are images of cuts, oldest cut first. ``put_back`` is when a look last
    found an older version than before. ``foreign`` is the newest version of a foreign
    commit, even a waived one; -1 if none is known. ``accepted`` are the versions of foreign commits
    whose waivers this look has used. ``entry`` is the digest of the version's log entry; empty if
    it is not known.
    """

    version: int
    batch: int
    mirror: str = ""
    images: tuple[Image, ...] = ()
    put_back: datetime | None = None
    foreign: int = -1
    accepted: frozenset[int] = frozenset()
    entry: str = field(default="", compare=False)

    def image(self, cut: datetime) -> Image | None:
        """Return the image of *cut*, if any."""
        return next((one for one in self.images if one.cut == cut), None)


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """One batch: the last batch that changed each table, and the newest fence it covers.

    ``passed`` has an entry only for sources with a covered fence.
    """

    batch: int
    tables: Mapping[str, int]
    passed: Mapping[str, Fence]

    def holds(self, table: str, applied: int) -> bool:
        """Whether a mirror applied through *applied* has all changes of *table* in this batch."""
        return self.tables.get(table, -1) <= applied


@dataclass(frozen=True, slots=True)
class SourceSamples:
    """One source in one round; its fences, all heartbeats still stored, ascend by number.

    ``synced`` is the number of the newest fence that has provably passed the mirrored topics. It is
    None if no sync hop is configured; then the hop does not exist, which differs from Missing.
    """

    fences: Sample[tuple[Fence, ...]] | Missing
    acknowledged: Sample[Acknowledged] | Missing
    synced: Sample[int] | Missing | None = None

    def known(self) -> tuple[Fence, ...]:
        """The fences known so far; even an old sample counts, because fences never change."""
        return () if isinstance(self.fences, Missing) else self.fences.value


@dataclass(eq=False, slots=True)
class WorkedOut:
    """Results of one look that are the same for all tables, computed on first use."""

    _about: tuple[object, object, object] | None = None
    _found: dict[Hashable, Any] = field(default_factory=dict)

    def of(self, sources: object, checkpoint: object, steps: object) -> dict[Hashable, Any]:
        """The cached results for these samples; an empty cache for other samples than the first."""
        if self._about is None:
            self._about = sources, checkpoint, steps
        known = self._about
        if known[0] is sources and known[1] is checkpoint and known[2] is steps:
            return self._found
        return {}


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples behind one table's lags and proof, sampled upstream first.

    ``steps`` are the batches seen so far, ascending (:func:`extend_batches`). ``worked`` is shared
    by all tables of one look: by samples that differ only in the mirror.
    """

    sources: Mapping[str, SourceSamples]
    checkpoint: Sample[Checkpoint] | Missing
    mirror: Sample[MirrorPosition] | Missing
    steps: tuple[LandedBatch, ...] = ()
    worked: WorkedOut = field(default_factory=WorkedOut, compare=False, repr=False)
    _walked: dict[tuple[str, tuple[Shard, ...]], tuple[LandedBatch, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def source(self, name: str) -> SourceSamples:
        """The samples of a source; all Missing if it was not sampled."""
        nothing = Missing(f"source {name} was not sampled")
        return self.sources.get(name, SourceSamples(nothing, nothing))

    def of_copy(
        self, copy: Sample[Mapping[str, CopyPosition | Missing]] | Missing, table: str
    ) -> "Samples":
        """The same samples with the *copy* of the table as its mirror, if the copy is complete."""
        return replace(self, mirror=_as_mirror(self.mirror, copy, table))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of *make*, which must not use the mirror; computed once for all tables."""
        known = self.worked.of(self.sources, self.checkpoint, self.steps)
        if key not in known:
            known[key] = make()
        found: T = known[key]
        return found

    def walked(self, table: Table) -> tuple[LandedBatch, ...]:
        """Return the steps that count for *table*: since its newest base and since a shard left it.

        Steps before changes that landed late do not count either. A mirror at an earlier step
        misses the rows of that base or those changes, or has rows of that shard. The log may have
        lost part of those. The current checkpoint's step is the last one, even if its sample is
        old.
        """
        if isinstance(self.checkpoint, Missing):
            return self.steps
        key = (table.name, table.shards)
        if key not in self._walked:
            self._walked[key] = self._walk(table, self.checkpoint.value)
        return self._walked[key]

    def _walk(self, table: Table, checkpoint: Checkpoint) -> tuple[LandedBatch, ...]:
        steps = self.steps_of(table)
        based = (checkpoint.complete.get(shard, -1) for shard in table.shards)
        late = (one.get(table.name, -1) for one in (checkpoint.departed, checkpoint.belated))
        since = max((*based, *late))
        if since <= steps[0].batch:
            return steps
        return steps[bisect_left(steps, since, key=lambda one: one.batch) :]

    def steps_of(self, table: Table) -> tuple[LandedBatch, ...]:
        """All steps of the table's sources, whether or not they change *table*."""
        sources, checkpoint = table.sources, self.checkpoint
        if isinstance(checkpoint, Missing):
            return self.steps

        def known() -> tuple[LandedBatch, ...]:
            fences = {name: self.source(name).known() for name in sources}
            return extend_batches(self.steps, to_landed_batch(checkpoint.value, fences))

        return self.once(("steps", sources), known)


def _as_mirror(
    mirror: Sample[MirrorPosition] | Missing,
    copy: Sample[Mapping[str, CopyPosition | Missing]] | Missing,
    table: str,
) -> Sample[MirrorPosition] | Missing:
    """Return the position of a copy as a mirror's; Missing if the mirror was recreated since."""
    if isinstance(copy, Missing):
        return copy
    if isinstance(mirror, Missing):
        return mirror
    at = copy.value.get(table, Missing("nothing is copied yet"))
    if isinstance(at, Missing):
        return at
    if not at.whole:
        return Missing(f"the copy is being loaded; {at.parts} parts are complete")
    if at.mirror != mirror.value.mirror:
        return Missing("the copy belongs to a mirror that was recreated since")
    position = replace(mirror.value, version=at.version, batch=at.batch, images=())
    return Sample(position, copy.at, copy.budget)


def require_fresh(sample: Sample[T] | Missing, now: datetime) -> T | Missing:
    """The sample's value if it is not older than its budget and not from the future."""
    if isinstance(sample, Missing):
        return sample
    age = (now - sample.at).total_seconds()
    if age < 0:
        return Missing(f"sampled {-age:.0f} s ahead of the clock")
    if now - sample.at > sample.budget:
        return Missing(f"sample is {age:.0f} s old")
    return sample.value


def require_active_fences(one: SourceSamples, now: datetime) -> tuple[Fence, ...] | Missing:
    """The fences, unless the newest is so old that heartbeats have stopped."""
    fences = require_fresh(one.fences, now)
    if isinstance(fences, Missing) or isinstance(one.fences, Missing):
        return fences
    if not fences:
        return Missing("no heartbeat was written yet")
    if early := explain_future_fence(fences, now):
        return early
    quiet = now - fences[-1].at
    if quiet > one.fences.budget:
        return Missing(f"the newest heartbeat is {quiet.total_seconds():.0f} s old")
    return fences


def explain_future_fence(fences: Sequence[Fence], now: datetime) -> Missing | None:
    """Explain why *fences*, ascending, prove nothing: the newest is ahead of the clock."""
    if not fences or fences[-1].at <= now:
        return None
    seconds = (fences[-1].at - now).total_seconds()
    return Missing(f"the newest heartbeat is {seconds:.1f} s ahead of Sluice's clock")


def find_oldest_age(now: datetime, *samples: Sample[Any] | Missing) -> timedelta | None:
    """Age of the oldest of *samples*; None if one was never taken."""
    ages = [now - each.at for each in samples if not isinstance(each, Missing)]
    return max(ages) if len(ages) == len(samples) else None


def to_landed_batch(checkpoint: Checkpoint, fences: Mapping[str, Sequence[Fence]]) -> LandedBatch:
    """The tables and the newest covered fences of *checkpoint*; *fences* by source, ascending."""
    newest = {source: find_covered_fence(checkpoint, known) for source, known in fences.items()}
    return LandedBatch(
        checkpoint.batch, checkpoint.tables, {k: v for k, v in newest.items() if v is not None}
    )


def find_covered_fence(checkpoint: Checkpoint, fences: Sequence[Fence]) -> Fence | None:
    """The newest of *fences*, ascending, that *checkpoint* covers; None if it covers none."""
    return next((fence for fence in reversed(fences) if checkpoint.covers(fence)), None)


def extend_batches(
    steps: tuple[LandedBatch, ...], new: LandedBatch, limit: int = 512
) -> tuple[LandedBatch, ...]:
    """Add *new*; past *limit*, older steps are thinned, which only delays watermarks.

    The same batch seen again, with more fences known, replaces its step. A batch lower than the
    last is another lane's history: the old one is dropped.
    """
    if steps and new.batch < steps[-1].batch:
        return (new,)
    kept = steps[:-1] if steps and steps[-1].batch == new.batch else steps
    return thin_history((*kept, new), lambda one: one.batch, share=30, limit=limit)


def drop_disproved(
    steps: tuple[LandedBatch, ...], fallen: Mapping[str, range]
) -> tuple[LandedBatch, ...]:
    """The *steps* without fences whose times proved wrong; *fallen*: source -> their numbers."""
    if not fallen:
        return steps
    return tuple(
        replace(
            one,
            passed={
                source: fence
                for source, fence in one.passed.items()
                if fence.number not in fallen.get(source, ())
            },
        )
        for one in steps
    )


def applied_step(steps: Sequence[LandedBatch], table: str, applied: int) -> LandedBatch | None:
    """The newest of *steps*, ascending, whose changes of *table* a mirror through *applied* has."""
    return next((each for each in reversed(steps) if each.holds(table, applied)), None)
