"""A clock that is wrong makes no READY, is named, and takes back what it made wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from checks.certificate import Certificate, Evidence
from monitor.observe.clocks import LEAST, Clocks
from monitor.store.alerts import Waiver
from monitor.store.certificates import Certificates
from monitor.store.history import CheckMemory
from pipeline.clocks import ClockStep
from pipeline.errors import UnreachableError
from pipeline.model import Fence, Head, Stage
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.rig import NOON, USERS, Rig
from tests.monitor.store.kit import ReadOnly

TWELVE = 720.0


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round(6)
    return rig


def reason_codes(answer: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in answer["tables"][0]["reasons"]}


def cut(rig: Rig, seconds: float) -> str:
    """That many seconds from now, by Sluice's clock."""
    return (rig.now + timedelta(seconds=seconds)).isoformat()


def both_back(rig: Rig, seconds: float) -> None:
    """Both clocks were fast, and are set right."""
    rig.second(-seconds)


def certify(rig: Rig, at: str) -> str:
    """The certificate of *at*."""
    status, answer = rig.ask(cut=at)
    assert status == 200
    number = answer["tables"][0]["certificate"]
    assert isinstance(number, str)
    return number


def test_f01_a_fast_clock_makes_no_fence_of_a_cut_that_is_still_to_come(rig: Rig) -> None:
    midnight = cut(rig, 300)
    rig.set_clock(TWELVE)
    rig.round(5)
    fast = rig.ask(cut=midnight)
    rig.set_clock(-TWELVE)
    rig.round()

    right = rig.ask(cut=midnight)

    assert fast[0] == right[0] == 404
    assert fast[1]["state"] == "unknown"
    assert "clock" in reason_codes(fast[1])
    assert reason_codes(right[1]) == {"cut_ahead", "no_fence", "late"}


def test_f01_a_clock_that_is_always_fast_is_unknown_by_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.set_clock(TWELVE)
    rig.round(10)

    status, answer = rig.ask(cut=cut(rig, -6))

    (reason,) = [one for one in answer["tables"][0]["reasons"] if one["code"] == "clock"]
    assert (status, answer["state"]) == (404, "unknown")
    assert reason["text"] == "source shop: its clock is 720.0 s behind Sluice's, 2.0 s may be"
    assert rig.clocks.problem("shop", rig.now) == reason["text"]
    assert rig.store.certificates.list() == ()
    rig.close()


def test_f01_a_skew_below_the_limit_only_makes_answers_later(rig: Rig) -> None:
    rig.set_clock(1.5)
    rig.round()
    early = rig.ask(cut=cut(rig, -2.5))
    rig.round(2)

    assert early[0] == 404
    assert rig.ask(cut=cut(rig, -5.5))[0] == 200


@pytest.mark.parametrize("restart", [False, True])
def test_f01_a_skew_lasts_over_a_restart_until_the_clocks_agree(rig: Rig, restart: bool) -> None:
    rig.set_clock(-TWELVE)
    rig.write_heartbeat()
    if restart:
        rig.restart()
    wrong = rig.ask(cut=cut(rig, -5))
    rig.set_clock(TWELVE)
    rig.round()
    if restart:
        rig.restart()
    rig.round(2)

    assert reason_codes(wrong[1]) >= {"clock"}
    assert rig.ask(cut=cut(rig, -3))[0] == 200


def test_f01_where_only_our_clock_went_back_nothing_falls(rig: Rig) -> None:
    before = rig.fences.of("shop")
    number = certify(rig, at := cut(rig, -5))
    rig.set_clock(-TWELVE)
    rig.round(3)
    slow = rig.ask(cut=cut(rig, -2))
    rig.set_clock(TWELVE)
    rig.round()

    fences = rig.fences.of("shop")
    assert "clock" in reason_codes(slow[1])
    assert fences[: len(before)] == before
    since = [one.at - before[-1].at for one in fences[len(before) : -1]]
    assert since == [count * timedelta(microseconds=1) for count in (1, 2, 3)]
    assert certify(rig, at) == number


def test_f01_a_cut_that_was_ready_stays_so_while_a_clock_is_wrong(rig: Rig) -> None:
    old = cut(rig, -5)
    number = certify(rig, old)
    rig.set_clock(TWELVE)
    rig.round()

    assert certify(rig, old) == number


def test_f01_certificates_of_fences_that_fell_are_taken_back_and_no_others(rig: Rig) -> None:
    before = certify(rig, at := cut(rig, -5))
    rig.second(TWELVE)
    rig.round(5)
    wrong, wrongly = cut(rig, -4), certify(rig, cut(rig, -4))
    both_back(rig, TWELVE)
    rig.round()

    kept = rig.certificate(wrongly)
    assert kept.revoked is not None
    assert "went back at heartbeat" in kept.why
    assert certify(rig, at) == before
    assert rig.ask(cut=wrong)[1]["state"] in {"revoked", "unknown"}


def test_no_certificate_is_valid_that_a_full_store_could_not_take_back(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round(5)
    wrong, wrongly = cut(rig, -4), certify(rig, cut(rig, -4))
    disk = ReadOnly(rig.store.database)
    both_back(rig, TWELVE)
    with pytest.raises(UnreachableError):
        rig.flow()
    rig.second(TWELVE + 120)

    assert rig.certificate(wrongly).revoked is not None
    assert rig.ask(cut=wrong)[1]["state"] != "ready"

    disk.free()
    rig.round()
    stored = Certificates(rig.store.database).get(wrongly)
    assert stored is not None
    assert stored.revoked is not None


def test_f01_no_landed_batch_proves_a_cut_by_a_fence_that_fell(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round(3)
    both_back(rig, TWELVE)
    rig.write_heartbeat()
    rig.watcher.look(timedelta())

    fallen = rig.fences.fallen()["shop"]
    passed = [one.passed.get("shop") for one in rig.watcher.look(timedelta(hours=1)).steps]

    assert len(fallen) == 3
    assert passed
    assert all(one is None or one.number not in fallen for one in passed)


def test_f01_watermarks_fall_with_their_fences(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round(3)
    both_back(rig, TWELVE)
    rig.round(3)

    view = rig.view(USERS)

    assert all(hop.watermark <= rig.now for hop in view.lags.hops)  # type: ignore[operator]
    assert all(floor.at <= rig.now for floor in view.lags.kept.values())


@pytest.mark.parametrize("restart", [False, True])
def test_f01_clocks_that_went_back_are_unknown_until_they_have_come_past(
    rig: Rig, restart: bool
) -> None:
    rig.second(TWELVE)
    rig.round(3)
    highest = rig.fences.of("shop")[-1].at
    both_back(rig, TWELVE)
    rig.round()
    if restart:
        rig.restart()
    rig.round(5)
    during = rig.ask(cut=cut(rig, -4))
    rig.second((highest - rig.now).total_seconds())
    rig.round(5)

    assert reason_codes(during[1]) >= {"clock"}
    assert rig.ask(cut=cut(rig, -4))[0] == 200


def test_f01_a_person_who_knows_that_the_clocks_are_right_ends_it(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round()
    both_back(rig, TWELVE)
    rig.round(5)
    (reason,) = rig.clocks.reasons(("shop",), rig.now)

    rig.store.waivers.add(Waiver(reason.id, "NTP, seen by hand", "kim", rig.now))

    assert rig.ask(cut=cut(rig, -3))[0] == 200


def test_f01_until_the_first_beat_of_a_new_life_a_time_still_to_come_proves_nothing(
    rig: Rig,
) -> None:
    rig.second(TWELVE)
    rig.round()
    both_back(rig, TWELVE)
    rig.restart()

    status, answer = rig.ask(cut=cut(rig, -100))

    assert status == 404
    assert "ahead of Sluice's clock" in str(answer["tables"][0]["reasons"])


def test_f01_a_look_from_before_the_clock_went_back_is_taken_anew(rig: Rig) -> None:
    number = rig.watcher.look(timedelta(seconds=1)).number
    rig.second(-1)

    assert rig.watcher.look(timedelta(seconds=1)).number > number


def test_f01_steps_one_after_the_other_are_over_when_the_highest_is_passed(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round()
    highest = rig.fences.of("shop")[-1].at
    for _ in range(3):
        both_back(rig, 200)
        rig.write_heartbeat()

    assert rig.clocks.reasons(("shop",), highest - timedelta(seconds=1))
    assert not rig.clocks.reasons(("shop",), highest)


def test_f01_a_step_is_told_for_a_minute_at_least(rig: Rig) -> None:
    """So that no look from before it is left when it is over."""
    both_back(rig, 5)
    at = rig.write_heartbeat().at

    assert rig.clocks.reasons(("shop",), at + LEAST - timedelta(seconds=1))
    assert not rig.clocks.reasons(("shop",), at + LEAST)


def test_f01_one_source_goes_back_and_the_other_stands(rig: Rig) -> None:
    for number, seconds in enumerate((0, 1, 2)):
        at, head = rig.now + timedelta(seconds=seconds), Head("B", binlog_position(1, number))
        rig.fences.add(Fence("other", number, at, head))
    both_back(rig, 30)
    rig.write_heartbeat()

    assert rig.clocks.reasons(("other",), rig.now) == ()
    assert len(rig.fences.of("other")) == 3


def test_f143_what_is_known_of_a_clock_and_cannot_be_read_is_a_doubt_of_its_source(
    rig: Rig,
) -> None:
    both_back(rig, 60)
    rig.round()
    with rig.store.write() as connection:
        assert connection.exec_driver_sql("UPDATE memory SET kept = '{'").rowcount
    rig.store.memory = CheckMemory(rig.store.database)

    rig.restart()
    rig.round()

    (told,) = rig.clocks.reasons(("shop",), rig.now + timedelta(days=1))
    assert "its stored clock readings cannot be read" in told.text
    assert told.id == ""


LIMIT = timedelta(seconds=2)
INSTANT = timedelta(microseconds=1)


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@dataclass(eq=False)
class Memory:
    """What a life leaves to the next; ``kept`` counts how often it was written to."""

    held: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    kept: int = 0

    def remember(self, subject: str, kind: str, told: dict[str, Any], when: datetime) -> None:
        self.kept += 1
        self.held[subject, kind] = told

    def recall(self, subject: str, kind: str) -> dict[str, Any] | None:
        return self.held.get((subject, kind))


@dataclass(eq=False)
class Shelf:
    """A store of certificates."""

    held: list[Certificate] = field(default_factory=list)
    revocations: int = 0

    def holding_since(self, since: datetime) -> tuple[Certificate, ...]:
        return tuple(one for one in self.held if one.issued >= since)

    def revoke(self, revoked: Sequence[Certificate]) -> int:
        self.revocations += 1
        changed = {one.id: one for one in revoked}
        self.held = [changed.get(one.id, one) for one in self.held]
        return len(revoked)


@dataclass(eq=False)
class LandingHarness:
    """Clocks over a memory and a store that outlive them."""

    memory: Memory = field(default_factory=Memory)
    shelf: Shelf = field(default_factory=Shelf)
    waived: frozenset[str] = frozenset()

    def life(self, *sources: str) -> Clocks:
        """A new one, that knows what was kept of *sources*."""
        memory, store = cast(CheckMemory, self.memory), cast(Certificates, self.shelf)
        clocks = Clocks(LIMIT, memory, store, lambda: self.waived)
        clocks.load(sources)
        return clocks


def clock_step(first: int, number: int, since: float, before: float, after: float) -> ClockStep:
    """Of the source ``shop``; times in seconds since noon."""
    return ClockStep(
        "shop", first, number, after_noon(since), after_noon(before), after_noon(after)
    )


def codes_of_clock_states(clocks: Clocks, now: float) -> list[str]:
    return [reason.code for reason in clocks.reasons(("shop",), after_noon(now))]


@pytest.mark.parametrize(
    ("skew", "told"),
    [
        pytest.param(timedelta(), "", id="none"),
        pytest.param(LIMIT, "", id="behind by what may be"),
        pytest.param(-LIMIT, "", id="ahead by what may be"),
        pytest.param(
            LIMIT + INSTANT,
            "source shop: its clock is 2.0 s behind Sluice's, 2.0 s may be",
            id="behind by more",
        ),
        pytest.param(
            timedelta(seconds=-7.5),
            "source shop: its clock is 7.5 s ahead of Sluice's, 2.0 s may be",
            id="ahead by more",
        ),
    ],
)
def test_a_clock_may_be_off_by_the_limit_and_no_more(skew: timedelta, told: str) -> None:
    clocks = LandingHarness().life()
    clocks.compared("shop", skew, NOON)

    assert clocks.problem("shop", NOON) == told
    assert clocks.problem("other", NOON) == ""


def test_only_a_clock_that_goes_wrong_or_right_is_told_and_kept() -> None:
    """A heartbeat comes each second."""
    harness = LandingHarness()
    clocks, told = harness.life(), list[tuple[int, int]]()
    for seconds in (0, 1, 9, 10, 9, 1, -1, -9):
        before = harness.memory.kept
        with capture_logs() as logs:
            clocks.compared("shop", timedelta(seconds=seconds), NOON)
        assert [(one["event"], one["behind"]) for one in logs] in (
            [],
            [("clock_compared", seconds)],
        )
        told.append((len(logs), harness.memory.kept - before))

    assert told == [(0, 0), (0, 0), (1, 1), (0, 0), (0, 0), (1, 1), (0, 0), (1, 1)]


def test_what_was_kept_is_known_to_the_next_life_by_source() -> None:
    harness = LandingHarness()
    clocks = harness.life()
    clocks.compared("shop", timedelta(seconds=9), NOON)
    clocks.stepped(clock_step(3, 6, 0, 120, 20))

    found = harness.life("other", "shop")

    assert codes_of_clock_states(found, 30) == ["clock", "clock"]
    assert found.step("shop") == clock_step(3, 6, 0, 120, 20)
    assert found.reasons(("other",), after_noon(30)) == ()
    assert found.step("other") is None
    assert codes_of_clock_states(harness.life("other"), 30) == []


def test_a_step_stays_known_while_skews_come_and_go() -> None:
    clocks = LandingHarness().life()
    clocks.stepped(clock_step(3, 6, 0, 120, 20))
    clocks.compared("shop", timedelta(seconds=9), after_noon(21))
    clocks.compared("shop", timedelta(), after_noon(22))

    assert codes_of_clock_states(clocks, 23) == ["clock"]


@pytest.mark.parametrize(
    ("before", "over"),
    [
        pytest.param(120, 120, id="when all that was shown is passed"),
        pytest.param(25, 80, id="and not before a minute is over"),
    ],
)
def test_when_a_step_back_is_over(before: float, over: float) -> None:
    clocks = LandingHarness().life()
    clocks.stepped(clock_step(3, 6, 0, before, 20))

    assert codes_of_clock_states(clocks, over - 1e-6) == ["clock"]
    assert codes_of_clock_states(clocks, over) == []


def test_a_step_that_a_person_has_waived_is_no_reason_and_the_skew_still_is() -> None:
    harness = LandingHarness()
    clocks = harness.life()
    clocks.stepped(clock_step(3, 6, 0, 120, 20))
    clocks.compared("shop", timedelta(seconds=9), after_noon(21))
    (far, back) = clocks.reasons(("shop",), after_noon(22))

    harness.waived = frozenset({"clock:shop:5"})
    assert clocks.reasons(("shop",), after_noon(22)) == (far, back)
    harness.waived = frozenset({"clock:shop:6"})

    assert back.id == "clock:shop:6"
    assert back.text == (
        "source shop: its clock and Sluice's went back by 100.0 s at heartbeat 6, from "
        "2026-03-29 12:02:00 UTC; heartbeats since 3 no longer count"
    )
    assert clocks.reasons(("shop",), after_noon(22)) == (far,)


FIRST = clock_step(3, 6, 0, 300, 100)


@pytest.mark.parametrize(
    ("second", "known"),
    [
        pytest.param(
            clock_step(7, 9, 110, 120, 105), clock_step(3, 9, 0, 300, 105), id="within the first"
        ),
        pytest.param(
            clock_step(2, 9, -5, 120, 90), clock_step(2, 9, -5, 300, 90), id="from further back"
        ),
        pytest.param(
            clock_step(7, 9, 110, 400, 299), clock_step(3, 9, 0, 400, 299), id="from higher up"
        ),
        pytest.param(
            clock_step(7, 9, 280, 350, 300), clock_step(7, 9, 280, 350, 300), id="once it is over"
        ),
    ],
)
def test_a_step_before_the_last_is_over_goes_on_with_that(
    second: ClockStep, known: ClockStep
) -> None:
    """What the first had shown is in the future past, and its heartbeats stay fallen."""
    clocks = LandingHarness().life()
    clocks.stepped(FIRST)

    clocks.stepped(second)

    assert clocks.step("shop") == known


def certificate(name: str, number: int, *, issued: float = 50, source: str = "shop") -> Certificate:
    """One that rests on one heartbeat."""
    fence = Fence(source, number, after_noon(issued), Head("A", binlog_position(1, number)))
    return Certificate(name, "t", Stage.LANDED, NOON, after_noon(issued), Evidence((fence,), 1))


def test_what_rests_on_a_fallen_heartbeat_is_taken_back_and_told() -> None:
    harness = LandingHarness()
    harness.shelf.held = [
        certificate("before", 2),
        certificate("fallen", 4),
        certificate("far", 4, source="far"),
        replace(certificate("revoked", 4), revoked=NOON, why="x"),
    ]
    with capture_logs() as logs:
        harness.life().stepped(FIRST)

    why = "the clocks of source shop and Sluice went back at heartbeat 6"
    taken = {one.id: one.why for one in harness.shelf.held if one.revoked == after_noon(100)}
    assert taken == {"fallen": why}
    assert [one["event"] for one in logs] == ["clock_went_back", "certificates_revoked"]
    assert (logs[0]["source"], logs[0]["first"], logs[0]["number"]) == ("shop", "3", "6")
    assert (logs[1]["count"], logs[1]["why"]) == (1, why)


def test_where_nothing_rests_on_it_nothing_is_taken_back_or_told() -> None:
    harness = LandingHarness()
    harness.shelf.held = [certificate("before", 2)]
    with capture_logs() as logs:
        harness.life().stepped(FIRST)

    assert harness.shelf.revocations == 0
    assert [one["event"] for one in logs] == ["clock_went_back"]
