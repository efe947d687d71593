from monitor.store.store import ServiceStore
from tests.monitor.store.kit import NOW


def test_what_a_check_remembers_is_replaced(store: ServiceStore) -> None:
    first = store.memory.recall("shop.orders", "max_id")
    store.memory.remember("shop.orders", "max_id", {"ids": [1, 2], "since": None}, NOW)
    store.memory.remember("shop.orders", "max_id", {"ids": [3]}, NOW)

    assert first is None
    assert store.memory.recall("shop.orders", "max_id") == {"ids": [3]}
    assert store.memory.recall("shop.orders", "lag") is None
