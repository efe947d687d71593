import pytest

from pipeline.errors import FormatError
from pipeline.model import Position
from pipeline.sources.postgres.position import POSITIONS, log_position, parse_lsn

HEAD = Position("postgres", "16/B374D848")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param("0/0", 0, id="none yet"),
        pytest.param("0/16B3748", 0x16B3748, id="as Postgres writes it"),
        pytest.param("1/0", 2**32, id="the upper half counts"),
        pytest.param("FFFFFFFF/FFFFFFFF", 2**64 - 1, id="the last one"),
    ],
)
def test_a_number_and_its_words_are_one(words: str, number: int) -> None:
    assert parse_lsn(words) == number
    assert log_position(number) == Position("postgres", words)
    assert POSITIONS.locate(log_position(number)) == (number, 0)


@pytest.mark.parametrize("text", ["", "16", "G/0", "0/123456789", "0/1 ", "-1/0"])
def test_what_is_no_lsn_is_said_to_be_none(text: str) -> None:
    with pytest.raises(FormatError, match="is no LSN"):
        parse_lsn(text)


@pytest.mark.parametrize(
    ("at", "reached"),
    [
        pytest.param("16/B374D848", True, id="just there"),
        pytest.param("16/B374D847", False, id="one byte short"),
        pytest.param("17/0", True, id="by number, not by letter"),
        pytest.param("9/FFFFFFFF", False, id="less, though its first letter is more"),
    ],
)
def test_it_is_reached_by_number(at: str, reached: bool) -> None:
    said = Position("postgres", at)

    assert POSITIONS.has_reached(said, HEAD) is reached
    assert (POSITIONS.explain_reset(HEAD, said) is None) is reached
    assert (POSITIONS.explain_overrun(HEAD, said) is None) is reached


def test_it_names_no_transactions() -> None:
    assert not POSITIONS.names_transactions(HEAD)
    assert POSITIONS.may_contain(HEAD, "739")
