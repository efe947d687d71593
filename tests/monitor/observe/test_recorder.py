"""Tests what a FAIL finds in the store after a restart."""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.event import listen
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from alerts.model import IncidentState
from alerts.round import STORM, AlertSettings
from alerts.routing import Route
from checks.certificate import Evidence, certify
from checks.model import Outcome, Ruling, Verdict
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.verdicts import LatestVerdicts
from monitor.store.alerts import Waiver
from monitor.store.store import ServiceStore
from pipeline.errors import UnreachableError
from pipeline.model import Stage
from tests.builders.values import fence
from tests.monitor.rig import NOON, USERS, Rig

CHECK = "range_counts"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """A service whose check has looked at all rows."""
    rig.whole = frozenset({CHECK})
    rig.restart()
    run_rounds(rig)
    return rig


def run_rounds(rig: Rig) -> None:
    rig.round(2)


def say(rig: Rig, outcome: Outcome) -> int:
    """As a probe's round tells it; how many were kept."""
    ruling, fences = Ruling(outcome, "told", "", ("[1, 2)",)), (rig.fences.of("shop")[-1],)
    one = Verdict(USERS, CHECK, ruling, rig.now, fences, value=0.0)
    kept = rig.recorder.changed([one])
    rig.recorder.tell([one], kept=kept)
    return len(kept)


def test_after_a_restart_a_fail_spares_what_has_passed_before_the_last_day(rig: Rig) -> None:
    say(rig, Outcome.PASS)
    run_rounds(rig)
    cut = rig.now - timedelta(seconds=2)
    run_rounds(rig)
    status, answer = rig.ask(cut=cut.isoformat())
    rig.second(25 * 3600)
    run_rounds(rig)
    say(rig, Outcome.PASS)
    run_rounds(rig)
    rig.rulings = LatestVerdicts()
    rig.rulings.load(rig.store.verdicts)
    rig.restart()

    say(rig, Outcome.FAIL)

    issued = rig.certificate(answer["tables"][0]["certificate"])
    assert status == 200
    assert issued.revoked is None


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        pytest.param(True, [1, 0, 0, 1, 0], id="it looks at all rows: once a day"),
        pytest.param(False, [1, 0, 0, 0, 0], id="it looks at some: a FAIL spares nothing by it"),
    ],
)
def test_of_a_pass_that_lasts_few_are_kept(rig: Rig, whole: bool, kept: list[int]) -> None:
    rig.whole = frozenset({CHECK} if whole else ())
    rig.restart()
    said = []
    for hours in (0, 2, 20, 3, 20):
        rig.second(hours * 3600)
        said.append(say(rig, Outcome.PASS))

    assert said == kept


KEYS = ("[1, 2)", "[2, 3)")


def waiver_ids(*keys: str) -> tuple[str, ...]:
    """Waiver ids of ranges that the check found wrong."""
    return tuple(f"{CHECK}:{USERS}:{key}" for key in keys)


@pytest.mark.parametrize(
    ("waived", "holds"),
    [
        pytest.param((), False, id="none is waived"),
        pytest.param(KEYS[:1], False, id="one of two is waived"),
        pytest.param(KEYS[1:], False, id="the other of two is waived"),
        pytest.param(KEYS, True, id="both are waived"),
    ],
)
def test_f113_a_fail_of_two_keys_revokes_until_both_are_waived(
    rig: Rig, waived: tuple[str, ...], holds: bool
) -> None:
    status, answer = rig.ask(cut=(rig.now - timedelta(seconds=2)).isoformat())
    for id_ in waiver_ids(*waived):
        rig.store.waivers.add(Waiver(id_, "the rows are known", "ann", rig.now))

    rig.say(USERS, Ruling(Outcome.FAIL, "two ranges differ", "", KEYS))

    issued = rig.certificate(answer["tables"][0]["certificate"])
    assert status == 200
    assert (issued.revoked is None) is holds


def test_f105_a_fail_ends_when_that_is_recorded_and_a_restart_knows_it(rig: Rig) -> None:
    """The PASS has the time at which its round began; its mirror was read after that."""
    rig.rule(USERS, Outcome.FAIL)
    began = rig.now
    rig.second(3)
    ruling = Ruling(Outcome.PASS, "all are there")

    rig.recorder.tell([Verdict(USERS, "range_counts", ruling, began)])

    before = rig.rulings.bad_until(USERS)
    rig.reload()
    assert before == rig.rulings.bad_until(USERS) == {"range_counts": rig.now}


@dataclass(eq=False)
class LandingHarness:
    """A recorder over a store of its own, and a clock that obeys."""

    store: ServiceStore
    whole: frozenset[str] = frozenset({CHECK})
    route: Route = field(default_factory=lambda: Route(hold=timedelta(), keep=timedelta()))
    storm: int = 10
    now: datetime = NOON

    def __post_init__(self) -> None:
        self.store.waivers.clock = lambda: self.now
        self.rulings = LatestVerdicts()
        settings = AlertSettings((self.route,), storm_limit=self.storm)
        self.recorder = VerdictRecorder(
            settings, self.store, self.rulings, frozenset({CHECK}), self.whole, lambda: self.now
        )

    def verdict(
        self, outcome: Outcome, *keys: str, check: str = CHECK, more: int = 0, value: float = 0.0
    ) -> Verdict:
        ruling = Ruling(outcome, "told", "", keys or (f"row of {check}",), more)
        return Verdict(USERS, check, ruling, self.now, (fence(9, self.now),), value)

    def tell(self, outcome: Outcome, *keys: str, kept: bool = True, check: str = CHECK) -> Verdict:
        """A second later a probe says this; *kept*: it goes into the history."""
        self.now += timedelta(seconds=1)
        one = self.verdict(outcome, *keys, check=check)
        self.recorder.tell([one], kept=None if kept else ())
        return one

    def certify(self, number: int = 5) -> str:
        self.now += timedelta(seconds=1)
        evidence = Evidence((fence(number, self.now),), 1)
        stage = Stage.LANDED
        made = certify(USERS, stage, self.now, issued=self.now, evidence=evidence, unknown=())
        self.store.certificates.add(made)
        return made.id

    def holds(self, certificate: str) -> bool:
        found = self.store.certificates.get(certificate)
        assert found is not None
        return found.revoked is None

    def states(self) -> list[str]:
        """Of the incidents that are open, as this process sees them."""
        return [one.state.value for one in self.recorder.open()]

    def stored(self) -> list[str]:
        """Of all incidents, as the store has them."""
        return sorted(one.state.value for one in self.store.incidents.list())

    def history(self) -> str:
        """First letters of what is in the history, oldest first."""
        found = self.store.verdicts.list(USERS, limit=1_000)
        return "".join(one.ruling.outcome.name[0] for one in reversed(found))


@dataclass(eq=False)
class FullDisk:
    """No write of *harness*'s store begins until there is room."""

    harness: InitVar[LandingHarness]
    full: bool = True

    def __post_init__(self, harness: LandingHarness) -> None:
        listen(harness.store.database.engine, "begin", self._refuse)

    def free(self) -> None:
        self.full = False

    def _refuse(self, connection: Connection) -> None:
        if self.full and connection.get_execution_options()["writes"]:
            raise OperationalError("BEGIN", {}, OSError("database or disk is full"))


@pytest.fixture
def harness(store: ServiceStore) -> LandingHarness:
    return LandingHarness(store)


PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param([FAIL, FAIL], "10", id="a fail that lasts"),
        pytest.param([PASS, FAIL, PASS], "111", id="another outcome"),
        pytest.param([UNKNOWN, UNKNOWN], "10", id="an unknown that lasts"),
    ],
)
def test_f113_what_rules_otherwise_is_kept(
    harness: LandingHarness, said: list[Outcome], kept: str
) -> None:
    assert flags(harness, [harness.verdict(one) for one in said]) == kept


def flags(harness: LandingHarness, said: Sequence[Verdict], minutes: Sequence[float] = ()) -> str:
    """Which of *said*, so many minutes after the one before, are worth keeping."""
    found = ""
    for one, pause in zip_longest(said, minutes, fillvalue=None):
        harness.now += timedelta(minutes=pause or 0)
        assert one is not None
        now = replace(one, at=harness.now)
        kept = harness.recorder.changed([now])
        harness.recorder.tell([now], kept=kept)
        found += str(len(kept))
    return found


def test_f113_a_fail_that_names_other_rows_is_kept(harness: LandingHarness) -> None:
    said = [
        harness.verdict(FAIL, "a"),
        harness.verdict(FAIL, "b"),  # other keys
        harness.verdict(FAIL, "b", more=1),  # cut off from now on
        harness.verdict(FAIL, "b", more=3),
        harness.verdict(FAIL, "c", more=1),  # other rows in each look: no waiver covers them all
        harness.verdict(FAIL, "b"),  # whole again
        replace(harness.verdict(FAIL, "b"), ruling=Ruling(FAIL, "told", "code", ("b",))),
    ]

    assert flags(harness, said) == "1110011"


def test_f113_a_pass_or_unknown_is_not_kept_for_its_keys(harness: LandingHarness) -> None:
    said = [harness.verdict(one, key) for one in (PASS, UNKNOWN) for key in ("a", "b")]

    assert flags(harness, said) == "1010"


def test_f113_a_fail_that_lasts_is_kept_once_an_hour_since_the_last_that_was_kept(
    harness: LandingHarness,
) -> None:
    assert flags(harness, [harness.verdict(FAIL)] * 5, [0, 50, 20, 20, 50]) == "10101"


def test_f113_a_new_number_is_kept_once_an_hour_and_the_same_is_not(
    harness: LandingHarness,
) -> None:
    values = [1.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    said = [harness.verdict(PASS, value=one) for one in values]

    assert flags(harness, said, [0, 50, 20, 90, 10, 70]) == "101010"


def test_f113_an_unknown_that_lasts_spares_nothing_and_is_not_kept_daily(
    harness: LandingHarness,
) -> None:
    assert flags(harness, [harness.verdict(UNKNOWN)] * 2, [0, 60 * 30]) == "10"


@pytest.mark.parametrize("before", [None, FAIL, UNKNOWN])
def test_f113_a_pass_is_news_unless_one_went_before(
    harness: LandingHarness, before: Outcome | None
) -> None:
    said = harness.verdict(PASS)
    if before is not None:
        harness.rulings.add([harness.verdict(before)])  # without an incident

    assert harness.recorder.news([said]) == (said,)
    harness.rulings.add([said])
    assert harness.recorder.news([said]) == ()
    for other in (harness.verdict(FAIL), harness.verdict(UNKNOWN)):
        assert harness.recorder.news([other]) == (other,)


def test_f113_an_open_incident_waits_for_each_pass(store: ServiceStore) -> None:
    harness = LandingHarness(store, route=Route(hold=timedelta(), keep=timedelta(seconds=2)))
    found = list[list[str]]()
    for outcome in (FAIL, PASS, PASS, PASS):
        harness.tell(outcome)
        found.append(harness.states())

    assert found == [["firing"], ["recovering"], ["recovering"], []]
    assert harness.stored() == ["resolved"]


def test_f113_history_holds_all_by_default_and_else_what_is_kept(harness: LandingHarness) -> None:
    harness.tell(FAIL)
    harness.tell(PASS, kept=False)
    harness.tell(PASS)
    harness.tell(FAIL, kept=False)

    assert harness.history() == "FP"
    assert harness.stored() == ["firing", "resolved"]


def test_f113_a_storm_ends_though_nothing_new_is_said(store: ServiceStore) -> None:
    harness = LandingHarness(store, storm=1)
    for check in ("a", "b", "c"):
        harness.tell(FAIL, check=check)
    assert STORM in {one.cause.check for one in harness.recorder.open()}
    others = [one for one in harness.recorder.open() if one.cause.check != STORM]
    harness.store.incidents.keep([replace(one, state=IncidentState.RESOLVED) for one in others])
    harness.recorder.open()

    harness.recorder.tell([])

    assert harness.states() == []


def test_in_a_storm_a_pass_of_a_good_table_asks_the_store_for_nothing(store: ServiceStore) -> None:
    harness = LandingHarness(store, storm=1)
    for check in ("a", "b", "c"):
        harness.tell(FAIL, check=check)
    harness.tell(PASS, check="good")
    asked = list[str]()
    listen(harness.store.database.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))

    for _ in range(3):
        harness.tell(PASS, check="good", kept=False)

    assert asked == []
    assert STORM in {one.cause.check for one in harness.store.incidents.open()}


def test_what_a_verdict_made_of_incidents_is_known_without_reading_them_again(
    harness: LandingHarness,
) -> None:
    harness.tell(FAIL, check="a")
    read = list[str]()

    def note(*said: Any) -> None:
        read.extend(["read"] if said[2].startswith("SELECT incidents") else [])

    listen(harness.store.database.engine, "before_cursor_execute", note)
    for outcome in (FAIL, FAIL, PASS, PASS):
        harness.tell(outcome, check="a")
    harness.tell(FAIL, check="b")

    assert read == []
    assert harness.states() == ["firing"]
    assert harness.stored() == ["firing", "resolved"]


def test_f113_what_changes_nothing_leaves_the_store_alone(harness: LandingHarness) -> None:
    waive(harness, "other", "3")
    harness.tell(FAIL)
    harness.recorder.withdraw(lambda member: False)
    harness.tell(PASS)
    harness.certify()
    harness.tell(PASS, kept=False)  # what is open is read once
    asked = list[str]()
    listen(harness.store.database.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))

    for _ in range(3):
        harness.tell(PASS, kept=False)
        harness.recorder.tell([])
        harness.recorder.withdraw(lambda member: False)

    assert asked == []


@pytest.mark.parametrize("outcome", [PASS, UNKNOWN])
def test_f113_only_a_fail_revokes_and_only_one_of_a_gating_check(
    harness: LandingHarness, outcome: Outcome
) -> None:
    harness.recorder.whole = frozenset()
    certificate = harness.certify()
    harness.tell(outcome)
    harness.tell(FAIL, check="other")
    before = harness.holds(certificate)

    harness.tell(FAIL)

    assert (before, harness.holds(certificate)) == (True, False)


def test_f113_a_fail_that_lasts_revokes_what_was_certified_since_and_is_not_kept(
    harness: LandingHarness,
) -> None:
    harness.tell(FAIL)
    harness.recorder.withdraw(lambda member: False)
    certificate = harness.certify()

    harness.tell(FAIL, kept=False)

    assert not harness.holds(certificate)


@pytest.mark.parametrize("full", [False, True], ids=["a store that works", "a full store"])
def test_f113_a_fail_that_opens_no_incident_revokes_as_well(
    harness: LandingHarness, *, full: bool
) -> None:
    """It follows from somebody else's write in the mirror, which has one."""
    harness.tell(FAIL, check="foreign_write")
    certificate = harness.certify()
    disk = FullDisk(harness, full=full)
    harness.tell(FAIL, kept=False)
    disk.free()

    harness.recorder.tell([])

    assert [one.cause.check for one in harness.recorder.open()] == ["foreign_write"]
    assert not harness.holds(certificate)


@pytest.mark.parametrize("whole", [True, False])
def test_f113_a_pass_of_all_rows_spares_what_it_covers(store: ServiceStore, *, whole: bool) -> None:
    harness = LandingHarness(store, whole=frozenset({CHECK} if whole else ()))
    certificate = harness.certify()
    harness.tell(PASS)

    harness.tell(FAIL)

    assert harness.holds(certificate) is whole


def test_f113_only_the_first_pass_after_a_fail_is_kept_as_its_end(harness: LandingHarness) -> None:
    for outcome in (PASS, UNKNOWN):
        harness.tell(outcome)
    before = dict(harness.store.verdicts.fail_ends())
    harness.tell(FAIL)
    harness.recorder.withdraw(lambda member: False)
    ended = harness.tell(PASS, kept=False)
    harness.tell(PASS)

    assert before == {}
    assert harness.store.verdicts.fail_ends() == {(USERS, CHECK): ended.at}
    assert harness.rulings.newest(USERS, CHECK) is not ended


def test_f113_incidents_about_what_is_not_watched_are_closed_and_others_stay(
    harness: LandingHarness,
) -> None:
    harness.tell(FAIL)
    harness.tell(FAIL, check="other")

    harness.recorder.withdraw(lambda member: member.check == "other")

    assert [one.cause.check for one in harness.recorder.open()] == ["other"]
    assert harness.stored() == ["firing", "resolved"]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_f113_what_a_full_store_did_not_take_is_written_once_it_does(
    harness: LandingHarness, *, kept: bool
) -> None:
    harness.tell(FAIL, check="before")
    certificate = harness.certify()
    disk = FullDisk(harness)
    fail = harness.tell(FAIL, kept=kept)
    other = harness.tell(FAIL, check="other", kept=kept)
    doubted = set(harness.store.certificates.doubted)
    harness.tell(PASS, check="before", kept=kept)
    seen = harness.states()
    disk.free()
    harness.recorder.tell([])
    owed = harness.history()
    harness.recorder.tell([])

    assert doubted == {USERS}
    assert seen == ["firing", "firing"]
    assert harness.states() == ["firing", "firing"]
    assert harness.stored() == ["firing", "firing", "resolved"]
    assert not harness.holds(certificate)
    assert harness.store.certificates.doubted == set()
    assert harness.history() == owed == ("FFFP" if kept else "F")
    assert list(harness.store.verdicts.fail_ends()) == [(USERS, "before")]
    assert fail.table == other.table


def test_f113_only_a_fail_of_a_gating_check_doubts_certificates(harness: LandingHarness) -> None:
    FullDisk(harness)

    harness.tell(FAIL, check="other")
    harness.tell(UNKNOWN)
    harness.tell(PASS)

    assert harness.store.certificates.doubted == set()
    assert harness.states() == ["firing"]


def test_f113_notifications_of_a_full_store_are_sent_and_the_log_says_so(
    store: ServiceStore,
) -> None:
    harness = LandingHarness(store, route=Route(hold=timedelta(), channels=("pager",)))
    harness.certify()
    disk = FullDisk(harness)
    with capture_logs() as logged:
        harness.tell(FAIL)
        waiting = [one.message.subject for one in harness.store.outbox.waiting("pager", 9)]
        disk.free()
        harness.recorder.tell([])
        harness.tell(PASS)

    events = [one["event"] for one in logged if one["event"] != "verdict"]
    assert len(waiting) == 1
    assert events == [
        "the store cannot be written; incidents are kept in memory",
        "certificates revoked",
        "the store answers again; incidents kept in memory are stored",
    ]


def test_f113_a_blip_while_the_store_is_full_is_forgotten(store: ServiceStore) -> None:
    harness = LandingHarness(store, route=Route(hold=timedelta(hours=1), keep=timedelta()))
    harness.tell(FAIL)
    disk = FullDisk(harness)
    pending = harness.states()
    harness.tell(PASS)
    forgotten = harness.states()
    disk.free()
    harness.recorder.tell([])

    assert (pending, forgotten, harness.states(), harness.stored()) == (["pending"], [], [], [])


def test_f113_a_fail_after_a_blip_is_held_back_from_its_own_beginning(store: ServiceStore) -> None:
    harness = LandingHarness(store, route=Route(hold=timedelta(hours=1), keep=timedelta()))
    harness.tell(FAIL)
    harness.tell(PASS)
    harness.now += timedelta(hours=1)

    harness.tell(FAIL)

    assert (harness.states(), harness.stored()) == (["pending"], ["pending"])


def test_f113_what_is_closed_while_the_store_is_full_is_closed_in_it_later(
    harness: LandingHarness,
) -> None:
    harness.tell(FAIL)
    disk = FullDisk(harness)
    harness.recorder.withdraw(lambda member: False)
    disk.free()

    harness.recorder.tell([])

    assert harness.stored() == ["resolved"]


def test_f113_a_verdict_alone_is_owed_until_the_store_takes_it(harness: LandingHarness) -> None:
    disk = FullDisk(harness)
    harness.tell(PASS)
    disk.free()

    harness.recorder.tell([])

    assert harness.history() == "P"


def test_f113_the_end_of_a_fail_alone_is_owed_until_the_store_takes_it(
    harness: LandingHarness,
) -> None:
    harness.tell(FAIL)
    harness.recorder.withdraw(lambda member: False)
    disk = FullDisk(harness)
    ended = harness.tell(PASS, kept=False)
    disk.free()

    harness.recorder.tell([])

    assert harness.store.verdicts.fail_ends() == {(USERS, CHECK): ended.at}


@pytest.mark.parametrize("passed", [True, False], ids=["after a pass", "before any"])
def test_f113_a_pass_that_came_after_an_owed_fail_spares_nothing_from_it(
    harness: LandingHarness, *, passed: bool
) -> None:
    if passed:
        harness.tell(PASS)
    certificate = harness.certify()
    disk = FullDisk(harness)
    harness.tell(FAIL)
    harness.tell(PASS)
    disk.free()

    harness.recorder.tell([])

    assert not harness.holds(certificate)


def test_f113_a_second_owed_fail_does_not_take_the_place_of_the_first(
    harness: LandingHarness,
) -> None:
    """The PASS between them covers what the first one took back."""
    harness.tell(PASS)
    certificate = harness.certify()
    disk = FullDisk(harness)
    for outcome in (FAIL, PASS, FAIL):
        harness.tell(outcome)
    disk.free()

    harness.recorder.tell([])

    assert not harness.holds(certificate)


@pytest.mark.parametrize(
    ("keys", "more"), [(("b",), 0), (("a",), 1)], ids=["another key", "rows without a name"]
)
def test_f113_owed_fails_of_other_rows_are_judged_one_by_one(
    harness: LandingHarness, keys: tuple[str, ...], more: int
) -> None:
    certificate, waived = harness.certify(), f"{CHECK}:{USERS}:a"
    harness.store.waivers.add(Waiver(waived, "the row is known", "ann", harness.now))
    disk = FullDisk(harness)
    harness.tell(FAIL, "a")
    harness.recorder.tell([harness.verdict(FAIL, *keys, more=more)])
    disk.free()

    harness.recorder.tell([])

    assert not harness.holds(certificate)


def test_f113_the_log_has_what_rules_otherwise_than_before(harness: LandingHarness) -> None:
    with capture_logs() as logged:
        for outcome in (PASS, PASS, FAIL, FAIL, UNKNOWN, PASS):
            harness.tell(outcome)
        harness.tell(UNKNOWN, check="other")

    said = [(one["check"], one["outcome"]) for one in logged if one["event"] == "verdict"]
    assert said == [(CHECK, "fail"), (CHECK, "unknown"), (CHECK, "pass"), ("other", "unknown")]
    assert "certificates revoked" not in {one["event"] for one in logged}


@pytest.mark.parametrize(
    ("outcome", "keys", "left"),
    [
        pytest.param(PASS, ("3-9",), set(), id="all is well"),
        pytest.param(UNKNOWN, ("30",), {"3-9", "12", "x"}, id="it cannot tell"),
        pytest.param(FAIL, ("3-9", "12", "x"), {"3-9", "12", "x"}, id="the same again"),
        pytest.param(FAIL, ("1-4", "x"), {"3-9", "x"}, id="a range that goes further"),
        pytest.param(FAIL, ("5", "11-13"), {"3-9", "12"}, id="parts of ranges"),
        pytest.param(FAIL, ("10",), set(), id="other rows"),
    ],
)
def test_f103_a_waiver_ends_once_no_row_of_it_is_found_again(
    harness: LandingHarness, outcome: Outcome, keys: tuple[str, ...], left: set[str]
) -> None:
    waive(harness, CHECK, "3-9", "12", "x")

    with capture_logs() as logged:
        harness.tell(outcome, *(f"a:{key}" for key in keys))

    assert harness.store.waivers.waived() == {f"{CHECK}:{USERS}:a:{key}" for key in left}
    ended = [one["count"] for one in logged if one["event"] == "waivers ended"]
    assert ended == ([3 - len(left)] if len(left) < 3 else [])


@pytest.mark.parametrize(
    ("check", "whole", "more"),
    [
        pytest.param("other", True, 0, id="a check that gates nothing"),
        pytest.param(CHECK, False, 0, id="some rows were looked at"),
        pytest.param(CHECK, True, 1, id="rows without a name"),
    ],
)
def test_f103_a_waiver_goes_on_where_its_rows_may_be_among_what_is_not_told(
    store: ServiceStore, check: str, more: int, *, whole: bool
) -> None:
    harness = LandingHarness(store, whole=frozenset({check} if whole else ()))
    waive(harness, check, "3")

    harness.recorder.tell([harness.verdict(FAIL, "a:7", check=check, more=more)])

    assert harness.store.waivers.waived() == {f"{check}:{USERS}:a:3"}


def test_f103_a_waiver_that_a_full_store_does_not_end_ends_by_the_next_verdict(
    harness: LandingHarness,
) -> None:
    waive(harness, CHECK, "3")
    disk = FullDisk(harness)
    with capture_logs() as logged:
        harness.tell(PASS)
    left = harness.store.waivers.waived()
    disk.free()

    harness.tell(PASS)

    assert left == {f"{CHECK}:{USERS}:a:3"}
    assert "waivers of passed checks could not be ended yet" in {one["event"] for one in logged}
    assert harness.store.waivers.waived() == frozenset()


@pytest.mark.parametrize("outcome", [PASS, FAIL])
def test_f103_a_waiver_of_a_table_whose_name_goes_on_after_a_colon_is_not_ended(
    harness: LandingHarness, outcome: Outcome
) -> None:
    """MySQL and Postgres take a colon in names; the PASS of that table itself ends the waiver."""
    longer = f"{USERS}:old"
    harness.recorder.tell([replace(harness.verdict(FAIL, "a:3"), table=longer)])
    waive(harness, CHECK, "3")
    id_ = f"{CHECK}:{longer}:a:3"
    harness.store.waivers.add(Waiver(id_, "the rows are known", "ann", harness.now))

    harness.tell(outcome, "a:7")
    left = harness.store.waivers.waived()
    harness.recorder.tell([replace(harness.verdict(PASS), table=longer)])

    assert left == {id_}
    assert harness.store.waivers.waived() == frozenset()


def waive(harness: LandingHarness, check: str, *keys: str) -> None:
    for key in keys:
        waived = Waiver(f"{check}:{USERS}:a:{key}", "the rows are known", "ann", harness.now)
        harness.store.waivers.add(waived)


@pytest.mark.parametrize("what", ["incidents", "silences"])
def test_f113_what_a_store_does_not_tell_is_what_it_told_last(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    harness.tell(FAIL)
    assert harness.states() == ["firing"]

    def silent(*_: object) -> None:
        raise UnreachableError("locked")

    of = harness.store.incidents if what == "incidents" else harness.store.silences
    monkeypatch.setattr(of, "open" if what == "incidents" else "list", silent)
    with capture_logs() as logged:
        harness.tell(FAIL, "another row")
        assert harness.states() == ["firing"]

    assert ("warning", "locked") in {
        (one["log_level"], one["why"])
        for one in logged
        if one["event"].endswith("the last known ones apply")
        and one["event"].startswith("open incidents" if what == "incidents" else "silences")
    }


def test_f113_a_storm_beside_another_incident_ends_though_nothing_new_is_said(
    store: ServiceStore,
) -> None:
    harness = LandingHarness(store, storm=2)
    for check in ("a", "b", "c", "d"):
        harness.tell(FAIL, check=check)
    others = [one for one in harness.recorder.open() if one.cause.check != STORM]
    assert len(others) < len(harness.recorder.open())
    over = [replace(one, state=IncidentState.RESOLVED) for one in others[1:]]
    harness.store.incidents.keep(over)
    harness.recorder.open()

    harness.recorder.tell([])

    assert STORM not in {one.cause.check for one in harness.recorder.open()}
    assert harness.states() != []
