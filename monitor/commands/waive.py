"""`sluice waive ID --reason`: accept a gap, hold or finding that blocks."""

import json
from pathlib import Path

import click

from monitor.cli.client import quote_name, send_delete, send_post, service_address
from monitor.cli.options import service_options, who_option
from monitor.display_text import say


@click.command("waive")
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, help="Why it is safe to go on; stored for ever.")
@click.option(
    "--until",
    metavar="WHEN",
    help=("End: an instant (2026-03-29T12:00:00Z), or a duration from now (4h)."),
)
@click.option("--withdraw", is_flag=True, help="End the waiver of ID, so that ID blocks again.")
@who_option
@service_options
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
    """Waive a gap, hold, quarantined change or key of a finding; `sluice explain` lists the ids."""
    base = service_address(server, config)
    if withdraw:
        if until is not None:
            raise click.UsageError("--until and --withdraw exclude each other; use one")
        body = {"reason": reason, "who": who}
        answer = send_delete(base, f"/v1/waivers/{quote_name(id_)}", "withdrawn", body)
        say(json.dumps(answer) if as_json else f"the waiver of {id_} is withdrawn")
        return
    body = {"id": id_, "reason": reason, "who": who}
    if until is not None:
        body["until"] = until
    answer = send_post(base, "/v1/waivers", "new", body)
    if as_json:
        say(json.dumps(answer))
        return
    say(f"{id_} waived" if answer["new"] else f"{id_} was already waived")


COMMAND = waive
