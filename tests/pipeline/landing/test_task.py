import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.servers import Servers
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp
from pipeline.delta.log import Metadata
from pipeline.delta.protocol import describe_table
from pipeline.errors import HeldError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import OPTIONAL, RAW, Decoded, Schemas, build_batch
from pipeline.landing.order_check import OrderStretch
from pipeline.landing.task import (
    LandingTask,
    SourceContext,
    TaskResult,
    TaskSource,
    run_task,
    write_file,
)
from pipeline.model import Op, Order, Ordering, TopicPartition
from pipeline.settings import Router
from pipeline.transports.kafka import KafkaReader
from pipeline.transports.transport import OffsetRange
from tests.pipeline.formats.plain_format import PlainFormat
from tests.pipeline.transports.topics import make, send

RECEIVED = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Words(PlainFormat):
    """A toy format: ``shard word word`` is a row of the shard for each word."""

    columns: tuple[str, ...] = ()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        told: list[tuple[int, Decoded]] = []
        for index, value in enumerate(batch["value"].to_pylist()):
            shard, *words = value.decode().split()
            if shard == "held":
                raise HeldError("words", "this shard is held")
            told += [
                (index, Decoded(Op.UPDATE, shard, key_values=f'["{word}"]', after=word))
                for word in words
            ]
        return build_batch(told)


@dataclass(frozen=True, slots=True)
class Stamped(PlainFormat):
    """A toy format: each message is a row of ``t``, what it says is in its header and its time."""

    columns: tuple[str, ...] = ("timestamp", "headers")

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        assert batch.schema.names == [*RAW.names, *self.columns]
        told = zip(batch["timestamp"].to_pylist(), batch["headers"].to_pylist(), strict=True)
        return build_batch(
            (index, Decoded(Op.UPDATE, "t", '["1"]', after=headers[0]["value"].decode(), at=at))
            for index, (at, headers) in enumerate(told)
        )


def task(lake: Path, *intakes: TaskSource, size: int = 2**20) -> LandingTask:
    text, properties = describe_table(CHANGES, PROPERTIES)
    return LandingTask(
        str(lake),
        Metadata({}, "changes", text, ("dt",), properties),
        Stamp("main", 7, RECEIVED),
        Router(),
        intakes or (intake("shop", "t"),),
        KafkaReader({"bootstrap.servers": "localhost:1"}),
        run=size,
    )


def intake(source: str, topic: str) -> TaskSource:
    return TaskSource(
        SourceContext(source, "h.b", ordering=Ordering.OFFSET),
        Words(),
        (OffsetRange(topic, 0, 0, 9),),
    )


def messages(values: Sequence[str], topic: str = "t", first: int = 0) -> pa.RecordBatch:
    made = [
        {"value": value.encode(), "topic": topic, "partition": 0, "offset": first + n}
        for n, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(made, schema=RAW)


def landed_rows(lake: Path) -> list[tuple[str, str, str, int]]:
    """Source, table, word and offset of every row in every file, file by file."""
    return [
        (row["source"], row["table"], row["after"], row["offset"])
        for path in sorted(lake.rglob("*.parquet"))
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]


def test_messages_become_one_file_sorted_by_table_and_are_summed_up(
    tmp_path: Path,
) -> None:
    batches = [messages(["b x y", "a z", "b"]), messages(["a w"], first=3)]

    file, tallies = write_file(batches, task(tmp_path))

    assert landed_rows(tmp_path) == [
        ("shop", "a", "z", 1),
        ("shop", "a", "w", 3),
        ("shop", "b", "x", 0),
        ("shop", "b", "y", 0),
    ]
    assert file is not None
    assert (tmp_path / file.path).stat().st_size == file.size
    assert file.records == 4
    (told,) = tallies
    assert (told.rows, told.tables) == (4, {"a": 2, "b": 2})
    assert told.firsts == {"shop/a": Order(1, 0, 1), "shop/b": Order(1, 0, 0)}
    assert told.stretches == (
        OrderStretch("shop", TopicPartition("t", 0), 0, Order(1, 0, 0), Order(1, 0, 3), True),
    )


def test_each_message_is_decoded_as_its_own_sources(tmp_path: Path) -> None:
    mixed = pa.concat_batches([messages(["a 1", "a 2"], "t"), messages(["a 3"], "u")])

    write_file(
        [mixed, messages(["a 4"], "u")], task(tmp_path, intake("shop", "t"), intake("bank", "u"))
    )

    assert sorted((source, word) for source, _, word, _ in landed_rows(tmp_path)) == [
        *[("bank", "3"), ("bank", "4")],
        *[("shop", "1"), ("shop", "2")],
    ]


def test_a_format_gets_the_columns_it_asks_for_and_another_none_of_them(tmp_path: Path) -> None:
    stamped = replace(intake("bank", "u"), format=Stamped())
    mixed = pa.concat_batches([messages(["t word"], "t"), messages([""], "u", 1)])
    for name, values in (("timestamp", [RECEIVED] * 2), ("headers", [header(b"x"), header(b"y")])):
        mixed = mixed.append_column(name, pa.array(values, OPTIONAL[name]))

    write_file([mixed], task(tmp_path, intake("shop", "t"), stamped))

    assert landed_rows(tmp_path) == [("shop", "t", "word", 0), ("bank", "t", "y", 1)]


@pytest.mark.stack
def test_a_task_reads_what_its_format_asks_for_from_the_broker(
    servers: Servers, tmp_path: Path
) -> None:
    bootstrap = servers.kafka.bootstrap
    topic = make(bootstrap, name="p1.task.stamped")
    send(bootstrap, topic, [(b"k", None)] * 2, headers=[("word", b"w")])
    came = SourceContext("shop", "h.b", ordering=Ordering.OFFSET)
    asked = task(tmp_path, TaskSource(came, Stamped(), (OffsetRange(topic, 0, 0, 2),)))

    told = run_task(replace(asked, reader=KafkaReader({"bootstrap.servers": bootstrap})))

    assert landed_rows(tmp_path) == [("shop", "t", "w", 0), ("shop", "t", "w", 1)]
    assert told.file is not None
    found = pq.read_table(tmp_path / told.file.path, partitioning=None)
    assert found["at"].to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)] * 2


def header(value: bytes) -> list[dict[str, str | bytes]]:
    return [{"name": "word", "value": value}]


def test_more_rows_than_memory_holds_are_runs_of_one_file(tmp_path: Path) -> None:
    batches = [messages(["b 1", "a 2"]), messages(["b 3", "a 4"], first=2)]

    file, tallies = write_file(batches, task(tmp_path, size=1))

    assert [word for _, _, word, _ in landed_rows(tmp_path)] == ["2", "1", "4", "3"]
    assert file is not None
    assert file.records == 4
    assert [(told.rows, told.stretches[0].first) for told in tallies] == [(2, 0), (2, 2)]


def test_messages_that_say_nothing_leave_no_file(tmp_path: Path) -> None:
    file, tallies = write_file([messages(["a", "b"])], task(tmp_path))

    assert (file, tallies) == (None, ())
    assert list(tmp_path.rglob("*")) == []


def test_a_task_that_runs_twice_leaves_two_files_and_no_other_trace(tmp_path: Path) -> None:
    twice = [write_file([messages(["a 1"])], task(tmp_path)) for _ in range(2)]

    paths = {file.path for file, _ in twice if file is not None}
    assert len(paths) == 2
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == paths


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(HeldError):
        write_file([messages(["a 1"]), messages(["held"])], task(tmp_path, size=1))

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_task_and_what_it_tells_can_be_sent(tmp_path: Path) -> None:
    sent = task(tmp_path)
    file, tallies = write_file([messages(["a 1"])], sent)

    assert pickle.loads(pickle.dumps(sent)) == sent  # noqa: S301
    result = TaskResult(file, (), tallies)
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301


def test_no_secret_of_the_settings_shows_in_a_task(tmp_path: Path) -> None:
    assert "localhost" not in repr(task(tmp_path))


def test_ranges_that_hold_nothing_need_no_broker(tmp_path: Path) -> None:
    nothing = TaskSource(SourceContext("shop", "h.b"), Words(), (OffsetRange("t", 0, 5, 5),))

    told = run_task(task(tmp_path, nothing))

    assert (told.file, told.ranges[0].count, told.tallies) == (None, 0, ())


def marker(status: str, transaction: str, *counts: tuple[str, int], **more: object) -> str:
    """What Debezium sends as a transaction begins or ends."""
    each = [{"data_collection": name, "event_count": n} for name, n in counts]
    told = {"status": status, "id": transaction, "ts_ms": 1, "event_count": None} | {
        "data_collections": None
    }
    if status == "END":
        told |= {"event_count": sum(n for _, n in counts), "data_collections": each}
    return json.dumps(told | more)


MARKERS = "shop.transaction"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param(
            [marker("BEGIN", "a:1"), marker("END", "a:1", ("d.t", 2))],
            ["begin a:1", "end a:1"],
            id="of rows that were sent",
        ),
        pytest.param(
            [m for n in range(9) for m in (marker("BEGIN", f"a:{n}"), marker("END", f"a:{n}"))],
            [],
            id="of transactions elsewhere",
        ),
        pytest.param(
            [marker("END", "a:1"), marker("BEGIN", "a:2")],
            ["begin a:2"],
            id="a BEGIN whose END is not read yet",
        ),
        pytest.param(
            [marker("BEGIN", "a:1"), marker("BEGIN", "a:1"), marker("END", "a:1")],
            [],
            id="begun again, and still without rows",
        ),
        pytest.param(
            [
                *(marker("BEGIN", "a:1"), marker("END", "a:1")),
                *(marker("BEGIN", "a:1"), marker("END", "a:1", ("d.t", 1))),
            ],
            ["begin a:1", "end a:1", "begin a:1", "end a:1"],
            id="sent again with rows",
        ),
        pytest.param(
            [marker("END", "a:1", event_count=None), marker("END", "a:2", event_count="many")],
            ["end a:1", "end a:2"],
            id="an END that does not count",
        ),
        pytest.param(
            [marker("END", "a:1", event_count=0, data_collections=[{}])],
            ["end a:1"],
            id="an END that contradicts itself",
        ),
    ],
)
def test_f193_only_markers_of_transactions_with_captured_changes_land(
    tmp_path: Path, sent: list[str], kept: list[str]
) -> None:
    """A connector of one database of a shared server sends those of all databases."""
    its = replace(intake("shop", MARKERS), format=DebeziumJson())
    batch = messages(sent, MARKERS).set_column(
        RAW.get_field_index("key"), "key", pa.array([b'{"id":"x"}'] * len(sent))
    )

    write_file([batch], task(tmp_path, its))

    found = [
        (row["offset"], f"{row['op']} {row['tx']['id']}")
        for path in tmp_path.rglob("*.parquet")
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    assert [told for _, told in sorted(found)] == kept
