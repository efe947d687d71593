"""The runbooks as pages of the service itself: who is woken follows a link, not a path.

They are read from ``docs`` of the checkout or the installation; without it nothing links to them.
"""

import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markdown_it import MarkdownIt

from monitor.web.answers import NOT_FOUND
from pipeline import installed
from pipeline.errors import UnknownNameError

DOCS = installed.data_file("docs")
FOLDER = "runbooks"
RUNBOOK_ROUTES = APIRouter()
_PAGE = Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sluice: {{ name }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; }
body { max-width: 48rem; margin: 1rem auto; padding: 0 1rem; overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; border-radius: .4rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th { white-space: nowrap; }
td code { overflow-wrap: normal; }
td, th { border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top; }
:target { background: #fdf0d3; color: #16202a; }
</style></head><body><p><a href="{{ home }}">Sluice</a></p>
{{ body|safe }}
</body></html>
"""
)

_ROUTES = Environment(autoescape=True).from_string(
    """<h1>Routes</h1>
<p>Times are RFC 3339, durations <code>30s</code>, <code>5m</code> or ISO 8601.
For programs: <a href="openapi.json">openapi.json</a>.</p>
<table><tr><th>route</th><th>parameters</th><th>what it does</th></tr>
{% for one in routes %}<tr><td><code>{{ one.method }} {{ one.path }}</code></td>
<td>{% for name in one.parameters %}<code>{{ name }}</code> {% endfor %}</td>
<td>{{ one.text }}</td></tr>
{% endfor %}</table>"""
)


def reference_page(openapi: Mapping[str, Any]) -> str:
    """Every route of an OpenAPI document as a page that loads nothing from elsewhere."""
    routes = [
        {
            "method": method.upper(),
            "path": path,
            "parameters": [one["name"] for one in route.get("parameters", ())],
            "text": re.sub(r"``|\*", "", route.get("description") or route.get("summary", "")),
        }
        for path, methods in openapi["paths"].items()
        for method, route in methods.items()
    ]
    return _PAGE.render(name="routes", body=_ROUTES.render(routes=routes), home="./")


def link(runbook: str) -> str:
    """Where the page may send a reader for *runbook*; empty if nowhere.

    A full address as it is; else the service's own page, as seen from the status page.
    """
    if runbook.startswith(("http://", "https://")):
        return runbook
    name = runbook.rpartition("/")[2]
    return f"{FOLDER}/{name}" if (DOCS / FOLDER / name.partition("#")[0]).is_file() else ""


@RUNBOOK_ROUTES.get(f"/{FOLDER}/{{name}}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def runbook(name: str) -> str:
    """One of those that findings link to."""
    return _page(DOCS / FOLDER, name, "../")


@RUNBOOK_ROUTES.get("/guides/{name}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def guide(name: str) -> str:
    """One of ``docs/guides``: one task, step by step."""
    return _page(DOCS / "guides", name, "../")


@RUNBOOK_ROUTES.get("/concepts/{name}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def concept(name: str) -> str:
    """One of ``docs/concepts``: what READY, lags and incidents mean."""
    return _page(DOCS / "concepts", name, "../")


@RUNBOOK_ROUTES.get("/{name}.md", response_class=HTMLResponse, responses=NOT_FOUND)
def document(name: str) -> str:
    """One of ``docs``, where runbooks lead to."""
    return _page(DOCS, name, "./")


def _page(folder: Path, name: str, home: str) -> str:
    known = {path.stem: path for path in folder.glob("*.md")}
    if name not in known:
        raise UnknownNameError(f"no page {name!r} here; known: {', '.join(sorted(known))}")
    return _rendered(known[name], home)


@cache
def _rendered(path: Path, home: str) -> str:
    """The page as HTML; each heading is an anchor, named as elsewhere in Markdown."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(path.read_text(encoding="utf-8"))
    for opening, text in pairwise(tokens):
        if opening.type == "heading_open":
            slug = re.sub(r"[^\w\- ]", "", text.content.lower()).replace(" ", "-")
            opening.attrSet("id", slug)
    body = markdown.renderer.render(tokens, markdown.options, {})
    return _PAGE.render(name=path.stem, body=body, home=home)
