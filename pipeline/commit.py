"""One Delta commit of several writes: files first, then a look at them, then all or nothing.

PySpark's writer commits as it writes.  Landing must see what it wrote before it commits (its
marker row says what the other rows hold), so this file drives Delta's own transaction, the
``OptimisticTransaction`` of delta-spark, through py4j.  Nothing else touches Spark's JVM objects.
Files of a transaction that is never committed are not part of the table; VACUUM takes them.
"""

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import HeldError

_DELTA = "org.apache.spark.sql.delta"


class Transaction:
    """Stage files, look at them, commit them as one version with one transaction id.

    Args:
        session: the Spark session the files are written with.
        path: address of an existing Delta table.
        app: transaction id; *number* must be the one after the number it holds.
        number: the batch this commit is.
        previous: the number that the table must hold now; by default the one before *number*.

    Raises:
        HeldError: the table holds another number: another writer is at work.
    """

    def __init__(
        self,
        session: SparkSession,
        path: str,
        app: str,
        number: int,
        *,
        previous: int | None = None,
    ) -> None:
        self._session, self._path, self._app, self._number = session, path, app, number
        self._txn = _log(session, path).startTransaction()
        last = int(self._txn.txnVersion(app))
        wanted = number - 1 if previous is None else previous
        if last != wanted:
            raise HeldError("lane_taken", f"{app} stands at {last}, not {wanted}, in {path}")
        self._actions: list[Any] = []

    def stage(self, rows: DataFrame) -> tuple[str, ...]:
        """Write *rows* as files that no reader sees yet; returns the files' addresses."""
        files = self._txn.writeFiles(rows._jdf)
        staged = [files.apply(i) for i in range(files.size())]
        self._actions.extend(staged)
        return tuple(f"{self._path}/{file.path()}" for file in staged)

    def commit(self, note: str) -> int:
        """Make all staged files one version, with *note* as user metadata; returns the version.

        Raises:
            HeldError: another writer committed the same batch first.
        """
        jvm: Any = self._session._jvm
        stamp = jvm.scala.Option.apply(jvm.java.lang.System.currentTimeMillis())
        number = jvm.org.apache.spark.sql.delta.actions.SetTransaction(
            self._app, self._number, stamp
        )
        actions = jvm.java.util.ArrayList()
        for action in (*self._actions, number):
            actions.add(action)
        sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        try:
            return int(self._txn.commit(sequence, _write_operation(self._session, note)))
        except Py4JJavaError as error:
            detail = f"{self._app} {self._number} in {self._path}: {error.java_exception}"
            raise HeldError("lane_taken", detail) from error


def _log(session: SparkSession, path: str) -> Any:
    jvm: Any = session._jvm
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)


def _write_operation(session: SparkSession, note: str) -> Any:
    """``DeltaOperations.Write`` in append mode; a nested Scala class, so by reflection."""
    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass(f"{_DELTA}.DeltaOperations$Write").getConstructors()[0]
    count = len(constructor.getParameterTypes())
    arguments = session.sparkContext._gateway.new_array(jvm.java.lang.Object, count)  # type: ignore[union-attr]
    for index in range(count):
        arguments[index] = jvm.scala.Option.empty()
    arguments[0] = jvm.org.apache.spark.sql.SaveMode.Append
    arguments[3] = jvm.scala.Option.apply(note)
    return constructor.newInstance(arguments)
