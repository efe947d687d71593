"""A span is read to its end whatever is missing inside it, and nothing beyond it is taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UnreachableError
from pipeline.transports import topics
from pipeline.transports.topics import LastRecord, Spans, read_last_records, read_spans

SOON = timedelta(seconds=5)
ONE = ("t", 0)
Place = tuple[str, int]


@dataclass
class Message:
    topic: str
    partition: int
    offset: int
    timestamp: int = 1_700_000_000_123
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass
class FakeConsumer:
    """Partitions as sets of offsets up to an end; a poll gives a few records of each."""

    kept: Mapping[Place, set[int]]
    end: int
    at: dict[Place, int] = field(default_factory=dict)
    paused: set[Place] = field(default_factory=set)

    def assign(self, partitions: Sequence[Place]) -> None:
        self.at = dict.fromkeys(partitions, 0)
        self.paused = set()

    def seek(self, partition: Place, offset: int) -> None:
        self.at[partition] = offset

    def position(self, partition: Place) -> int:
        return self.at[partition]

    def pause(self, *partitions: Place) -> None:
        self.paused |= set(partitions)

    def poll(self, timeout_ms: int) -> Mapping[Place, Sequence[Message]]:
        assert timeout_ms > 0
        return {p: self._take(p) for p in self.at if p not in self.paused}

    def _take(self, partition: Place) -> list[Message]:
        start = self.at[partition]
        self.at[partition] = min(start + 3, self.end)
        span = range(start, self.at[partition])
        return [Message(*partition, n) for n in span if n in self.kept[partition]]


places = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1))
logs = st.dictionaries(places, st.sets(st.integers(0, 39)), min_size=1)
edges = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))


@given(logs, st.data())
def test_every_kept_record_of_a_span_comes_once_and_no_other(
    log: dict[Place, set[int]], data: st.DataObject
) -> None:
    consumer = FakeConsumer(log, 40)
    spans = {p: data.draw(edges) for p in log}

    found = read_spans(consumer, spans, SOON)

    wanted = [(*p, n) for p, (low, high) in spans.items() for n in log[p] if low <= n < high]
    assert sorted((r.topic, r.partition, r.offset) for r in found) == sorted(wanted)
    assert consumer.at == {}


@given(logs, st.data())
def test_the_newest_record_is_found_behind_any_hole(
    log: dict[Place, set[int]], data: st.DataObject
) -> None:
    consumer = FakeConsumer(log, 40)
    spans = {p: data.draw(edges) for p in log}

    found = read_last_records(lambda steps: read_spans(consumer, steps, SOON), spans)

    inside = {p: [n for n in log[p] if low <= n < high] for p, (low, high) in spans.items()}
    wanted = {p: LastRecord(b"k", b"v", max(some)) for p, some in inside.items() if some}
    assert found == wanted


@pytest.mark.parametrize("until", range(1, 90))
def test_a_lone_first_record_is_the_newest_however_far_the_end_is(until: int) -> None:
    consumer = FakeConsumer({ONE: {0}}, 100)

    assert set(
        read_last_records(lambda steps: read_spans(consumer, steps, SOON), {ONE: (0, until)})
    ) == {ONE}


def test_a_span_that_is_never_reached_ends_at_the_deadline() -> None:
    stuck = FakeConsumer({ONE: {0, 1}}, 2)

    with pytest.raises(UnreachableError, match="1 partitions not read"):
        read_spans(stuck, {ONE: (0, 3)}, timedelta(milliseconds=50))


def test_more_bytes_than_one_process_should_hold_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "MOST", 10)
    consumer = FakeConsumer({ONE: set(range(40))}, 40)

    with pytest.raises(UnreachableError, match="more than 10 bytes"):
        read_spans(consumer, {ONE: (0, 40)}, SOON)


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        pytest.param([b"v", b"v"], 1, id="a row"),
        pytest.param([b"v", b"v", None], 1, id="the delete before its tombstone"),
        pytest.param([b"v", *[None] * 30], 0, id="however many tombstones follow"),
        pytest.param([None, None], 1, id="nothing but tombstones"),
    ],
)
def test_a_tombstone_is_the_last_record_only_where_there_is_no_other(
    values: list[bytes | None], offset: int
) -> None:
    log = [Message("t", 0, number, value=value) for number, value in enumerate(values)]

    def read(steps: Spans) -> list[Message]:
        ((first, until),) = steps.values()
        return log[first:until]

    assert read_last_records(read, {ONE: (0, len(log))})[ONE].offset == offset


def test_the_last_record_brings_its_time_and_its_headers() -> None:
    message = Message("t", 0, 4, headers=[("a", b"1"), ("a", None)])

    found = read_last_records(lambda _: [message], {("t", 0): (0, 5)})

    last = found["t", 0]
    assert (last.timestamp, last.headers) == (1_700_000_000_123, (("a", b"1"), ("a", None)))
