"""Landing and applying what real servers do: restarts, resets, gaps, garbage, half snapshots."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from checks.ledger import LANDING_HOP, LedgerEntry, LedgerState
from demo.processes import wait_until
from demo.servers import Servers
from monitor.store.store import ServiceStore
from pipeline import model
from pipeline.model import Shard
from tests.builders.change_log import take_out
from tests.pipeline.live import PATIENCE, Pipe, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80))"


def test_a_collector_that_sends_again_after_a_crash_changes_nothing(
    pipe: Callable[..., Pipe], servers: Servers
) -> None:
    p = pipe("again")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a'), (2, 'b')")
    p.start()
    p.catch_up()
    p.servers.connect.pause(p.name)
    p.servers.connect.resume(p.name)
    for number in range(3, 40):
        p.sql(
            f"INSERT INTO DB.t VALUES ({number}, 'n')", f"DELETE FROM DB.t WHERE id = {number - 1}"
        )
    servers.connect.kill()
    servers.connect.start()
    p.sql("UPDATE DB.t SET name = 'z' WHERE id = 1")

    p.catch_up()

    assert p.pairs() == p.source_pairs() == {1: "z", 39: "n"}
    assert not [hold for one in p.landed for hold in one.holds]


def test_an_empty_table_gets_an_empty_mirror_and_a_base(pipe: Callable[..., Pipe]) -> None:
    p = pipe("hollow")
    p.sql(T)
    p.start()

    p.catch_up()

    assert p.mirror("t") == []
    assert Shard.parse(f"{p.name}/{p.name}.t") in p.lane.checkpoint.bases


def test_a_table_created_later_has_its_base_in_its_create(pipe: Callable[..., Pipe]) -> None:
    p = pipe("later")
    p.sql(T)
    p.start()
    p.catch_up()
    p.sql(T.replace("DB.t", "DB.u"), "INSERT INTO DB.u VALUES (7, 'u')")

    p.catch_up()

    assert p.pairs("u") == {7: "u"}
    assert Shard("later", "later.u") in p.lane.checkpoint.bases


def test_a_truncate_empties_the_mirror_and_the_ledger_counts_it(
    pipe: Callable[..., Pipe], tmp_path: Path
) -> None:
    p = pipe("trunc")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a'), (2, 'b')")
    p.start()
    p.catch_up()
    p.sql("DELETE FROM DB.t WHERE id = 2", "TRUNCATE DB.t", "INSERT INTO DB.t VALUES (3, 'c')")

    p.catch_up()

    assert p.pairs() == {3: "c"}
    store = ServiceStore.open(tmp_path / "ledger.db")
    balanced = follow_reports(store, p)
    assert {one.state for one in balanced} == {LedgerState.BALANCED}
    assert {op for one in balanced for op in one.came_out} >= {"r", "c", "d", "truncate"}
    received = store.ledger.entries(p.named("t"), 0, 10**9)[LANDING_HOP]
    assert {one.state for one in received} == {LedgerState.BALANCED}
    assert {op for one in received for op in one.explained} >= {"r", "c", "d", "truncate"}

    p.sql("INSERT INTO DB.t VALUES (4, 'd'), (5, 'e')")
    wait_until(lambda: landed_rows(p) == 2, PATIENCE, "two rows")
    take_out(p.lane.landing.log, "key", f'["{p.name}","{p.name}.t","5"]')
    p.catch_up()

    lost = [one for one in follow_reports(store, p) if one.state is LedgerState.RESIDUAL]
    store.close()
    assert p.pairs() == {3: "c", 4: "d"}
    assert [one.missing for one in lost] == [{"c": 1}]


def landed_rows(p: Pipe) -> int:
    """Land without a merge; how many rows of the table have been reported since the last look."""
    p.landed.append(p.lane.land(frozenset()))
    table = p.named("t")
    return sum(dict(one.tables).get(table, 0) for one in p.landed)


def follow_reports(store: ServiceStore, p: Pipe) -> tuple[LedgerEntry, ...]:
    """The ledger of the table, after all reports of the lane so far."""
    for landed in p.landed:
        store.ledger.add_landing(landed)
    store.ledger.add_merges("main", p.applied, now())
    p.landed.clear()
    p.applied.clear()
    return store.ledger.entries(p.named("t"), 0, 10**9)[model.Hop.MERGE]


def test_an_added_column_is_followed_while_running(pipe: Callable[..., Pipe]) -> None:
    p = pipe("shape")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a')")
    p.start()
    p.catch_up()
    p.sql("ALTER TABLE DB.t ADD COLUMN points INT NOT NULL DEFAULT 7")
    p.sql("INSERT INTO DB.t VALUES (2, 'b', 9)")

    p.catch_up()

    assert [row["points"] for row in p.mirror("t")] == [7, 9]


def test_an_alter_without_any_row_reaches_the_mirror(pipe: Callable[..., Pipe]) -> None:
    p = pipe("quiet")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a')")
    p.start()
    p.catch_up()
    p.sql("ALTER TABLE DB.t ADD COLUMN points INT NOT NULL DEFAULT 7")

    p.catch_up()
    wait_until(lambda: _followed(p), PATIENCE, "the new column")

    assert p.mirror("t") == [{"id": 1, "name": "a", "points": 7}]


def _followed(p: Pipe) -> bool:
    p.round()
    return "points" in p.mirror("t")[0]


def test_garbage_is_quarantined_and_blocks_until_it_is_waived(pipe: Callable[..., Pipe]) -> None:
    p = pipe("garbage")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a')")
    p.start()
    p.catch_up()
    producer = KafkaProducer(bootstrap_servers=p.servers.kafka.bootstrap)
    producer.send("garbage.garbage.t", key=b'{"id":5}', value=b"{not json")
    producer.flush()
    producer.close()
    p.sql("INSERT INTO DB.t VALUES (2, 'b')")

    p.catch_up()
    ((subject, ids),) = p.lane.checkpoint.quarantined.items()
    p.round(frozenset(ids))

    assert subject in ("garbage.t", "topic:garbage.garbage.t")
    assert p.pairs() == {1: "a", 2: "b"}
    assert not p.lane.checkpoint.quarantined


def test_offsets_deleted_before_they_were_landed_are_a_gap_until_a_new_base(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe("gap")
    p.sql(T, "INSERT INTO DB.t VALUES (1, 'a')")
    p.start()
    p.catch_up()
    p.sql("INSERT INTO DB.t VALUES (2, 'lost'), (3, 'kept')")
    goal = p.lane.checkpoint.offsets[model.TopicPartition("gap.gap.t", 0)].offset + 2
    tp = TopicPartition("gap.gap.t", 0)
    ends = p.lane.landing.transport
    wait_until(
        lambda: any(e.offset >= goal for e in ends.ends(["gap.gap.t"]).values()), PATIENCE, "rows"
    )
    admin = KafkaAdminClient(bootstrap_servers=p.servers.kafka.bootstrap)
    admin.delete_records({tp: goal - 1})
    admin.close()
    p.round()
    (gap,) = p.landed[-1].gaps
    held = p.applied[-1].hold
    p.servers.connect.halt(p.name)
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)
    p.sql("UPDATE DB.t SET name = 'new' WHERE id = 3")

    p.catch_up()

    assert (gap.first, gap.until) == (goal - 2, goal - 1)
    assert held is not None
    assert held.reason == "gap"
    assert p.pairs() == {1: "a", 2: "lost", 3: "new"}
    assert not p.lane.checkpoint.gaps


def test_a_capped_batch_promises_nothing_it_has_not_passed(pipe: Callable[..., Pipe]) -> None:
    p = pipe("capped")
    p.batch_rows = 40
    p.sql(T, "INSERT INTO DB.t VALUES " + ", ".join(f"({n}, 'a')" for n in range(200)))
    p.start()
    p.catch_up()
    p.sql("UPDATE DB.t SET name = 'b'")

    p.catch_up()

    assert any(one.capped for one in p.landed)
    assert set(p.pairs().values()) == {"b"}
