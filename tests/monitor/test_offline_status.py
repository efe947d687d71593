"""Where no service answers, `status` and `gate` tell what it wrote last, and never READY."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from checks.model import Outcome
from monitor.cli.offline_status import format_status, read_last_status
from monitor.commands import gate, status
from pipeline.clocks import parse_cut
from pipeline.errors import ConfigError
from pipeline.model import Stage
from tests.monitor.rig import ORDERS, USERS, Rig

DAY = "2026-03-28"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round(2)
    return rig


@pytest.fixture
def config(rig: Rig, tmp_path: Path) -> Path:
    """Names the store of the rig, and a port where nobody answers."""
    path = tmp_path / "sluice.yaml"
    path.write_text(
        f"store: '{rig.store.database.path}'\nhttp: {{port: 9}}\ntime_zone: Europe/Berlin\n"
    )
    return path


def _certify(rig: Rig, table: str) -> str:
    asked = rig.gate.decide([table], parse_cut(DAY, rig.gate.zone, rig.now), Stage.MIRROR)
    certificate = asked.answers[0].certificate
    assert certificate is not None
    return certificate.id


def test_f51_a_gate_without_a_service_tells_the_last_proof_and_stays_shut(
    rig: Rig, config: Path
) -> None:
    certificate = _certify(rig, USERS)

    result = CliRunner().invoke(gate.COMMAND, [USERS, ORDERS, "--config", str(config)])

    assert result.exit_code == 3
    assert "UNKNOWN: no service monitors the tables" in result.output
    proven = f"{USERS} mirror: complete up to 2026-03-29T00:00:00+01:00, certificate {certificate}"
    assert proven in result.output
    assert "no service answers" in result.output


def test_f51_a_proof_that_was_taken_back_is_not_told_as_one(rig: Rig, config: Path) -> None:
    _certify(rig, USERS)
    rig.rule(USERS, Outcome.FAIL)
    rig.watch(2)

    result = CliRunner().invoke(gate.COMMAND, [USERS, "--config", str(config)])

    assert f"{USERS} mirror: never proven complete" in result.output


def test_f51_status_without_a_service_tells_what_was_open(rig: Rig, config: Path) -> None:
    _certify(rig, USERS)
    rig.rule(ORDERS, Outcome.FAIL)
    rig.cycle.watch()

    result = CliRunner().invoke(status.COMMAND, ["--config", str(config)])

    assert result.exit_code == 3
    assert "no service answers at http://127.0.0.1:9/v1/tables" in result.output
    assert f"{USERS} mirror: complete up to" in result.output
    assert "critical firing lost shop.orders range_counts" in result.output


def test_f51_both_tell_it_to_programs(rig: Rig, config: Path) -> None:
    certificate = _certify(rig, USERS)

    asked = CliRunner().invoke(gate.COMMAND, [USERS, "--config", str(config), "--json"])
    shown = CliRunner().invoke(status.COMMAND, ["--config", str(config), "--json"])

    answer, seen = json.loads(asked.stdout), json.loads(shown.stdout)
    assert (answer["state"], answer["ready"]) == ("unknown", False)
    assert answer["last_known"]["proofs"][0]["certificate"] == certificate
    assert seen["service"]["turning"] is False
    kept = {one["table"]: one["certificate"] for one in seen["last_known"]["proofs"]}
    assert kept[USERS] == certificate


def test_a_service_that_was_named_has_no_store_here(rig: Rig, config: Path) -> None:
    words = [USERS, "--config", str(config), "--server", "http://127.0.0.1:9"]

    result = CliRunner().invoke(gate.COMMAND, words)

    assert result.exit_code == 3
    assert "mirror" not in result.output


def test_a_store_that_nobody_wrote_is_told_and_not_made(tmp_path: Path) -> None:
    config = tmp_path / "sluice.yaml"
    config.write_text("{}")

    words = read_last_status(config, "mirror")

    assert format_status(words) == [
        f"store {tmp_path / 'sluice.db'}: does not exist yet; start `sluice run`"
    ]
    assert not (tmp_path / "sluice.db").exists()


def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    config, store = tmp_path / "sluice.yaml", tmp_path / "sluice.db"
    config.write_text("{}")
    store.write_text("x" * 5000)

    assert format_status(read_last_status(config, "mirror")) == [
        f"store {store}: file is not a database"
    ]


def test_a_zone_that_is_none_is_a_fault_of_the_config(tmp_path: Path) -> None:
    config = tmp_path / "sluice.yaml"
    config.write_text("time_zone: Mars/Base\n")

    with pytest.raises(ConfigError, match="is not a time zone"):
        read_last_status(config, "mirror")
