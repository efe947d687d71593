"""`sluice late`: days and partitions to compute again, for what came late."""

import json
from pathlib import Path
from typing import Any

import click

from monitor.cli.client import address, listed
from monitor.cli.options import asks_service
from monitor.terminal import say


@click.command("late")
@click.option("--since", help="Only what landed since: a date (its end) or an RFC 3339 instant.")
@asks_service
def late(since: str | None, config: Path, server: str | None, as_json: bool) -> None:
    """List changes that came after their image was made, and late files.

    A READY that was said of such an image is taken back; files are told by their partition.
    """
    params = {} if since is None else {"since": since}
    found = listed(address(server, config), "/v1/late", params)
    if as_json:
        say(json.dumps(found))
        return
    for one in found:
        say(_line(one))
    if not found:
        say("nothing came too late for an image that is kept, or for its partition")


def _line(one: dict[str, Any]) -> str:
    if "partition" in one:
        told = f"{one['rows']} rows of {one['files']} files, the last taken at {one['landed']}"
        return f"{one['table'] or one['shard']} {one['partition']}: {told}"
    days = ", ".join(f"{day or 'no day'}: {rows}" for day, rows in one["days"].items())
    where = f" ({days})" if days else ""
    changes = f"{one['rows']} changes landed at {one['landed']}, batch {one['batch']}{where}"
    return f"{one['table']} {one['day'] or one['cut']}: {changes}"


COMMAND = late
