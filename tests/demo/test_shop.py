"""The shop's ledger is the truth about its server: on a quiet one, and on one that is killed."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pymysql
import pytest

from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import wait_until
from demo.shop.ledger import Entry, Key, Ledger, Outcome
from demo.shop.link import Address
from demo.shop.schema import SHELVES
from demo.shop.workload import Shop, Workload

pytestmark = pytest.mark.stack

LONG = timedelta(minutes=5)


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySQL]:
    server = MySQL(tmp_path_factory.mktemp("mysql"), free_ports(1)[0])
    server.start()
    yield server
    server.stop()


@pytest.fixture
def address(mysql: MySQL) -> Address:
    """A server with an empty shop."""
    address = Address(mysql.host, mysql.port)
    Shop(address).create()
    return address


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def remaining_rows(entries: Mapping[int, Entry]) -> dict[tuple[str, Key], int]:
    """Give the rows that committed transactions left, with the number each carries."""
    rows: dict[tuple[str, Key], int] = {}
    for number in sorted(entries):
        if entries[number].outcome is Outcome.COMMITTED:
            for state in entries[number].rows:
                rows.pop((state.shard, state.key), None)
                if state.touched is not None:
                    rows[state.shard, state.key] = state.touched
    return rows


def stored(mysql: MySQL) -> dict[tuple[str, Key], int]:
    """Give the rows that the server has, with the number each carries."""
    return {
        (shelf.name, tuple(key)): touched
        for shelf in SHELVES
        for *key, touched in mysql.execute(
            f"SELECT {', '.join(shelf.key)}, touched FROM {shelf.name}"
        )
    }


def outcomes(ledger: Ledger) -> Counter[Outcome]:
    return Counter(entry.outcome for entry in ledger.entries().values())


def busy(workload: Workload, changes: int) -> None:
    """Wait until *changes* more changes were made."""
    until = workload.tally["changes"] + changes
    wait_until(lambda: workload.tally["changes"] >= until, LONG, f"{changes} more changes")


def test_the_ledger_knows_every_row_that_the_server_has(
    mysql: MySQL, address: Address, ledger: Ledger
) -> None:
    workload = Workload(address, ledger, seed=7, rate=4000)
    workload.fill(400)
    workload.start()

    busy(workload, 2500)
    workload.stop()

    assert stored(mysql) == remaining_rows(ledger.entries())
    assert outcomes(ledger)[Outcome.UNKNOWN] == 0
    assert workload.tally["changes"] >= 2900


def test_a_day_in_the_shop_has_deletes_revivals_key_changes_and_rollbacks(
    mysql: MySQL, address: Address, ledger: Ledger
) -> None:
    workload = Workload(address, ledger, seed=8, rate=4000)
    workload.fill(400)
    workload.start()

    busy(workload, 2000)
    workload.stop()

    states = [state for entry in ledger.entries().values() for state in entry.rows]
    gone = {(state.shard, state.key) for state in states if state.touched is None}
    assert {shard for shard, _ in gone} == {shelf.name for shelf in SHELVES}
    assert gone & stored(mysql).keys(), "no deleted key came back"
    replaced = {state.shard for state in states if state.touched and None in state.passing}
    assert {"shop.payments", "shop.order_items"} <= replaced
    passing = {state.shard for state in states if not state.touched and any(state.passing)}
    assert "shop.users" in passing
    assert outcomes(ledger)[Outcome.ROLLED_BACK] > 20
    ids = [{row[0] for row in mysql.execute(f"SELECT id FROM {s.name}")} for s in SHELVES[1:5]]
    assert ids[0] & ids[1] & ids[2] & ids[3], "ids of shards do not overlap"


def test_a_killed_server_leaves_nothing_in_doubt(
    mysql: MySQL, address: Address, ledger: Ledger
) -> None:
    workload = Workload(address, ledger, seed=9, rate=4000, survive=True)
    workload.fill(300)
    workload.start()

    for _ in range(2):
        busy(workload, 300)
        mysql.kill()
        mysql.start()
    busy(workload, 300)
    running = workload.running
    workload.stop()

    assert running
    assert stored(mysql) == remaining_rows(ledger.entries())
    assert outcomes(ledger)[Outcome.UNKNOWN] == 0


def test_without_survival_the_loss_of_the_server_is_reported_at_the_stop(
    mysql: MySQL, address: Address, ledger: Ledger
) -> None:
    workload = Workload(address, ledger, rate=1000)
    workload.start()
    busy(workload, 50)

    mysql.kill()
    wait_until(lambda: not workload.running, LONG, "end of the writers")
    mysql.start()

    with pytest.raises(pymysql.err.Error):
        workload.stop()


def test_a_second_start_owns_the_rows_it_finds_and_goes_on_numbering(
    mysql: MySQL, address: Address, tmp_path: Path
) -> None:
    first, second = Ledger(tmp_path / "first.jsonl"), Ledger(tmp_path / "second.jsonl")
    Workload(address, first, seed=3).fill(300)

    workload = Workload(address, second, seed=4, rate=4000, writers=3)
    workload.start()
    busy(workload, 800)
    workload.stop()

    kept = [n for n, entry in first.entries().items() if entry.outcome is Outcome.COMMITTED]
    assert max(kept) < min(second.entries())  # what was rolled back left no number in any row
    assert stored(mysql) == remaining_rows(first.entries() | second.entries())


def test_rows_that_somebody_else_removed_do_not_stop_the_shop(
    mysql: MySQL, address: Address, ledger: Ledger
) -> None:
    workload = Workload(address, ledger, seed=5, rate=4000)
    workload.fill(300)
    workload.start()

    mysql.execute("DELETE FROM shop.payments", "DELETE FROM shop.users")
    busy(workload, 1500)
    running = workload.running
    workload.stop()

    assert running
    ours = remaining_rows(ledger.entries())
    assert stored(mysql).items() <= ours.items()


def test_one_seed_is_one_sequence(address: Address, tmp_path: Path) -> None:
    ledgers = [Ledger(tmp_path / f"{name}.jsonl") for name in "ab"]
    for ledger in ledgers:
        Shop(address).create()
        Workload(address, ledger, seed=11).fill(300)

    first, second = (
        [replace(entry, begun=None, sent=None, acknowledged=None) for entry in entries.values()]  # type: ignore[arg-type]  # times differ
        for entries in (ledger.entries() for ledger in ledgers)
    )
    assert first == second


def test_the_rate_is_kept(address: Address, ledger: Ledger) -> None:
    workload = Workload(address, ledger, seed=6, rate=200)
    workload.fill(200)
    workload.start()

    try:
        wait_until(lambda: measured(workload, ledger) > 130, LONG, "a rate that is not too low")
    finally:
        workload.stop()


def measured(workload: Workload, ledger: Ledger) -> float:
    """Changes a second, of 800; never too many, though a busy machine may do fewer for a while."""
    before = ledger.entries()
    busy(workload, 800)
    times = [entry.begun for number, entry in ledger.entries().items() if number > max(before)]
    rate = 800 / (max(times) - min(times)).total_seconds()
    assert rate < 270
    return rate
