"""The system of docs/systems/uber.md, from MySQL's binlog to the gate, and what it outlives."""

import json
import shutil
import time

import click
import pytest

from tests.proof.rides import TABLES, Rides
from tests.proof.rides_sender import ODD
from tests.proof.rides_torment import Witness, alter, grow, poison, restart
from tests.proof.test_kill import new_folder

HOPS = {"collection", "consumer", "merge"}
LEAST = 20  # READYs under load; fewer show nothing


@pytest.mark.stack
@pytest.mark.spark
def test_rides_reach_their_mirrors_and_what_is_odd_is_corrected() -> None:
    """One story: kills, messages that are sent twice, one that its sender could not conform."""
    rides = Rides(new_folder("rides"))
    try:
        rides.open()
        rides.change(40)
        rides.until(lambda: len(rides.service.tables()) == len(TABLES), "both tables")
        based(rides)
        said = rides.ready()
        assert "proven by own_sequence only" in said
        assert "what has arrived is known by source rides: arrived heartbeats" in said
        for table in TABLES:
            rides.until(lambda one=table: known_hops(rides, one) == HOPS, f"lags of {table}")  # type: ignore[misc]
        rides.sender.kill()
        with_kills(rides)
        mended(rides)
        rides.ready()
        books = rides.books()
        assert {name: (one["error"], one["lost"]) for name, one in books.items()} == {
            "rides.trips": (0, 0),
            "rides.drivers": (1, 0),
        }, "main and error table are all that was read; the rubbish stays where it is"
    finally:
        rides.close()
    shutil.rmtree(rides.home)


@pytest.mark.stack
@pytest.mark.spark
@pytest.mark.long
def test_all_that_befalls_rides_under_load_loses_nothing_and_makes_no_ready_false(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rides = Rides(new_folder("rides-long"))
    witness = Witness(rides)
    try:
        rides.open()
        rides.change(40)
        rides.until(lambda: len(rides.service.tables()) == len(TABLES), "both tables")
        based(rides)
        rides.ready()
        for befall in (killed, killed, sent_twice, broken, grow, alter, killed, poison):
            with witness.load():
                time.sleep(10)
                befall(rides)
                time.sleep(10)
                rides.opened()
            rides.ready()
            with capsys.disabled():
                click.echo(f"{befall.__name__}: {len(witness.committed)} transactions")
        books = rides.books()
        assert {name: one["lost"] for name, one in books.items()} == dict.fromkeys(TABLES, 0)
    finally:
        rides.close()
        with capsys.disabled():
            click.echo(f"{witness.ready} READY under load, {len(witness.false)} false")
    assert not witness.false
    assert witness.ready > LEAST
    shutil.rmtree(rides.home)


def killed(rides: Rides) -> None:
    """Sender and service, in the midst of what they do."""
    rides.sender.kill()
    rides.service.daemon.kill()
    rides.send()
    rides.service.start()


def sent_twice(rides: Rides) -> None:
    with rides.sent_again():
        time.sleep(5)


def broken(rides: Rides) -> None:
    """The broker, and the registry, are away for a while; the sender gives up and is started."""
    restart(rides.kafka)
    restart(rides.registry)
    if not rides.sender.running:
        rides.send()


def based(rides: Rides) -> None:
    """Rows from before the first event are read from the source, while all goes on."""
    rides.until(lambda: without_base(rides) == len(TABLES), "word that there is no base")
    said = rides.verb("bootstrap", *TABLES, "--reason", "rows from before the first event")
    assert said.count("the new base is complete") == len(TABLES)


def known_hops(rides: Rides, table: str) -> set[str]:
    """Hops whose lag is known."""
    return {hop for hop, seconds in rides.lags(table).items() if seconds is not None}


def without_base(rides: Rides) -> int:
    return sum(one["code"] == "no_base" for one in rides.ask("now")[1])


def with_kills(rides: Rides) -> None:
    rides.send()
    with rides.sent_again():
        rides.change(40)
    rides.ready()
    rides.sender.kill()
    rides.change(20)
    rides.service.daemon.kill()
    rides.send()
    rides.change(20)
    rides.service.start()
    rides.ready()


def mended(rides: Rides) -> None:
    """An event with its sender's error, and rubbish: both are in the error table, and block."""
    rides.odd(1001)
    rides.rubbish()
    rides.change(10)
    rides.until(lambda: len(rides.quarantined()) == 2, "two that cannot be read")
    found = {one["table"]: one for one in rides.quarantined()}
    rides.until(lambda: rides.ask("now", "rides.trips")[0] == 409, "BLOCKED")
    name = found["rides.trips"]["id"]
    assert "the rider's note is odd" in found["rides.trips"]["why"]
    shown = json.loads(rides.verb("quarantine", "show", name, "--json", "--letters", "99999"))
    told = json.loads(shown["text"])
    told["hadoop_metadata"]["error_exception"] = None
    words = ("quarantine", "resend", name, "--text", "-", "--reason", "an odd note is well")
    said = rides.verb(*words, given=json.dumps(told))
    assert "it landed in batch" in said
    rides.ready("rides.trips")
    assert rides.mirror("rides.trips")[1001]["note"] == ODD
    rides.verb("waive", found["rides.drivers"]["id"], "--reason", "rubbish of a test")
