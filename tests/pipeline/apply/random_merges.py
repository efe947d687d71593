"""A mirror under random turns of two writers and all that others do to a table, beside a model.

The model is a dict: of each key the newest change, whatever came in which order, and the floor that
a truncate set.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from delta_kernel_rust_sharing_wrapper import PythonInterface, ScanBuilder, Table
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.row_metadata import SLUICE
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.store import open_store
from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.two_writers import C, D, U, change, plain

KEY = ("Order.Id", "nr")
TEXTS = ("a", "A", "a ", "ä", "x" * 45, "q'u", "b\\s", "\U0001f600" + "z" * 31, "")
COLUMNS = (
    *(Column("Order.Id", "VARCHAR", 99), Column("nr", "BIGINT"), Column("o'v, x", "VARCHAR", 99)),
    *(Column("dec", "DECIMAL", 38, 10), Column("at", "DATETIME", 6)),
)
VALUES: dict[str, tuple[Any, ...]] = {
    "o'v, x": (None, "", "vv", "é" * 50),
    "dec": (None, "123.0000000001", "-" + "9" * 28 + "." + "9" * 10),
    "at": (None, 0, -62_135_596_800_000_000, 253_402_300_799_999_999),
}
OTHERS = {"optimize": 3, "checkpoint": 4, "clean": 2, "vacuum": 2, "restore": 2, "keep_up": 3}
TURNS = {"vectors": 76, "spark_merge": 8}
OFF = "spark.databricks.delta.retentionDurationCheck.enabled"
REACH = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
Change = tuple[int, Op, dict[str, Any]]  # place, op, image


@dataclass(eq=False)
class RandomTurns:
    """``play`` does one thing at random; ``same`` compares what every reader sees."""

    spark: SparkSession
    home: Path
    seed: int
    newest: dict[tuple[Any, ...], Change] = field(default_factory=dict)
    floor: int = 0
    place: int = 100
    done: Counter[str] = field(default_factory=Counter)
    _oldest: int = 0  # version, from which on files and entries are there

    def __post_init__(self) -> None:
        """Begin with an empty mirror whose log may be cleaned at once."""
        self.random = random.Random(self.seed)
        self.columns = list(COLUMNS)
        writers = DeltaMirrors(self.spark)
        self.lake = LocalLake(self.home, columns=COLUMNS, key=KEY, table_format=writers)
        self.path = self.lake.settings.mirror("db.t")
        changes = ChangeLog(open_store(self.lake.settings.changes), "main")
        mirrors = self.lake.runner.mirrors
        self.upkeep = LakeMaintenance(
            self.lake.settings, changes, mirrors, lambda: datetime.now(UTC)
        )
        self.vectors(3)
        kept = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
        told = ", ".join(f"'{name}' = 'interval 0 hours'" for name in kept)
        self._sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({told})")

    def play(self) -> str:
        """One turn, or one thing that somebody else does to the table."""
        kinds = TURNS | OTHERS
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        getattr(self, kind)()
        self.done[kind] += 1
        return kind

    def vectors(self, rows: int | None = None) -> None:
        """A turn of our own writer."""
        self.lake.table_format.why = lambda _: None
        self._turn(rows)

    def spark_merge(self) -> None:
        """A turn of Spark's MERGE."""
        self.lake.table_format.why = lambda _: "its turn has come"
        self._turn(None)

    def optimize(self) -> None:
        """By Spark."""
        self._sql("OPTIMIZE {t}")

    def checkpoint(self) -> None:
        """By deltalake."""
        DeltaTable(self.path).create_checkpoint()
        Path(self.path, "_delta_log", "._last_checkpoint.crc").unlink(missing_ok=True)

    def clean(self) -> None:
        """Of all entries below a checkpoint, by deltalake; as the mirror keeps none, seen first."""
        self.lake.run()
        self.checkpoint()
        DeltaTable(self.path).cleanup_metadata()
        self._oldest = self._version()

    def vacuum(self) -> None:
        """By Spark, of all that the newest version does not need."""
        self.spark.conf.set(OFF, "false")
        try:
            self._sql("VACUUM {t} RETAIN 0 HOURS")
        finally:
            self.spark.conf.set(OFF, "true")
        self._oldest = self._version()

    def restore(self) -> None:
        """Somebody goes back some versions; the mirror stands until that is taken back."""
        newest = self._version()
        back = newest - self.random.randrange(1, 4)
        if back <= self._oldest:
            return
        before = sorted(map(repr, self._lake_rows()))  # files are read in any order
        self.spark.conf.set(REACH, "false")  # what is back there was not vacuumed
        self._sql(f"RESTORE {{t}} TO VERSION AS OF {back}")
        changed = before != sorted(map(repr, self._lake_rows()))
        self._land(2)
        turn = self.lake.apply()
        if changed:
            assert turn.hold is not None, (newest, back, turn, self._entries())
            assert turn.hold.reason == "foreign_write"
        if turn.hold is not None:
            self._sql(f"RESTORE {{t}} TO VERSION AS OF {newest}")
            turn = self.lake.apply()
        assert turn.hold is None, turn.hold
        assert turn.account.residual == 0

    def keep_up(self) -> None:
        """Our own upkeep."""
        self.lake.table_format.why = lambda _: None
        mark, applied = self.lake.checkpoint, {"db.t": self.lake.checkpoint.batch}
        held = self.lake.runner.held.is_held
        self.upkeep.run(mark, {}, applied, held, key=lambda _: KEY)

    def grow(self) -> None:
        """The source's table gets a column, whose default its old rows have."""
        name = f"extra {len(self.columns)}"
        self.columns.append(Column(name, "VARCHAR", 9, default="dflt", has_default=True))
        self.place += 1
        self.lake.alter(*self.columns, at=Order(1, 1, self.place))
        for place, op, image in self.newest.values():
            assert place < self.place
            image[name] = "dflt"
            del op

    def same(self, *, by_spark: bool) -> None:
        """Every reader sees the model's rows, and the log answers for their number and bounds."""
        wanted = self._model()
        texts = sorted(map(repr, wanted))
        assert sorted(map(repr, self._lake_rows())) == texts, "deltalake"
        assert sorted(map(repr, self._kernel_rows())) == texts, "delta-kernel"
        numbers = [one["nr"] for one in wanted]
        bounds = (len(numbers), min(numbers, default=None), max(numbers, default=None))
        query = 'SELECT count(*) AS c, min("nr") AS l, max("nr") AS h FROM t'
        assert tuple(self._open(query)[0].values()) == bounds, "deltalake, from the log"
        if by_spark:
            frame = self.spark.read.format("delta").load(self.path)
            found = plain(frame.drop(SLUICE).toArrow().to_pylist())
            assert sorted(map(repr, found)) == texts, "Spark"
            told = frame.selectExpr("count(*)", "min(nr)", "max(nr)").collect()[0]
            assert tuple(told) == bounds, "Spark, from the log"
            assert frame.count() == len(wanted), "Spark, from the log alone"

    def _turn(self, rows: int | None) -> None:
        self._land(rows or self.random.choice((1, 5, 20, 60)))
        turn = self.lake.apply()
        assert turn.hold is None, turn.hold
        assert turn.account.residual == 0, turn.account

    def _land(self, number: int) -> None:
        told = [self._change() for _ in range(number)]
        if self.random.random() < 0.01:
            self.place += 1
            self.floor = self.place
            told.append(row(Op.TRUNCATE, self.place, None))
        self.lake.land(*told)

    def _change(self) -> dict[str, Any]:
        """A change, most often newer than all before; each has a place of its own."""
        self.place += 1
        key = (self.random.choice(TEXTS), self.random.randrange(40))
        op = self.random.choices((C, U, D), (2, 5, 3))[0]
        image = dict(zip(KEY, key, strict=True))
        image |= {name: self.random.choice(values) for name, values in VALUES.items()}
        image |= {c.name: self.random.choice((None, "e")) for c in self.columns[len(COLUMNS) :]}
        if key not in self.newest or self.newest[key][0] < self.place:
            self.newest[key] = (self.place, op, dict(image))
        return change(op, self.place, image, key=KEY)

    def _model(self) -> list[dict[str, Any]]:
        alive = [i for place, op, i in self.newest.values() if op is not D and place >= self.floor]
        return [{name: _typed(name, value) for name, value in one.items()} for one in alive]

    def _lake_rows(self) -> list[dict[str, Any]]:
        return plain(self._open("SELECT * FROM t"))

    def _open(self, query: str) -> list[dict[str, Any]]:
        return read_table(self.path).select(query)

    def _kernel_rows(self) -> list[dict[str, Any]]:
        uri = f"file://{self.path}"
        engine = PythonInterface(uri)
        scan = ScanBuilder(Table(uri).snapshot(engine)).build()
        batches = list(scan.execute(engine))
        return plain(pa.Table.from_batches(batches).to_pylist() if batches else [])

    def _entries(self) -> list[str]:
        """The newest entries of the log, as they are."""
        return [path.read_text() for path in sorted(Path(self.path, "_delta_log").glob("*.json"))][
            -9:
        ]

    def _version(self) -> int:
        return DeltaTable(self.path).version()

    def _sql(self, statement: str) -> None:
        self.spark.sql(statement.format(t=f"delta.`{self.path}`"))


def _typed(name: str, sent: Any) -> Any:
    if sent is None or name not in ("dec", "at"):
        return sent
    if name == "dec":
        return Decimal(sent)
    seconds, micros = divmod(sent, 1_000_000)
    day = datetime(1970, 1, 1).toordinal() + seconds // 86_400  # noqa: DTZ001
    rest = seconds % 86_400
    hour = {"hour": rest // 3_600, "minute": rest // 60 % 60, "second": rest % 60}
    return datetime.fromordinal(day).replace(**hour, microsecond=micros)


def told(done: Counter[str]) -> str:
    return json.dumps(dict(sorted(done.items())))
