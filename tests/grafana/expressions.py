"""Every PromQL expression that is generated, with where it stands."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from grafana.generate import outputs
from grafana.panel import Json
from grafana.rules import RECORDINGS, alerts
from monitor.web import metrics
from monitor.web.metrics import COPY_METRICS, IMAGE_METRICS

LABEL = re.compile(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"|(?:by|on|without|ignoring) \([^)]*\)")
TOLD_OF_TROUBLE = frozenset({metrics.HOP_AGE.name, metrics.WHY.name, metrics.OUTCOME.name})
"""Metrics that list only what is not well."""
TOLD_OF_SOME = frozenset(
    {
        metrics.BACKLOG.name,
        metrics.BACKFILL_ROWS.name,
        metrics.BACKFILL_LEFT.name,
        metrics.BACKFILL_BRAKE.name,
        metrics.TABLE_STATE.name,
        metrics.SOURCE_ROWS.name,
        metrics.SOURCE_SECONDS.name,
        metrics.SOURCE_WAITS.name,
        metrics.VERIFIED_AGE.name,
        metrics.VERIFIED_THROUGH.name,
        *(one.name for one in (*IMAGE_METRICS, *COPY_METRICS)),
    }
)
"""Metrics of what not every service has, or not always: slots, rereads, `values`, checks."""
ANOTHER_STATE = re.compile(rf'^{metrics.READINESS.name}{{[^}}]*state="unknown"}}$')
"""Of a table's states only the one that holds is listed."""
NAME = re.compile(r"\b(?!max_over_time\b)(?:sluice:[a-z0-9_:]+|[a-z][a-z0-9]*_[a-z0-9_]+)\b")


@dataclass(frozen=True, slots=True)
class Expression:
    """One query; ``place`` is told when it fails."""

    place: str
    promql: str

    def filled(self, table: str) -> str:
        """As Grafana sends it, for *table*."""
        text = self.promql.replace("$tables", ".*").replace("$table", table)
        return text.replace("$__rate_interval", "1m")

    @property
    def quiet(self) -> bool:
        """Whether it may be empty while all is well: it asks for what is not, or not everywhere."""
        states = ANOTHER_STATE.search(self.promql) is not None
        return states or metrics_in(self.promql) <= TOLD_OF_TROUBLE | TOLD_OF_SOME


@cache
def dashboards() -> dict[str, Json]:
    """Made once: each pass over their queries asks for them."""
    made = outputs()
    return {name: json.loads(text) for name, text in made.items() if name.endswith(".json")}


def of_panels() -> Iterator[Expression]:
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                place = f"{name}: {panel['title']} {target['refId']}"
                yield Expression(place, target["expr"])


def of_recordings() -> Iterator[Expression]:
    yield from (Expression(rule.name, rule.expr) for rule in RECORDINGS)


def of_alerts() -> Iterator[Expression]:
    """Whole alerts: empty on a good day."""
    yield from (Expression(rule.name, rule.expr) for rule in alerts())


def of_values() -> Iterator[Expression]:
    """What alerts are tested on: there on any day, unless it is quiet."""
    yield from (Expression(f"{rule.name}'s value", rule.value) for rule in alerts())


def metrics_in(promql: str) -> set[str]:
    """Names of metrics and recorded series that an expression uses."""
    return set(NAME.findall(LABEL.sub(" ", promql)))
