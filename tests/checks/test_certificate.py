"""What a certificate speaks of must be there; what takes it back, and what spares it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from checks.certificate import (
    Certificate,
    CertificateBasis,
    Evidence,
    revoke_failed,
    revoke_lost,
    revoke_misdated,
)
from checks.model import Outcome, Ruling, Verdict
from pipeline.clocks import ClockStep
from pipeline.image import Image
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Fence, Stage
from tests.builders.values import fence, verdict
from tests.checks.samples import CUT, NOW

EVIDENCE = Evidence((), batch=5, version=7, applied=5, mirror="m", life=70)
ISSUED = Certificate("c", "shop.orders", Stage.MIRROR, CUT, NOW, EVIDENCE)
THERE = MirrorPosition(7, 5, "m", (Image(CUT, 7, 5, (), {}, NOW, NOW),))


def taken_back(one: Certificate, ground: CertificateBasis) -> str:
    """Why; empty if it holds."""
    found = revoke_lost([one], ground, NOW)
    assert all(each.revoked == NOW for each in found)
    return found[0].why if found else ""


@pytest.mark.parametrize(
    ("mirror", "why"),
    [
        pytest.param(THERE, "", id="as it was"),
        pytest.param(MirrorPosition(9, 8, "m"), "", id="gone on"),
        pytest.param(
            MirrorPosition(6, 5, "m"),
            "the mirror is at version 6, but the certificate names 7",
            id="without its newest version",
        ),
        pytest.param(
            MirrorPosition(9, 4, "m"),
            "the mirror holds batch 4, but the certificate rests on 5",
            id="put back, and grown again by upkeep alone",
        ),
        pytest.param(
            MirrorPosition(9, 9, "n"),
            "the mirror is another Delta table now (n), so its rows are not proven",
            id="another",
        ),
        pytest.param(
            MirrorPosition(9, 8, "m", put_back=NOW + timedelta(seconds=1)),
            "the mirror was put back to an older version; 7 may be another commit now",
            id="put back, and grown again",
        ),
        pytest.param(MirrorPosition(9, 8, "m", put_back=NOW), "", id="put back before"),
        pytest.param("no route", "its mirror cannot be read: no route", id="not to be read"),
        pytest.param(None, "", id="nobody could look"),
    ],
)
def test_a_mirror_that_does_not_hold_what_was_certified_takes_it_back(
    mirror: MirrorPosition | str | None, why: str
) -> None:
    landed = replace(ISSUED, stage=Stage.LANDED)

    assert taken_back(ISSUED, CertificateBasis(mirror, batch=9)) == why
    assert taken_back(landed, CertificateBasis(mirror, batch=9)) == "", "it speaks of no mirror"


@pytest.mark.parametrize(
    "untold",
    [{"mirror": ""}, {"version": None}, {"applied": None}],
    ids=["which table", "which version", "which batch"],
)
def test_a_certificate_that_does_not_say_what_it_rests_on_does_not_hold(
    untold: Mapping[str, Any],
) -> None:
    vague = replace(ISSUED, evidence=replace(EVIDENCE, **untold))

    assert taken_back(
        vague, CertificateBasis(replace(THERE, mirror=vague.evidence.mirror), batch=9)
    )


@pytest.mark.parametrize(
    ("batch", "incarnations", "life", "why"),
    [
        pytest.param(5, {}, 70, "", id="the batch is the newest"),
        pytest.param(
            4,
            {},
            70,
            ("the change log ends at batch 4, but the certificate rests on 5"),
            id="it is lost",
        ),
        pytest.param(9, {"0": 70, "6": 71}, 70, "", id="landed in that life"),
        pytest.param(
            9,
            {"0": 70, "5": 71},
            70,
            "the change log has lost batch 5, and another batch has its number",
            id="landed in another",
        ),
        pytest.param(9, {"0": 71}, None, "", id="its life was not told"),
        pytest.param(9, {"6": 71}, 70, "", id="nobody remembers whose it was"),
        pytest.param(None, {"0": 71}, 70, "", id="the log does not answer"),
    ],
)
@pytest.mark.parametrize("stage", list(Stage))
def test_a_batch_that_the_change_log_has_lost_takes_it_back(
    stage: Stage, batch: int | None, incarnations: Mapping[str, int], life: int | None, why: str
) -> None:
    one = replace(ISSUED, stage=stage, evidence=replace(EVIDENCE, life=life))

    assert taken_back(one, CertificateBasis(THERE, batch, incarnations)) == why
    assert (
        revoke_lost([replace(one, revoked=CUT)], CertificateBasis("gone", batch, incarnations), NOW)
        == ()
    )


@pytest.mark.parametrize(
    ("ruled", "why"),
    [
        pytest.param(4, "", id="before it was issued"),
        pytest.param(5, "", id="with its own batch, which knew of it"),
        pytest.param(
            6, "since batch 6 the rules send it a shard that it did not have", id="after it"
        ),
    ],
)
@pytest.mark.parametrize("stage", list(Stage))
def test_a_shard_that_the_rules_have_sent_it_since_takes_it_back(
    stage: Stage, ruled: int, why: str
) -> None:
    assert taken_back(replace(ISSUED, stage=stage), CertificateBasis(THERE, 9, ruled=ruled)) == why


@pytest.mark.parametrize(
    ("fences", "seen", "spared"),
    [
        pytest.param((fence(5, CUT),), (fence(6, NOW),), True, id="looked at past its cut"),
        pytest.param((fence(5, CUT),), (fence(5, NOW),), False, id="at its cut, and no further"),
        pytest.param(
            (fence(5, CUT), fence(5, CUT, "other")), (fence(6, NOW),), False, id="in one source"
        ),
        pytest.param((), (fence(6, NOW),), False, id="nobody knows its cut's position"),
    ],
)
def test_a_pass_spares_a_certificate_that_it_looked_at_in_all_its_sources(
    fences: tuple[Fence, ...], seen: tuple[Fence, ...], spared: bool
) -> None:
    one = replace(ISSUED, evidence=replace(EVIDENCE, fences=fences), issued=CUT)
    fail = Verdict(one.table, "schema", Ruling(Outcome.FAIL, "x"), NOW)
    passed = Verdict(one.table, "schema", Ruling(Outcome.PASS, "x"), NOW, seen)

    assert (revoke_failed(fail, [one], passed) == ()) is spared
    assert revoke_failed(fail, [replace(one, issued=NOW)], passed), "issued when it had looked"


LATER = NOW + timedelta(minutes=1)


def certificate(
    *fences: Fence, table: str = "shop.orders", issued: datetime = NOW, revoked: bool = False
) -> Certificate:
    evidence = Evidence(fences, batch=5, life=70)
    made = Certificate(table, table, Stage.LANDED, CUT, issued, evidence)
    return replace(made, revoked=NOW, why="before") if revoked else made


def is_revoked(one: Certificate, fail: Verdict, last_pass: Verdict | None = None) -> bool:
    return bool(revoke_failed(fail, [one], last_pass))


@pytest.mark.parametrize(
    ("one", "limit", "revoked"),
    [
        pytest.param(certificate(fence(5, CUT)), [fence(5, CUT)], True, id="at its position"),
        pytest.param(certificate(fence(4, CUT)), [fence(5, CUT)], True, id="below"),
        pytest.param(
            certificate(fence(6, CUT)), [fence(5, CUT)], True, id="above, given before anybody knew"
        ),
        pytest.param(certificate(fence(6, CUT)), [], True, id="a FAIL without a position"),
        pytest.param(
            certificate(), [fence(5, CUT)], True, id="nothing is known of what it rests on"
        ),
        pytest.param(
            certificate(fence(6, CUT, identity="B")), [fence(5, CUT)], True, id="of another server"
        ),
        pytest.param(
            certificate(fence(6, CUT), table="shop.users"), [], False, id="another table's"
        ),
        pytest.param(
            certificate(fence(5, CUT), revoked=True), [fence(5, CUT)], False, id="not a second time"
        ),
        pytest.param(
            certificate(fence(6, CUT), fence(7, CUT, "old")),
            [fence(5, CUT), fence(6, CUT, "old")],
            True,
            id="above in each",
        ),
    ],
)
def test_a_fail_takes_back_what_its_table_was_promised_wherever_it_lies(
    one: Certificate, limit: Sequence[Fence], revoked: bool
) -> None:
    assert (
        is_revoked(one, verdict(Outcome.FAIL, check="completeness", at=LATER, as_of=limit))
        is revoked
    )


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNKNOWN])
def test_nothing_but_a_fail_takes_back(outcome: Outcome) -> None:
    assert not is_revoked(
        certificate(fence(5, CUT)),
        verdict(outcome, check="completeness", at=LATER, as_of=(fence(9, CUT),)),
    )


@pytest.mark.parametrize(
    ("one", "limit", "spared"),
    [
        pytest.param(certificate(fence(4, CUT)), [fence(5, CUT)], True, id="wholly below it"),
        pytest.param(certificate(fence(5, CUT)), [fence(5, CUT)], False, id="at its end"),
        pytest.param(
            certificate(fence(4, CUT, identity="B")), [fence(5, CUT)], False, id="of another server"
        ),
        pytest.param(
            certificate(fence(4, CUT)), [fence(5, CUT, "old")], False, id="of another source"
        ),
        pytest.param(
            certificate(fence(4, CUT), fence(4, CUT, "old")),
            [fence(5, CUT)],
            False,
            id="one source unseen",
        ),
        pytest.param(
            certificate(), [fence(5, CUT)], False, id="nothing is known of what it rests on"
        ),
        pytest.param(
            certificate(fence(4, CUT), issued=LATER), [fence(5, CUT)], False, id="issued with it"
        ),
    ],
)
def test_a_pass_spares_only_what_it_looked_at(
    one: Certificate, limit: Sequence[Fence], spared: bool
) -> None:
    fail = verdict(
        Outcome.FAIL, check="completeness", at=LATER + timedelta(minutes=1), as_of=(fence(9, CUT),)
    )

    assert (
        is_revoked(one, fail, verdict(Outcome.PASS, check="completeness", at=LATER, as_of=limit))
        is not spared
    )


STEP = ClockStep("shop", 3, 6, CUT, CUT + timedelta(minutes=2), CUT)


@pytest.mark.parametrize(
    ("one", "felled"),
    [
        pytest.param(certificate(fence(5, CUT)), True, id="its heartbeat is one of them"),
        pytest.param(certificate(fence(6, CUT)), False, id="a later one"),
        pytest.param(certificate(fence(5, CUT, "old")), False, id="of another source"),
        pytest.param(certificate(fence(5, CUT), fence(5, CUT, "old")), True, id="one of two"),
        pytest.param(certificate(fence(5, CUT), revoked=True), False, id="not a second time"),
    ],
)
def test_a_clock_that_went_back_takes_what_rests_on_its_times(
    one: Certificate, felled: bool
) -> None:
    assert [each.id for each in revoke_misdated([one], STEP)] == [one.id] * felled


def test_what_is_still_there_is_not_forfeited() -> None:
    assert revoke_lost([certificate(fence(5, CUT))], CertificateBasis(None, batch=9), NOW) == ()
