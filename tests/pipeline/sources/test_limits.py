from datetime import timedelta

import pytest

from pipeline.errors import TooManyRowsError, UnreachableError
from pipeline.sources.limits import Limits

LIMITS = Limits(running=3, rows=100, call=timedelta(0))


def test_what_is_within_the_limits_passes() -> None:
    LIMITS.refuse_load(3, "source:shop")
    LIMITS.refuse_rows(100, "d.t")
    Limits().hurry(Limits().deadline(), "source:shop")


def test_what_is_beyond_them_is_refused_and_says_by_which() -> None:
    with pytest.raises(UnreachableError, match=r"source:shop: loaded: 4 .*limits\.running is 3"):
        LIMITS.refuse_load(4, "source:shop")
    with pytest.raises(TooManyRowsError, match=r"about 101 rows of d\.t .* 100 may be counted"):
        LIMITS.refuse_rows(101, "d.t")
    with pytest.raises(UnreachableError, match="source:shop: slow"):
        LIMITS.hurry(LIMITS.deadline() - 1, "source:shop")


def test_the_server_ends_a_statement_before_we_stop_waiting() -> None:
    assert Limits().answer > Limits().statement
