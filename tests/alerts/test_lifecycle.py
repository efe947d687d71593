from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.lifecycle import advance_incident
from alerts.model import (
    Acknowledgement,
    AlertKind,
    AlertPolicy,
    CauseFinding,
    Incident,
    IncidentState,
    Member,
    Severity,
)
from tests.alerts.kit import ORDERS, at, finding, firing, minutes, play

HOLD_TWO = AlertPolicy(hold=minutes(2))
KEEP_TWO = AlertPolicy(keep=minutes(2))
REPEAT_THREE = AlertPolicy(repeat=minutes(3))
SHEETS = st.text("PF?", max_size=40)
POLICIES = st.builds(
    AlertPolicy,
    hold=st.integers(0, 5).map(minutes),
    keep=st.integers(0, 5).map(minutes),
    repeat=st.none() | st.integers(1, 9).map(minutes),
    muted=st.booleans(),
)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("PPPP", "....", id="all is well"),
        pytest.param("PFPF", "....", id="a blip shorter than hold is silent"),
        pytest.param("FFPFF", ".....", id="a pass starts the clock again"),
        pytest.param("FFF", "..!", id="fires when hold is over"),
        pytest.param("FFFFFF", "..!...", id="fires once"),
        pytest.param("FF?F", "...!", id="unknown neither fires nor resets"),
        pytest.param("F????F", ".....!", id="two fails with nothing against them are one trouble"),
        pytest.param("F?????", "......", id="unknown alone never fires"),
        pytest.param("??????", "......", id="unknown opens nothing"),
        pytest.param("FFF?P", "..!.~", id="unknown does not clear"),
        pytest.param("FFF????", "..!....", id="unknown never clears, however long"),
        pytest.param("FFFPP", "..!~.", id="clears once"),
        pytest.param("FFFPFFF", "..!~..!", id="a new episode waits for hold again"),
        pytest.param("F?P?F?F", "......!", id="only a pass in between makes two troubles of it"),
    ],
)
def test_two_minutes_of_hold(letters: str, expected: str) -> None:
    assert play(letters, HOLD_TWO)[0] == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("FPPP", "!..~", id="clears when keep is over"),
        pytest.param("FPFPFPPP", "!......~", id="flapping tells nobody twice"),
        pytest.param("FPFPFFFF", "!.......", id="a relapse is the same episode"),
        pytest.param("FP?P", "!..~", id="unknown does not reset the recovery"),
        pytest.param("FP???", "!....", id="unknown does not complete the recovery"),
        pytest.param("FPPF", "!...", id="a fail in the last minute of keep"),
    ],
)
def test_two_minutes_of_keep(letters: str, expected: str) -> None:
    assert play(letters, KEEP_TWO)[0] == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("FFFFFFF", "!..!..!", id="tells again each time repeat is over"),
        pytest.param("FFF??FF", "!....!.", id="unknown does not tell again"),
        pytest.param("FFPFFFF", "!.~!..!", id="a new episode counts anew"),
    ],
)
def test_three_minutes_of_repeat(letters: str, expected: str) -> None:
    assert play(letters, REPEAT_THREE)[0] == expected


def test_muted_trouble_is_told_once_the_silence_is_over() -> None:
    incident, first = advance_incident(None, finding("F"), AlertPolicy(muted=True), at(0))
    incident, second = advance_incident(incident, finding("F"), AlertPolicy(), at(1))

    assert first == ()
    assert [notice.event for notice in second] == ["fired"]
    assert incident is not None
    assert incident.opened == at(0)


def test_trouble_that_came_and_went_in_a_silence_is_never_told() -> None:
    assert play("FFFPP", AlertPolicy(muted=True))[0] == "....."


def test_who_was_told_before_the_silence_hears_the_end_in_it() -> None:
    incident, notices = advance_incident(firing(), finding("P"), AlertPolicy(muted=True), at(5))

    assert [notice.event for notice in notices] == ["cleared"]
    assert incident is not None
    assert incident.state is IncidentState.RESOLVED


def test_an_acknowledged_incident_is_not_repeated() -> None:
    held = replace(firing(), acknowledged=Acknowledgement("on call", at(1)))

    _, notices = advance_incident(held, finding("F"), REPEAT_THREE, at(30))

    assert notices == ()


@pytest.mark.parametrize(
    ("keys", "more", "told"),
    [
        pytest.param(("shop/db.t:7-9",), 0, ["", ""], id="the same rows"),
        pytest.param(("shop/db.t:7-8",), 0, ["", ""], id="some of them"),
        pytest.param((), 0, ["", ""], id="no names"),
        pytest.param(("shop/db.t:7-9", "shop/db.t:70-90"), 0, ["repeated", ""], id="more rows"),
        pytest.param(("shop/db.t:7-9",), 3, ["repeated", ""], id="more than are named"),
    ],
)
def test_an_acknowledged_loss_that_grows_is_told_again_once(
    keys: tuple[str, ...], more: int, told: list[str]
) -> None:
    lost, policy = finding("F"), AlertPolicy(owner="data-platform", channels=("log",))
    known = replace(firing(), ruling=replace(lost.ruling, keys=("shop/db.t:7-9",)))
    acknowledged = replace(known, acknowledged=Acknowledgement("on call", at(1)))
    found = replace(lost, ruling=replace(lost.ruling, keys=keys, more=more))

    grown, first = advance_incident(acknowledged, found, policy, at(30))
    _, second = advance_incident(grown, found, policy, at(40))

    assert grown is not None
    assert ["".join(one.event for one in each) for each in (first, second)] == told
    assert (grown.acknowledged is None) is bool(told[0])


def test_an_acknowledged_loss_that_grows_is_told_when_that_has_stayed_for_hold() -> None:
    lost, policy = finding("F"), AlertPolicy(owner="data-platform", channels=("log",))
    held = replace(firing(), acknowledged=Acknowledgement("on call", at(1)))
    found = replace(lost, ruling=replace(lost.ruling, keys=("shop/db.t:7-9",)))
    incident, told = held, []
    for minute in (30, 31, 32, 33):
        moved, notices = advance_incident(
            incident, found, replace(policy, hold=minutes(2)), at(minute)
        )
        assert moved is not None
        incident = moved
        told.append(len(notices))

    assert told == [0, 0, 1, 0]


@pytest.mark.parametrize("last", [7, 8, 9], ids=["once", "twice", "three times"])
@pytest.mark.parametrize("muted", [False, True], ids=["in the time of hold", "in a silence"])
def test_an_acknowledged_loss_that_grows_again_before_it_is_told_is_told(
    last: int, muted: bool
) -> None:
    policy = AlertPolicy(hold=minutes(0 if muted else 3), channels=("log",), owner="data-platform")
    incident, told = acknowledged("shop/db.t:5-6"), []
    for minute in range(30, 36):
        found = naming(f"shop/db.t:5-{min(minute - 30 + 7, last)}")
        silenced = replace(policy, muted=muted and minute < 33)
        moved, notices = advance_incident(incident, found, silenced, at(minute))
        assert moved is not None
        incident = moved
        told.append(len(notices))

    assert told == [0, 0, 0, 1, 0, 0]


def test_a_loss_that_grows_and_was_not_acknowledged_is_not_told_again() -> None:
    incident: Incident | None = replace(acknowledged("shop/db.t:5-6"), acknowledged=None)
    policy = AlertPolicy(channels=("log",), owner="data-platform")
    told = []
    for minute in (30, 31, 32):
        found = naming("shop/db.t:5-9")
        incident, notices = advance_incident(incident, found, policy, at(minute))
        told.append(notices)

    assert told == [(), (), ()]


@pytest.mark.parametrize(
    ("rows", "check", "told"),
    [
        pytest.param("5-9", "values", [1, 0, 0], id="another check joins"),
        pytest.param("7-9", "range_counts", [1, 0, 0], id="other rows only"),
        pytest.param("6-9", "range_counts", [0, 0, 0], id="more rows"),
    ],
)
def test_a_loss_that_grows_by_a_check_or_into_other_rows_is_told_again_once(
    rows: str, check: str, told: list[int]
) -> None:
    incident: Incident | None = replace(acknowledged("shop/db.t:5-6"), acknowledged=None)
    assert incident is not None
    table = incident.members[0].table
    incident = replace(incident, members=(Member(table, "range_counts"),))
    policy, heard = AlertPolicy(channels=("log",), owner="data-platform"), []
    for minute in (30, 31, 32):
        found = replace(naming(f"shop/db.t:{rows}"), failing=(Member(table, check),))
        incident, notices = advance_incident(incident, found, policy, at(minute))
        heard.append(len(notices))

    assert heard == told


def test_a_growth_that_was_told_is_not_told_again_when_somebody_was_concerned_for_a_moment() -> (
    None
):
    alone = AlertPolicy(channels=("log",), owner="data-platform")
    joint = replace(alone, owner="data-platform, b", hold=minutes(2))
    incident: Incident | None = acknowledged("shop/db.t:5-6")
    told = []
    for minute, policy in enumerate((alone, joint, alone, alone, alone), start=30):
        found = naming("shop/db.t:5-9")
        incident, notices = advance_incident(incident, found, policy, at(minute))
        told.append(len(notices))

    assert told == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        pytest.param(AlertKind.LOST, Member("shop.users", "range_counts"), id="of several tables"),
        pytest.param(AlertKind.SUSPECT, ORDERS, id="a suspicion"),
    ],
)
def test_only_the_loss_of_one_table_ends_its_acknowledgement_by_new_rows(
    kind: AlertKind, other: Member
) -> None:
    held = acknowledged("shop/db.t:5-6", kind=kind)
    held = replace(held, members=tuple(sorted({ORDERS, other})))

    incident, notices = advance_incident(
        held, naming("shop/db.t:5-9", kind=kind), AlertPolicy(channels=("log",)), at(30)
    )

    assert incident is not None
    assert (incident.acknowledged, notices) == (held.acknowledged, ())
    assert incident.ruling.keys == ("shop/db.t:5-9",)


MAX_ID = Member("shop.orders", "max_id")


@pytest.mark.parametrize(
    ("kind", "members", "failing", "told", "kept"),
    [
        pytest.param(AlertKind.LOST, (ORDERS,), (ORDERS,), "shop/db.t:5", False, id="one check"),
        pytest.param(
            AlertKind.LOST, (MAX_ID, ORDERS), (ORDERS,), "shop/db.t:5", True, id="one of two checks"
        ),
        pytest.param(
            AlertKind.LOST, (ORDERS,), (MAX_ID, ORDERS), "shop/db.t:5", True, id="another check too"
        ),
        pytest.param(AlertKind.LOST, (MAX_ID, ORDERS), (ORDERS,), "", False, id="without rows"),
        pytest.param(
            AlertKind.SUSPECT, (MAX_ID, ORDERS), (ORDERS,), "shop/db.t:5", False, id="no loss"
        ),
    ],
)
def test_a_loss_of_several_checks_names_all_its_rows_whichever_check_speaks(
    kind: AlertKind, members: tuple[Member, ...], failing: tuple[Member, ...], told: str, kept: bool
) -> None:
    held = replace(acknowledged("shop/db.t:5-6", kind=kind), members=members, failing=members)
    found = replace(naming(told, kind=kind), failing=failing)

    incident, _ = advance_incident(held, found, AlertPolicy(channels=("log",)), at(30))

    assert incident is not None
    assert incident.ruling == (held.ruling if kept else found.ruling)


def naming(key: str, *, kind: AlertKind = AlertKind.LOST) -> CauseFinding:
    """A FAIL of ``ORDERS`` that names these rows; none where *key* is empty."""
    found = finding("F", kind=kind)
    return replace(found, ruling=replace(found.ruling, keys=(key,) if key else ()))


def acknowledged(key: str, *, kind: AlertKind = AlertKind.LOST) -> Incident:
    """An incident that named these rows, was told, and was acknowledged."""
    known = replace(firing(kind=kind), ruling=naming(key).ruling)
    return replace(known, acknowledged=Acknowledgement("on call", at(1)))


def test_f30_what_it_was_told_as_is_kept_once_that_has_changed() -> None:
    grave = AlertPolicy(severity=Severity.CRITICAL, owner="a")
    joint = AlertPolicy(severity=Severity.CRITICAL, owner="a, b")
    incident, _ = advance_incident(None, finding("F"), AlertPolicy(owner="a"), at(0))
    befores = []
    for minute, policy in enumerate((grave, joint, joint, grave), start=1):
        incident, _ = advance_incident(incident, finding("F"), policy, at(minute))
        befores.append(incident.before if incident else ())

    mild, one, both = (Severity.WARNING, "a"), (Severity.CRITICAL, "a"), (Severity.CRITICAL, "a, b")
    assert befores == [(mild,), (mild, one), (mild, one), (mild, both)]


def test_f30_what_nobody_was_told_of_has_no_other_name() -> None:
    quiet = AlertPolicy(hold=minutes(9))
    incident, _ = advance_incident(None, finding("F"), quiet, at(0))
    incident, _ = advance_incident(incident, finding("F"), replace(quiet, owner="b"), at(1))

    assert incident is not None
    assert incident.before == ()


def test_what_fails_now_is_known_though_the_answer_is_unknown() -> None:
    incident, notices = advance_incident(firing(), finding("?"), AlertPolicy(), at(1))

    assert incident is not None
    assert (incident.failing, incident.members, notices) == ((), (ORDERS,), ())


def test_a_hold_made_longer_takes_nothing_back_that_fires() -> None:
    incident, _ = advance_incident(firing(), finding("F"), AlertPolicy(hold=minutes(99)), at(1))

    assert incident is not None
    assert incident.state is IncidentState.FIRING


def test_trouble_that_a_fast_clock_dated_is_told_once_the_clock_is_set_right() -> None:
    incident, before = advance_incident(None, finding("F"), HOLD_TWO, at(60))
    assert before == ()

    _, notices = advance_incident(incident, finding("F"), HOLD_TWO, at(1))

    assert len(notices) == 1


def test_an_incident_says_since_when_it_is_in_its_state() -> None:
    _, states = play("FFFPFF", replace(HOLD_TWO, keep=minutes(9)))

    assert [one.turned for one in states if one] == [at(0), at(0), at(2), at(3), at(4), at(4)]


def test_whatever_failed_in_an_episode_is_a_member_of_it() -> None:
    other = Member("shop.users", "range_counts")
    incident, _ = advance_incident(firing(), finding("F", other), AlertPolicy(), at(1))

    assert incident is not None
    assert (incident.members, incident.failing) == ((ORDERS, other), (other,))


def test_notices_of_an_episode_are_counted() -> None:
    _, states = play("FFFFFFFP", REPEAT_THREE)

    assert [one.notices for one in states if one] == [1, 1, 1, 2, 2, 2, 3, 4]


def test_an_episode_keeps_its_id_and_the_next_one_gets_its_own() -> None:
    _, states = play("FF?FPF", REPEAT_THREE)

    ids = [incident.id for incident in states if incident is not None]
    assert len(set(ids[:5])) == 1
    assert ids[5] != ids[0]
    causes = {incident.cause.fingerprint for incident in states if incident is not None}
    assert len(causes) == 1


@given(SHEETS, POLICIES)
def test_nothing_is_ever_told_on_unknown(letters: str, policy: AlertPolicy) -> None:
    told, _ = play(letters, policy)

    signs = [sign for letter, sign in zip(letters, told, strict=True) if letter == "?"]
    assert signs == ["."] * letters.count("?")


@given(SHEETS, POLICIES)
def test_unknown_changes_no_state(letters: str, policy: AlertPolicy) -> None:
    _, states = play(letters, policy)
    before = [None, *states[:-1]] if states else []

    for letter, old, new in zip(letters, before, states, strict=True):
        if letter == "?" and old is not None and old.state is not IncidentState.RESOLVED:
            assert new is not None
            assert (new.state, new.turned, new.opened) == (old.state, old.turned, old.opened)


@given(SHEETS, POLICIES)
def test_an_episode_fires_once_unless_repeat_says_otherwise(
    letters: str, policy: AlertPolicy
) -> None:
    told, _ = play(letters, replace(policy, repeat=None))

    assert "!!" not in told.replace(".", "")


@given(SHEETS, POLICIES)
def test_an_end_is_told_at_most_once_and_only_after_a_beginning(
    letters: str, policy: AlertPolicy
) -> None:
    told, _ = play(letters, policy)

    heard = told.replace(".", "")
    assert not heard.startswith("~")
    assert "~~" not in heard


@given(SHEETS, POLICIES)
def test_nothing_fires_before_it_has_failed_for_hold(letters: str, policy: AlertPolicy) -> None:
    told, _ = play(letters, replace(policy, repeat=None))

    for minute in (i for i, sign in enumerate(told) if sign == "!"):
        first = letters.rfind("P", 0, minute) + 1
        assert minutes(minute - first) >= policy.hold
        assert letters[minute] == "F"


@given(SHEETS, POLICIES)
def test_every_notice_has_a_fingerprint_of_its_own(letters: str, policy: AlertPolicy) -> None:
    incident, seen = None, []
    for minute, letter in enumerate(letters):
        incident, notices = advance_incident(incident, finding(letter), policy, at(minute))
        seen += [notice.fingerprint for notice in notices]

    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    "wider",
    [
        pytest.param({"owner": "a, b"}, id="another owner"),
        pytest.param({"channels": ("log", "slack")}, id="another channel"),
        pytest.param({"severity": Severity.CRITICAL}, id="more gravely"),
    ],
)
def test_whom_it_concerns_now_hears_of_it_at_once_and_once(wider: dict[str, Any]) -> None:
    first = AlertPolicy(owner="a", channels=("log",))
    incident, _ = advance_incident(None, finding("F"), first, at(0))
    assert incident is not None
    incident = replace(incident, acknowledged=Acknowledgement("on call", at(1)))
    told = []
    for minute, policy in enumerate((first, replace(first, **wider)) * 3, start=2):
        incident, notices = advance_incident(incident, finding("F"), policy, at(minute))
        told.append(len(notices))

    assert told == [0, 1, 0, 0, 0, 0]


def test_whom_it_concerns_in_a_silence_hears_of_it_when_that_is_over() -> None:
    first = AlertPolicy(owner="a")
    incident, _ = advance_incident(None, finding("F"), first, at(0))
    told = []
    for minute, muted in enumerate((True, True, False, False), start=1):
        policy = AlertPolicy(owner="a, b", muted=muted)
        incident, notices = advance_incident(incident, finding("F"), policy, at(minute))
        told.append(len(notices))

    assert told == [0, 0, 1, 0]


def test_who_was_told_of_the_beginning_hears_the_end_though_its_table_left_before() -> None:
    incident, _ = advance_incident(
        None, finding("F"), AlertPolicy(channels=("log", "slack")), at(0)
    )
    incident, _ = advance_incident(incident, finding("F"), AlertPolicy(channels=("log",)), at(1))

    _, (ended,) = advance_incident(incident, finding("P"), AlertPolicy(channels=("log",)), at(2))

    assert ended.incident.channels == ("log", "slack")


def test_who_was_told_of_the_beginning_hears_the_end_though_others_were_told_since() -> None:
    incident, _ = advance_incident(None, finding("F"), AlertPolicy(channels=("slack",)), at(0))
    incident, (joined,) = advance_incident(
        incident, finding("F"), AlertPolicy(channels=("log",)), at(1)
    )

    _, (ended,) = advance_incident(incident, finding("P"), AlertPolicy(channels=("log",)), at(2))

    assert (joined.event, joined.incident.channels) == ("repeated", ("log",))
    assert ended.incident.channels == ("log", "slack")


def test_who_joins_hears_of_it_once_it_concerns_them_for_hold_and_of_no_blip() -> None:
    first = AlertPolicy(owner="a", hold=minutes(2))
    joint = AlertPolicy(owner="a, b", hold=minutes(2))
    sheet = (first, first, first, joint, first, joint, joint, joint, joint)
    incident, told = None, []
    for minute, policy in enumerate(sheet):
        incident, notices = advance_incident(incident, finding("F"), policy, at(minute))
        told.append(len(notices))

    assert told == [0, 0, 1, 0, 0, 0, 0, 1, 0]


def test_who_joined_before_it_was_good_for_a_moment_waits_anew() -> None:
    first = AlertPolicy(owner="a", hold=minutes(2), keep=minutes(9))
    joint = replace(first, owner="a, b")
    sheet = [(letter, first) for letter in "FFF"] + [(letter, joint) for letter in "FPFFF"]
    incident, told = None, []
    for minute, (letter, policy) in enumerate(sheet):
        incident, notices = advance_incident(incident, finding(letter), policy, at(minute))
        told.append(len(notices))

    assert told == [0, 0, 1, 0, 0, 0, 0, 1]


def test_muted_trouble_that_was_good_for_a_moment_is_told_when_the_silence_is_over() -> None:
    """Nobody was told, so nobody could have been spared."""
    policy = AlertPolicy(hold=minutes(2), keep=minutes(9))
    muted, incident, told = replace(policy, muted=True), None, []
    sheet = [*((letter, muted) for letter in "FFFFP"), ("F", policy)]
    for minute, (letter, one) in enumerate(sheet):
        incident, notices = advance_incident(incident, finding(letter), one, at(minute))
        told.append(len(notices))

    assert told == [0, 0, 0, 0, 0, 1]


def test_muted_trouble_waits_for_a_hold_that_was_made_longer() -> None:
    muted = AlertPolicy(hold=minutes(2), muted=True)
    patient = AlertPolicy(hold=minutes(9), repeat=minutes(1))
    incident, told = None, []
    for minute, one in enumerate([muted] * 4 + [patient] * 7):
        incident, notices = advance_incident(incident, finding("F"), one, at(minute))
        told.append(len(notices))

    assert told == [0] * 9 + [1, 1]
