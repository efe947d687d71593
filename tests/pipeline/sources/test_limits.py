import pickle
from datetime import timedelta

import pytest

from pipeline.errors import SparedError, TooManyRowsError, UnreachableError
from pipeline.sources.source import Limits, read_limits

LIMITS = Limits(running=3, rows=100, call=timedelta(0))


def test_what_is_within_the_limits_passes() -> None:
    LIMITS.refuse_load(3, "source:shop")
    LIMITS.refuse_rows(100, "d.t")
    Limits().check_deadline(Limits().deadline(), "source:shop")


def test_what_is_beyond_them_is_refused_and_says_by_which() -> None:
    with pytest.raises(UnreachableError, match=r"source:shop: loaded: 4 .*limits\.running is 3"):
        LIMITS.refuse_load(4, "source:shop")
    with pytest.raises(TooManyRowsError, match=r"about 101 rows of d\.t .* limits.rows is 100"):
        LIMITS.refuse_rows(101, "d.t")
    with pytest.raises(UnreachableError, match="source:shop: slow"):
        LIMITS.check_deadline(LIMITS.deadline() - 1, "source:shop")


def test_the_server_ends_a_statement_before_we_stop_waiting() -> None:
    assert Limits().answer > Limits().statement


@pytest.mark.parametrize(("behind", "refused"), [(30, False), (31, True), (-5, False)])
def test_a_replica_that_is_far_behind_is_spared(behind: int, refused: bool) -> None:
    limits = Limits(lag=timedelta(seconds=30))
    if not refused:
        limits.refuse_lag(timedelta(seconds=behind), "source:shop")
        return
    with pytest.raises(
        SparedError, match=r"source:shop: .* 31 s behind, limits\.lag is 30 s"
    ) as said:
        limits.refuse_lag(timedelta(seconds=behind), "source:shop")
    assert said.value.brake == "lag"


def test_a_brake_travels_between_processes() -> None:
    with pytest.raises(SparedError) as said:
        LIMITS.refuse_load(4, "source:shop")

    again = pickle.loads(pickle.dumps(said.value))  # noqa: S301
    assert (again.brake, str(again)) == ("running", str(said.value))


def test_limits_are_those_of_the_sources_options() -> None:
    told = {"limits": {"running": 200, "rate": 5_000, "lag": "PT10S"}, "read_from": "b:3306"}

    assert read_limits(told) == Limits(running=200, rate=5_000, lag=timedelta(seconds=10))
    assert read_limits({}) == Limits()
    assert read_limits({"limits": {"lag": "10s"}}) == Limits(lag=timedelta(seconds=10))
