"""The bench beside a real lake runs, with probes that pass."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import idle


def test_f146_each_number_of_tables_is_measured_idle_and_at_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "WARM", 6)
    monkeypatch.setattr(idle, "SECONDS", 6)

    ran = CliRunner().invoke(idle.main, ["--tables", "2", "--dir", str(tmp_path)])

    assert ran.exit_code == 0, ran.exception
    assert "2 tables: idle" in ran.output
    assert "1 change a second" in ran.output
