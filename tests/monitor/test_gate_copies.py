"""Stage `copy` at the gate: READY only for what the copy itself says it holds."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from alerts.model import AlertKind
from checks.model import Outcome
from monitor.commands import explain, gate
from monitor.commands.status import COMMAND as STATUS
from monitor.copying import ComparedPositions
from monitor.observe.system_checks import of_copies
from monitor.web.api import build_application
from monitor.web.metrics import encode_metrics
from monitor.web.status_page import status_page
from pipeline.backfill_state import Backfill
from pipeline.copies.copy import CopiedVersion, CopyPosition
from pipeline.errors import UnreachableError
from pipeline.landing.backfill import BackfilledRows, BackfillStep
from pipeline.landing.next_checkpoint import next_checkpoint
from pipeline.landing.plan import Plan
from pipeline.model import Missing, Order, Origin, Shard
from pipeline.reports import Hold
from tests.builders import batch_context
from tests.monitor.rig import ORDERS, SHARDS, USERS, Rig, codes_of
from tests.monitor.serving import serving

HELD = Hold("copy:cache:shop.users", USERS, "copy_columns", "alter it")


@dataclass(eq=False)
class FakeCopy:
    """Stands where it was told to, and can be silent."""

    rig: Rig
    kept: dict[str, CopyPosition] = field(default_factory=dict)
    silent: bool = False
    hold: Hold | None = None

    def positions(self) -> Mapping[str, CopyPosition]:
        if self.silent:
            raise UnreachableError("redis://h: timed out")
        return dict(self.kept)

    def stand_still(self) -> None:
        """Be held until its store is altered."""
        self.hold = HELD

    def catch_up(self) -> None:
        """Hold what the mirror of users holds."""
        at = self.rig.lake.mirrors[USERS]
        self.kept[USERS] = CopyPosition(at.mirror, at.version, at.batch)


@pytest.fixture
def copy(rig: Rig) -> FakeCopy:
    """Two rounds of a pipeline that works; users have a copy, which holds what the mirror does."""
    rig.round()
    made = FakeCopy(rig)
    rig.watcher.sampler.copies = {"cache": made.positions}
    rig.gate.copies = lambda table: ("cache",) if table == USERS else ()
    rig.round()
    made.catch_up()
    rig.cycle.copies = lambda table: {"cache": made.hold} if table == USERS else {}
    return made


def ask_copy_gate(rig: Rig, cut: str = "2026-03-28", **more: Any) -> tuple[int, Any]:
    rig.second(2)
    rig.write_heartbeat()
    asked = {"table": USERS, "stage": "copy", "copy": "cache", "cut": cut, **more}
    answer = rig.client.get("/v1/gate", params=asked)
    return answer.status_code, answer.json()


def test_ready_names_the_copy_and_the_version_that_it_holds(rig: Rig, copy: FakeCopy) -> None:
    rig.land()
    rig.apply()  # the mirror goes on; the copy does not yet

    status, answer = ask_copy_gate(rig)

    (told,) = answer["tables"]
    assert (status, told["stage"], told["copy"]) == (200, "copy", "cache")
    assert told["version"] == copy.kept[USERS].version < rig.lake.mirrors[USERS].version
    kept = rig.client.get(f"/v1/certificates/{told['certificate']}").json()
    assert (kept["stage"], kept["copy"], kept["applied"]) == ("copy", "cache", 1)
    assert [one["hop"] for one in told["hops"]] == ["collection", "consumer", "merge", "copy"]


def test_what_the_mirror_holds_is_not_ready_in_a_copy_that_lacks_it(
    rig: Rig, copy: FakeCopy
) -> None:
    rig.write_heartbeat()
    cut = rig.now.isoformat()
    rig.second(30)
    for _ in range(2):
        rig.flow()
    rig.second(8)

    mirror, _ = ask_copy_gate(rig, cut, stage="mirror", copy="")
    status, answer = ask_copy_gate(rig, cut)
    assert (mirror, status) == (200, 404)
    assert "not_applied" in codes_of(answer)
    copy.catch_up()

    assert ask_copy_gate(rig, cut)[0] == 200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            {"parts": 3},
            ("the copy is being loaded; 3 parts are complete"),
            id="it is being loaded",
        ),
        pytest.param({"mirror": "another"}, "recreated since", id="it is of another mirror"),
        pytest.param(None, "nothing is copied yet", id="it is empty"),
    ],
)
def test_a_copy_that_does_not_hold_the_mirror_whole_is_unknown(
    rig: Rig, copy: FakeCopy, change: dict[str, Any] | None, why: str
) -> None:
    at = copy.kept.pop(USERS)
    if change is not None:
        copy.kept[USERS] = replace(at, **change)

    status, answer = ask_copy_gate(rig)

    assert (status, answer["state"]) == (404, "unknown")
    assert any(why in one["text"] for one in answer["tables"][0]["reasons"])


def test_one_that_does_not_answer_is_unknown_and_the_mirror_is_ready(
    rig: Rig, copy: FakeCopy
) -> None:
    copy.silent = True

    assert (ask_copy_gate(rig)[0], ask_copy_gate(rig, stage="mirror", copy="")[0]) == (404, 200)


def test_a_stage_without_the_name_of_a_copy_names_those_there_are(rig: Rig, copy: FakeCopy) -> None:
    status, answer = ask_copy_gate(rig, copy="")

    told = "stage copy needs `copy`, the name of a copy; known: cache"
    assert (status, answer["error"]) == (400, told)


def test_what_blocks_the_mirror_blocks_its_copies(rig: Rig, copy: FakeCopy) -> None:
    rig.rule(USERS, Outcome.FAIL)

    assert ask_copy_gate(rig)[0] == 409


def test_a_copy_is_not_ready_before_it_has_the_rows_of_a_repair(rig: Rig, copy: FakeCopy) -> None:
    """The check passes by the mirror, which has them; a copy follows later."""
    rig.rule(USERS, Outcome.FAIL)
    _land_repair(rig)
    rig.write_heartbeat()
    rig.rule(USERS, Outcome.PASS)

    status, answer = ask_copy_gate(rig)

    assert ask_copy_gate(rig, stage="mirror", copy="")[0] == 200
    assert status == 404
    assert "not_applied" in codes_of(answer)
    copy.catch_up()
    assert ask_copy_gate(rig)[0] == 200


def test_a_copy_is_not_ready_while_a_bootstrap_repairs_its_table(rig: Rig, copy: FakeCopy) -> None:
    """Its first rows may already have made the check pass."""
    (shard,) = (name for name, table in SHARDS.items() if table == USERS)
    going = Backfill("x", Origin.SNAPSHOT, Order(1, 1, 50), "A", 1)
    rig.rule(USERS, Outcome.FAIL)
    rig.write_heartbeat()
    rig.rule(USERS, Outcome.PASS)
    rig.set_checkpoint(backfills={Shard.parse(shard): going})

    status, answer = ask_copy_gate(rig)

    assert ask_copy_gate(rig, stage="mirror", copy="")[0] == 200
    assert (status, codes_of(answer)) == (404, ["check_failed"])
    rig.set_checkpoint(backfills={Shard.parse(shard): replace(going, done=rig.newest.batch)})
    copy.catch_up()
    assert ask_copy_gate(rig)[0] == 200


def _land_repair(rig: Rig) -> None:
    """A batch with repaired rows of users, merged into the mirror."""
    (shard,) = (Shard.parse(name) for name, table in SHARDS.items() if table == USERS)
    order = Order(1, 1, 50)
    rows = BackfilledRows(shard, USERS, "x", order, 0, None, ("1",), True, 1, None)
    again = BackfillStep({shard: Backfill("x", Origin.REPAIR, order, "A", 1)}, taken=(rows,))
    context, plan = batch_context(rig.newest), Plan({}, rig.newest.offsets, (), capped=False)
    made, _ = next_checkpoint(context, plan, acknowledged={}, names_of=lambda _: None, again=again)
    rig.write_heartbeat()
    rig.land()
    assert made.batch == rig.newest.batch
    rig.set_checkpoint(belated=made.belated)
    rig.apply()


@pytest.mark.parametrize("lost", ["emptied", "set back", "loaded again", "of another mirror"])
def test_a_certificate_falls_with_what_the_copy_held(rig: Rig, copy: FakeCopy, lost: str) -> None:
    assert ask_copy_gate(rig)[0] == 200
    at = copy.kept.pop(USERS)
    changed = {
        "set back": replace(at, version=at.version - 1, batch=at.batch - 2),
        "loaded again": replace(at, load=2, parts=0),
        "of another mirror": replace(at, mirror="another"),
    }
    copy.kept |= {USERS: changed[lost]} if lost in changed else {}
    rig.watch(2)

    status, answer = ask_copy_gate(rig)

    assert status == 409
    assert answer["state"] == "revoked"


@pytest.mark.parametrize(
    "backup",
    [
        pytest.param({"load_id": "first"}, id="of an earlier load"),
        pytest.param({"load_id": "first", "version": 1, "batch": 0}, id="and version"),
        pytest.param({"version": 9}, id="of a service that moved it on"),
    ],
)
def test_a_certificate_falls_if_the_copy_comes_back_with_what_was_not_compared(
    rig: Rig, copy: FakeCopy, backup: dict[str, Any]
) -> None:
    """Also while its job cannot begin to load it again."""
    target: Any = copy
    ledger, at = rig.store.ledger.copies, replace(copy.kept[USERS], load_id="second", load=2)
    rig.watcher.sampler.copies = {"cache": ComparedPositions("cache", target, ledger)}
    copy.kept[USERS] = at
    load = CopiedVersion(at.version, swept=True, lineage=at.lineage)
    ledger.add_copied("cache", USERS, [load], rig.now)
    assert ask_copy_gate(rig)[0] == 200

    copy.kept[USERS] = replace(at, **backup)
    rig.watch(2)

    status, answer = ask_copy_gate(rig)
    assert (status, answer["state"]) == (409, "revoked")


def test_a_copy_that_is_silent_takes_no_certificate_back(rig: Rig, copy: FakeCopy) -> None:
    assert ask_copy_gate(rig)[0] == 200
    copy.silent = True

    assert ask_copy_gate(rig)[0] == 200


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param({"copy": "cahce"}, "known: cache", id="a name that is wrong"),
        pytest.param({"copy": ""}, "known: cache", id="no name"),
        pytest.param({"table": ORDERS}, "name it in `copies`", id="a table that is not copied"),
        pytest.param({"stage": "mirror"}, "ask for stage copy", id="a name and another stage"),
    ],
)
def test_what_is_no_copy_is_a_wrong_question(
    rig: Rig, copy: FakeCopy, asked: dict[str, str], why: str
) -> None:
    status, answer = ask_copy_gate(rig, **asked)

    assert status == 400
    assert why in answer["error"]


def test_the_board_tells_how_far_each_copy_is(rig: Rig, copy: FakeCopy) -> None:
    rig.write_heartbeat()
    rig.second(20)
    rig.flow()
    rig.cycle.watch()

    view = rig.view(USERS)
    (shown,) = view.copies
    assert isinstance(shown.hop.lag, timedelta)
    assert shown.hop.lag > timedelta(seconds=20)
    lags = encode_metrics(rig.current.board, rig.now).decode()
    assert f'sluice_copy_lag_seconds{{table="{USERS}",copy="cache"}}' in lags
    assert "copy cache" in status_page(rig.current.board, rig.now)
    assert rig.client.get("/v1/tables").json()[1]["copies"]["cache"]["hop"] == "copy"


def test_one_that_stands_still_or_is_late_is_said(rig: Rig, copy: FakeCopy) -> None:
    rig.watch()
    view = rig.view(USERS)
    (good,) = view.copies
    late = replace(good, hop=replace(good.hop, lag=timedelta(minutes=2)))
    unknown = replace(good, hop=replace(good.hop, lag=Missing("it is down")))
    minute = timedelta(minutes=1)

    told = [
        {one.check: one.ruling for one in of_copies(USERS, found, minute, rig.now)}
        for found in ([good], [good, late], [unknown], [late, replace(good, hold=HELD)], [])
    ]

    found = [(one["copy"].outcome, one["copy"].code) for one in told[:-1]]
    fail = Outcome.FAIL
    assert found == [
        (Outcome.PASS, ""),
        (fail, "late"),
        (Outcome.UNKNOWN, "not_yet"),
        (fail, "late"),
    ]
    assert told[3]["copy"].reason.endswith(" (and 1 more)")
    assert {one["copy_ledger"].outcome for one in told[:-1]} == {Outcome.PASS}
    assert told[-1] == {}


def test_status_and_explain_say_how_copies_stand(rig: Rig, copy: FakeCopy) -> None:
    rig.round()
    copy.catch_up()
    rig.cycle.watch()
    with serving(build_application(rig.api_parts())) as server:
        good = [
            _said(explain.COMMAND, USERS, "--server", server),
            _said(STATUS, "--server", server),
        ]
        copy.hold = HELD
        rig.cycle.watch()
        held = [
            _said(explain.COMMAND, USERS, "--server", server),
            _said(STATUS, "--server", server),
        ]
        other = _said(explain.COMMAND, ORDERS, "--server", server)

    assert " s behind its mirror, complete up to 2026-03-29" in good[0]
    assert "copy cache: 1 of 1 tables follow, at most " in good[1]
    assert "copy cache: held: copy_columns: alter it" in held[0]
    assert "copy cache: 0 of 1 tables follow" in held[1]
    assert f"{USERS}: held: copy_columns: alter it" in held[1]
    assert "copy cache" not in other


def _said(*words: Any) -> str:
    verb, *rest = words
    return CliRunner().invoke(verb, rest, catch_exceptions=False).output


def test_a_table_whose_copy_is_held_is_an_incident_that_ends(rig: Rig, copy: FakeCopy) -> None:
    copy.hold = HELD
    rig.round()
    copy.catch_up()
    (found,) = [one for one in rig.store.incidents.open() if one.cause.check == "copy"]
    assert found.cause.subject == USERS
    copy.hold = None

    rig.round()

    assert [one for one in rig.store.incidents.open() if one.cause.check == "copy"] == []


def test_a_copy_is_ready_only_for_versions_that_the_ledger_has_compared(
    rig: Rig, copy: FakeCopy
) -> None:
    target: Any = copy
    compared = ComparedPositions("cache", target, rig.store.ledger.copies)
    rig.watcher.sampler.copies = {"cache": compared}

    status, answer = ask_copy_gate(rig)
    whys = [one["text"] for one in answer["tables"][0]["reasons"]]
    assert (status, answer["state"]) == (404, "unknown")
    assert any("the copy is being loaded" in why for why in whys)
    first = copy.kept[USERS]
    load = CopiedVersion(first.version, lineage=first.lineage)
    rig.store.ledger.copies.add_copied("cache", USERS, [load], rig.now)
    assert ask_copy_gate(rig)[0] == 200

    rig.write_heartbeat()
    cut = rig.now.isoformat()
    rig.second(30)
    for _ in range(2):
        rig.flow()
    rig.second(8)
    copy.catch_up()  # by one step: the one before it was compared
    before = CopiedVersion(first.version + 1, rig.now, {}, {}, lineage=first.lineage)
    rig.store.ledger.copies.add_copied("cache", USERS, [before], rig.now)
    status, answer = ask_copy_gate(rig, cut)
    assert (status, "not_applied" in codes_of(answer)) == (404, True)
    assert ask_copy_gate(rig)[0] == 200

    lost = CopiedVersion(first.version + 2, rig.now, {"7": {"u": 2}}, {}, lineage=first.lineage)
    assert lost.version == copy.kept[USERS].version
    rig.store.ledger.copies.add_copied("cache", USERS, [lost], rig.now)
    assert ask_copy_gate(rig, cut)[0] == 409
    assert ask_copy_gate(rig)[0] == 409


def lose_row_of_copy(rig: Rig) -> str:
    """The copy takes over one of two updates of version 5; the id of a waiver."""
    done = (CopiedVersion(4), CopiedVersion(5, rig.now, {"7": {"u": 2}}, {"7": {"u": 1}}))
    rig.store.ledger.copies.add_copied("cache", USERS, done, rig.now)
    (lost,) = rig.store.ledger.copy_losses(USERS, "cache").residuals
    return f"ledger:{USERS}:{lost.key}"


def test_a_copy_that_lacks_a_row_is_blocked_until_it_is_loaded_and_its_table_is_not(
    rig: Rig, copy: FakeCopy
) -> None:
    assert ask_copy_gate(rig)[0] == 200
    lose_row_of_copy(rig)

    status, answer = ask_copy_gate(rig)
    (why,) = [one["text"] for one in answer["tables"][0]["reasons"] if one["code"] == "residual"]
    assert (status, answer["state"]) == (409, "revoked")
    assert why.startswith("1 row (u: 1) at hop copy:cache, of 1970-01-01 00:07 UTC went in")
    assert "load" in why
    assert ask_copy_gate(rig, stage="mirror", copy="")[0] == 200

    rig.store.ledger.copies.add_copied("cache", USERS, [CopiedVersion(6)], rig.now)
    assert ask_copy_gate(rig)[0] == 200


def test_rows_that_a_copy_lacks_are_an_incident_that_a_waiver_ends(
    rig: Rig, copy: FakeCopy
) -> None:
    waiver = lose_row_of_copy(rig)
    rig.round()
    copy.catch_up()
    (found,) = [one for one in rig.store.incidents.open() if one.cause.check == "copy_ledger"]
    assert found.cause.subject == USERS
    assert found.ruling.keys == (waiver,)
    assert [one for one in rig.store.incidents.open() if one.cause.check == "ledger"] == []
    metric = f'sluice_ledger_residual_rows{{table="{USERS}",hop="copy:cache"}} 1.0'
    assert metric in encode_metrics(rig.current.board, rig.now).decode()

    told = {"id": waiver, "reason": "a test", "who": "me"}
    assert rig.client.post("/v1/waivers", json=told).status_code == 201
    rig.round()

    assert [one for one in rig.store.incidents.open() if one.cause.check == "copy_ledger"] == []
    copy.catch_up()
    assert ask_copy_gate(rig)[0] == 200


@pytest.mark.parametrize("first", ["lost", "held"])
def test_a_loss_and_a_standstill_of_a_copy_are_incidents_that_end_alone(
    rig: Rig, copy: FakeCopy, first: str
) -> None:
    lose = partial(lose_row_of_copy, rig)
    steps = (lose, copy.stand_still) if first == "lost" else (copy.stand_still, lose)
    for step in steps:
        step()
        rig.round()
    both = [(AlertKind.LATE, "copy"), (AlertKind.LOST, "copy_ledger")]
    assert open_of_copies(rig) == both
    for incident in rig.store.incidents.open():
        assert incident.ruling.reason.count("alter it") == (incident.cause.check == "copy")

    copy.hold = None
    copy.catch_up()
    rig.watch()
    assert open_of_copies(rig) == both[1:]

    copy.stand_still()
    rig.store.ledger.copies.add_copied(
        "cache", USERS, [CopiedVersion(rig.lake.mirrors[USERS].version)], rig.now
    )
    rig.round()
    assert open_of_copies(rig) == both[:1]


def test_a_loss_in_one_copy_does_not_hide_that_another_is_held(rig: Rig, copy: FakeCopy) -> None:
    other = Hold("copy:serving:shop.users", USERS, "copy_columns", "alter it")
    rig.watcher.sampler.copies = dict.fromkeys(("cache", "serving"), copy.positions)
    rig.cycle.copies = lambda table: {"cache": None, "serving": other} if table == USERS else {}
    lose_row_of_copy(rig)

    rig.round()

    assert open_of_copies(rig) == [(AlertKind.LATE, "copy"), (AlertKind.LOST, "copy_ledger")]


def open_of_copies(rig: Rig) -> list[tuple[AlertKind, str]]:
    """Kind and check of each open incident of a copy."""
    found = [one.cause for one in rig.store.incidents.open() if one.cause.check.startswith("copy")]
    return sorted((one.kind, one.check) for one in found)


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(hours=1)])
def test_a_waiver_covers_no_row_that_the_copy_loses_later_though_the_clock_stepped_back(
    rig: Rig, copy: FakeCopy, ahead: timedelta
) -> None:
    follow = CopiedVersion(5, rig.now, {"7": {"u": 2}}, {"7": {"u": 1}})
    rig.store.ledger.copies.add_copied("cache", USERS, (CopiedVersion(4), follow), rig.now + ahead)
    (first,) = rig.store.ledger.copy_losses(USERS, "cache").residuals
    told = {"id": f"ledger:{USERS}:{first.key}", "reason": "a test", "who": "me"}
    assert rig.client.post("/v1/waivers", json=told).status_code == 201
    copy.catch_up()
    assert ask_copy_gate(rig)[0] == 200

    late = [CopiedVersion(6, rig.now, {"7": {"u": 500}}, {})]
    rig.store.ledger.copies.add_copied("cache", USERS, late, rig.now + timedelta(minutes=5))

    status, answer = ask_copy_gate(rig)
    (why,) = [one["text"] for one in answer["tables"][0]["reasons"] if one["code"] == "residual"]
    assert status == 409
    assert why.startswith("501 rows (u: 501) at hop copy:cache")


def test_gate_and_explain_show_how_a_loss_of_a_copy_is_waived(rig: Rig, copy: FakeCopy) -> None:
    command = f"sluice waive {shlex.quote(lose_row_of_copy(rig))} --reason ..."
    rig.round()
    copy.catch_up()
    rig.watch()
    with serving(build_application(rig.api_parts())) as server:
        asked = (USERS, "--stage", "copy", "--copy", "cache", "--server", server)
        gated = _said(gate.COMMAND, *asked)
        explained = _said(explain.COMMAND, USERS, "--server", server)

    assert f"  (to ignore it: {command})\n" in gated
    assert explained.count(f"  ({command})\n") == 1


def test_the_ledger_of_a_table_has_a_line_for_each_copy(rig: Rig, copy: FakeCopy) -> None:
    asked = {"from": "1970-01-01T00:00:00Z", "to": "1970-01-01T01:00:00Z"}
    lose_row_of_copy(rig)
    rig.round()

    answer = rig.client.get(f"/v1/tables/{USERS}/ledger", params=asked).json()
    page = rig.client.get("/ledger", params={"table": USERS, **asked}).text
    orders = rig.client.get(f"/v1/tables/{ORDERS}/ledger").json()

    hop = answer["hops"][-1]
    assert (hop["hop"], hop["residual"], hop["minutes"][0]["missing"]) == (
        "copy:cache",
        1,
        {"u": 1},
    )
    assert "copy:cache: from the mirror into the copy" in page
    assert '<g data-state="residual">' in page
    assert [one["hop"] for one in orders["hops"]] == ["collection", "landing", "merge"]
