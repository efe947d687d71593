"""A machine that dies under Spark costs only time: landing, a large pass, a bootstrap, a MERGE."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from demo.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        pytest.param("spread_ours", ("land batch", "merge slice"), id="landing and a pass"),
        pytest.param("spread_read", ("read",), id="a bootstrap"),
        pytest.param("spread_sparks", ("MERGE",), id="Spark's MERGE"),
    ],
)
def test_a_worker_killed_in_each_kind_of_job_costs_time_only(
    servers: Servers, tmp_path: Path, name: str, jobs: tuple[str, ...]
) -> None:
    servers.record()
    program = (sys.executable, "-m", "tests.pipeline.on_cluster")
    command = (*program, str(servers.home), str(tmp_path), name, *jobs)

    played = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False)

    assert played.returncode == 0, played.stderr[-3_000:]
    told = json.loads(played.stdout.splitlines()[-1])
    assert set(told["killed"]) == set(jobs)
    assert min(told["killed"].values()) > 0
    assert told["wrong"] == {}
    assert told["holds"] == []
