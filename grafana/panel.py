"""Panels as values; only this module knows the JSON of Grafana."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
COLOURS: Mapping[str, str] = {
    **{"ready": "green", "pass": "green"},
    **{"not_ready": "yellow", "unknown": "#7b8794"},
    **{"blocked": "red", "revoked": "dark-red", "fail": "red"},
    **{"critical": "red", "warning": "orange", "info": "blue"},
}
"""Colour by the end of a legend; states with the same meaning have the same colour everywhere."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; ``kind`` is Grafana's name for the type of panel.

    ``red`` is the value from which on it is alarming, None if no value is. With ``below``, values
    under ``red`` are alarming instead. ``link`` is the target of a click on a table's row.
    """

    title: str
    description: str
    kind: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 12
    height: int = 8
    red: float | None = None
    below: bool = False
    stacked: bool = False
    link: str = ""

    def render(self, number: int, left: int, top: int) -> Json:
        """Return Grafana's JSON, with id and position."""
        instant = self.kind in ("stat", "table")
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"x": left, "y": top, "w": self.width, "h": self.height},
            "targets": [_target(i, query, self.kind) for i, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": _overrides()},
            "options": _options(self.kind),
            **({"transformations": [_ORGANISE]} if self.kind == "table" else {}),
            **({} if instant else {"interval": "15s"}),
        }

    def _defaults(self) -> Json:
        defaults: Json = {"unit": self.unit, "noValue": "no data", "thresholds": self._steps()}
        if self.kind == "timeseries":
            stacking = {"mode": "normal" if self.stacked else "none", "group": "A"}
            defaults["custom"] = {
                "stacking": stacking,
                "fillOpacity": 25 if self.stacked else 0,
                "spanNulls": False,  # a gap is an unknown value: never draw over it
                "lineWidth": 2,
            }
        if self.link:
            defaults["links"] = [{"title": "this table in detail", "url": self.link}]
        return defaults

    def _steps(self) -> Json:
        calm, alarming = ("red", "green") if self.below else ("green", "red")
        steps: list[Json] = [{"color": calm if self.red is not None else "blue", "value": None}]
        if self.red is not None:
            steps.append({"color": alarming, "value": self.red})
        return {"mode": "absolute", "steps": steps}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels; ``variables`` maps a name to the metric whose `table` label it offers."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variable: str
    label_of: str
    several: bool
    links: tuple[tuple[str, str], ...] = ()

    def render(self) -> Json:
        """Return Grafana's JSON, to be provisioned or imported unchanged."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["sluice"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "timezone": "utc",
            "refresh": "15s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": [_source_variable(), self._table_variable()]},
            "links": [
                {"title": title, "type": "link", "url": url, "keepTime": True}
                for title, url in self.links
            ],
            "panels": list(_placed(self.panels)),
        }

    def _table_variable(self) -> Json:
        query = f"label_values({self.label_of}, table)"
        return {
            "name": self.variable,
            "label": "table",
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": "tables"},
            "refresh": 2,
            "sort": 1,
            "multi": self.several,
            "includeAll": self.several,
            **({"allValue": ".*"} if self.several else {}),
        }


def _placed(panels: Sequence[Panel]) -> Iterable[Json]:
    """Fill lines from the left; a panel that does not fit begins a new line."""
    left = top = height = 0
    for number, panel in enumerate(panels, start=1):
        if left + panel.width > WIDTH:
            left, top, height = 0, top + height, 0
        yield panel.render(number, left, top)
        left, height = left + panel.width, max(height, panel.height)


def _target(index: int, query: Query, kind: str) -> Json:
    instant = kind in ("stat", "table")
    return {
        "refId": chr(ord("A") + index),
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
        "format": "table" if kind == "table" else "time_series",
    }


def _overrides() -> list[Json]:
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^| ){name}$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in COLOURS.items()
    ]


def _options(kind: str) -> Json:
    if kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "textMode": "value_and_name", "colorMode": "background"}
    if kind == "timeseries":
        legend = {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "state-timeline":
        return {"mergeValues": True, "showValue": "never", "legend": {"showLegend": False}}
    return {"showHeader": True, "cellHeight": "sm"}


_ORGANISE: Json = {"id": "organize", "options": {"excludeByName": {"Time": True}}}


def _source_variable() -> Json:
    return {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }
