"""Clocks that are wrong by as many seconds as a file says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from demo.clocks import (
    SERVICE_FILE,
    ServerClock,
    find_library,
    read_service_clock,
    set_service_clock,
)


@pytest.mark.parametrize("folder", ["lib/faketime", "lib/x86_64-linux-gnu/faketime"])
def test_the_library_is_found_where_distributions_install_it(tmp_path: Path, folder: str) -> None:
    library = tmp_path / folder / "libfaketimeMT.so.1"
    assert find_library(tmp_path) is None

    library.parent.mkdir(parents=True)
    library.touch()

    assert find_library(tmp_path) == library


def test_a_servers_clock_is_a_signed_offset_in_the_file_that_it_reads(tmp_path: Path) -> None:
    clock = ServerClock(tmp_path / "clock", Path("/lib/libfaketimeMT.so.1"))

    written = []
    for seconds in (3600, -3600, 0):
        clock.set_wrong(seconds)
        written.append(clock.file.read_text(encoding="utf-8"))

    assert written == ["+3600\n", "-3600\n", "+0\n"]
    assert clock.environment["FAKETIME_TIMESTAMP_FILE"] == str(clock.file)
    assert clock.environment["LD_PRELOAD"] == "/lib/libfaketimeMT.so.1"


def test_the_services_clock_is_right_until_it_is_set_wrong(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    right = read_service_clock(tmp_path / SERVICE_FILE)

    set_service_clock(tmp_path, -3600)
    wrong = read_service_clock(tmp_path / SERVICE_FILE)

    after, hour = datetime.now(UTC), timedelta(hours=1)
    assert before <= right <= after
    assert before - hour <= wrong <= after - hour
