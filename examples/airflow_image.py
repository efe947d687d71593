"""An Airflow DAG whose job reads each table exactly as of the end of the day, and nothing after it.

As `airflow_gate.py`, at the stage `image`: the gate names the version of each mirror that is the
image, and the folder that it is written out to, where `publish` in sluice.yaml says `parquet`.
Tables without images are rejected (400), and the sensor fails immediately.

Written for the HTTP provider 4.10 and later; `make test-long` runs it with Airflow 2.11.  The job's
machine needs `deltalake` and `pyarrow`, and SLUICE_LAKE, the `lake` of sluice.yaml.
"""

import os
from datetime import datetime, timedelta, timezone

from airflow.decorators import dag, task
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sensors.base import PokeReturnValue

TABLES = ["shop.orders", "shop.users"]


def imaged(response, **_):
    """The gate said yes: end the wait, and hand on table -> version, and folder if there is one."""
    answer = response.json()
    if not answer["ready"]:  # a proxy's own 200 must not open the gate
        return PokeReturnValue(is_done=False)
    images = {one["table"]: [one["version"], one["path"]] for one in answer["tables"]}
    return PokeReturnValue(is_done=True, xcom_value=images)


def read(table, version, path):
    """The image's rows: those of the folder that the gate names, else of the mirror's version."""
    import pyarrow as pa  # noqa: PLC0415  - Airflow reads this file every few seconds
    import pyarrow.dataset as ds  # noqa: PLC0415
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415

    if path and path.rpartition("/")[2].startswith("dt="):
        return ds.dataset(path, format="parquet").to_table()
    mirror = f"{os.environ['SLUICE_LAKE']}/mirrors/{table.replace('.', '/', 1)}"
    found = DeltaTable(path) if path else DeltaTable(mirror, version=version)
    return pa.table(QueryBuilder().register("t", found).execute("SELECT * FROM t").read_all())


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),  # noqa: UP017  - Airflow's Python may be older
    catchup=False,
    tags=["sluice"],
)
def daily_balance():
    """Balances at midnight, which a change at 00:00:05 must not move."""
    gate = HttpSensor(
        task_id="gate",
        http_conn_id="sluice",
        endpoint="v1/gate",
        request_params={"table": TABLES, "cut": "{{ ds }}", "stage": "image"},
        response_error_codes_allowlist=["404", "503"],  # everything else ends the wait
        response_check=imaged,
        mode="reschedule",  # takes no worker's place while it waits
        poke_interval=30,
        timeout=timedelta(hours=6).total_seconds(),
        retries=0,  # a 409 is for a person; asking again would only hide it
        deferrable=False,
    )

    @task
    def balance(images: dict) -> None:
        """Read what the gate named; never the mirror as it is now."""
        for table, (version, path) in images.items():
            print(f"{table}: {len(read(table, version, path))} rows")  # noqa: T201  - your job

    balance(gate.output)


daily_balance()
