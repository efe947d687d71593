"""What `sluice.yaml` says of rows that go to an archive."""

from datetime import timedelta

import pytest

from pipeline.archive import ArchiveWindow
from tests.monitor.config.test_config import MINIMAL, _faults, _parse


def test_windows_are_read_with_their_moments() -> None:
    window = '{since: "2026-03-28T01:00:00Z", until: "2026-03-28T05:00:00+01:00", column: day'
    config = _parse(f"archive: [{{tables: shop.*, windows: [{window}, before: '2025'}}]}}]\n")

    (rule,) = config.settings.archive
    (one,) = rule.windows
    assert isinstance(one, ArchiveWindow)
    assert (rule.tables, one.column, one.before) == ("shop.*", "day", "2025")
    assert one.until - one.since == timedelta(hours=3)


@pytest.mark.parametrize(
    ("window", "told"),
    [
        pytest.param(
            '{since: "2026-03-28T05:00:00Z", until: "2026-03-28T01:00:00Z"}',
            "is not after",
            id="ends first",
        ),
        pytest.param(
            '{since: "2026-03-28T05:00:00", until: "2026-03-28T06:00:00"}', "offset", id="no offset"
        ),
        pytest.param(
            '{since: "2026-03-28", until: "2026-03-28T06:00:00Z"}',
            "since: is no moment; write it with its offset, such as 2026-03-28T01:00:00Z",
            id="a day",
        ),
    ],
)
def test_a_window_that_holds_nothing_is_told_by_its_place(window: str, told: str) -> None:
    (line,) = _faults(MINIMAL + f"archive: [{{tables: shop.*, windows: [{window}]}}]\n")

    assert line.startswith("archive[0].windows[0]")
    assert told in line


WINDOW = '{since: "2026-03-28T01:00:00Z", until: "2026-03-28T05:00:00Z"}'


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        pytest.param(
            f"{{tables: orders, windows: [{WINDOW}]}}",
            "archive[0].tables: 'orders' matches no table; write database.table",
            id="rows that were to be kept would go",
        ),
        pytest.param(
            "{tables: shop.*, markers: [{table: runs}]}",
            "archive[0].markers[0].table: 'runs' is not a table name; write database.table",
            id="a marker that never comes",
        ),
        pytest.param(
            "{tables: shop.*, markers: [{table: ops.runs, column: who}]}",
            "archive[0].markers[0]: name a column and `values` of it, or neither",
            id="no row counts",
        ),
        pytest.param(
            "{tables: shop.*, markers: [{table: ops.runs, values: [me]}]}",
            "archive[0].markers[0]: name a column and `values` of it, or neither",
            id="any row counts",
        ),
        pytest.param(
            "{tables: shop.*}",
            "archive[0]: has no effect on shop.*; add windows or markers",
            id="nothing",
        ),
    ],
)
def test_a_rule_that_would_keep_nothing_is_told_by_its_place(rule: str, told: str) -> None:
    (line,) = _faults(f"{MINIMAL}archive: [{rule}]\n")

    assert line.startswith(told)
