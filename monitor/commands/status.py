"""`sluice status`: all tables and open incidents in one screen."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from monitor.client import address, ask
from monitor.options import asks_service


@click.command("status")
@asks_service
def status(config: Path, server: str | None, as_json: bool) -> None:
    """Show what the service knows."""
    base = address(server, config)
    tables, incidents = ask(base, "/v1/tables")[1], ask(base, "/v1/incidents")[1]
    _, turning = ask(base, "/v1/service")
    if as_json:
        click.echo(json.dumps({"service": turning, "tables": tables, "incidents": incidents}))
        return
    console = Console(highlight=False)
    if not turning["turning"]:
        why = f"nothing below can be believed: {turning['why']}"
        console.print(Text(why, style="bold red"))  # a name in it may look like markup
    console.print(_tables(tables))
    for one in incidents:
        about = f"{one['about']} {one['check']}".strip()
        line = f"{one['severity']} {one['state']} {one['kind']} {about}: {one['reason']}"
        console.print(line, markup=False, soft_wrap=True)


def _tables(rows: list[dict[str, Any]]) -> Table:
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
