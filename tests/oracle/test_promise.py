"""A READY answer is judged by the ledger alone: each way of being false is found, and no other."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from demo.shop.ledger import Entry, Outcome, RowState
from tests.oracle.landed import Landed
from tests.oracle.promise import Judge, judge_ready

START = datetime(2026, 1, 1, tzinfo=UTC)
SHARD = "shop.users"
ROW = (SHARD, (7,))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def story(
    *steps: tuple[int, int | None, str], passing: tuple[int | None, ...] = ()
) -> dict[int, Entry]:
    """Build the ledger of one row from (number, what it left, outcome).

    Transaction n begins at second n, sends COMMIT at n.2 and hears of it at n.4.  The second one
    took the row through the states of *passing*.
    """
    ledger, before = {}, None
    for number, touched, word in steps:
        outcome = Outcome(word)
        ledger[number] = Entry(
            number,
            at(number),
            at(number + 0.2),
            (RowState(SHARD, (7,), touched, before, passing if number == 2 else ()),),
            outcome,
            at(number + 0.4) if outcome is Outcome.COMMITTED else None,
        )
        before = before if outcome is Outcome.ROLLED_BACK else touched
    return ledger


WRITTEN = story((1, 1, "committed"), (2, 2, "committed"), (3, 3, "committed"))
DELETED = story((1, 1, "committed"), (2, None, "committed"))
REVIVED = story((1, 1, "committed"), (2, None, "committed"), (3, 3, "committed"))
ABANDONED = story((1, 1, "committed"), (2, 2, "rolled back"))
DOUBTFUL = story((1, 1, "committed"), (2, 2, "unknown"))
GONE_IN_DOUBT = story((1, 1, "committed"), (2, None, "unknown"))
KEPT = story((1, 1, "committed"), (2, None, "rolled back"))


@pytest.mark.parametrize(
    ("ledger", "cut", "carried", "why"),
    [
        pytest.param(WRITTEN, 2.5, 2, None, id="the last one before the cut is there"),
        pytest.param(WRITTEN, 2.5, 3, None, id="a later one explains a newer row"),
        pytest.param(WRITTEN, 2.5, 1, "carries the older 1", id="an older row is a stale READY"),
        pytest.param(WRITTEN, 2.5, None, "missing", id="an absent row is a loss"),
        pytest.param(WRITTEN, 0.5, None, None, id="nothing is due before the first answer"),
        pytest.param(WRITTEN, 1.4, None, None, id="acknowledged at the cut is not before it"),
        pytest.param(WRITTEN, 2.5, 9, "carries 9", id="a number nobody wrote is no excuse"),
        pytest.param(DELETED, 2.5, None, None, id="a delete that was due is seen"),
        pytest.param(DELETED, 2.5, 1, "carries the older 1", id="a deleted row still there"),
        pytest.param(DELETED, 1.5, None, None, id="a delete after the cut explains absence"),
        pytest.param(REVIVED, 2.5, 3, None, id="a row inserted again after its delete"),
        pytest.param(REVIVED, 3.5, None, "missing", id="inserted again, but not in the mirror"),
        pytest.param(ABANDONED, 2.5, 1, None, id="a rolled-back write is not due"),
        pytest.param(ABANDONED, 2.5, 2, "rolled back", id="a rolled-back write is visible"),
        pytest.param(DOUBTFUL, 2.5, 1, None, id="a doubtful write may be absent"),
        pytest.param(DOUBTFUL, 2.5, 2, None, id="a doubtful write may be there"),
        pytest.param(GONE_IN_DOUBT, 2.5, None, None, id="a doubtful delete may have happened"),
        pytest.param(KEPT, 2.5, None, "missing", id="a rolled-back delete explains nothing"),
    ],
)
def test_a_mirror_is_ready_only_with_every_row_that_was_due(
    ledger: Mapping[int, Entry], cut: float, carried: int | None, why: str | None
) -> None:
    version = {} if carried is None else {ROW: carried}

    found = judge_ready(ledger, "shop.users", at(cut), version)

    assert [violation.row for violation in found] == ([ROW] if why else [])
    assert all((why or "") in violation.why for violation in found)


def test_a_delete_begun_after_the_answer_does_not_explain_what_the_answer_lacked() -> None:
    innocent = judge_ready(DELETED, "shop.users", at(1.5), {}, sampled=at(2.1))
    guilty = judge_ready(DELETED, "shop.users", at(1.5), {}, sampled=at(1.9))

    assert innocent == []
    assert [violation.why for violation in guilty] == ["missing"]


REPLACED = story((1, 1, "committed"), (2, 2, "committed"), passing=(None,))
ABANDONED_MIDWAY = story((1, 1, "committed"), (2, 2, "rolled back"), passing=(None,))
BRIEF = story((1, None, "committed"), (2, None, "committed"), passing=(2,))


@pytest.mark.parametrize(
    ("ledger", "cut", "carried", "why"),
    [
        pytest.param(REPLACED, 1.5, None, [], id="a later one has deleted it, and will insert it"),
        pytest.param(REPLACED, 2.5, None, ["missing"], id="the insert is due"),
        pytest.param(ABANDONED_MIDWAY, 1.5, None, ["missing"], id="it was rolled back"),
        pytest.param(BRIEF, 1.5, 2, [], id="a later one has inserted it, and will delete it"),
        pytest.param(BRIEF, 2.5, 2, ["carries 2, which never left it so"], id="the delete is due"),
    ],
)
def test_a_part_of_a_transaction_explains_a_row_unless_the_transaction_is_due(
    ledger: Mapping[int, Entry], cut: float, carried: int | None, why: list[str]
) -> None:
    version = {} if carried is None else {ROW: carried}

    found = judge_ready(ledger, "shop.users", at(cut), version)

    assert [violation.why for violation in found] == why


def test_other_tables_rows_are_not_asked_for() -> None:
    assert judge_ready(WRITTEN, "shop.payments", at(9), {}) == []


def landed_of(*sights: tuple[int, int, bool]) -> Landed:
    """Build what the change log shows of the one row: (batch, number, deleted)."""
    landed = Landed()
    for batch, number, deleted in sights:
        landed.note(batch, (SHARD, (7,), number, deleted))
    return landed


@pytest.mark.parametrize(
    ("ledger", "landed", "missing"),
    [
        pytest.param(
            WRITTEN, landed_of((1, 1, False), (2, 2, False), (2, 3, False)), [], id="all in"
        ),
        pytest.param(WRITTEN, landed_of((1, 1, False), (2, 3, False)), [2], id="one is missing"),
        pytest.param(
            WRITTEN,
            landed_of((1, 1, False), (3, 2, False), (2, 3, False)),
            [2],
            id="one came too late",
        ),
        pytest.param(DELETED, landed_of((1, 1, False), (2, 1, True)), [], id="a delete is in"),
        pytest.param(DELETED, landed_of((1, 1, False)), [2], id="a delete is missing"),
        pytest.param(DOUBTFUL, landed_of((1, 1, False)), [], id="doubt is not asked for"),
        pytest.param(ABANDONED, landed_of((1, 1, False)), [], id="what was rolled back is not"),
    ],
)
def test_the_change_log_is_ready_only_with_every_transaction_that_was_due(
    ledger: Mapping[int, Entry], landed: Landed, missing: list[int]
) -> None:
    found = Judge(ledger).landed("shop.users", at(9), landed, batch=2)

    assert [violation.number for violation in found] == missing


@pytest.mark.parametrize(
    ("ledger", "landed", "snapshot", "missing"),
    [
        pytest.param(WRITTEN, landed_of((1, 3, False)), 3.5, [], id="only the last state was sent"),
        pytest.param(
            WRITTEN,
            landed_of((1, 2, False), (2, 3, False)),
            2.9,
            [],
            id="the stream sent the third",
        ),
        pytest.param(WRITTEN, landed_of((1, 3, False)), 2.9, [2], id="what it saw is not in"),
        pytest.param(WRITTEN, landed_of((1, 2, False)), 2.9, [3], id="the stream lost the third"),
        pytest.param(
            WRITTEN,
            landed_of((1, 1, False), (2, 3, False)),
            1.5,
            [2],
            id="the stream lost the second",
        ),
        pytest.param(WRITTEN, landed_of(), 3.5, [3], id="what stood must have been sent"),
        pytest.param(DELETED, landed_of(), 2.5, [], id="what was gone was never sent"),
        pytest.param(
            DELETED, landed_of((1, 1, False)), 1.5, [2], id="a delete after it must be sent"
        ),
    ],
)
def test_a_snapshot_excuses_only_what_it_could_not_see(
    ledger: Mapping[int, Entry], landed: Landed, snapshot: float, missing: list[int]
) -> None:
    found = Judge(ledger).landed("shop.users", at(9), landed, 2, at(snapshot))

    assert [violation.number for violation in found] == missing
