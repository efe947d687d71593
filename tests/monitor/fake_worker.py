"""A Spark process without Spark: the real protocol, with a lane that does what batches say.

Its lake is a file that counts landed batches, so that a new life goes on where the last one died.
The ids of ``waived`` are orders to misbehave.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from monitor.spark.worker import OpenLane, serve
from pipeline.apply.image_export import Manifest
from pipeline.apply.merge_run import MergeRequest
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.errors import ConfigError, HeldError
from pipeline.finding import Finding
from pipeline.model import Account
from pipeline.reports import Hold, LandingReport, MergeReport, SparkWork
from pipeline.settings import PipelineSettings

START = datetime(2026, 3, 29, 1, 2, 3, 456789, tzinfo=UTC)


class FakeLane:
    """Counts batches in a file; ``sleep``, ``die``, ``fail``, ``hold`` and ``wait`` misbehave."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.hazards: Mapping[str, tuple[Finding, ...]] = {}
        if (lake / "hang").exists():
            (lake / "hang").unlink()  # the next life opens
            time.sleep(600)
        self.jvm = subprocess.Popen(["/bin/sleep", "600"])
        (lake / "jvm").write_text(str(self.jvm.pid), encoding="utf-8")

    def land(self, waived: frozenset[str], resubmissions: object = ()) -> LandingReport:
        """Commit one batch, unless *waived* says otherwise."""
        print("a library prints to stdout")  # noqa: T201  - must not reach the replies
        self._obey("land", waived)
        batch = len(list(self.lake.glob("batch-*")))
        (self.lake / f"batch-{batch}").touch()
        return LandingReport(
            "main", batch, 3, START, timedelta(milliseconds=1500), tables=(("t", 3),)
        )

    def apply(self, request: MergeRequest, *, urgent: bool = False) -> tuple[MergeReport, ...]:
        """One table that went on and one that is held."""
        if urgent:
            return ()
        self._obey("apply", request.waived)
        hold = Hold("h1", "shop.b", "foreign_write", "restore it")
        took = timedelta(seconds=1)
        return (
            MergeReport("shop.a", 4, 5, Account(3, 2, 1, ignored={"purge": 0}), START, took),
            MergeReport("shop.b", 3, 4, Account(), START, took, hold),
        )

    def unsaid_hazards(self) -> Mapping[str, tuple[Finding, ...]]:
        """What the life before had seen."""
        return self.hazards

    def remind(
        self, hazards: Mapping[str, tuple[Finding, ...]], held: frozenset[str] = frozenset()
    ) -> None:
        self.hazards = hazards
        (self.lake / "held").write_text(repr(sorted(held)), encoding="utf-8")

    def spark_work(self) -> Mapping[str, SparkWork]:
        return {}

    def publish(self) -> tuple[Manifest, ...]:
        return ()

    def maintain(self, readers: Mapping[str, int], paused: object = ()) -> None:
        (self.lake / "readers").write_text(repr(dict(readers)), encoding="utf-8")

    def run_backfills(self, wishes: tuple[BackfillRequest, ...]) -> tuple[BackfillState, ...]:
        """Each has its rows, and those that are named so are done."""
        return tuple(
            BackfillState(one.id, one.table, f"s/{one.table}", 3, 7 if "done" in one.id else None)
            for one in wishes
        )

    def close(self) -> None:
        """Leave word that the end was orderly."""
        (self.lake / "closed").touch()

    def _obey(self, verb: str, waived: frozenset[str]) -> None:
        (self.lake / f"{verb}-begun").touch()
        if "sleep" in waived:
            time.sleep(600)
        if "die" in waived:
            os.kill(os.getpid(), signal.SIGKILL)
        if "fail" in waived:
            msg = "java gateway is gone"
            raise RuntimeError(msg)
        if "hold" in waived:
            raise HeldError("foreign_write", "shop.users: somebody else wrote version 7")
        while "wait" in waived and not (self.lake / "go").exists():
            time.sleep(0.01)


def open_lane(settings: PipelineSettings, progress: Callable[[str], object]) -> FakeLane:
    """Open the folder; a lake without a mark refuses to start, as the real one does."""
    lake = Path(settings.lake)
    if (lake / "lost-mark").exists():
        msg = f"{lake}/changes has commits of this lane and no checkpoint; restore it"
        raise ConfigError(msg)
    return FakeLane(lake)


if __name__ == "__main__":
    sys.exit(serve(cast("OpenLane", open_lane), int(sys.argv[1])))
