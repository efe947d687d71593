"""Whatever the workload and the delays, a faithful pipeline never fails a probe."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from checks.model import NotYet, Outcome, Verdict
from checks.probes.completeness import Completeness
from checks.probes.max_id import MaxId
from checks.probes.offset_keys import OffsetKeys
from checks.probes.range_counts import RangeCounts
from checks.probes.volatility import Volatility
from checks.run import Check, run_probe
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld

PROBES: dict[str, Any] = {
    "max_id": MaxId(),
    "offset_keys": OffsetKeys(),
    "range_counts": RangeCounts(block_rows=4, newest=1, rotating=2, leaf=2),
    "completeness": Completeness(),
    "volatility": Volatility(),
}

shards = st.sampled_from([ONE, TWO])
ids = st.integers(1, 12)
ops = st.sampled_from([Op.CREATE, Op.CREATE, Op.UPDATE, Op.DELETE])
changes = st.lists(st.tuples(ops, shards, ids), min_size=1, max_size=4)


class Faithful(RuleBasedStateMachine):
    """Random work, random delay, probes at random moments with work between their queries."""

    def __init__(self) -> None:
        super().__init__()
        self.world = FakeWorld()
        self.seen: list[Verdict] = []

    @initialize(first=st.lists(st.tuples(st.just(Op.CREATE), shards, ids), max_size=12))
    def begin(self, first: list[Any]) -> None:
        self.world.commit(*first)
        self.world.catch_up()

    @rule(work=changes)
    def commit(self, work: list[Any]) -> None:
        self.world.commit(*work)

    @rule(shard=shards, old=ids, new=ids)
    def change_key(self, shard: Any, old: int, new: int) -> None:
        if old in self.world.rows[shard] and new not in self.world.rows[shard]:
            self.world.commit((Op.DELETE, shard, old), (Op.CREATE, shard, new))

    @rule(shard=shards)
    def truncate(self, shard: Any) -> None:
        self.world.truncate(shard)

    @rule()
    def beat(self) -> None:
        self.world.beat()

    @rule(most=st.integers(1, 9))
    def land(self, most: int) -> None:
        self.world.land(most)

    @rule(batches=st.integers(1, 3))
    def apply(self, batches: int) -> None:
        self.world.apply(batches)

    @rule()
    def catch_up(self) -> None:
        self.world.catch_up()

    @rule(name=st.sampled_from(sorted(PROBES)), meanwhile=st.lists(changes, max_size=4))
    def probe(self, name: str, meanwhile: list[list[Any]]) -> None:
        world = self.world
        world.meanwhile = [lambda work=work: world.commit(*work) for work in meanwhile]  # type: ignore[misc]
        answer = run_probe(Check(name, PROBES[name], TABLE), world)
        world.meanwhile = []
        if not isinstance(answer, NotYet):
            self.seen.append(answer)

    @rule(name=st.sampled_from(sorted(PROBES)))
    def probe_in_step(self, name: str) -> None:
        self.world.catch_up()
        self.probe(name, [])

    @invariant()
    def nothing_failed(self) -> None:
        assert [each for each in self.seen if each.ruling.outcome is Outcome.FAIL] == []
        assert [each for each in self.seen if each.ruling.code == "check_broken"] == []


TestFaithful = Faithful.TestCase
TestFaithful.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
