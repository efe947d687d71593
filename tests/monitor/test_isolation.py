"""F21: of three sources one hangs for ever; the rulings on the others' tables are on time.

Nobody waits here for one who hangs: if anything did, the test would not end.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from monitor.clients import source_orderings
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.collectors.collector import Collector
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Acknowledged, Fence, Head, Order, PartitionEnd, Stage, TopicPartition
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import SourceDescription
from tests.builders.values import by_shard
from tests.monitor.rig import SOURCE, FakeCollector, FakeDictionary, Rig
from tests.pipeline.hanging import Hanging

DAY = "2026-03-28"
NAMES = ("calm", "hung", "shop")
TABLES = {name: f"{name}.t" for name in NAMES}


class ThreeSources(Rig):
    """The rig with a table of each of three sources."""

    def _build(self) -> None:
        self.collectors = {name: FakeCollector() for name in NAMES}
        self.dictionaries = {name: FakeDictionary() for name in NAMES}
        self.silent: Hanging | None = None
        super()._build()
        self.watcher.sampler.collectors = cast("Mapping[str, Collector]", self.collectors)
        self.roster.sources = lambda: self.dictionaries
        settings = {name: replace(SOURCE, name=name, prefix=name) for name in NAMES}
        self.census.followed = {name: partial(replace, one) for name, one in settings.items()}
        self.census.describe = self._describe
        self.assessor.sources = tuple(settings.values())
        self.assessor.orderings = source_orderings(settings.values(), {})

    def _describe(self, settings: SourceSettings, _: Collection[str]) -> SourceDescription:
        if self.silent is not None and settings.name == "hung":
            self.silent()
        return SourceDescription(None, frozenset(), {}, {})

    def write_heartbeat(self) -> Fence:
        self.second()
        for name in NAMES:
            number = len(self.fences.of(name)) + 1
            fence = Fence(name, number, self.now, Head("A", binlog_position(1, number * 100)))
            self.fences.add(fence)
            self.collectors[name].position = Acknowledged(binlog_position(1, number * 100 + 1))
        return fence

    def land(self, *, changes: bool = True) -> None:
        """One batch with a change of each table."""
        newest = len(self.fences.of("shop"))
        batch = self.lake.newest.batch + 1 if self.lake.newest else 0
        shards = {f"{name}/{table}": table for name, table in TABLES.items()}
        self.lake.newest = Checkpoint(
            lane="main",
            batch=batch,
            offsets={
                TopicPartition.parse(f"{name}.{table}:0"): PartitionEnd(batch)
                for name, table in TABLES.items()
            },
            acknowledged=dict.fromkeys(NAMES, Acknowledged(binlog_position(1, newest * 100))),
            heartbeats=dict.fromkeys(NAMES, newest),
            tables=dict.fromkeys(TABLES.values(), batch),
            epochs=dict.fromkeys(NAMES, Epoch(1, "A", binlog_position(1, 0))),
            shards=by_shard(shards),
            bases=dict.fromkeys(by_shard(shards), Order(1, 1, 0)),
        )

    def apply(self, *tables: str) -> None:
        for table in TABLES.values():
            before = self.lake.mirrors.get(table, MirrorPosition(-1, -1, table))
            note = {"sluice": {"after": before.version}}
            made = Commit(before.version + 1, "MERGE", self.now, True, note=note)
            self.lake.commits.setdefault(table, []).append(made)
            self.lake.mirrors[table] = MirrorPosition(made.version, self.newest.batch, table)

    def states(self) -> dict[str, tuple[int, str]]:
        """What the gate says of each table for yesterday, and of now the board."""
        found = {}
        for table in TABLES.values():
            recent = self.view(table).recent[Stage.MIRROR].state
            found[table] = self.ask(table, cut=DAY)[0], recent.value
        return found


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeSources]:
    made = ThreeSources(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hanging(three: ThreeSources, hanging: Hanging) -> Hanging:
    sampler = three.watcher.sampler
    hanging.watched(sampler.upstreams, sampler.looks, three.roster.asking, three.census.asking)
    return hanging


def _hang(three: ThreeSources, what: str, hanging: Hanging, patch: pytest.MonkeyPatch) -> None:
    applied = three.lake.applied
    if what == "mirror":
        patch.setattr(
            three.lake, "applied", lambda name: hanging() if name == "hung.t" else applied(name)
        )
    elif what == "describe":
        three.silent = hanging
    else:
        owner = three.dictionaries if what == "key_columns" else three.collectors
        patch.setattr(owner["hung"], what, hanging)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        pytest.param("acknowledged", (404, "the collector of hung has not answered"), id="offsets"),
        pytest.param("state", (404, "the collector of hung has not answered"), id="status"),
        pytest.param("mirror", (404, "mirror hung.t has not answered since"), id="its mirror"),
        pytest.param("describe", (404, "source hung has not described its tables"), id="census"),
        pytest.param("key_columns", (200, ""), id="its dictionary"),
    ],
)
def test_f21_of_three_sources_one_hangs_for_ever_and_the_others_are_ready_on_time(
    three: ThreeSources,
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    told: tuple[int, str],
) -> None:
    _hang(three, what, hanging, monkeypatch)

    three.round(3)
    three.cycle.watch()

    states = three.states()
    assert three.current.board.at == three.now
    assert states["calm.t"] == states["shop.t"] == (200, "ready")
    assert states["hung.t"][0] == told[0]
    answer = three.ask("hung.t", cut=DAY)[1]["tables"][0]
    assert told[1] in " ".join(one["text"] for one in answer["reasons"])
    assert len(hanging.stuck) == 1, "never a second question beside it"


def test_f21_a_mirror_that_hangs_after_all_were_ready_takes_readiness_from_its_own_table_alone(
    three: ThreeSources, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    three.round(2)
    three.cycle.watch()
    before = three.states()
    _hang(three, "mirror", hanging, monkeypatch)

    three.round()

    states = three.states()
    assert {*before.values()} == {(200, "ready")}
    assert {name: recent for name, (_, recent) in states.items()} == {
        "calm.t": "ready",
        "hung.t": "unknown",
        "shop.t": "ready",
    }
