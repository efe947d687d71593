"""A PySpark job that waits at the gate and merges one complete day into a table of its own.

    spark-submit --jars ... merge_job.py --gate http://sluice:8080 --table shop.orders \
        --cut 2026-11-20 --mirror /data/lake/mirrors/shop/orders --target /data/revenue

It reads the mirror at the version that was certified: newer rows belong to the next day.  It may
run again for the same day, and changes nothing then.

The gate answers 200 when the day is complete, 404 when it is not yet or not known, 409 when waiting
does not help and a person must look, and 400 when the question is wrong.  Its header
``Sluice-Gate`` marks its answers, which another server does not send.
"""

import argparse
import json
import os
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

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


class _NoRedirects(HTTPRedirectHandler):
    """Another server would get the token, and might say yes."""

    def redirect_request(self, *_: object) -> None:
        """Leave the redirect as the answer."""


_DIRECT = build_opener(ProxyHandler({}), _NoRedirects)


def ask(gate: str, table: str, cut: str, wait: float) -> tuple[int, str, Any]:
    """Ask once: the status, the state in the header of the gate, and the answer."""
    question = urlencode({"table": table, "cut": cut, "wait": wait})
    token = os.environ.get("SLUICE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = Request(f"{gate}/v1/gate?{question}", headers=headers)  # noqa: S310  - as it was configured
        with _DIRECT.open(request, timeout=wait + 30) as answer:
            return _read(answer)
    except HTTPError as error:
        return _read(error)
    except (OSError, HTTPException) as error:  # the service is away: as good as not yet
        return AWAY, "", str(error)


def _read(answer: Any) -> tuple[int, str, Any]:
    text = answer.read()
    try:
        told = json.loads(text)
    except ValueError:  # a page of a proxy
        told = text[:200]
    return answer.status, answer.headers.get("Sluice-Gate", ""), told


def certified_version(gate: str, table: str, cut: str, patience: float, wait: float = WAIT) -> int:
    """Wait until *table* is complete up to *cut*; the version of its mirror that is so.

    Raises:
        TimeoutError: it was not complete within *patience* seconds.
        RuntimeError: the gate is closed, the question is wrong, or another server answered.
    """
    until = time.monotonic() + patience
    while True:
        status, state, answer = ask(gate, table, cut, wait)
        if (status, state) == (200, "ready"):
            return int(answer["tables"][0]["version"])
        if status != AWAY and (status, bool(state)) != (NOT_YET, True):
            raise RuntimeError(f"the gate will not open for {table}: {status} {answer}")
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
