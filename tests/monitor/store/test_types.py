from datetime import datetime, timedelta

from monitor.store.store import ServiceStore
from tests.monitor.store.kit import NOW, fence, newest


def test_times_keep_their_microseconds_and_their_zone(store: ServiceStore) -> None:
    other = NOW.astimezone()
    store.fences.add(fence(1, other))

    found = newest(store)

    assert found is not None
    assert found.at == NOW
    assert found.at.utcoffset() == timedelta(0)
    assert isinstance(found.at, datetime)
