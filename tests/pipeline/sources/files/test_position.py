import pytest

from pipeline.model import Head, Position
from pipeline.sources.files.position import FilePositions, sweep_position

RULES = FilePositions()


def test_a_sweep_reaches_those_before_it_wherever_the_ledger_ended() -> None:
    wanted = sweep_position(7, 100)

    assert RULES.has_reached(sweep_position(7, 90), wanted)
    assert not RULES.has_reached(sweep_position(6, 900), wanted)
    assert RULES.locate(wanted) == (0, 100)


def test_a_ledger_that_goes_back_is_another() -> None:
    known = sweep_position(7, 100)

    assert RULES.explain_reset(known, sweep_position(8, 100)) is None
    assert RULES.explain_reset(known, sweep_position(8, 99)) is not None
    assert RULES.explain_reset(known, sweep_position(6, 100)) is not None


def test_another_ledger_knows_nothing_of_what_was_told() -> None:
    known, now = Head("a", sweep_position(7, 100)), Head("b", sweep_position(9, 100))

    assert "was lost" in str(RULES.explain_missing_log(known, now, None))
    assert RULES.explain_missing_log(known, Head("a", sweep_position(7, 100)), None) is None


def test_a_sweep_that_was_not_begun_is_in_no_ledger() -> None:
    end = sweep_position(7, 100)

    assert RULES.explain_overrun(sweep_position(7, 1), end) is None
    assert RULES.explain_overrun(sweep_position(8, 1), end) is not None
    assert not RULES.names_transactions(end)
    assert RULES.may_contain(end, "any")


def test_words_of_another_kind_are_none() -> None:
    with pytest.raises(ValueError, match="no position in a ledger"):
        RULES.locate(Position("files", "binlog.7"))
