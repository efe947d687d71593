"""A table that is paused is never ready after that, is not called late, and is not forgotten."""

import json
from collections.abc import Callable
from datetime import timedelta

import click
import pytest
from click.testing import CliRunner, Result

from alerts.model import AlertKind
from checks.blocks import Pause, pause_reasons, rule_pause_length
from checks.model import Outcome
from monitor.commands.pause import COMMAND as PAUSE
from monitor.commands.resume import COMMAND as RESUME
from pipeline.model import Stage
from tests.monitor.rig import NOON, ORDERS, USERS, Rig

DAY = timedelta(days=1)


@pytest.fixture
def sluice(healthy: Rig, server: str) -> Callable[..., Result]:
    def run(verb: click.Command, *words: str) -> Result:
        return CliRunner().invoke(verb, [*words, "--server", server, "--who", "ann"])

    return run


def paused(rig: Rig, **more: str) -> None:
    body = {"tables": [USERS], "reason": "a migration", "who": "ann", **more}
    assert rig.client.post("/v1/pauses", json=body).status_code == 201


def idle(rig: Rig, seconds: float) -> None:
    """Heartbeats and batches go on, and merges of all tables but the paused one."""
    for _ in range(int(seconds / 10)):
        rig.second(9)
        rig.write_heartbeat()
        rig.land()
        rig.apply(ORDERS)
        rig.cycle.watch()


def test_no_cut_after_the_pause_is_ready_by_name_and_an_earlier_one_stays_so(healthy: Rig) -> None:
    before = healthy.clock().isoformat()
    healthy.flow()
    healthy.second(6)
    assert healthy.ask(USERS, cut=before)[0] == 200

    paused(healthy)
    after = healthy.clock().isoformat()
    healthy.round()  # as if a merge that had begun before went on
    healthy.second(10)
    healthy.flow()

    late = healthy.clock() - timedelta(seconds=8)
    status, answer = healthy.ask(USERS, cut=late.isoformat())
    (reason, *_) = answer["tables"][0]["reasons"]
    assert late.isoformat() > after
    assert (status, answer["state"], reason["code"]) == (409, "blocked", "paused")
    assert "paused by ann" in reason["text"]
    assert f"`sluice resume {USERS}`" in reason["text"]
    assert healthy.ask(ORDERS, cut=late.isoformat())[0] == 200
    assert healthy.ask(USERS, cut=late.isoformat(), stage="landed")[0] == 200
    assert healthy.ask(USERS, cut=before)[0] == 200


def test_what_nobody_asked_before_the_pause_is_still_answered_up_to_it(healthy: Rig) -> None:
    before = healthy.clock().isoformat()
    healthy.flow()
    healthy.second(6)
    paused(healthy)

    assert healthy.ask(USERS, cut=before)[0] == 200


def test_lateness_of_a_paused_table_is_no_page_and_that_of_landing_is_one(healthy: Rig) -> None:
    paused(healthy)

    idle(healthy, 150)
    assert healthy.facts.incidents() == ()

    for _ in range(15):  # now nothing lands either, though the collector goes on
        healthy.second(9)
        healthy.write_heartbeat()
        healthy.cycle.watch()
    kinds = {one.cause.kind for one in healthy.facts.incidents()}
    assert kinds == {AlertKind.LATE}


def test_resumed_it_goes_on_and_its_lateness_counts_again(healthy: Rig) -> None:
    paused(healthy)
    idle(healthy, 100)

    answer = healthy.client.post("/v1/pauses/ended", json={"tables": [USERS], "who": "bob"})
    healthy.cycle.watch()

    (one,) = answer.json()["pauses"]
    assert (one["ended_by"], one["ended"]) == ("bob", healthy.clock().isoformat())
    assert {one.cause.kind for one in healthy.facts.incidents()} == {AlertKind.LATE}
    assert healthy.store.pauses.standing(healthy.clock()) == {}


def test_topics_that_run_out_are_paged_all_the_same(healthy: Rig) -> None:
    paused(healthy)
    healthy.kafka.retention, healthy.kafka.end = timedelta(hours=7), 10_000
    healthy.second(5 * 3600)
    healthy.retention.ask()

    healthy.write_heartbeat()
    healthy.cycle.watch()

    assert "headroom" in {one.cause.check for one in healthy.facts.incidents()}


def test_a_pause_outlives_a_restart_and_ends_at_its_time(healthy: Rig) -> None:
    paused(healthy, until="PT2H")

    healthy.restart()
    standing = healthy.store.pauses.standing
    assert standing(healthy.clock())[USERS].reason == "a migration"
    assert USERS in standing(healthy.clock() + timedelta(minutes=119))
    assert USERS not in standing(healthy.clock() + timedelta(hours=2))

    healthy.second(7200)
    (one,) = healthy.client.get("/v1/pauses").json()
    assert one["ended"] == one["until"]


def test_paused_again_it_keeps_its_beginning_with_another_reason(healthy: Rig) -> None:
    paused(healthy)
    first = healthy.store.pauses.standing(healthy.clock())[USERS]
    healthy.second(60)

    paused(healthy, reason="a longer one")

    again = healthy.store.pauses.standing(healthy.clock())[USERS]
    assert (again.since, again.reason) == (first.since, "a longer one")
    records = healthy.client.get("/v1/pauses").json()
    assert [one["ended"] is None for one in records] == [True, False]


@pytest.mark.parametrize(
    ("days", "outcome"),
    [
        pytest.param(14, Outcome.PASS, id="for two weeks"),
        pytest.param(15, Outcome.PASS, id="for just half of what the change log keeps"),
        pytest.param(16, Outcome.FAIL, id="for longer than half of what the change log keeps"),
    ],
)
def test_one_that_is_forgotten_is_told(days: int, outcome: Outcome) -> None:
    ruling = rule_pause_length(Pause(USERS, "why", "ann", NOON), 30 * DAY, NOON + days * DAY)

    assert (ruling.outcome, "paused by ann" in ruling.reason) == (outcome, True)
    long = f"that is {days} days" in ruling.reason and "for 30 days" in ruling.reason
    assert long == (outcome is Outcome.FAIL)


def test_a_cut_at_the_pause_is_answered_and_its_end_is_told() -> None:
    pause = Pause(USERS, "why", "ann", NOON, NOON + DAY)

    (reason,) = pause_reasons(pause, Stage.MIRROR, NOON + timedelta(microseconds=1))

    assert pause_reasons(pause, Stage.MIRROR, NOON) == ()
    assert "until 2026-03-30 12:00:00 UTC: why" in reason.text


def test_one_that_is_forgotten_is_paged(healthy: Rig) -> None:
    paused(healthy)
    healthy.cycle.kept = timedelta(minutes=1)

    idle(healthy, 40)

    (incident,) = healthy.facts.incidents()
    assert (incident.cause.kind, incident.cause.check) == (AlertKind.SERVICE, "pause")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([PAUSE, "shop.user", "--reason", "x"], "known: shop.orders", id="no table"),
        pytest.param([PAUSE, USERS, "--reason", "x", "--until", "soon"], " or 4h", id="no instant"),
        pytest.param(
            [PAUSE, USERS, "--reason", "x", "--until", "10000000000"], " or 4h", id="number"
        ),
        pytest.param(
            [PAUSE, USERS, "--reason", "x", "--until", "9999-12-31T23:59:59-05:00"],
            " or 4h",
            id="what no instant in UTC is: nobody could read it back, nor rule on any table",
        ),
        pytest.param(
            [PAUSE, USERS, "--reason", "x", "--until", "2026-03-29T18:00:00"],
            "no offset",
            id="bare",
        ),
        pytest.param(
            [PAUSE, USERS, "--reason", "x", "--until", "2020-03-29T18:00:00Z"],
            "in the past",
            id="past",
        ),
        pytest.param([RESUME, USERS], "is not paused", id="nothing to resume"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_recorded(
    healthy: Rig, sluice: Callable[..., Result], words: list[str], said: str
) -> None:
    result = sluice(*words)

    assert result.exit_code != 0
    assert said in str(result.exception)
    assert healthy.client.get("/v1/pauses").json() == []


def test_the_verbs_say_what_they_did(healthy: Rig, sluice: Callable[..., Result]) -> None:
    one = sluice(PAUSE, USERS, "--reason", "x", "--until", "2027-03-29T18:00:00Z")
    two = sluice(RESUME, USERS)
    three = json.loads(sluice(PAUSE, USERS, ORDERS, "--reason", "x", "--json").output)

    assert one.output.startswith(f"{USERS}: paused since 2026-03-29T12:")
    assert "until 2027-03-29T18:00:00+00:00" in one.output
    assert two.output.startswith(f"{USERS}: resumed")
    assert [one["table"] for one in three] == [USERS, ORDERS]
