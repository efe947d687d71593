"""Sets of GTIDs behave like sets of (origin, number), whatever text they arrive in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import FormatError
from pipeline.sources.mysql.position import GtidSet, contains_gtids

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
