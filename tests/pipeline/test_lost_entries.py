"""The change log lost its newest entries with the power: what was made from them never passes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.apply.mirror import LIFE
from pipeline.delta.log import LOG_FOLDER, load_snapshot
from pipeline.delta.store import open_store
from pipeline.model import Op
from tests.builders.harness import LandingHarness
from tests.pipeline.test_lane import Beside

TABLE = "db.t"
Life = Callable[[], Beside]


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Each call is a process that begins: it knows what the lake says, and the topics stay."""
    first = Beside(LandingHarness(tmp_path))
    first.harness.topics.alter("a", 10, "name", kind="CREATE")
    return lambda: Beside(LandingHarness(tmp_path, first.harness.topics, first.harness.server))


@pytest.mark.parametrize(
    "more", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 3)), 9]
)
def test_a_mirror_of_batches_that_were_lost_is_held_though_others_have_their_numbers(
    life: Life, more: int
) -> None:
    lost = life()
    lost.land(0, 4)
    lost.apply()
    _lose_entries(lost, 2)

    second = life()
    second.land(4, 4 + more)
    second.apply()
    third = life()
    third.land(20, 22)
    third.apply()

    assert _holds(second) == _holds(third) == ["log_lost"]
    assert third.rows() == dict.fromkeys(range(4), "a"), "nothing was applied on top"


def test_a_mirror_that_had_applied_none_of_the_lost_batches_goes_on(life: Life) -> None:
    lost = life()
    lost.land(0, 2)
    lost.apply()
    lost.land(2, 4)
    _lose_entries(lost, 2)

    again = life()
    again.land(4, 8)
    again.apply()

    assert _holds(again) == []
    assert again.rows() == dict.fromkeys(range(8), "a")


def test_what_was_lost_lands_again(life: Life) -> None:
    lost = life()
    lost.land(0, 4)
    _lose_entries(lost, 2)

    again = life()
    again.land(4, 5)

    assert [offset for _, _, offset in again.harness.rows("a")] == list(range(5))


def test_many_starts_in_which_nothing_was_lost_hold_nothing(life: Life) -> None:
    for start in range(5):
        one = life()
        one.land(2 * start, 2 * start + 2)
        one.apply()
        assert _holds(one) == []

    assert one.rows() == dict.fromkeys(range(10), "a")
    assert len(one.lane.checkpoint.incarnations) == 5


def test_entries_lost_under_a_service_that_lives_on_are_noticed_as_well(life: Life) -> None:
    """As where a backup of the lake is put back beneath it."""
    one = life()
    one.land(0, 4)
    one.apply()
    _lose_entries(one, 2)
    one.harness.land_unknown()

    one.land(4, 8)
    one.apply()

    assert _holds(one) == ["log_lost"]


def test_a_mirror_remembers_the_life_of_the_batch_it_applied_last(life: Life) -> None:
    one = life()
    one.land(0, 2)
    one.apply()

    snapshot = load_snapshot(open_store(one.harness.settings.mirror(TABLE)))

    assert snapshot is not None
    assert [int(snapshot.metadata.configuration[LIFE])] == list(
        one.lane.checkpoint.incarnations.values()
    )


def test_a_table_that_was_first_seen_in_a_lost_batch_is_held_too(life: Life) -> None:
    """The mark that is left has never heard of it; its mirror stands."""
    lost = life()
    lost.land(0, 1)
    lost.apply()
    _lose_entries(lost, 1)
    assert lost.harness.log().checkpoint() is None
    assert lost.harness.landed(Op.CREATE) == []

    again = life()
    again.land(1, 3)
    again.apply()

    assert _holds(again) == ["log_lost"]


def _lose_entries(beside: Beside, count: int) -> None:
    """As when the power fails before the log's folder was synced."""
    log = Path(beside.harness.settings.changes, LOG_FOLDER)
    for entry in sorted(log.glob("*.json"))[-count:]:
        entry.unlink()


def _holds(beside: Beside) -> list[str]:
    beside.apply()
    return sorted({turn.hold.reason for turn in beside.turns if turn.hold})


@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_a_service_that_lives_on_learns_what_took_the_numbers_of_lost_batches(
    life: Life, more: int
) -> None:
    """Its mirror has applied none of them, so that nothing stands still."""
    one = life()
    one.land(0, 1)
    one.apply()
    one.land(1, 4)
    _lose_entries(one, 3)
    one.harness.land_unknown()
    one.harness.topics.alter("a", 500, "name", "note")
    one.lane.land(frozenset())
    one.apply()

    one.land(401, 401 + more)
    one.apply()

    schema = one.lane.known.catalog.newest("a", TABLE)
    assert one.lane.checkpoint == one.harness.loop.checkpoint
    assert schema is not None
    assert [column.name for column in schema.columns] == ["id", "name", "note"]
    assert _holds(one) == []
    assert one.rows() == dict.fromkeys([0, 1, 2, 3, *range(401, 401 + more)], "a")


def test_a_service_whose_whole_log_was_lost_knows_no_table(life: Life) -> None:
    one = life()
    one.land(0, 1)
    _lose_entries(one, 1)
    one.harness.land_unknown()
    one.harness.topics.held.clear()

    one.lane.land(frozenset())

    assert one.lane.checkpoint == one.harness.loop.checkpoint
    assert one.lane.known.catalog.newest("a", TABLE) is None
