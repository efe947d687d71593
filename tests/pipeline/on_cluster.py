"""A pipe whose Spark is a standalone cluster, in a process of its own: one has one Spark.

    python -m tests.pipeline.on_cluster SERVERS HOME NAME JOB...

A worker is killed, like a machine, while each kind of job runs: ``land batch``, ``merge slice`` (a
pass), ``read`` (a bootstrap) or ``MERGE`` (Spark's own).  Prints what was killed when, and
what the mirrors are short of or have too much of.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from demo.beside import beside
from demo.processes import wait_until
from demo.servers import Servers
from demo.spark_cluster import DRIVER, SparkCluster
from pipeline.apply import merge_job
from pipeline.backfill.task import ReadLimits
from pipeline.backfill_state import BackfillRequest
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.pipeline.backfill.live_backfills import finished, wish
from tests.pipeline.live import Pipe

TABLES = ("t0", "t1")
ROWS = {"MERGE": 1 << 9}  # of each table when it begins; each job doubles them
MANY = 1 << 14
LIMITS = ReadLimits(rows=4_000, select=1_000)  # so that a round has work for every worker
PATIENCE = timedelta(minutes=6)
MADE = "CREATE TABLE DB.{0} (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(80))"


@dataclass(eq=False)
class Rehearsal:
    """Tables that grow, and a cluster that loses a worker again and again."""

    pipe: Pipe
    cluster: SparkCluster
    killed: dict[str, int] = field(default_factory=dict)

    def grow(self) -> None:
        """Twice as many rows in each table, and a change of all there were."""
        for table in TABLES:
            self.pipe.sql(
                f"UPDATE DB.{table} SET name = CONCAT(name, '+')",
                f"INSERT INTO DB.{table} (name) SELECT name FROM DB.{table}",
            )

    def killing(self, what: str) -> AbstractContextManager[None]:
        """While a job that is called so runs, the first worker dies; then it comes back."""
        return beside(partial(self._watch, what))

    def wrong(self) -> dict[str, str]:
        """What differs between a table and its mirror, by table."""
        told = {}
        for table in TABLES:
            source = Counter(self.pipe.sql(f"SELECT id, name FROM DB.{table}"))
            path = self.pipe.lane.runner.settings.mirror(self.pipe.named(table))
            found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id, name FROM t")
            rows = pa.table(found.read_all()).to_pylist()
            mirror = Counter((row["id"], row["name"]) for row in rows)
            if source != mirror:
                told[table] = f"{len(source - mirror)} lost, {len(mirror - source)} too many"
        return told

    def _watch(self, what: str, over: threading.Event) -> None:
        while not over.is_set():
            if running := _tasks(self.pipe.session, what):
                self.cluster.workers[0].kill()
                self.killed[what] = running
                self.cluster.start_worker(0)
                return
            over.wait(0.02)


def _tasks(session: SparkSession, what: str) -> int:
    """How many tasks run now in jobs whose description begins so."""
    context = session.sparkContext
    status, count = context._jsc.sc().statusStore(), 0
    for number in context.statusTracker().getActiveJobsIds():
        job = status.job(number)
        told = job.description()
        if told.isDefined() and str(told.get()).startswith(what):
            count += job.numActiveTasks()
    return count


def main(servers: Path, home: Path, name: str, jobs: Sequence[str]) -> None:
    """Play it, and print what came of it."""
    merge_job.HERE = -1  # a pass is a job, however small
    cluster = SparkCluster(home / "spark")
    cluster.start()
    tuning = {"master": cluster.url, "small_batch_rows": 0, "merge_workers": 2, "spark": DRIVER}
    pipe = Pipe(Servers.load(servers), home / "lake", name, tuning=tuning)
    pipe.sql(*(MADE.format(table) for table in TABLES))
    pipe.sql(*(f"INSERT INTO DB.{table} (name) VALUES ('a')" for table in TABLES))
    played = Rehearsal(pipe, cluster)
    rows = min(ROWS.get(what, MANY) for what in jobs)
    while pipe.sql("SELECT COUNT(*) FROM DB.t0")[0][0] < rows:
        played.grow()
    try:
        pipe.start()
        pipe.catch_up(within=PATIENCE)
        for what in jobs:
            if what == "MERGE":
                _leave_to_spark(pipe)
            with played.killing(what):
                played.grow()
                if what == "read":
                    _read_again(pipe)
                pipe.catch_up(within=PATIENCE)
        told = {"killed": played.killed, "wrong": played.wrong(), "holds": _holds(pipe)}
        sys.stdout.write(json.dumps(told) + "\n")
    finally:
        sys.stderr.write(f"{played.killed} {_holds(pipe)}\n")
        pipe.end()
        cluster.stop()


def _read_again(pipe: Pipe) -> None:
    """A new base of each table, one after the other."""
    pipe.lane.backfill_runner.limits = LIMITS
    for table in TABLES:
        wanted = wish(pipe, table)

        def is_done(wanted: BackfillRequest = wanted) -> bool:
            pipe.round()
            return finished(pipe, wanted)

        wait_until(is_done, PATIENCE, f"a new base of {table}")


def _leave_to_spark(pipe: Pipe) -> None:
    mirrors = pipe.lane.runner.table_format
    assert isinstance(mirrors, DeltaMirrors)
    mirrors.why = lambda _: "it is Spark's here"


def _holds(pipe: Pipe) -> list[str]:
    held = {str(turn.hold) for turn in pipe.applied if turn.hold is not None}
    return sorted(held | {str(hold) for one in pipe.landed for hold in one.holds})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
