"""How far may a clock be off, when is a step back over, and what do two of them make together?"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from checks.certificate import Certificate, Evidence
from monitor.observe.clocks import Clocks
from monitor.store.certificates import Certificates
from monitor.store.history import CheckMemory
from pipeline.clocks import ClockStep
from pipeline.model import Fence, Head, Stage
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.rig import NOON

LIMIT = timedelta(seconds=2)
INSTANT = timedelta(microseconds=1)


def at(seconds: float) -> datetime:
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
class Desk:
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


def step(first: int, number: int, since: float, before: float, after: float) -> ClockStep:
    """Of the source ``shop``; times in seconds since noon."""
    return ClockStep("shop", first, number, at(since), at(before), at(after))


def codes(clocks: Clocks, now: float) -> list[str]:
    return [reason.code for reason in clocks.reasons(("shop",), at(now))]


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
    clocks = Desk().life()
    clocks.compared("shop", skew, NOON)

    assert clocks.ailment("shop", NOON) == told
    assert clocks.ailment("other", NOON) == ""


def test_only_a_clock_that_goes_wrong_or_right_is_told_and_kept() -> None:
    """A heartbeat comes each second."""
    desk = Desk()
    clocks, told = desk.life(), list[tuple[int, int]]()
    for seconds in (0, 1, 9, 10, 9, 1, -1, -9):
        before = desk.memory.kept
        with capture_logs() as logs:
            clocks.compared("shop", timedelta(seconds=seconds), NOON)
        assert [(one["event"], one["behind"]) for one in logs] in (
            [],
            [("clock_compared", seconds)],
        )
        told.append((len(logs), desk.memory.kept - before))

    assert told == [(0, 0), (0, 0), (1, 1), (0, 0), (0, 0), (1, 1), (0, 0), (1, 1)]


def test_what_was_kept_is_known_to_the_next_life_by_source() -> None:
    desk = Desk()
    clocks = desk.life()
    clocks.compared("shop", timedelta(seconds=9), NOON)
    clocks.stepped(step(3, 6, 0, 120, 20))

    found = desk.life("other", "shop")

    assert codes(found, 30) == ["clock", "clock"]
    assert found.step("shop") == step(3, 6, 0, 120, 20)
    assert found.reasons(("other",), at(30)) == ()
    assert found.step("other") is None
    assert codes(desk.life("other"), 30) == []


def test_a_step_stays_known_while_skews_come_and_go() -> None:
    clocks = Desk().life()
    clocks.stepped(step(3, 6, 0, 120, 20))
    clocks.compared("shop", timedelta(seconds=9), at(21))
    clocks.compared("shop", timedelta(), at(22))

    assert codes(clocks, 23) == ["clock"]


@pytest.mark.parametrize(
    ("before", "over"),
    [
        pytest.param(120, 120, id="when all that was shown is passed"),
        pytest.param(25, 80, id="and not before a minute is over"),
    ],
)
def test_when_a_step_back_is_over(before: float, over: float) -> None:
    clocks = Desk().life()
    clocks.stepped(step(3, 6, 0, before, 20))

    assert codes(clocks, over - 1e-6) == ["clock"]
    assert codes(clocks, over) == []


def test_a_step_that_a_person_has_waived_is_no_reason_and_the_skew_still_is() -> None:
    desk = Desk()
    clocks = desk.life()
    clocks.stepped(step(3, 6, 0, 120, 20))
    clocks.compared("shop", timedelta(seconds=9), at(21))
    (far, back) = clocks.reasons(("shop",), at(22))

    desk.waived = frozenset({"clock:shop:5"})
    assert clocks.reasons(("shop",), at(22)) == (far, back)
    desk.waived = frozenset({"clock:shop:6"})

    assert back.id == "clock:shop:6"
    assert back.text == (
        "source shop: its clock and Sluice's went back by 100.0 s at heartbeat 6, from "
        "2026-03-29 12:02:00 UTC; heartbeats since 3 no longer count"
    )
    assert clocks.reasons(("shop",), at(22)) == (far,)


FIRST = step(3, 6, 0, 300, 100)


@pytest.mark.parametrize(
    ("second", "known"),
    [
        pytest.param(step(7, 9, 110, 120, 105), step(3, 9, 0, 300, 105), id="within the first"),
        pytest.param(step(2, 9, -5, 120, 90), step(2, 9, -5, 300, 90), id="from further back"),
        pytest.param(step(7, 9, 110, 400, 299), step(3, 9, 0, 400, 299), id="from higher up"),
        pytest.param(step(7, 9, 280, 350, 300), step(7, 9, 280, 350, 300), id="once it is over"),
    ],
)
def test_a_step_before_the_last_is_over_goes_on_with_that(
    second: ClockStep, known: ClockStep
) -> None:
    """What the first had shown is still to come past, and its heartbeats stay fallen."""
    clocks = Desk().life()
    clocks.stepped(FIRST)

    clocks.stepped(second)

    assert clocks.step("shop") == known


def certificate(name: str, number: int, *, issued: float = 50, source: str = "shop") -> Certificate:
    """One that rests on one heartbeat."""
    fence = Fence(source, number, at(issued), Head("A", binlog_position(1, number)))
    return Certificate(name, "t", Stage.LANDED, NOON, at(issued), Evidence((fence,), 1))


def test_what_rests_on_a_fallen_heartbeat_is_taken_back_and_told() -> None:
    desk = Desk()
    desk.shelf.held = [
        certificate("before", 2),
        certificate("fallen", 4),
        certificate("far", 4, source="far"),
        replace(certificate("revoked", 4), revoked=NOON, why="x"),
    ]
    with capture_logs() as logs:
        desk.life().stepped(FIRST)

    why = "the clocks of source shop and Sluice went back at heartbeat 6"
    taken = {one.id: one.why for one in desk.shelf.held if one.revoked == at(100)}
    assert taken == {"fallen": why}
    assert [one["event"] for one in logs] == ["clock_went_back", "certificates_revoked"]
    assert (logs[0]["source"], logs[0]["first"], logs[0]["number"]) == ("shop", "3", "6")
    assert (logs[1]["count"], logs[1]["why"]) == (1, why)


def test_where_nothing_rests_on_it_nothing_is_taken_back_or_told() -> None:
    desk = Desk()
    desk.shelf.held = [certificate("before", 2)]
    with capture_logs() as logs:
        desk.life().stepped(FIRST)

    assert desk.shelf.revocations == 0
    assert [one["event"] for one in logs] == ["clock_went_back"]
