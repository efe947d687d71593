"""Others' commits to a mirror are seen by the gate at once, also to one that was made anew."""

import pytest

from tests.monitor.rig import USERS, Rig


@pytest.fixture
def rig(rig: Rig) -> Rig:
    for _ in range(4):
        rig.round()
    return rig


@pytest.mark.parametrize("rounds", [0, 1], ids=["before it was seen", "and seen"])
def test_a_row_that_others_delete_from_a_mirror_made_anew_closes_the_gate(
    rig: Rig, rounds: int
) -> None:
    rig.rebuild(USERS)
    for _ in range(rounds):
        rig.round()
    rig.intrude(USERS)
    rig.round()

    status, answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z")

    assert status == 409
    assert "foreign_write" in [one["code"] for one in answer["tables"][0]["reasons"]]


def test_a_mirror_made_anew_is_no_intrusion(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.round()
    rig.rebuild(USERS)
    rig.round()
    rig.round()

    assert rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 200
