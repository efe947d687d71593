"""`sluice replay TABLE --where --reason`: read rows that meet a condition from their source."""

from datetime import date
from pathlib import Path

import click

from monitor.cli.client import service_address
from monitor.cli.options import (
    backfill_options,
    cancel_backfill,
    rate_option,
    request_backfill,
    require_reason,
    service_options,
)


def _day(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return date.fromisoformat(value).isoformat() if value else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a date; write it as 2026-03-28") from None


@click.command("replay")
@click.argument("tables")
@click.option("--where", default="", help="Condition on columns, such as \"day >= '2026-03-01'\".")
@click.option("--date", "day", callback=_day, help="Business day of the rows, such as 2026-03-28.")
@click.option("--most", default=1_000_000, show_default=True, help="Refuse to read more rows.")
@rate_option
@backfill_options
@service_options
def replay(
    *,
    tables: str,
    where: str,
    day: str | None,
    most: int,
    rate: int,
    reason: str,
    who: str,
    cancel: bool,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read rows of TABLES (a name, or a prefix and *) again from their source.

    Later changes win, and no row is deleted. Exit status 0: done; 4: ended before that.
    """
    require_reason(reason)
    base, said = service_address(server, config), {"reason": reason, "who": who}
    if cancel:
        cancel_backfill(base, [tables], said, as_json=as_json)
        return
    body = {"tables": tables, "where": where, "most": most, "rate": rate} | (
        {"day": day} if day else {}
    )
    request_backfill(base, "/v1/replays", body | said, wait=wait, as_json=as_json)


COMMAND = replay
