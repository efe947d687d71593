from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, ProofError
from pipeline.files.content import ColumnsHead
from pipeline.files.ledger import Ledger
from pipeline.finding import REFUSE
from pipeline.model import Position, Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.files.dialect import FileColumn
from pipeline.sources.files.position import sweep_position
from pipeline.sources.files.source import FilesSource, ledger_path
from pipeline.sources.positions import has_reached
from pipeline.sources.source import ExaminationScope, FoldedTable
from tests.pipeline.files.test_ledger import COLUMNS, FILE, PART

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


@pytest.fixture
def source(ledger: Ledger, tmp_path: Path) -> FilesSource:
    return FilesSource(files_settings(tmp_path / "logs", str(ledger.path)))


def files_settings(base: Path, ledger: str) -> SourceSettings:
    told = CollectorSettings(str(base), "d", "files", {"ledger": ledger} if ledger else {})
    return SourceSettings("logs", "h", 1, "u", told, "logs", transport="files")


def test_a_beats_place_is_a_sweep_that_begins_after_it(source: FilesSource, ledger: Ledger) -> None:
    running = ledger.begin()

    beat = source.write_heartbeat(5, NOW)

    ledger.end_sweep(running)
    assert beat.number == source.newest_heartbeat() == 5
    assert beat.head.identity == ledger.id
    assert source.positions.locate(beat.head.position) == (0, 0)
    assert not reached(ledger, beat.head.position)
    ledger.end_sweep(ledger.begin())
    assert reached(ledger, beat.head.position)


def reached(ledger: Ledger, wanted: Position) -> bool:
    return has_reached(sweep_position(ledger.acknowledged(), 0), wanted)


def test_logs_and_their_columns_are_those_that_the_ledger_told(
    source: FilesSource, ledger: Ledger
) -> None:
    ledger.take([(FILE, [COLUMNS])], PART, sweep=1, at=0)
    shard = Shard("logs", "d.l")

    assert source.shards(r"d\..+") == (shard,)
    assert source.shards("other") == ()
    assert source.columns(shard) == (FileColumn("id", "bigint"),)
    assert source.key_columns(shard) == ("_file", "_line")
    assert source.columns(Shard("logs", "d.none")) == ()
    assert source.describe(["d.l"]).kept is None


def test_rows_in_files_are_not_counted_by_ids(source: FilesSource) -> None:
    shard = Shard("logs", "d.l")

    for ask in (
        lambda: source.max_id(shard, "id"),
        lambda: source.min_id(shard, "id"),
        lambda: source.count_ids(shard, "id", [(0, 1)]),
        lambda: source.tallies(shard, "day", [], []),
        lambda: source.ids(shard, "id", (0, 1), 1),
    ):
        with pytest.raises(ProofError, match="has no index to query rows"):
            ask()


def test_the_doctor_asks_whether_the_folder_is_there(
    source: FilesSource, ledger: Ledger, tmp_path: Path
) -> None:
    scope = ExaminationScope(FoldedTable, timedelta(), timedelta())
    (found,) = source.examine(scope)
    assert (found.severity, found.code) == (REFUSE, "no_folder")

    (tmp_path / "logs").mkdir()
    ledger.take([(FILE, [ColumnsHead("d.l", "create", (), ())])], PART, sweep=1, at=0)
    assert list(source.examine(scope)) == []


def test_a_source_whose_rows_nothing_would_read_is_refused(tmp_path: Path) -> None:
    good = files_settings(tmp_path, "/x/ledger.db")

    with pytest.raises(ConfigError, match="transport: is required; write files"):
        FilesSource(replace(good, transport=""))
    with pytest.raises(ConfigError, match=r"collector\.url: 'logs' is not an absolute path"):
        FilesSource(replace(good, collector=replace(good.collector, url="logs")))


def test_the_ledger_is_where_the_collectors_options_say(tmp_path: Path) -> None:
    assert ledger_path(files_settings(tmp_path, "/x/ledger.db")) == "/x/ledger.db"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param("", "is required", id="none"),
        pytest.param("ledger.db", r"'ledger\.db' must be an absolute path", id="relative"),
    ],
)
def test_a_ledger_that_not_all_processes_find_is_refused(
    tmp_path: Path, path: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=rf"collector\.options\.ledger: {why}"):
        ledger_path(files_settings(tmp_path, path))
