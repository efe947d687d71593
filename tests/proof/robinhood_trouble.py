"""What befalls a shop on Postgres under load, and what somebody does about it."""

from collections.abc import Callable
from datetime import UTC, datetime

from demo.ports import free_ports
from demo.postgres import SYNCED, Postgres
from demo.processes import wait_until
from demo.shop.schema import USERS_SHELF
from pipeline.errors import UnreachableError
from tests.proof.judging import Base
from tests.proof.plan import Round, Victim
from tests.proof.robinhood import DATABASE, Brokers
from tests.proof.stand import PATIENCE, Stand
from tests.proof.torment import Torment

Harm = Callable[[Stand, Brokers], None]
DOWN = 3.0  # seconds without a server
TOPIC = f"{DATABASE}.shop_01.orders_01"
IN_STEP = "SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary"


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


def grow(stand: Stand, _: Brokers) -> None:
    """A topic gets more partitions."""
    Torment(stand, TOPIC).grow()


def poison(stand: Stand, _: Brokers) -> None:
    """A topic gets what nobody can read."""
    Torment(stand, TOPIC).poison()


def promote_a_replica(stand: Stand, site: Brokers) -> None:
    """The source dies, and a replica that had all of it takes its place, at its own address.

    The slot comes along from version 17 on; before, the connector makes one where the log ends
    then, after changes that it passes over, and takes a new base.
    """
    old, connect = site.postgres, site.connect
    heir = old.replica(stand.home / "heir", *free_ports(1))
    site.postgres = heir  # which ends with the others
    try:
        _promote(stand, old, heir)
    finally:
        old.remove()
    stand.workload.address = stand.system.address
    stand.workload.start()
    stand.load(DOWN)
    begun, config = datetime.now(UTC), connect.config(DATABASE)
    connect.deregister(DATABASE)
    connect.register(DATABASE, {**config, "database.port": str(heir.port)})
    stand.note("a replica promoted, its connector told where it is")
    stand.recover()
    if not _brings_slots(heir):
        stand.bases.append(Base(begun, datetime.now(UTC)))
    stand.note("recovered")


def _brings_slots(heir: Postgres) -> bool:
    return int(heir.version) >= SYNCED


def _promote(stand: Stand, old: Postgres, heir: Postgres) -> None:
    if _brings_slots(heir):
        wait_until(lambda: heir.execute(IN_STEP) == [(1,)], PATIENCE, "the replica's slot")
    stand.system.site.connect.halt(DATABASE)
    stand.load(DOWN)
    stand.workload.stop()
    ((end,),) = old.execute("SELECT pg_current_wal_flush_lsn()::text")
    done = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
    wait_until(lambda: heir.execute(done) == [(True,)], PATIENCE, "the replica")
    old.kill()
    heir.promote()
