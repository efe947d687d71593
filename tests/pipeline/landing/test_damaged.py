"""A message damaged on its way is a change or in quarantine with a reason, and harms no other.

Each format's messages go the whole way that tasks and driver go with them: decoded, shaped, written
as a file, summed up, read back, typed.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.formats.canal_json import CanalJson
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.formats.simple_binlog import SimpleBinlog
from pipeline.landing.batch_stats import gather_stats
from pipeline.landing.task import LandingTask, SourceContext, TaskSource, write_file
from pipeline.model import Op, Order, Ordering
from pipeline.schema.decode import type_rows
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import Dialect, TableSchema
from pipeline.settings import RegistrySettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.transports.transport import OffsetRange
from tests.example_count import examples
from tests.pipeline.corpus import messages
from tests.pipeline.formats import sound_messages
from tests.pipeline.formats.batches import Raw, batch
from tests.pipeline.formats.damage import damaged
from tests.pipeline.formats.dbevents_writer import NUMBER, SCHEMA
from tests.pipeline.formats.test_debezium_avro import SCHEMAS
from tests.pipeline.landing.test_task import task

SOURCE, TOGETHER, LONGEST = "shop", 500, 3_000
FEW = 1_000  # of formats that have a fuzz of their own, too
LATE = 20.0  # seconds of work that a batch of so few may take, however busy the machine is
URL = "http://registry.invalid"
OPS = {str(op) for op in Op}


@dataclass(frozen=True)
class Case:
    """A format, the dialect of its source, and messages that nothing is wrong with."""

    name: str
    format: Format
    dialect: Dialect
    sent: tuple[Raw, ...]
    heartbeat: str = "sluice.heartbeat"
    schemas: Mapping[int, str | None] = field(default_factory=dict)
    count: int = 3_000


def corpus(name: str, *files: str) -> tuple[Raw, ...]:
    """Messages of these files of a corpus that are not too long for so many."""
    found = (one for one in messages(name) if one.id.split(": ")[0] in files)
    return tuple(
        (one.key, one.value, one.topic) for one in found if len(one.value or b"") < LONGEST
    )


BEAT = (
    b'{"before":null,"after":{"source":"shop","n":7,"at":1790000000000000},"op":"u","source":'
    b'{"connector":"mysql","db":"sluice","table":"heartbeat","file":"b.000003","pos":9,"row":0}}'
)
CASES = (
    Case(
        "debezium_json of MySQL",
        DebeziumJson(),
        MYSQL,
        (
            *corpus("debezium_json", "captured", "rows", "others", "wrapped"),
            *[(b'{"source":"shop"}', BEAT, "shop.sluice.heartbeat")] * 15,
        ),
    ),
    Case(
        "debezium_json of Postgres", DebeziumJson(), POSTGRES, corpus("debezium_json", "postgres")
    ),
    Case(
        "debezium_avro",
        DebeziumAvro(RegistrySettings(URL)),
        MYSQL,
        corpus("debezium_avro", "captured"),
        schemas=SCHEMAS,
    ),
    Case("canal_json", CanalJson("UTC"), MYSQL, sound_messages.canal(), count=FEW),
    Case("maxwell_json", MaxwellJson(), MYSQL, sound_messages.maxwell(), count=FEW),
    Case(
        "simple_binlog",
        SimpleBinlog(sound_messages.TABLES),
        MYSQL,
        sound_messages.simple_binlog(),
        count=FEW,
    ),
    Case(
        "dbevents_avro",
        DbEventsAvro(RegistrySettings(URL)),
        MYSQL,
        sound_messages.dbevents(),
        schemas={NUMBER: json.dumps(SCHEMA)},
        count=FEW,
    ),
)
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@dataclass(frozen=True, slots=True)
class Told(SchemaRegistry):
    """A registry that needs no server."""

    texts: Mapping[int, str | None] = field(default_factory=dict)

    def schemas(self, numbers: Any) -> dict[int, str | None]:
        """None of a number that it was not given."""
        return {number: self.texts.get(number) for number in numbers}


@EVERY
def test_thousands_of_damaged_messages_are_changes_or_have_a_reason(
    case: Case, tmp_path: Path
) -> None:
    Landing(case, tmp_path).judge(examples(case.count, brief=1_000), seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
@EVERY
def test_200_000_damaged_messages_are_changes_or_have_a_reason(
    case: Case, seed: int, tmp_path: Path
) -> None:
    Landing(case, tmp_path).judge(20_000, seed=seed)


@dataclass(eq=False)
class Landing:
    """Batches of which half is damaged, each landed as a task of its own.

    ``sound`` stands between what is damaged, and ``alone`` is what becomes of it by itself.
    """

    case: Case
    home: Path
    sound: tuple[Raw, ...] = field(init=False)
    alone: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        """Learn the tables' columns of what is sound."""
        self.sound = tuple(islice(cycle(self.case.sent), TOGETHER))
        self.alone = self._landed(self.sound)
        self.columns: dict[str, TableSchema] = {}
        for row in self.alone:
            if row["op"] == Op.DDL:
                _, found = self._reading.read(row["after"], Order(1, 1, 1))
                self.columns |= {c.shard: c.schema for c in found if c.schema is not None}

    @property
    def _reading(self) -> SchemaReader:
        return SchemaReader(self.case.format.schema_change, self.case.dialect)

    def judge(self, count: int, seed: int) -> None:
        """Land *count* damaged messages, each before a sound one."""
        dice, odd, sent = Random(seed), 0, self.case.sent
        for _ in range(count // TOGETHER):
            bad = [damaged(dice.choice(sent), sent, dice) for _ in self.sound]
            mixed = [one for pair in zip(bad, self.sound, strict=True) for one in pair]
            began = time.process_time()
            rows = self._landed(mixed)
            assert time.process_time() - began < LATE
            odd += self._explained(mixed, rows)
            own = [row for row in rows if row["offset"] % 2]
            assert self._plain(own, 2) == self._plain(self.alone, 1), "others were touched"
            self._typed(rows)
        assert odd > count // 10, "nothing was tried"

    def _landed(self, sent: Sequence[Raw]) -> list[dict[str, Any]]:
        """Rows of the file that a task leaves; the driver makes of what it tells what it would."""
        made = self._task()
        file, tallies = write_file([batch(sent)], made)
        assert file is not None
        path = Path(made.changes) / file.path
        rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
        path.unlink()
        facts = gather_stats(tallies, {}, {SOURCE: self._reading})
        unread = sum(row["op"] == Op.ERROR for row in rows)
        assert facts.rows == len(rows)
        assert sum(one.count for one in facts.errors.values()) >= unread
        return rows

    def _task(self) -> LandingTask:
        format_ = self.case.format
        came = SourceContext(SOURCE, self.case.heartbeat, ordering=format_.ordering)
        asked = Told(SOURCE, RegistrySettings(URL), texts=self.case.schemas)
        ranges = tuple(OffsetRange(topic, 0, 0, 9) for topic in {one[2] for one in self.case.sent})
        return task(self.home, TaskSource(came, format_, ranges, registry=asked))

    def _explained(self, sent: Sequence[Raw], rows: Sequence[Mapping[str, Any]]) -> int:
        """Each message is there; how many of them with a reason."""
        assert {row["offset"] for row in rows} == set(range(len(sent)))
        for row in rows:
            error = row["op"] == Op.ERROR
            assert row["op"] in OPS
            assert bool(row["error"]) == error
            assert row["raw"] == (sent[row["offset"]][1] if error else None)
        return sum(row["op"] == Op.ERROR for row in rows)

    def _typed(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Any row can be typed, or is told to be misread; a sound one never is."""
        for shard, schema in self.columns.items():
            own = [row for row in rows if row["shard"] == shard and row["op"] in "curd"]
            for image in ("before", "after"):
                found = type_rows(
                    pa.array([row[image] for row in own], pa.string()), schema.columns
                )
                assert found.rows.num_rows == len(own)
                misread = found.misread.to_pylist()
                assert not any(
                    bad and row["offset"] % 2 for bad, row in zip(misread, own, strict=True)
                )

    def _plain(self, rows: Sequence[Mapping[str, Any]], step: int) -> list[Mapping[str, Any]]:
        """Rows by their messages, without the columns that rows of some formats tell with them.

        And without orders that are offsets.
        """
        by_offset = self.case.format.ordering is Ordering.OFFSET
        kept = [row for row in rows if row["op"] != Op.DDL or row["schema_id"] is None]
        return [
            {**row, "offset": row["offset"] // step, "order": None if by_offset else row["order"]}
            for row in sorted(kept, key=_placed)
        ]


def _placed(row: Mapping[str, Any]) -> tuple[int, int]:
    """By message, and by place in it where that is told."""
    return int(row["offset"]), int((row["order"] or {}).get("row") or 0)
