from dataclasses import replace

from alerts.model import Silence
from monitor.store.store import ServiceStore
from tests.alerts.kit import at


def test_silences_last_until_their_end_and_can_be_ended_early(store: ServiceStore) -> None:
    one = Silence("one", at(0), at(10), "on call", "upgrade")
    store.silences.add(one)

    assert store.silences.list(at(9)) == (one,)
    assert store.silences.list(at(10)) == ()
    store.silences.add(replace(one, end=at(1)))
    assert store.silences.list(at(9)) == ()
