"""Markers' texts put together: from the newest that tells everything, without a hole."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from pipeline.changelog.change_log import CheckpointReader, replay
from pipeline.checkpoint import FULL_EVERY, Checkpoint
from pipeline.errors import HeldError

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

    assert replay(every) == replay(reversed(every)) == replay(every[FULL_EVERY:]) == log.marks[-1]
    assert replay(every[:20]) == log.marks[19]
    assert replay(every[15:20], log.marks[14]) == log.marks[19]
    assert replay([], log.marks[3]) == log.marks[3]
    assert replay(every[15:], log.marks[14]) == log.marks[-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda texts: texts[1:20], "batch 0 has 0 markers", id="the full one"),
        pytest.param(lambda texts: texts[:18] + texts[19:20], "batch 18 is not", id="one between"),
        pytest.param(
            lambda texts: [*texts[:20], texts[12]], "batch 12 has more than one", id="one twice"
        ),
        pytest.param(
            lambda texts: [texts[0], *texts[:20]], "batch 0 has 2 markers", id="the full one twice"
        ),
        pytest.param(lambda texts: texts[:0], "there is no marker", id="all"),
    ],
)
def test_a_hole_or_a_double_is_found(
    log: Log, change: Callable[[list[tuple[int, str]]], list[tuple[int, str]]], words: str
) -> None:
    with pytest.raises(HeldError, match=words) as found:
        replay(change(list(log.texts.items())))

    assert found.value.reason == "mark_lost"


def test_a_hole_after_a_known_mark_is_found(log: Log) -> None:
    with pytest.raises(HeldError, match="batch 15 is not there, that of batch 16 is"):
        replay(list(log.texts.items())[16:20], log.marks[14])


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
