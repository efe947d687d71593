"""A store whose disk is full: nobody is told READY of what is not stored; it goes on by itself."""

from datetime import timedelta
from typing import Any

import pytest

from tests.monitor.rig import USERS, Rig
from tests.monitor.store.kit import Full

MOST = 400
SOME = timedelta(milliseconds=1)


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Two rounds of a pipeline that works."""
    rig.round()
    rig.round()
    return rig


def ask_gate(rig: Rig, number: int) -> tuple[int, Any]:
    """For a cut of its own, so that each READY is another certificate."""
    cut = rig.now - timedelta(seconds=10) - number * SOME
    answer = rig.client.get("/v1/gate", params={"table": USERS, "cut": cut.isoformat()})
    return answer.status_code, answer.json()


def test_a_full_store_gives_no_ready_that_is_not_kept_and_goes_on_once_there_is_room(
    rig: Rig,
) -> None:
    disk, given = Full(rig.store.database), []
    for number in range(MOST):
        status, answer = ask_gate(rig, number)
        if status != 200:
            break
        given.append(answer["tables"][0]["certificate"])

    assert status == 503
    assert "disk is full" in answer["error"]
    assert str(rig.store.database.path) in answer["error"]
    assert given
    assert all(rig.store.certificates.get(one) for one in given)
    disk.free()
    status, answer = ask_gate(rig, MOST)
    assert status == 200
    assert rig.store.certificates.get(answer["tables"][0]["certificate"])
