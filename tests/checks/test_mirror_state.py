"""Which mirrors continue the one that a check has compared."""

from dataclasses import replace
from typing import Any

import pytest

from checks.mirror_state import MirrorState, follow_mirror
from pipeline.errors import ProofError
from tests.checks.world_fake import TABLE, FakeWorld


def compared() -> tuple[FakeWorld, MirrorState]:
    world = FakeWorld()
    for _ in range(5):
        world.catch_up()
        world.mirror(TABLE)
    return world, follow_mirror(TABLE, world, None)[0]


def test_commits_of_sluice_continue_a_mirror() -> None:
    world, known = compared()
    for _ in range(20):
        world.catch_up()
        state, why = follow_mirror(TABLE, world, known)
        assert (why, MirrorState.loads(state.dumps())) == ("", state)
        known = state


def test_a_foreign_commit_ends_what_was_compared_before_it_only() -> None:
    world, known = compared()
    world.foreign.add(known.version + 1)

    after, why = follow_mirror(TABLE, world, known)

    assert why == f"version {known.version + 1} of the mirror is not Sluice's, and was not compared"
    assert follow_mirror(TABLE, world, after)[1] == ""


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param({"id": "before"}, "another table", id="recreated"),
        pytest.param({"version": 900}, "again, and was compared at version 900", id="put back"),
        pytest.param({"batch": 900}, "again, and was compared", id="put back with its batch"),
        pytest.param({"entry": "x"}, "put back behind version", id="merged again"),
    ],
)
def test_another_mirror_does_not_continue_it(other: dict[str, Any], why: str) -> None:
    world, known = compared()

    state, told = follow_mirror(TABLE, world, replace(known, **other))

    assert why in told
    assert follow_mirror(TABLE, world, state)[1] == ""


def test_a_mirror_whose_commits_are_gone_was_compared_once_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, known = compared()
    with monkeypatch.context() as cleaned:
        cleaned.setattr(FakeWorld, "mirror_commits", raise_proof_error)
        state, why = follow_mirror(TABLE, world, known)

    assert "is no longer in its log" in why
    assert follow_mirror(TABLE, world, state)[1] == ""


def raise_proof_error(*_: object) -> None:
    raise ProofError("version 3 of mirror shop.orders is no longer in its log")


@pytest.mark.parametrize("stored", [None, [3, 7], []])
def test_a_memory_of_an_earlier_version_names_no_mirror(stored: list[str | int] | None) -> None:
    assert MirrorState.loads(stored) is None
