"""`sluice resume TABLE...`: resume merging into paused tables."""

import json
from pathlib import Path

import click

from monitor.cli.client import send_post, service_address
from monitor.cli.options import service_options, who_option
from monitor.display_text import say


@click.command("resume")
@click.argument("tables", nargs=-1, required=True)
@who_option
@service_options
def resume(
    *, tables: tuple[str, ...], who: str, config: Path, server: str | None, as_json: bool
) -> None:
    """Resume merging into TABLES, from where it was paused."""
    body = {"tables": list(tables), "who": who}
    answer = send_post(service_address(server, config), "/v1/pauses/ended", "pauses", body)
    if as_json:
        say(json.dumps(answer["pauses"]))
        return
    for one in answer["pauses"]:
        say(f"{one['table']}: resumed; it was paused since {one['since']}")


COMMAND = resume
