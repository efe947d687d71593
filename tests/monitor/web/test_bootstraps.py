"""A new base is asked for, looked at and given up by its route and its verb."""

import json

import pytest
from click.testing import CliRunner, Result

from monitor.commands.bootstrap import COMMAND
from pipeline.backfill_state import BackfillState
from tests.monitor.rig import USERS, Rig


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def bootstrap(server: str, *words: str) -> Result:
    given = [USERS, "--reason", "a gap", "--who", "ann", "--server", server, *words]
    return CliRunner().invoke(COMMAND, given, catch_exceptions=False)


def told(rig: Rig, *states: BackfillState) -> None:
    rig.store.rereads.told(states, rig.clock())


def test_it_is_begun_once_and_recorded_with_its_reason(rig: Rig, server: str) -> None:
    first = bootstrap(server, "--no-wait", "--json")
    second = bootstrap(server, "--no-wait", "--json")

    (one,) = json.loads(first.output)
    assert (one["reason"], one["who"], one["ended"]) == ("a gap", "ann", None)
    assert json.loads(second.output) == [one]
    assert [wish.table for wish in rig.store.rereads.wished()] == [USERS]


@pytest.mark.parametrize(
    ("last", "status", "said"),
    [
        pytest.param((50, 7, ""), 0, "50 rows read, the new base is complete", id="done"),
        pytest.param((0, None, "no key"), 4, "ended without a new base: no key", id="refused"),
    ],
)
def test_who_waits_sees_it_end(
    *,
    rig: Rig,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    last: tuple[int, int | None, str],
    status: int,
    said: str,
) -> None:
    steps = iter([(12, None, ""), last])

    def meanwhile(_: float) -> None:
        (wish,) = rig.store.rereads.wished()
        rows, done, why = next(steps)
        told(rig, BackfillState(wish.id, USERS, "s/u", rows, done, why, why == "no key"))

    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    result = bootstrap(server)

    assert result.exit_code == status
    assert f"{USERS}: 12 rows" in result.output
    assert result.output.splitlines()[-1] == f"{USERS}: {said}"


def test_a_table_of_which_nothing_has_landed_is_one_if_its_source_has_it(
    rig: Rig, server: str
) -> None:
    """A table of Postgres that is empty is told of by nobody else."""
    rig.dictionary.there.append("shop.empty")
    words = ["--reason", "empty", "--who", "ann", "--server", server, "--no-wait"]

    known = CliRunner().invoke(COMMAND, ["shop.empty", *words])
    unknown = CliRunner().invoke(COMMAND, ["shop.absent", *words])

    assert known.exit_code == 0, known.output
    assert [wish.table for wish in rig.store.rereads.wished()] == ["shop.empty"]
    assert "none of its changes has landed, and no source has it" in str(unknown.exception)


def test_it_can_be_given_up(rig: Rig, server: str) -> None:
    bootstrap(server, "--no-wait")

    result = bootstrap(server, "--cancel")

    assert result.exit_code == 0
    assert "ended without a new base: cancelled by ann: a gap" in result.output
    assert rig.store.rereads.wished() == ()


def test_a_page_says_what_is_read_and_a_metric_how_far(rig: Rig, server: str) -> None:
    bootstrap(server, "--no-wait")
    (wish,) = rig.store.rereads.wished()
    told(rig, BackfillState(wish.id, USERS, "s/u", 12, None, "down"))

    rig.round()

    (view,) = rig.current.board.rereads
    assert view.told == "read again from its source: 12 rows, 6 rows/s; waits: down"
