from dataclasses import replace

from monitor.store.store import ServiceStore
from monitor.store.waivers import Waiver
from tests.monitor.store.kit import NOW


def test_a_waiver_stands_as_it_was_first_given(store: ServiceStore) -> None:
    first = Waiver("gap-1", "the topic was a test", "on call", NOW)

    assert store.waivers.add(first)
    assert not store.waivers.add(replace(first, reason="another"))
    assert store.waivers.waived() == frozenset({"gap-1"})
    assert store.waivers.list() == (first,)
