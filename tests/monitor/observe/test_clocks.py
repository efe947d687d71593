"""A clock that is wrong makes no READY, is named, and takes back what it made wrong."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from monitor.observe.clocks import LEAST
from monitor.store.alerts import Waiver
from monitor.store.history import CheckMemory
from pipeline.model import Fence, Head
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.rig import USERS, Rig

TWELVE = 720.0


@pytest.fixture
def rig(rig: Rig) -> Rig:
    for _ in range(6):
        rig.round()
    return rig


def codes(answer: dict[str, Any]) -> set[str]:
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
    for _ in range(5):
        rig.round()
    fast = rig.ask(cut=midnight)
    rig.set_clock(-TWELVE)
    rig.round()

    right = rig.ask(cut=midnight)

    assert fast[0] == right[0] == 404
    assert fast[1]["state"] == "unknown"
    assert "clock" in codes(fast[1])
    assert codes(right[1]) == {"cut_ahead", "no_fence", "late"}


def test_f01_a_clock_that_is_always_fast_is_unknown_by_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.set_clock(TWELVE)
    for _ in range(10):
        rig.round()

    status, answer = rig.ask(cut=cut(rig, -6))

    (reason,) = [one for one in answer["tables"][0]["reasons"] if one["code"] == "clock"]
    assert (status, answer["state"]) == (404, "unknown")
    assert reason["text"] == "source shop: its clock is 720.0 s behind Sluice's, 2.0 s may be"
    assert rig.clocks.ailment("shop", rig.now) == reason["text"]
    assert rig.store.certificates.list() == ()
    rig.close()


def test_f01_a_skew_below_the_limit_only_makes_answers_later(rig: Rig) -> None:
    rig.set_clock(1.5)
    rig.round()
    early = rig.ask(cut=cut(rig, -2.5))
    rig.round()
    rig.round()

    assert early[0] == 404
    assert rig.ask(cut=cut(rig, -5.5))[0] == 200


@pytest.mark.parametrize("restart", [False, True])
def test_f01_a_skew_lasts_over_a_restart_until_the_clocks_agree(rig: Rig, restart: bool) -> None:
    rig.set_clock(-TWELVE)
    rig.beat()
    if restart:
        rig.restart()
    wrong = rig.ask(cut=cut(rig, -5))
    rig.set_clock(TWELVE)
    rig.round()
    if restart:
        rig.restart()
    rig.round()
    rig.round()

    assert codes(wrong[1]) >= {"clock"}
    assert rig.ask(cut=cut(rig, -3))[0] == 200


def test_f01_where_only_our_clock_went_back_nothing_falls(rig: Rig) -> None:
    before = rig.fences.of("shop")
    number = certify(rig, at := cut(rig, -5))
    rig.set_clock(-TWELVE)
    for _ in range(3):
        rig.round()
    slow = rig.ask(cut=cut(rig, -2))
    rig.set_clock(TWELVE)
    rig.round()

    fences = rig.fences.of("shop")
    assert "clock" in codes(slow[1])
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
    for _ in range(5):
        rig.round()
    wrong, wrongly = cut(rig, -4), certify(rig, cut(rig, -4))
    both_back(rig, TWELVE)
    rig.round()

    kept = rig.store.certificates.get(wrongly)
    assert kept is not None
    assert kept.revoked is not None
    assert "went back at heartbeat" in kept.why
    assert certify(rig, at) == before
    assert rig.ask(cut=wrong)[1]["state"] in {"revoked", "unknown"}


def test_f01_no_landed_batch_proves_a_cut_by_a_fence_that_fell(rig: Rig) -> None:
    rig.second(TWELVE)
    for _ in range(3):
        rig.round()
    both_back(rig, TWELVE)
    rig.beat()
    rig.watcher.look(timedelta())

    fallen = rig.fences.fallen()["shop"]
    passed = [one.passed.get("shop") for one in rig.watcher.look(timedelta(hours=1)).steps]

    assert len(fallen) == 3
    assert passed
    assert all(one is None or one.number not in fallen for one in passed)


def test_f01_watermarks_fall_with_their_fences(rig: Rig) -> None:
    rig.second(TWELVE)
    for _ in range(3):
        rig.round()
    both_back(rig, TWELVE)
    for _ in range(3):
        rig.round()

    view = rig.current.board.table(USERS)

    assert view is not None
    assert all(hop.watermark <= rig.now for hop in view.lags.hops)  # type: ignore[operator]
    assert all(floor.at <= rig.now for floor in view.lags.kept.values())


@pytest.mark.parametrize("restart", [False, True])
def test_f01_clocks_that_went_back_are_unknown_until_they_have_come_past(
    rig: Rig, restart: bool
) -> None:
    rig.second(TWELVE)
    for _ in range(3):
        rig.round()
    highest = rig.fences.of("shop")[-1].at
    both_back(rig, TWELVE)
    rig.round()
    if restart:
        rig.restart()
    for _ in range(5):
        rig.round()
    during = rig.ask(cut=cut(rig, -4))
    rig.second((highest - rig.now).total_seconds())
    for _ in range(5):
        rig.round()

    assert codes(during[1]) >= {"clock"}
    assert rig.ask(cut=cut(rig, -4))[0] == 200


def test_f01_a_person_who_knows_that_the_clocks_are_right_ends_it(rig: Rig) -> None:
    rig.second(TWELVE)
    rig.round()
    both_back(rig, TWELVE)
    for _ in range(5):
        rig.round()
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
        rig.beat()

    assert rig.clocks.reasons(("shop",), highest - timedelta(seconds=1))
    assert not rig.clocks.reasons(("shop",), highest)


def test_f01_a_step_is_told_for_a_minute_at_least(rig: Rig) -> None:
    """So that no look from before it is left when it is over."""
    both_back(rig, 5)
    at = rig.beat().at

    assert rig.clocks.reasons(("shop",), at + LEAST - timedelta(seconds=1))
    assert not rig.clocks.reasons(("shop",), at + LEAST)


def test_f01_one_source_goes_back_and_the_other_stands(rig: Rig) -> None:
    for number, seconds in enumerate((0, 1, 2)):
        at, head = rig.now + timedelta(seconds=seconds), Head("B", binlog_position(1, number))
        rig.fences.add(Fence("other", number, at, head))
    both_back(rig, 30)
    rig.beat()

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
    assert "what the store holds of its clock cannot be read" in told.text
    assert told.id == ""
