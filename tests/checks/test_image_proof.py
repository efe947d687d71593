"""Is an image kept, whole and of its cut?  By what its mirror remembers, and the heartbeats."""

from dataclasses import replace
from datetime import timedelta

import pytest

from checks.certificate import Evidence
from checks.proof import doubted, image_evidence, imageless
from pipeline.image import Image, LateChanges, shards_digest
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Fence, Missing, Order, Shard
from tests.checks.samples import CUT, NOW, TABLE, fence, mark, samples

SECOND = timedelta(seconds=1)
TWO = replace(TABLE, shards=(*TABLE.shards, Shard("other", "shop_02.orders")))
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


def standing(image: Image) -> MirrorPosition:
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
    found = imageless(TABLE, CUT, samples(), standing(image), mark(), now=NOW)

    assert [one.code for one in found] == codes


def test_what_came_late_is_counted() -> None:
    image = replace(IMAGE, late=LATE)

    (reason,) = imageless(TABLE, CUT, samples(), standing(image), mark(), now=NOW)

    assert reason.text.startswith("5 changes")


def test_an_image_that_lacks_a_source_of_its_table_is_none() -> None:
    bases = {**mark().bases, "other/shop_02.orders": Order(1, 1, 1)}

    (reason, *_) = imageless(TWO, CUT, samples(), standing(IMAGE), mark(bases=bases), now=NOW)

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
    bases = {str(shard): Order(1, 1, 20_000) for shard in TABLE.shards}
    image = standing(replace(IMAGE, shards=shards))

    found = imageless(TABLE, CUT, samples(), image, mark(bases=bases), now=NOW)

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

    found = imageless(TABLE, CUT, taken, standing(IMAGE), mark(), now=NOW)

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

    found = doubted(CUT, samples(standing=standing(IMAGE)), until)

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

    assert list(doubted(CUT, samples(standing=known), until)) == []


def test_a_certificate_rests_on_the_image_alone() -> None:
    landed = Evidence(fences=(fence(200, NOW),), batch=60)
    image = replace(IMAGE, late=LATE, revision=2, path="/lake/images/x")
    here = replace(standing(image), mirror="m")

    found = image_evidence(landed, here, CUT, mark())

    assert (found.fences, found.batch, found.version) == (image.fences, 49, 6)
    assert (found.mirror, found.path) == ("m", "/lake/images/x")
    assert image_evidence(landed, here, CUT + SECOND, mark()) == landed
