"""`sluice lineage NAME`: show which source column feeds which column of a mirror."""

import json
from pathlib import Path
from typing import Any

import click

from monitor.cli.client import get_list, service_address
from monitor.cli.options import service_options
from monitor.display_text import say


@click.command("lineage")
@click.argument("name")
@service_options
def lineage(name: str, config: Path, server: str | None, as_json: bool) -> None:
    """Show where the values of NAME come from and go to.

    NAME is a table (shop.orders), a shard (shop_01.orders_07), or a column of either
    (shop.orders.phone). Names before a RENAME work, too.
    """
    found = get_list(service_address(server, config), "/v1/lineage", {"name": name})
    if as_json:
        say(json.dumps(found))
        return
    for one in found:
        say(_line(one))


def _line(one: dict[str, Any]) -> str:
    here = f"{one['source']}/{one['shard']}.{one['column']} {one['type']}"
    there = f"{one['table']}.{one['mirror_column']} {one['mirror_type']}"
    by = f", by the standard {one['standard']}" if one["standard"] else ""
    former = f" (before: {', '.join(one['before'])})" if one["before"] else ""
    return f"{here} -> {there}{by}{former}"


COMMAND = lineage
