"""Which queries of dashboards and rules does a Prometheus answer with an error, or not at all?"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path

from demo.processes import wait_until
from pipeline.errors import UnreachableError
from tests.grafana.expressions import of_alerts, of_panels, of_recordings, of_values
from tests.grafana.prometheus import Prometheus, scraping

EMPTY = "empty: "


def troubles(prometheus: Prometheus, table: str) -> dict[str, str]:
    """What is wrong with a query, by its place; empty if nothing is."""
    found = {}
    for query in chain(of_panels(), of_recordings(), of_values()):
        answer = prometheus.ask(query.filled(table))
        if answer.error or not answer.samples:
            found[query.place] = answer.error or f"{EMPTY}{query.filled(table)}"
    for query in of_alerts():  # empty on a good day
        if error := prometheus.ask(query.promql).error:
            found[query.place] = error
    return found


def lasting(address: str, home: Path, tables: Iterable[str], within: timedelta) -> dict[str, str]:
    """Scrape *address* until every query about *tables* is answered; what never was, in the end."""
    names, left = tuple(tables), dict[str, str]()

    def answered() -> bool:
        left.clear()
        for name in names:
            left.update(troubles(prometheus, name))
        return not left

    with scraping(address, home) as prometheus, suppress(UnreachableError):
        wait_until(answered, within, "answer to every query")
    return left
