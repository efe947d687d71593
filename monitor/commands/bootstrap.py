"""`sluice bootstrap TABLE... --reason`: read whole tables again from their source."""

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


@click.command("bootstrap")
@click.argument("tables", nargs=-1, required=True)
@rate_option
@backfill_options
@service_options
def bootstrap(
    *,
    tables: tuple[str, ...],
    rate: int,
    reason: str,
    who: str,
    cancel: bool,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read TABLES again from their source, as their new base. Merging goes on meanwhile.

    Exit status 0: done, or started with --no-wait; 4: ended without a new base.
    """
    require_reason(reason)
    base, said = service_address(server, config), {"reason": reason, "who": who}
    if cancel:
        cancel_backfill(base, tables, said, as_json=as_json)
    else:
        body = {"tables": list(tables), "rate": rate, **said}
        request_backfill(base, "/v1/bootstraps", body, wait=wait, as_json=as_json)


COMMAND = bootstrap
