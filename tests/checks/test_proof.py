"""Positions alone: which heartbeat that was passed proves a cut, in how many sources."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from checks import proof
from checks.blocks import Inputs
from checks.certificate import Evidence
from checks.proof import (
    doubtful_image_reasons,
    image_evidence,
    landed_offsets,
    missing_image_reasons,
    prove,
)
from checks.readiness import Question, Readiness, ReadinessPolicy, ReadinessState, Rule, assess
from pipeline.checkpoint import OpenSnapshot
from pipeline.clocks import first_fence
from pipeline.heartbeats import HeartbeatHistory, LandedHeartbeat
from pipeline.image import Image, LateChanges, shards_digest
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Sample,
    SourceSamples,
    extend_batches,
    require_fresh,
    to_landed_batch,
)
from pipeline.model import (
    Acknowledged,
    Fence,
    Missing,
    Order,
    PartitionEnd,
    Shard,
    Stage,
    TopicPartition,
)
from pipeline.sources.mysql.position import binlog_position
from tests.builders.values import fence
from tests.checks.samples import (
    BUDGET,
    CUT,
    GATING,
    NOW,
    TABLE,
    fence_series,
    healthy_checkpoint,
    lags,
    samples,
)
from tests.checks.test_readiness import inputs

T = TypeVar("T")
SECOND = timedelta(seconds=1)
TWO = replace(TABLE, shards=(*TABLE.shards, Shard("other", "shop_02.orders")))


@pytest.mark.parametrize(
    ("passed", "proven"),
    [
        pytest.param(fence(100, CUT), True, id="the cut's own"),
        pytest.param(fence(99, CUT - SECOND), False, id="the one before"),
        pytest.param(fence(101, CUT + SECOND), True, id="a later one"),
        pytest.param(fence(100, CUT - SECOND), True, id="its number, whatever its clock said"),
        pytest.param(fence(1, CUT, identity="B"), True, id="another server's, at the cut"),
        pytest.param(
            fence(900, CUT - SECOND, identity="B"), False, id="another server's, of before"
        ),
        pytest.param(None, False, id="none"),
    ],
)
def test_a_cut_is_proven_by_a_heartbeat_at_it_or_past_it(
    passed: Fence | None, *, proven: bool
) -> None:
    nothing = healthy_checkpoint(acknowledged={})
    steps = (LandedBatch(49, {TABLE.name: 49}, {"shop": passed} if passed else {}),)

    found = prove(TABLE, Stage.MIRROR, CUT, samples(landed=nothing, steps=steps), NOW)

    assert found.holds is proven


@pytest.mark.parametrize(
    ("through", "proven"), [(690, True), (90, False)], ids=["both", "one of two"]
)
def test_every_source_must_have_passed_it(through: int, *, proven: bool) -> None:
    landed, said = healthy_checkpoint(), Acknowledged(binlog_position(1, through * 100))
    both = replace(
        landed,
        acknowledged={**landed.acknowledged, "other": said},
        heartbeats={**landed.heartbeats, "other": through},
        epochs={**landed.epochs, "other": landed.epochs["shop"]},
    )
    taken = samples(landed=both)
    one = replace(taken.source("shop"), fences=Sample(fence_series(source="other"), NOW, BUDGET))

    found = prove(
        TWO, Stage.LANDED, CUT, replace(taken, sources={**taken.sources, "other": one}), NOW
    )
    silent = prove(TWO, Stage.LANDED, CUT, taken, NOW)

    assert (found.holds, silent.holds) == (proven, None)


@pytest.mark.parametrize("rule", list(Rule))
def test_no_rule_says_ready_without_evidence(rule: Rule) -> None:
    """Lags that are known still make no certificate where nobody knows what is landed."""
    known = lags(samples())
    blind = replace(inputs(taken={"landed": Missing("down")}), lags=known)

    answer = assess(Question(Stage.LANDED, CUT), blind, ReadinessPolicy(rule, gating=GATING))

    assert answer.state is ReadinessState.UNKNOWN
    assert answer.reasons
    assert answer.disagreeing is None


def test_rules_that_agree_contradict_nobody() -> None:
    for cut in (CUT, NOW - SECOND):
        answer = assess(Question(Stage.LANDED, cut), inputs(), ReadinessPolicy(gating=GATING))

        assert answer.disagreeing is None


def test_many_tables_of_one_look_ask_the_fences_once_for_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[datetime]()

    def counting(fences: Sequence[Fence], instant: datetime) -> Fence | None:
        asked.append(instant)
        return first_fence(fences, instant)

    monkeypatch.setattr(proof, "first_fence", counting)
    taken = samples()

    found = [
        prove(replace(TABLE, name=f"{TABLE.name}_{n}"), Stage.LANDED, CUT, taken, NOW).holds
        for n in range(50)
    ]

    assert found == [True] * 50
    assert asked == [CUT]


def test_tables_that_are_alike_are_proven_once_for_a_cut() -> None:
    taken = samples()
    alike = (TABLE, replace(TABLE, name="shop.others"))

    one, other = (prove(table, Stage.LANDED, CUT, taken, NOW) for table in alike)
    later = prove(TABLE, Stage.LANDED, CUT + SECOND, taken, NOW)

    assert one is other
    assert (one.holds, later.holds, later is one) == (True, True, False)


def test_f146_mirrors_of_one_look_ask_for_what_has_landed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[object]()

    def counting(sample: Sample[T] | Missing, now: datetime) -> T | Missing:
        asked.append(sample)
        return require_fresh(sample, now)

    monkeypatch.setattr(proof, "require_fresh", counting)
    taken = samples()

    found = [
        prove(replace(TABLE, name=f"{TABLE.name}_{n}"), stage, CUT, taken, NOW).holds
        for n in range(20)
        for stage in (Stage.LANDED, Stage.MIRROR)
    ]

    assert found == [True] * 40
    assert [one for one in asked if one is taken.checkpoint] == [taken.checkpoint]


def test_what_is_missing_is_told_upstream_first() -> None:
    taken = samples(landed=Missing("down"), standing=Missing("gone"))
    silent = {"shop": replace(taken.source("shop"), fences=Missing("mute"))}

    found = prove(TABLE, Stage.MIRROR, CUT, replace(taken, sources=silent), NOW)

    assert [one.code for one in found.reasons] == ["no_mark", "no_mirror", "no_heartbeat"]
    assert (found.holds, found.evidence) == (None, None)


def test_evidence_names_no_heartbeat_where_none_was_written_after_the_cut() -> None:
    fresh_cut = NOW - SECOND
    slow = Sample(fence_series(until=NOW - 2 * SECOND, source="other"), NOW, BUDGET)
    taken = samples()
    both = {**taken.sources, "other": replace(taken.source("shop"), fences=slow)}

    found = prove(TWO, Stage.LANDED, fresh_cut, replace(taken, sources=both), NOW)

    assert (found.holds, [reason.code for reason in found.reasons]) == (False, ["no_fence"])
    assert found.evidence
    assert found.evidence.fences == (fence(699, fresh_cut),)


def test_samples_that_differ_share_nothing_that_was_worked_out() -> None:
    taken = samples()
    before = prove(TABLE, Stage.LANDED, CUT, taken, NOW)
    silent = replace(taken, sources={"shop": SourceSamples(Missing("x"), Missing("x"))})

    after = prove(TABLE, Stage.LANDED, CUT, silent, NOW)

    assert (before.holds, after.holds) == (True, None)


def test_a_certificate_rests_on_w_of_its_own_topics() -> None:
    own = [TopicPartition(topic, n) for topic in ("shop.a", "shop.b") for n in range(12)]
    offsets = {at: PartitionEnd(at.partition) for at in own}
    gone = {own[3]: offsets.pop(own[3])}

    found = landed_offsets(
        healthy_checkpoint(offsets=offsets, gone=gone), frozenset({"shop.a", "shop"})
    )

    assert found == {f"shop.a:{n}": n for n in range(12) if n != 3}


def test_f01_a_heartbeat_of_a_time_to_come_proves_nothing_though_it_was_passed() -> None:
    fast = fence_series(until=NOW + 720 * SECOND)

    found = prove(
        TABLE, Stage.LANDED, CUT, samples(fences=fast, landed=healthy_checkpoint(through=700)), NOW
    )

    assert found.holds is None
    assert [reason.code for reason in found.reasons] == ["no_heartbeat"]
    assert "720.0 s ahead" in found.reasons[0].text


def test_a_cut_to_come_is_called_that_though_the_heartbeat_is_dead() -> None:
    dead = samples(fences=fence_series(until=NOW - 1_200 * SECOND))

    found = prove(TABLE, Stage.LANDED, NOW + SECOND, dead, NOW)
    at_once = prove(TABLE, Stage.LANDED, NOW, dead, NOW)

    assert (found.holds, found.reasons[0].code) == (False, "cut_ahead")
    assert (at_once.holds, at_once.reasons[0].code) == (None, "no_heartbeat")


def test_a_snapshot_that_is_on_its_way_is_named_where_the_cut_is_not_landed_only() -> None:
    snaps = {Shard.parse("shop/shop_09.users"): OpenSnapshot(Order(1, 1, 1), 49)}

    before = extend_batches(
        (), to_landed_batch(healthy_checkpoint(batch=49), {"shop": fence_series()})
    )
    later = samples(landed=healthy_checkpoint(snaps=snaps), steps=before)

    covered = prove(TABLE, Stage.LANDED, CUT, later, NOW)
    behind = prove(
        TABLE, Stage.LANDED, CUT, samples(landed=healthy_checkpoint(through=90, snaps=snaps)), NOW
    )
    early = prove(TABLE, Stage.LANDED, NOW + SECOND, later, NOW)

    assert [reason.code for reason in behind.reasons] == ["not_landed", "snapshot"]
    assert "snapshot" not in {reason.code for reason in early.reasons}
    assert (covered.holds, covered.reasons) == (True, ())


def test_a_snapshot_of_another_source_is_not_named() -> None:
    snaps = {Shard.parse("far/far_00.users"): OpenSnapshot(Order(1, 1, 1), 49)}
    landed = healthy_checkpoint(through=90, snaps=snaps)

    found = prove(TABLE, Stage.LANDED, CUT, samples(landed=landed), NOW)

    assert [reason.code for reason in found.reasons] == ["not_landed"]


def test_what_is_shared_by_tables_of_one_look_says_nothing_of_their_mirrors() -> None:
    taken = samples()
    gone = replace(taken, mirror=Missing("no mirror"))
    behind = replace(taken, mirror=Sample(MirrorPosition(6, 3), NOW, BUDGET))

    found = [
        prove(TABLE, stage, CUT, one, NOW).holds
        for stage in (Stage.LANDED, Stage.MIRROR)
        for one in (taken, gone, behind)
    ]

    assert found == [True, True, True, True, None, False]


@pytest.mark.parametrize("first", ["whole", "based anew", "based just before"])
def test_what_is_shared_by_tables_of_one_look_says_nothing_of_their_bases(first: str) -> None:
    """The batches that prove the cut are of before the base of one of them."""
    whole, early = (
        replace(TABLE, name=f"shop.{name}", shards=(Shard("shop", name),)) for name in "ab"
    )
    based = {TABLE.shards[0]: 50, early.shards[0]: 49}
    steps: tuple[LandedBatch, ...] = ()
    for batch in (48, 49):
        steps = extend_batches(
            steps, to_landed_batch(healthy_checkpoint(batch=batch), {"shop": fence_series()})
        )
    taken = samples(landed=healthy_checkpoint(through=90, complete=based), steps=steps)
    asked = {"whole": whole, "based anew": TABLE, "based just before": early}
    order = sorted(asked, key=lambda name: name != first)

    found = {name: prove(asked[name], Stage.LANDED, CUT, taken, NOW).holds for name in order}

    assert found == {"whole": True, "based anew": False, "based just before": True}


LATE = (LateChanges(48, 3), LateChanges(49, 2))
IMAGE = Image(
    CUT,
    6,
    50,
    (fence(100, CUT),),
    {"shop": Order(1, 1, 10_000)},
    NOW,
    NOW + SECOND,
    shards=shards_digest(TABLE.shards),
)


def mirror_position(image: Image) -> MirrorPosition:
    return MirrorPosition(7, 50, images=(image,))


@pytest.mark.parametrize(
    ("image", "codes"),
    [
        pytest.param(IMAGE, [], id="there, kept and of that cut"),
        pytest.param(replace(IMAGE, cut=CUT - SECOND), ["no_image"], id="of another cut"),
        pytest.param(replace(IMAGE, until=NOW), [], id="kept until now"),
        pytest.param(replace(IMAGE, until=NOW - SECOND), ["image_old"], id="kept until before"),
        pytest.param(replace(IMAGE, late=LATE), ["image_late"], id="something came late"),
        pytest.param(replace(IMAGE, late=LATE, revision=1), ["image_late"], id="and some is in"),
        pytest.param(replace(IMAGE, late=LATE, revision=2), [], id="and all is in"),
        pytest.param(replace(IMAGE, shards=""), [], id="of other shards, with a base before"),
        pytest.param(
            replace(IMAGE, positions={"other": Order(1, 1, 1)}), ["image_unbased"], id="elsewhere"
        ),
        pytest.param(replace(IMAGE, fences=()), ["image_misplaced"], id="by no heartbeat"),
        pytest.param(
            replace(IMAGE, fences=(fence(100, CUT, "other"),)),
            ["image_misplaced"],
            id="by another source's",
        ),
        pytest.param(
            replace(IMAGE, fences=(fence(100, CUT - SECOND),)),
            ["image_misplaced"],
            id="by one before the cut",
        ),
    ],
)
def test_why_nobody_may_read_an_image(image: Image, codes: list[str]) -> None:
    found = missing_image_reasons(
        TABLE, CUT, samples(), mirror_position(image), healthy_checkpoint(), now=NOW
    )

    assert [one.code for one in found] == codes


@pytest.mark.parametrize(
    ("cut", "taken", "codes"),
    [
        pytest.param(CUT, {}, [], id="it is there"),
        pytest.param(
            CUT, {"landed": healthy_checkpoint(through=90)}, [], id="whatever is landed by now"
        ),
        pytest.param(CUT - SECOND, {}, ["no_image"], id="it is not there"),
        pytest.param(NOW + SECOND, {}, ["cut_ahead", "no_fence"], id="its cut is in the future"),
        pytest.param(
            NOW - SECOND,
            {"fences": fence_series(until=NOW - 2 * SECOND)},
            ["no_fence"],
            id="no heartbeat stands for its cut",
        ),
    ],
)
def test_an_image_is_not_missed_before_there_can_be_one(
    cut: datetime, taken: dict[str, Any], codes: list[str]
) -> None:
    found = prove(TABLE, Stage.IMAGE, cut, samples(standing=mirror_position(IMAGE), **taken), NOW)

    assert [one.code for one in found.reasons] == codes
    assert found.holds is (not codes)


@pytest.mark.parametrize(
    ("taken", "codes"),
    [
        pytest.param({"landed": healthy_checkpoint(through=90)}, ["no_mirror"], id="not landed"),
        pytest.param({"landed": Missing("down")}, ["no_mark", "no_mirror"], id="no checkpoint"),
        pytest.param(
            {"landed": Missing("down"), "fences": Missing("away")},
            ["no_mark", "no_mirror", "no_heartbeat"],
            id="nothing is known",
        ),
    ],
)
def test_a_mirror_that_is_unknown_is_told_among_what_is_missing_in_the_order_of_the_path(
    taken: dict[str, Any], codes: list[str]
) -> None:
    found = prove(TABLE, Stage.MIRROR, CUT, samples(standing=Missing("away"), **taken), NOW)

    assert (found.holds, [one.code for one in found.reasons]) == (None, codes)


def test_what_came_late_is_counted() -> None:
    image = replace(IMAGE, late=LATE)

    (reason,) = missing_image_reasons(
        TABLE, CUT, samples(), mirror_position(image), healthy_checkpoint(), now=NOW
    )

    assert reason.text.startswith("5 changes")


def test_an_image_that_lacks_a_source_of_its_table_is_none() -> None:
    bases = {**healthy_checkpoint().bases, Shard("other", "shop_02.orders"): Order(1, 1, 1)}

    (reason, *_) = missing_image_reasons(
        TWO, CUT, samples(), mirror_position(IMAGE), healthy_checkpoint(bases=bases), now=NOW
    )

    assert reason.code == "image_unbased"


@pytest.mark.parametrize(
    ("shards", "codes"),
    [
        pytest.param(shards_digest(TABLE.shards), [], id="those that it is of"),
        pytest.param(shards_digest(TABLE.shards[:1]), ["image_unbased"], id="one of them is new"),
    ],
)
def test_bases_after_the_cut_are_of_shards_that_had_one_before(
    shards: str, codes: list[str]
) -> None:
    bases = dict.fromkeys(TABLE.shards, Order(1, 1, 20_000))
    image = mirror_position(replace(IMAGE, shards=shards))

    found = missing_image_reasons(
        TABLE, CUT, samples(), image, healthy_checkpoint(bases=bases), now=NOW
    )

    assert [one.code for one in found] == codes


@pytest.mark.parametrize(
    ("known", "codes"),
    [
        pytest.param((), [], id="nothing else is known"),
        pytest.param((fence(100, CUT),), [], id="itself"),
        pytest.param((fence(99, CUT - SECOND), fence(101, CUT + SECOND)), [], id="in order"),
        pytest.param((fence(101, CUT),), [], id="a later one at the cut"),
        pytest.param(
            (fence(101, CUT - SECOND), fence(102, CUT + SECOND)),
            ["image_misplaced"],
            id="a later one before the cut: its clock was fast",
        ),
        pytest.param((fence(100, CUT - SECOND),), [], id="the same number says nothing of later"),
    ],
)
def test_a_later_heartbeat_from_before_the_cut_shows_that_the_image_goes_too_far(
    known: tuple[Fence, ...], codes: list[str]
) -> None:
    taken = samples(fences=known)

    found = missing_image_reasons(
        TABLE, CUT, taken, mirror_position(IMAGE), healthy_checkpoint(), now=NOW
    )

    assert [one.code for one in found] == codes


@pytest.mark.parametrize(
    ("seconds", "codes"),
    [(-1, []), (0, []), (1, ["image_doubted"])],
    ids=["over before it was made", "over as it was made", "over since"],
)
def test_a_check_that_failed_after_it_was_made_leaves_it_in_doubt(
    seconds: int, codes: list[str]
) -> None:
    until = {"range_counts": NOW + seconds * SECOND}

    found = doubtful_image_reasons(CUT, samples(standing=mirror_position(IMAGE)), until)

    assert [one.code for one in found] == codes


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(Missing("nobody can read it"), id="no mirror"),
        pytest.param(MirrorPosition(7, 50), id="no image"),
    ],
)
def test_of_an_image_that_is_not_there_nothing_is_in_doubt(known: MirrorPosition | Missing) -> None:
    until = {"range_counts": NOW + SECOND}

    assert list(doubtful_image_reasons(CUT, samples(standing=known), until)) == []


def test_a_certificate_rests_on_the_image_alone() -> None:
    landed = Evidence(fences=(fence(200, NOW),), batch=60)
    image = replace(IMAGE, late=LATE, revision=2, path="/lake/images/x")
    here = replace(mirror_position(image), mirror="m")

    found = image_evidence(landed, here, CUT, healthy_checkpoint())

    assert (found.fences, found.batch, found.version) == (image.fences, 49, 6)
    assert (found.mirror, found.path) == ("m", "/lake/images/x")
    assert image_evidence(landed, here, CUT + SECOND, healthy_checkpoint()) == landed


MIRROR, LANDED = Question(Stage.MIRROR, CUT), Question(Stage.LANDED, CUT)
COPY = Question(Stage.COPY, CUT, "cache")  # where it stands is told as if it were the mirror
CALM = HeartbeatHistory(highest=900, order=Order(1, 0, 7), last=900, raised=51)


def ask(
    trail: HeartbeatHistory,
    question: Question = MIRROR,
    before: Readiness | None = None,
    idle_since: int | None = None,
) -> Readiness:
    """*idle_since*: its last change, and so its mirror's last turn, is of this batch."""
    landed, known = (
        replace(healthy_checkpoint(batch=51), heartbeat_histories={"shop": trail}),
        healthy_checkpoint(batch=50),
    )
    if idle_since is not None:
        tables = {TABLE.name: idle_since}
        landed, known = replace(landed, tables=tables), replace(known, tables=tables)
    steps = extend_batches((), to_landed_batch(known, {"shop": fence_series()}))
    standing = MirrorPosition(7, 50 if idle_since is None else idle_since)
    found = samples(landed=landed, steps=steps, standing=standing)
    given = None if before is None else before.certificate
    policy = ReadinessPolicy(gating=GATING)
    return assess(question, Inputs(TABLE, found, lags(found)), policy, certificate=given)


@pytest.mark.parametrize(
    ("trail", "why"),
    [
        pytest.param(replace(CALM, last=880), "880 came after 900", id="it is sent again now"),
        pytest.param(replace(CALM, leaps=1), "came after", id="by two"),
        pytest.param(
            replace(CALM, over=51),
            "sent again until batch 51, and the mirror is applied through batch 50; wait for its",
            id="the mirror is from within",
        ),
        pytest.param(
            replace(CALM, raised=50),
            "after everything that was listed with batch 50",
            id="nobody knows yet",
        ),
    ],
)
@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_a_mirror_that_may_hold_older_rows_is_not_ready(
    trail: HeartbeatHistory, why: str, question: Question
) -> None:
    found = ask(trail, question)

    assert found.state is ReadinessState.NOT_READY
    assert why in found.reasons[0].text


@pytest.mark.parametrize(
    "trail",
    [
        pytest.param(CALM, id="never"),
        pytest.param(replace(CALM, again=49, over=50), id="and it has what came again"),
    ],
)
@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_that_holds_all_that_came_again_is_ready(
    trail: HeartbeatHistory, question: Question
) -> None:
    assert ask(trail, question).ready


@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_that_stands_before_the_newest_came_again_is_not_ready(question: Question) -> None:
    """Its batch 50 is of rows that were sent again; 900 came again in 51, and 901 behind it."""
    trail = HeartbeatHistory(highest=900, order=Order(1, 0, 7), last=900, raised=40)
    for number in (900, 901):
        trail = trail.next(LandedHeartbeat(number, "canal", 0, number, Order(1, 0, number)), 51)

    found = ask(trail, question)

    assert found.state is ReadinessState.NOT_READY
    assert "sent again until batch 51" in found.reasons[0].text


@pytest.mark.parametrize("question", [MIRROR, COPY], ids=["mirror", "copy"])
def test_one_of_which_nothing_came_again_is_ready_though_it_has_no_turn(question: Question) -> None:
    """A table that is idle is applied through batch 40 for ever, and is believed by what it had."""
    trail = replace(CALM, again=49, over=50)

    idle = ask(trail, question, idle_since=40)

    assert idle.ready
    assert ask(trail, question, before=idle, idle_since=40).ready


def test_what_was_certified_before_is_not_to_be_read_while_it_is_sent_again() -> None:
    before = ask(CALM)

    during, unsure = (
        ask(replace(CALM, last=880), before=before),
        ask(replace(CALM, raised=50), before=before),
    )

    assert before.ready
    assert during.state is ReadinessState.NOT_READY
    assert unsure.ready
    assert ask(CALM, before=before).ready


def test_where_nothing_is_sent_again_no_heartbeat_is_waited_for_until_numbers_fall() -> None:
    """A ledger of files: rows land all the time, and a heartbeat once all files were looked at."""
    once = replace(CALM, raised=50, once=True)

    assert ask(once).ready
    assert ask(replace(once, last=880)).state is ReadinessState.NOT_READY
    assert ask(replace(once, over=51)).state is ReadinessState.NOT_READY


def test_the_change_log_is_asked_only_whether_it_is_sent_again_now() -> None:
    assert ask(replace(CALM, raised=50, over=51), LANDED).ready
    assert not ask(replace(CALM, last=880), LANDED).ready
