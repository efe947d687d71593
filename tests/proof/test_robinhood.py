"""The system of docs/systems/robinhood.md, from server to gate, and what it outlives.

Covers demo/oracle/postgres.py, demo/shop/postgres.py, demo/shop/postgres_values.py,
demo/shop/server.py
"""

import shutil
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from demo.processes import wait_until
from demo.shop.schema import USERS_SHELF
from pipeline.errors import UnreachableError
from tests.proof.evidence import Findings, examine
from tests.proof.plan import Round, Victim
from tests.proof.robinhood import DATABASE, Brokers, PostgresSystem, collect, written
from tests.proof.stand import PATIENCE, Stand
from tests.proof.test_kill import new_folder

Harm = Callable[[Stand, Brokers], None]
DOWN = 3.0  # seconds without a server


def kill(victim: Victim, delay: float = 3.0) -> Harm:
    def harm(stand: Stand, _: Brokers) -> None:
        stand.play(Round(victim, delay, 0.5, rush=False))

    return harm


def kill_all_in_a_rush(stand: Stand, _: Brokers) -> None:
    """Nobody waits until the one before has recovered."""
    for victim in (Victim.CONNECT, Victim.SERVICE, Victim.KAFKA):
        stand.play(Round(victim, 1.0, 0.5, rush=True))
    stand.play(Round(Victim.SPARK, 1.0, 0.5, rush=False))


def kill_postgres(stand: Stand, site: Brokers) -> None:
    """The source dies in the middle of transactions, and comes again."""
    stand.load(3)
    site.postgres.kill()
    stand.note("postgres killed")
    stand.load(DOWN)
    site.postgres.start()
    stand.recover()
    stand.note("recovered")


def add_a_column(stand: Stand, site: Brokers) -> None:
    """A nullable column comes under load, is written to, and is followed."""
    table = USERS_SHELF.name
    site.postgres.execute(f"ALTER TABLE {table} ADD COLUMN level INT", database=DATABASE)
    stand.load(2)
    site.postgres.execute(f"UPDATE {table} SET level = id WHERE id % 2 = 0", database=DATABASE)
    stand.note("column added")
    stand.recover()
    stand.note("recovered")


def take_the_registry_away(stand: Stand, site: Brokers) -> None:
    """A service that knows no schema yet holds its source, says so, and goes on by itself.

    The connector does not (its converter asks for what it knows, too): somebody starts it again.
    """
    assert site.registry is not None
    site.registry.kill()
    log = stand.service.daemon.log
    before = log.stat().st_size
    stand.kill_service()
    stand.service.start()
    stand.note("registry and service killed, service started again")

    def said() -> bool:
        return b"registry" in log.read_bytes()[before:]

    wait_until(said, PATIENCE, "word of the registry")
    site.registry.start()
    stand.note("registry started again")
    wait_until(lambda: revived(site), PATIENCE, "the connector")
    stand.recover()
    stand.note("recovered")


def revived(site: Brokers) -> bool:
    try:
        site.connect.revive(DATABASE)
    except UnreachableError:
        return False
    return True


@pytest.mark.stack
@pytest.mark.parametrize(
    ("version", "avro", "harms"),
    [
        pytest.param("15", True, [kill_postgres], id="15 in Avro"),
        pytest.param(
            "15",
            True,
            [
                *(add_a_column, kill(Victim.SERVICE), take_the_registry_away),
                *(kill(Victim.CONNECT), kill_postgres, kill_all_in_a_rush),
            ],
            marks=pytest.mark.long,
            id="15 in Avro, all",
        ),
        pytest.param(
            "15",
            False,
            [*map(kill, Victim)],
            marks=pytest.mark.long,
            id="15 in JSON",
        ),
    ],
)
def test_a_shop_on_postgres_reaches_its_mirrors_and_no_ready_is_false(
    version: str, avro: bool, harms: Sequence[Harm]
) -> None:
    home = new_folder("robinhood")
    built = partial(PostgresSystem, version=version, avro=avro)
    stand = Stand(home, 1, config=written(home, avro=avro), collect=collect, built=built)
    stand.workload.survive = True
    findings, site = Findings(), stand.system.site
    assert isinstance(site, Brokers)
    try:
        stand.open()
        for harm in harms:
            harm(stand, site)
        stand.finish()
        examine(stand, findings)
    finally:
        stand.close()
    if take_the_registry_away in harms:
        findings.excuse("false alarms", "the schema registry at")

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}\n" + "\n".join(stand.log)
    shutil.rmtree(stand.home)
