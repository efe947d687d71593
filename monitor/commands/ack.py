"""`sluice ack INCIDENT`: acknowledge an incident, to get no repeated alerts."""

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
    """Acknowledge INCIDENT; `sluice status` lists the ids.

    The notification is not repeated until the incident ends. Its end is notified.
    """
    path = f"/v1/incidents/{quote(incident, safe='')}/acknowledgement"
    answer = posted(address(server, config), path, "acknowledged", {"who": who})
    say(json.dumps(answer) if as_json else f"{incident} is acknowledged by {who}")


COMMAND = ack
