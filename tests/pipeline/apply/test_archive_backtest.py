from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from monitor.archive_backtest import counted_windows
from monitor.commands.archive import COMMAND
from pipeline.apply.archive_backtest import ArchiveBacktest, BacktestDay
from pipeline.archive import ArchiveMarker, ArchiveRules, ArchiveWindow, RegisteredWindow
from pipeline.changelog.scan import find_parts
from pipeline.model import Op
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.test_archive_evidence import in_tx
from tests.pipeline.invariants.test_archive_purge import (
    DAY,
    NEW,
    OLD,
    PURGE,
    TODAY,
    dated,
    purge_lake,
)

D = Op.DELETE
WINDOW = ArchiveWindow(TODAY, TODAY + timedelta(hours=1), "day", "2026-01-30")


def backtested(
    made: LocalLake, rules: ArchiveRules, purge: object = PURGE
) -> tuple[BacktestDay, ...]:
    made.log.look()
    files = find_parts(made.log.snapshot, -1, made.checkpoint.batch)
    test = ArchiveBacktest(made.settings.changes, files, "db.t", made.columns, rules)
    return replace(test, purge=purge).days()  # type: ignore[arg-type]


def test_history_is_told_as_it_would_have_been(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    made.land(
        *(dated(D, 5000 + n, n, OLD) for n in range(1, 6)),
        *(dated(D, 5000 + n, n, NEW) for n in range(101, 104)),
        *(dated(D, 6000 + n, n, OLD, TODAY + DAY) for n in range(6, 21)),
        dated(D, 7000, 30, None, TODAY + DAY),
    )

    first, second = backtested(made, ArchiveRules((WINDOW,)))

    assert first == BacktestDay(TODAY.date(), deletes=8, windows=5, limit=7.0)
    assert (first.ignored, first.held) == (5, False)
    assert (second.deletes, second.windows, second.old, second.unreported) == (16, 0, 16, 1)
    assert second.held


def test_markers_count_and_deletes_without_a_transaction_do_not(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    marker = {"table": "db.runs", "shard": "db.runs", "topic": "s.db.runs"}
    made.land(
        in_tx("g:1", dated(D, 5001, 1, OLD)),
        in_tx("g:1", row(Op.CREATE, 5002, 1, **marker)),
        in_tx("g:2", dated(D, 5003, 2, OLD)),
        in_tx(None, dated(D, 5004, 3, OLD)),
    )

    (day,) = backtested(made, ArchiveRules(markers=(ArchiveMarker("db.runs"),)), None)

    assert day == BacktestDay(TODAY.date(), deletes=3, marked=1)


def test_windows_that_a_service_tells_of_are_read() -> None:
    told = {"table": "db.t", "since": WINDOW.since.isoformat(), "until": WINDOW.until.isoformat()}
    told |= {"column": "day", "before": "2026-01-30"}
    taken = {"withdrawn": {"who": "bob", "at": told["until"], "reason": "a typo"}}

    found = counted_windows([{**told, "withdrawn": None}, {**told, **taken}])

    assert found == (RegisteredWindow("db.t", WINDOW),)


CONFIG = """
lake: {lake}
kafka: 127.0.0.1:9
sources:
  - {{name: s, host: h, port: 1, user: u, prefix: s, collector: {{url: "http://x", connector: s}}}}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["db.t"], "db.t 2026-03-01: 8 deletes, 0 ignored, 8 applied", id="no rule"),
        pytest.param([], "the change log has no delete of a table", id="of nothing"),
    ],
)
def test_it_is_told_at_the_terminal_without_a_service(
    tmp_path: Path, words: list[str], said: str
) -> None:
    made = purge_lake(tmp_path / "lake")
    made.land(*(dated(D, 5000 + n, n, OLD) for n in range(1, 9)))
    (tmp_path / "sluice.yaml").write_text(CONFIG.format(lake=tmp_path / "lake"))
    asked = ["backtest", *words, "--config", str(tmp_path / "sluice.yaml")]

    result = CliRunner().invoke(COMMAND, [*asked, "--server", "http://127.0.0.1:9"])

    assert result.exit_code == 0, result.output
    assert said in result.output
    assert "only windows of the config count" in result.output
