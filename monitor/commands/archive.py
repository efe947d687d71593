"""`sluice archive`: which deletes only move rows to an archive, so that the lake keeps them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from monitor.client import address, listed, posted
from monitor.options import asks_service, names_who


@click.group("archive")
def archive() -> None:
    """Say which deletes only move rows to an archive: the lake keeps these rows."""


@archive.command("keep")
@click.argument("table")
@click.option("--since", required=True, metavar="WHEN", help="The first moment, by the source.")
@click.option("--until", required=True, metavar="WHEN", help="The first moment after it.")
@click.option("--column", default="", help="Only rows whose value there lies below --before.")
@click.option("--before", default="", metavar="VALUE", help="A date, a time or a number.")
@click.option("--reason", required=True, help="Why; kept for ever.")
@names_who
@asks_service
def keep(
    *,
    table: str,
    since: str,
    until: str,
    column: str,
    before: str,
    reason: str,
    who: str,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Keep the rows of TABLE that its source deletes in a window, before or after they have landed.

    A table that is held because so many old rows went (`archive_purge`) goes on by it.
    """
    body = {"table": table, "since": since, "until": until, "reason": reason, "who": who}
    body |= {"column": column, "before": before}
    answer = posted(address(server, config), "/v1/archives", "window", body)
    if as_json:
        click.echo(json.dumps(answer))
        return
    again = "" if answer["new"] else "; that was said before"
    click.echo(f"{_line(answer['window'])}{again}")


@archive.command("list")
@asks_service
def registered(*, config: Path, server: str | None, as_json: bool) -> None:
    """List the windows that were registered, newest first."""
    windows = listed(address(server, config), "/v1/archives")
    if as_json:
        click.echo(json.dumps(windows))
        return
    for one in windows:
        click.echo(f"{_line(one)}, by {one['who']}: {one['reason']}")


def _line(one: Mapping[str, Any]) -> str:
    rows = f"rows with {one['column']} below {one['before']}" if one["column"] else "all rows"
    span = f"from {one['since']} until {one['until']}"
    return f"{one['table']}: {rows} that go {span} stay"


COMMAND = archive
