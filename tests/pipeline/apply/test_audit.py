from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.apply.account import Counted
from pipeline.apply.turn import Applier
from pipeline.model import Account, Op
from pipeline.report import Applied
from tests.pipeline.bench_lake import BenchLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
pytestmark = pytest.mark.spark


class KilledError(Exception):
    """The process is gone."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> BenchLake:
    return BenchLake(spark, tmp_path)


def killed_before_the_account(lake: BenchLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the newest batch's MERGE commit, and nothing after it; open anew."""

    def die(*_: object) -> Account:
        raise KilledError

    with monkeypatch.context() as broken:
        broken.setattr(Applier, "_close", die)
        with pytest.raises(KilledError):
            lake.apply()
    lake.reopen()


def heard(lake: BenchLake, *waived: str) -> tuple[Applied, ...]:
    return lake.lane.apply(frozenset(waived))


@pytest.mark.parametrize(
    ("changes", "account"),
    [
        pytest.param(
            (row(C, 20, 2, "b"), row(U, 21, 1, "c"), row(U, 22, 2, "d")),
            Account(read=3, applied=2, superseded=1, ignored={"tombstone": 0}),
            id="its commit explains all",
        ),
        pytest.param(
            (row(C, 10, 1, "a"), row(C, 20, 2, "b"), row(D, 30, 9)),
            Account(read=3, applied=1, noop=1, redelivered=1, ignored={"tombstone": 0}),
            id="one sent again, one of a key that never was: counted anew",
        ),
    ],
)
def test_a_turn_whose_account_was_never_told_is_told_by_the_next_process(
    changes: tuple[dict[str, object], ...],
    account: Account,
    lake: BenchLake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(*changes)

    killed_before_the_account(lake, monkeypatch)
    (told,) = heard(lake)

    assert told.hold is None
    assert (told.table, told.batch, told.account) == ("db.t", 1, account)
    assert heard(lake) == ()


def test_a_turn_without_rows_is_told_too(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")], [row(Op.TOMBSTONE, 11, 1)])
    lake.reopen()

    (told,) = heard(lake)

    assert (told.batch, told.account.read, told.account.ignored) == (1, 1, {"tombstone": 1})


def test_an_imbalance_outlives_the_process_that_made_it(
    lake: BenchLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 2, "b"))
    with monkeypatch.context() as broken:
        broken.setattr("pipeline.apply.turn._counted", lambda *_: Counted(9, 1, 1, 1, 0, 0, 0))
        killed_before_the_account(lake, monkeypatch)

    (told,) = heard(lake)
    lake.land(row(C, 30, 3, "c"))
    (held,) = heard(lake)
    lake.reopen()
    freed = lake.apply(waived=["account:db.t:1"])

    assert told.account.residual == 8
    assert told.hold is not None
    assert told.hold.id == "account:db.t:1"
    assert told.hold == held.hold
    assert freed.hold is None
    assert lake.rows() == {1: "a", 2: "b", 3: "c"}
