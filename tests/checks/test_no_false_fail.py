"""Whatever the workload and the delays, a faithful pipeline never fails a probe."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from checks.model import Outcome, Verdict
from checks.probes.completeness import Completeness
from checks.probes.max_id import MaxId
from checks.probes.offset_keys import OffsetKeys
from checks.probes.range_counts import RangeCounts
from checks.probes.schema import Schema
from checks.probes.values import Values
from checks.run import Check, run_probe
from pipeline.model import Op, Shard
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld
from tests.example_count import examples

PROBES: dict[str, Any] = {
    "max_id": MaxId(),
    "offset_keys": OffsetKeys(),
    "range_counts": RangeCounts(block_rows=4, newest=1, rotating=2, leaf=2),
    "completeness": Completeness(),
    "schema": Schema(),
    "values": Values(block_rows=4, newest=1, rotating=2),
    "values_by_rows": Values(block_rows=4, share=0.5),
}

Work = list[tuple[str, Shard, int]]
shards = st.sampled_from([ONE, TWO])
ids = st.integers(1, 5)
ops = st.sampled_from([Op.CREATE, Op.CREATE, Op.DELETE, Op.UPDATE])
changes = st.lists(st.tuples(ops, shards, ids), max_size=3)


class Faithful(RuleBasedStateMachine):
    """Random work, random delay, a probe every round with work between its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.world = FakeWorld()
        self.name = ""
        self.seen: list[Verdict] = []

    @initialize(name=st.sampled_from(sorted(PROBES)), first=changes)
    def begin(self, name: str, first: Work) -> None:
        self.name = name
        self.world.commit(*first)
        self.world.catch_up()

    @rule(work=changes, most=st.integers(0, 9), batches=st.integers(0, 2), meanwhile=changes)
    def behind(self, work: Work, most: int, batches: int, meanwhile: Work) -> None:
        self.world.commit(*work)
        self.world.write_heartbeat()
        self.world.land(most)
        self.world.apply(batches)
        self.probe(meanwhile)

    @rule(work=changes, late=changes, meanwhile=changes)
    def in_step_but_for_the_newest(self, work: Work, late: Work, meanwhile: Work) -> None:
        self.world.commit(*work)
        self.world.catch_up()
        self.world.commit(*late)
        self.probe(meanwhile)

    @rule(work=changes)
    def ahead_of_the_fence(self, work: Work) -> None:
        self.world.write_heartbeat()
        self.world.commit(*work)
        self.world.land()
        self.world.apply()
        self.probe([])

    @rule(shard=shards, old=ids, new=ids)
    def change_key(self, shard: Shard, old: int, new: int) -> None:
        if old in self.world.rows[shard] and new not in self.world.rows[shard]:
            self.world.commit((Op.DELETE, shard, old), (Op.CREATE, shard, new))

    @rule(shard=shards)
    def truncate(self, shard: Shard) -> None:
        self.world.truncate(shard)

    @rule(shard=shards, kind=st.sampled_from(["int", "bigint"]), between=st.booleans())
    def alter(self, shard: Shard, kind: str, between: bool) -> None:
        statement = partial(self.world.alter, shard, n=kind)
        if between:
            self.look(statement)
        else:
            statement()

    def probe(self, meanwhile: Work) -> None:
        """One round; each of *meanwhile* commits between two of its queries."""
        self.look(*(partial(self.world.commit, change) for change in meanwhile))

    def look(self, *meanwhile: Callable[[], object]) -> None:
        self.world.meanwhile = [*meanwhile]
        answer = run_probe(Check(self.name, PROBES[self.name], TABLE), self.world)
        self.world.meanwhile = []
        if isinstance(answer, Verdict):
            self.seen.append(answer)

    @invariant()
    def nothing_failed(self) -> None:
        assert [each for each in self.seen if each.ruling.outcome is Outcome.FAIL] == []
        assert [each for each in self.seen if each.ruling.code == "check_broken"] == []


TestFaithful = Faithful.TestCase
TestFaithful.settings = settings(max_examples=examples(160), stateful_step_count=30, deadline=None)
