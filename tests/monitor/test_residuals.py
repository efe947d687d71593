"""A residual of the ledger pages once, closes the gate, and ends by a proof or a waiver."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from alerts.model import AlertKind, IncidentState
from checks.ledger import LedgerState
from checks.model import Outcome, Ruling, Verdict, Verified
from monitor.store.requests import BackfillSpec, StoredBackfill
from monitor.waivers import WaivableIds
from pipeline.backfill_state import Backfill, BackfillState, RowSelection, SelectedKey
from pipeline.errors import UnreachableError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Account, Hop, Order, Origin, Shard
from pipeline.reports import LandingReport, MergeReport, TopicCounts
from tests.monitor.rig import ORDERS, USERS, Rig, codes_of

NO_TIME = timedelta()
MINUTE = int(datetime(2026, 3, 29, 11, 40, tzinfo=UTC).timestamp()) // 60
SHARD = "shop/shop.orders"


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    rig.round(2)
    return rig


def count(rig: Rig, *, read: int, minute: int = MINUTE, table: str = ORDERS) -> None:
    """A merge of *table* reads *read* of two updates that landed."""
    rig.flow()
    batch = rig.newest.batch
    landed = {table: {str(minute): {"u": 2}}}
    rig.store.ledger.add_landing(LandingReport("main", batch, 2, rig.now, NO_TIME, minutes=landed))
    account = Account(read=read, applied=read, minutes={str(minute): {"u": read}})
    merged = MergeReport(table, batch, 1, account, rig.now, NO_TIME, since=batch - 1)
    rig.store.ledger.add_merges("main", [merged], rig.now)


def lose(rig: Rig, *, minute: int = MINUTE, table: str = ORDERS) -> None:
    count(rig, read=1, minute=minute, table=table)


def lose_message(rig: Rig) -> str:
    """Landing loses a message of ORDERS; how the ledger names it."""
    rig.flow()
    batch = rig.newest.batch
    name = f"messages of shop.shop.orders:0 in batch {batch}"
    topics = {ORDERS: TopicCounts({name: 2}, {name: 1}, {})}
    rig.store.ledger.add_landing(LandingReport("main", batch, 2, rig.now, NO_TIME, topics=topics))
    return name


def subjects(rig: Rig) -> list[str]:
    return [one.message.subject for one in rig.store.outbox.waiting("log", 100)]


def open_losses(rig: Rig) -> list[str]:
    found = [one for one in rig.store.incidents.open() if one.cause.kind is AlertKind.LOST]
    return [one.cause.subject for one in found if one.state is not IncidentState.RECOVERING]


def answer_gate(rig: Rig) -> tuple[int, list[str]]:
    """Of a cut that no certificate answers."""
    rig.second()
    newest = rig.fences.of("shop")[-2]
    status, answer = rig.ask(ORDERS, cut=newest.at.isoformat())
    return status, codes_of(answer)


def waiver_id(rig: Rig) -> str:
    (loss,) = rig.store.ledger.losses()[ORDERS].residuals
    return f"ledger:{ORDERS}:{loss.key}"


def state(rig: Rig) -> LedgerState:
    (one,) = rig.store.ledger.entries(ORDERS, MINUTE, MINUTE + 1)[Hop.MERGE]
    return one.state


def test_a_residual_pages_once_and_names_hop_minute_op_and_rows(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()
    healthy.watch()

    assert open_losses(healthy) == [ORDERS]
    (subject,) = subjects(healthy)
    text = "LOST shop.orders ledger: 1 row (u: 1) at hop merge, of 2026-03-29 11:40 UTC went in"
    assert subject.startswith(text)

    healthy.reload()
    healthy.watch()
    assert len(subjects(healthy)) == 1


def test_a_message_that_landing_lost_pages_and_blocks_as_a_row_that_a_merge_lost(
    healthy: Rig,
) -> None:
    name = lose_message(healthy)
    healthy.watch()

    assert open_losses(healthy) == [ORDERS]
    (subject,) = subjects(healthy)
    assert subject.startswith(
        f"LOST shop.orders ledger: 1 message or row ({name}: 1) at hop landing, of "
    )
    status, codes = answer_gate(healthy)
    assert (status, codes[:1]) == (409, ["residual"])
    assert waiver_id(healthy).startswith(f"ledger:{ORDERS}:landing@")


def test_a_residual_that_grows_by_a_minute_is_the_same_incident(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()
    (first,) = healthy.store.incidents.open()
    lose(healthy, minute=MINUTE + 1)
    healthy.watch()

    (now,) = healthy.store.incidents.open()
    assert now.id == first.id
    assert len(now.ruling.keys) == 2


def test_a_residual_closes_the_gate_and_takes_certificates_back(healthy: Rig) -> None:
    cut = healthy.fences.of("shop")[0].at.isoformat()
    assert healthy.ask(ORDERS, cut=cut)[0] == 200

    lose(healthy)
    status, codes = answer_gate(healthy)
    assert (status, codes[:1]) == (409, ["residual"])
    healthy.watch()

    status, answer = healthy.ask(ORDERS, cut=cut)
    assert (status, answer["state"]) == (409, "revoked")
    assert healthy.ask(USERS, cut=cut)[0] == 200


def test_a_table_with_a_residual_is_merged_and_not_held(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()

    life = healthy.view(ORDERS).life
    assert life is not None
    assert life.state == "incremental"


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda rig: count(rig, read=2), id="all rows were read"),
        pytest.param(
            lambda rig: rig.store.ledger.add_landing(
                LandingReport("main", 7, 1, rig.now, NO_TIME, minutes={ORDERS: {"7": {"u": 1}}})
            ),
            id="in flight",
        ),
        pytest.param(
            lambda rig: rig.store.ledger.add_merges(
                "main",
                [MergeReport(ORDERS, 0, 1, Account(), rig.now, NO_TIME, since=-1)],
                rig.now,
            ),
            id="unknown",
        ),
    ],
)
def test_what_is_no_residual_opens_nothing(healthy: Rig, harm: Callable[[Rig], object]) -> None:
    harm(healthy)
    healthy.watch()

    assert healthy.store.incidents.open() == ()
    assert healthy.store.ledger.losses() == {}


def test_a_waiver_covers_one_residual_and_no_later_one(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()
    id_ = waiver_id(healthy)
    assert WaivableIds(healthy.gate, healthy.store.outbox).exists(id_)
    assert not WaivableIds(healthy.gate, healthy.store.outbox).exists(f"{id_}1")
    told = {"id": id_, "reason": "a test", "who": "me"}
    assert healthy.client.post("/v1/waivers", json=told).status_code == 201

    healthy.watch()
    assert answer_gate(healthy)[0] == 200
    assert open_losses(healthy) == []
    count(healthy, read=2)  # rows of that minute come late, and all come out
    healthy.watch()
    assert answer_gate(healthy)[0] == 200

    lose(healthy, minute=MINUTE + 3)
    assert answer_gate(healthy) == (409, ["residual"])


def base(
    rig: Rig,
    *,
    dry: bool = False,
    origin: Origin = Origin.SNAPSHOT,
    rows: RowSelection = RowSelection(),  # noqa: B008  - it is immutable
) -> Callable[[], None]:
    """Request a base of ORDERS now; the call ends it in the newest batch."""
    wish = BackfillSpec(origin, rows, dry=dry)
    asked = StoredBackfill("b1", ORDERS, "a test", "me", rig.now, wish=wish)
    rig.store.backfills.add(asked)

    def end() -> None:
        done = BackfillState("b1", ORDERS, SHARD, 9, done=rig.newest.batch)
        rig.store.backfills.record_states([done], rig.now)

    return end


def test_a_new_base_makes_a_lost_message_good(healthy: Rig) -> None:
    lose_message(healthy)
    healthy.watch()
    healthy.second()
    end = base(healthy)
    healthy.land()
    end()
    healthy.apply()
    healthy.watch()
    healthy.watch()

    assert open_losses(healthy) == []
    assert healthy.store.ledger.losses() == {}


def test_a_new_base_makes_it_good_once_the_mirror_holds_it(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()
    healthy.second()
    end = base(healthy)
    healthy.land()
    end()
    healthy.watch()
    healthy.watch()
    assert open_losses(healthy) == [ORDERS]

    healthy.apply()
    healthy.watch()
    healthy.watch()

    assert open_losses(healthy) == []
    assert answer_gate(healthy)[0] == 200
    assert state(healthy) is LedgerState.MADE_GOOD
    assert healthy.store.ledger.residuals()[ORDERS, "merge"] == 0
    healthy.reload()
    healthy.watch()
    assert open_losses(healthy) == []
    assert [one for one in subjects(healthy) if not one.startswith("resolved")] == subjects(
        healthy
    )[:1]


def test_a_round_reads_backfills_as_often_for_two_tables_with_a_residual_as_for_one(
    healthy: Rig,
) -> None:
    read = list[str]()

    @event.listens_for(healthy.store.database.engine, "before_cursor_execute")
    def note(*said: Any) -> None:
        if "FROM rereads" in said[2]:
            read.append(said[2])

    counts = list[int]()
    for table in (ORDERS, USERS):
        lose(healthy, table=table)
        healthy.watch()
        read.clear()
        healthy.watch()
        counts.append(len(read))

    assert healthy.store.ledger.losses().keys() == {ORDERS, USERS}
    assert counts[0] == counts[1] > 0


def test_a_store_that_takes_nothing_keeps_the_residual_and_no_round_fails(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(healthy)
    healthy.round()
    base(healthy)()
    healthy.apply()

    def full(*_: object) -> None:
        raise UnreachableError("store: database or disk is full")

    monkeypatch.setattr(healthy.store.ledger, "make_good", full)
    healthy.watch()
    assert state(healthy) is LedgerState.RESIDUAL
    monkeypatch.undo()
    healthy.watch()

    assert state(healthy) is LedgerState.MADE_GOOD


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({}, id="all"),
        pytest.param({"dry": True}, id="a dry run"),
        pytest.param({"origin": Origin.REPLAY}, id="a replay"),
        pytest.param({"rows": RowSelection(where="id < 5")}, id="those of a condition"),
        pytest.param({"rows": RowSelection(keys=(SelectedKey('["5"]'),))}, id="one key"),
    ],
)
def test_only_what_reads_all_rows_anew_proves_anything(healthy: Rig, asked: dict[str, Any]) -> None:
    lose(healthy)
    healthy.watch()
    healthy.second()
    end = base(healthy, **asked)
    healthy.land()
    end()
    healthy.apply()
    healthy.watch()
    healthy.watch()

    assert (state(healthy) is LedgerState.MADE_GOOD) == (not asked)
    assert open_losses(healthy) == ([ORDERS] if asked else [])


def test_a_base_that_was_requested_before_proves_nothing(healthy: Rig) -> None:
    end = base(healthy)
    lose(healthy)
    end()
    healthy.watch()
    healthy.watch()

    assert open_losses(healthy) == [ORDERS]


def test_a_base_of_a_clock_that_was_ahead_proves_nothing(healthy: Rig) -> None:
    """It was requested and complete before the row was lost, but its time is later."""
    healthy.set_clock(3_600)
    healthy.watch()
    end = base(healthy)
    healthy.land()
    end()
    healthy.apply()
    healthy.set_clock(-3_600)
    healthy.round(2)

    lose(healthy)
    healthy.watch()
    healthy.watch()

    assert state(healthy) is LedgerState.RESIDUAL
    assert open_losses(healthy) == [ORDERS]


def test_a_base_that_began_before_the_loss_proves_nothing(healthy: Rig) -> None:
    """Though its time is later, and it ended later: its clock was ahead."""
    began = healthy.newest.batch + 1
    healthy.set_clock(3_600)
    end = base(healthy)
    healthy.set_clock(-3_600)
    lose(healthy)
    healthy.round()
    end()
    shard = Shard.parse(SHARD)
    own = Backfill("b1", Origin.SNAPSHOT, Order(1, 1, 0), "A", began, done=healthy.newest.batch)
    healthy.set_checkpoint(backfills={shard: own})
    healthy.watch()
    healthy.watch()

    assert state(healthy) is LedgerState.RESIDUAL


def verified(rig: Rig, oldest: datetime) -> Verdict:
    mirror = rig.lake.mirrors[ORDERS]
    assert isinstance(mirror, MirrorPosition)
    through = rig.now - timedelta(seconds=1)
    compared = Verified(
        through, oldest, mirror.batch, "values", (SHARD,), rig.newest.batch, mirror=mirror.mirror
    )
    passed = Ruling(Outcome.PASS, "equal")
    return Verdict(ORDERS, "values", passed, rig.now, verified=compared)


def test_a_comparison_of_all_rows_since_makes_it_good(healthy: Rig) -> None:
    lose(healthy)
    healthy.watch()
    found = healthy.now
    healthy.second(10)
    late = verified(healthy, found - timedelta(minutes=1))
    some = verified(healthy, healthy.now)
    assert some.verified is not None
    for proves_nothing in (late, replace(some, verified=replace(some.verified, partial=True))):
        healthy.recorder.tell([proves_nothing])
        healthy.watch()
        healthy.watch()
        assert open_losses(healthy) == [ORDERS]

    healthy.recorder.tell([verified(healthy, healthy.now)])
    healthy.watch()
    healthy.watch()

    assert open_losses(healthy) == []
    assert state(healthy) is LedgerState.MADE_GOOD


@pytest.mark.parametrize(
    ("column", "older"),
    [
        pytest.param("oldest", -timedelta(minutes=1), id="a row was compared before"),
        pytest.param("looked", -1, id="it does not know the batch"),
        pytest.param("partial", 1, id="it leaves out a column"),
    ],
)
def test_only_a_newer_comparison_of_all_makes_a_lost_message_good(
    healthy: Rig, column: str, older: Any
) -> None:
    lose_message(healthy)
    healthy.watch()
    (loss,) = healthy.store.ledger.losses()[ORDERS].residuals
    healthy.second(10)
    newer = verified(healthy, healthy.now)
    assert newer.verified is not None
    at_the_loss = {"oldest": loss.at, "looked": loss.batch, "partial": 0}[column]
    old = replace(newer.verified, **{column: at_the_loss + older})

    healthy.recorder.tell([replace(newer, verified=old)])
    healthy.watch()
    healthy.watch()
    assert open_losses(healthy) == [ORDERS]

    healthy.recorder.tell([newer])
    healthy.watch()
    healthy.watch()
    assert (open_losses(healthy), healthy.store.ledger.losses()) == ([], {})

    lose_message(healthy)
    healthy.watch()
    assert open_losses(healthy) == [ORDERS]
    assert healthy.store.ledger.losses()[ORDERS].residuals[0].rows == 1


def test_a_row_that_is_lost_after_the_proof_is_a_residual_again(healthy: Rig) -> None:
    lose(healthy)
    healthy.round()
    base(healthy)()
    healthy.apply()
    healthy.watch()
    assert state(healthy) is LedgerState.MADE_GOOD
    lose(healthy)
    healthy.watch()

    assert state(healthy) is LedgerState.RESIDUAL
    assert healthy.store.ledger.losses()[ORDERS].residuals[0].rows == 1
    assert open_losses(healthy) == [ORDERS]
