"""Sets of GTIDs behave like sets of (origin, number), whatever text they arrive in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import FormatError
from pipeline.model import Head, Position
from pipeline.sources.mysql.position import GtidSet, contains_gtids
from pipeline.sources.mysql.position import binlog_position as at
from pipeline.sources.positions import (
    explain_missing_log,
    explain_overrun,
    explain_reset,
    has_reached,
    locate_position,
    may_contain,
    names_transactions,
)

OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
HEAD = at(5, 500)


def test_the_words_are_for_people_and_hold_the_set_without_blanks() -> None:
    found = at(7, 1234, f"{OLD}:1-9,\n {NEW}:1")

    assert str(found) == f"7/1234 {OLD}:1-9,{NEW}:1"
    assert locate_position(found) == (7, 1234)
    assert str(at(7, 1234)) == "7/1234"


OVERRUNS = {
    "just the head": (at(5, 500), HEAD, None),
    "a byte above it": (at(5, 501), HEAD, "above the head"),
    "a file above it": (at(6, 4), HEAD, "above the head"),
    "all executed": (at(5, 400, f"{NEW}:1-9"), at(5, 500, f"{NEW}:1-9"), None),
    "one was not": (at(5, 400, f"{NEW}:1-10"), at(5, 500, f"{NEW}:1-9"), "not executed"),
    "another server's": (at(5, 400, f"{OLD}:1-3"), at(5, 500, f"{NEW}:1-9"), "not executed"),
    "MariaDB's": (at(5, 400, "0-1-99"), at(5, 500, "0-1-5"), None),
    "other kind": (at(5, 400), Position("other", "9"), "in a log of kind other"),
}


@pytest.mark.parametrize(("said", "head", "word"), OVERRUNS.values(), ids=OVERRUNS)
def test_f04_what_the_server_cannot_have_written_is_refused(
    said: Position, head: Position, word: str | None
) -> None:
    found = explain_overrun(said, head)

    assert (found is None) == (word is None)
    assert word is None or word in str(found)


@pytest.mark.parametrize(
    ("said", "head", "reached"),
    [
        pytest.param(at(3, 90), at(3, 90), True, id="just there"),
        pytest.param(at(3, 89), at(3, 90), False, id="one byte short"),
        pytest.param(at(4, 1), at(3, 90), True, id="a file further"),
        pytest.param(at(10, 1), at(9, 90), True, id="by number, not by letter"),
        pytest.param(at(3, 90, f"{NEW}:1-8"), at(3, 90, f"{NEW}:1-9"), False, id="one short"),
        pytest.param(at(3, 90, "0-1-5"), at(3, 90, "0-1-9"), True, id="MariaDB: by position"),
        pytest.param(at(3, 90), at(3, 90, f"{NEW}:1-9"), True, id="only one has GTIDs"),
        pytest.param(at(3, 90), Position("other", "3/90"), False, id="another kind's"),
    ],
)
def test_a_position_is_reached_by_place_and_by_transactions(
    said: Position, head: Position, reached: bool
) -> None:
    assert has_reached(said, head) is reached


@pytest.mark.parametrize(
    ("position", "names", "holds"),
    [
        pytest.param(at(3, 90), False, True, id="no GTIDs: nobody can say no"),
        pytest.param(at(3, 90, "0-1-5"), False, True, id="MariaDB's"),
        pytest.param(at(3, 90, f"{NEW}:1-9"), True, True, id="it is in the set"),
        pytest.param(at(3, 90, f"{NEW}:1-8"), True, False, id="it is not"),
    ],
)
def test_whether_a_transaction_may_stand_before_it(
    position: Position, names: bool, holds: bool
) -> None:
    assert names_transactions(position) is names
    assert may_contain(position, f"{NEW}:9") is holds


def test_a_log_of_another_kind_is_another_log() -> None:
    assert "of kind other" in (explain_reset(Position("other", "9"), HEAD) or "")


RESETS = {
    "where it was": (at(5, 500), at(5, 500), None),
    "a byte further": (at(5, 500), at(5, 501), None),
    "a file further, by number": (at(9, 500), at(10, 4), None),
    "a byte back": (at(5, 500), at(5, 499), "log went back from 5/500 to 5/499"),
    "a file back": (at(5, 4), at(4, 900), "log went back from 5/4 to 4/900"),
    "in place alone": (at(5, 500, f"{NEW}:1-9"), at(5, 499, f"{NEW}:1-9"), "log went back"),
    "with more": (at(5, 500, f"{NEW}:1-9"), at(6, 4, f"{NEW}:1-12"), None),
    "with others' too": (at(5, 500, f"{NEW}:1-9"), at(6, 4, f"{OLD}:1,{NEW}:1-9"), None),
    "one forgotten": (
        at(5, 500, f"{NEW}:1-9"),
        at(6, 4, f"{NEW}:1-8"),
        "no longer has transactions",
    ),
    "all forgotten": (at(5, 500, f"{NEW}:1-9"), at(6, 4), "no longer has transactions"),
    "none known before": (at(5, 500), at(6, 4, f"{NEW}:1-9"), None),
}


@pytest.mark.parametrize(("known", "now", "why"), RESETS.values(), ids=RESETS)
def test_a_log_that_cannot_have_grown_from_what_it_was_is_another(
    known: Position, now: Position, why: str | None
) -> None:
    found = explain_reset(known, now)

    assert (found is None) == (why is None)
    assert why is None or why in str(found)


PROMOTED = {
    "none": (Head("a", at(4, 90)), Head("b", at(4, 90)), "without GTIDs"),
    "no more": (Head("a", at(4, 90, f"{OLD}:1-9")), Head("b", at(9, 4)), "without GTIDs"),
    "MariaDB": (Head("a", at(4, 90, "0-1-5")), Head("b", at(4, 9, "0-1-9")), "without"),
    "has all": (
        Head("a", at(4, 90, f"{OLD}:1-9")),
        Head("b", at(1, 9, f"{OLD}:1-9,{NEW}:1")),
        None,
    ),
    "was behind": (
        Head("a", at(4, 90, f"{OLD}:1-9")),
        Head("b", at(1, 9, f"{OLD}:1-8,{NEW}:1")),
        "not executed",
    ),
    "the same, reset": (Head("a", at(4, 90)), Head("a", at(1, 4)), None),
}


@pytest.mark.parametrize(("known", "now", "why"), PROMOTED.values(), ids=PROMOTED)
def test_f101_only_gtids_show_that_a_promoted_server_has_the_old_logs_end(
    known: Head, now: Head, why: str | None
) -> None:
    found = explain_missing_log(known, now)

    assert found is None if why is None else why in str(found)


A = "94a7152a-e545-11f1-9a80-02fc00000001"
B = "0b1c2d3e-e545-11f1-9a80-02fc00000002"

names = st.sampled_from([A, B, f"{A}:backup"])
spans = st.tuples(st.integers(1, 30), st.integers(0, 5)).map(lambda s: (s[0], s[0] + s[1]))
pieces = st.lists(st.tuples(names, spans), max_size=8)
Pieces = list[tuple[str, tuple[int, int]]]


def numbers(some: Pieces) -> set[tuple[str, int]]:
    return {(name, n) for name, (first, last) in some for n in range(first, last + 1)}


@given(pieces, pieces)
def test_union_and_containment_are_those_of_sets(a: Pieces, b: Pieces) -> None:
    left, right = GtidSet.of(a), GtidSet.of(b)

    assert (left | right) == GtidSet.of(a + b)
    assert left.contains(right) == (numbers(a) >= numbers(b))


@given(pieces)
def test_what_is_written_is_read_back(a: Pieces) -> None:
    assert GtidSet.parse(str(GtidSet.of(a))) == GtidSet.of(a)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("", "", id="a new server has executed nothing"),
        pytest.param(f"{A}:1-5:7", f"{A}:1-5:7", id="as MySQL prints it"),
        pytest.param(f"{A}:7:1-3:4-6", f"{A}:1-7", id="touching intervals are one"),
        pytest.param(f"{A.upper()}:1,\n{B}:2", f"{B}:2,{A}:1", id="breaks, capitals and sequence"),
        pytest.param(f"{A}:1-3:backup:4:9", f"{A}:1-3,{A}:backup:4:9", id="a tag names its own"),
        pytest.param(f"{A}:1,{A}:2", f"{A}:1-2", id="one origin twice"),
    ],
)
def test_one_set_has_one_text(text: str, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0-11-5", id="mariadb"),
        pytest.param("0-11-5,1-12-7", id="mariadb with two domains"),
        pytest.param(A, id="no interval"),
        pytest.param(f"{A}:5-3", id="backwards"),
        pytest.param(f"{A}:0-3", id="numbers start at one"),
        pytest.param(f"{A}:backup", id="a tag without an interval"),
        pytest.param(f"{A}:x y:1-", id="open end"),
        pytest.param("shop:1-5", id="no uuid"),
    ],
)
def test_anything_else_is_refused_and_named(text: str) -> None:
    with pytest.raises(FormatError, match="GTID"):
        GtidSet.parse(text)


def test_a_gap_is_not_contained() -> None:
    assert contains_gtids(f"{A}:1-9", f"{A}:3-4:7")
    assert not contains_gtids(f"{A}:1-4:6-9", f"{A}:3-7")
