"""`sluice status`: show all tables and open incidents."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli import options as copy_lines
from monitor.cli.client import get_list, get_mapping, quote_name, service_address
from monitor.cli.offline_status import format_status, read_last_status
from monitor.cli.options import service_options
from monitor.display_text import escape_line, say, visible_in
from pipeline.errors import UnreachableError

if TYPE_CHECKING:
    from rich.table import Table

UNWATCHED = 3
SHOWN = 40
UNLIMITED = 10_000  # columns of piped output, in which names must be complete


@click.command("status")
@click.option("--incident", default="", help="Show this incident alone, with all its keys.")
@service_options
def status(*, incident: str, config: Path, server: str | None, as_json: bool) -> None:
    """Show tables and open incidents; without a running service, what it stored last.

    Exit status 3: no service answers.
    """
    base = service_address(server, config)
    if incident:
        one = get_mapping(base, f"/v1/incidents/{quote_name(incident)}", "differing")
        say(json.dumps(one)) if as_json else _show_incident(one)
        return
    try:
        tables, incidents = get_list(base, "/v1/tables"), get_list(base, "/v1/incidents")
        turning = get_mapping(base, "/v1/service", "turning")
    except UnreachableError as error:
        if server is not None:
            raise
        _unwatched(str(error), read_last_status(config, "mirror"), as_json=as_json)
        sys.exit(UNWATCHED)
    if as_json:
        say(json.dumps({"service": turning, "tables": tables, "incidents": incidents}))
        return
    from rich.console import Console  # noqa: PLC0415  - help draws no table
    from rich.text import Text  # noqa: PLC0415

    tables, incidents = visible_in(tables, escape_line), visible_in(incidents, escape_line)
    turning = visible_in(turning, escape_line)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNLIMITED)
    if not turning["turning"]:
        why = f"the states below are outdated: {turning['why']}"
        console.print(Text(why, style="bold red"))  # a name in it may look like markup
    for one in turning.get("first", ()) if turning["turning"] else ():
        console.print(summary_line(one), markup=False, soft_wrap=True)
    if tables:
        console.print(_tables(tables))
    for line in copy_lines.summarize_copies(tables):
        console.print(line, markup=False, soft_wrap=True)
    for one in incidents:
        console.print(incident_line(one), markup=False, soft_wrap=True)


def _unwatched(why: str, known: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"service": {"turning": False, "why": why}, "last_known": known}))
        return
    for line in (why, *format_status(known), *map(incident_line, known["incidents"])):
        say(line)


def summary_line(one: dict[str, Any]) -> str:
    """Format a headline in one line, as on the page: tables, reason, since when, where, runbook."""
    kind = one["kind"].upper().replace("_", " ")
    about, facts = one["about"] and f" {one['about']}", one["facts"] and f" ({one['facts']})"
    read_on = one["runbook"] and f"; see {one['runbook']}"
    return f"{kind}{about}: {one['what']}{facts}{read_on}"


def incident_line(one: dict[str, Any]) -> str:
    """Return the line of one incident."""
    about = f"{one['about']} {one['check']}".strip()
    held = f", acknowledged by {one['acknowledged']}" if one.get("acknowledged") else ""
    named = f" (incident {one['id']}{held})" if one.get("id") else ""
    reason = one["reason"].removeprefix(f"{one['about']}: ")  # it starts with the component
    return f"{one['severity']} {one['state']} {one['kind']} {about}: {reason}{named}"


def _show_incident(one: dict[str, Any]) -> None:
    """Print the line of *one*, then its keys, grouped by differing columns."""
    say(incident_line(one))
    for key in one["keys"]:
        say(f"  {key}")
    for rows in one["differing"]:
        more = f" and {rows['more_columns']} more" if rows.get("more_columns") else ""
        say(f"differ in {', '.join(rows['columns'])}{more}:")
        for key in rows["keys"]:
            say(f"  {key}")
    if one["more_rows"]:
        say(f"about {one['more_rows']} more rows differ, which are not named")


def _tables(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Column, Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    waits_first = sorted(rows, key=lambda row: (_ready(row), row["table"]))
    longest = max(len(row["table"]) for row in waits_first[:SHOWN])
    names = Column("table", no_wrap=True, min_width=longest)  # complete, because people copy them
    table = Table(names, "state", "yesterday", "recent", "lag", "why")
    for row in waits_first[:SHOWN]:
        day, recent = row["day"]["mirror"], row["recent"]["mirror"]
        lag = "unknown" if row["lag_seconds"] is None else f"{row['lag_seconds']:.1f} s"
        shown = day if day["state"] != "ready" else recent
        ready = shown["state"] == "ready" or not shown["reasons"]
        why = "" if ready else shown["reasons"][0]["text"]
        life = (row.get("life") or {"state": ""})["state"]
        shown_states = (life, day["state"], recent["state"])
        table.add_row(*map(Text, (row["table"], *shown_states, lag, why)))
    if len(rows) > SHOWN:
        table.add_row(Text(f"and {len(rows) - SHOWN} more: --json has all"))
    return table


def _ready(row: dict[str, Any]) -> bool:
    return all(row[each]["mirror"]["state"] == "ready" for each in ("day", "recent"))


COMMAND = status
