"""Each sweep of the benchmark is the one that its name says."""

from datetime import UTC, datetime
from pathlib import Path

from bench.many_files import measured, tell, walk, write
from pipeline.files.ledger import Ledger


def test_all_files_are_taken_and_each_sweep_has_its_cost(tmp_path: Path) -> None:
    write(tmp_path / "logs", 60, 6, datetime.now(UTC))
    assert walk(tmp_path / "logs") == 60

    costs = list(measured(tmp_path, 6))

    ledger = Ledger(tmp_path / "ledger.db")
    assert (ledger.count().begun, ledger.count().done) == (6, 6)
    assert ledger.count().end == 61
    ledger.close()
    assert [one.name for one in costs][-2:] == ["folders alone", "by another process"]
    tell(tmp_path, costs, 60, 0)
