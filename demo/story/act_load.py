"""Measures lag under load: every table is sampled for some time while writers write."""

import time

from demo.shop import visits
from demo.story.progress import Progress
from demo.story.stage import Stage, UnseenError

TITLE = "measure lag while writers write"


def play(stage: Stage) -> str:
    """Measure, then stop the writers.

    Raises:
        UnseenError: a writer failed, or there was nothing to measure.
    """
    until = time.monotonic() + stage.plot.measure.total_seconds()
    changed = stage.visits.change()
    stage.screen.say(f"  one bulk update: {changed} rows of {visits.NAME}")
    before, began = stage.workload.tally["changes"], time.monotonic()

    def enough(progress: Progress) -> bool:
        for table in progress:
            if table.known is not None:
                stage.lags.note(table.name, table.known)
        if not stage.workload.running:
            stage.workload.stop()  # raises the error with which a writer failed
        return time.monotonic() >= until

    stage.wait(enough, "end of the measurement", within=3 * stage.plot.measure)
    rate = (stage.workload.tally["changes"] - before) / (time.monotonic() - began)
    stage.workload.stop()
    stage.ask_gate_for(visits.NAME)
    stage.show_jobs()
    stage.summary.changes = stage.workload.tally["changes"]
    stage.summary.lag = stage.lags.summary()
    if stage.summary.lag is None:
        msg = "no table's lag was ever known"
        raise UnseenError(msg)
    return f"{stage.summary.lag}; {rate:.0f} changes a second"
