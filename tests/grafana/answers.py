"""Finds queries of dashboards and rules that Prometheus answers with an error or no series."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path

from demo.processes import wait_until
from pipeline.errors import UnreachableError
from tests.grafana.expressions import of_alerts, of_panels, of_recordings, of_values
from tests.grafana.prometheus import PACE, Prometheus, scraping

EMPTY = "empty: "


def troubles(prometheus: Prometheus, *tables: str, well: bool = False) -> dict[str, str]:
    """What is wrong with a query, by its place; empty if nothing is.

    One of *tables* must have an answer.  Where all is *well*, what tells of trouble may have none.
    """
    found = {}
    for query in chain(of_panels(), of_recordings(), of_values()):
        asked = [query.filled(table) for table in tables]
        answers = [prometheus.ask(text) for text in asked]
        error = next((one.error for one in answers if one.error), "")
        there = any(one.samples for one in answers)
        if error or not (there or (well and query.quiet)):
            found[query.place] = error or f"{EMPTY}{asked[0]}"
    for query in of_alerts():  # empty on a good day
        if error := prometheus.ask(query.promql).error:
            found[query.place] = error
    return found


def lasting(address: str, home: Path, tables: Iterable[str], within: timedelta) -> dict[str, str]:
    """Scrape *address* until every query about *tables* is answered; what is not, in the end."""
    names = tuple(tables)
    with scraping(address, home) as prometheus:
        return left_of(lambda: (troubles(prometheus, name, well=True) for name in names), within)


def left_of(asked: Callable[[], Iterable[dict[str, str]]], within: timedelta) -> dict[str, str]:
    """Ask again, after the next scrape, until there are no troubles; those that are left.

    While there are any, who asks need not go on to the end; hundreds of queries are.
    """
    scrape = threading.Event()
    with suppress(UnreachableError):
        wait_until(lambda: not any(asked()) or scrape.wait(PACE), within, "answer to every query")
        return {}
    return {place: why for each in asked() for place, why in each.items()}
