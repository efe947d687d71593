from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from pipeline.build import open_arrivals
from pipeline.files.ledger import Ledger
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.files.arrivals import FileArrivals
from pipeline.sources.source import PartitionArrivals
from tests.pipeline.files.test_ledger import COLUMNS, FILE, PART
from tests.pipeline.sources.files.test_source import files_settings

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_the_source_tells_which_hours_got_rows_and_which_of_these_late(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.take([(FILE, [COLUMNS])], PART, sweep=1, at=AT.timestamp())
    other = replace(FILE, path=f"{PART}/b.json")
    ledger.take([(other, [])], PART, sweep=1, at=AT.timestamp() + 1, late=True)

    arrivals = open_arrivals(files_settings(tmp_path, str(ledger.path)))

    assert isinstance(arrivals, FileArrivals)
    second = datetime(2026, 11, 23, 12, 0, 1, tzinfo=UTC)
    assert arrivals.end() == 7
    assert arrivals.between(0, 7) == [PartitionArrivals("d.l", PART, 2, 6, 3, AT, second)]
    late = PartitionArrivals("d.l", PART, 1, 3, 3, second, second)
    assert arrivals.between(4, 7) == arrivals.late(None) == arrivals.late(second) == [late]
    assert arrivals.late(datetime(2026, 11, 24, tzinfo=UTC)) == []
    arrivals.close()


def test_a_source_without_partitions_tells_none() -> None:
    collector = CollectorSettings("http://c", "shop")

    assert open_arrivals(SourceSettings("shop", "h", 1, "u", collector, "shop")) is None
