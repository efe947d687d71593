from collections.abc import Iterator

import pytest

from tests.alerts.channels.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running
