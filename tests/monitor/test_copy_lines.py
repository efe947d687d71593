from typing import Any

from monitor.cli.options import SHOWN, format_copies, summarize_copies


def standing(lag: float | None = 2.0, **more: Any) -> dict[str, Any]:
    told = {"lag_seconds": lag, "why": None, "hold": None, "watermark": "2026-01-02T03:04:05Z"}
    return told | more


HELD = standing(hold="copy_written: 2 rows are newer than the mirror's: somebody else writes there")
SILENT = standing(None, why="it does not answer", watermark=None)


def test_each_copy_of_a_table_says_how_it_stands() -> None:
    row = {"table": "a.t", "copies": {"three": HELD, "one": standing(), "two": SILENT}}

    assert format_copies(row) == [
        "copy one: 2.0 s behind its mirror, complete up to 2026-01-02T03:04:05Z",
        "copy three: held: copy_written: 2 rows are newer than the mirror's:"
        " somebody else writes there",
        "copy two: unknown: it does not answer",
    ]


def test_copies_of_many_tables_are_summed_up_and_what_does_not_follow_is_named() -> None:
    rows: list[dict[str, Any]] = [
        {"table": "a.t", "copies": {"one": standing(1.0), "two": SILENT}},
        {"table": "a.u", "copies": {"one": standing(7.25)}},
        {"table": "a.v", "copies": {"one": HELD}},
        {"table": "a.w", "copies": {}},
    ]

    assert summarize_copies(rows) == [
        "copy one: 2 of 3 tables follow, at most 7.2 s behind their mirrors",
        f"  a.v: held: {HELD['hold']}",
        "copy two: 0 of 1 tables follow",
        "  a.t: unknown: it does not answer",
    ]


def test_thousands_that_stand_still_fit_a_screen() -> None:
    lines = summarize_copies({"table": f"a.{n}", "copies": {"one": SILENT}} for n in range(3_000))

    assert len(lines) == SHOWN + 2
    assert lines[-1] == f"  and {3_000 - SHOWN} more: --json has all"


def test_where_there_are_no_copies_nothing_is_said() -> None:
    assert summarize_copies([{"table": "a.t", "copies": {}}]) == []
