"""How does a file get its batch that was written before there was a number for it?

Its rows bear two blanks instead of the batch and its instant: numbers drawn by lot that stand
nowhere else.  All values of a column are one then, which the file tells as it is (a dictionary of
one value, not compressed, and bounds), so its bytes are put in place of the blank's.  What came of
it is read back before anybody names the file: where it is not what it should be, rows are written
anew.
"""

import json
import secrets
import uuid
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.changelog.sorted_file import PARTITION, WrittenFile
from pipeline.changelog.table import CHANGES, Stamp
from pipeline.lake.store import Store

LOWEST = 2**62  # no batch, and no instant, comes to this
FILLED = ("batch", "received")
_RECEIVED = CHANGES.field("received").type


@dataclass(frozen=True, slots=True)
class Blank:
    """The blank of one file; that of its instant is the number after it."""

    number: int

    @classmethod
    def drawn(cls) -> "Blank":
        """One that was never drawn before."""
        return cls(LOWEST + secrets.randbits(61))

    def columns(self, rows: int) -> dict[str, pa.Array]:
        """``batch`` and ``received`` of so many rows."""
        instant = pa.scalar(self.number + 1, pa.int64()).cast(_RECEIVED)
        batch = pa.scalar(self.number, pa.int64())
        return {"batch": pa.repeat(batch, rows), "received": pa.repeat(instant, rows)}


def filled(store: Store, file: WrittenFile, stamp: Stamp) -> WrittenFile | None:
    """A copy of *file* in the batch of *stamp*; None if only writing its rows anew leads there."""
    stats = json.loads(file.stats)
    number = stats["minValues"].get("batch", 0)
    if number < LOWEST or file.partition[PARTITION] != stamp.received.date().isoformat():
        return None
    made = store.read(file.path)
    for blank, value in ((number, stamp.batch), (number + 1, _micros(stamp.received))):
        made = made.replace(_bytes(blank), _bytes(value))
    if not _is_proven(made, stamp):
        return None
    path = f"{PARTITION}={file.partition[PARTITION]}/part-{uuid.uuid4()}.parquet"
    store.put(path, made)
    for bound in ("minValues", "maxValues"):
        stats[bound]["batch"] = stamp.batch
    return replace(file, path=path, modified=stamp.received, stats=json.dumps(stats))


def _bytes(number: int) -> bytes:
    """As Parquet stores 64 bits."""
    return number.to_bytes(8, "little")


def _micros(at: datetime) -> int:
    told: int = pa.scalar(at, _RECEIVED).value
    return told


def _is_proven(made: bytes, stamp: Stamp) -> bool:
    """Whether the file tells of *stamp*, in each of its rows and in the bounds of row groups."""
    with pq.ParquetFile(pa.BufferReader(made)) as file:
        groups = range(file.metadata.num_row_groups)
        at = next(i for i, one in enumerate(file.schema) if one.path == "batch")
        bounds = [file.metadata.row_group(group).column(at).statistics for group in groups]
        rows = file.read(columns=list(FILLED))
    told = {(one.min, one.max) for one in bounds if one is not None}
    wanted = {"batch": stamp.batch, "received": stamp.received}
    same = (
        pc.all(pc.equal(rows[name].cast(CHANGES.field(name).type), wanted[name])) for name in wanted
    )
    return told == {(stamp.batch, stamp.batch)} and all(one.as_py() for one in same)
