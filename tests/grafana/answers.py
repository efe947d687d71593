"""Which queries of dashboards and rules does a Prometheus answer with an error, or not at all?"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path

from demo.processes import wait_until
from pipeline.errors import UnreachableError
from tests.grafana.expressions import of_alerts, of_panels, of_recordings, of_values
from tests.grafana.prometheus import Prometheus, scraping

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
    """Scrape *address* until every query about *tables* is answered; what never was, in the end."""
    names = tuple(tables)
    with scraping(address, home) as prometheus:
        return left_of(lambda: [troubles(prometheus, name, well=True) for name in names], within)


def left_of(asked: Callable[[], Iterable[dict[str, str]]], within: timedelta) -> dict[str, str]:
    """Ask again until there are no troubles; those that there were in the end."""
    left = dict[str, str]()

    def answered() -> bool:
        left.clear()
        for each in asked():
            left.update(each)
        return not left

    with suppress(UnreachableError):
        wait_until(answered, within, "answer to every query")
    return left
