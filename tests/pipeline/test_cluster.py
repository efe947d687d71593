"""A machine that dies under Spark costs time only: in landing, in a pass, in Spark's own MERGE.

Covers demo/spark_cluster.py.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from demo.servers import Servers

pytestmark = [pytest.mark.stack, pytest.mark.long]


def test_a_worker_killed_in_each_kind_of_job_costs_time_only(
    servers: Servers, tmp_path: Path
) -> None:
    servers.record()
    command = [sys.executable, "-m", "tests.pipeline.on_cluster", str(servers.home), str(tmp_path)]

    played = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)

    assert played.returncode == 0, played.stderr[-3_000:]
    told = json.loads(played.stdout.splitlines()[-1])
    assert set(told["killed"]) == {"land batch", "turns of", "merge"}
    assert min(told["killed"].values()) > 0
    assert told["wrong"] == {}
    assert told["holds"] == []
