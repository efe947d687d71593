"""Which changes belong in an image, and by which heartbeat."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.image import (
    IMAGES,
    DueCut,
    Image,
    LateChanges,
    add_image,
    cut_positions,
    fence_of,
    find_missing,
    images_property,
    parse_images,
    shards_digest,
)
from pipeline.model import Acknowledged, Fence, Order, Shard, Table
from pipeline.sources.mysql.position import binlog_position
from tests.builders.values import fence

CUT = datetime(2026, 3, 29, 22, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def checkpoint_through(through: int, identity: str = "A") -> Checkpoint:
    position = binlog_position(1, through * 100)
    return Checkpoint(
        "main",
        9,
        acknowledged={"shop": Acknowledged(position)},
        heartbeats={"shop": through},
        epochs={"shop": Epoch(2, identity, position)},
    )


def test_the_cut_stands_where_the_log_ended_after_its_heartbeat() -> None:
    cut = DueCut(CUT, {"shop": fence(7, CUT + 0.4 * SECOND)})

    assert cut_positions(cut, ("shop",), checkpoint_through(7)) == {"shop": Order(2, 1, 700)}


def test_a_fence_of_an_epoch_before_stands_nowhere_though_its_server_has_come_back() -> None:
    """By that place what the other server wrote meanwhile would be below the cut."""
    newest, due = checkpoint_through(9), DueCut(CUT, {"shop": fence(7, CUT)})
    back = replace(newest, epochs={"shop": replace(newest.epochs["shop"], heartbeat=7)})

    assert cut_positions(due, ("shop",), newest) is not None
    assert cut_positions(due, ("shop",), back) is None


@pytest.mark.parametrize(
    ("cut", "landed"),
    [
        pytest.param(
            DueCut(CUT), checkpoint_through(7), id="no heartbeat after the cut is written yet"
        ),
        pytest.param(
            DueCut(CUT, {"shop": fence(7, CUT)}), checkpoint_through(6), id="it has not landed"
        ),
        pytest.param(
            DueCut(CUT, {"shop": fence(7, CUT)}),
            checkpoint_through(9, "B"),
            id="another server is read",
        ),
        pytest.param(
            DueCut(CUT, {"other": fence(7, CUT)}),
            checkpoint_through(9),
            id="it is another source's",
        ),
    ],
)
def test_without_proof_a_cut_stands_nowhere(cut: DueCut, landed: Checkpoint) -> None:
    assert cut_positions(cut, ("shop",), landed) is None


@pytest.mark.parametrize(
    ("fences", "number"),
    [
        pytest.param(
            (fence(1, CUT - SECOND), fence(2, CUT), fence(3, CUT + SECOND)),
            2,
            id="the first at or after the cut",
        ),
        pytest.param((fence(1, CUT - SECOND),), None, id="none yet"),
        pytest.param((), None, id="none at all"),
        pytest.param(
            (fence(1, CUT + 2 * SECOND), fence(2, CUT - SECOND), fence(3, CUT + SECOND)),
            3,
            id="a clock was fast before",
        ),
        pytest.param(
            (fence(1, CUT + SECOND), fence(2, CUT - SECOND)),
            None,
            id="a clock was fast, and it is not time",
        ),
        pytest.param(
            (fence(1, CUT + SECOND), fence(2, CUT + 2 * SECOND, identity="B")),
            None,
            id="another server has taken over since",
        ),
        pytest.param(
            (fence(1, CUT - SECOND), fence(2, CUT + 2 * SECOND, identity="B")),
            2,
            id="another had taken over by then",
        ),
        pytest.param(
            (
                fence(1, CUT + SECOND),
                fence(2, CUT + 2 * SECOND, identity="B"),
                fence(3, CUT + 3 * SECOND),
            ),
            None,
            id="the first one has come back since",
        ),
    ],
)
def test_the_first_heartbeat_after_the_cut_of_the_server_there_is(
    fences: tuple[Fence, ...], number: int | None
) -> None:
    found = fence_of(fences, CUT)

    assert (found and found.number) == number


def test_what_a_mirror_remembers_of_its_images_is_what_was_told() -> None:
    made = Image(CUT, 7, 12, (fence(7, CUT),), {"shop": Order(2, 3, 700, 1)}, CUT, CUT + SECOND)
    later = Image(CUT + SECOND, 9, 14, (), {}, CUT, CUT + SECOND)

    told = images_property((later, made))

    assert parse_images(told[IMAGES]) == (made, later)
    assert parse_images(None) == ()
    assert made.keep == SECOND
    assert [made.held(CUT + SECOND), made.held(CUT + 2 * SECOND)] == [True, False]


def test_a_day_keeps_its_newest_image_and_other_cuts_keep_theirs_until_their_time_is_over() -> None:
    at = (CUT, CUT + SECOND, CUT + 2 * SECOND)
    first, second, made = (Image(one, 7, 12, (), {}, one, one + 2 * SECOND) for one in at)
    day, again = replace(first, day="2026-03-29"), replace(made, day="2026-03-29")
    next_day, over = replace(made, day="2026-03-30"), replace(second, until=CUT + SECOND)

    assert add_image((first, second), made) == (first, second, made)
    assert add_image((day, second), again) == (second, again)
    assert add_image((day, second), next_day) == (day, second, next_day)
    assert add_image((first, over), made) == (first, made)


A, B = Shard("shop", "s.orders_0"), Shard("shop", "s.orders_1")
ORDERS = Table("orders", (A, B), ("id",))


def test_an_image_holds_what_stands_below_its_cut_and_what_was_added_later() -> None:
    late = tuple(LateChanges(batch, 1) for batch in (14, 15))
    made = Image(CUT, 7, 12, (), {"shop": Order(2, 3, 700)}, CUT, CUT, late=late)

    assert made.belongs(A, Order(2, 3, 699))
    assert not made.belongs(A, Order(2, 3, 700))
    assert (made.through, made.left_out, made.pinned) == (12, late, True)
    once = replace(made, revision=1)
    assert (once.through, once.left_out) == (14, late[1:])
    assert (made.corrected().through, made.corrected().left_out) == (15, ())


def test_the_shards_of_an_image_are_told_apart_in_any_order() -> None:
    assert shards_digest((A, B)) == shards_digest((B, A)) == "1ae8c0626b634ace"
    assert shards_digest((A,)) != shards_digest((B,))


PLACE = Order(1, 3, 700)
BELOW, ABOVE = Order(1, 3, 699), Order(1, 3, 701)


@pytest.mark.parametrize(
    ("bases", "lost", "based", "says"),
    [
        pytest.param({}, {}, {}, f"{A} has no complete base yet", id="no base"),
        pytest.param({A: BELOW}, {}, {}, f"{B} has no complete base yet", id="one has none"),
        pytest.param({A: BELOW, B: BELOW}, {}, {}, "", id="bases before the cut"),
        pytest.param({A: BELOW, B: PLACE}, {}, {}, f"{B} had no base before", id="one at the cut"),
        pytest.param({A: ABOVE, B: BELOW}, {}, {}, f"{A} had no base before", id="one after it"),
        pytest.param({A: ABOVE, B: BELOW}, {}, {A: BELOW}, "", id="an older one before it"),
        pytest.param(
            {A: BELOW, B: ABOVE}, {}, {B: PLACE}, f"{B} had no base before", id="an older at it"
        ),
        pytest.param({A: BELOW, B: BELOW}, {}, {A: ABOVE}, "", id="a newer one changes nothing"),
        pytest.param(
            {A: BELOW, B: BELOW}, {B: PLACE}, {}, f"{B} lacked changes at", id="lost at the cut"
        ),
        pytest.param(
            {A: BELOW, B: BELOW}, {B: ABOVE}, {}, f"{B} lacked changes at", id="lost after it"
        ),
        pytest.param({A: BELOW, B: BELOW}, {B: BELOW}, {}, "", id="whole again before the cut"),
    ],
)
def test_what_the_mirror_may_lack_below_a_cut_is_told_by_its_bases(
    bases: dict[Shard, Order], lost: dict[Shard, Order], based: dict[Shard, Order], says: str
) -> None:
    known = Checkpoint("main", 9, bases=bases, lost=lost)

    found = find_missing(ORDERS, {"shop": PLACE}, known, based)

    assert found.startswith(says)
    assert bool(found) == bool(says)
