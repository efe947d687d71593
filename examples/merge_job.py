"""A PySpark job that waits at the gate and merges one complete day into a table of its own.

    spark-submit --jars ... merge_job.py --gate http://sluice:8080 --table shop.orders \
        --cut 2026-11-20 --mirror /data/lake/mirrors/shop/orders --target /data/revenue

It reads the mirror at the version that was certified: newer rows belong to the next day.  It may
run again for the same day, and changes nothing then.

The gate answers 200 when the day is complete, 404 when it is not yet or not known, 409 when waiting
does not help and a person must look, and 400 when the question is wrong.
"""

import argparse
import json
import os
import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from pyspark.sql import SparkSession

WAIT = 60  # seconds that the gate may take for one answer; it answers at once when it is ready
NOT_YET, AWAY = 404, 503
MERGE = """
MERGE INTO delta.`{target}` AS there
USING (
    SELECT day, customer, count(*) AS orders, sum(amount) AS revenue
    FROM (SELECT *, '{day}' AS day FROM delta.`{mirror}` VERSION AS OF {version})
    GROUP BY day, customer
) AS here
ON there.day = here.day AND there.customer = here.customer
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND there.day = '{day}' THEN DELETE
"""


def ask(gate: str, table: str, cut: str, wait: float) -> tuple[int, dict[str, Any]]:
    """Ask once: the status and the answer of the gate."""
    question = urlencode({"table": table, "cut": cut, "wait": wait})
    token = os.environ.get("SLUICE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = Request(f"{gate}/v1/gate?{question}", headers=headers)  # noqa: S310  - as it was configured
        with urlopen(request, timeout=wait + 30) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")
    except URLError as error:  # the service is away: as good as not yet
        return AWAY, {"error": str(error.reason)}


def certified_version(gate: str, table: str, cut: str, patience: float, wait: float = WAIT) -> int:
    """Wait until *table* is complete up to *cut*; the version of its mirror that is so.

    Raises:
        TimeoutError: it was not complete within *patience* seconds.
        RuntimeError: the gate is closed, or the question is wrong.
    """
    until = time.monotonic() + patience
    while True:
        status, answer = ask(gate, table, cut, wait)
        if answer.get("ready"):
            return int(answer["tables"][0]["version"])
        if status not in (NOT_YET, AWAY):
            raise RuntimeError(f"the gate will not open for {table}: {answer}")
        if time.monotonic() >= until:
            raise TimeoutError(f"{table} is not complete up to {cut}: {answer}")
        if status == AWAY:
            time.sleep(5)


def merge_day(spark: SparkSession, mirror: str, version: int, day: str, target: str) -> None:
    """Replace what *target* has of *day* by what the mirror had at *version*."""
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{target}`"
        " (day STRING, customer STRING, orders BIGINT, revenue DECIMAL(28, 2)) USING delta"
    )
    spark.sql(MERGE.format(target=target, mirror=mirror, version=version, day=day))


def main() -> None:
    """Wait, then merge."""
    parser = argparse.ArgumentParser()
    for name in ("--gate", "--table", "--cut", "--mirror", "--target"):
        parser.add_argument(name, required=True)
    parser.add_argument("--patience", type=float, default=6 * 3600)
    own = parser.parse_args()
    version = certified_version(own.gate, own.table, own.cut, own.patience)
    spark = SparkSession.builder.appName(f"revenue of {own.cut}").getOrCreate()
    merge_day(spark, own.mirror, version, own.cut, own.target)


if __name__ == "__main__":
    main()
