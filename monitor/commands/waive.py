"""`sluice waive ID --reason`: a person closes by name what no machine may."""

import json
from pathlib import Path
from urllib.parse import quote

import click

from monitor.cli.client import address, deleted, posted
from monitor.cli.options import asks_service, names_who
from monitor.terminal import say


@click.command("waive")
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, help="Why it is safe to go on; kept for ever.")
@click.option("--until", metavar="WHEN", help="An instant (2026-03-29T12:00:00Z), or 4h from now.")
@click.option(
    "--withdraw", is_flag=True, help="End the waiver of ID: what it covered blocks again."
)
@names_who
@asks_service
def waive(
    *,
    id_: str,
    reason: str,
    until: str | None,
    withdraw: bool,
    who: str,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Close a gap, hold, quarantined change or named key; `sluice explain` shows the ids."""
    base = address(server, config)
    if withdraw:
        if until is not None:
            raise click.UsageError("--until ends a waiver later, --withdraw now; give one of them")
        body = {"reason": reason, "who": who}
        answer = deleted(base, f"/v1/waivers/{quote(id_, safe='')}", "withdrawn", body)
        say(json.dumps(answer) if as_json else f"{id_} is waived no more")
        return
    body = {"id": id_, "reason": reason, "who": who}
    if until is not None:
        body["until"] = until
    answer = posted(base, "/v1/waivers", "new", body)
    if as_json:
        say(json.dumps(answer))
        return
    say(f"{id_} waived" if answer["new"] else f"{id_} had been waived before")


COMMAND = waive
