from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.blocks import Inputs, compared_since, unlogged_reasons
from checks.certificate import Certificate, revoke_failed
from checks.ledger import TableLosses
from checks.model import Outcome, Reason, Ruling, Verdict, Verified
from checks.readiness import (
    CheckNeed,
    Question,
    Readiness,
    ReadinessPolicy,
    ReadinessState,
    Rule,
    add_up,
    answer_for_display,
    assess,
)
from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Gap, OpenSnapshot, Quarantine
from pipeline.image import Image, shards_digest
from pipeline.lags.lag import HopLag, Lags
from pipeline.lags.samples import MirrorPosition, extend_batches, to_landed_batch
from pipeline.model import Hop, Lag, Missing, Order, Origin, Shard, Stage
from pipeline.reports import Hold
from tests.builders.values import fence, verdict
from tests.checks.samples import (
    CUT,
    GATING,
    NOW,
    TABLE,
    fence_series,
    healthy_checkpoint,
    lags,
    samples,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
MIRROR = Question(Stage.MIRROR, CUT)
LANDED = Question(Stage.LANDED, CUT)
BOTH = ReadinessPolicy(gating=GATING)


def gap_of(shard: str) -> Gap:
    return Gap("g1", "t", 0, 1, 9, "retention", shards=(f"shop/{shard}",), batch=4)


def inputs(*, taken: Mapping[str, Any] | None = None, **more: Any) -> Inputs:
    """A table that is ready at CUT, unless bent."""
    found = samples(**(taken or {}))
    return replace(Inputs(TABLE, found, lags(found)), **more)


def reason_codes(answer: Readiness) -> list[str]:
    return [reason.code for reason in answer.reasons]


def test_a_healthy_table_past_its_cut_is_ready_with_evidence() -> None:
    answer = assess(MIRROR, inputs(), BOTH)

    assert answer.ready
    assert answer.certificate
    evidence = answer.certificate.evidence
    assert (evidence.batch, evidence.version, evidence.applied) == (50, 7, 50)
    assert evidence.fences[0].at == CUT
    assert evidence.offsets == {"t:0": 1000}
    assert answer.unknown == tuple(sorted(GATING))


def test_landed_names_no_mirror_and_needs_none() -> None:
    answer = assess(LANDED, inputs(taken={"standing": Missing("no mirror")}), BOTH)

    assert answer.ready
    assert answer.certificate
    assert answer.certificate.evidence.version is None


def test_a_table_without_change_since_stays_complete() -> None:
    taken = {
        "landed": healthy_checkpoint(batch=90, tables={TABLE.name: 12}),
        "standing": MirrorPosition(3, 12),
    }

    assert assess(MIRROR, inputs(taken=taken), BOTH).ready


def test_a_mirror_that_holds_an_older_covering_batch_is_ready_under_steady_load() -> None:
    steps = extend_batches(
        (), to_landed_batch(healthy_checkpoint(batch=49, through=600), {"shop": fence_series()})
    )
    behind = {"steps": steps, "standing": MirrorPosition(6, 49)}
    earlier = Question(Stage.MIRROR, NOW - 3 * MINUTE)

    assert assess(earlier, inputs(taken=behind), BOTH).ready


@pytest.mark.parametrize(
    ("applied", "ready"), [(49, False), (50, True)], ids=["not applied yet", "applied"]
)
@pytest.mark.parametrize("rule", list(Rule))
def test_a_mirror_is_not_ready_before_it_holds_its_newest_base(
    rule: Rule, applied: int, *, ready: bool
) -> None:
    """What the base heals lies before the cut, which an earlier batch covers all the same."""
    landed = healthy_checkpoint(
        complete={Shard("shop", "shop_01.orders"): 50, Shard("shop", "other"): 51}
    )
    steps = extend_batches(
        (), to_landed_batch(healthy_checkpoint(batch=49, through=600), {"shop": fence_series()})
    )
    taken = {"landed": landed, "steps": steps, "standing": MirrorPosition(6, applied)}
    earlier = Question(Stage.MIRROR, NOW - 3 * MINUTE)

    answer = assess(earlier, inputs(taken=taken), ReadinessPolicy(rule, gating=GATING))

    assert answer.ready is ready
    assert answer.state is not ReadinessState.BLOCKED


@pytest.mark.parametrize(
    ("bent", "state", "code"),
    [
        pytest.param(
            {"landed": healthy_checkpoint(through=90)},
            ReadinessState.NOT_READY,
            "not_landed",
            id="W behind",
        ),
        pytest.param(
            {"standing": MirrorPosition(6, 49)},
            ReadinessState.UNKNOWN,
            "lag_unknown",
            id="mirror lost",
        ),
        pytest.param({"landed": Missing("x")}, ReadinessState.UNKNOWN, "no_mark", id="no mark"),
        pytest.param(
            {"standing": Missing("x")}, ReadinessState.UNKNOWN, "no_mirror", id="no mirror"
        ),
        pytest.param(
            {"ages": {"mark": MINUTE}}, ReadinessState.UNKNOWN, "no_mark", id="stale mark"
        ),
        pytest.param(
            {"fences": Missing("x")}, ReadinessState.UNKNOWN, "no_heartbeat", id="no heartbeat"
        ),
        pytest.param(
            {"fences": fence_series(until=NOW - 20 * MINUTE)},
            ReadinessState.UNKNOWN,
            "no_heartbeat",
            id="heartbeat dead before the cut",
        ),
        pytest.param(
            {"acknowledged": Missing("x")},
            ReadinessState.UNKNOWN,
            "lag_unknown",
            id="collector silent",
        ),
        pytest.param(
            {"landed": healthy_checkpoint(bases={})},
            ReadinessState.BLOCKED,
            "no_base",
            id="no base on any shard",
        ),
        pytest.param(
            {"landed": healthy_checkpoint(bases={Shard("shop", "shop_00.orders"): None})},
            ReadinessState.BLOCKED,
            "no_base",
            id="one shard without base",
        ),
        pytest.param(
            {"landed": healthy_checkpoint(gaps={"g1": gap_of("shop_01.orders")})},
            ReadinessState.BLOCKED,
            "gap",
            id="gap",
        ),
        pytest.param(
            {
                "landed": healthy_checkpoint(
                    quarantine={"s/t": Quarantine(TABLE.name, 3, 1, ("t:0:5@3",))}
                )
            },
            ReadinessState.BLOCKED,
            "quarantine",
            id="quarantined change",
        ),
        pytest.param(
            {
                "landed": healthy_checkpoint(
                    quarantine={"topic:x": Quarantine(None, 3, 1, ("x:0:5@3",))}
                )
            },
            ReadinessState.BLOCKED,
            "quarantine",
            id="quarantined change of a topic, own topics unknown",
        ),
    ],
)
def test_what_is_not_shown_withholds_ready(
    bent: Mapping[str, Any], state: ReadinessState, code: str
) -> None:
    answer = assess(MIRROR, inputs(taken=bent), BOTH)

    assert answer.state is state
    assert code in reason_codes(answer)
    assert answer.certificate is None


def test_f25_a_snapshot_that_does_not_end_is_named_with_its_waiver() -> None:
    snaps = {
        Shard.parse("shop/shop_09.users"): OpenSnapshot(Order(1, 1, 5), 40, 7),
        Shard.parse("other/db.t"): OpenSnapshot(Order(1, 1, 5), 3),
    }
    taken = {"landed": healthy_checkpoint(snaps=snaps)}

    answer = assess(MIRROR, inputs(taken=taken), BOTH)

    told = [reason for reason in answer.reasons if reason.code == "snapshot"]
    assert answer.state in (ReadinessState.NOT_READY, ReadinessState.UNKNOWN)
    assert [reason.id for reason in told] == ["snapshot:shop/shop_09.users@40"]
    assert "7 rows" in told[0].text


def test_a_cut_that_is_not_past_is_not_ready_and_says_when() -> None:
    question = Question(Stage.MIRROR, NOW - 5 * SECOND)

    answer = assess(question, inputs(), replace(BOTH, margin=SECOND))

    assert answer.state is ReadinessState.NOT_READY
    assert reason_codes(answer) == ["late", "not_landed"]
    assert answer.eta == NOW + 6 * SECOND


def test_the_time_since_the_cut_must_be_above_the_lags_and_the_margin_not_at_them() -> None:
    told = inputs().lags
    total = told.total(Stage.MIRROR)
    assert isinstance(total, timedelta)
    at = told.at - total - SECOND

    assert add_up(Stage.MIRROR, at, told, SECOND).holds is False
    assert add_up(Stage.MIRROR, at - timedelta(microseconds=1), told, SECOND).holds is True


def test_a_cut_that_no_heartbeat_has_come_to_is_not_ready_though_all_is_landed() -> None:
    """Without a fence nothing stands for the cut, and nothing is not everything."""
    held = inputs(taken={"fences": fence_series(until=NOW - SECOND)})

    answer = assess(
        Question(Stage.LANDED, NOW), held, ReadinessPolicy(rule=Rule.PROOF, gating=GATING)
    )

    assert answer.state is ReadinessState.NOT_READY
    assert reason_codes(answer) == ["no_fence"]


def test_a_cut_ahead_says_so() -> None:
    answer = assess(Question(Stage.LANDED, NOW + MINUTE), inputs(), BOTH)

    assert answer.state is ReadinessState.NOT_READY
    assert "cut_ahead" in reason_codes(answer)


@pytest.mark.parametrize(
    ("others", "ready"),
    [
        pytest.param(
            {"landed": healthy_checkpoint(gaps={"g1": gap_of("other.t")})}, True, id="another's gap"
        ),
        pytest.param(
            {
                "landed": healthy_checkpoint(
                    quarantine={"s/u": Quarantine("shop.users", 3, 1, ("t:0:5@3",))}
                )
            },
            True,
            id="another's change",
        ),
    ],
)
def test_what_concerns_other_tables_does_not_block(others: Mapping[str, Any], ready: bool) -> None:
    assert assess(MIRROR, inputs(taken=others), BOTH).ready is ready


def test_a_topic_s_quarantine_blocks_only_the_tables_of_that_topic() -> None:
    taken = {
        "landed": healthy_checkpoint(quarantine={"topic:x": Quarantine(None, 3, 1, ("x:0:5@3",))})
    }

    mine = assess(MIRROR, inputs(taken=taken, topics=frozenset({"x"})), BOTH)
    other = assess(MIRROR, inputs(taken=taken, topics=frozenset({"y"})), BOTH)

    assert (mine.state, other.state) == (ReadinessState.BLOCKED, ReadinessState.READY)


def test_rows_of_an_unreadable_minute_block_and_say_what_a_person_does() -> None:
    answer = assess(MIRROR, inputs(losses=TableLosses(unreadable=2)), BOTH)

    (reason,) = [one for one in answer.reasons if one.code == "residual"]
    assert "2 of the ledger's messages or rows did not come out" in reason.text
    assert "delete it (docs/runbooks/lost.md)" in reason.text
    assert "bootstrap" not in reason.text


@pytest.mark.parametrize(
    ("more", "id_"),
    [
        pytest.param(
            {"holds": (Hold("h1", TABLE.name, "foreign_write", "by x"),)}, "h1", id="table held"
        ),
        pytest.param(
            {"holds": (Hold("h2", "source:shop", "disorder", "x"),)}, "h2", id="source held"
        ),
        pytest.param({"residual": 2}, f"unbalanced:{TABLE.name}@2", id="unbalanced account"),
        pytest.param(
            {"taken": {"landed": healthy_checkpoint(gaps={"g1": gap_of("shop_01.orders")})}},
            "g1",
            id="gap",
        ),
        pytest.param(
            {"verdicts": (verdict("fail", "17", at=NOW),)},
            f"range_counts:{TABLE.name}:17",
            id="failed gating check",
        ),
    ],
)
def test_a_block_ends_when_a_person_waives_its_id(more: dict[str, Any], id_: str) -> None:
    blocked = inputs(**more)

    before = assess(MIRROR, blocked, BOTH)
    after = assess(MIRROR, replace(blocked, waived=frozenset({id_})), BOTH)

    assert before.state is ReadinessState.BLOCKED
    assert before.reasons[0].id == id_
    assert after.ready


def test_holds_of_others_do_not_block() -> None:
    holds = (Hold("h", "shop.users", "no_key", "x"), Hold("i", "source:other", "disorder", "x"))

    assert assess(MIRROR, inputs(holds=holds), BOTH).ready


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        pytest.param((verdict("pass", at=NOW),), ReadinessState.READY, id="pass"),
        pytest.param(
            (verdict("unknown", at=NOW),), ReadinessState.READY, id="unknown is listed only"
        ),
        pytest.param((verdict("fail", at=NOW),), ReadinessState.BLOCKED, id="fail"),
        pytest.param(
            (verdict("fail", at=NOW - 9 * SECOND), verdict("unknown", at=NOW)),
            ReadinessState.BLOCKED,
            id="unknown clears nothing",
        ),
        pytest.param(
            (verdict("fail", at=NOW - 9 * SECOND), verdict("pass", at=NOW)),
            ReadinessState.READY,
            id="pass clears",
        ),
        pytest.param(
            (verdict("fail", check="volatility", at=NOW),), ReadinessState.READY, id="not gating"
        ),
        pytest.param(
            (verdict("fail", table="shop.users", at=NOW),),
            ReadinessState.READY,
            id="another table's",
        ),
    ],
)
def test_a_gating_check_blocks_by_fail_only(
    verdicts: tuple[Verdict, ...], state: ReadinessState
) -> None:
    assert assess(MIRROR, inputs(verdicts=verdicts), BOTH).state is state


@pytest.mark.parametrize(
    ("more", "state"), [(0, ReadinessState.READY), (1, ReadinessState.BLOCKED)], ids=["20", "21"]
)
def test_a_fail_is_waived_by_its_keys_only_if_they_are_all(
    more: int, state: ReadinessState
) -> None:
    keys = tuple(str(n) for n in range(20))
    ids = frozenset(f"range_counts:{TABLE.name}:{key}" for key in keys)
    fail = verdict("fail", *keys, at=NOW, more=more)

    assert assess(MIRROR, inputs(verdicts=(fail,), waived=ids), BOTH).state is state


def test_an_unproven_table_needs_a_waiver() -> None:
    cascade = inputs(unproven="a cascade from shop.users")

    assert assess(MIRROR, cascade, BOTH).state is ReadinessState.UNKNOWN
    waived = replace(cascade, waived=frozenset({assess(MIRROR, cascade, BOTH).reasons[0].id}))
    assert assess(MIRROR, waived, BOTH).ready


def test_a_table_that_may_have_shards_nobody_knows_is_not_ready_whatever_is_waived() -> None:
    unlisted = inputs(unlisted="source shop has not listed its tables: down")
    waived = replace(unlisted, waived=frozenset({f"unproven:{TABLE.name}@00000000"}))

    answer = assess(MIRROR, waived, BOTH)

    assert answer.state is ReadinessState.UNKNOWN
    assert [(reason.code, reason.id) for reason in answer.reasons] == [("unlisted", "")]


def test_a_table_whose_schema_nobody_has_told_is_not_called_ready() -> None:
    untold = inputs(unproven=Missing("source shop has not described its tables: down"))

    answer = assess(MIRROR, untold, BOTH)

    assert answer.state is ReadinessState.UNKNOWN
    assert [reason.code for reason in answer.reasons] == ["not_described"]


FAILED = {"range_counts": NOW}
EARLIER = {"range_counts": NOW - SECOND}
REREAD = Backfill("r1", Origin.REPAIR, Order(1, 1, 5), "A", 40)
COPY = Question(Stage.COPY, CUT, "redis")
IMAGE = Question(Stage.IMAGE, CUT)
BY_PROOF = ReadinessPolicy(Rule.PROOF, gating=GATING)


def reading_again(shard: str, backfill: Backfill) -> dict[str, Any]:
    return {"landed": healthy_checkpoint(backfills={Shard.parse(f"shop/{shard}"): backfill})}


@pytest.mark.parametrize(
    ("question", "more", "ready"),
    [
        pytest.param(MIRROR, {"bad_until": FAILED}, False, id="at the last look"),
        pytest.param(
            MIRROR, {"bad_until": {"range_counts": NOW + SECOND}}, False, id="after the last look"
        ),
        pytest.param(
            MIRROR, {"bad_until": {"range_counts": NOW - SECOND}}, True, id="before the last look"
        ),
        pytest.param(MIRROR, {"bad_until": {"volatility": NOW}}, True, id="a check of no weight"),
        pytest.param(LANDED, {"bad_until": FAILED}, True, id="asked of the change log"),
        pytest.param(
            MIRROR,
            {"bad_until": FAILED, "verdicts": (verdict("pass", at=NOW),)},
            False,
            id="it passes by now",
        ),
        pytest.param(
            MIRROR,
            {
                "bad_until": FAILED,
                "verdicts": (verdict("fail", "7", at=NOW),),
                "waived": frozenset({f"range_counts:{TABLE.name}:7"}),
            },
            True,
            id="it still fails, and that is waived",
        ),
        pytest.param(
            MIRROR,
            {
                "bad_until": dict.fromkeys(("offset_keys", "range_counts"), NOW),
                "verdicts": (verdict("fail", "7", at=NOW),),
                "waived": frozenset({f"range_counts:{TABLE.name}:7"}),
            },
            False,
            id="another check failed, too",
        ),
    ],
)
def test_a_mirror_that_was_looked_at_before_a_fail_had_ended_is_not_ready(
    question: Question, more: dict[str, Any], ready: bool
) -> None:
    """What was repaired may not be in the version that was looked at."""
    answer = assess(question, inputs(**more), BOTH)

    assert answer.ready is ready
    assert ("check_failed" in reason_codes(answer)) is not ready
    assert ready or answer.state is ReadinessState.NOT_READY


@pytest.mark.parametrize(
    ("question", "taken", "bad_until", "ready"),
    [
        pytest.param(COPY, reading_again("shop_01.orders", REREAD), EARLIER, False, id="a copy"),
        pytest.param(MIRROR, reading_again("shop_01.orders", REREAD), EARLIER, True, id="a mirror"),
        pytest.param(COPY, reading_again("shop_01.orders", REREAD), {}, True, id="no check failed"),
        pytest.param(COPY, {}, EARLIER, True, id="it is not read again"),
        pytest.param(
            COPY, reading_again("others", REREAD), EARLIER, True, id="another table is read again"
        ),
        pytest.param(
            COPY,
            reading_again("shop_00.orders", replace(REREAD, done=45)),
            EARLIER,
            True,
            id="it was read again",
        ),
    ],
)
def test_a_copy_is_not_ready_while_a_table_that_failed_is_read_again(
    question: Question, taken: dict[str, Any], bad_until: Mapping[str, datetime], ready: bool
) -> None:
    """A copy may lack rows that the mirror has by now."""
    answer = assess(question, inputs(taken=taken, bad_until=bad_until), BY_PROOF)

    assert answer.ready is ready
    assert reason_codes(answer) == ([] if ready else ["check_failed"])


def imaged(**bent: Any) -> dict[str, Any]:
    """A mirror with an image of CUT, made at NOW."""
    image = Image(
        CUT,
        6,
        50,
        (fence(100, CUT),),
        {"shop": Order(1, 1, 10_000)},
        NOW,
        NOW + MINUTE,
        shards=shards_digest(TABLE.shards),
    )
    mirror = bent.pop("mirror", "m")
    return {"standing": MirrorPosition(7, 50, mirror, images=(replace(image, **bent),))}


@pytest.mark.parametrize(
    ("bad_until", "ready"),
    [
        pytest.param({"range_counts": NOW + SECOND}, False, id="after it was made"),
        pytest.param({"range_counts": NOW}, True, id="until it was made"),
        pytest.param({"volatility": NOW + SECOND}, True, id="a check of no weight"),
    ],
)
def test_an_image_from_before_a_fail_had_ended_is_not_ready(
    bad_until: Mapping[str, datetime], ready: bool
) -> None:
    answer = assess(IMAGE, inputs(taken=imaged(), bad_until=bad_until), BY_PROOF)

    assert answer.ready is ready
    assert reason_codes(answer) == ([] if ready else ["image_doubted"])


@pytest.mark.parametrize(
    ("bent", "state"),
    [
        pytest.param({}, ReadinessState.REVOKED, id="the same image"),
        pytest.param({"version": 7}, ReadinessState.READY, id="another version"),
        pytest.param({"mirror": "n"}, ReadinessState.READY, id="of another mirror"),
        pytest.param({"batch": 49}, ReadinessState.READY, id="through another batch"),
    ],
)
def test_a_revoked_image_is_ready_again_only_once_it_was_made_anew(
    bent: dict[str, Any], state: ReadinessState
) -> None:
    """A repair goes into the mirror, and never into a version from before."""
    given = assess(IMAGE, inputs(taken=imaged()), BY_PROOF).certificate
    assert given
    revoked = replace(given, revoked=NOW, why="range_counts: 3 rows missing")

    answer = assess(IMAGE, inputs(taken=imaged(**bent)), BY_PROOF, certificate=revoked)

    assert answer.state is state


def test_a_revoked_certificate_of_an_image_withholds_nothing_from_what_is_unknown() -> None:
    given = assess(IMAGE, inputs(taken=imaged()), BY_PROOF).certificate
    assert given
    silent = inputs(taken={**imaged(), "landed": Missing("down")})

    answer = assess(IMAGE, silent, BY_PROOF, certificate=replace(given, revoked=NOW, why="x"))

    assert answer.state is ReadinessState.REVOKED
    assert reason_codes(answer) == ["revoked", "no_mark"]


def test_a_required_check_that_has_worked_keeps_its_certificate_valid() -> None:
    worked = inputs(verdicts=(verdict("pass", at=NOW),))
    given = assess(MIRROR, worked, REQUIRED).certificate
    behind = inputs(taken={"landed": healthy_checkpoint(through=90)})

    answer = assess(MIRROR, behind, REQUIRED, certificate=given)

    assert (answer.ready, reason_codes(answer)[0]) == (True, "certified")


def test_a_certificate_does_not_answer_for_a_table_whose_order_is_too_weak_now() -> None:
    weak = Reason("weak_order", "source shop sends no log positions any more")

    answer = assess_certified(MIRROR, weak_order=(weak,))

    assert (answer.state, answer.reasons) == (ReadinessState.UNKNOWN, (weak,))


def test_only_a_yes_says_on_what_it_rests() -> None:
    """A table that is BLOCKED needs no word of the checks that could not look."""
    answer = assess_certified(MIRROR, holds=(WRITTEN,), verdicts=UNSUPPORTED)

    assert reason_codes(answer) == ["foreign_write"]


@pytest.mark.parametrize(
    ("since", "text"),
    [
        pytest.param(timedelta(), "0.0 s since the cut, lags sum to", id="at the cut"),
        pytest.param(SECOND, "1.0 s since the cut, lags sum to", id="after it"),
        pytest.param(-SECOND, "the cut is 0:00:01 ahead", id="before it"),
    ],
)
def test_a_cut_that_is_late_says_how_long_ago_it_was(since: timedelta, text: str) -> None:
    lags = Lags(TABLE.name, NOW, tuple(HopLag(hop, SECOND, NOW, SECOND) for hop in Hop))

    (reason,) = add_up(Stage.MIRROR, NOW - since, lags, SECOND).reasons

    assert reason.text.startswith(text)


def issued() -> Certificate:
    certificate = assess(MIRROR, inputs(), BOTH).certificate
    assert certificate
    return certificate


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param({"landed": Missing("down"), "fences": Missing("down")}, id="upstream"),
        pytest.param({"standing": Missing("down")}, id="the mirror"),
    ],
)
def test_a_certificate_answers_its_cut_whatever_goes_missing_later(gone: dict[str, Any]) -> None:
    answer = assess(MIRROR, inputs(taken=gone), BOTH, certificate=issued())

    assert answer.ready
    assert answer.certificate == issued()


@pytest.mark.parametrize("question", [MIRROR, LANDED], ids=["mirror", "landed"])
def test_no_certificate_answers_for_a_source_that_the_table_did_not_have(
    question: Question,
) -> None:
    """A source that was taken out of the config, and added again, may have unread changes."""
    without = assess(question, inputs(), BOTH).certificate
    every = replace(TABLE, shards=(*TABLE.shards, Shard("second", "shop.orders_9")))

    landed = healthy_checkpoint()
    bases = {**landed.bases, every.shards[-1]: Order(1, 1, 0)}

    now = inputs(table=every, taken={"landed": replace(landed, bases=bases)})
    answer = assess(question, now, BOTH, certificate=without)

    assert without is not None
    assert (answer.state, reason_codes(answer)) == (
        ReadinessState.UNKNOWN,
        ["no_heartbeat"],
    )


CASCADE = "rows changed by foreign keys are in no log"
BACK = Reason("clock", "the clocks went back", "clock:shop:9")


@pytest.mark.parametrize(
    ("doubt", "id_"),
    [
        pytest.param({"unproven": CASCADE}, unlogged_reasons(TABLE, CASCADE)[0].id, id="cascade"),
        pytest.param({"clocks": (BACK,)}, BACK.id, id="clocks"),
    ],
)
def test_no_certificate_answers_that_was_issued_under_a_waiver_that_has_ended(
    doubt: dict[str, Any], id_: str
) -> None:
    on_it = replace(issued(), evidence=replace(issued().evidence, waived=(id_,)))

    under = assess(MIRROR, inputs(**doubt), BOTH, certificate=on_it)
    other = assess(MIRROR, inputs(**doubt), BOTH, certificate=issued())
    over = assess(MIRROR, inputs(), BOTH, certificate=on_it)

    assert (under.state, under.certificate) == (ReadinessState.UNKNOWN, None)
    assert (other.certificate, over.certificate) == (issued(), on_it)


def test_a_certificate_answers_for_a_table_that_has_one_source_less() -> None:
    given = issued()
    second = replace(given.evidence.fences[0], source="second")
    both = replace(given, evidence=replace(given.evidence, fences=(*given.evidence.fences, second)))

    answer = assess(MIRROR, inputs(), BOTH, certificate=both)

    assert (answer.ready, answer.certificate) == (True, both)


def test_a_revoked_certificate_says_revoked_until_a_new_one_can_be_issued() -> None:
    old = replace(issued(), revoked=NOW, why="range_counts: 3 rows missing")

    bad = assess(MIRROR, inputs(verdicts=(verdict("fail", at=NOW),)), BOTH, certificate=old)
    good = assess(MIRROR, inputs(), BOTH, certificate=old)

    assert bad.state is ReadinessState.REVOKED
    assert reason_codes(bad)[:2] == ["revoked", "check_failed"]
    assert good.ready
    assert good.certificate
    assert good.certificate.revoked is None


def passed(number: int, *, at: datetime = NOW + SECOND, identity: str = "A") -> Verdict:
    """A PASS ruled at *at*, as of heartbeat *number*."""
    return verdict("pass", at=at, as_of=(fence(number, NOW, identity=identity),))


@pytest.mark.parametrize(
    ("as_of", "last_pass", "revoked"),
    [
        pytest.param(fence(300, NOW), None, True, id="above it, never passed"),
        pytest.param(fence(2, NOW), None, True, id="below it, which may be as wrong"),
        pytest.param(fence(300, NOW), passed(290, at=NOW - SECOND), True, id="issued since"),
        pytest.param(fence(300, NOW), passed(290), False, id="passed since, past its cut"),
        pytest.param(fence(300, NOW), passed(2), True, id="passed since, short of its cut"),
        pytest.param(fence(300, NOW), passed(290, identity="B"), True, id="passed elsewhere"),
        pytest.param(fence(2, NOW, identity="B"), None, True, id="positions of two servers"),
        pytest.param(None, None, True, id="no position at all"),
    ],
)
def test_a_fail_revokes_what_it_can_have_made_wrong(
    as_of: Any, last_pass: Verdict | None, revoked: bool
) -> None:
    fail = verdict("fail", as_of=(as_of,) if as_of else (), at=NOW)

    found = revoke_failed(fail, [issued()], last_pass)

    assert [one.id for one in found] == ([issued().id] if revoked else [])
    assert all(one.revoked == fail.at and "range_counts" in one.why for one in found)


def test_only_a_fail_of_the_table_revokes_and_only_once() -> None:
    gone = replace(issued(), revoked=NOW)

    assert revoke_failed(verdict("pass", at=NOW), [issued()], None) == ()
    assert revoke_failed(verdict("fail", table="x", at=NOW), [issued()], None) == ()
    assert revoke_failed(verdict("fail", at=NOW), [gone], None) == ()


def test_rules_that_disagree_for_ten_minutes_are_an_incident() -> None:
    question, since = Question(Stage.LANDED, NOW - 12 * SECOND), NOW - 10 * MINUTE

    first = assess(question, too_slow(), BOTH)
    later = assess(question, too_slow(), BOTH, disagreeing=since)

    assert first.disagreeing == NOW
    assert "rules_disagree" not in reason_codes(first)
    assert later.disagreeing == since
    assert "rules_disagree" in reason_codes(later)


def too_slow() -> Inputs:
    """Each lag is measured as a minute more than it is."""
    known = inputs()
    hops = [
        one if isinstance(one.lag, Missing) else replace(one, lag=one.lag + MINUTE)
        for one in known.lags.hops
    ]
    return replace(known, lags=replace(known.lags, hops=tuple(hops)))


def test_a_sum_rule_that_only_waits_for_the_margin_disagrees_with_nobody() -> None:
    question, wide = Question(Stage.LANDED, NOW - 12 * SECOND), replace(BOTH, margin=30 * MINUTE)

    answer = assess(question, inputs(), wide, disagreeing=NOW - 10 * MINUTE)

    assert reason_codes(answer) == ["late"]
    assert answer.disagreeing is None


def test_an_image_that_is_not_there_is_no_disagreement_of_the_rules() -> None:
    question = Question(Stage.IMAGE, CUT)

    answer = assess(question, inputs(), BOTH, disagreeing=NOW - 10 * MINUTE)

    assert reason_codes(answer) == ["no_image"]
    assert answer.disagreeing is None


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        pytest.param(Rule.SUM, ReadinessState.NOT_READY, id="the margin is the sum rule's"),
        pytest.param(Rule.PROOF, ReadinessState.READY, id="positions suffice"),
        pytest.param(Rule.BOTH, ReadinessState.NOT_READY, id="both must hold"),
    ],
)
def test_the_operator_chooses_the_rule(rule: Rule, state: ReadinessState) -> None:
    question = Question(Stage.LANDED, NOW - 12 * SECOND)

    assert (
        assess(question, inputs(), ReadinessPolicy(rule=rule, margin=MINUTE, gating=GATING)).state
        is state
    )


spans = st.integers(0, 900).map(lambda seconds: timedelta(seconds=seconds))
missing = st.just(Missing("gone"))


def measured(values: tuple[Lag, Lag, Lag]) -> Lags:
    hops = zip((Hop.COLLECTION, Hop.CONSUMER, Hop.MERGE), values, strict=True)
    return Lags(TABLE.name, NOW, tuple(HopLag(hop, lag, NOW, SECOND) for hop, lag in hops))


@given(st.tuples(spans, spans, spans), st.integers(0, 2), spans, st.sampled_from(Rule))
def test_readiness_is_monotone_in_every_lag(
    values: tuple[timedelta, timedelta, timedelta], index: int, more: timedelta, rule: Rule
) -> None:
    raised = [*values]
    raised[index] += more
    policy = ReadinessPolicy(rule=rule, gating=GATING)

    low = assess(MIRROR, inputs(lags=measured(values)), policy)
    high = assess(MIRROR, inputs(lags=measured((raised[0], raised[1], raised[2]))), policy)

    assert low.ready or not high.ready


@given(
    st.tuples(spans | missing, spans | missing, spans | missing),
    st.sampled_from(["fences", "acknowledged", "landed", "standing", None]),
)
def test_with_any_input_missing_it_is_never_ready(
    values: tuple[Lag, Lag, Lag], gone: str | None
) -> None:
    bent = inputs(taken={gone: Missing("gone")} if gone else None)
    summed = bent if gone else replace(bent, lags=measured(values))

    answer = assess(MIRROR, summed, BOTH)

    if gone or any(isinstance(each, Missing) for each in values):
        assert answer.state is ReadinessState.UNKNOWN


REQUIRED = ReadinessPolicy(checks=CheckNeed.REQUIRED, gating=GATING)
UNSUPPORTED = tuple(
    replace(one, ruling=replace(one.ruling, code="unsupported"))
    for one in (verdict("unknown", check=name, at=NOW) for name in sorted(BOTH.gating))
)


def test_f115_a_table_that_no_gating_check_can_look_at_is_said_to_be_so() -> None:
    answer = assess(MIRROR, inputs(verdicts=UNSUPPORTED), BOTH)

    assert answer.ready
    assert "unchecked" in reason_codes(answer)
    assert "range_counts: because" in answer.reasons[-1].text


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        pytest.param((), ReadinessState.UNKNOWN, id="none has looked"),
        pytest.param(UNSUPPORTED, ReadinessState.UNKNOWN, id="none can"),
        pytest.param(
            (*UNSUPPORTED, verdict("pass", check="range_counts", at=NOW - 9 * SECOND)),
            ReadinessState.UNKNOWN,
            id="none can any more",
        ),
        pytest.param(
            (verdict("pass", check="schema", at=NOW),),
            ReadinessState.UNKNOWN,
            id="columns are no rows",
        ),
        pytest.param((verdict("pass", at=NOW),), ReadinessState.READY, id="one works"),
        pytest.param(
            (verdict("pass", at=NOW - 9 * SECOND), verdict("unknown", at=NOW)),
            ReadinessState.READY,
            id="its source is away for a while",
        ),
    ],
)
def test_f115_the_config_can_require_a_check_that_works(
    verdicts: tuple[Verdict, ...], state: ReadinessState
) -> None:
    before = assess(MIRROR, inputs(verdicts=verdicts), BOTH).certificate

    answer = assess(MIRROR, inputs(verdicts=verdicts), REQUIRED)
    again = assess(MIRROR, inputs(verdicts=verdicts), REQUIRED, certificate=before)

    assert (answer.state, again.state) == (state, state)
    assert ("unchecked" in reason_codes(answer)) is (state is ReadinessState.UNKNOWN)


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (timedelta(days=1134, hours=2), "the cut is 1134 days, 2:00:00 ahead"),
        (timedelta(hours=3), "the cut is 3:00:00 ahead"),
        (timedelta(milliseconds=1), "the cut is 0:00:00.001000 ahead"),
    ],
)
def test_f194_a_cut_ahead_has_no_negative_age(ahead: timedelta, told: str) -> None:
    lags = Lags(TABLE.name, NOW, tuple(HopLag(hop, SECOND, NOW, SECOND) for hop in Hop))

    found = add_up(Stage.MIRROR, NOW + ahead, lags, SECOND)

    assert found.holds is False
    assert [one.text for one in found.reasons] == [told]


def test_an_eta_is_in_the_last_second_there_is_at_most() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    lags = Lags(TABLE.name, NOW, tuple(HopLag(hop, SECOND, NOW, SECOND) for hop in Hop))

    found = add_up(Stage.MIRROR, last - SECOND, lags, SECOND)

    assert (found.holds, found.eta) == (False, last)


WRITTEN = Hold("foreign_write:db.t:8", TABLE.name, "foreign_write", "version 8 is not Sluice's")
STILL = Hold("schema:db.t", TABLE.name, "schema", "a column was dropped")
CLOCK = Reason("clock", "source shop: its clock is 720.0 s ahead of Sluice's")
RECENT = Question(Stage.LANDED, NOW - 12 * SECOND)  # by positions in, by clocks not yet


def test_only_what_is_not_ready_yet_has_an_eta() -> None:
    gone = inputs(taken={"landed": Missing("down")})

    assert assess(MIRROR, inputs(), BOTH).eta is None
    assert assess(MIRROR, inputs(holds=(STILL,)), BOTH).eta is None
    assert assess(MIRROR, gone, BOTH).eta is None
    assert assess(RECENT, inputs(), replace(BOTH, margin=MINUTE)).eta is not None


def test_an_answer_for_the_eye_is_the_same_without_a_certificate() -> None:
    slow = replace(BOTH, margin=MINUTE)

    yes, no = answer_for_display(MIRROR, inputs(), BOTH), answer_for_display(RECENT, inputs(), slow)

    assert (yes.state, yes.eta, yes.certificate) == (ReadinessState.READY, None, None)
    assert (no.state, no.certificate) == (ReadinessState.NOT_READY, None)
    assert no.eta == assess(RECENT, inputs(), slow).eta is not None


def test_by_the_sum_rule_alone_positions_are_not_asked() -> None:
    """As where a collector cannot say what it has acknowledged."""
    behind = inputs(taken={"landed": healthy_checkpoint(through=90)}, lags=inputs().lags)

    by_clocks = assess(LANDED, behind, ReadinessPolicy(rule=Rule.SUM, gating=GATING))
    by_both = assess(LANDED, behind, BOTH)

    assert (by_clocks.state, reason_codes(by_clocks)) == (ReadinessState.READY, [])
    assert (by_both.state, reason_codes(by_both)) == (ReadinessState.NOT_READY, ["not_landed"])


@pytest.mark.parametrize("question", [MIRROR, LANDED])
def test_f01_no_answer_is_ready_by_clocks_that_nobody_believes(question: Question) -> None:
    answer = assess(question, inputs(clocks=(CLOCK,)), BOTH)

    assert answer.state is ReadinessState.UNKNOWN
    assert answer.reasons[0] == CLOCK


def test_f01_rules_do_not_disagree_by_clocks_that_nobody_believes() -> None:
    wrong = replace(too_slow(), clocks=(CLOCK,))

    answer = assess(RECENT, wrong, BOTH, disagreeing=NOW - 10 * MINUTE)

    assert answer.disagreeing is None
    assert "rules_disagree" not in reason_codes(answer)


def assess_certified(question: Question, **more: Any) -> Readiness:
    """What is answered to *question*, which has a certificate, as things stand now."""
    one = replace(issued(), stage=question.stage)
    return assess(question, inputs(**more), BOTH, certificate=one)


def test_f02_a_certificate_does_not_answer_over_rows_that_others_wrote() -> None:
    answer = assess_certified(MIRROR, holds=(WRITTEN,))

    assert (answer.state, answer.certificate) == (ReadinessState.BLOCKED, None)
    assert reason_codes(answer) == ["foreign_write"]


@pytest.mark.parametrize(
    ("question", "more"),
    [
        pytest.param(LANDED, {"holds": (WRITTEN,)}, id="written to the mirror, asked of the log"),
        pytest.param(MIRROR, {"holds": (STILL,)}, id="held for what comes later"),
        pytest.param(MIRROR, {"holds": (WRITTEN,), "waived": frozenset({WRITTEN.id})}, id="waived"),
    ],
)
def test_a_certificate_answers_whatever_came_later(
    question: Question, more: dict[str, Any]
) -> None:
    answer = assess_certified(question, **more)

    assert answer.ready
    assert reason_codes(answer) == ["certified"]


def disagreeing(question: Question, held: Inputs, policy: ReadinessPolicy) -> str:
    answer = assess(question, held, policy, disagreeing=NOW - 10 * MINUTE)
    (told,) = [reason.text for reason in answer.reasons if reason.code == "rules_disagree"]
    return told


def test_rules_that_disagree_are_told_by_their_names() -> None:
    behind = inputs(taken={"landed": healthy_checkpoint(through=90)}, lags=inputs().lags)

    by_positions = disagreeing(RECENT, too_slow(), BOTH)
    by_clocks = disagreeing(LANDED, behind, BOTH)

    assert by_positions.startswith("proof says ready, sum rule says not")
    assert by_clocks.startswith("sum rule says ready, proof says not")


@pytest.mark.parametrize("rule", list(Rule))
def test_no_table_is_ready_without_evidence_for_a_certificate(rule: Rule) -> None:
    """Clocks that say ready do not say which heartbeat, batch and version a job would read."""
    blind = inputs(taken={"fences": Missing("down")}, lags=inputs().lags)

    answer = assess(MIRROR, blind, ReadinessPolicy(rule=rule, gating=GATING))

    assert (answer.state, answer.certificate) == (ReadinessState.UNKNOWN, None)
    assert "no_heartbeat" in reason_codes(answer)


COMPARED = tuple(f"{one.source}/{one.name}" for one in TABLE.shards)
claim = partial(Verified, shards=COMPARED, looked=50, life=7)


WRONG = Verdict(
    TABLE.name,
    "values",
    Ruling(Outcome.FAIL, "1 row different", "different_rows", ("shop/t:1",)),
    NOW,
    verified=claim(CUT, CUT, 50),
)


@pytest.mark.parametrize(
    ("known", "verdicts", "why"),
    [
        pytest.param(None, (), "is the probe `values` on?", id="nothing compares"),
        pytest.param(claim(None, None, 50), (), "the first lap over", id="not all rows yet"),
        pytest.param(
            claim(None, None, 50, "values", lapless=True),
            (),
            "values has `ranges: 0`",
            id="no laps",
        ),
        pytest.param(claim(None, CUT, 50), (), "none yet were compared", id="no change yet"),
        pytest.param(claim(CUT - MINUTE, CUT, 50), (), "those until", id="not up to the cut"),
        pytest.param(claim(NOW, CUT, 51), (), "held batch 51", id="the mirror was put back"),
        pytest.param(claim(NOW, CUT, 50), (WRONG,), "values failed: 1 row", id="rows differ"),
        pytest.param(claim(CUT, CUT, 50), (), "", id="up to the cut"),
        pytest.param(
            claim(CUT, CUT, 50),
            (
                replace(WRONG, ruling=Ruling(Outcome.PASS, "all rows are equal")),
                verdict("fail", check="volatility", at=NOW),
            ),
            "",
            id="a check that compares no rows fails",
        ),
    ],
)
def test_verified_is_asked_for_and_each_changed_row_up_to_the_cut_was_compared(
    known: Verified | None, verdicts: tuple[Verdict, ...], why: str
) -> None:
    bent, question = inputs(verified=known, verdicts=verdicts), replace(MIRROR, verified=True)

    answer = assess(question, bent, BOTH)
    plain = assess(MIRROR, bent, BOTH)
    again = assess(question, bent, BOTH, certificate=plain.certificate)

    assert plain.ready
    assert answer.ready == again.ready == (not why)
    assert bool(answer.certificate) == (not why)
    assert why == "" or (reason_codes(answer), answer.eta) == (["not_verified"], None)
    assert why in (answer.reasons[0].text if why else "")
    assert plain.certificate is not None
    is_true = not why or "those until" in why
    claimed = known.through if known and is_true else None
    assert plain.certificate.evidence.verified_through == claimed
    assert plain.verified_through == claimed


@pytest.mark.parametrize(
    ("stage", "named"),
    [(Stage.MIRROR, True), (Stage.LANDED, False), (Stage.COPY, False), (Stage.IMAGE, False)],
)
def test_only_answers_about_the_mirror_say_that_its_rows_were_compared(
    stage: Stage, named: bool
) -> None:
    question = replace(IMAGE if stage is Stage.IMAGE else MIRROR, stage=stage)
    taken = imaged() if stage is Stage.IMAGE else {}
    bent = inputs(taken=taken, verified=claim(NOW, CUT, 50))

    answer = assess(question, bent, BOTH)

    shown = answer_for_display(question, bent, BOTH)
    assert {answer.verified_through, shown.verified_through} == {NOW if named else None}
    assert stage is Stage.COPY or answer.certificate is not None
    if answer.certificate is not None:
        assert answer.certificate.evidence.verified_through == answer.verified_through


@pytest.mark.parametrize("partial_", [False, True])
def test_rows_that_were_compared_in_some_columns_only_make_no_loss_good(*, partial_: bool) -> None:
    bent = inputs(verified=claim(NOW, CUT, 50, partial=partial_))

    assert compared_since(bent) == (None if partial_ else CUT)


def verified_inputs(version: int, **more: Any) -> Inputs:
    """The table at that version of its mirror, whose rows are equal up to now."""
    known = claim(NOW, CUT, 50, check="values")
    return inputs(taken={"standing": MirrorPosition(version, 50)}, **{"verified": known, **more})


def version_of(answer: Readiness) -> int | None:
    return answer.certificate.evidence.version if answer.certificate else None


@pytest.mark.parametrize("claimed", [None, CUT - MINUTE, CUT])
def test_verified_rows_are_certified_at_a_version_that_was_compared(
    claimed: datetime | None,
) -> None:
    """A certificate of before the comparison names a version that a repair has changed since."""
    known = claim(claimed, CUT, 50, check="values")
    plain = assess(MIRROR, verified_inputs(5, verified=known), BOTH)
    assert plain.certificate is not None
    before = replace(plain.certificate, issued=NOW - MINUTE)

    later = assess(replace(MIRROR, verified=True), verified_inputs(9), BOTH, certificate=before)
    still = assess(MIRROR, verified_inputs(9), BOTH, certificate=before)

    assert later.ready
    assert still.ready
    assert version_of(later) == (5 if claimed == CUT else 9)
    assert version_of(still) == 5, "a question that does not ask for it keeps its answer"


@pytest.mark.parametrize(
    ("failed", "version"),
    [
        pytest.param(NOW - 2 * MINUTE, 5, id="before it was issued"),
        pytest.param(NOW - MINUTE, 9, id="when it was issued"),
        pytest.param(NOW - SECOND * 30, 9, id="after it was issued"),
    ],
)
def test_a_fail_of_the_comparison_voids_what_earlier_certificates_claim(
    failed: datetime, version: int
) -> None:
    plain = assess(MIRROR, verified_inputs(5), BOTH)
    assert plain.certificate is not None
    before = replace(plain.certificate, issued=NOW - MINUTE)
    repaired = verified_inputs(9, bad_until={"values": failed})

    later = assess(replace(MIRROR, verified=True), repaired, BOTH, certificate=before)

    assert later.ready
    assert version_of(later) == version


@pytest.mark.parametrize(
    ("known", "landed", "why"),
    [
        pytest.param({"shards": COMPARED[:1]}, {}, "shop_01.orders is new", id="a new shard"),
        pytest.param(
            {}, {"complete": {Shard.parse(COMPARED[0]): 50}}, "", id="a base that was compared"
        ),
        pytest.param(
            {"looked": 49},
            {"complete": {Shard.parse(COMPARED[0]): 50}},
            "new base",
            id="a new base",
        ),
        pytest.param({"looked": 51}, {}, "lost batch 51", id="the log is shorter"),
        pytest.param({}, {"incarnations": {"0": 7}}, "", id="the same log"),
        pytest.param({}, {"incarnations": {"0": 7, "50": 8}}, "lost batch 50", id="another log"),
    ],
)
def test_rows_of_other_shards_bases_or_logs_were_not_compared(
    known: dict[str, Any], landed: dict[str, Any], why: str
) -> None:
    one = replace(claim(NOW, CUT, 50, check="values"), **known)
    taken = {"landed": healthy_checkpoint(**landed)}

    answer = assess(replace(MIRROR, verified=True), inputs(taken=taken, verified=one), BOTH)

    assert answer.ready is not bool(why)
    assert why in (answer.reasons[0].text if answer.reasons else "")
    assert reason_codes(answer) == (["not_verified"] if why else [])


@pytest.mark.parametrize(
    ("id_column", "why"),
    [
        pytest.param(None, "a scan of the whole table", id="a table that is compared by its key"),
        pytest.param("id", "has not ended a cycle", id="a table that was not compared yet"),
    ],
)
def test_a_probe_that_runs_and_verifies_nothing_is_not_asked_to_be_switched_on(
    id_column: str | None, why: str
) -> None:
    ran = replace(WRONG, ruling=Ruling(Outcome.PASS, "all rows are equal"), verified=None)
    held = inputs(verdicts=(ran,))
    held = replace(held, table=replace(held.table, id_column=id_column))

    answer = assess(replace(MIRROR, verified=True), held, BOTH)

    assert reason_codes(answer) == ["not_verified"]
    assert why in answer.reasons[0].text
    assert "on?" not in answer.reasons[0].text


def test_a_mirror_that_was_looked_at_before_the_comparison_passed_is_not_verified() -> None:
    stale = verified_inputs(5, bad_until={"values": NOW})

    answer = assess(replace(MIRROR, verified=True), stale, BOTH)
    plain = assess(MIRROR, stale, BOTH)

    assert (answer.state, reason_codes(answer)) == (ReadinessState.NOT_READY, ["not_verified"])
    assert "values failed until" in answer.reasons[0].text
    assert plain.certificate is not None
    assert plain.certificate.evidence.verified_through is None


def test_a_comparison_that_failed_in_an_earlier_run_has_failed_until_it_passes() -> None:
    """A stored verdict holds no claim."""
    failed = replace(WRONG, verified=None)

    answer = assess(replace(MIRROR, verified=True), verified_inputs(5, verdicts=(failed,)), BOTH)

    assert reason_codes(answer) == ["not_verified"]


def test_a_mirror_that_cannot_be_read_is_not_verified_though_it_was_before() -> None:
    known, question = claim(NOW, CUT, 50), replace(MIRROR, verified=True)
    gone = inputs(verified=known, taken={"standing": Missing("down")})

    evidence = replace(issued().evidence, verified_through=NOW)
    answer = assess(question, gone, BOTH, certificate=replace(issued(), evidence=evidence))

    assert (answer.state, reason_codes(answer)) == (ReadinessState.NOT_READY, ["not_verified"])
    assert "which it does not now" in answer.reasons[0].text


def test_a_table_that_is_blocked_says_that_and_not_what_is_not_verified() -> None:
    question = replace(MIRROR, verified=True)

    answer = assess(question, inputs(residual=3), BOTH)

    assert answer.state is ReadinessState.BLOCKED
    assert "not_verified" not in reason_codes(answer)
