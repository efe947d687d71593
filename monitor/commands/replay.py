"""`sluice replay TABLE --where --reason`: rows that meet a condition, as the source has them."""

from pathlib import Path
from typing import Any

import click

from monitor.client import address, posted
from monitor.options import asks_service, login
from monitor.rereading import follow


@click.command("replay")
@click.argument("tables")
@click.option("--where", default="", help="Columns compared with values: \"day >= '2026-03-01'\".")
@click.option("--date", "day", help="The business day that the rows show, as 2026-03-28.")
@click.option("--most", default=1_000_000, show_default=True, help="Refuse to read more rows.")
@click.option("--reason", required=True, help="Why; kept for ever.")
@click.option("--who", default=login, help="By default the name you are logged in with.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Look on until it ends.")
@asks_service
def replay(
    *,
    tables: str,
    where: str,
    day: str | None,
    most: int,
    reason: str,
    who: str,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read rows of TABLES (a name, or the beginning of names and *) again from their source.

    Whatever was changed since wins, and no row is deleted by it.  Exit status 0: done; 4: it ended
    before that.
    """
    base = address(server, config)
    body: dict[str, Any] = {"tables": tables, "where": where, "most": most}
    body |= {"reason": reason, "who": who} | ({"day": day} if day else {})
    ids = {one["id"] for one in posted(base, "/v1/replays", "rereads", body)["rereads"]}
    follow(base, ids, wait=wait, as_json=as_json)


COMMAND = replay
