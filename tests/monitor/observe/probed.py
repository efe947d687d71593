"""Runs probes on a table of a real pipeline, as the service would."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast
from zoneinfo import ZoneInfo

from checks.ledger import LedgerEntry
from checks.model import Outcome, Ruling, Verdict
from checks.run import Check, Probe, run_probe
from demo.processes import wait_until
from monitor.clients import LakeClient, source_orderings
from monitor.observe.heartbeats import FenceBook
from monitor.observe.losses import find_losses, loses_changes
from monitor.observe.probing import ProbeWorld
from monitor.observe.sampler import Sampling
from monitor.spark.requests import SparkLooks
from monitor.store.history import CheckMemory
from pipeline.build import open_source, open_table_format, open_transport, schema_readings
from pipeline.checkpoint import Checkpoint
from pipeline.lags.samples import Sample
from pipeline.model import Fence, Shard, Table
from pipeline.sources.budget import BudgetedQueries, SourceBudget
from pipeline.sources.source import Limits
from pipeline.tables.lake import Lake
from pipeline.transports.topics import KeyedTopics
from tests.pipeline.live import PATIENCE, Pipe, now

CHANGE = "UPDATE {} SET name = CONCAT('at ', CURRENT_TIMESTAMP) WHERE id = 1"


@dataclass
class Remembered:
    """What heartbeats were, and what probes want to be kept, in memory."""

    fences: list[Fence] = field(default_factory=list)
    kept: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def of(self, source: str) -> tuple[Fence, ...]:
        return tuple(self.fences)

    def recall(self, table: str, check: str) -> Mapping[str, Any] | None:
        return self.kept.get((table, check))

    def remember(self, table: str, check: str, kept: Mapping[str, Any], at: datetime) -> None:
        self.kept[table, check] = kept


@dataclass
class Look:
    """What was seen of the lane, and how far its mirrors had come by then."""

    checkpoint: Sample[Checkpoint]
    passed: Mapping[str, Fence]
    mirrors: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> Sequence["Look"]:
        return (self,)

    def holds(self, table: str, batch: int) -> bool:
        return True

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        return make()

    def losses(self, table: Table, waived: Iterable[str]) -> Mapping[str, frozenset[Shard]]:
        return find_losses(table, self.checkpoint.value, waived, frozenset)

    def loses_changes(self, table: Table) -> bool:
        return loses_changes(table, self.checkpoint.value)


def unlimited(source: Any) -> BudgetedQueries:
    """Queries of *source*, which has no budget."""
    budget = SourceBudget("shop", Limits(rows_per_second=0, busy=timedelta()))
    return BudgetedQueries(source, lambda: source, budget)


@dataclass
class Probed:
    """A pipe with a table ``t``, and what the service would ask its probes by."""

    pipe: Pipe
    client: LakeClient
    asked: Any
    probes: Mapping[str, Probe[Any]]
    busy: bool = True
    key: tuple[str, ...] = ("id",)
    memory: Remembered = field(default_factory=Remembered)
    counted: list[LedgerEntry] = field(default_factory=list)
    failed: list[Ruling] = field(default_factory=list)

    @property
    def table(self) -> Table:
        name = self.pipe.named("t")
        id_column = self.key[0] if len(self.key) == 1 else None
        return Table(name, (Shard(self.pipe.name, name),), self.key, id_column)

    def world(self) -> ProbeWorld:
        name, at = self.pipe.name, now()
        covered = [one for one in self.memory.fences if self.pipe.lane.checkpoint.covers(one)]
        look = Look(
            Sample(self.pipe.lane.checkpoint, at, PATIENCE), {name: covered[-1]} if covered else {}
        )
        return ProbeWorld(
            look=cast(Sampling, look),
            sources={name: unlimited(self.asked)},
            lake=self.client,
            names=(name,),
            fences=cast(FenceBook, self.memory),
            memory=cast(CheckMemory, self.memory),
            clock_now=now,
            now=now(),
            zone=ZoneInfo("UTC"),
            orderings=source_orderings((self.pipe.source(),), {}),
            looks=SparkLooks(),
            collectors={name: self.pipe.lane.landing.feeds[0].collector},
        )

    def ruled(self, name: str, wanted: Outcome) -> Ruling:
        """The first ruling of the probe that is as *wanted*, while rows are written if ``busy``."""
        found: list[Ruling] = []

        def tried() -> bool:
            if self.busy:
                self.pipe.sql(CHANGE.format(self.pipe.named("t")))
            self.memory.fences.append(self.pipe.round())
            if not self.pipe.behind():
                answer = run_probe(Check(name, self.probes[name], self.table), self.world())
                if isinstance(answer, Verdict):
                    found.append(answer.ruling)
                    if found[-1].outcome is Outcome.FAIL:
                        self.failed.append(found[-1])
                    self.counted += answer.counted
            return bool(found) and found[-1].outcome is wanted

        wait_until(tried, PATIENCE, f"{name} to rule {wanted}")
        return found[-1]


@contextmanager
def probing(pipe: Pipe, probes: Mapping[str, Probe[Any]]) -> Iterator[Probed]:
    """Ask *probes* about table ``t`` of a *pipe* that was started."""
    settings, own = pipe.lane.runner.settings, pipe.source()
    feed = pipe.lane.landing.feeds[0]
    origins = {pipe.name: KeyedTopics(pipe.name, own.topic_pattern, feed.format)}
    lake = Lake(settings, open_table_format(settings))
    client = LakeClient(lake, partial(open_transport, settings), origins, schema_readings((own,)))
    with closing(open_source(own)) as asked:
        yield Probed(pipe, client, asked, probes)
    client.close()
