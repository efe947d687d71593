import pytest

from pipeline.model import Head, Position
from pipeline.sources.files.source import SweepNumbers, sweep_position

RULES = SweepNumbers()


def test_a_sweep_reaches_those_before_it_wherever_the_ledger_ended() -> None:
    wanted = sweep_position(7, 100)

    assert RULES.reaches(sweep_position(7, 90), wanted)
    assert not RULES.reaches(sweep_position(6, 900), wanted)
    assert RULES.place(wanted) == (0, 100)


def test_a_ledger_that_goes_back_is_another() -> None:
    known = sweep_position(7, 100)

    assert RULES.reset(known, sweep_position(8, 100)) is None
    assert RULES.reset(known, sweep_position(8, 99)) is not None
    assert RULES.reset(known, sweep_position(6, 100)) is not None


def test_another_ledger_knows_nothing_of_what_was_told() -> None:
    known, now = Head("a", sweep_position(7, 100)), Head("b", sweep_position(9, 100))

    assert "was lost" in str(RULES.lacks(known, now, None))
    assert RULES.lacks(known, Head("a", sweep_position(7, 100)), None) is None


def test_a_sweep_that_was_not_begun_is_in_no_ledger() -> None:
    end = sweep_position(7, 100)

    assert RULES.beyond(sweep_position(7, 1), end) is None
    assert RULES.beyond(sweep_position(8, 1), end) is not None
    assert not RULES.proper(end)
    assert RULES.may_hold(end, "any")


def test_words_of_another_kind_are_none() -> None:
    with pytest.raises(ValueError, match="no place in a ledger"):
        RULES.place(Position("files", "binlog.7"))
