"""`sluice waive ID --reason`: a person closes by name what no machine may."""

import json
from pathlib import Path

import click

from monitor.client import address, posted
from monitor.options import asks_service, names_who


@click.command("waive")
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, help="Why it is safe to go on; kept for ever.")
@names_who
@asks_service
def waive(
    *, id_: str, reason: str, who: str, config: Path, server: str | None, as_json: bool
) -> None:
    """Close a gap, hold, quarantined change or named key; `sluice explain` shows the ids."""
    body = {"id": id_, "reason": reason, "who": who}
    answer = posted(address(server, config), "/v1/waivers", "new", body)
    if as_json:
        click.echo(json.dumps(answer))
        return
    click.echo(f"{id_} waived" if answer["new"] else f"{id_} had been waived before")


COMMAND = waive
