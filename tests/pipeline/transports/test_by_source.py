"""Topics of several transports look like those of one, and none is asked for another's."""

from pathlib import Path

import pytest

from examples.json_lines import JsonLines
from pipeline.errors import UnreachableError
from pipeline.model import TopicPartition
from pipeline.transports.per_source import OwnTopics, TransportsBySource
from pipeline.transports.transport import OffsetRange, ReadBounds


@pytest.fixture
def both(tmp_path: Path) -> TransportsBySource:
    """``a`` of three messages has a transport of its own, ``b`` of two the usual one.

    Each folder also holds a topic of the other's name, which is nobody's.
    """
    for folder, counts in (("own", {"a": 3, "b": 9}), ("usual", {"a": 9, "b": 2})):
        (tmp_path / folder).mkdir()
        for topic, count in counts.items():
            lines = (f'{{"key": null, "value": "{folder}{n}"}}\n' for n in range(count))
            (tmp_path / folder / f"{topic}.jsonl").write_text("".join(lines))
    own, usual = (JsonLines(str(tmp_path / name)) for name in ("own", "usual"))
    return TransportsBySource((OwnTopics("a", own),), usual)


def test_ends_beginnings_and_last_records_are_those_of_whoever_holds_the_topic(
    both: TransportsBySource,
) -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)

    assert sorted(both.topics(".*")) == ["a", "b"]
    assert {at: end.offset for at, end in both.ends(["a", "b"]).items()} == {a: 3, b: 2}
    assert {at: end.offset for at, end in both.beginnings(["a", "b"]).items()} == {a: 0, b: 0}
    assert {at: one.value for at, one in both.last_records([a, b]).items()} == {
        a: b"own2",
        b: b"usual1",
    }
    assert [one.name for one in both.settings(".*")] == ["a", "b"]
    assert both.epoch_ends({a: 1, b: 1}) == {a: -1, b: -1}
    assert both.hidden(["a", "b"]) == frozenset()


def test_a_task_reads_ranges_of_both_and_tells_them_in_the_order_it_was_asked(
    both: TransportsBySource,
) -> None:
    ranges = [OffsetRange("b", 0, 0, 1), OffsetRange("a", 0, 1, 3)]

    stream = both.reader(ranges).consume(ranges, bounds=ReadBounds(), columns=())

    values = [value for batch in stream for value in batch["value"].to_pylist()]
    assert values == [b"own1", b"own2", b"usual0"]
    assert [one.asked for one in stream.read] == ranges
    assert [one.count for one in stream.read] == [1, 2]


def test_a_topic_made_anew_is_told_by_the_one_that_holds_it(both: TransportsBySource) -> None:
    ids = both.topics(".*")
    both.require_ids(ids)

    with pytest.raises(UnreachableError, match="topic b was deleted or created again"):
        both.require_ids({**ids, "b": "another"})


def test_without_a_usual_transport_there_are_no_other_topics(both: TransportsBySource) -> None:
    alone = TransportsBySource(both.own)

    assert list(alone.topics(".*")) == ["a"]
    assert [at.topic for at in alone.ends(["a", "b"])] == ["a"]
