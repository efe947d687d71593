import fcntl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.collectors import files
from pipeline.collectors.files import FilesCollector
from pipeline.errors import ConfigError, UnreachableError
from pipeline.files.layout import LogRule
from pipeline.finding import WARN
from pipeline.model import Acknowledged, Missing, ShardId
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.files.position import sweep_position


@pytest.fixture
def base(tmp_path: Path) -> Path:
    hour = datetime.now(UTC)
    folder = tmp_path / "logs" / "clicks" / hour.strftime("%Y_%m_%d") / hour.strftime("%H")
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"id": 1}\n')
    return tmp_path / "logs"


@pytest.fixture
def collector(base: Path, tmp_path: Path) -> Iterator[FilesCollector]:
    now, ledger = timedelta(), str(tmp_path / "ledger.db")
    made = FilesCollector(str(base), "logs", ledger=ledger, settle=now, deep=now)
    yield made
    made.close()


def test_it_looks_on_whenever_it_is_asked(collector: FilesCollector) -> None:
    first = collector.acknowledged()
    assert first == Acknowledged(sweep_position(0, 0))  # a file was seen that is not taken

    second = collector.acknowledged()

    assert second == Acknowledged(sweep_position(2, 2))  # its columns and its row
    assert collector.state().running
    assert collector.captures()(ShardId("logs", "clicks"))


@pytest.mark.parametrize("hours", [-12, 14])
def test_files_of_another_zone_than_its_own_are_found(
    base: Path, collector: FilesCollector, hours: int
) -> None:
    hour = datetime.now(UTC) + timedelta(hours=hours)
    folder = base / "clicks" / hour.strftime("%Y_%m_%d") / hour.strftime("%H")
    folder.mkdir(parents=True)
    (folder / "b.json").write_text('{"id": 2}\n')

    collector.acknowledged()

    assert collector.acknowledged() == Acknowledged(sweep_position(2, 3))


def test_one_beside_it_reads_what_it_has_come_to(
    collector: FilesCollector, base: Path, tmp_path: Path
) -> None:
    beside = FilesCollector(str(base), "logs", ledger=str(tmp_path / "ledger.db"))
    assert isinstance(beside.acknowledged(), Missing | Acknowledged)
    told = [collector.acknowledged() for _ in range(3)]

    assert told[-1] == told[0]
    beside.close()
    assert collector.acknowledged() != told[0]


def test_a_lock_held_by_a_process_that_does_not_sweep_is_reported(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = [datetime(2026, 11, 23, 10, tzinfo=UTC)]
    monkeypatch.setattr(files, "utc_now", lambda: moments[-1])
    collector = FilesCollector(str(base), "logs", ledger=str(tmp_path / "ledger.db"))
    lock = tmp_path / "ledger.db.lock"
    with lock.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        collector.acknowledged()
        assert collector.state().running
        moments.append(moments[0] + timedelta(minutes=1))
        collector.acknowledged()
        told = collector.state()

    assert told.state == "waiting"
    assert "another process sweeps without progress since 2026-11-23 10:00:00+00:00" in told.detail
    assert f"fuser {lock}" in told.detail
    collector.acknowledged()
    assert collector.state().running
    collector.close()


def test_a_folder_that_is_not_there_is_unreachable_and_so_is_its_state(
    collector: FilesCollector, base: Path
) -> None:
    base.rename(base.with_name("gone"))

    with pytest.raises(UnreachableError, match="is its disk mounted"):
        collector.acknowledged()
    assert "is its disk mounted" in collector.state().description


def test_what_ails_who_sweeps_is_told_by_one_beside_it(
    collector: FilesCollector, base: Path, tmp_path: Path
) -> None:
    beside = FilesCollector(str(base), "logs", ledger=str(tmp_path / "ledger.db"))
    collector.acknowledged()
    base.rename(base.with_name("gone"))
    with pytest.raises(UnreachableError):
        collector.acknowledged()
    assert "is its disk mounted" in beside.state().description

    base.with_name("gone").rename(base)
    beside.acknowledged()
    assert not beside.state().running
    collector.acknowledged()
    assert beside.state().running
    beside.close()


def test_a_failure_of_who_sweeps_no_more_is_told_with_its_time(
    collector: FilesCollector, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "utc_now", lambda: datetime(2026, 11, 23, 10, 0, 7, 5, tzinfo=UTC))
    base.rename(base.with_name("gone"))
    with pytest.raises(UnreachableError):
        collector.acknowledged()
    collector.close()

    beside = FilesCollector(str(base), "logs", ledger=str(tmp_path / "ledger.db"))
    told = beside.state().description
    beside.close()

    assert told.startswith("failed: at 2026-11-23 10:00:07+00:00: files in ")


def test_a_file_that_never_stands_still_is_told_by_the_state(base: Path, tmp_path: Path) -> None:
    (path,), ledger = base.rglob("a.json"), str(tmp_path / "ledger.db")
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    made = FilesCollector(
        str(base), "logs", ledger=ledger, settle=hour, patience=second, deep=timedelta()
    )
    until = datetime.now(UTC) + timedelta(seconds=30)
    while made.state().running and datetime.now(UTC) < until:
        with path.open("ab") as file:
            file.write(b'{"id": 2}\n')
        made.acknowledged()

    assert (
        "for 1 files that are incomplete or change, the oldest clicks/" in made.state().description
    )
    assert "rename the file into place when it is complete" in made.state().description
    made.close()


def test_the_doctor_says_what_nobody_will_read_and_what_waits(
    collector: FilesCollector, base: Path
) -> None:
    source = SourceSettings("logs", "h", 1, "u", CollectorSettings(str(base), "d", "files"), "logs")
    assert collector.examine(source, None).findings == ()

    (base / "clicks" / "2026-11-23" / "05").mkdir(parents=True)
    (found,) = collector.examine(source, None).findings
    assert (found.severity, found.code, found.where) == (WARN, "no_hour", "collector:logs")
    assert "such as clicks/2026-11-23: they are not read" in found.what

    base.rename(base.with_name("gone"))
    with pytest.raises(UnreachableError):
        collector.acknowledged()
    (found,) = collector.examine(source, None).findings
    assert (found.code, "is its disk mounted" in found.what) == ("failed", True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(
            {"zone": "Asia/Weibo"}, "zone: 'Asia/Weibo' is not a time zone; ", id="a zone"
        ),
        pytest.param(
            {"back": timedelta(days=-3)}, "back: must not be negative", id="no hour is seen"
        ),
        pytest.param(
            {"logs": {"a": LogRule(columns={"n": "integer"})}},
            "logs.a.columns.n: no type 'integer'; known: tinyint, smallint, int",
            id="what would be a text without a word",
        ),
        pytest.param(
            {"logs": {"a": LogRule(columns={"n": "decimal(39,2)"})}},
            "logs.a.columns.n: no type 'decimal(39,2)'",
            id="more digits than there are",
        ),
    ],
)
def test_settings_that_would_find_nothing_or_misread_are_refused(options: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        FilesCollector("/logs", "logs", ledger="/x", **options)

    assert str(refused.value).startswith(f"collector.options.{told}")
