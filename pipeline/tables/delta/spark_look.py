"""Where do keys stand in a mirror that only Spark reads, and what does Spark refuse?"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.apply.adoption import RANK, SHARD, SOURCE, Adoption
from pipeline.apply.decide import Found
from pipeline.apply.floors import Floors
from pipeline.apply.provenance import Owned, same
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.lake.log import Snapshot
from pipeline.tables.delta.layout import Path
from pipeline.tables.delta.match import wanted
from pipeline.tables.delta.spark_sql import below, owner, path_of, quoted

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)[.\]]")
_NO_FILES = re.compile(r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.|No FileSystem for")
_RACES = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_TELLING = ("FEATURE", "PROTOCOL", "COLUMN_MAPPING")  # errors whose texts name no value of a row


@dataclass(frozen=True, slots=True, eq=False)
class KeyLookup:
    """Looks into a mirror as of the version that a turn is made from."""

    session: SparkSession
    snapshot: Snapshot
    adoption: Adoption

    def find(self, keys: pa.Table, owners: Owned | None) -> Found:
        """As ``find`` in :mod:`pipeline.tables.delta.find`; of files only 0 for "there" is told.

        Collects as many rows as there are keys, times the table's shards at most.
        """
        sought: dict[Path, pa.Array] = {
            (name,): keys[name].combine_chunks() for name in keys.column_names
        }
        if owners is not None:
            sought |= {SOURCE: owners.source, SHARD: owners.shard}
        if len(keys):
            wanted(sought, last=(SOURCE, SHARD))  # refuses what is not matched exactly
        numbered = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
        numbered = numbered.append_column("n", pa.array(range(len(keys)), pa.int64()))
        on = " AND ".join(f"t.{quoted(name)} = s.k{i}" for i, name in enumerate(keys.column_names))
        told = ", ".join(
            f"t.{path_of(path)} AS m{i}" for i, path in enumerate((SOURCE, SHARD, *RANK))
        )
        with translated(self.snapshot.uri):
            self._view()
            view(self.session, numbered, "sought")
            query = f"SELECT s.n, {told} FROM mirror t JOIN sought s ON {on}"  # noqa: S608
            hits = self.session.sql(query).toArrow()
        return self._found(hits, keys, owners)

    def below(self, floors: Floors) -> int:
        """How many rows of the mirror stand below *floors*.

        Raises:
            HeldError: ``no_shard``: of a row without ``_sluice`` nobody knows which is its own.
        """
        if not floors:
            return 0
        with translated(self.snapshot.uri):
            self._view()
            query = f"""SELECT count_if({below(floors, self.adoption)}) AS gone,
                count_if({owner(self.adoption)[1]} IS NULL) AS nobodys FROM mirror t"""  # noqa: S608
            found = self.session.sql(query).collect()[0]
        if found["nobodys"]:
            raise _no_shard(self.snapshot.uri)
        return int(found["gone"])

    def _view(self) -> None:
        reader = self.session.read.format("delta").option("versionAsOf", self.snapshot.version)
        reader.load(self.snapshot.uri).createOrReplaceTempView("mirror")

    def _found(self, hits: pa.Table, keys: pa.Table, owners: Owned | None) -> Found:
        source, shard, *rank = (hits[f"m{i}"].combine_chunks() for i in range(len(RANK) + 2))
        at = hits["n"].to_numpy().astype(np.int64)
        theirs = self.adoption.owned(source, shard, rank, None)
        if owners is not None:
            if theirs.shard.null_count:
                raise _no_shard(self.snapshot.uri)
            ours = owners.take(at)
            own = np.flatnonzero(same(theirs.source, ours.source) & same(theirs.shard, ours.shard))
            at, theirs = at[own], theirs.take(own)
        if len(twice := np.flatnonzero(np.bincount(at, minlength=len(keys)) > 1)):
            told = keys.slice(int(twice[0]), 1).to_pylist()[0]
            detail = f"the mirror has more than one row with the key {told}; rebuild it"
            raise HeldError("duplicate_key", detail)
        place = np.full(len(keys), -1, np.int64)
        place[at] = np.arange(len(at))
        there = place >= 0
        none = pa.array(place, mask=~there)
        rank_ = np.zeros((len(RANK), len(keys)), np.int64)
        rank_[:, there] = theirs.rank[:, place[there]]
        adopted = np.zeros(len(keys), np.bool_)
        adopted[there] = theirs.adopted[place[there]]
        parts = theirs.source.take(none), theirs.shard.take(none)
        owned = Owned(*parts, rank_, adopted, np.zeros(len(keys), np.bool_))
        return Found(np.where(there, 0, -1).astype(np.int32), place, owned)


def view(session: SparkSession, rows: pa.Table, name: str) -> None:
    """Let *rows* be a view; PySpark makes none of an Arrow table without rows."""
    none = [pa.nulls(1, field.type) for field in rows.schema]
    frame = session.createDataFrame(
        rows if len(rows) else pa.Table.from_arrays(none, rows.column_names)
    )
    (frame if len(rows) else frame.where("false")).createOrReplaceTempView(name)


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Say as one of our errors what Spark refuses, without a value of a row."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = _CONDITION.search(text)
        condition = found[1] if found else type(error).__name__
        if condition.startswith(_RACES):
            raise LostRaceError(f"{uri}: another commit came between ({condition})") from error
        if _NO_FILES.search(text):
            raise _no_files(uri) from error
        if found is None:
            raise UnreachableError(f"{uri}: Spark did not answer ({condition})") from error
        telling = any(word in condition for word in _TELLING)
        why = text[found.start() :].partition("\n")[0] if telling else condition
        reason = "protocol" if telling else "refused"
        raise HeldError(reason, f"{uri}: Spark does not take this table or row: {why}") from error


def _no_files(uri: str) -> HeldError:
    return HeldError(
        "protocol",
        f"{uri}: this mirror is Spark's to merge, and Spark has no classes to read that address; "
        "rebuild the mirror, which Sluice then writes itself, or give Spark hadoop-aws "
        "(docs/guides/object-storage-s3.md)",
    )


def _no_shard(uri: str) -> HeldError:
    detail = f"{uri}: a row does not tell of which shard it is"
    return HeldError("no_shard", f"{detail}; rebuild the mirror, or give it one shard")
