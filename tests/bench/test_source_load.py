"""Statements are those of the product's own source, counted for each probe."""

from bench.source_load import loads


def test_statements_of_a_cycle_and_a_day_are_those_of_the_documentation() -> None:
    found = {one.probe: (one.cycle, one.day) for one in loads()}

    assert found == {
        "max_id": (2, 11_520),
        "range_counts": (25, 144_000),
        "schema": (2, 576),
        "day_counts": (25, 7_200),
    }


def test_a_cycle_of_ranges_counts_six_blocks_and_what_lies_below_and_above_them() -> None:
    (ranges,) = (one.sent for one in loads() if one.probe == "range_counts")

    assert (ranges["count"], ranges["explain"], ranges["index end"]) == (8, 8, 2)
