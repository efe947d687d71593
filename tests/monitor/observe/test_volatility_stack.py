"""Volatility rules on changes of a real MySQL, after eight simulated weeks of the same table.

The clock of the service is simulated, so an hour takes a second: heartbeats are written with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from pyspark.sql import SparkSession

from checks.baseline import CountedInterval
from checks.model import Outcome, Verdict
from checks.probes.volatility import NAME, Volatility, dump_memory
from checks.run import Check, run_probe
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.apply.merge_run import MergeRequest
from tests.monitor.observe.probed import Probed, probing
from tests.pipeline.live import PATIENCE, Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
BERLIN, HOUR, WEEKS = ZoneInfo("Europe/Berlin"), timedelta(hours=1), 8
ROWS = 600


def usual_changes(start: datetime) -> float:
    """Changes an hour by local clocks: days and nights, and weekends."""
    usual = 200.0 if 8 <= start.hour < 22 else 20.0
    return usual * (0.4 if start.weekday() > 4 else 1.0)


def history_before(start: datetime) -> Iterator[CountedInterval]:
    """Eight weeks of hours, scattered by chance; the clocks skip one on 30 March 2025."""
    rng = np.random.default_rng(1)
    for hours in range(WEEKS * 7 * 24, 0, -1):
        at = (start.astimezone(UTC) - hours * HOUR).astimezone(BERLIN)
        yield CountedInterval(at, float(rng.poisson(usual_changes(at))))


@dataclass
class SimulatedHours:
    """Hours of table ``t``: what is planted changes on the server, and the probe rules on it."""

    probed: Probed
    probe: Volatility

    def rule(self, start: datetime, factor: float) -> Verdict:
        """The verdict on the hour from *start* with *factor* times as many changes as usual."""
        pipe, table = self.probed.pipe, self.probed.table
        end = (start.astimezone(UTC) + HOUR).astimezone(BERLIN)
        before = replace(self.probed.world(), now=start, clock_now=lambda: start, zone=BERLIN)
        known = dump_memory(start, pipe.lane.checkpoint.batch, [*history_before(start)])
        before.remember(table, NAME, known)
        if changes := round(usual_changes(start) * factor):
            pipe.sql(f"UPDATE DB.t SET n = n + 1 WHERE id <= {changes}")
        fence = pipe.heart.write_heartbeat(lambda: end)
        assert fence.at == end.astimezone(UTC)
        self.probed.memory.fences.append(fence)

        def landed() -> bool:
            pipe.landed.append(pipe.lane.land(frozenset()))
            pipe.applied.extend(pipe.lane.apply(MergeRequest()))
            return pipe.lane.checkpoint.covers(fence) and not pipe.behind()

        wait_until(landed, PATIENCE, f"the hour from {start} landed")
        world = replace(self.probed.world(), now=end, clock_now=lambda: end, zone=BERLIN)
        answer = run_probe(Check(NAME, self.probe, table), world)
        assert isinstance(answer, Verdict), answer
        return answer


def test_planted_hours_fail_and_ordinary_ones_pass_on_a_real_server(
    servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    del spark  # lanes take up the session that is there
    pipe = Pipe(servers, tmp_path / NAME, NAME)
    pipe.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, n INT)",
        "INSERT INTO DB.t WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n"
        f" WHERE id < {ROWS}) SELECT id, 0 FROM n",
    )
    pipe.start()
    pipe.catch_up()
    probe = Volatility()
    cases: Mapping[str, tuple[datetime, float]] = {
        "a busy hour": (datetime(2025, 3, 28, 10, tzinfo=BERLIN), 1.0),
        "a quieter weekend": (datetime(2025, 3, 29, 10, tzinfo=BERLIN), 1.0),
        "after the clocks changed": (datetime(2025, 3, 30, 3, tzinfo=BERLIN), 1.0),
        "doubled": (datetime(2025, 3, 31, 10, tzinfo=BERLIN), 2.0),
        "a holiday": (datetime(2025, 3, 31, 11, tzinfo=BERLIN), 0.4),
        "missing": (datetime(2025, 3, 31, 12, tzinfo=BERLIN), 0.0),
    }
    with probing(pipe, {NAME: probe}) as probed:
        hours = SimulatedHours(probed, probe)
        found = {name: hours.rule(*case).ruling for name, case in cases.items()}
    pipe.end()

    assert {name: (one.outcome, one.code) for name, one in found.items()} == {
        "a busy hour": (Outcome.PASS, ""),
        "a quieter weekend": (Outcome.PASS, ""),
        "after the clocks changed": (Outcome.PASS, ""),
        "doubled": (Outcome.FAIL, "too_many"),
        "a holiday": (Outcome.FAIL, "too_few"),  # it knows none
        "missing": (Outcome.FAIL, "stopped"),
    }
    assert found["doubled"].reason.startswith("400 changes")
