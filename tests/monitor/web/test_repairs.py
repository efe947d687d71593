"""Rows are asked for by route and verb, recorded with who and why, and told until they are proven.

Covers monitor/web/repairs.py, monitor/commands/repair.py, replay.py
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from checks.model import Outcome, Ruling, Verdict
from monitor.commands import repair, replay
from monitor.store.rereads import CheckedAgain
from pipeline.errors import ConfigError
from pipeline.model import Origin
from pipeline.rereads import Preview, RereadState, WishedKey, WishedRange
from tests.monitor.rig import ORDERS, USERS, Rig


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def run(command: click.Command, server: str, *words: str) -> Result:
    given = [*words, "--reason", "a loss", "--who", "ann", "--server", server]
    return CliRunner().invoke(command, given, catch_exceptions=False)


def asked(result: Result) -> dict[str, Any]:
    (one,) = json.loads(result.output)
    found: dict[str, Any] = one
    return found


def fail(rig: Rig) -> None:
    """A check finds rows missing."""
    ruling = Ruling(Outcome.FAIL, "rows missing", "missing_rows", ("shop/shop.users:17-29",))
    found = Verdict(USERS, "range_counts", ruling, rig.clock(), value=13.0)
    rig.recorder.tell([found])
    rig.round()


def test_keys_are_recorded_with_who_and_why_and_go_to_the_pipeline(rig: Rig, server: str) -> None:
    words = (USERS, "--keys", "x,y", "--keys", '["it,s"]', "--no-wait", "--json")
    one = asked(run(repair.COMMAND, server, *words))

    assert (one["kind"], one["who"], one["reason"]) == ("repair", "ann", "a loss")
    (wish,) = rig.store.rereads.wished()
    assert (wish.origin, wish.rows.most) == (Origin.REPAIR, 100_000)
    assert wish.rows.keys == (WishedKey('["x"]'), WishedKey('["y"]'), WishedKey('["it,s"]'))


def test_ranges_and_arrays_of_keys(rig: Rig, server: str) -> None:
    words = ("--ranges", "1..5,9..9", "--keys", '[["a"],["b"]]', "--no-wait")
    run(repair.COMMAND, server, USERS, *words)

    (wish,) = rig.store.rereads.wished()
    assert wish.rows.ranges == (WishedRange(1, 5), WishedRange(9, 9))
    assert wish.rows.keys == (WishedKey('["a"]'), WishedKey('["b"]'))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((USERS,), "no rows are named"),
        (("shop.nobody", "--keys", "1"), "no table 'shop.nobody' is known"),
        ((USERS, "--ranges", "5..1"), "write 17..29"),
        ((USERS, "--incident", "nobody"), "no incident 'nobody'"),
        ((USERS, "--keys", "1", "--cancel"), "is not being read now"),
        ((USERS, "--keys", "x", "--dry-run"), "a dry run is of ids"),
        ((USERS, "--ranges", "1..9", "--most", "100001", "--dry-run"), "of 100000 rows at most"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    server: str, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(repair.COMMAND, server, *words, "--no-wait")

    assert why in str(refused.value)


def test_a_second_wish_for_a_table_waits_its_turn(rig: Rig, server: str) -> None:
    run(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")

    again = run(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait", "--json")
    told = r"is being read again \(repair .*, ann: a loss\).* sluice repair shop.users --cancel"
    with pytest.raises(ConfigError, match=told):
        run(replay.COMMAND, server, USERS, "--no-wait")

    assert asked(again)["id"] == rig.store.rereads.wished()[0].id


def test_an_incident_names_the_rows_and_its_check_is_to_pass_again(rig: Rig, server: str) -> None:
    fail(rig)
    (incident,) = [one for one in rig.store.incidents.open() if one.cause.check == "range_counts"]

    one = asked(
        run(repair.COMMAND, server, USERS, "--incident", incident.id, "--no-wait", "--json")
    )

    (wish,) = rig.store.rereads.wished()
    assert wish.rows.ranges == (WishedRange(17, 29, "shop/shop.users"),)
    assert (one["incident"], one["unchecked"]) == (incident.id, ["range_counts"])


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 4)])
def test_who_waits_learns_whether_the_check_passes(
    *, rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch, passed: bool, status: int
) -> None:
    fail(rig)
    steps = iter(["read", "checked"])

    def meanwhile(_: float) -> None:
        (one,) = rig.store.rereads.list()
        if next(steps) == "read":
            rig.store.rereads.told([RereadState(one.id, USERS, "s/u", 13, 7)], rig.clock())
        else:
            proof = CheckedAgain("range_counts", passed, rig.clock(), "13 rows")
            rig.store.rereads.checked(one.id, [proof])

    monkeypatch.setattr("monitor.rereading.time.sleep", meanwhile)

    result = run(repair.COMMAND, server, USERS, "--ranges", "17..29")

    assert result.exit_code == status
    said = f"range_counts {'passes' if passed else 'fails'}: 13 rows"
    assert "13 rows read, they are in the change log; range_counts is asked again" in result.output
    assert result.output.splitlines()[-1].endswith(said)


def test_who_waits_for_a_check_that_says_nothing_any_more_does_not_wait_for_ever(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(rig)
    waited = iter(range(9))

    def meanwhile(_: float) -> None:
        (one,) = rig.store.rereads.list()
        rig.store.rereads.told([RereadState(one.id, USERS, "s/u", 13, 7)], rig.clock())
        if next(waited) > 1:
            rig.now += timedelta(days=1)

    monkeypatch.setattr("monitor.rereading.time.sleep", meanwhile)

    result = run(repair.COMMAND, server, USERS, "--ranges", "17..29")

    assert result.exit_code == 4
    assert next(waited) == 3
    assert "range_counts is asked again" in result.output


def test_a_replay_of_all_tables_that_begin_so(rig: Rig, server: str) -> None:
    words = ("shop.*", "--where", "id > 7", "--date", "2026-03-28", "--no-wait")
    run(replay.COMMAND, server, *words)

    wished = {one.table: one for one in rig.store.rereads.wished()}
    assert wished.keys() == {USERS, ORDERS}
    assert {one.origin for one in wished.values()} == {Origin.REPLAY}
    assert wished[USERS].rows.where == "id > 7"
    zone = rig.api_parts().gate.zone
    assert wished[USERS].at == datetime(2026, 3, 28, 12, tzinfo=zone).astimezone(UTC)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((USERS, "--where", "sleep(9) = 0"), "the condition is not plain"),
        (("nobody.*",), "no table's name begins with"),
        ((USERS, "--date", "yesterday"), "day"),
    ],
)
def test_a_replay_that_is_not_plain_is_refused(
    rig: Rig, server: str, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(replay.COMMAND, server, *words, "--no-wait")

    assert why in str(refused.value)
    assert rig.store.rereads.wished() == ()


def test_it_can_be_given_up(rig: Rig, server: str) -> None:
    run(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")

    result = run(repair.COMMAND, server, USERS, "--cancel")

    assert "the repair ended incomplete: cancelled by ann: a loss" in result.output
    assert rig.store.rereads.wished() == ()


def test_a_replay_of_all_tables_that_begin_so_can_be_given_up(rig: Rig, server: str) -> None:
    run(replay.COMMAND, server, "shop.*", "--no-wait")

    result = run(replay.COMMAND, server, "shop.u*", "--cancel")
    with pytest.raises(ConfigError, match=r"shop\.u\* is not being read now"):
        run(replay.COMMAND, server, "shop.u*", "--cancel")

    assert f"{USERS}: the replay ended incomplete: cancelled by ann: a loss" in result.output
    assert [one.table for one in rig.store.rereads.wished()] == [ORDERS]


def test_what_the_service_lists_no_more_is_not_called_done(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: float) -> None:
        found = [RereadState(o.id, o.table, "s/u", done=7) for o in rig.store.rereads.wished()]
        rig.store.rereads.told(found, rig.clock())

    monkeypatch.setattr("monitor.rereading.MOST", 1)
    monkeypatch.setattr("monitor.rereading.time.sleep", meanwhile)

    one = run(replay.COMMAND, server, "shop.o*")
    both = run(replay.COMMAND, server, "shop.*")

    assert (one.exit_code, both.exit_code) == (0, 4)
    assert "more are too old to be listed, so how they ended is not known" in both.output


def test_the_page_says_what_kind_it_is(rig: Rig, server: str) -> None:
    run(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")
    rig.second()

    rig.round()

    (view,) = rig.current.board.rereads
    assert view.told == "read again from its source, repair: 0 rows"


def test_a_dry_run_tells_what_would_change(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: float) -> None:
        (wish,) = rig.store.rereads.wished()
        assert wish.dry
        found = Preview(1, 0, 2, ("missing: 3", "different: 4", "different: 5"))
        state = RereadState(wish.id, USERS, "s/u", done=7, preview=found)
        rig.store.rereads.told([state], rig.clock())

    monkeypatch.setattr("monitor.rereading.time.sleep", meanwhile)

    result = run(repair.COMMAND, server, USERS, "--ranges", "1..9", "--dry-run")

    assert result.exit_code == 0
    assert "a repair would change 1 missing, 0 extra, 2 different" in result.output
    assert result.output.splitlines()[-3:] == ["  missing: 3", "  different: 4", "  different: 5"]
