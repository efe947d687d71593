"""`sluice pause TABLE... --reason`: stop merging into tables until they are resumed."""

import json
from pathlib import Path

import click

from monitor.cli.client import send_post, service_address
from monitor.cli.options import service_options, who_option
from monitor.display_text import say


@click.command("pause")
@click.argument("tables", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why merging is paused; stored for ever.")
@click.option(
    "--until",
    metavar="WHEN",
    help=("End: an instant (2026-03-29T12:00:00Z), or a duration from now (4h)."),
)
@who_option
@service_options
def pause(
    *,
    tables: tuple[str, ...],
    reason: str,
    until: str | None,
    who: str,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Pause merging into TABLES. Changes still land, and none is lost.

    The gate answers BLOCKED for cuts after the pause began. A paused table gets the new reason and
    end.
    """
    body = {"tables": list(tables), "reason": reason, "who": who, "until": until}
    answer = send_post(service_address(server, config), "/v1/pauses", "pauses", body)
    if as_json:
        say(json.dumps(answer["pauses"]))
        return
    for one in answer["pauses"]:
        until_then = f", until {one['until']}" if one["until"] else ""
        say(f"{one['table']}: paused since {one['since']}{until_then}")


COMMAND = pause
