"""An Airflow DAG whose job starts when its tables are complete, and reads exactly that version.

Needs an HTTP connection named `sluice` (host and port of the service).  The gate answers

* 200, complete: the sensor succeeds and passes on the version of each mirror;
* 404, not yet or unknown: the sensor goes on waiting;
* 409, blocked or revoked: the sensor fails at once, and a person must look;
* 400, no such table, cut or path: it fails, too, so a mistyped endpoint does not wait for hours.

Each answer of the gate has a header, ``Sluice-Gate``, with the state.

Written for the HTTP provider 4.10 and later; its calls are tested against
small stand-ins for Airflow; Airflow itself runs airflow_image.py in a test.
"""

from datetime import datetime, timedelta, timezone

from airflow.decorators import dag, task
from airflow.providers.http.sensors.http import HttpSensor
from airflow.sensors.base import PokeReturnValue

TABLES = ["shop.orders", "shop.users"]


def certified(response, **_):
    """The gate said yes: end the wait, and hand on table -> version of its mirror."""
    answer = response.json()
    if not answer["ready"]:  # a proxy's own 200 must not open the gate
        return PokeReturnValue(is_done=False)
    versions = {one["table"]: one["version"] for one in answer["tables"]}
    return PokeReturnValue(is_done=True, xcom_value=versions)


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),  # noqa: UP017  - Airflow's Python may be older
    catchup=False,
    tags=["sluice"],
)
def daily_revenue():
    """Revenue of one day, once that day is complete in every table that is read."""
    gate = HttpSensor(
        task_id="gate",
        http_conn_id="sluice",
        endpoint="v1/gate",
        request_params={
            "table": TABLES,
            "cut": "{{ ds }}",  # the end of that business day, in the zone of sluice.yaml
            "stage": "mirror",
        },
        response_error_codes_allowlist=["404", "503"],  # everything else ends the wait
        response_check=certified,
        mode="reschedule",  # takes no worker's place while it waits
        poke_interval=30,
        timeout=timedelta(hours=6).total_seconds(),
        retries=0,  # a 409 is for a person; asking again would only hide it
        deferrable=False,
    )

    @task
    def revenue(versions: dict) -> None:
        """Read each mirror at the version that was certified; newer rows belong to tomorrow."""
        for table, version in versions.items():
            print(f"read {table} as of version {version}")  # noqa: T201  - your job stands here

    revenue(gate.output)


daily_revenue()
