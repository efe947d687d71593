"""Whatever an answer's rows hold, and however its bytes are cut, each value comes out as it was."""

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from pipeline.sources.mysql.session import LONGEST, TextRows

Row = Sequence[bytes | None]
END = b"\x05\x00\x00\x09\xfe\x00\x00\x02\x00"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="none"),
        pytest.param([(b"1", b"x"), (b"2", None), (None, b"")], id="null is not empty"),
        pytest.param([(b"y" * 250, b"1"), (b"y" * 251, b"2"), (b"y" * 300, None)], id="two bytes"),
        pytest.param([(b"1", b"z" * 70_000), (b"2", b"z")], id="three bytes"),
    ],
)
@pytest.mark.parametrize("cut", [1, 3, 7, 1_000_000])
def test_rows_come_out_as_they_went_in(rows: list[Row], cut: int) -> None:
    found = received(rows, cut if len(b"".join(map(payload, rows))) < 10_000 else 1_000)

    assert values(found, [True, False]) == [(None if a is None else a.decode(), b) for a, b in rows]


def test_random_rows_cut_anywhere() -> None:
    chance = random.Random(3)
    for _ in range(200):
        width = chance.randint(1, 5)
        rows = [[some(chance) for _ in range(width)] for _ in range(chance.randint(0, 30))]

        found = received(rows, chance.randint(1, 400))

        assert values(found, [False] * width) == [tuple(row) for row in rows]


def test_a_row_of_several_packets_is_one_row() -> None:
    rows = [(b"a", b"1"), (b"b" * (LONGEST - 8), b"2"), (b"c" * (LONGEST + 5), b"3"), (b"d", b"")]

    found = received(rows, 1 << 20)

    assert values(found, [False, False]) == rows


def test_a_long_value_in_front_is_not_taken_for_the_end() -> None:
    """Both begin with the same byte."""
    long = b"\xfe" + (3).to_bytes(8, "little") + b"abc"
    found = TextRows()
    found.take(len(long).to_bytes(3, "little") + b"\x01" + long + END)

    assert values(found, [True]) == [("abc",)]


def test_an_error_after_some_rows_ends_the_answer() -> None:
    found = TextRows()
    found.take(b"\x02\x00\x00\x01\x011" + b"\x04\x00\x00\x02\xff\xd0\x0b!")

    assert found.ended
    assert found.error == b"\xff\xd0\x0b!"


def test_a_text_that_is_none_is_told() -> None:
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        received([(b"\xff",)], 9).columns([True])


def received(rows: Sequence[Row], cut: int) -> TextRows:
    found, sent = TextRows(), b"".join(packets(rows)) + END
    for first in range(0, len(sent), cut):
        assert not found.ended
        found.take(sent[first : first + cut])
    assert found.ended
    assert not found.error
    return found


def values(found: TextRows, texts: Sequence[bool]) -> list[tuple[object, ...]]:
    batch = found.columns(texts)
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def packets(rows: Sequence[Row]) -> Iterator[bytes]:
    for row in rows:
        rest, last = payload(row), LONGEST
        while last == LONGEST:
            part, rest = rest[:LONGEST], rest[LONGEST:]
            last = len(part)
            yield last.to_bytes(3, "little") + b"\x07" + part


def payload(row: Row) -> bytes:
    return b"".join(b"\xfb" if value is None else length(len(value)) + value for value in row)


def length(number: int) -> bytes:
    if number < 251:
        return bytes([number])
    first, width = (0xFC, 2) if number < 2**16 else (0xFD, 3) if number < 2**24 else (0xFE, 8)
    return bytes([first]) + number.to_bytes(width, "little")


def some(chance: random.Random) -> bytes | None:
    kind = chance.random()
    return None if kind < 0.1 else chance.randbytes(chance.choice([0, 1, 9, 250, 251, 400]))
