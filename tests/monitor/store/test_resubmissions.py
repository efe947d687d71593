"""Who corrected what, and why, is kept, and each is asked for until it has ended."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.store.requests import ResubmissionRecord
from monitor.store.store import ServiceStore
from pipeline.errors import ConfigError
from pipeline.resubmissions import Resubmission, ResubmissionState
from tests.pipeline.lakes import NOON

ASKED = Resubmission("r1", "b.db.t:0:1@0", "e30=", key="AP8=", headers=(("h", "AA=="),), at=NOON)
SAID = ("db.t", "a typing error", "ann", NOON)
MADE = ResubmissionRecord(ASKED.id, ASKED.change, *SAID, original="0" * 64)
LATER = NOON + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> ServiceStore:
    return ServiceStore.open(tmp_path / "s.db")


def test_what_was_corrected_is_kept_as_it_was_said(store: ServiceStore) -> None:
    store.resubmissions.add(ASKED, MADE)

    assert store.resubmissions.list() == (MADE,)
    assert store.resubmissions.of([ASKED.change]) == (MADE,)
    assert store.resubmissions.of(["another"]) == ()
    assert store.resubmissions.get("r1") == MADE
    assert store.resubmissions.get("another") is None
    assert store.resubmissions.wished() == (ASKED,)


def test_a_message_is_corrected_by_one_at_a_time(store: ServiceStore) -> None:
    store.resubmissions.add(ASKED, MADE)
    asked = replace(ASKED, id="r2")
    second = replace(MADE, id="r2", reason="again", who="bob", at=LATER)

    with pytest.raises(
        ConfigError,
        match=r"already has a correction that has not landed \(ann at .*: a typing error",
    ):
        store.resubmissions.add(asked, second)
    store.resubmissions.told([ResubmissionState("r1", why="it says nothing", refused=True)], LATER)
    store.resubmissions.add(asked, second)

    assert [one.id for one in store.resubmissions.wished()] == ["r2"]


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        pytest.param(ResubmissionState("r1", 7), True, id="it landed"),
        pytest.param(
            ResubmissionState("r1", None, "no row", refused=True), True, id="it never will"
        ),
        pytest.param(ResubmissionState("r1", None, "no schema"), False, id="it waits"),
    ],
)
def test_it_is_asked_for_until_it_has_ended(
    *, store: ServiceStore, state: ResubmissionState, ended: bool
) -> None:
    store.resubmissions.add(ASKED, MADE)

    store.resubmissions.told([state], LATER)

    (kept,) = store.resubmissions.list()
    assert (kept.ended == LATER, kept.batch, kept.why) == (ended, state.batch, state.why)
    assert bool(store.resubmissions.wished()) is not ended
    store.resubmissions.told([ResubmissionState("r1", 99)], LATER + timedelta(minutes=1))
    assert store.resubmissions.list()[0].batch == (state.batch if ended else 99)


@pytest.mark.parametrize("refused", [True, False], ids=["never_lands", "landed"])
def test_what_it_was_to_say_is_forgotten_once_it_has_ended(
    *, store: ServiceStore, tmp_path: Path, refused: bool
) -> None:
    """A table's values may be hidden in the lake: then they are not to stand here for ever."""
    store.resubmissions.add(ASKED, MADE)
    with closing(sqlite3.connect(tmp_path / "s.db")) as file:
        query = "SELECT body FROM resubmissions"
        assert "e30=" in file.execute(query).fetchone()[0]

        store.resubmissions.told([ResubmissionState("r1", 7, refused=refused)], LATER)

        assert file.execute(query).fetchone() == ("",)
    assert store.resubmissions.get("r1") == replace(MADE, ended=LATER, batch=7)
