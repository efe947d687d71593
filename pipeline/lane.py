"""One lane: its landing loop, and the mirrors that follow it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from pipeline.apply.account import unexplained
from pipeline.apply.audit import Audit
from pipeline.apply.catalog import Catalog
from pipeline.apply.highs import Highs
from pipeline.apply.mirror import Mirror
from pipeline.apply.slices import Share, Slice, last_batch
from pipeline.apply.standing import Standing
from pipeline.apply.turn import Applier, Turn, hold_of
from pipeline.apply.upkeep import Upkeep, require_history
from pipeline.apply.workers import Workers
from pipeline.errors import HeldError
from pipeline.landing.loop import Landing
from pipeline.mark import Mark
from pipeline.model import Account, Table
from pipeline.report import Applied, Hold, Landed
from pipeline.settings import PipelineSettings


@dataclass(eq=False)
class Lane:
    """Land, then apply, in turn; a table that fails is held and blocks no other.

    State kept here is a cache of what the lake says: applied batches, highest orders, holds.
    """

    session: SparkSession
    settings: PipelineSettings
    landing: Landing
    catalog: Catalog
    standing: Standing
    clock: Callable[[], datetime]
    _applied: dict[str, int] = field(default_factory=dict)
    _highs: Highs = field(default_factory=Highs)
    _held: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Open the workers' sessions."""
        self._upkeep = Upkeep(self.session, self.settings, self.clock)
        self._workers = Workers(self.session, self.settings, self.clock)
        self._audit = Audit(self._workers.idle[0])

    @property
    def mark(self) -> Mark:
        """What the newest landed batch proves."""
        return self.landing.mark

    def land(self, waived: frozenset[str]) -> Landed:
        """Land one batch and learn the schema changes in it."""
        before = self.mark.batch
        landed = self.landing.land(waived)
        if self.mark.batch > before:
            self.catalog.learn((n.source, n.change) for n in self.landing.facts.news)
            self._highs.landed(self.mark.batch, self.mark.high)
        return landed

    def apply(self, waived: frozenset[str]) -> tuple[Applied, ...]:
        """Bring every mirror with landed changes up to date; tier 0 first.

        Returns a turn for each such mirror, and for each mirror looked at and found foreign.
        """
        tables = {name: self.catalog.table(name, self.mark.shards) for name in self.mark.tables}
        due = [t for t in tables.values() if self._batch(t) < self.mark.tables[t.name]]
        due.sort(key=lambda table: (table.tier, table.name))
        unheard = tuple(self._unheard(tables, waived))
        if unheard:
            return unheard  # to be kept before the next turns, or a kill takes both accounts
        checked = self.standing.choose({t.name for t in due} | self._held, tables)
        checked &= {name for name in checked if self._mirror(name).state.version >= 0}
        standing = {n: h for n in checked if (h := self.standing.hold(n, waived)) is not None}
        ready = [table for table in due if table.name not in standing]
        done = self._turns(ready) if ready else ()
        left = (self._still(name, hold) for name, hold in sorted(standing.items()))
        freed = self._freed(checked, standing, {turn.table for turn in done})
        result = (*done, *left, *freed)
        self._held = {turn.table for turn in result if turn.hold is not None}
        return result

    def upkeep(self, readers: Mapping[str, int]) -> None:
        """Compact and clean what is due; *readers*: table -> lowest version still needed."""
        self._upkeep.run(self.mark, readers, self._applied, self._stands_still)

    def _stands_still(self, name: str) -> bool:
        there = self._mirror(name).state.version >= 0
        return name in self._held or (there and self.standing.hold(name, frozenset()) is not None)

    def close(self) -> None:
        """Stop Spark."""
        self.session.stop()

    def _batch(self, table: Table) -> int:
        if table.name not in self._applied:
            self._applied[table.name] = self._mirror(table.name).state.batch
        return self._applied[table.name]

    def _mirror(self, name: str) -> Mirror:
        return Mirror(self.session, self.settings.mirror(name), self.settings.lane)

    def _turns(self, ready: list[Table]) -> tuple[Applied, ...]:
        after = {table.name: self._batch(table) for table in ready}
        first, log = min(after.values()), self.settings.changes
        until = last_batch(self.session, log, first, self.mark.batch)
        with Slice(self.session, log, after, until) as slice_:
            last = self.mark.tables
            waiting = [t for t in ready if t.name in slice_.shares or last[t.name] <= until]
            return self._workers.each(lambda one, t: self._turn(one, t, slice_), waiting)

    def _unheard(self, tables: Mapping[str, Table], waived: frozenset[str]) -> Iterator[Applied]:
        """Last turns of the process before this one, whose accounts it may not have told."""
        for name in self._audit.due({name: self._batch(table) for name, table in tables.items()}):
            try:
                turn = self._prepare(tables[name])
            except HeldError:
                continue  # it stands still anyway; asked again when it goes on
            state, now = self._mirror(name).state, self.clock()
            account = self._audit.account(turn, state, self.settings.mirror(name))
            if account is not None:
                hold = self._stopped(name, state.batch, account, waived)
                yield Applied(name, state.batch, state.version, account, now, now - now, hold)

    def _stopped(
        self, name: str, batch: int, account: Account, waived: frozenset[str]
    ) -> Hold | None:
        """The hold that an account which does not balance leaves behind, unless it is waived."""
        hold = unexplained(name, batch, account)
        if hold is None or hold.id in waived:
            return None
        self.standing.block(hold)
        return hold

    def _turn(self, applier: Applier, table: Table, slice_: Slice) -> Applied:
        try:
            turn = self._prepare(table)
        except HeldError as error:
            return self._still(table.name, hold_of(table.name, error))
        applied = applier.apply(turn, slice_, self.settings.mirror(table.name))
        self._audit.skip(table.name)
        self._applied[table.name] = applied.batch
        if applied.hold is None:
            topics = slice_.shares.get(table.name, Share()).topics
            self._highs.applied(table.name, slice_.until, topics)
        elif applied.account.residual:  # the rows are in: the next turn would balance
            self.standing.block(applied.hold)
        return applied

    def _prepare(self, table: Table) -> Turn:
        own = {f"{shard.source}/{shard.name}" for shard in table.shards}
        gaps = [name for name, text in self.mark.gaps.items() if any(f'"{n}"' in text for n in own)]
        if gaps:
            raise HeldError("gap", f"changes were lost before landing ({gaps[0]}); take a new base")
        if self._batch(table) < 0:
            require_history(self.settings.changes, self.mark.based, own)
        newest = {
            f"{shard.source}/{shard.name}": schema
            for shard in table.shards
            if (schema := self.catalog.newest(shard.source, shard.name)) is not None
        }
        return Turn(
            table=table,
            schema=self.catalog.schema(table),
            newest=newest,
            schema_at=self.catalog.at,
            after=self._batch(table),
            high=self._highs.of(table.name),
            grown=bool(self._highs.topics(table.name) & set(self.mark.grown)),
        )

    def _still(self, name: str, hold: Hold) -> Applied:
        version = self._mirror(name).state.version
        now = self.clock()
        return Applied(name, self._applied.get(name, -1), version, Account(), now, now - now, hold)

    def _freed(
        self, checked: set[str], standing: Mapping[str, Hold], done: set[str]
    ) -> tuple[Applied, ...]:
        """Tables that were held, are not any more, and had nothing to apply."""
        now = self.clock()
        free = sorted((self._held & checked) - set(standing) - done)
        return tuple(
            Applied(
                n,
                self._applied.get(n, -1),
                self._mirror(n).state.version,
                Account(),
                now,
                now - now,
            )
            for n in free
        )
