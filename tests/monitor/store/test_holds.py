from dataclasses import replace

from monitor.store.history import StoredHold
from monitor.store.store import ServiceStore
from pipeline.reports import Gap, Hold
from tests.monitor.store.kit import NOW, SECOND

GAP = Gap("shop.x:0:5", "shop.x", 0, 5, 9, "deleted by retention", ("shop.orders",))
HOLD = Hold("hold-1", "shop.users", "no_base", "wait for the snapshot")


def test_what_stands_still_keeps_its_since_and_what_is_over_goes(store: ServiceStore) -> None:
    store.holds.replace([GAP], [HOLD], NOW)
    store.holds.replace([], [replace(HOLD, detail="still waiting")], NOW + SECOND)

    assert store.holds.list() == (
        StoredHold("hold-1", "hold", "shop.users", "no_base", "still waiting", NOW),
    )


def test_a_gap_names_its_offsets_and_tables(store: ServiceStore) -> None:
    store.holds.replace([GAP], [], NOW)

    (gap,) = store.holds.list()
    assert gap.subject == "shop.x:0"
    assert gap.detail == "offsets [5, 9) of shop.x:0: deleted by retention"
    assert gap.tables == ("shop.orders",)
