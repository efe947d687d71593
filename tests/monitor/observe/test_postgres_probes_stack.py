"""Probes of a table of a real Postgres: in step at first, then with real losses."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from checks.model import Outcome, Ruling, Verdict
from checks.probes.completeness import Completeness
from checks.probes.day_counts import DayCounts
from checks.probes.max_id import MaxId
from checks.probes.offset_keys import OffsetKeys
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, Probe, run_probe
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.servers import Servers
from monitor.clients import LakeClient, source_orderings
from monitor.observe.heartbeats import FenceBook
from monitor.observe.probing import ProbeWorld
from monitor.observe.sampler import Sampling
from monitor.store.history import CheckMemory
from pipeline.build import open_source, open_table_format, open_transport, schema_readings
from pipeline.checkpoint import Checkpoint
from pipeline.lags.samples import Sample
from pipeline.model import Fence, Shard, Table
from pipeline.tables.lake import Lake
from pipeline.transports.topics import KeyedTopics
from tests.pipeline.live import PATIENCE, now
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]

PROBES: Mapping[str, Probe[Any]] = {
    "completeness": Completeness(),
    "offset_keys": OffsetKeys(),
    "max_id": MaxId(),
    "range_counts": RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4, suspects=20),
    "day_counts": DayCounts(columns=("born",), days=2),
    "values": Values(block_rows=16, newest=1, rotating=2),
}
LOSING = {  # the second half of a changed key is never sent, and counted all the same
    "predicates": "moved",
    "predicates.moved.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.moved.name": "__debezium.oldkey",
    "transforms": "lose",
    "transforms.lose.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.lose.predicate": "moved",
}


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

    @property
    def steps(self) -> Sequence["Look"]:
        return (self,)

    def holds(self, table: str, batch: int) -> bool:
        return True

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        return make()


@dataclass
class Probed:
    """A pipe and what the service would ask its probes by."""

    pipe: PostgresPipe
    client: LakeClient
    asked: Any
    busy: bool = True
    memory: Remembered = field(default_factory=Remembered)

    @property
    def table(self) -> Table:
        return Table("public.t", (Shard(self.pipe.name, "public.t"),), ("id",), "id")

    def world(self) -> ProbeWorld:
        name, at = self.pipe.name, now()
        covered = [one for one in self.memory.fences if self.pipe.lane.checkpoint.covers(one)]
        look = Look(
            Sample(self.pipe.lane.checkpoint, at, PATIENCE), {name: covered[-1]} if covered else {}
        )
        return ProbeWorld(
            look=cast(Sampling, look),
            sources={name: self.asked},
            lake=self.client,
            names=(name,),
            fences=cast(FenceBook, self.memory),
            memory=cast(CheckMemory, self.memory),
            clock_now=now,
            now=now(),
            zone=ZoneInfo("UTC"),
            orderings=source_orderings((self.pipe.source(),), {}),
        )

    def ruled(self, name: str, wanted: Outcome) -> Ruling:
        """The first ruling of the probe that is as *wanted*, while rows are written if ``busy``."""
        found: list[Ruling] = []

        def tried() -> bool:
            if self.busy:
                self.pipe.sql("UPDATE t SET name = clock_timestamp()::text WHERE id = 1")
            self.memory.fences.append(self.pipe.round())
            if not self.pipe.behind():
                answer = run_probe(Check(name, PROBES[name], self.table), self.world())
                found.extend([answer.ruling] if isinstance(answer, Verdict) else [])
            return bool(found) and found[-1].outcome is wanted

        wait_until(tried, PATIENCE, f"{name} to rule {wanted}")
        return found[-1]


@pytest.fixture
def probed(
    servers: Servers, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> Iterator[Probed]:
    """A table of twenty rows, all of them in its mirror."""
    del spark  # lanes take up the session that is there
    name = f"probed_{postgres.version}"
    p = PostgresPipe(servers, tmp_path / name, name, postgres=postgres, connector=LOSING)
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80), born TIMESTAMPTZ)",
        "INSERT INTO t SELECT n, 'old', now() - '1 day'::interval FROM generate_series(1, 20) n",
    )
    p.start()
    p.catch_up()
    settings, own = p.lane.runner.settings, p.source()
    feed = p.lane.landing.feeds[0]
    origins = {name: KeyedTopics(name, own.topic_pattern, feed.format)}
    lake = Lake(settings, open_table_format(settings))
    client = LakeClient(lake, partial(open_transport, settings), origins, schema_readings((own,)))
    with closing(open_source(own)) as asked:
        yield Probed(p, client, asked)
    client.close()
    servers.connect.deregister(name)
    p.heart.source.close()


def test_probes_pass_in_step_and_name_what_was_lost(probed: Probed) -> None:
    p = probed.pipe
    before = p.lane.checkpoint.batch
    p.sql("UPDATE t SET name = 'new' WHERE id < 4", "DELETE FROM t WHERE id = 5")
    p.catch_up()
    for name in PROBES:
        probed.ruled(name, Outcome.PASS)
    counted = probed.world().log()
    assert counted.change_counts(probed.table, before, p.lane.checkpoint.batch) >= 4 + len(PROBES)
    assert counted.changes_without_transaction(probed.table, before, p.lane.checkpoint.batch) == 0

    p.sql("UPDATE t SET id = 106 WHERE id = 6")  # its second half is lost on the way
    lost = probed.ruled("completeness", Outcome.FAIL)
    assert (lost.code, len(lost.keys)) == ("missing_events", 1)
    assert "promised 2 events, 1 landed" in lost.reason
    assert "106" in " ".join(probed.ruled("range_counts", Outcome.FAIL).keys)
    assert "106" in " ".join(probed.ruled("values", Outcome.FAIL).keys)
    assert probed.ruled("max_id", Outcome.FAIL).code == "mirror_short"

    probed.busy = False
    day = probed.ruled("day_counts", Outcome.FAIL)
    assert (day.code, len(day.keys)) == ("days_differ", 1)
    assert "19 rows at the source, 18 in the mirror" in day.reason
    p.sql("INSERT INTO t VALUES (50, 'last')")
    p.catch_up()
    path = p.lane.runner.settings.mirror("public.t")
    probed.memory.kept.pop(("public.t", "offset_keys"), None)
    run_probe(Check("offset_keys", PROBES["offset_keys"], probed.table), probed.world())
    p.session.sql(f"UPDATE delta.`{path}` SET name = 'other' WHERE id = 9")  # behind our back
    probed.memory.kept.pop(("public.t", "values"), None)
    other = probed.ruled("values", Outcome.FAIL)
    assert "public.t:9" in " ".join(other.keys)
    assert other.reason.endswith("they differ in name")
    p.session.sql(f"DELETE FROM delta.`{path}` WHERE id = 50")
    gone = probed.ruled("offset_keys", Outcome.FAIL)
    assert gone.code == "missing_rows"
    assert '"50"' in " ".join(gone.keys)
