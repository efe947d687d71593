"""`sluice bootstrap TABLE... --reason`: a new base of some tables, read from their source."""

from pathlib import Path

import click

from monitor.client import address, posted
from monitor.options import asks_service, login
from monitor.rereading import follow


@click.command("bootstrap")
@click.argument("tables", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why a new base is needed; kept for ever.")
@click.option("--who", default=login, help="By default the name you are logged in with.")
@click.option("--cancel", is_flag=True, help="Give up what is read of TABLES now.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Look on until it ends.")
@asks_service
def bootstrap(
    *,
    tables: tuple[str, ...],
    reason: str,
    who: str,
    cancel: bool,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read TABLES again from their source, beside everything else, and let that be their base.

    Exit status 0: done, or begun with --no-wait; 4: it ended without a new base.
    """
    base = address(server, config)
    body = {"tables": list(tables), "reason": reason, "who": who}
    path = "/v1/bootstraps/cancelled" if cancel else "/v1/bootstraps"
    ids = {one["id"] for one in posted(base, path, "bootstraps", body)["bootstraps"]}
    follow(base, ids, wait=wait and not cancel, as_json=as_json)


COMMAND = bootstrap
