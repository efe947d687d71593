"""`sluice late`: list days and partitions that late data has changed."""

import json
from pathlib import Path
from typing import Any

import click

from monitor.cli.client import get_list, service_address
from monitor.cli.options import service_options
from monitor.display_text import say


@click.command("late")
@click.option("--since", help="Only what landed since a date (its end) or an RFC 3339 instant.")
@service_options
def late(since: str | None, config: Path, server: str | None, as_json: bool) -> None:
    """List changes that landed after their image was made, and late files by partition.

    The READY certificate of such an image is revoked.
    """
    params = {} if since is None else {"since": since}
    found = get_list(service_address(server, config), "/v1/late", params)
    if as_json:
        say(json.dumps(found))
        return
    for one in found:
        say(_line(one))
    if not found:
        say("no change came too late for an image, and no file for its partition")


def _line(one: dict[str, Any]) -> str:
    if "partition" in one:
        text = f"{one['rows']} rows of {one['files']} files, the last taken at {one['landed']}"
        return f"{one['table'] or one['shard']} {one['partition']}: {text}"
    days = ", ".join(f"{day or 'no day'}: {rows}" for day, rows in one["days"].items())
    where = f" ({days})" if days else ""
    changes = f"{one['rows']} changes landed at {one['landed']}, batch {one['batch']}{where}"
    return f"{one['table']} {one['day'] or one['cut']}: {changes}"


COMMAND = late
