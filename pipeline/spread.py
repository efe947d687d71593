"""How does independent work run side by side?  One Spark task for each piece, in its workers.

A worker tells an error of ours as a value: the job does not fail, nothing is tried twice, and the
caller sees the error that was raised, not Spark's text of it.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.errors import SluiceError, UnreachableError

_LOST = re.compile(r"most recent failure: .*?\(TID \d+\) \((\S+)[^)]*\): (.*)")
_NO_PYTHON = re.compile(r"Error from python worker:\n(?:.*\n)*?\s*(\S.*)\nPYTHONPATH was")
T = TypeVar("T")
R = TypeVar("R")


def spread(session: SparkSession, work: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
    """What *work*, a function of a module, returns for each of *pieces*, in their order.

    Pieces and results can be pickled; all results together are held here.

    Raises:
        SluiceError: the first piece's that failed, as it raised it.
        UnreachableError: a worker died, or Spark did not run the job to its end.
    """
    if not pieces:
        return []
    sent = tuple(pickle.dumps((work, piece)) for piece in pieces)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch["id"].to_pylist():
                told = [outcome(sent[index])]
                yield pa.RecordBatch.from_pydict({"id": [index], "told": told})

    numbers = session.range(0, len(pieces), 1, len(pieces))
    try:
        rows = numbers.mapInArrow(run, "id bigint, told binary").toArrow().to_pylist()
    except (PySparkException, Py4JError) as error:
        raise UnreachableError(f"a Spark job failed: {why(str(error))}") from error
    found = {row["id"]: row["told"] for row in rows}
    return [result(found[index]) for index in range(len(pieces))]


def why(text: str) -> str:
    """The line of Spark's long *text* that says what happened, and on which machine."""
    lost, python = _LOST.search(text), _NO_PYTHON.search(text)
    if lost is None:
        return text.strip().partition("\n")[0]
    said = python[1] if python else lost[2].removeprefix("java.io.IOException: ")
    return f"at {lost[1]}: {said}"


def outcome(sent: bytes) -> bytes:
    """Do one pickled piece of work; its pickled result, or an error of ours."""
    work, piece = pickle.loads(sent)  # noqa: S301  - our driver's
    try:
        return pickle.dumps(work(piece))
    except SluiceError as error:
        return pickle.dumps(error)


def result(told: bytes) -> Any:
    """Read what `outcome` returned.

    Raises:
        SluiceError: the one it holds.
    """
    found = pickle.loads(told)  # noqa: S301  - our workers'
    if isinstance(found, SluiceError):
        raise found
    return found
