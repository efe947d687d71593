"""A window in which rows go to an archive is registered once, kept, and told to every merge."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result

from monitor.archive_backtest import counted_windows
from monitor.commands.archive import COMMAND
from pipeline.archive import ArchiveWindow, RegisteredWindow
from tests.monitor.rig import NOON, USERS, Rig

SPAN = ("--since", "2026-03-28T01:00:00Z", "--until", "2026-03-28T05:00:00+01:00")
ROWS = ("--column", "day", "--before", "2025-01-01")


@pytest.fixture
def healthy(rig: Rig) -> Rig:
    rig.round()
    return rig


@pytest.fixture
def sluice(healthy: Rig, server: str) -> Callable[..., Result]:
    def run(*words: str) -> Result:
        return CliRunner().invoke(COMMAND, [*words, "--server", server])

    return run


def body(**more: Any) -> dict[str, Any]:
    told = {"table": USERS, "since": "2026-03-28T01:00:00Z", "until": "2026-03-28T04:00:00Z"}
    return {**told, "reason": "request 4711", "who": "ann", **more}


def test_what_is_said_at_the_terminal_is_kept_and_listed(
    healthy: Rig, sluice: Callable[..., Result]
) -> None:
    said = sluice("keep", USERS, *SPAN, *ROWS, "--reason", "request 4711", "--who", "ann")
    again = sluice("keep", USERS, *SPAN, *ROWS, "--reason", "request 4711", "--who", "ann")

    assert (said.exit_code, again.exit_code) == (0, 0), said.output
    assert said.output == (
        f"{USERS}: rows with day below 2025-01-01 that are deleted from 2026-03-28T01:00:00+00:00 "
        "until 2026-03-28T04:00:00+00:00 are kept\n"
    )
    assert again.output.endswith("; this window was registered before\n")
    (told,) = json.loads(sluice("list", "--json").output)
    listed = f"{told['id']} {said.output[:-1]}, by ann: request 4711\n"
    assert sluice("list").output == listed
    assert (told["table"], told["who"], told["before"]) == (USERS, "ann", "2025-01-01")
    (kept,) = healthy.store.archives.registered()
    assert kept.table == USERS
    assert kept.window.column == "day"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param({"table": "shop.user"}, "no table 'shop.user'", id="no such table"),
        pytest.param({"until": "2026-03-28T01:00:00Z"}, "is not after", id="it ends first"),
        pytest.param({"column": "day"}, "`column` needs `before`", id="half a condition"),
        pytest.param({"since": "2026-03-28T01:00:00"}, "since", id="no offset"),
        pytest.param({"since": "0001-01-01T00:00:00+23:59"}, "since: must be", id="before all"),
        pytest.param({"until": "9999-12-31T23:59:59-23:59"}, "until: must be", id="after all"),
        pytest.param({"column": "d" * 201, "before": "1"}, "column", id="no name is so long"),
    ],
)
def test_what_no_delete_could_be_in_is_refused(
    healthy: Rig, more: dict[str, Any], told: str
) -> None:
    answer = healthy.client.post("/v1/archives", json=body(**more))

    assert answer.status_code == (404 if told.startswith("no table") else 400)
    assert told in answer.json()["error"]
    assert healthy.store.archives.registered() == ()


def test_it_outlives_a_restart(healthy: Rig) -> None:
    window = ArchiveWindow(NOON, NOON.replace(hour=20), reason="4711", who="ann")
    one = RegisteredWindow(USERS, window)

    made, new = healthy.store.archives.add(one, NOON)
    assert (made.registered, new) == (one, True)

    again = type(healthy.store.archives)(healthy.store.database)
    assert again.registered() == (one,)
    assert again.add(one, NOON) == (made, False)


def test_two_who_take_a_window_back_at_one_moment_are_both_told(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = healthy.store.archives
    made = archives.add(RegisteredWindow(USERS, ArchiveWindow(NOON, NOON.replace(hour=20))), NOON)
    both, plain = threading.Barrier(2), archives.write_row

    def together(statement: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(1)  # nobody else comes where one is let in at a time
        plain(statement)

    monkeypatch.setattr(archives, "write_row", together)
    asked = {"id": made[0].id, "reason": "a typo", "who": "bob"}
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(
            lambda _: healthy.client.post("/v1/archives/withdrawals", json=asked), range(2)
        )
        said = {answer.status_code: answer.json() for answer in answers}

    assert said.keys() == {201, 400}
    assert "nothing was recorded" in said[400]["error"]


def test_a_window_that_was_a_mistake_is_taken_back_and_stays_on_record(
    healthy: Rig, sluice: Callable[..., Result]
) -> None:
    """A column that the table does not have would hold it for ever."""
    wrong = ("--column", "creatd_at", "--before", "2025-01-01")
    sluice("keep", USERS, *SPAN, *wrong, "--reason", "4711", "--who", "ann")
    (told,) = json.loads(sluice("list", "--json").output)

    taken = sluice("withdraw", told["id"], "--reason", "a typo", "--who", "bob")
    again = sluice("withdraw", told["id"], "--reason", "a typo", "--who", "bob")

    assert taken.output.startswith(f"withdrawn: {USERS}: rows with creatd_at below"), taken.output
    assert "nothing was recorded; known: none" in str(again.exception)
    assert "; withdrawn by bob: a typo" in sluice("list").output
    known = type(healthy.store.archives)(healthy.store.database)
    assert known.registered() == healthy.store.archives.registered() == ()
    assert counted_windows(json.loads(sluice("list", "--json").output)) == ()

    sluice("keep", USERS, *SPAN, *wrong, "--reason", "4711", "--who", "ann")
    assert len(healthy.store.archives.registered()) == 1
