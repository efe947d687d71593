"""`sluice ack INCIDENT`: somebody has it in hand, so it is not repeated."""

import json
from pathlib import Path
from urllib.parse import quote

import click

from monitor.cli.client import address, posted
from monitor.cli.options import asks_service, names_who
from monitor.terminal import say


@click.command("ack")
@click.argument("incident")
@names_who
@asks_service
def ack(*, incident: str, who: str, config: Path, server: str | None, as_json: bool) -> None:
    """Say that you have INCIDENT in hand; `sluice status` shows the ids.

    It is not repeated for the rest of the episode; its end is told all the same.
    """
    path = f"/v1/incidents/{quote(incident, safe='')}/acknowledgement"
    answer = posted(address(server, config), path, "acknowledged", {"who": who})
    say(json.dumps(answer) if as_json else f"{incident} is in the hands of {who}")


COMMAND = ack
