"""`sluice status`: all tables and open incidents in one screen."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.client import address, listed, told
from monitor.last_words import last_words, lines
from monitor.options import asks_service
from pipeline.errors import UnreachableError

if TYPE_CHECKING:
    from rich.table import Table

UNWATCHED = 3


@click.command("status")
@asks_service
def status(config: Path, server: str | None, as_json: bool) -> None:
    """Show what the service knows; where none answers, what it wrote last (exit status 3)."""
    base = address(server, config)
    try:
        tables, incidents = listed(base, "/v1/tables"), listed(base, "/v1/incidents")
        turning = told(base, "/v1/service", "turning")
    except UnreachableError as error:
        if server is not None:
            raise
        _unwatched(str(error), last_words(config, "mirror"), as_json=as_json)
        sys.exit(UNWATCHED)
    if as_json:
        click.echo(json.dumps({"service": turning, "tables": tables, "incidents": incidents}))
        return
    from rich.console import Console  # noqa: PLC0415  - help draws no table
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not turning["turning"]:
        why = f"nothing below can be believed: {turning['why']}"
        console.print(Text(why, style="bold red"))  # a name in it may look like markup
    console.print(_tables(tables))
    for one in incidents:
        console.print(_incident(one), markup=False, soft_wrap=True)


def _unwatched(why: str, known: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"service": {"turning": False, "why": why}, "last_known": known}))
        return
    for line in (why, *lines(known), *map(_incident, known["incidents"])):
        click.echo(line)


def _incident(one: dict[str, Any]) -> str:
    about = f"{one['about']} {one['check']}".strip()
    return f"{one['severity']} {one['state']} {one['kind']} {about}: {one['reason']}"


def _tables(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table("table", "yesterday", "recent", "lag", "why")
    for row in rows:
        day, recent = row["day"]["mirror"], row["recent"]["mirror"]
        lag = "unknown" if row["lag_seconds"] is None else f"{row['lag_seconds']:.1f} s"
        shown = day if day["state"] != "ready" else recent
        ready = shown["state"] == "ready" or not shown["reasons"]
        why = "" if ready else shown["reasons"][0]["text"]
        table.add_row(*map(Text, (row["table"], day["state"], recent["state"], lag, why)))
    return table


COMMAND = status
