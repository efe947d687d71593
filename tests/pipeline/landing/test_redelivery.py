"""What was sent again, told from what is new: over Arrow, at the cost of the rows in question."""

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.changelog.table import CHANGES
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.landing.epochs import find_resending
from pipeline.landing.redelivery import (
    Asked,
    Between,
    LogStretch,
    Near,
    PartialFrom,
    Transactions,
    find_unexplained,
    restore_orders,
    sent_again,
)
from pipeline.model import Acknowledged, Order, Origin, Shard, TopicPartition
from pipeline.sources.mysql.position import binlog_position

OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
EPOCH = Epoch(
    2, "new", binlog_position(1, 1), heartbeat=40, before=binlog_position(4, 99, f"{OLD}:1-99")
)
TP = TopicPartition("s.t", 0)
FAR = 5 * 2**20


def landed_row(offset: int, pos: int | None, **changed: Any) -> dict[str, Any]:
    order = None if pos is None else {"epoch": 1, "log": 7, "pos": pos, "row": 0}
    plain = {
        "source": "s", "shard": "t", "topic": "s.t", "partition": 0, "offset": offset,
        "order": order,
        "op": "u", "key": "[1]", "before": None, "after": f"at {pos}", "tx": None,
    }  # fmt: skip
    return plain | changed


def change_table(*given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(given), CHANGES)


@dataclass(eq=False)
class Log:
    """What is landed, and what was asked of it."""

    landed: pa.Table
    asked: list[Asked] = field(default_factory=list)

    def __call__(self, asked: Asked) -> pa.Table:
        self.asked.append(asked)
        partial = pc.is_valid(self.landed["changed"])
        return self.landed.filter(partial) if isinstance(asked, PartialFrom) else self.landed


LANDED = (
    landed_row(0, 10),
    landed_row(1, 20, before="x"),
    landed_row(2, 30, key=None, after=None, op="d"),
)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        pytest.param(landed_row(7, 10), None, id="the same"),
        pytest.param(landed_row(7, 20, before="x"), None, id="the same, with a row before"),
        pytest.param(
            landed_row(7, 30, key=None, after=None, op="d"), None, id="the same, without a key"
        ),
        pytest.param(
            landed_row(7, 10, tx={"id": "g", "total_order": 3}), None, id="in another sending"
        ),
        pytest.param(
            landed_row(7, 10, order={"epoch": 2, "log": 7, "pos": 10, "row": 0}),
            None,
            id="a later epoch",
        ),
        pytest.param(landed_row(7, 11), 7, id="between two that are landed"),
        pytest.param(landed_row(7, 10, after="other"), 7, id="it says something else"),
        pytest.param(landed_row(7, 10, after=None), 7, id="it says nothing"),
        pytest.param(
            landed_row(7, 30, key=None, after="", op="d"), 7, id="an empty text is not nothing"
        ),
        pytest.param(
            landed_row(7, 30, key="", after=None, op="d"), 7, id="an empty key is not none"
        ),
        pytest.param(landed_row(7, 20), 7, id="without the row before"),
        pytest.param(landed_row(7, 10, before=""), 7, id="with an empty row before"),
        pytest.param(landed_row(7, 10, op="c"), 7, id="another op"),
        pytest.param(landed_row(7, 10, key="[2]"), 7, id="another key"),
        pytest.param(landed_row(7, 10, topic="s.u"), 7, id="in another topic"),
        pytest.param(landed_row(7, 10, source="b"), 7, id="of another source"),
        pytest.param(
            landed_row(7, 10, order={"epoch": 1, "log": 7, "pos": 10, "row": 1}),
            7,
            id="another row of it",
        ),
        pytest.param(
            landed_row(7, 10, order={"epoch": 1, "log": 6, "pos": 10, "row": 0}),
            7,
            id="another log",
        ),
    ],
)
def test_a_row_is_sent_again_only_if_it_equals_a_landed_one(
    sent: dict[str, Any], found: int | None
) -> None:
    log = Log(change_table(*LANDED))
    at = TopicPartition(sent["topic"], 0)
    if sent["source"] == "b":
        log.landed = change_table()

    assert find_unexplained(change_table(sent), {at: (7,)}, log) == (
        {} if found is None else {at: found}
    )


def test_a_row_may_repeat_one_that_stands_higher_in_its_batch_but_not_itself() -> None:
    batch = change_table(landed_row(5, 60), landed_row(6, 70), landed_row(7, 60), landed_row(8, 65))

    assert find_unexplained(batch, {TP: (7, 8)}, Log(change_table())) == {TP: 8}
    assert find_unexplained(batch, {TP: (5, 7, 8)}, Log(change_table())) == {TP: 5}


def test_the_lowest_offset_of_each_partition_is_told() -> None:
    batch = change_table(
        landed_row(9, 11),
        landed_row(7, 12),
        landed_row(8, 10),
        landed_row(3, 13, partition=1),
        landed_row(4, None),
    )
    other = TopicPartition("s.t", 1)

    assert find_unexplained(batch, {TP: (7, 8, 9), other: (3,)}, Log(change_table(*LANDED))) == {
        TP: 7,
        other: 3,
    }


def test_f27_the_log_is_asked_for_the_places_in_question_and_once_a_source() -> None:
    low = change_table(
        landed_row(1, 10),
        landed_row(2, FAR + 10),
        landed_row(3, FAR + 99),
        landed_row(4, 5, source="b", topic="b.t"),
        landed_row(5, 7, topic="s.u"),
        landed_row(6, 8, order={"epoch": 1, "log": 6, "pos": 9, "row": 0}),
    )
    log = Log(change_table())

    back = {TP: (1, 2, 3, 6), TopicPartition("b.t", 0): (4,), TopicPartition("s.u", 0): (5,)}
    find_unexplained(low, back, log)

    assert sorted(log.asked, key=lambda near: near.source) == [
        Near("b", ("b.t",), (LogStretch(7, 5, 5),)),
        Near(
            "s",
            ("s.t", "s.u"),
            (LogStretch(6, 9, 9), LogStretch(7, 7, 10), LogStretch(7, FAR + 10, FAR + 99)),
        ),
    ]


@pytest.mark.parametrize(
    ("epoch", "landed", "expected"),
    [
        pytest.param(EPOCH, 40, {"s"}, id="nothing newer has landed since the fail-over"),
        pytest.param(EPOCH, 41, set(), id="a heartbeat of its own has landed"),
        pytest.param(replace(EPOCH, number=1, heartbeat=-1), -1, set(), id="the first epoch"),
    ],
)
def test_how_long_old_transactions_may_still_come(
    epoch: Epoch, landed: int, expected: set[str]
) -> None:
    checkpoint = Checkpoint("main", 3, heartbeats={"s": landed})

    assert find_resending(checkpoint, {"s": epoch}) == expected


def ended_row(number: int, **changed: Any) -> dict[str, Any]:
    return landed_row(number, 5, tx={"id": f"{OLD}:{number}", "total_order": 1}) | changed


ACKNOWLEDGED = Acknowledged(binlog_position(4, 90, f"{OLD}:1-50"))


@pytest.mark.parametrize(
    ("passed", "sent", "ids", "since"),
    [
        pytest.param(ACKNOWLEDGED, (51, 99), (51, 99), Order(1, 4, 90), id="what was not finished"),
        pytest.param(ACKNOWLEDGED, (50, 51), (50, 51), None, id="the collector was set back"),
        pytest.param(ACKNOWLEDGED, (100,), (), None, id="the old server never had it"),
        pytest.param(None, (51,), (51,), None, id="nothing was ever acknowledged"),
        pytest.param(
            Acknowledged(binlog_position(4, 90)),
            (51,),
            (51,),
            None,
            id="acknowledged by position only",
        ),
    ],
)
def test_f27_only_transactions_of_the_log_before_are_looked_for(
    passed: Acknowledged | None, sent: tuple[int, ...], ids: tuple[int, ...], since: Order | None
) -> None:
    batch = change_table(
        *(ended_row(number) for number in sent), landed_row(4, 5), ended_row(51, source="b")
    )
    asked = (Transactions("s", tuple(f"{OLD}:{n}" for n in ids), since),) if ids else ()
    moving = Checkpoint(
        "main", 3, epochs={"s": replace(EPOCH, number=1)}, heartbeats={"s": 40},
        acknowledged={} if passed is None else {"s": passed},
    )  # fmt: skip
    later = replace(moving, epochs={"s": EPOCH}, acknowledged={})

    assert sent_again(batch, moving, {"s": EPOCH}) == asked
    assert sent_again(batch, later, {"s": replace(EPOCH, passed=passed)}) == asked


def test_where_the_end_of_the_log_before_was_never_seen_any_transaction_may_be_old() -> None:
    """A person waived what stood low before the server was first reached: there is no epoch yet."""
    unseen = Epoch(2, "new", binlog_position(1, 1))

    asked = sent_again(
        change_table(ended_row(51), ended_row(999)), Checkpoint("m", 3), {"s": unseen}
    )

    assert asked == (Transactions("s", (f"{OLD}:51", f"{OLD}:999"), None),)


def test_once_a_heartbeat_of_the_new_log_has_landed_nothing_is_asked() -> None:
    assert (
        sent_again(
            change_table(ended_row(51)), Checkpoint("m", 3, heartbeats={"s": 41}), {"s": EPOCH}
        )
        == ()
    )


Said = tuple[str | None, str, int, int, int | None]  # tx, says, epoch, pos, its number in the tx


def transaction_rows(*given: Said, first: int = 0) -> pa.Table:
    made = []
    for offset, (tx, after, epoch, pos, number) in enumerate(given, first):
        order = {"epoch": epoch, "log": 1, "pos": pos, "row": 0}
        named = None if tx is None else {"id": tx, "total_order": number}
        made.append(landed_row(offset, 0, order=order, after=after, tx=named))
    return change_table(*made)


@pytest.mark.parametrize(
    ("landed", "sent", "orders"),
    [
        pytest.param([("g", "a", 1, 90, 1)], [("g", "a", 2, 5, 1)], [(1, 90)], id="sent again"),
        pytest.param([("g", "a", 1, 90, 1)], [("h", "a", 2, 5, 1)], [(2, 5)], id="said anew later"),
        pytest.param([("g", "a", 1, 90, 1)], [("g", "b", 2, 5, 1)], [(2, 5)], id="another change"),
        pytest.param([("g", "a", 1, 90, 1)], [(None, "a", 2, 5, 1)], [(2, 5)], id="no transaction"),
        pytest.param([], [("g", "a", 2, 5, 1)], [(2, 5)], id="nothing is landed"),
        pytest.param(
            [("g", "a", 1, 90, 1)],
            [("g", "a", 2, 5, 1), ("g", "b", 2, 6, 2), ("g", "a", 2, 7, 3)],
            [(1, 90), (2, 6), (2, 7)],
            id="said twice in one transaction, landed once",
        ),
        pytest.param(
            [("g", "a", 1, 90, None), ("g", "a", 1, 90, None), ("g", "a", 1, 95, None)],
            [("g", "a", 2, 7, None), ("g", "a", 2, 5, None)],
            [(1, 95), (1, 90)],
            id="landed twice at one place, which is one time",
        ),
        pytest.param(
            [("g", "a", 1, 90, None), ("g", "a", 1, 95, None)],
            [("g", "a", 2, 190, None), ("g", "a", 2, 197, None)],
            [(1, 90), (1, 95)],
            id="without numbers, further on in the new log than in the old one",
        ),
        pytest.param(
            [("g", "a", 1, 90, 1), ("g", "a", 1, 95, 3)],
            [("g", "a", 2, 5, 1), ("g", "a", 2, 7, 3), ("g", "a", 2, 5, 1), ("g", "a", 2, 7, 3)],
            [(1, 90), (1, 95), (1, 90), (1, 95)],
            id="sent again twice",
        ),
    ],
)
def test_a_change_sent_again_by_a_new_server_keeps_its_place(
    landed: list[Said], sent: list[Said], orders: list[tuple[int, int]]
) -> None:
    batch = transaction_rows(*sent, first=50)

    found = restore_orders(batch, transaction_rows(*landed), {TP: 50})

    assert [(one["epoch"], one["pos"]) for one in found["order"].to_pylist()] == orders
    assert found.schema == batch.schema
    assert found.drop_columns("order") == batch.drop_columns("order")


def test_a_transaction_cut_by_a_batch_goes_on_counting_what_it_says_twice() -> None:
    """Landed once by the old server; its second time comes in the batch after the first."""
    landed = pa.concat_tables(
        [transaction_rows(("g", "a", 1, 90, 1)), transaction_rows(("g", "a", 1, 90, 1), first=50)]
    )  # by the old server, and from the new one with its place

    later = restore_orders(transaction_rows(("g", "a", 2, 7, 3), first=51), landed, {TP: 50})
    again = restore_orders(transaction_rows(("g", "a", 2, 5, 1), first=51), landed, {TP: 50})

    assert later["order"].to_pylist()[0]["epoch"] == 2, "it was never landed: no repetition"
    assert again["order"].to_pylist()[0]["pos"] == 90


def test_what_a_partition_without_a_start_holds_from_its_first_offset_on_was_sent_again() -> None:
    """It came after the fail-over, so it has no start: its row is the first time that is told."""
    landed = transaction_rows(("g", "a", 1, 90, 1))

    later = restore_orders(transaction_rows(("g", "a", 2, 7, 3), first=1), landed, {})

    assert later["order"].to_pylist()[0]["epoch"] == 2, "it was never landed: no repetition"


def test_rows_without_an_order_are_left_as_they_are() -> None:
    batch = pa.concat_tables([change_table(landed_row(8, None, tx={"id": "g", "total_order": 1})),
                              transaction_rows(("g", "a", 2, 5, 1), first=9)])  # fmt: skip

    found = restore_orders(batch, transaction_rows(("g", "a", 1, 90, 1)), {})

    assert [one and one["pos"] for one in found["order"].to_pylist()] == [None, 90]


def live_row(offset: int, pos: int | None, **changed: Any) -> dict[str, Any]:
    return landed_row(offset, pos, origin=int(Origin.LIVE), **changed)


def of_epoch(epoch: int, pos: int, log: int = 7) -> dict[str, int]:
    return {"epoch": epoch, "log": log, "pos": pos, "row": 0}


BEFORE = (live_row(0, 10), live_row(1, 20), live_row(2, 40), live_row(3, 50))  # 30 was refused


@pytest.mark.parametrize(
    ("sent", "low"),
    [
        pytest.param(
            [live_row(4, 20), live_row(5, 30), live_row(6, 40), live_row(7, 50)],
            (4, 5, 6),
            id="again",
        ),
        pytest.param([live_row(4, 30), live_row(5, 40)], (4, 5), id="from the refused one on"),
        pytest.param(
            [live_row(4, 30), live_row(5, 40), live_row(6, 45), live_row(7, 50)],
            (4, 5, 6),
            id="two of them, apart",
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 35), live_row(6, 36), live_row(7, 40)],
            (4, 5, 6, 7),
            id="three together",
        ),
        pytest.param(
            [live_row(4, 45), live_row(5, 50), live_row(6, 60)], (4,), id="the last one, not low"
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 40), live_row(6, 30), live_row(7, 40)],
            (4, 5, 6, 7),
            id="sent twice",
        ),
        pytest.param(
            [live_row(4, 40, op="c", key="[2]"), live_row(5, 50)],
            (4,),
            id="the create of a changed key, whose delete was taken",
        ),
    ],
)
def test_f140_a_row_that_the_broker_refused_is_sent_again_with_those_behind_it(
    sent: list[dict[str, Any]], low: tuple[int, ...]
) -> None:
    landed = [*BEFORE[:2], live_row(2, 40, op="d"), BEFORE[3]] if sent[0]["op"] == "c" else BEFORE
    log = Log(change_table(*landed))

    assert find_unexplained(change_table(*sent), {TP: low}, log) == {}


@pytest.mark.parametrize(
    ("sent", "low", "found"),
    [
        pytest.param([live_row(4, 30)], (4,), 4, id="nothing has come behind it yet"),
        pytest.param([live_row(4, 30), live_row(5, 60)], (4,), 4, id="what comes behind it is new"),
        pytest.param(
            [live_row(4, 30), live_row(5, 60), live_row(6, 40)], (4, 6), 4, id="or new, and then it"
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 50)], (4,), 4, id="a landed one between is not sent"
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 20)], (4, 5), 4, id="the log goes back behind it"
        ),
        pytest.param(
            [live_row(4, 35), live_row(5, 30), live_row(6, 40)], (4, 5, 6), 4, id="two that fall"
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 40, after="other")],
            (4, 5),
            4,
            id="one place, another content",
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 40, key="[2]")], (4, 5), 4, id="one place, another key"
        ),
        pytest.param(
            [live_row(4, 40, after="other"), live_row(5, 50)],
            (4,),
            4,
            id="at the place of a landed one",
        ),
        pytest.param(
            [live_row(4, 40, op="d"), live_row(5, 50)],
            (4,),
            4,
            id="a delete at the place of an update",
        ),
        pytest.param(
            [live_row(4, 45), live_row(5, 50, after="other")],
            (4,),
            4,
            id="at the highest, other content",
        ),
        pytest.param([landed_row(4, 30), live_row(5, 40)], (4, 5), 4, id="a row of a snapshot"),
        pytest.param(
            [live_row(4, 30), landed_row(5, 40)], (4, 5), 4, id="before a row of a snapshot"
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 40, topic="s.u")],
            (4,),
            4,
            id="the next one is another topic's",
        ),
        pytest.param(
            [live_row(4, 30), live_row(5, 40, partition=1)], (4,), 4, id="or another partition's"
        ),
        pytest.param(
            [live_row(4, 30, order=of_epoch(2, 30)), live_row(5, 40, order=of_epoch(2, 40))],
            (4, 5),
            4,
            id="of another epoch, where places mean nothing",
        ),
        pytest.param(
            [live_row(4, 10, after="x"), live_row(5, 20)], (4, 5), 4, id="a history that differs"
        ),
    ],
)
def test_f140_what_is_not_followed_by_the_landed_row_next_to_it_stays_in_disorder(
    sent: list[dict[str, Any]], low: tuple[int, ...], found: int
) -> None:
    assert find_unexplained(change_table(*sent), {TP: low}, Log(change_table(*BEFORE))) == {
        TP: found
    }


def test_f140_a_refused_row_is_no_excuse_for_another_that_is_low() -> None:
    sent = change_table(
        live_row(4, 30),
        live_row(5, 40),
        live_row(6, 15),
        live_row(7, 50),
        live_row(8, 12),
        live_row(9, 13),
    )

    assert find_unexplained(sent, {TP: (4, 5, 6, 8, 9)}, Log(change_table(*BEFORE))) == {TP: 6}


@pytest.mark.parametrize(
    ("partial", "found"),
    [
        pytest.param(live_row(3, 50, changed=["name"]), {TP: 5}, id="above it"),
        pytest.param(live_row(2, 40, changed=["name"]), {TP: 5}, id="the one behind it"),
        pytest.param(live_row(1, 20, changed=["name"]), {}, id="below it"),
        pytest.param(live_row(3, 50, partition=1, changed=["name"]), {}, id="in another partition"),
    ],
)
def test_f140_a_landed_row_of_some_columns_may_lack_the_values_of_the_refused_one(
    partial: dict[str, Any], found: dict[TopicPartition, int]
) -> None:
    """It was made whole from older values, and its order is higher: the refused row comes late."""
    others = [each for each in BEFORE if each["order"] != partial["order"]]
    sent = change_table(live_row(4, 20), live_row(5, 30), live_row(6, 40), live_row(7, 50))

    low = find_unexplained(sent, {TP: (4, 5, 6)}, Log(change_table(*others, partial)))

    assert low == found


@pytest.mark.parametrize(
    ("outdated", "found"),
    [
        pytest.param(("s/t", 30), {TP: 5}, id="of its shard"),
        pytest.param(("s/t", 29), {}, id="older than it"),
        pytest.param(("s/u", 30), {}, id="of another shard"),
    ],
)
def test_f140_a_newer_statement_that_has_landed_may_have_met_no_refused_row(
    outdated: tuple[str, int], found: dict[TopicPartition, int]
) -> None:
    def asked(shard: Shard, order: Order) -> bool:
        return str(shard) == outdated[0] and order.pos <= outdated[1]

    sent = change_table(live_row(4, 20), live_row(5, 30), live_row(6, 40), live_row(7, 50))

    assert find_unexplained(sent, {TP: (4, 5, 6)}, Log(change_table(*BEFORE)), asked) == found


def test_f140_in_a_topic_that_has_gained_partitions_the_row_of_some_columns_may_be_in_any() -> None:
    partial = live_row(9, 50, partition=1, changed=["name"])
    sent = change_table(live_row(4, 20), live_row(5, 30), live_row(6, 40), live_row(7, 50))
    log = Log(change_table(*BEFORE, partial))

    assert find_unexplained(sent, {TP: (4, 5, 6)}, log, grown=frozenset({"s.u"})) == {}
    assert find_unexplained(sent, {TP: (4, 5, 6)}, log, grown=frozenset({"s.t"})) == {TP: 5}


def test_f140_the_rows_before_may_stand_in_the_same_batch() -> None:
    sent = change_table(*BEFORE, live_row(4, 20), live_row(5, 30), live_row(6, 40), live_row(7, 50))

    assert find_unexplained(sent, {TP: (4, 5, 6)}, Log(change_table())) == {}


def test_f140_the_row_behind_does_not_repeat_itself() -> None:
    sent = change_table(live_row(0, 50), live_row(1, 30), live_row(2, 40), live_row(3, 45))

    assert find_unexplained(sent, {TP: (1, 2, 3)}, Log(change_table())) == {TP: 1}


def test_f140_all_that_landed_between_is_asked_for_in_logs_of_their_own_too() -> None:
    """Postgres: each transaction is a log."""
    landed = [live_row(0, 1, order=of_epoch(1, 1, log=log)) for log in (10, 20, 25, 40)]
    sent = [live_row(at, 1, order=of_epoch(1, 1, log=log)) for at, log in ((4, 22), (5, 40))]
    log = Log(change_table(*landed))

    assert find_unexplained(change_table(*sent), {TP: (4,)}, log) == {TP: 4}
    assert log.asked[-1] == Between("s", "s.t", 22, 40)


@pytest.mark.parametrize(
    ("many", "found"),
    [
        pytest.param(10_000, {}, id="a poll of the collector"),
        pytest.param(10_001, {TP: 4}, id="a log"),
    ],
)
def test_f140_as_many_refused_rows_in_a_run_are_no_accident(
    many: int, found: dict[TopicPartition, int]
) -> None:
    landed = change_table(live_row(0, 10), live_row(1, 90_000))
    refused = (live_row(4 + number, 20 + number) for number in range(many))
    sent = change_table(*refused, live_row(4 + many, 90_000))

    strange = find_unexplained(sent, {TP: tuple(range(4, 4 + many))}, Log(landed))

    assert strange == found
    bound = "a run of 10,001 such rows is more than 10,000"
    assert strange.bounds == ({TP: bound} if found else {})


@pytest.mark.parametrize(
    ("copies", "found"),
    [
        pytest.param(10_000, {}, id="as many as are looked at"),
        pytest.param(10_001, {TP: 20_000}, id="one more"),
    ],
)
def test_f140_a_row_behind_that_has_landed_too_often_explains_no_refused_one(
    copies: int, found: dict[TopicPartition, int]
) -> None:
    landed = change_table(*(live_row(number, 40) for number in range(copies)))
    sent = change_table(live_row(20_000, 30), live_row(20_001, 40))

    assert find_unexplained(sent, {TP: (20_000, 20_001)}, Log(landed)) == found


@pytest.mark.parametrize(
    ("runs", "bound"),
    [
        pytest.param(1_000, None, id="as many as are looked at"),
        pytest.param(
            1_001, "1,001 runs of such rows in one batch are more than 1,000", id="one more"
        ),
    ],
)
def test_f140_more_runs_of_refused_rows_are_told_as_too_many(runs: int, bound: str | None) -> None:
    landed = change_table(*(live_row(number, 10 * number) for number in range(runs + 2)))
    sent = [
        row
        for number in range(runs)
        for row in (
            live_row(10_000 + 2 * number, 10 * number + 5),
            live_row(10_001 + 2 * number, 10 * number + 10),
        )
    ]
    low = tuple(each["offset"] for each in sent)

    strange = find_unexplained(change_table(*sent), {TP: low}, Log(landed))

    assert strange == ({} if bound is None else {TP: 10_000})
    assert strange.bounds == ({} if bound is None else {TP: bound})


def test_f140_few_rows_that_nothing_explains_met_no_bound() -> None:
    assert (
        find_unexplained(
            change_table(live_row(4, 30)), {TP: (4,)}, Log(change_table(*BEFORE))
        ).bounds
        == {}
    )
