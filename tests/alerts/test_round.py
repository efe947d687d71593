from cProfile import Profile
from dataclasses import replace
from datetime import timedelta

from alerts.model import AlertKind, Event, IncidentState, Member, Severity, Silence
from alerts.round import AlertSettings, make_reminders, settle_round, withdraw_members
from alerts.routing import Route
from checks.model import Verdict
from tests.alerts.kit import at, minutes, verdict

HARNESS = AlertSettings((Route(channels=("log", "slack")),))


def test_a_loss_is_an_incident_with_a_letter_for_each_channel() -> None:
    settled = settle_round(HARNESS, (), [verdict("F")], (), at(0))

    (incident,) = settled.changed
    assert incident.state is IncidentState.FIRING
    assert [channel for channel, _ in settled.messages] == ["log", "slack"]
    assert settled.messages[0][1].id == settled.notices[0].fingerprint


def test_a_round_without_news_changes_nothing() -> None:
    settled = settle_round(HARNESS, (), [verdict("P"), verdict("P", check="max_id")], (), at(0))

    assert settled == settle_round(HARNESS, (), (), (), at(0))


def test_trouble_that_never_fired_is_dropped_when_it_passes() -> None:
    harness = AlertSettings((Route(hold=minutes(5)),))
    first = settle_round(harness, (), [verdict("F")], (), at(0))

    second = settle_round(harness, first.changed, [verdict("P")], (), at(1))

    assert second.dropped == first.changed
    assert (second.changed, second.messages) == ((), ())


def test_unknown_for_long_is_told_mildly_and_never_as_a_loss() -> None:
    first = settle_round(HARNESS, (), [verdict("?")], (), at(0))
    second = settle_round(HARNESS, first.changed, [verdict("?")], (), at(20))

    assert first.messages == ()
    assert {message.kind for _, message in second.messages} == {AlertKind.UNKNOWN}
    assert {message.severity for _, message in second.messages} == {"info"}


def test_a_silenced_loss_is_an_incident_without_letters() -> None:
    window = Silence("s", at(0), at(10), "on call", "upgrade")

    settled = settle_round(HARNESS, (), [verdict("F")], [window], at(1))

    assert [incident.state for incident in settled.changed] == [IncidentState.FIRING]
    assert settled.messages == ()


def test_an_incident_that_nothing_watches_any_more_is_closed_and_says_so() -> None:
    standing = settle_round(
        HARNESS, (), [verdict("F"), verdict("F", "shop.users")], (), at(0)
    ).changed

    closed = withdraw_members(HARNESS, standing, [Member("shop.orders", "range_counts")], at(5))

    (incident,) = closed.changed
    assert incident.tables == ("shop.users",)
    assert incident.state is IncidentState.RESOLVED
    assert "no longer watched" in closed.messages[0][1].subject


def test_a_reminder_names_what_was_told_and_is_not_over() -> None:
    told = settle_round(HARNESS, (), [verdict("F")], (), at(0)).changed
    window = Silence("s", at(0), at(10), "on call", "upgrade")
    muted = settle_round(HARNESS, (), [verdict("F", "shop.users")], [window], at(0)).changed
    over = settle_round(HARNESS, told, [verdict("P")], (), at(1)).changed

    letters = make_reminders(HARNESS, [*told, *muted, *over], at(2))

    assert [(channel, message.about) for channel, message in letters] == [
        ("log", "shop.orders"),
        ("slack", "shop.orders"),
    ]


def storm(count: int, letter: str = "F") -> list[Verdict]:
    return [verdict(letter, table=f"shop.t{number}") for number in range(count)]


def test_f123_of_5000_incidents_the_ten_gravest_and_one_summary_are_told() -> None:
    settings = AlertSettings((Route(tables="shop.t7", severity=Severity.CRITICAL),))
    settings = replace(
        settings, routes=(*settings.routes, Route(severity=Severity.WARNING, hold=timedelta(0)))
    )
    first = settle_round(settings, (), storm(5000), (), at(0))

    subjects = [message.subject for _, message in first.messages]
    assert len(subjects) == 11
    assert "shop.t7 " in subjects[0]
    assert "4,990 more incidents are open" in subjects[-1]
    assert len(first.changed) == 5001

    again = settle_round(settings, first.changed, storm(5000), (), at(1))
    assert again.messages == ()

    more = settle_round(settings, first.changed, storm(5000, "P"), (), at(2))
    assert len(more.messages) == 11
    assert {message.event for _, message in more.messages} == {Event.CLEARED}
    assert all(one.state is IncidentState.RESOLVED for one in more.changed)


def test_f123_the_work_of_a_round_grows_with_its_incidents_and_not_with_their_square() -> None:
    """Open losses, late tables, and as many new ones of each."""

    def calls(count: int) -> int:
        verdicts = [*storm(2 * count), *(replace(one, check="lag") for one in storm(2 * count))]
        standing = settle_round(AlertSettings(), (), verdicts[::2], (), at(0)).changed
        profile = Profile()
        profile.runcall(settle_round, AlertSettings(), standing, verdicts, (), at(1))
        return sum(one.callcount for one in profile.getstats())

    assert calls(200) < 2.2 * calls(100)


def test_f123_a_graver_incident_is_not_held_back_by_milder_ones() -> None:
    routes = (
        Route(tables="shop.grave", severity=Severity.CRITICAL, hold=timedelta(0)),
        Route(severity=Severity.WARNING, hold=timedelta(0)),
    )
    first = settle_round(AlertSettings(routes), (), storm(20), (), at(0))
    second = settle_round(
        AlertSettings(routes), first.changed, [verdict("F", table="shop.grave")], (), at(1)
    )

    assert ["shop.grave" in message.subject for _, message in second.messages] == [True]


def test_f123_the_summary_is_told_again_when_its_count_has_doubled() -> None:
    settings = AlertSettings((Route(severity=Severity.WARNING, hold=timedelta(0)),))
    first = settle_round(settings, (), storm(12), (), at(0))
    second = settle_round(settings, first.changed, storm(14), (), at(1))

    one = settle_round(settings, (), storm(11), (), at(0))
    assert "1 more incident is open; run" in one.messages[-1][1].subject
    assert "2 more incidents are open" in first.messages[-1][1].subject
    assert ["4 more" in message.subject for _, message in second.messages] == [True]
