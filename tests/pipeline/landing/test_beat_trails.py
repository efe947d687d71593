"""What is looked at of a batch's heartbeats?  The rest: tests/pipeline/reread."""

from collections import UserDict
from collections.abc import ItemsView

from pipeline.landing.beat_trails import with_beats
from pipeline.mark import Mark
from pipeline.model import Order, Ordering
from tests.pipeline.test_beats import beat

SOURCES = tuple(f"s{n}" for n in range(9))


class Looked(UserDict[str, Order]):
    """How often all that landed was gone through."""

    times = 0

    def items(self) -> ItemsView[str, Order]:
        self.times += 1
        return super().items()


def test_what_landed_is_gone_through_once_however_many_sources_there_are() -> None:
    high = Looked({f"{name}/t:0": Order(1, 0, 2) for name in SOURCES})
    before = Mark("main", 4, high=high)

    made = with_beats(
        Mark("main", 5),
        before,
        {name: (beat(7, 3),) for name in SOURCES},
        dict.fromkeys(SOURCES, Ordering.SEQUENCE),
    )

    assert all(one.clear for one in made.beats.values())
    assert high.times == 1
