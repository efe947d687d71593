import pytest

from monitor.messages import alike, nearest


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("statu", "the nearest is status; known: ack, gate, status"),
        ("xyzzy", "known: ack, gate, status"),
        ("stage", "known: ack, gate, status"),
    ],
)
def test_of_few_the_nearest_is_named_and_all_there_are(asked: str, told: str) -> None:
    assert nearest(asked, ["gate", "status", "ack"]) == told


def test_of_none_it_is_said_that_there_are_none() -> None:
    assert nearest("copy:a", []) == "known: none yet"


def test_of_thousands_those_that_begin_or_end_alike_are_named() -> None:
    names = [f"shop.t{number:04}" for number in range(5_000)]

    told = alike("shop.t0421x", names)

    assert told.startswith("shop.t0421, ")
    assert told.endswith(" and 4990 more")
    assert alike("shop.x", ["b", "a"]) == "b, a"
    assert alike("shop.x", []) == "none yet"
