"""`sluice ack INCIDENT`: acknowledge an incident, to get no repeated alerts."""

import json
from pathlib import Path

import click

from monitor.cli.client import quote_name, send_post, service_address
from monitor.cli.options import service_options, who_option
from monitor.display_text import say


@click.command("ack")
@click.argument("incident")
@who_option
@service_options
def ack(*, incident: str, who: str, config: Path, server: str | None, as_json: bool) -> None:
    """Acknowledge INCIDENT; `sluice status` lists the ids.

    The notification is not repeated until the incident ends. Its end is notified.
    """
    path = f"/v1/incidents/{quote_name(incident)}/acknowledgement"
    answer = send_post(service_address(server, config), path, "acknowledged", {"who": who})
    say(json.dumps(answer) if as_json else f"{incident} is acknowledged by {who}")


COMMAND = ack
