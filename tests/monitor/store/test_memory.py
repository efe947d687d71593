from typing import Any

import pytest
from sqlalchemy import select

from monitor.store.database import Database
from monitor.store.schema import memory
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import NOW, SECOND, Full, fence


def test_what_a_check_remembers_is_replaced(store: ServiceStore) -> None:
    first = store.memory.recall("shop.orders", "max_id")
    store.memory.remember("shop.orders", "max_id", {"ids": [1, 2], "since": None}, NOW)
    store.memory.remember("shop.orders", "max_id", {"ids": (3,)}, NOW)

    assert first is None
    assert store.memory.recall("shop.orders", "max_id") == {"ids": [3]}
    assert store.memory.recall("shop.orders", "lag") is None


def test_what_is_remembered_is_on_the_disk_no_later_than_what_is_written_next(
    store: ServiceStore,
) -> None:
    store.memory.remember("shop.orders", "max_id", {"ids": [1]}, NOW)
    store.memory.remember("shop.items", "max_id", {"ids": [2]}, NOW)
    assert on_disk(store.database) == {}

    store.fences.add(fence(1, NOW))

    assert on_disk(store.database) == {"shop.orders": {"ids": [1]}, "shop.items": {"ids": [2]}}
    assert not store.memory.waits


def test_it_waits_for_a_second_at_most(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)
    store.memory.remember("shop.items", "max_id", {"n": 2}, NOW + SECOND)
    assert on_disk(store.database) == {"shop.orders": {"n": 1}, "shop.items": {"n": 2}}

    store.memory.remember("shop.orders", "max_id", {"n": 3}, NOW + 2 * SECOND)
    store.memory.remember("shop.orders", "max_id", {"n": 4}, NOW)  # the clock was put back
    assert on_disk(store.database)["shop.orders"] == {"n": 4}


def test_it_is_written_though_nobody_writes_anything_else(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)

    store.memory.flush()

    assert on_disk(store.database) == {"shop.orders": {"n": 1}}
    assert not store.memory.waits


def test_it_outlives_the_end_of_the_service(store: ServiceStore) -> None:
    store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)
    store.close()

    again = ServiceStore.open(store.database.path, service=True)
    assert again.memory.recall("shop.orders", "max_id") == {"n": 1}
    again.close()


def test_it_waits_on_while_the_store_takes_nothing(store: ServiceStore) -> None:
    full = Full(store.database)
    big = {"text": "x" * 1_000_000}
    store.memory.remember("shop.orders", "max_id", big, NOW)
    store.memory.remember("shop.items", "max_id", {"n": 2}, NOW + SECOND)
    assert "full" in store.database.ailment
    assert store.memory.recall("shop.orders", "max_id") == big

    full.free()
    store.memory.remember("shop.items", "max_id", {"n": 3}, NOW + 2 * SECOND)

    assert on_disk(store.database) == {"shop.orders": big, "shop.items": {"n": 3}}


@pytest.mark.parametrize("length", [10, 20_000])
def test_what_is_remembered_is_what_the_store_has(store: ServiceStore, length: int) -> None:
    other = ServiceStore(Database.open(store.database.path, service=False))
    for number in range(3):
        kept = {"n": number, "text": "x" * length}
        store.memory.remember("shop.orders", "max_id", kept, NOW)
        assert store.memory.recall("shop.orders", "max_id") == kept
        store.fences.add(fence(number, NOW))
        assert store.memory.recall("shop.orders", "max_id") == kept
        assert other.memory.recall("shop.orders", "max_id") == kept
    other.close()


def test_it_belongs_to_the_write_that_it_is_remembered_in(store: ServiceStore) -> None:
    with store.database.write():
        store.memory.remember("shop.orders", "max_id", {"n": 1}, NOW)

    assert on_disk(store.database) == {"shop.orders": {"n": 1}}


def on_disk(database: Database) -> dict[str, Any]:
    """What a crash now would leave."""
    with database.read() as connection:
        rows = connection.execute(select(memory.c.table, memory.c.kept)).all()
    return {row.table: row.kept for row in rows}
