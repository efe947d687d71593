"""Which certificates a FAIL, or a clock that went back, takes away, and which it leaves."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from checks.certificate import Certificate, Evidence, Ground, forfeited, misdated, revocations
from checks.model import Outcome, Ruling, Verdict
from pipeline.clocks import ClockStep
from pipeline.model import Fence, Stage
from tests.checks.samples import CUT, NOW, fence

LATER = NOW + timedelta(minutes=1)


def certificate(
    *fences: Fence, table: str = "shop.orders", issued: datetime = NOW, revoked: bool = False
) -> Certificate:
    evidence = Evidence(fences, batch=5, life=70)
    made = Certificate(table, table, Stage.LANDED, CUT, issued, evidence)
    return replace(made, revoked=NOW, why="before") if revoked else made


def verdict(outcome: Outcome, *as_of: Fence, at: datetime = LATER) -> Verdict:
    return Verdict("shop.orders", "completeness", Ruling(outcome, "said so"), at, as_of=as_of)


def of(number: int, source: str = "shop", identity: str = "A") -> Fence:
    return fence(number, CUT, source, identity)


def taken(one: Certificate, fail: Verdict, last_pass: Verdict | None = None) -> bool:
    return bool(revocations(fail, [one], last_pass))


@pytest.mark.parametrize(
    ("one", "limit", "revoked"),
    [
        pytest.param(certificate(of(5)), [of(5)], True, id="at its position"),
        pytest.param(certificate(of(4)), [of(5)], True, id="below"),
        pytest.param(certificate(of(6)), [of(5)], True, id="above, given before anybody knew"),
        pytest.param(certificate(of(6)), [], True, id="a FAIL without a position"),
        pytest.param(certificate(), [of(5)], True, id="nothing is known of what it rests on"),
        pytest.param(certificate(of(6, identity="B")), [of(5)], True, id="of another server"),
        pytest.param(certificate(of(6), table="shop.users"), [], False, id="another table's"),
        pytest.param(certificate(of(5), revoked=True), [of(5)], False, id="not a second time"),
        pytest.param(
            certificate(of(6), of(7, "old")), [of(5), of(6, "old")], True, id="above in each"
        ),
    ],
)
def test_a_fail_takes_back_what_its_table_was_promised_wherever_it_lies(
    one: Certificate, limit: Sequence[Fence], revoked: bool
) -> None:
    assert taken(one, verdict(Outcome.FAIL, *limit)) is revoked


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNKNOWN])
def test_nothing_but_a_fail_takes_back(outcome: Outcome) -> None:
    assert not taken(certificate(of(5)), verdict(outcome, of(9)))


@pytest.mark.parametrize(
    ("one", "limit", "spared"),
    [
        pytest.param(certificate(of(4)), [of(5)], True, id="wholly below it"),
        pytest.param(certificate(of(5)), [of(5)], False, id="at its end"),
        pytest.param(certificate(of(4, identity="B")), [of(5)], False, id="of another server"),
        pytest.param(certificate(of(4)), [of(5, "old")], False, id="of another source"),
        pytest.param(certificate(of(4), of(4, "old")), [of(5)], False, id="one source unseen"),
        pytest.param(certificate(), [of(5)], False, id="nothing is known of what it rests on"),
        pytest.param(certificate(of(4), issued=LATER), [of(5)], False, id="issued with it"),
    ],
)
def test_a_pass_spares_only_what_it_looked_at(
    one: Certificate, limit: Sequence[Fence], spared: bool
) -> None:
    fail = verdict(Outcome.FAIL, of(9), at=LATER + timedelta(minutes=1))

    assert taken(one, fail, verdict(Outcome.PASS, *limit)) is not spared


STEP = ClockStep("shop", 3, 6, CUT, CUT + timedelta(minutes=2), CUT)


@pytest.mark.parametrize(
    ("one", "felled"),
    [
        pytest.param(certificate(of(5)), True, id="its heartbeat is one of them"),
        pytest.param(certificate(of(6)), False, id="a later one"),
        pytest.param(certificate(of(5, "old")), False, id="of another source"),
        pytest.param(certificate(of(5), of(5, "old")), True, id="one of two"),
        pytest.param(certificate(of(5), revoked=True), False, id="not a second time"),
    ],
)
def test_a_clock_that_went_back_takes_what_rests_on_its_times(
    one: Certificate, felled: bool
) -> None:
    assert [each.id for each in misdated([one], STEP)] == [one.id] * felled


def test_what_is_still_there_is_not_forfeited() -> None:
    assert forfeited([certificate(of(5))], Ground(None, batch=9), NOW) == ()
