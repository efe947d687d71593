"""Compares a table with its source once, in a separate process; implements `sluice compare`.

It reads the lake, the sources and the settings of their collectors, and writes to none of them. A
running service continues to merge. The heartbeats of the service are read from the table at the
source: they show when the mirror has passed a position. Without a service there are no heartbeats,
and differences stay undecided.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from checks.compare.look import ComparedColumns, choose_columns, explain_key
from checks.compare.walk import (
    ANY,
    MOST_RANGES,
    TableWalk,
    WalkPlan,
    WalkProgress,
    WalkResult,
)
from checks.world import Range, World
from monitor.clients import LakeClient, Servers, source_orderings
from monitor.config.model import Config
from monitor.display_text import similar_names
from monitor.observe.heartbeats import FenceBook, HeartbeatReader
from monitor.observe.probing import ProbeWorld
from monitor.observe.sampler import Sampling
from monitor.observe.tables import find_table
from monitor.runtime import utc_now
from monitor.spark.requests import SparkLooks
from monitor.store.store import ServiceStore
from pipeline.build import open_collector
from pipeline.checkpoint import Checkpoint
from pipeline.collectors.collector import Collector
from pipeline.errors import ConfigError, ProofError, SluiceError, UnreachableError
from pipeline.lags.samples import LandedBatch, Sample, extend_batches, to_landed_batch
from pipeline.model import Head, Shard, Table
from pipeline.settings import Router, SourceSettings
from pipeline.sources.source import Source, read_limits

A = TypeVar("A")
B = TypeVar("B")
PAUSE = timedelta(seconds=1)
CURRENT = timedelta(days=1)  # a checkpoint that was just read is always fresh


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What to compare; no ``columns`` and an empty ``shard`` mean all.

    A range has about ``block_rows`` rows.
    """

    table: str
    columns: tuple[str, ...] = ()
    within: Range = ANY
    shard: str = ""
    wait: timedelta = timedelta(minutes=10)
    block_rows: int = 20_000


@dataclass(frozen=True, slots=True)
class CompareReport:
    """The result; ``heads`` has the head of each source's log before and after the comparison."""

    table: Table
    columns: Mapping[Shard, ComparedColumns]
    result: WalkResult
    heads: Mapping[str, tuple[Head, Head]]


@dataclass(eq=False)
class CompareWorlds:
    """Opens worlds of one table, each with the state of that moment."""

    config: Config
    table: Table
    lake: LakeClient
    servers: Servers
    collectors: Mapping[str, Collector]
    store: ServiceStore
    clock: Callable[[], datetime] = utc_now
    _steps: tuple[LandedBatch, ...] = ()

    def __post_init__(self) -> None:
        """Start without heartbeats."""
        self.fences = FenceBook(self.store.fences)
        self._heartbeats = [
            HeartbeatReader(one, self.fences, self.clock) for one in self.servers.all().values()
        ]

    def open(self) -> World:
        """Return the world as it is now.

        Raises:
            UnreachableError: the lake does not answer.
        """
        for one in self._heartbeats:
            with suppress(UnreachableError, ProofError):  # without heartbeats nothing is decided
                one.read()
        checkpoint, now = newest_checkpoint(self.config, self.lake), self.clock()
        known = {name: self.fences.of(name) for name in self.table.sources}
        self._steps = extend_batches(self._steps, to_landed_batch(checkpoint, known))
        world = ProbeWorld(
            look=Sampling(now, {}, Sample(checkpoint, now, CURRENT), {}, steps=self._steps),
            sources=self.servers.queries(),
            lake=self.lake,
            names=self.table.sources,
            fences=self.fences,
            memory=self.store.memory,
            clock_now=self.clock,
            now=now,
            zone=self.config.time_zone,
            orderings=source_orderings(self.config.sources, {}),
            collectors=self.collectors,
            looks=SparkLooks(),  # not used here
        )
        world.begin("compare")
        return world


def sleep_a_moment() -> None:
    """Wait a moment for heartbeats and merges."""
    time.sleep(PAUSE.total_seconds())


def compare_table(
    config: Config,
    request: CompareRequest,
    tell: Callable[[WalkProgress], object],
    pause: Callable[[], object] = sleep_a_moment,
) -> CompareReport:
    """Compare what *request* names.

    *tell* is called with the progress. *pause* is called to wait for the mirror.

    Raises:
        ConfigError: no such table, shard or column, or the table cannot be compared.
        UnreachableError: a source or the lake did not answer before the first row was read.
    """
    with open_worlds(config, request.table) as worlds:
        table = worlds.table
        if table.no_ranges:
            what = f"table {table.name} has no ranges to compare: {table.no_ranges}"
            restated = any(map(table.restates, table.key))
            fix = "; use the check `values`, which compares it up to `whole_rows` rows"
            raise ConfigError(what if restated else what + fix)
        shards = _choose_shards(table, request.shard)
        columns = _choose_columns(table, shards, worlds.open(), request.columns)
        never = "no columns of it have landed; wait for its first changes, and compare again"
        servers, rate = worlds.servers.all(), _rate(config, table.sources)
        spare = RateLimit(rate)
        plan = WalkPlan(
            tuple(columns),
            request.within,
            min(request.block_rows, rate or request.block_rows),
            most_ranges=1 if rate else MOST_RANGES,
            patience=request.wait,
            quiet=config.readiness.heartbeat_age,
            closed={one: never for one in shards if one not in columns},
        )
        first = {name: servers[name].head() for name in table.sources}

        def hear(progress: WalkProgress) -> None:
            tell(progress)
            spare(progress)

        walk = TableWalk(
            table,
            columns,
            plan,
            worlds.open,
            worlds.clock,
            pause,
            hear,
            ask_together,
        )
        result = walk.run()
        heads = {name: (head, _head(servers[name]) or head) for name, head in first.items()}
        return CompareReport(table, walk.columns, result, heads)


def ask_together(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Call both at the same time: the server does one, this process the other."""
    with ThreadPoolExecutor(1) as aside:
        theirs = aside.submit(second)
        return first(), theirs.result()


@dataclass(eq=False)
class RateLimit:
    """Limits reading to ``rate`` rows per second; 0: no limit."""

    rate: int
    _begun: float = field(default_factory=time.monotonic)

    def __call__(self, progress: WalkProgress) -> None:
        """Wait if the rows of *progress* were read faster than the rate."""
        if self.rate:
            time.sleep(max(self._begun + progress.rows / self.rate - time.monotonic(), 0))


def newest_checkpoint(config: Config, lake: LakeClient) -> Checkpoint:
    """Return the newest checkpoint of the lane.

    Raises:
        ConfigError: nothing has landed.
    """
    found = lake.lake.checkpoint()
    if found is None:
        raise ConfigError(f"nothing has landed in {config.settings.changes}")
    return found


@contextmanager
def open_worlds(config: Config, name: str) -> Iterator[CompareWorlds]:
    """Open the lake, the sources of the table *name*, and a temporary store.

    Raises:
        ConfigError: nothing has landed, or no such table.
    """
    with closing(LakeClient.of(config)) as lake, TemporaryDirectory(prefix="sluice-") as folder:
        checkpoint = newest_checkpoint(config, lake)
        known = sorted({table for table in checkpoint.shards.values() if table is not None})
        if name not in known:
            raise ConfigError(f"no table {name!r}; known: {similar_names(name, known)}")
        folds = Router(tuple(config.tables)).may_fold_into(name)
        own = [one for one in config.sources if folds or _has_shard(checkpoint, one.name, name)]
        collectors = {one.name: open_collector(one, config.settings) for one in own}
        addresses = {one.name: _followed(one, collectors[one.name]) for one in own}
        servers = Servers({one: partial(addresses.__getitem__, one) for one in addresses})
        with (
            closing(servers),
            _all_closed(collectors.values()),
            closing(ServiceStore.open(Path(folder, "compare.db"))) as store,
        ):
            table = find_table(name, checkpoint, config.tables, servers.all(), lake.standards)
            if table is None:
                raise ConfigError(
                    f"table {name} has no shard that exists in a source of the config"
                )
            yield CompareWorlds(config, table, lake, servers, collectors, store)


def _has_shard(checkpoint: Checkpoint, source: str, table: str) -> bool:
    return any(of == table and shard.source == source for shard, of in checkpoint.shards.items())


def _followed(source: SourceSettings, collector: Collector) -> SourceSettings:
    """Return the source at the address that receives heartbeats.

    It is the collector's server, or the server of the config if the collector is not followed or
    does not answer.
    """
    if not source.follow_collector:
        return source
    try:
        return source.at(*collector.address())
    except SluiceError:  # as the service does
        return source


@contextmanager
def _all_closed(collectors: Iterable[Collector]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in collectors:
            one.close()


def _head(source: Source) -> Head | None:
    with suppress(UnreachableError):  # the result is reported nevertheless
        return source.head()
    return None


def _rate(config: Config, names: Sequence[str]) -> int:
    """Return the lowest `limits.rate` of the sources *names*; 0 without one."""
    rates = [read_limits(one.options).rate for one in config.sources if one.name in names]
    return min((rate for rate in rates if rate), default=0)


def _choose_shards(table: Table, name: str) -> tuple[Shard, ...]:
    if not name:
        return table.shards
    found = tuple(one for one in table.shards if name in {str(one), one.name})
    if not found:
        known = similar_names(name, [str(one) for one in table.shards])
        raise ConfigError(f"table {table.name} has no shard {name!r}; known: {known}")
    return found


def _choose_columns(
    table: Table, shards: Sequence[Shard], world: World, names: Sequence[str]
) -> dict[Shard, ComparedColumns]:
    """Return the columns of each shard to compare: *names* and the key, or all.

    Shards without a landed schema are left out.
    """
    chosen = dict[Shard, ComparedColumns]()
    for shard in shards:
        schema = world.schema(shard)
        if schema is None:
            continue
        found = choose_columns(table, shard, schema, world)
        known = [one.name for one in schema.columns]
        for name in names:
            if name not in known:
                near = similar_names(name, known)
                raise ConfigError(f"{shard} has no column {name!r}; known: {near}")
            if name in found.left_out:
                raise ConfigError(f"column {name} cannot be compared: {found.left_out[name]}")
        if why := explain_key(table, found):
            raise ConfigError(f"rows of {shard} cannot be compared: {why}")
        if names:
            asked = {*names, *table.key}
            own = tuple(one for one in found.columns if one.name in asked)
            others = {one: "--columns leaves it out" for one in known if one not in asked}
            found = ComparedColumns(own, {**others, **found.left_out})
        chosen[shard] = found
    return chosen
