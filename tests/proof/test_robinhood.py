"""The system of docs/systems/robinhood.md, from server to gate, and what it outlives."""

import shutil
from collections.abc import Sequence
from functools import partial

import pytest

from tests.proof.evidence import Findings, examine
from tests.proof.plan import Victim
from tests.proof.robinhood import DATABASE, Brokers, PostgresSystem, collect, written
from tests.proof.robinhood_trouble import (
    Harm,
    add_a_column,
    grow,
    kill,
    kill_all_in_a_rush,
    kill_postgres,
    poison,
    promote_a_replica,
    take_the_registry_away,
)
from tests.proof.stand import Stand
from tests.proof.test_kill import new_folder

# What an incident tells of a harm, and rightly.
TRUE: dict[Harm, str] = {
    take_the_registry_away: "the schema registry at",
    promote_a_replica: "slot",
    poison: "undecoded change",
}


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
                *(grow, promote_a_replica, poison),
            ],
            marks=pytest.mark.long,
            id="15 in Avro, all",
        ),
        pytest.param(
            "18",
            True,
            [kill_postgres, kill(Victim.CONNECT)],
            marks=pytest.mark.long,
            id="18 in Avro",
        ),
        pytest.param(
            "15",
            False,
            [*map(kill, Victim)],
            marks=pytest.mark.long,
            id="15 in JSON",
        ),
        pytest.param(
            "18",
            False,
            [kill_postgres, add_a_column, grow, promote_a_replica, poison],
            marks=pytest.mark.long,
            id="18 in JSON, with the slot that came along",
        ),
    ],
)
def test_a_shop_on_postgres_reaches_its_mirrors_and_no_ready_is_false(
    version: str, avro: bool, harms: Sequence[Harm]
) -> None:
    home = new_folder("robinhood")
    built = partial(PostgresSystem, version=version, avro=avro)
    stand = Stand(home, 1, config=written(home, avro=avro), collect=collect, built=built)
    stand.connector = DATABASE
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
    for harm, told in TRUE.items():
        if harm in harms:
            findings.excuse("false alarms", told)

    assert not findings.wrong, f"{findings}\nevidence: {stand.home}\n" + "\n".join(stand.log)
    shutil.rmtree(stand.home)
