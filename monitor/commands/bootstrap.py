"""`sluice bootstrap TABLE... --reason`: read whole tables again from their source."""

from pathlib import Path

import click

from monitor.cli.client import address
from monitor.cli.options import ask, asks_service, at_a_rate, give_up, reads_again, require_reason


@click.command("bootstrap")
@click.argument("tables", nargs=-1, required=True)
@at_a_rate
@reads_again
@asks_service
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
    base, said = address(server, config), {"reason": reason, "who": who}
    if cancel:
        give_up(base, tables, said, as_json=as_json)
    else:
        body = {"tables": list(tables), "rate": rate, **said}
        ask(base, "/v1/bootstraps", body, wait=wait, as_json=as_json)


COMMAND = bootstrap
