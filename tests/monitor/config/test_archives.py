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
    ],
)
def test_a_window_that_holds_nothing_is_told_by_its_place(window: str, told: str) -> None:
    (line,) = _faults(MINIMAL + f"archive: [{{tables: shop.*, windows: [{window}]}}]\n")

    assert line.startswith("archive[0].windows[0]")
    assert told in line
