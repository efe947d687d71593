"""What the story shows and remembers; the story itself is `make demo`."""

import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from demo import processes
from demo.processes import wait_until
from demo.run import hold_folder
from demo.story import harm as harm_file
from demo.story import memory
from demo.story.harm import ForeignDelete
from demo.story.lags import LagBook, quantile
from demo.story.landed import LandedCount
from demo.story.progress import TableProgress, line
from demo.story.screen import Screen
from demo.story.summary import Played, Summary
from pipeline.errors import ConfigError

SOON = timedelta(seconds=20)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        pytest.param(0.5, 10, id="the median of twenty is the tenth"),
        pytest.param(0.95, 19, id="one of twenty may be above p95"),
        pytest.param(1.0, 20, id="none is above the whole"),
        pytest.param(0.0, 1, id="the least is the least"),
    ],
)
def test_a_quantile_is_a_value_that_was_seen(share: float, expected: float) -> None:
    assert quantile([float(n) for n in range(1, 21)], share) == expected


def test_each_hop_has_its_share_of_the_time_that_was_waited() -> None:
    book = LagBook()
    book.note("shop.users", {"collection": 1.0, "merge": 3.0})
    book.note("shop.orders", {"collection": 2.0, "merge": 2.0})

    summary = book.summary()

    assert summary is not None
    assert summary.shares == {"collection": 3 / 8, "merge": 5 / 8}
    assert (summary.samples, summary.worst) == (2, 4.0)


def test_a_sample_that_is_told_again_counts_once() -> None:
    book = LagBook()
    for _ in range(3):
        book.note("shop.users", {"merge": 1.0})

    summary = book.summary()

    assert summary is not None
    assert summary.samples == 1


def test_nothing_measured_is_no_summary_and_not_a_lag_of_zero() -> None:
    assert LagBook().summary() is None


def table_progress(hops: Mapping[str, float | None], name: str = "shop.users") -> TableProgress:
    return TableProgress(name, 10, 20, 15, hops, "ready")


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        pytest.param({"collection": 1.0, "merge": 2.0}, 3.0, id="hops add up"),
        pytest.param({"collection": 1.0, "merge": None}, None, id="one unknown, all unknown"),
        pytest.param({}, None, id="a table not watched yet has no lag, not a lag of zero"),
    ],
)
def test_lag_is_known_only_if_every_hop_is(
    hops: Mapping[str, float | None], expected: float | None
) -> None:
    assert table_progress(hops).lag == expected


def test_a_line_of_progress_names_the_slowest_way_and_how_many_are_unknown() -> None:
    quick, slow = table_progress({"merge": 1.0}), table_progress({"merge": 4.0}, "shop.orders")
    unknown = table_progress({"merge": None}, "shop.payments")

    told = line((quick, slow, unknown))

    assert "rows at the source 30, changes landed 60, merged 45" in told
    assert "lag 4.0 s = merge 4.0 (1 not known)" in told


def test_without_a_terminal_progress_is_plain_lines_at_a_pace() -> None:
    out = io.StringIO()
    with Screen(Console(file=out, soft_wrap=True), began=-100.0) as screen:
        for _ in range(3):
            screen.show((table_progress({"merge": 1.0}),))

    assert out.getvalue().count("rows at the source 10") == 1
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_table_is_drawn_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one, as of a job or an editor, draws nothing
    out = io.StringIO()
    with Screen(Console(file=out, force_terminal=True, width=120)) as screen:
        screen.show((table_progress({"merge": 1.0}),))

    assert "shop.users" in out.getvalue()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([True, True], True, id="all acts, all seen"),
        pytest.param([True, False], False, id="one not seen"),
        pytest.param([True], False, id="a story that broke off was not seen"),
        pytest.param([], False, id="nothing played"),
    ],
)
def test_a_run_is_good_only_if_every_act_was_played_and_seen(
    tmp_path: Path, seen: list[bool], expected: bool
) -> None:
    acts = [Played(f"act {n}", 1.0, one, "") for n, one in enumerate(seen)]
    summary = Summary(planned=2, acts=acts)

    summary.write(tmp_path / "summary.json")

    assert summary.seen is expected
    assert json.loads((tmp_path / "summary.json").read_text())["seen"] is expected


def test_landed_changes_are_counted_once_and_by_table(tmp_path: Path) -> None:
    path = str(tmp_path / "changes")
    count = LandedCount(path)
    assert count.by_table() == {}

    write_deltalake(
        path, log([(0, "a", "c"), (0, "b", "u"), (0, "b", "ddl"), (0, None, "heartbeat")])
    )
    assert count.by_table() == {"a": 1, "b": 1}
    assert count.by_table() == {"a": 1, "b": 1}
    write_deltalake(path, log([(1, "a", "d")]), mode="append")

    assert count.by_table() == {"a": 2, "b": 1}


def log(rows: list[tuple[int, str | None, str]]) -> pa.Table:
    batches, tables, ops = zip(*rows, strict=True)
    return pa.table({"batch": batches, "table": pa.array(tables, pa.string()), "op": ops})


def test_a_foreign_delete_is_one_row_and_can_be_taken_back(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    write_deltalake(path, pa.table({"id": [3, 1, 2]}))
    harm = ForeignDelete(path)

    harm.do()

    assert (harm.id, harm.version, harm.good) == (1, 1, 0)
    assert read_ids(path) == [2, 3]
    harm.undo()
    assert read_ids(path) == [1, 2, 3]


def test_a_merge_that_comes_between_is_not_taken_back_with_a_foreign_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "users")
    write_deltalake(path, pa.table({"id": [3, 1, 2]}))
    looked = harm_file.read_column

    def merged_meanwhile(table: DeltaTable, query: str) -> Sequence[Any]:
        if table.version() == 0:
            write_deltalake(path, pa.table({"id": [4]}), mode="append")
        return looked(table, query)

    monkeypatch.setattr(harm_file, "read_column", merged_meanwhile)
    harm = ForeignDelete(path)

    harm.do()

    assert (harm.id, harm.version, harm.good) == (1, 2, 1)
    assert DeltaTable(path).history(1)[0]["operation"] == "DELETE"
    harm.undo()
    assert read_ids(path) == [1, 2, 3, 4]


def read_ids(path: str) -> list[int]:
    found: list[int] = pa.table(DeltaTable(path).to_pyarrow_table())["id"].to_pylist()
    return sorted(found)


def test_memory_counts_what_was_started_and_what_that_started(tmp_path: Path) -> None:
    script = "/bin/sleep 1000 & wait"
    child = processes.start(("/bin/sh", "-c", script), log=tmp_path / "log")
    wait_until(lambda: len(memory.family(child.pid)) == 2, SOON, "grandchild")

    assert set(memory.family(child.pid)) < set(memory.family(os.getpid()))
    assert memory.in_use() > 0
    child.kill()


def test_a_folder_that_no_demo_made_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mysql" / "a"
    mine.parent.mkdir()
    mine.write_text("mine")

    with pytest.raises(ConfigError, match="is not empty, and has no lock"), hold_folder(tmp_path):
        pass

    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [mine]


def test_the_next_demo_begins_in_the_folder_of_one_that_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_folder(tmp_path):
            (tmp_path / "mysql").mkdir(exist_ok=True)
