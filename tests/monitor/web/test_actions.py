"""Backfills are requested by route and verb, recorded with who and why, and shown until proven."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result

from checks.model import Outcome, Ruling, Verdict
from monitor.__main__ import sluice
from monitor.commands import repair, replay
from monitor.commands.bootstrap import COMMAND
from monitor.store.requests import CheckedAgain
from pipeline.backfill_state import BackfillState, RepairPreview, SelectedKey, SelectedRange
from pipeline.errors import ConfigError
from pipeline.model import Origin
from tests.monitor.rig import ORDERS, USERS, Rig


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    return rig


def run_command(command: click.Command, server: str, *words: str) -> Result:
    given = [*words, "--reason", "a loss", "--who", "ann", "--server", server]
    return CliRunner().invoke(command, given, catch_exceptions=False)


def only_request(result: Result) -> dict[str, Any]:
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
    rig.dictionary.types["id"] = "VARCHAR"
    words = (USERS, "--keys", "x,y", "--keys", '["it,s"]', "--no-wait", "--json")
    one = only_request(run_command(repair.COMMAND, server, *words))

    assert (one["kind"], one["who"], one["reason"]) == ("repair", "ann", "a loss")
    (wish,) = rig.store.backfills.wished()
    assert (wish.origin, wish.rows.most) == (Origin.REPAIR, 100_000)
    assert wish.rows.keys == (SelectedKey('["x"]'), SelectedKey('["y"]'), SelectedKey('["it,s"]'))


def test_ranges_and_arrays_of_keys(rig: Rig, server: str) -> None:
    rig.dictionary.types["id"] = "VARCHAR"
    words = ("--ranges", "1..5,9..9", "--keys", '[["a"],["b"]]', "--no-wait")
    run_command(repair.COMMAND, server, USERS, *words)

    (wish,) = rig.store.backfills.wished()
    assert wish.rows.ranges == (SelectedRange(1, 5), SelectedRange(9, 9))
    assert wish.rows.keys == (SelectedKey('["a"]'), SelectedKey('["b"]'))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((USERS,), "no rows are named"),
        (("shop.nobody", "--keys", "1"), "no table 'shop.nobody'; nothing was recorded"),
        ((USERS, "--ranges", "5..1"), "range '5..1' ends before it begins; write 1..5"),
        ((USERS, "--incident", "nobody"), "unknown incident 'nobody'"),
        ((USERS, "--incident", "i", "--keys", "1"), "no keys or ranges can be given with it"),
        ((USERS, "--incident", "i", "--ranges", "1..2"), "no keys or ranges can be given with it"),
        ((USERS, "--keys", "1", "--cancel"), "no backfill is running"),
        ((USERS, "--keys", "[17]", "--ranges", "1..2", "--keys", "x"), "'x' is no value of key"),
        ((USERS, "--ranges", "1..9", "--most", "100001", "--dry-run"), "at most 100000 rows"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    server: str, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run_command(repair.COMMAND, server, *words, "--no-wait")

    assert why in str(refused.value)


def test_a_second_wish_for_a_table_waits_its_turn(rig: Rig, server: str) -> None:
    rig.dictionary.types["id"] = "VARCHAR"
    run_command(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")

    again = run_command(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait", "--json")
    told = r"has a running backfill \(repair .*, ann: a loss\).* sluice repair shop.users --cancel"
    with pytest.raises(ConfigError, match=told):
        run_command(replay.COMMAND, server, USERS, "--no-wait")

    assert only_request(again)["id"] == rig.store.backfills.wished()[0].id


def test_an_incident_names_the_rows_and_its_check_is_to_pass_again(rig: Rig, server: str) -> None:
    """Another check of the table fails for other rows: it is not part of the incident."""
    other = Ruling(Outcome.FAIL, "id missing", "missing_rows", ("shop/shop.users:99",))
    rig.recorder.tell([Verdict(USERS, "max_id", other, rig.clock(), value=1.0)])
    fail(rig)
    (incident,) = [one for one in rig.store.incidents.open() if one.cause.check == "range_counts"]

    one = only_request(
        run_command(repair.COMMAND, server, USERS, "--incident", incident.id, "--no-wait", "--json")
    )

    (wish,) = rig.store.backfills.wished()
    assert wish.rows.ranges == (SelectedRange(17, 29, "shop/shop.users"),)
    assert (one["incident"], one["unchecked"]) == (incident.id, ["range_counts"])


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 4)])
def test_who_waits_learns_whether_the_check_passes(
    *, rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch, passed: bool, status: int
) -> None:
    fail(rig)
    steps = iter(["read", "checked"])

    def meanwhile(_: float) -> None:
        (one,) = rig.store.backfills.list()
        if next(steps) == "read":
            rig.store.backfills.record_states(
                [BackfillState(one.id, USERS, "s/u", 13, 7)], rig.clock()
            )
        else:
            proof = CheckedAgain("range_counts", passed, rig.clock(), "13 rows")
            rig.store.backfills.checked(one.id, [proof])

    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    result = run_command(repair.COMMAND, server, USERS, "--ranges", "17..29")

    assert result.exit_code == status
    said = f"range_counts {'passes' if passed else 'fails'}: 13 rows"
    assert "13 rows read, the rows are in the change log; range_counts runs again" in result.output
    assert result.output.splitlines()[-1].endswith(said)


def test_who_waits_for_a_check_that_says_nothing_any_more_does_not_wait_for_ever(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(rig)
    waited = iter(range(9))

    def meanwhile(_: float) -> None:
        (one,) = rig.store.backfills.list()
        rig.store.backfills.record_states([BackfillState(one.id, USERS, "s/u", 13, 7)], rig.clock())
        if next(waited) > 1:
            rig.now += timedelta(days=1)

    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    result = run_command(repair.COMMAND, server, USERS, "--ranges", "17..29")

    assert result.exit_code == 4
    assert next(waited) == 3
    assert "range_counts runs again" in result.output


def test_a_replay_of_all_tables_that_begin_so(rig: Rig, server: str) -> None:
    words = ("shop.*", "--where", "id > 7", "--date", "2026-03-28", "--no-wait")
    run_command(replay.COMMAND, server, *words)

    wished = {one.table: one for one in rig.store.backfills.wished()}
    assert wished.keys() == {USERS, ORDERS}
    assert {one.origin for one in wished.values()} == {Origin.REPLAY}
    assert wished[USERS].rows.where == "id > 7"
    zone = rig.api_parts().gate.zone
    assert wished[USERS].at == datetime(2026, 3, 28, 12, tzinfo=zone).astimezone(UTC)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((USERS, "--where", "sleep(9) = 0"), "unsupported condition"),
        (("nobody.*",), "no table name starts with"),
    ],
)
def test_a_replay_that_is_not_plain_is_refused(
    rig: Rig, server: str, words: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run_command(replay.COMMAND, server, *words, "--no-wait")

    assert why in str(refused.value)
    assert rig.store.backfills.wished() == ()


def test_it_can_be_given_up(rig: Rig, server: str) -> None:
    rig.dictionary.types["id"] = "VARCHAR"
    run_command(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")

    result = run_command(repair.COMMAND, server, USERS, "--cancel")

    assert "the repair ended incomplete: cancelled by ann: a loss" in result.output
    assert rig.store.backfills.wished() == ()


def test_a_replay_of_all_tables_that_begin_so_can_be_given_up(rig: Rig, server: str) -> None:
    run_command(replay.COMMAND, server, "shop.*", "--no-wait")

    result = run_command(replay.COMMAND, server, "shop.u*", "--cancel")
    with pytest.raises(ConfigError, match=r"shop\.u\*: no backfill is running"):
        run_command(replay.COMMAND, server, "shop.u*", "--cancel")

    assert f"{USERS}: the replay ended incomplete: cancelled by ann: a loss" in result.output
    assert [one.table for one in rig.store.backfills.wished()] == [ORDERS]


def test_what_the_service_lists_no_more_is_not_called_done(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: float) -> None:
        found = [BackfillState(o.id, o.table, "s/u", done=7) for o in rig.store.backfills.wished()]
        rig.store.backfills.record_states(found, rig.clock())

    monkeypatch.setattr("monitor.cli.options.MOST", 1)
    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    one = run_command(replay.COMMAND, server, "shop.o*")
    both = run_command(replay.COMMAND, server, "shop.*")

    assert (one.exit_code, both.exit_code) == (0, 4)
    assert "more are too old to be listed; their results are unknown" in both.output


def test_the_page_says_what_kind_it_is(rig: Rig, server: str) -> None:
    rig.dictionary.types["id"] = "VARCHAR"
    run_command(repair.COMMAND, server, USERS, "--keys", "x", "--no-wait")
    rig.second()

    rig.round()

    (view,) = rig.current.board.backfills
    assert view.description == "read again from its source, repair: 0 rows"


def test_a_dry_run_tells_what_would_change(
    rig: Rig, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: float) -> None:
        (wish,) = rig.store.backfills.wished()
        assert wish.dry
        found = RepairPreview(1, 0, 2, ("missing: 3", "different: 4", "different: 5"))
        state = BackfillState(wish.id, USERS, "s/u", done=7, preview=found)
        rig.store.backfills.record_states([state], rig.clock())

    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    result = run_command(repair.COMMAND, server, USERS, "--ranges", "1..9", "--dry-run")

    assert result.exit_code == 0
    assert "a repair would change 1 missing, 0 extra, 2 different" in result.output
    assert result.output.splitlines()[-3:] == ["  missing: 3", "  different: 4", "  different: 5"]


def test_a_dry_run_of_keys_that_are_no_ids_is_refused(rig: Rig, server: str) -> None:
    rig.dictionary.types["id"] = "VARCHAR"

    with pytest.raises(ConfigError, match="a dry run"):
        run_command(repair.COMMAND, server, USERS, "--keys", "x", "--dry-run", "--no-wait")


@pytest.mark.parametrize("keys", ["abc", "1.5", "99999999999999999999", '["17"],["x"]'])
def test_f189_a_key_of_another_type_is_refused_at_once(rig: Rig, server: str, keys: str) -> None:
    told = r"is no value of key column id of table shop\.users, which is BIGINT"
    if keys.startswith("["):
        keys = f"[{keys}]"

    with pytest.raises(ConfigError, match=told):
        run_command(repair.COMMAND, server, USERS, "--keys", keys, "--no-wait")

    assert not rig.store.backfills.wished()


def test_f189_a_silent_source_keeps_nobody_from_asking(rig: Rig, server: str) -> None:
    rig.dictionary.silent = True

    run_command(repair.COMMAND, server, USERS, "--keys", "abc", "--no-wait")

    assert len(rig.store.backfills.wished()) == 1


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("id = 'abc'", "'abc' is not a value of column id of table shop.users, which is BIGINT"),
        ("NOT (day >= '2026-03-01' AND day < 'soon')", "'soon' is not a value of column day"),
        ("price IN ('1', '1,5')", "'1,5' is not a value of column price"),
        ("other = 1", "shop.users has no column other; known: day, id, price, state"),
    ],
)
def test_f189_a_condition_on_another_type_is_refused_at_once(
    rig: Rig, server: str, where: str, why: str
) -> None:
    rig.dictionary.types |= {"day": "DATE", "price": "DECIMAL", "state": "VARCHAR"}

    with pytest.raises(ConfigError) as refused:
        run_command(replay.COMMAND, server, USERS, "--where", where, "--no-wait")

    assert why in str(refused.value)
    assert not rig.store.backfills.wished()


def test_f189_a_condition_that_fits_is_asked(rig: Rig, server: str) -> None:
    rig.dictionary.types |= {"day": "DATETIME", "price": "DECIMAL", "at": "TIME"}
    where = "day >= '2026-03-01' AND price > '1.5' AND at < '10:00:00' AND id LIKE 'x%'"

    run_command(replay.COMMAND, server, USERS, "--where", where, "--no-wait")

    assert rig.store.backfills.wished()[0].rows.where == where


def test_f189_only_a_dry_run_needs_no_reason(rig: Rig, server: str) -> None:
    words = ["repair", USERS, "--ranges", "1..9", "--server", server, "--no-wait", "--json"]

    refused = CliRunner().invoke(sluice, words)
    looked = CliRunner().invoke(sluice, [*words, "--dry-run"])

    assert (refused.exit_code, json.loads(refused.stdout)) == (
        2,
        {"error": "Missing option '--reason'."},
    )
    assert looked.exit_code == 0, looked.output
    assert only_request(looked)["reason"] == "a dry run"
    assert httpx.post(f"{server}/v1/repairs", json={"table": USERS, "who": "a"}).status_code == 400


def test_f189_an_error_is_json_where_that_is_asked_for(rig: Rig, server: str) -> None:
    words = ["repair", USERS, "--keys", "abc", "--reason", "x", "--server", server]

    ran = CliRunner().invoke(sluice, [*words, "--json"])
    plain = CliRunner().invoke(sluice, words)

    assert isinstance(ran.exception, ConfigError)
    assert json.loads(ran.stdout) == {"error": str(ran.exception)}
    assert plain.stdout == ""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "the request's body is not a JSON object; send a JSON object"),
        (None, "the request's body is not a JSON object; "),
        ({"table": USERS, "who": "a", "reason": "x", "keys": 7}, "keys: must be a valid list"),
    ],
)
def test_f194_a_fault_of_a_question_names_what_it_is_about(
    server: str, body: object, told: str
) -> None:
    answer = httpx.post(f"{server}/v1/repairs", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(told)


def bootstrap(server: str, *words: str) -> Result:
    given = [USERS, "--reason", "a gap", "--who", "ann", "--server", server, *words]
    return CliRunner().invoke(COMMAND, given, catch_exceptions=False)


def report_states(rig: Rig, *states: BackfillState) -> None:
    rig.store.backfills.record_states(states, rig.clock())


def test_it_is_begun_once_and_recorded_with_its_reason(rig: Rig, server: str) -> None:
    first = bootstrap(server, "--no-wait", "--json")
    second = bootstrap(server, "--no-wait", "--json")

    (one,) = json.loads(first.output)
    assert (one["reason"], one["who"], one["ended"]) == ("a gap", "ann", None)
    assert json.loads(second.output) == [one]
    assert [wish.table for wish in rig.store.backfills.wished()] == [USERS]


@pytest.mark.parametrize(
    ("last", "status", "said"),
    [
        pytest.param((50, 7, ""), 0, "50 rows read, the new base is complete", id="done"),
        pytest.param((0, None, "no key"), 4, "ended without a new base: no key", id="refused"),
    ],
)
def test_who_waits_sees_it_end(
    *,
    rig: Rig,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    last: tuple[int, int | None, str],
    status: int,
    said: str,
) -> None:
    steps = iter([(12, None, ""), last])

    def meanwhile(_: float) -> None:
        (wish,) = rig.store.backfills.wished()
        rows, done, why = next(steps)
        report_states(rig, BackfillState(wish.id, USERS, "s/u", rows, done, why, why == "no key"))

    monkeypatch.setattr("monitor.cli.options.time.sleep", meanwhile)

    result = bootstrap(server)

    assert result.exit_code == status
    assert f"{USERS}: 12 rows" in result.output
    assert result.output.splitlines()[-1] == f"{USERS}: {said}"


def test_a_table_of_which_nothing_has_landed_is_one_if_its_source_has_it(
    rig: Rig, server: str
) -> None:
    """A table of Postgres that is empty is told of by nobody else."""
    rig.dictionary.there.append("shop.empty")
    words = ["--reason", "empty", "--who", "ann", "--server", server, "--no-wait"]

    known = CliRunner().invoke(COMMAND, ["shop.empty", *words])
    unknown = CliRunner().invoke(COMMAND, ["shop.absent", *words])

    assert known.exit_code == 0, known.output
    assert [wish.table for wish in rig.store.backfills.wished()] == ["shop.empty"]
    assert "none of its changes has landed, and no source has it" in str(unknown.exception)


def test_a_bootstrap_can_be_given_up(rig: Rig, server: str) -> None:
    bootstrap(server, "--no-wait")

    result = bootstrap(server, "--cancel")

    assert result.exit_code == 0
    assert "ended without a new base: cancelled by ann: a gap" in result.output
    assert rig.store.backfills.wished() == ()


def test_a_page_says_what_is_read_and_a_metric_how_far(rig: Rig, server: str) -> None:
    bootstrap(server, "--no-wait")
    (wish,) = rig.store.backfills.wished()
    report_states(rig, BackfillState(wish.id, USERS, "s/u", 12, None, "down"))

    rig.round()

    (view,) = rig.current.board.backfills
    assert view.description == "read again from its source: 12 rows, 6 rows/s; waits: down"
