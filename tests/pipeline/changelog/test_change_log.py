from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.changelog.change_log import (
    ChangeLog,
    CheckpointReader,
    replay_checkpoints,
    require_rows_with_a_checkpoint,
)
from pipeline.changelog.reader import LogReader
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp, build_app_id
from pipeline.checkpoint import FULL_EVERY, Checkpoint
from pipeline.delta.commit import commit_actions
from pipeline.delta.reader import open_table
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, ProofError
from pipeline.landing.staging import write_rows
from pipeline.model import Op, Order
from tests.builders.change_log import read_table
from tests.builders.lake import NOW, LocalLake, row, stamped

C, D, DDL = Op.CREATE, Op.DELETE, Op.DDL


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return LocalLake(tmp_path)


def log_of(lake: LocalLake, lane: str = "main") -> ChangeLog:
    return ChangeLog(open_store(lake.settings.changes), lane)


def statement(pos: int, text: str, **more: Any) -> dict[str, Any]:
    return {**row(DDL, pos, None), "after": text, "table": None, "topic": "s", **more}


def test_there_is_no_change_log_before_it_is_made(tmp_path: Path) -> None:
    log = ChangeLog(open_store(str(tmp_path / "changes")), "main")

    assert log.look() is None
    assert log.checkpoint() is None
    with pytest.raises(ProofError, match=r"no change log at .*changes yet"):
        _ = log.snapshot
    assert not (tmp_path / "changes").exists(), "looking makes nothing"


def test_it_is_made_once_and_stands_as_others_read_it(tmp_path: Path) -> None:
    log = ChangeLog(open_store(str(tmp_path / "changes")), "main")

    first = log.opened(NOW)
    again = ChangeLog(log.store, "main").opened(NOW)
    found = open_table(log.store.uri)

    assert (first.version, again.version) == (0, 0)
    assert found is not None
    assert found.table.metadata().configuration.items() >= PROPERTIES.items()
    assert list(found.columns()) == CHANGES.names
    assert log.batch() == -1


def test_the_newest_batch_and_its_mark_are_what_was_committed(lake: LocalLake) -> None:
    log = log_of(lake)
    assert log.checkpoint() is None
    for batch in range(3):
        lake.land(row(C, 10 + batch, batch, "a"))
        assert log.checkpoint() == lake.checkpoint
        assert log.batch() == batch


def test_each_lane_has_batches_and_marks_of_its_own(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "a"))
    second = log_of(lake, "second")

    assert second.checkpoint() is None
    assert (second.batch(), second.schema_changes(-1)) == (-1, [])


def test_a_batch_whose_mark_is_not_there_is_told_and_never_taken_for_an_empty_lake(
    lake: LocalLake,
) -> None:
    lake.land(row(C, 10, 1, "a"))
    log = log_of(lake)
    log.look()
    commit_actions(
        log.store, log.snapshot, (), operation="WRITE", clock=NOW, txn=(build_app_id("main"), 1)
    )

    with pytest.raises(HeldError, match="mark_lost"):
        log.checkpoint()


def test_rows_without_a_mark_are_refused_before_anything_lands_on_top(lake: LocalLake) -> None:
    log = log_of(lake)
    log.look()
    require_rows_with_a_checkpoint(log)
    lake.land(row(C, 10, 1, "a"))
    log.look()
    require_rows_with_a_checkpoint(log)
    _unnumbered(lake)
    fresh = log_of(lake, "second")
    fresh.look()

    with pytest.raises(HeldError, match="holds rows of lane second but no checkpoint"):
        require_rows_with_a_checkpoint(fresh)


def _unnumbered(lake: LocalLake) -> None:
    """A row of another lane, in a commit that numbers no batch."""
    stamp = Stamp("second", 0, NOW)
    log = log_of(lake)
    log.look()
    file = write_rows(log, stamped([row(C, 10, 1, "a")], stamp), stamp)
    commit_actions(log.store, log.snapshot, [file.added(NOW)], operation="WRITE", clock=NOW)


def test_schema_changes_come_as_they_landed_and_only_those_that_are_newer(lake: LocalLake) -> None:
    lake.land(statement(12, "second", offset=1), statement(10, "first", offset=0))
    lake.land(row(C, 20, 1, "a"))
    lake.land(statement(30, "third"), statement(31, "no place") | {"order": None})
    log = log_of(lake)
    log.look()
    pinned = read_table(lake.settings.changes)

    assert log.schema_changes(-1) == LogReader(pinned, "main").schema_changes(-1)
    assert log.schema_changes(-1) == [
        ("s", Order(1, 1, 10), "first"),
        ("s", Order(1, 1, 12), "second"),
        ("s", Order(1, 1, 30), "third"),
    ]
    assert [text for _, _, text in log.schema_changes(0)] == ["third"]
    assert log.schema_changes(2) == []


def far(row_: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**row_, "order": replace(row_["order"], **more)}


def test_what_landed_near_is_found_by_source_topic_and_log(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "a"), far(row(C, 11, 2, "b"), log=5))
    lake.land(far(row(C, 12, 3, "c"), log=2, epoch=7), row(C, 13, 4, "d", topic="s.db.x"))
    lake.land({**row(C, 14, 5, "e"), "source": "other"})
    log = log_of(lake)
    log.look()

    found = log.near("s", ("s.db.t",), {1, 2}, ("offset", "order", "source"))

    assert sorted(found["offset"].to_pylist()) == [10, 12], "of any epoch"
    assert found.column_names == ["offset", "order", "source"]


def test_files_that_end_before_a_log_begins_are_not_opened(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "a"))
    lake.land(far(row(C, 11, 2, "b"), log=5))
    log = log_of(lake)
    log.look()
    early = next(
        f for f in log.snapshot.files.values() if (f.stats or {})["minValues"]["op"] == "c"
    )
    Path(lake.settings.changes, early.path).unlink()

    found = log.near("s", ("s.db.t",), {5}, ("offset", "source", "order"))

    assert found["offset"].to_pylist() == [11]


def test_what_was_sent_is_found_by_transaction_of_one_source(lake: LocalLake) -> None:
    def sent(pos: int, tx: str | None, **more: Any) -> dict[str, Any]:
        told = None if tx is None else {"id": tx, "total_order": 1}
        return row(C, pos, pos, "a", tx=told, **more)

    lake.land(sent(10, "g:1"), sent(11, "g:2"), sent(12, None))
    lake.land(sent(13, "g:1", source="other"), far(sent(14, "g:1"), epoch=2))
    log = log_of(lake)
    log.look()
    columns = ("offset", "source", "tx", "order")

    every = log.sent("s", ("g:1", "g:9"), None, columns)
    late = log.sent("s", ("g:1",), Order(2, 0, 0), columns)

    assert sorted(every["offset"].to_pylist()) == [10, 14]
    assert late["offset"].to_pylist() == [14]
    assert len(log.sent("s", (), None, columns)) == 0


def test_a_look_reads_on_from_the_one_before_and_sees_what_others_did(lake: LocalLake) -> None:
    log = log_of(lake)
    log.look()
    first = log.snapshot.version
    lake.land(row(C, 10, 1, "a"))

    assert log.snapshot.version == first, "nothing is seen without a look"
    log.look()
    assert log.snapshot.version == first + 1


# checkpoints

WIDE = {f"t{n}": 0 for n in range(20)}


@dataclass(eq=False)
class Log:
    """The markers of a lane, and how many were read of it."""

    texts: dict[int, str] = field(default_factory=dict)
    marks: list[Checkpoint] = field(default_factory=list)
    read: list[int] = field(default_factory=list)

    def commit(self, batches: int) -> None:
        mark = self.marks[-1] if self.marks else Checkpoint("main", -1)
        for batch in range(mark.batch + 1, mark.batch + 1 + batches):
            tables = {**WIDE, **mark.tables, f"t{batch % 20}": batch}
            text = replace(mark, batch=batch, tables=tables).changes_since(mark)
            mark = mark.advanced(text)
            self.texts[batch] = text
            self.marks.append(mark)

    def after(self, since: int) -> Iterable[tuple[int, str]]:
        found = [(batch, text) for batch, text in self.texts.items() if batch > since]
        self.read.append(len(found))
        return found


@pytest.fixture
def log() -> Log:
    made = Log()
    made.commit(60)
    return made


def test_any_stretch_that_holds_a_full_text_gives_the_newest_mark(log: Log) -> None:
    every = list(log.texts.items())

    assert (
        replay_checkpoints(every)
        == replay_checkpoints(reversed(every))
        == replay_checkpoints(every[FULL_EVERY:])
        == log.marks[-1]
    )
    assert replay_checkpoints(every[:20]) == log.marks[19]
    assert replay_checkpoints(every[15:20], log.marks[14]) == log.marks[19]
    assert replay_checkpoints([], log.marks[3]) == log.marks[3]
    assert replay_checkpoints(every[15:], log.marks[14]) == log.marks[-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda texts: texts[1:20], "batch 0 has 0 full markers", id="the full one"),
        pytest.param(
            lambda texts: texts[:18] + texts[19:20], "batch 18 has no marker", id="one between"
        ),
        pytest.param(
            lambda texts: [*texts[:20], texts[12]], "batch 12 has more than one", id="one twice"
        ),
        pytest.param(
            lambda texts: [texts[0], *texts[:20]],
            "batch 0 has 2 full markers",
            id="the full one twice",
        ),
        pytest.param(lambda texts: texts[:0], "the change log has no checkpoint", id="all"),
    ],
)
def test_a_hole_or_a_double_is_found(
    log: Log, change: Callable[[list[tuple[int, str]]], list[tuple[int, str]]], words: str
) -> None:
    with pytest.raises(HeldError, match=words) as found:
        replay_checkpoints(change(list(log.texts.items())))

    assert found.value.reason == "mark_lost"


def test_a_hole_after_a_known_mark_is_found(log: Log) -> None:
    with pytest.raises(HeldError, match="batch 15 has no marker, and batch 16 has one"):
        replay_checkpoints(list(log.texts.items())[16:20], log.marks[14])


def test_a_reader_reads_from_the_full_text_on_and_then_only_what_is_new(log: Log) -> None:
    reader = CheckpointReader(log.after)

    first = reader.at(59)
    again = reader.at(59)
    log.commit(2)
    later = reader.at(61)

    assert first == again == log.marks[59]
    assert later == log.marks[61]
    assert log.read == [1, 60 - FULL_EVERY, 2]


def test_a_reader_that_was_away_for_long_begins_at_the_newest_full_text(log: Log) -> None:
    reader = CheckpointReader(log.after)
    reader.at(5)
    log.read.clear()

    found = reader.at(59)

    assert found == log.marks[59]
    assert log.read == [1, 60 - FULL_EVERY]


def test_a_reader_asked_for_an_older_batch_tells_that_one(log: Log) -> None:
    reader = CheckpointReader(log.after)
    reader.at(59)

    assert reader.at(30) == log.marks[30]
    assert reader.at(31) == log.marks[31]


@pytest.mark.parametrize("known", [-1, 40], ids=["at the start", "later"])
def test_a_batch_without_a_marker_is_a_lost_mark(log: Log, known: int) -> None:
    reader = CheckpointReader(log.after)
    if known >= 0:
        reader.at(known)

    with pytest.raises(HeldError, match="batch 60 has") as found:
        reader.at(60)

    assert found.value.reason == "mark_lost"
