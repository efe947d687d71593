"""The gate opens when all is proven, and closes for everything that could make it wrong."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from checks.model import Outcome, Ruling, Verdict
from checks.ordering import SourceOrdering
from checks.readiness import Rule
from monitor.gate import Decision, GateQuestion
from monitor.store.alerts import Waiver
from monitor.web import deps
from pipeline.checkpoint import Gap, Quarantine
from pipeline.lags.lag import MOVING
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import (
    Account,
    Missing,
    Op,
    Ordering,
    PartitionEnd,
    Shard,
    Stage,
    TopicPartition,
)
from pipeline.reports import Hold
from pipeline.tables.lake import Lake
from tests.builders.lake import LocalLake, row
from tests.monitor.rig import NOON, ORDERS, USERS, Client, Rig, codes_of

DAY, EARLIER = "2026-03-28", "2026-03-27"
SOME = timedelta(seconds=1)


def test_a_healthy_table_is_ready_with_a_certificate_that_is_stored(healthy: Rig) -> None:
    status, answer = healthy.ask(cut=DAY)

    table = answer["tables"][0]
    kept = healthy.certificate(table["certificate"])
    assert (status, answer["state"]) == (200, "ready")
    assert kept.evidence.version == table["version"] == 1
    assert table["hops"][0]["sample_age_seconds"] is not None


def test_the_certificate_is_stored_before_anybody_is_told(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> bool:
        raise OSError("disk is full")

    monkeypatch.setattr(healthy.store.certificates, "add", full)

    answer = healthy.client.get("/v1/gate", params={"table": USERS, "cut": "now"})
    healthy.flow()
    healthy.second(2)
    later = healthy.client.get("/v1/gate", params={"table": USERS, "cut": "2026-03-29T12:00:04Z"})

    assert answer.status_code == 404
    assert later.status_code == 500


def test_a_cut_once_ready_answers_the_same_certificate_when_samples_go_missing(
    healthy: Rig,
) -> None:
    _, before = healthy.ask(cut=DAY)
    healthy.collector.silent = healthy.lake.silent = True
    healthy.second(3600)

    status, after = healthy.ask(cut=DAY)

    assert status == 200
    assert after["tables"][0]["certificate"] == before["tables"][0]["certificate"]


@pytest.mark.parametrize("restarted", [True, False])
def test_mirrors_in_each_others_folders_are_not_ready_until_they_are_swapped_back(
    healthy: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    lake = LocalLake(tmp_path / "lake", others=(USERS, ORDERS))
    lake.land(*(row(Op.CREATE, 10, 1, shard=name, table=name) for name in (USERS, ORDERS)))
    lake.run()
    real, position = Lake(lake.settings, lake.table_format), healthy.lake.applied
    monkeypatch.setattr(
        healthy.lake, "applied", lambda table: real.applied(table) and position(table)
    )
    users, orders = (Path(lake.settings.mirror(name)) for name in (USERS, ORDERS))

    def swap() -> None:
        shutil.move(users, tmp_path / "away")
        shutil.move(orders, users)
        shutil.move(tmp_path / "away", orders)

    healthy.round()
    cut = healthy.now.isoformat()
    assert [healthy.ask(table, cut=DAY)[0] for table in (USERS, ORDERS)] == [200, 200]
    swap()
    if restarted:
        healthy.restart()
    healthy.round(2)
    certified, fresh = (
        [healthy.ask(table, cut=at)[1] for table in (USERS, ORDERS)] for at in (DAY, cut)
    )
    swap()
    healthy.round(2)

    assert [answer["state"] for answer in certified] == ["revoked", "revoked"]
    assert [answer["state"] for answer in fresh] == ["unknown", "unknown"]
    for own, other, answers in (
        (USERS, ORDERS, (certified[0], fresh[0])),
        (ORDERS, USERS, (certified[1], fresh[1])),
    ):
        assert all(f"has the mirror of table {other}, not of {own};" in str(one) for one in answers)
    assert [healthy.ask(table, cut=cut)[0] for table in (USERS, ORDERS)] == [200, 200]


def _nothing(_: Rig) -> None:
    """Leave it as it is."""


def _silence(rig: Rig) -> None:
    rig.second(20)


def _quarantine(rig: Rig) -> None:
    rig.set_checkpoint(quarantine={"topic:shop.shop.users": Quarantine(None, 1, 1, ("q1",))})


def _hold(rig: Rig) -> None:
    hold = Hold("schema:shop.users", USERS, "schema", "a column changed its meaning")
    rig.hold(hold)


def _hold_source(rig: Rig) -> None:
    hold = Hold("h2", "source:shop", "server_changed", "another server answers")
    rig.hold_source(hold)


def _unbalance(rig: Rig) -> None:
    rig.store.accounts.add("main", USERS, 1, Account(read=5, applied=4), rig.now)


@pytest.mark.parametrize(
    ("harm", "status", "state", "code"),
    [
        pytest.param(_nothing, 200, "ready", None, id="nothing is wrong"),
        pytest.param(_silence, 404, "unknown", "lag_unknown", id="heartbeats stand still"),
        pytest.param(
            lambda rig: setattr(rig.lake, "silent", True), 404, "unknown", "no_mark", id="no lake"
        ),
        pytest.param(
            lambda rig: rig.intrude(USERS), 409, "blocked", "foreign_write", id="another writer"
        ),
        pytest.param(_quarantine, 409, "blocked", "quarantine", id="an undecoded change"),
        pytest.param(_hold, 409, "blocked", "schema", id="a held table"),
        pytest.param(_hold_source, 409, "blocked", "server_changed", id="a held source"),
        pytest.param(_unbalance, 409, "blocked", "unbalanced", id="an account with a residual"),
        pytest.param(
            lambda rig: rig.rule(USERS, Outcome.FAIL), 409, "blocked", "check_failed", id="loss"
        ),
        pytest.param(
            lambda rig: rig.rule(USERS, Outcome.UNKNOWN), 200, "ready", None, id="a blind probe"
        ),
        pytest.param(
            lambda rig: rig.rule(USERS, Outcome.FAIL, "volatility"),
            200,
            "ready",
            None,
            id="suspect",
        ),
    ],
)
def test_a_cut_that_was_never_certified_gets_the_truth(
    healthy: Rig, harm: Callable[[Rig], object], status: int, state: str, code: str | None
) -> None:
    cut = (NOON + timedelta(seconds=2)).isoformat()
    harm(healthy)
    healthy.second(2)

    got, answer = healthy.ask(cut=cut)

    codes = codes_of(answer)
    assert (got, answer["state"]) == (status, state)
    assert code is None or code in codes


def test_what_stands_still_for_one_table_closes_no_other(healthy: Rig) -> None:
    _hold(healthy)

    assert healthy.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 409
    assert healthy.ask(ORDERS, cut="2026-03-29T12:00:02Z")[0] == 200
    assert healthy.ask(USERS, ORDERS, cut="2026-03-29T12:00:02Z")[0] == 409


def test_a_loss_revokes_and_a_pass_certifies_anew(healthy: Rig) -> None:
    _, first = healthy.ask(cut=DAY)
    healthy.rule(USERS, Outcome.FAIL)
    healthy.second(2)
    lost, told = healthy.ask(cut=DAY)
    healthy.rule(USERS, Outcome.PASS)
    healthy.flow()
    healthy.second(2)

    again, second = healthy.ask(cut=DAY)

    number = first["tables"][0]["certificate"]
    revoked = healthy.client.get(f"/v1/certificates/{number}").json()
    assert (lost, told["state"]) == (409, "revoked")
    assert revoked["why"] == "range_counts: range_counts says fail"
    assert again == 200
    assert second["tables"][0]["certificate"] != number


def test_a_look_from_before_a_check_read_the_repaired_mirror_is_not_ready(healthy: Rig) -> None:
    """The probe's round began before the look, and read the mirror after it."""
    healthy.rule(USERS, Outcome.FAIL)
    healthy.write_heartbeat()
    began, fences = healthy.now, (healthy.fences.of("shop")[-1],)
    healthy.second(0.1)
    look = healthy.watcher.look(timedelta(0), [USERS]).mirrors[USERS]
    assert isinstance(look, Sample)
    healthy.second(0.1)
    healthy.land()
    healthy.apply()
    passed = Verdict(USERS, "range_counts", Ruling(Outcome.PASS, "all are there"), began, fences)
    healthy.second(0.1)
    healthy.recorder.tell([passed])

    status, answer = healthy.ask(cut=DAY)

    assert look.value.version < healthy.lake.mirrors[USERS].version
    assert (status, codes_of(answer)) == (409, ["revoked", "check_failed"])
    healthy.second()
    assert healthy.ask(cut=DAY)[0] == 200


@pytest.mark.parametrize(
    ("whole", "status"),
    [(frozenset[str](), 409), (frozenset({"range_counts"}), 200)],
    ids=["it looked at some", "it looked at all"],
)
def test_f03_a_pass_spares_yesterday_only_if_it_looked_at_all_rows(
    healthy: Rig, whole: frozenset[str], status: int
) -> None:
    """A row that is found missing may be in a range that no PASS has looked at since."""
    healthy.recorder.whole = whole
    assert healthy.ask(cut=DAY)[0] == 200
    healthy.round()
    healthy.rule(USERS, Outcome.PASS)
    healthy.round()

    healthy.rule(USERS, Outcome.FAIL)
    healthy.second(2)

    assert healthy.ask(cut=DAY)[0] == status


def test_f29_a_fail_of_which_all_is_waived_takes_nothing_back(healthy: Rig) -> None:
    before = healthy.ask(cut=DAY)[1]["tables"][0]["certificate"]
    told = Waiver(f"range_counts:{USERS}:[1, 2)", "a test row", "me", healthy.now)
    healthy.store.waivers.add(told)

    healthy.rule(USERS, Outcome.FAIL)
    healthy.second(2)
    status, answer = healthy.ask(cut=DAY)

    assert (status, answer["tables"][0]["certificate"]) == (200, before)


def _forget(rig: Rig) -> None:
    del rig.lake.mirrors[USERS]


def _truncate(rig: Rig) -> None:
    """The change log loses its newest batches."""
    rig.set_checkpoint(batch=0)


@pytest.mark.parametrize(
    ("harm", "state", "why"),
    [
        pytest.param(lambda rig: rig.intrude(USERS), "blocked", "", id="a foreign DELETE"),
        pytest.param(
            lambda rig: rig.rebuild(USERS),
            "ready",
            "the mirror is another Delta table now (shop.users-11), so its rows are not proven",
            id="a mirror made anew, complete",
        ),
        pytest.param(
            _forget, "revoked", "its mirror cannot be read: there is no mirror", id="no mirror"
        ),
        pytest.param(
            lambda rig: rig.lake.mirrors.update({USERS: MirrorPosition(0, 1, f"{USERS}-1")}),
            "ready",
            "the mirror is at version 0, but the certificate names 1",
            id="a mirror that lost its newest versions",
        ),
        pytest.param(
            _truncate,
            "ready",
            "the change log ends at batch 0, but the certificate rests on 1",
            id="a change log that lost batches",
        ),
    ],
)
def test_f02_a_certificate_holds_while_what_it_names_can_be_read(
    healthy: Rig, harm: Callable[[Rig], object], state: str, why: str
) -> None:
    before = healthy.ask(cut=DAY)[1]["tables"][0]["certificate"]
    harm(healthy)
    healthy.second(2)

    status, answer = healthy.ask(cut=DAY)

    told = healthy.client.get(f"/v1/certificates/{before}").json()
    assert answer["tables"][0]["certificate"] != before
    assert (answer["state"], told["why"]) == (state, why)
    assert (status == 200) is (state == "ready")
    assert (told["revoked"] is not None) is bool(why)


def test_f02_a_restart_forgets_no_certificate_that_has_lost_its_mirror(healthy: Rig) -> None:
    before = healthy.ask(cut=DAY)[1]["tables"][0]["certificate"]
    healthy.restart()
    _forget(healthy)
    healthy.second(2)

    status, answer = healthy.ask(cut=DAY)

    assert (status, answer["state"]) == (409, "revoked")
    assert healthy.client.get(f"/v1/certificates/{before}").json()["revoked"] is not None


def test_f02_a_batch_that_took_the_number_of_a_lost_one_upholds_no_certificate(
    healthy: Rig,
) -> None:
    """The log was put back and landed on while nobody looked: the number is there, the rows not."""
    first = replace(healthy.newest, incarnations={"0": 7})
    healthy.lake.newest = first
    healthy.second(2)
    before = healthy.ask(cut=EARLIER, stage="landed")[1]["tables"][0]["certificate"]
    healthy.lake.newest = replace(first, batch=9, incarnations={"0": 7, "2": 8})
    healthy.restart()
    healthy.second(2)
    kept = healthy.ask(cut=EARLIER, stage="landed")[1]["tables"][0]["certificate"]

    healthy.lake.newest = replace(first, batch=12, incarnations={"0": 7, "1": 9})
    healthy.second(2)
    after = healthy.ask(cut=EARLIER, stage="landed")[1]["tables"][0]["certificate"]

    told = healthy.client.get(f"/v1/certificates/{before}").json()
    assert kept == before
    assert after != before
    assert told["why"] == "the change log has lost batch 1, and another batch has its number"


def test_f02_a_certificate_answers_again_when_the_mirror_is_taken_back(healthy: Rig) -> None:
    before = healthy.ask(cut=DAY)[1]["tables"][0]["certificate"]
    healthy.intrude(USERS)
    healthy.second(2)
    assert healthy.ask(cut=DAY)[0] == 409
    assert healthy.ask(cut=DAY, stage="landed")[0] == 200
    healthy.restore(USERS, to=1)
    healthy.second(2)

    status, answer = healthy.ask(cut=DAY)

    assert status == 200
    assert answer["tables"][0]["certificate"] == before


def test_a_foreign_write_ends_when_the_mirror_is_taken_back(healthy: Rig) -> None:
    cut = "2026-03-29T12:00:02Z"
    healthy.intrude(USERS)
    healthy.second(2)
    assert healthy.ask(cut=cut)[0] == 409
    healthy.restore(USERS, to=1)
    healthy.write_heartbeat()
    healthy.second(2)

    assert healthy.ask(cut=cut)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Host": "evil.example:8088"}, id="a rebound name"),
        pytest.param({"Origin": "http://evil.example"}, id="a foreign page"),
    ],
)
def test_f35_no_foreign_page_waives_anything(healthy: Rig, headers: dict[str, str]) -> None:
    body = {"id": "schema:shop.users", "reason": "looked at it", "who": "on call"}

    answer = healthy.client.post("/v1/waivers", json=body, headers=headers)

    assert answer.status_code == 403
    assert healthy.store.waivers.list() == ()


def test_a_waiver_opens_what_a_person_has_judged(healthy: Rig) -> None:
    _hold(healthy)
    cut = "2026-03-29T12:00:02Z"
    assert healthy.ask(cut=cut)[0] == 409

    (held,) = healthy.hold_registry.holds()
    body = {"id": held.id, "reason": "looked at it", "who": "on call"}
    added = healthy.client.post("/v1/waivers", json=body)

    assert added.status_code == 201
    assert healthy.ask(cut=cut)[0] == 200
    waiver = Waiver(held.id, "looked at it", "on call", healthy.now)
    assert healthy.store.waivers.list() == (waiver,)


def test_f19_a_waiver_that_names_no_version_is_refused_and_one_that_was_kept_harms_nobody(
    healthy: Rig,
) -> None:
    poison = f"foreign_write:{USERS}:VERSION"
    body = {"id": poison, "reason": "as it says", "who": "on call"}

    refused = healthy.client.post("/v1/waivers", json=body)
    healthy.store.waivers.add(Waiver(poison, "from before", "on call", healthy.now))
    healthy.intrude(USERS)
    healthy.second(2)

    assert refused.status_code == 400
    assert refused.json()["error"].startswith(f"{poison!r} is not the id of a gap")
    assert healthy.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 409
    assert healthy.ask(ORDERS, cut="2026-03-29T12:00:02Z")[0] == 200


@pytest.mark.parametrize(
    ("params", "status"),
    [
        pytest.param({"cut": "now"}, 404, id="now is proven only by a later heartbeat"),
        pytest.param({"cut": "2026-03-30"}, 404, id="a day that is not over"),
        pytest.param({"cut": "yesterday"}, 400, id="no cut"),
        pytest.param({"cut": "2026-02-30"}, 400, id="no such day"),
        pytest.param({"cut": DAY, "stage": "both"}, 400, id="no stage"),
        pytest.param({"cut": DAY, "stage": "landed"}, 200, id="landed"),
        pytest.param({"cut": DAY, "wait": "-1"}, 400, id="a negative wait"),
        pytest.param({"cut": DAY, "wait": "100000"}, 400, id="a wait without end"),
        pytest.param({}, 200, id="the end of yesterday by default"),
    ],
)
def test_cuts_and_stages(healthy: Rig, params: dict[str, str], status: int) -> None:
    got, answer = healthy.ask(**params)

    assert got == status
    assert status != 400 or answer["error"]


def test_verified_waits_until_the_changed_rows_were_compared(healthy: Rig) -> None:
    (plain,) = healthy.ask(cut=DAY)[1]["tables"]
    unasked = healthy.gate.decide([USERS], healthy.gate.cut(DAY), Stage.MIRROR)
    before = healthy.ask(cut=DAY, verified="1")
    passed = healthy.compare_rows()

    status, after = healthy.ask(cut=DAY, verified="1")
    healthy.second()

    assert plain["verified_through"] is None
    assert unasked.status() == 200
    assert (before[0], codes_of(before[1])) == (404, ["not_verified"])
    assert (status, after["tables"][0]["verified_through"]) == (200, passed.at.isoformat())
    certificate = healthy.client.get(f"/v1/certificates/{plain['certificate']}").json()
    assert certificate["verified_through"] is None  # it was issued before that
    assert healthy.ask(cut=DAY, verified="1", stage="landed")[0] == 400


def rebuild_mirror(rig: Rig) -> None:
    rig.rebuild(USERS)


def merge_again(rig: Rig) -> None:
    there = rig.lake.mirrors[USERS]
    rig.lake.mirrors[USERS] = replace(there, version=there.version - 1, batch=there.batch - 1)
    rig.second(2)
    assert codes_of(rig.ask(cut=DAY, verified="1")[1]) == ["not_verified"]
    rig.apply(USERS)


def waive_a_foreign_write(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.second(2)
    assert rig.ask(cut=DAY)[0] == 409
    id_ = f"foreign_write:{USERS}:{rig.lake.mirrors[USERS].version}"
    rig.store.waivers.add(Waiver(id_, "known", "on call", rig.now))


def restore_an_old_version(rig: Rig) -> None:
    """It is a foreign commit, and its batch is the same."""
    rig.restore(USERS, to=0)
    id_ = f"foreign_write:{USERS}:{rig.lake.mirrors[USERS].version}"
    rig.store.waivers.add(Waiver(id_, "known", "on call", rig.now))


def put_back_and_merge(rig: Rig) -> None:
    """No look falls between the two; version and batch are the same again."""
    rig.put_back(USERS)
    rig.apply(USERS)


def put_back_and_merge_on(rig: Rig) -> None:
    rig.put_back(USERS)
    rig.apply(USERS)
    rig.apply(USERS)


@pytest.mark.parametrize(
    "alter",
    [
        rebuild_mirror,
        merge_again,
        waive_a_foreign_write,
        restore_an_old_version,
        put_back_and_merge,
        put_back_and_merge_on,
    ],
)
def test_verified_waits_until_an_altered_mirror_was_compared(
    healthy: Rig, alter: Callable[[Rig], None]
) -> None:
    healthy.compare_rows()
    assert healthy.ask(cut=DAY, verified="1")[0] == 200
    healthy.second()

    alter(healthy)
    healthy.second(2)
    answers = [healthy.ask(cut=DAY, verified="1") for _ in range(3)]
    healthy.watch()
    healthy.watch()

    assert [(status, codes_of(one)) for status, one in answers] == [(404, ["not_verified"])] * 3
    assert answers[0][1]["tables"][0]["verified_through"] is None
    assert claims(healthy) == (None, None)
    healthy.second()
    healthy.compare_rows()
    assert healthy.ask(cut=DAY, verified="1")[0] == 200


def test_verified_holds_if_a_foreign_write_was_compared_before_it_was_found(healthy: Rig) -> None:
    healthy.intrude(USERS)
    id_ = f"foreign_write:{USERS}:{healthy.lake.mirrors[USERS].version}"
    healthy.store.waivers.add(Waiver(id_, "known", "on call", healthy.now))
    healthy.compare_rows()
    healthy.second(2)

    assert healthy.ask(cut=DAY, verified="1")[0] == 200


@pytest.mark.parametrize("rounds", [1, 5])
def test_verified_holds_while_sluice_merges(healthy: Rig, rounds: int) -> None:
    passed = healthy.compare_rows()
    healthy.round(rounds)

    status, answer = healthy.ask(cut=DAY, verified="1")

    assert (status, answer["tables"][0]["verified_through"]) == (200, passed.at.isoformat())


def new_base(rig: Rig) -> None:
    done = rig.newest.batch + 1
    rig.set_checkpoint(batch=done, complete={Shard.parse(f"shop/{USERS}"): done})


def put_mirror_back(rig: Rig) -> None:
    rig.lake.mirrors[USERS] = MirrorPosition(5, rig.newest.batch - 1, f"{USERS}-1")


def fail_values(rig: Rig) -> None:
    compared = rig.recorder.rulings.verified(USERS)
    wrong = Ruling(Outcome.FAIL, "1 row different", "different_rows", ("shop/t:1",))
    rig.recorder.tell([Verdict(USERS, "values", wrong, rig.now, verified=compared)])


@pytest.mark.parametrize(
    ("harm", "compared"),
    [
        pytest.param(new_base, False, id="a new base"),
        pytest.param(put_mirror_back, False, id="the mirror was put back"),
        pytest.param(fail_values, True, id="a row differs"),
    ],
)
def test_no_answer_keeps_a_claim_that_the_gate_has_given_up(
    healthy: Rig, harm: Callable[[Rig], None], compared: bool
) -> None:
    through, oldest = healthy.now, healthy.now - timedelta(days=3)
    healthy.compare_rows()
    healthy.watch()
    before = claims(healthy)
    harm(healthy)
    healthy.watch()
    healthy.watch()

    gated = healthy.ask(cut=DAY, verified="1")[1]["tables"][0]["verified_through"]
    assert before == (through.isoformat(), oldest.isoformat())
    assert gated is None
    assert claims(healthy) == (None, oldest.isoformat() if compared else None)


def claims(rig: Rig) -> tuple[str | None, str | None]:
    """Those of `/v1/tables`; metrics and status page have the same."""
    told = {one["table"]: one for one in rig.client.get("/v1/tables").json()}
    metrics, page = rig.client.get("/metrics").text, rig.client.get("/").text
    through, since = told[USERS]["verified_through"], told[USERS]["compared_since"]
    name = "sluice_verified_through_timestamp_seconds"
    assert (f'{name}{{table="{USERS}"}}' in metrics) == (through is not None)
    assert (f'sluice_verified_age_seconds{{table="{USERS}"}}' in metrics) == (since is not None)
    assert ("every row compared" in page) == (since is not None)
    return through, since


def test_an_unknown_table_is_the_callers_mistake(healthy: Rig) -> None:
    status, answer = healthy.ask("shop.usres", cut=DAY)

    assert status == 400
    assert answer["error"] == "no table 'shop.usres'; known: shop.orders, shop.users"


def test_before_anything_is_known_no_name_is_a_mistake(rig: Rig) -> None:
    status, answer = rig.ask(cut=DAY)

    assert (status, answer["state"], answer["tables"]) == (404, "unknown", [])


def test_a_patient_sensor_waits_while_blocked(healthy: Rig) -> None:
    _hold(healthy)

    status, answer = healthy.ask(cut="2026-03-29T12:00:02Z", patient="1")

    assert (status, answer["state"]) == (404, "blocked")


def test_a_patient_caller_is_answered_once_nothing_blocks_any_more(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold(healthy)
    seen, plain = list[str](), healthy.gate.decide

    def decide(*question: Any) -> Decision:
        if len(seen) == 2:
            (hold,) = healthy.hold_registry.holds()
            healthy.store.waivers.add(Waiver(hold.id, "looked at it", "on call", healthy.now))
        decision = plain(*question)
        seen.append(decision.state)
        assert len(seen) < 5
        return decision

    monkeypatch.setattr(deps, "AGAIN", 0.0)
    monkeypatch.setattr(healthy.gate, "decide", decide)
    hasty, _ = healthy.ask(cut="2026-03-29T12:00:01Z", wait="290")

    patient, _ = healthy.ask(cut="2026-03-29T12:00:01Z", wait="290", patient="1")

    assert (hasty, patient, seen) == (409, 200, ["blocked", "blocked", "ready"])


def test_a_caller_does_not_wait_on_for_a_clock_that_was_set_back(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[str](), healthy.gate.decide
    cut = (healthy.now + timedelta(hours=9)).isoformat()

    def decide(*question: Any) -> Decision:
        asked.append("")
        assert len(asked) < 5
        decision = plain(*question)
        healthy.set_clock(-3600)
        return decision

    monkeypatch.setattr(deps, "AGAIN", 0.0)
    monkeypatch.setattr(healthy.gate, "decide", decide)

    assert healthy.ask(cut=cut, wait="290")[0] == 404
    assert len(asked) == 1


def test_a_caller_who_gets_no_further_answer_in_time_is_told_the_one_there_is(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: object) -> None:
        return None

    monkeypatch.setattr(deps.LongPoll, "next", none)

    status, answer = healthy.ask(cut=(healthy.now + timedelta(hours=9)).isoformat(), wait="290")

    assert (status, answer["state"]) == (404, "not_ready")


def test_a_mirror_that_is_behind_is_not_ready_while_the_change_log_is(healthy: Rig) -> None:
    healthy.second()
    cut = healthy.now.isoformat()
    healthy.write_heartbeat()
    healthy.land()
    healthy.second(2)

    assert healthy.ask(cut=cut, stage="landed")[0] == 200
    assert healthy.ask(cut=cut, stage="mirror")[0] == 404


def test_readiness_always_answers_200_and_says_when(healthy: Rig) -> None:
    healthy.collector.position = Missing("no offset")
    healthy.second(20)

    answer = healthy.client.get(f"/v1/readiness/{USERS}", params={"cut": "now"})

    assert answer.status_code == 200
    assert answer.json()["state"] == "unknown"
    assert answer.json()["hops"][0]["why"]


LOST = f"range_counts:{USERS}:shop/shop.users:"


def _lose(rig: Rig, *keys: str, more: int = 0) -> None:
    ruling = Ruling(Outcome.FAIL, "rows missing", "missing_rows", keys, more)
    rig.say(USERS, ruling)


def _waive(rig: Rig, rows: str, **more: str) -> int:
    body = {"id": LOST + rows, "reason": "test rows", "who": "on call", **more}
    return rig.client.post("/v1/waivers", json=body).status_code


def _waivable(answer: dict[str, Any]) -> set[str]:
    return {one["id"] for one in answer["tables"][0]["reasons"] if one.get("id")}


def test_f103_rows_that_are_lost_after_a_waiver_block_and_revoke(healthy: Rig) -> None:
    _lose(healthy, "shop/shop.users:1-200")
    assert _waive(healthy, "1-200") == 201
    status, answer = healthy.ask(cut=DAY)
    assert status == 200

    _lose(healthy, "shop/shop.users:1-200", "shop/shop.users:900-4900")
    healthy.second(2)
    found = healthy.ask(cut=DAY)

    held = healthy.certificate(answer["tables"][0]["certificate"])
    assert held.revoked is not None
    assert found[0] == 409
    assert f"{LOST}900-4900" in _waivable(found[1])
    assert f"{LOST}1-200" not in _waivable(found[1])


def test_f103_a_finding_that_is_cut_off_stays_after_a_waiver_of_what_it_names(healthy: Rig) -> None:
    _lose(healthy, "shop/shop.users:1-200", more=800)

    assert _waive(healthy, "1-200") == 201

    status, answer = healthy.ask(cut=DAY)
    assert status == 409
    assert not _waivable(answer)


def test_f103_what_a_fail_names_is_known_after_a_restart(healthy: Rig) -> None:
    _lose(healthy, "shop/shop.users:1-200")
    assert _waive(healthy, "1-200") == 201
    _lose(healthy, "shop/shop.users:1-200", more=5)
    healthy.reload()
    healthy.round()

    assert healthy.ask(cut=DAY)[0] == 409


def test_f103_a_waiver_is_withdrawn_and_given_again(healthy: Rig) -> None:
    _lose(healthy, "shop/shop.users:7")
    assert _waive(healthy, "7") == 201
    assert healthy.ask(cut=DAY)[0] == 200

    path, body = f"/v1/waivers/{LOST}7", {"reason": "they were no test rows", "who": "me"}
    gone = healthy.client.delete(path, json=body)
    healthy.second(2)

    assert gone.status_code == 200
    assert healthy.client.delete(path, json=body).status_code == 404
    assert healthy.ask(cut=DAY)[0] == 409
    assert healthy.client.get("/v1/waivers").json()[0]["withdrawn_by"] == "me"
    assert _waive(healthy, "7") == 201
    healthy.second(2)
    assert healthy.ask(cut=DAY)[0] == 200


def test_f103_a_waiver_ends_when_its_time_is_over(healthy: Rig) -> None:
    _lose(healthy, "shop/shop.users:7")
    assert _waive(healthy, "7", until="2020-01-01T00:00:00Z") == 400
    until = healthy.now + timedelta(seconds=60)
    assert _waive(healthy, "7", until=until.isoformat()) == 201
    assert healthy.ask(cut=DAY)[0] == 200

    healthy.second(61)
    healthy.round()

    assert healthy.ask(cut=DAY)[0] == 409


def lose_offsets(rig: Rig) -> str:
    gap = Gap("t:0:5@1", "t", 0, 5, 9, "retention", shards=(f"shop/{USERS}",), batch=1)
    rig.set_checkpoint(gaps={gap.id: gap})
    return gap.id


def lose_base(rig: Rig) -> str:
    rig.set_checkpoint(bases={})
    return f"no_base:shop/{USERS}@0"


@pytest.mark.parametrize("until", [None, 3], ids=["withdrawn", "over"])
@pytest.mark.parametrize("lose", [lose_offsets, lose_base])
@pytest.mark.parametrize("stage", ["mirror", "landed"])
def test_a_certificate_from_under_a_waiver_does_not_answer_after_its_end(
    healthy: Rig, lose: Callable[[Rig], str], until: int | None, stage: str
) -> None:
    issued_before = healthy.ask(cut=DAY, stage=stage)[0]
    healthy.second()
    id_ = lose(healthy)
    end = None if until is None else healthy.now + timedelta(seconds=until)
    healthy.store.waivers.add(Waiver(id_, "no rows are missing", "me", healthy.now, end))
    healthy.second(2)
    waived = healthy.ask(cut=EARLIER, stage=stage)[0]
    healthy.second(until or 2)
    if until is None:
        healthy.store.waivers.withdraw(id_, who="me", why="rows are missing", at=healthy.now)
    healthy.second()

    after, kept = healthy.ask(cut=EARLIER, stage=stage)[0], healthy.ask(cut=DAY, stage=stage)[0]
    healthy.store.waivers.add(Waiver(id_, "they are back", "me", healthy.now))
    healthy.second()

    assert (issued_before, waived, after, kept) == (200, 200, 409, 200)
    assert healthy.ask(cut=EARLIER, stage=stage)[0] == 200


@pytest.mark.parametrize("kind", ["setting", "delay"])
def test_a_certificate_from_under_a_waiver_of_a_setting_does_not_answer_after_its_end(
    healthy: Rig, kind: str
) -> None:
    """The next batch lands without the gap, and the first one after the waiver opens it again."""
    issued_before = healthy.ask(cut=DAY)[1]["tables"][0]["certificate"]
    id_ = f"{kind}:shop:skipped@0a1b2c3d"
    gap = Gap(id_, f"{kind}:shop", 0, 1, 1, "tables are skipped", shards=(f"shop/{USERS}",))
    healthy.set_checkpoint(gaps={id_: gap})
    healthy.store.waivers.add(Waiver(id_, "they are not needed", "me", healthy.now))
    healthy.set_checkpoint(gaps={})
    healthy.second(2)
    waived = healthy.ask(cut=EARLIER)[1]["tables"][0]["certificate"]
    healthy.store.waivers.withdraw(id_, who="me", why="they are", at=healthy.now)
    healthy.set_checkpoint(gaps={id_: gap})
    healthy.second(2)

    assert healthy.ask(cut=EARLIER)[0] == 409
    assert healthy.certificate(waived).why == f"a waiver that it rests on has ended: {id_}"
    assert healthy.ask(cut=DAY)[1]["tables"][0]["certificate"] == issued_before


@pytest.mark.parametrize("again", ["longer", "anew"])
def test_a_waiver_that_is_given_twice_holds_certificates_no_longer_than_once(
    healthy: Rig, again: str
) -> None:
    healthy.second()
    id_ = lose_base(healthy)
    first = Waiver(id_, "no rows are missing", "me", healthy.now, healthy.now + timedelta(hours=1))
    healthy.store.waivers.add(first)
    healthy.second()
    waived = healthy.ask(cut=EARLIER)[0]
    healthy.second()
    if again == "anew":
        healthy.store.waivers.withdraw(id_, who="me", why="to be sure", at=healthy.now)
    healthy.store.waivers.add(Waiver(id_, "no rows are missing", "me", healthy.now))
    healthy.second()
    healthy.store.waivers.withdraw(id_, who="me", why="rows are missing", at=healthy.now)
    healthy.second()

    assert (waived, healthy.ask(cut=EARLIER)[0]) == (200, 409)


@pytest.mark.parametrize("kept", [True, False], ids=["waiver kept", "waiver withdrawn"])
def test_a_new_base_gives_no_rows_to_the_version_that_was_certified_under_a_waiver(
    healthy: Rig, *, kept: bool
) -> None:
    healthy.second()
    id_ = lose_offsets(healthy)
    healthy.store.waivers.add(Waiver(id_, "no rows are missing", "me", healthy.now))
    healthy.second()
    under = healthy.ask(cut=EARLIER)[1]["tables"][0]["certificate"]
    if not kept:
        healthy.store.waivers.withdraw(id_, who="me", why="rows are missing", at=healthy.now)
        healthy.watch()
    healthy.write_heartbeat()
    healthy.land()
    healthy.set_checkpoint(gaps={})
    healthy.apply()
    healthy.second()

    status, answer = healthy.ask(cut=EARLIER)

    assert status == 200
    assert (answer["tables"][0]["certificate"] == under) == kept


def test_f103_a_waiver_ends_when_its_check_passes_and_the_same_row_lost_again_blocks(
    healthy: Rig,
) -> None:
    _lose(healthy, "shop/shop.users:7")
    assert _waive(healthy, "7") == 201
    assert healthy.ask(cut=DAY)[0] == 200

    healthy.second()
    healthy.say(USERS, Ruling(Outcome.PASS, "all ranges agree"))
    healthy.round()
    passed = healthy.ask(cut=DAY)[0]
    healthy.second()
    _lose(healthy, "shop/shop.users:7")
    healthy.second(2)

    assert passed == 200
    assert healthy.ask(cut=DAY)[0] == 409
    (told,) = healthy.client.get("/v1/waivers").json()
    assert told["withdrawn_by"] == "sluice"
    assert told["withdrawn_why"] == "range_counts did not find it again: all ranges agree"


def test_f103_a_waiver_outlives_what_its_check_cannot_decide_and_what_others_pass(
    healthy: Rig,
) -> None:
    _lose(healthy, "shop/shop.users:7")
    assert _waive(healthy, "7") == 201

    healthy.say(USERS, Ruling(Outcome.UNKNOWN, "the source does not answer"))
    healthy.say(ORDERS, Ruling(Outcome.PASS, "all ranges agree"))
    healthy.second(2)

    assert healthy.store.waivers.waived() == {f"{LOST}7"}


@pytest.mark.parametrize(
    ("whole", "more", "left"),
    [
        pytest.param(True, 0, {"8"}, id="all rows were looked at"),
        pytest.param(False, 0, {"7", "8"}, id="only some were"),
        pytest.param(True, 5, {"7", "8"}, id="rows that it does not name differ"),
    ],
)
def test_f103_a_fail_of_all_rows_ends_the_waiver_of_what_it_does_not_name(
    healthy: Rig, *, whole: bool, more: int, left: set[str]
) -> None:
    healthy.recorder.whole = frozenset({"range_counts"} if whole else ())
    _lose(healthy, "shop/shop.users:7", "shop/shop.users:8")
    assert (_waive(healthy, "7"), _waive(healthy, "8")) == (201, 201)

    healthy.second()
    _lose(healthy, "shop/shop.users:8", more=more)

    assert healthy.store.waivers.waived() == {f"{LOST}{key}" for key in left}


def test_where_too_many_wait_health_and_questions_without_a_wait_are_answered(healthy: Rig) -> None:
    app = healthy.api()
    app.state.room.most = 0
    later = (healthy.now + timedelta(hours=9)).isoformat()
    client, asked = Client(app), {"table": USERS, "cut": later}

    refused = client.get("/v1/gate", params={**asked, "wait": "290"})

    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
    assert "already wait at the gate" in refused.json()["error"]
    assert client.get("/v1/gate", params=asked).status_code == 404
    assert client.get("/v1/gate", params={**asked, "cut": DAY, "wait": "290"}).status_code == 200
    assert client.get("/livez").status_code == 200


def test_clients_that_have_gone_keep_no_place(
    healthy: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place ends with its connection, which the next job then gets."""
    monkeypatch.setattr(deps, "SEEN", 0.01)
    app = healthy.api()
    app.state.room.most = 1
    later = (healthy.now + timedelta(hours=9)).isoformat()
    query = urlencode({"table": USERS, "cut": later, "wait": 290})

    async def gone() -> int:
        told = [{"type": "http.request", "body": b""}]
        sent: list[Any] = []

        async def receive() -> Any:
            return told.pop() if told else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/v1/gate",
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "server": ("127.0.0.1", 80),
        }
        await asyncio.wait_for(app(scope, receive, send), 10)
        return int(sent[0]["status"])

    async def one_by_one() -> list[int]:
        return [await gone(), await gone()]

    assert asyncio.run(one_by_one()) == [404, 404]


def gate_question(cut: datetime, *tables: str, stage: Stage = Stage.MIRROR) -> GateQuestion:
    return (tables or (USERS,), cut, stage, "", False)


def test_a_question_has_hope_once_its_cut_has_landed_and_not_before(healthy: Rig) -> None:
    cut = healthy.now + timedelta(seconds=1)
    healthy.second(2)
    early = healthy.gate.hopeful([gate_question(cut), gate_question(cut, stage=Stage.LANDED)])
    healthy.write_heartbeat()
    written = healthy.gate.hopeful([gate_question(cut)])
    healthy.second(2)
    healthy.land()
    healthy.second(2)

    landed = healthy.gate.hopeful(
        [gate_question(cut), gate_question(cut, USERS, ORDERS), gate_question(healthy.now)]
    )

    assert (early, written) == ([], [])
    assert landed == [gate_question(cut), gate_question(cut, USERS, ORDERS)]


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("stage", MOVING)
def test_who_gets_a_yes_had_hope(healthy: Rig, stage: Stage, rule: Rule) -> None:
    """Else it would be found late."""
    healthy.assessor.policy = replace(healthy.assessor.policy, rule=rule)
    begin = healthy.now
    cuts = [begin + timedelta(seconds=number) for number in range(8)]
    answers = set[int]()
    for _ in range(8):
        healthy.round()
        for cut in cuts:
            hoped = healthy.gate.hopeful([gate_question(cut, stage=stage)])
            told, _ = healthy.ask(cut=cut.isoformat(), stage=stage.value)

            assert told == 404 or hoped
            answers.add(told)
    assert answers == {200, 404}


def test_where_the_sum_of_lags_decides_alone_all_have_hope(healthy: Rig) -> None:
    healthy.assessor.policy = replace(healthy.assessor.policy, rule=Rule.SUM)
    asked = [gate_question(healthy.now + timedelta(seconds=1)), gate_question(healthy.now)]

    assert healthy.gate.hopeful(asked) == asked


def test_nobody_is_kept_waiting_by_hope_and_nothing_is_ruled(healthy: Rig) -> None:
    before = healthy.store.certificates.list()

    healthy.gate.recorder.deciding = None  # type: ignore[assignment]

    assert healthy.gate.hopeful([gate_question(healthy.now - timedelta(days=2))])
    assert healthy.store.certificates.list() == before


def test_what_is_not_known_leaves_hope(healthy: Rig) -> None:
    """Only a question that is asked finds out what is wrong."""
    healthy.lake.silent = True
    healthy.collector.position = Missing("no offset")
    healthy.second(20)

    asked = [gate_question(healthy.now), gate_question(healthy.now, "shop.unheard_of")]
    assert healthy.gate.hopeful(asked) == asked


OFFSET = SourceOrdering(Ordering.OFFSET, Ordering.OFFSET, r"shop\..+")


def ask_gate(rig: Rig, cut: str) -> tuple[int, list[str], str | None]:
    """The status, the codes of its reasons, and the order that a yes rests on."""
    status, answer = rig.ask(cut=cut)
    (table,) = answer["tables"]
    return status, [reason["code"] for reason in table["reasons"]], table["order"]


def test_places_in_the_log_are_named_and_need_no_word_more(healthy: Rig) -> None:
    assert ask_gate(healthy, EARLIER) == (200, ["unchecked"], "log_position")
    assert ask_gate(healthy, EARLIER) == (200, ["certified", "unchecked"], "log_position")


def test_offsets_open_the_gate_only_if_they_are_asked_for_and_are_named(rig: Rig) -> None:
    rig.assessor.orderings = {"shop": replace(OFFSET, weakest=Ordering.LOG)}
    rig.round(2)
    assert ask_gate(rig, DAY) == (404, ["weak_order"], None)

    rig.assessor.orderings = {"shop": OFFSET}
    assert ask_gate(rig, DAY) == (200, ["weaker_proof", "unchecked"], "partition_offset")
    _, answer = rig.ask(cut=DAY)
    kept = rig.client.get(f"/v1/certificates/{answer['tables'][0]['certificate']}").json()
    assert kept["order"] == "partition_offset"

    rig.assessor.orderings = {"shop": replace(OFFSET, weakest=Ordering.LOG)}
    assert ask_gate(rig, DAY) == (404, ["weak_order"], None)


def test_offsets_of_two_partitions_open_no_gate(healthy: Rig) -> None:
    healthy.assessor.orderings = {"shop": OFFSET}
    assert ask_gate(healthy, EARLIER)[0] == 200
    mark = healthy.newest

    more = dict.fromkeys(
        (TopicPartition("shop.shop.users", 1), TopicPartition("elsewhere", 0)), PartitionEnd(1)
    )
    healthy.lake.newest = replace(mark, batch=mark.batch + 1, offsets={**mark.offsets, **more})
    healthy.apply()
    healthy.second(2)

    assert ask_gate(healthy, EARLIER) == (404, ["weak_order"], None)
