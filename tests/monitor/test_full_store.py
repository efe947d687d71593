"""While the store takes nothing, alerts are opened, sent and cleared from memory."""

from datetime import datetime, timedelta

import pytest

from alerts.model import IncidentState
from checks.model import Outcome, Ruling, Verdict
from monitor.board import DiskView
from monitor.observe.system_checks import Component, of_part
from monitor.schedule import Job, Schedule
from monitor.store.alerts import Waiver, Waivers
from monitor.store.certificates import Certificates
from monitor.store.ticks import Ticks
from pipeline.errors import UnreachableError
from tests.monitor.rig import USERS, Rig
from tests.monitor.store.kit import Full, ReadOnly

FULL = "store /x/s.db: database or disk is full"
DOWN = "down: connection refused"


def subjects(rig: Rig) -> list[str]:
    return [one.message.subject for one in rig.store.outbox.waiting("log", 100)]


def filled(rig: Rig) -> Full:
    """Rounds go on until the store takes nothing more."""
    disk = Full(rig.store.database)
    number = 0
    while not rig.store.database.problem:
        number += 1
        text = "x" * 500
        verdict = Verdict(USERS, f"check_{number}", Ruling(Outcome.PASS, text), rig.now)
        rig.recorder.tell([verdict])
    return disk


def test_f120_alerts_are_sent_from_memory_while_the_store_is_full(rig: Rig) -> None:
    rig.round(2)
    disk = filled(rig)
    rig.facts.broken["collector:shop"] = DOWN
    for _ in range(3):
        rig.watch(5)

    assert [one for one in subjects(rig) if "collector:shop" in one]
    (shown,) = [o for o in rig.current.board.incidents if o.cause.subject == "collector:shop"]
    assert shown.state is IncidentState.FIRING
    assert rig.current.board.at == rig.now

    disk.free()
    rig.facts.broken.clear()
    for _ in range(3):
        rig.watch(5)

    assert not [o for o in rig.store.incidents.open() if o.cause.subject == "collector:shop"]
    stored = [o for o in rig.store.incidents.list() if o.cause.subject == "collector:shop"]
    assert [one.state for one in stored] == [IncidentState.RESOLVED]
    assert len([o for o in subjects(rig) if "collector:shop" in o]) == 2
    assert not rig.store.database.problem


def test_f120_what_was_sent_from_memory_is_written_and_not_sent_again(rig: Rig) -> None:
    rig.round()
    disk = filled(rig)
    rig.facts.broken["collector:shop"] = DOWN
    rig.watch(5)
    outbox = rig.store.outbox
    letters = outbox.waiting("log", 100)
    assert letters
    outbox.delivered(letters, outbox.health("log"), rig.now)
    assert outbox.waiting("log", 100) == ()

    disk.free()
    rig.watch(5)

    assert outbox.waiting("log", 100) == ()
    assert outbox.counts()["log", "delivered"] == len(letters)


def test_f120_a_revocation_that_cannot_be_stored_still_closes_the_gate(rig: Rig) -> None:
    rig.round(2)
    asked = {"table": USERS, "cut": rig.now.isoformat()}
    rig.round(2)
    given = rig.client.get("/v1/gate", params=asked)
    assert given.status_code == 200
    certificate = given.json()["tables"][0]["certificate"]
    disk = filled(rig)
    rig.recorder.tell(
        [Verdict(USERS, "range_counts", Ruling(Outcome.FAIL, "2 rows short"), rig.now)]
    )

    assert rig.client.get("/v1/gate", params=asked).status_code != 200

    disk.free()
    rig.watch(5)
    kept = rig.certificate(certificate)
    assert kept.revoked
    assert rig.client.get("/v1/gate", params=asked).status_code != 200


def test_a_mirror_that_is_made_anew_while_the_store_takes_nothing_stops_no_round(rig: Rig) -> None:
    rig.round(4)
    asked = {"table": USERS, "cut": "2026-03-29T12:00:02Z"}
    certificate = rig.client.get("/v1/gate", params=asked).json()["tables"][0]["certificate"]
    disk = ReadOnly(rig.store.database)
    rig.rebuild(USERS)
    rig.facts.broken["collector:shop"] = DOWN
    for _ in range(3):
        rig.watch(5)

    assert rig.current.board.at == rig.now
    assert [one for one in subjects(rig) if "collector:shop" in one]
    assert rig.client.get("/v1/gate", params=asked).status_code != 200
    assert rig.client.get(f"/v1/certificates/{certificate}").json()["revoked"]

    disk.free()
    rig.watch(5)
    stored = Certificates(rig.store.database).get(certificate)
    assert stored is not None
    assert "another Delta table now" in stored.why


def test_f120_readyz_names_the_store_that_takes_nothing(rig: Rig) -> None:
    rig.round(2)
    assert rig.client.get("/readyz").status_code == 200
    disk = filled(rig)

    answer = rig.client.get("/readyz")
    assert answer.status_code == 503
    assert "disk is full" in answer.json()["why"]

    disk.free()
    rig.round()
    assert rig.client.get("/readyz").status_code == 200


def test_a_write_that_changes_no_row_does_not_show_that_the_store_has_room(rig: Rig) -> None:
    rig.round(2)
    disk = filled(rig)

    assert not rig.store.incidents.acknowledge("none", "me", rig.now)
    assert "disk is full" in rig.store.database.problem
    assert rig.client.get("/readyz").status_code == 503

    disk.free()
    rig.round()
    assert not rig.store.database.problem


def test_an_unknown_names_the_store_that_takes_nothing_before_the_source(rig: Rig) -> None:
    rig.round(2)
    disk = filled(rig)
    for _ in range(3):
        rig.watch(60)

    code, answer = rig.ask(cut=rig.now.isoformat())
    reasons = answer["tables"][0]["reasons"]
    assert (code, answer["state"], reasons[0]["code"]) == (404, "unknown", "store")
    assert "disk is full" in reasons[0]["text"]

    disk.free()
    rig.round(2)
    _, answer = rig.ask(cut=rig.now.isoformat())
    assert "store" not in {one["code"] for one in answer["tables"][0]["reasons"]}


def test_incidents_that_the_store_does_not_take_are_listed(rig: Rig) -> None:
    rig.round(2)
    disk = filled(rig)
    rig.facts.broken["collector:shop"] = DOWN
    rig.watch(5)
    (known,) = [o for o in rig.current.board.incidents if o.cause.subject == "collector:shop"]
    path, who = f"/v1/incidents/{known.id}", {"who": "me"}

    listed = rig.client.get("/v1/incidents").json()
    assert [one["id"] for one in listed].count(known.id) == 1
    resolved = rig.client.get("/v1/incidents", params={"state": "resolved"}).json()
    assert known.id not in {one["id"] for one in resolved}
    assert rig.client.get(path).json()["about"] == "collector:shop"
    refused = rig.client.post(f"{path}/acknowledgement", json=who)
    assert (refused.status_code, "disk is full" in refused.text) == (503, True)

    disk.free()
    rig.watch(5)
    assert rig.client.post(f"{path}/acknowledgement", json=who).status_code == 200


class NoBook(Ticks):
    """A book that takes nothing."""

    def start(self, job: str, planned: datetime, at: datetime) -> bool:
        raise UnreachableError(FULL)


def test_f120_a_vital_job_runs_while_the_book_takes_nothing(rig: Rig) -> None:
    ran = list[str]()
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    jobs = [
        Job("watch", second, minute, lambda: ran.append("watch"), vital=True),
        Job("other", second, minute, lambda: ran.append("other")),
    ]
    schedule = Schedule(jobs, NoBook(rig.store.database), rig.clock)
    for _ in range(3):
        rig.second()
        for job in jobs:
            schedule.tick(job)

    assert ran == ["watch"] * 3


def test_f120_what_fails_because_of_the_store_shares_its_cause(rig: Rig) -> None:
    store = Component("store", "store", "store /x/s.db: database or disk is full")
    job = Component(
        "job:census", "job", "UnreachableError: store /x/s.db: database or disk is full"
    )
    other = Component("job:probe", "job", "ValueError: bad")

    assert of_part(job, rig.now, (store, job, other)).cause == "store"
    assert of_part(other, rig.now, (store, job, other)).cause == "job:probe"


def test_f143_an_unreadable_incident_is_skipped_named_and_counted(rig: Rig) -> None:
    rig.round()
    rig.facts.broken["collector:shop"] = DOWN
    rig.watch(5)
    (known,) = [o for o in rig.store.incidents.open() if o.cause.subject == "collector:shop"]
    with rig.store.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO incidents (id, cause, state, severity, opened, turned, body)"
            " SELECT 'broken', cause, state, severity, opened, turned, '{}' FROM incidents LIMIT 1"
        )
    rig.watch(5)

    assert rig.current.board.at == rig.now
    assert rig.current.board.unreadable == 1
    assert known.id in {one.id for one in rig.current.board.incidents}
    answer = rig.client.get("/v1/incidents")
    assert answer.status_code == 200
    assert known.id in {one["id"] for one in answer.json()}


def test_f143_rows_that_cannot_be_read_break_no_round_and_open_no_gate(rig: Rig) -> None:
    rig.round()
    rig.rule(USERS, Outcome.PASS)
    rig.rule(USERS, Outcome.FAIL)
    rig.store.waivers.add(Waiver(f"range_counts:{USERS}:[1, 2)", "a test", "me", rig.now))
    with rig.store.write() as connection:
        for damage in (
            "verdicts SET guilty = '{' WHERE outcome = 'fail'",
            "waivers SET until = 'soon'",
            "outbox SET message = '{}'",
        ):
            connection.exec_driver_sql(f"UPDATE {damage}")
    rig.store.waivers = Waivers(rig.store.database, rig.clock)

    rig.reload()
    rig.round()
    rig.store.outbox.waiting("log", 9)

    code, answer = rig.ask(cut=rig.now.isoformat())
    assert (code, answer["tables"][0]["reasons"][0]["code"]) == (409, "check_failed")
    assert rig.store.database.unreadable == 3
    assert rig.client.get("/v1/waivers").json() == []
    assert rig.client.get("/v1/verdicts", params={"table": USERS}).status_code == 200


@pytest.mark.parametrize(
    ("free", "needed", "text"),
    [
        (3 * 2**30, 4 * 2**30, "3,072 MiB are free on the disk of the store at /s, at least 4,096"),
        (4096, 200 * 2**10, "4 KiB are free on the disk of the store at /s, at least 200 KiB"),
    ],
)
def test_sizes_of_a_small_disk_are_not_rounded_to_nothing(
    free: int, needed: int, text: str
) -> None:
    assert DiskView("store", "/s", 2**40, free, needed).problem.startswith(text)
