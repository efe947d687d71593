"""The doctor asks whatever source and collector the config names, and reports what they find."""

from datetime import timedelta
from pathlib import Path

import pytest

from checks.ordering import CANNOT
from monitor.config.file import load_config
from monitor.doctor import Examination
from pipeline.model import Ordering
from tests.toy.database import Database
from tests.toy.stand import COLUMNS, CONFIG, KAFKA, LINES, TABLE

NO_INDEX = "no index begins with a NOT NULL column of dates or times"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    database = Database(tmp_path / "toy.db")
    database.create()
    database.define(TABLE, COLUMNS, "id")
    database.define("sluice.heartbeat", COLUMNS, "id")
    (tmp_path / "toy.jsonl").touch()
    for name, value in {"LAKE": "lake", "DATABASE": "toy.db", "LINES": "", "STORE": "s.db"}.items():
        monkeypatch.setenv(f"TOY_{name}", str(tmp_path / value))
    monkeypatch.setenv("TOY_PORT", "1")
    path = tmp_path / "sluice.yaml"
    path.write_text(CONFIG.read_text("utf-8").replace(KAFKA, LINES))
    return path


def test_the_doctor_reports_what_a_source_and_a_collector_of_ones_own_find(config: Path) -> None:
    examination = Examination(load_config(config), None, timedelta(days=3))

    examination.run()

    assert examination.unasked == []
    assert [(one.code, one.where, one.what) for one in examination.findings] == [
        ("unsent", "collector:toy", "2 changes are not sent yet"),
        ("copies", "kafka:toy", "toy: the only copy is on the disk of one broker"),
        ("weak_order", "source:toy", f"changes are ordered by {CANNOT[Ordering.OFFSET]}"),
        ("toy", f"table {TABLE}", "one file holds it"),
        (
            "date_column",
            "source:toy",
            f"day_counts counts no days in 1 table: {TABLE} ({NO_INDEX})",
        ),
    ]
