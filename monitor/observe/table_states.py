"""Tracks the state of each table and since when, and lists the cuts of due images.

Every transition is stored and logged once. A transition that the store does not accept is
retried in the next round.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import structlog

from checks.blocks import Inputs, StateSince, TableFacts, TableState, find_blocks, state_of
from monitor.board import FirstLanding
from monitor.observe.sampler import NO_MIRROR
from pipeline.checkpoint import Checkpoint, shard_exists
from pipeline.clocks import day_end
from pipeline.errors import UnreachableError
from pipeline.image import DueCut, fence_of
from pipeline.model import Fence, Missing, Shard
from pipeline.settings import Router

MERGING_ON = frozenset({"residual"})
"""Reason codes that do not mean HELD, because the table is still merged as usual."""
Found = tuple[TableState, str]
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class TableStates:
    """Tracks table states; ``keep`` stores transitions, ``known`` returns each table's last one.

    Each table's facts are noted during a round, and `settle` is called at its end.
    """

    keep: Callable[[Sequence[StateSince]], object] = field(default=lambda _: None)
    known: Callable[[], Mapping[str, StateSince]] = field(default=lambda: {})
    _backfills: Mapping[str, str] = field(default_factory=dict)
    _found: dict[str, Found] = field(default_factory=dict)
    _now: Mapping[str, StateSince] | None = None

    def begin(self, backfills: Mapping[str, str]) -> None:
        """Begin a round; *backfills* has the progress of running backfills, by table."""
        self._backfills, self._found = backfills, {}

    def note(self, inputs: Inputs, unreadable: str, first: FirstLanding | None) -> None:
        """Note the state of the table of *inputs*, if the checkpoint is known or it is paused.

        *unreadable* says why its mirror could not be read; *first* is its first landing, if any.
        """
        name, checkpoint = inputs.table.name, inputs.samples.checkpoint
        if isinstance(checkpoint, Missing) and inputs.pause is None:
            return
        bases = {} if isinstance(checkpoint, Missing) else checkpoint.value.bases
        facts = TableFacts(
            based=all(shard in bases for shard in inputs.table.shards),
            bare=unreadable == NO_MIRROR,
            first=first.line if first else "",
            backfill=self._backfills.get(name, ""),
            blocked=tuple(
                one for one in find_blocks(inputs, frozenset()) if one.code not in MERGING_ON
            ),
            pause=inputs.pause,
        )
        self._found[name] = state_of(facts)

    def settle(self, gone: Mapping[str, Found], at: datetime) -> Mapping[str, StateSince]:
        """Return the state of each table, including *gone*; tables not noted keep their state.

        Transitions that cannot be stored are retried in the next round.
        """
        before = self.known() if self._now is None else self._now
        found = {**gone, **self._found}
        now = {name: _since(name, one, before.get(name), at) for name, one in found.items()}
        turned = [one for name, one in now.items() if _turned(one, before.get(name))]
        try:
            if turned:
                self.keep(turned)
        except UnreachableError as error:
            log.warning("table states are not stored", why=str(error))
            self._now = before
            return {**before, **now}
        for one in turned:
            log.info("table state", table=one.table, state=one.state.value, why=one.why)
        self._now = {**before, **now}
        return self._now


def find_retired(
    checkpoint: Checkpoint, router: Router, sources: Collection[str]
) -> Mapping[str, Found]:
    """Return landed tables without a shard that both exists and is configured."""
    there, gone = set[str](), dict[str, Found]()
    for shard, table in checkpoint.shards.items():
        if table is None:
            continue
        why = _gone(shard, checkpoint, router, sources)
        if why:
            gone.setdefault(table, (TableState.RETIRED, why))
        else:
            there.add(table)
    return {name: one for name, one in gone.items() if name not in there}


def find_configured(
    checkpoint: Checkpoint, router: Router, sources: Collection[str]
) -> frozenset[str]:
    """Return tables with a configured shard, even if the shard was dropped."""
    return frozenset(
        name
        for shard, table in checkpoint.shards.items()
        if shard.source in sources and (now := router.table(shard.name)) is not None
        for name in (table, now)
        if name is not None
    )


def _gone(shard: Shard, checkpoint: Checkpoint, router: Router, sources: Collection[str]) -> str:
    if shard.source not in sources:
        return f"source {shard.source} is no longer in the config"
    if not router.table(shard.name):
        return f"a rule ignores {shard.name}"
    return "" if shard_exists(checkpoint, shard) else f"{shard.name} was dropped, or renamed"


def _since(name: str, one: Found, before: StateSince | None, at: datetime) -> StateSince:
    """Return the state before with the new reason, or the new state since *at*."""
    state, why = one
    if before is None or before.state is not state:
        return StateSince(name, state, at, why)
    return before if before.why == why else replace(before, why=why)


def _turned(one: StateSince, before: StateSince | None) -> bool:
    return before is None or before.state is not one.state


DAYS = 3  # ended days that get an image if nothing was merged since then


@dataclass(frozen=True, slots=True)
class DueCuts:
    """The ends of the newest business days, and of today, which is included before it is reached.

    Empty if no table has images.  ``first`` returns a source's first fence ever written at or after
    an instant. ``fences`` returns the fences in memory, where old ones are thinned out.
    """

    fences: Callable[[], Mapping[str, Sequence[Fence]]]
    first: Callable[[str, datetime], Fence | None]
    zone: ZoneInfo
    clock: Callable[[], datetime]
    wanted: bool = True

    def __call__(self) -> tuple[DueCut, ...]:
        """Return the cuts, oldest first, each with the fences of sources that have one after it."""
        if not self.wanted:
            return ()
        today, known = self.clock().astimezone(self.zone).date(), self.fences()
        days = [today - timedelta(days=back) for back in range(DAYS, -1, -1)]
        return tuple(self._cut(day, known) for day in days)

    def _cut(self, day: date, known: Mapping[str, Sequence[Fence]]) -> DueCut:
        at = day_end(day, self.zone)
        found = {source: self._fence(source, fences, at) for source, fences in known.items()}
        return DueCut(
            at, {source: one for source, one in found.items() if one is not None}, str(day)
        )

    def _fence(self, source: str, known: Sequence[Fence], at: datetime) -> Fence | None:
        first = self.first(source, at)
        if first is None:
            return None
        return fence_of((first, *(one for one in known if one.number > first.number)), at)
