"""Offers to landing: the backfilled rows that it may take, by its checkpoint."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.backfill.runner import Offer
from pipeline.backfill_state import Backfill, KeyRange
from pipeline.checkpoint import Checkpoint
from pipeline.landing.backfill import BackfilledRows, BackfillNews
from pipeline.model import Order, Origin, Shard

SHARD, OTHER = Shard("a", "db.t"), Shard("a", "db.u")
AT, BEFORE, AFTER = (Order(1, 7, pos) for pos in (500, 400, 600))
BEGUN = Backfill("x", Origin.SNAPSHOT, AT, "server", 6)
CUT = replace(BEGUN, key=("id",), stretches=(KeyRange(("9",)), KeyRange(None, ("9",))))
FIRST = BackfilledRows(SHARD, "db.t", "x", AT, 0, None, ("4",), ended=False, rows=4, file=None)
SECOND = replace(FIRST, after=("4",), read=("9",), ended=True)
BESIDE = replace(FIRST, stretch=1, after=("9",), read=("12",))


def checkpoint_with(backfills: Mapping[Shard, Backfill], batch: int = 6) -> Checkpoint:
    return Checkpoint("main", batch, backfills=backfills)


def there(_: BackfilledRows) -> bool:
    return True


@pytest.mark.parametrize(
    ("one", "known", "batch", "left"),
    [
        pytest.param(BEGUN, None, 7, True, id="not landed yet"),
        pytest.param(BEGUN, None, 8, False, id="landing did not want it"),
        pytest.param(BEGUN, BEGUN, 6, False, id="begun"),
        pytest.param(BEGUN, replace(BEGUN, order=BEFORE), 6, True, id="the one before is known"),
        pytest.param(BEGUN, replace(BEGUN, order=AFTER), 6, False, id="a newer one is known"),
        pytest.param(CUT, BEGUN, 9, True, id="not cut yet, however long that takes"),
        pytest.param(CUT, CUT, 6, False, id="cut"),
        pytest.param(CUT, None, 6, False, id="forgotten before it was cut"),
        pytest.param(CUT, replace(BEGUN, id="y"), 6, False, id="another one was begun"),
        pytest.param(CUT, replace(BEGUN, order=AFTER), 6, False, id="it was begun anew"),
    ],
)
def test_f113_what_begins_is_offered_until_landing_has_taken_it_or_passed_it_by(
    one: Backfill, known: Backfill | None, batch: int, *, left: bool
) -> None:
    offer = Offer()
    offer.begin(SHARD, one)
    offer.begin(OTHER, replace(BEGUN, since=99))

    offer.forget(checkpoint_with({} if known is None else {SHARD: known}, batch), there)

    assert offer.news().begun.keys() == ({SHARD, OTHER} if left else {OTHER})


@pytest.mark.parametrize(
    ("known", "left"),
    [
        pytest.param(CUT, (FIRST, SECOND, BESIDE), id="none has landed"),
        pytest.param(None, (), id="nobody reads it any more"),
        pytest.param(replace(CUT, id="y"), (), id="another wish's"),
        pytest.param(replace(CUT, order=AFTER), (), id="it was begun anew"),
        pytest.param(
            replace(CUT, stretches=CUT.stretches[:1]), (FIRST, SECOND), id="cut elsewhere"
        ),
        pytest.param(
            replace(CUT, stretches=(KeyRange(("9",), ended=True), CUT.stretches[1])),
            (BESIDE,),
            id="a stretch has ended",
        ),
        pytest.param(
            replace(CUT, stretches=(KeyRange(("9",), ("2",)), CUT.stretches[1])),
            (BESIDE,),
            id="what goes before it never came",
        ),
        pytest.param(
            replace(CUT, stretches=(CUT.stretches[0], KeyRange(None, ("12",)))),
            (FIRST, SECOND),
            id="a stretch has landed",
        ),
    ],
)
def test_f113_rows_are_offered_as_long_as_landing_may_take_them(
    known: Backfill | None, left: tuple[BackfilledRows, ...]
) -> None:
    offer = Offer()
    offer.read([FIRST, SECOND])
    offer.read([BESIDE])

    offer.forget(checkpoint_with({} if known is None else {SHARD: known}), there)

    assert offer.news().rows == left


def test_f113_rows_of_another_shard_or_stretch_make_none_worth_waiting_for() -> None:
    offer = Offer()
    stretches = (KeyRange(("9",)), KeyRange(None, ("4",)))
    known = replace(CUT, stretches=stretches)
    alone = replace(SECOND, after=("3",), stretch=1)  # of its stretch nothing is landed up to there
    offer.read([SECOND, alone, replace(FIRST, shard=OTHER)])

    offer.forget(
        checkpoint_with({SHARD: known, OTHER: replace(known, stretches=stretches[:1])}), there
    )

    assert offer.news().rows == (replace(FIRST, shard=OTHER),)


def test_f113_rows_whose_file_is_gone_are_not_offered_nor_those_behind_them() -> None:
    offer = Offer()
    offer.read([FIRST, SECOND, BESIDE])

    offer.forget(checkpoint_with({SHARD: CUT}), lambda one: one is not FIRST)

    assert offer.news().rows == (BESIDE,)


@pytest.mark.parametrize(
    ("known", "left"),
    [
        pytest.param(CUT, True, id="not landed yet"),
        pytest.param(replace(CUT, closing=AFTER), False, id="landed"),
        pytest.param(None, False, id="forgotten"),
        pytest.param(replace(CUT, id="y"), False, id="another one is read"),
    ],
)
def test_f113_an_end_is_told_until_landing_knows_it(known: Backfill | None, *, left: bool) -> None:
    offer = Offer()
    offer.end(SHARD, "x", AFTER)

    offer.forget(checkpoint_with({} if known is None else {SHARD: known}), there)

    assert offer.news().closing == ({SHARD: ("x", AFTER)} if left else {})


def test_f113_what_nobody_wishes_any_more_is_cancelled_and_nothing_of_it_offered() -> None:
    offer = Offer()
    offer.begin(OTHER, replace(BEGUN, id="y"))
    offer.begin(Shard("a", "db.v"), replace(BEGUN, id="z"))
    offer.read([FIRST, replace(FIRST, shard=OTHER, id="y")])
    offer.end(SHARD, "x", AFTER)
    offer.end(OTHER, "y", AFTER)
    known = {SHARD: CUT, Shard("a", "db.w"): replace(BEGUN, id="w", done=4)}

    offer.cancel(checkpoint_with(known), {"y"})
    news = offer.news()
    offer.cancel(checkpoint_with(known), {"x", "y", "z"})

    assert news.cancelled == {SHARD: "x", Shard("a", "db.v"): "z"}
    assert [one.id for one in news.rows] == ["y"]
    assert news.closing == {OTHER: ("y", AFTER)}
    assert offer.news().cancelled == {}


def test_f113_of_two_under_one_name_the_one_that_landing_knows_is_cancelled() -> None:
    offer = Offer()
    offer.begin(SHARD, replace(BEGUN, id="new"))

    offer.cancel(checkpoint_with({SHARD: CUT}), set())

    assert offer.news().cancelled == {SHARD: "x"}


def test_f113_what_landing_was_given_stays_as_it_was() -> None:
    offer = Offer()
    offer.begin(SHARD, BEGUN)
    offer.read([FIRST])
    offer.end(SHARD, "x", AFTER)
    given = offer.news()

    offer.forget(checkpoint_with({}, 99), there)

    assert offer.news() == BackfillNews()
    assert given == BackfillNews({SHARD: BEGUN}, (FIRST,), {SHARD: ("x", AFTER)})
