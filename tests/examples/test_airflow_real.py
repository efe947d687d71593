"""Airflow itself runs the example DAG: it waits at the gate for the image, and reads it.

Airflow comes into an environment of its own: its requirements are not ours.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from demo.processes import wait_until
from tests.monitor.rig import ORDERS, USERS, Rig
from tests.monitor.serving import serving
from tests.monitor.test_gate_images import add_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "airflow_image.py"
AIRFLOW = ("apache-airflow==2.11.2", "apache-airflow-providers-http", "deltalake", "pyarrow")
DAY = "2026-03-28"
SOON = timedelta(minutes=5)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A service that works, of whose two tables images are made."""
    made_rig = Rig(tmp_path / "rig")
    made_rig.round()
    made_rig.round()
    made_rig.gate.published = lambda _: True
    made_rig.second(2)
    made_rig.write_heartbeat()
    yield made_rig
    made_rig.close()


@pytest.fixture
def gate(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address


@pytest.fixture
def airflow(tmp_path: Path, gate: str) -> tuple[str, Mapping[str, str]]:
    """The program, and the environment that it runs in."""
    home, uv = tmp_path / "airflow", Path(sys.executable).with_name("uv")
    (home / "dags").mkdir(parents=True)
    shutil.copy(EXAMPLE, home / "dags")
    python = str(home / "venv" / "bin" / "python")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, home / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *AIRFLOW], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SLUICE": gate,
        "SLUICE_LAKE": str(tmp_path / "lake"),
    }
    program = str(home / "venv" / "bin" / "airflow")
    subprocess.run([program, "db", "migrate"], env=environment, check=True, capture_output=True)
    return program, environment


def set_image(rig: Rig, table: str, version: int, path: str) -> None:
    told = replace(add_image(rig, DAY), version=version, path=path)
    if table != USERS:
        rig.lake.mirrors[USERS] = replace(rig.lake.mirrors[USERS], images=())
    rig.lake.mirrors[table] = replace(rig.lake.mirrors[table], images=(told,))


def write_lake(folder: Path) -> str:
    """A mirror of two versions, and a day of Parquet; the address of that."""
    mirror, day = folder / "mirrors" / "shop" / "orders", folder / "images" / f"dt={DAY}"
    write_deltalake(mirror, pa.table({"id": [1, 2, 3]}))
    write_deltalake(mirror, pa.table({"id": [4]}), mode="append")
    day.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2, 3, 4, 5]}), day / "part-00000.parquet")
    return str(day)


@pytest.mark.long
def test_airflow_waits_for_the_image_and_reads_it(
    tmp_path: Path, rig: Rig, airflow: tuple[str, Mapping[str, str]]
) -> None:
    program, environment = airflow
    day, log = write_lake(tmp_path / "lake"), tmp_path / "run.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [program, "dags", "test", "daily_balance", DAY],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as run,
    ):
        try:
            wait_until(lambda: "up_for_reschedule" in log.read_text(), SOON, "the first answer")
            set_image(rig, ORDERS, 0, "")
            set_image(rig, USERS, 7, day)
            rig.second(2)  # the next look is a new one
            rig.write_heartbeat()
            run.wait(SOON.total_seconds())
        finally:
            run.kill()

    told = log.read_text()
    assert run.returncode == 0, told[-3000:]
    assert told.index("up_for_reschedule") < told.index(f"{ORDERS}: 3 rows") < len(told)
    assert f"{USERS}: 5 rows" in told
