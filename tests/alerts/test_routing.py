import pytest

from alerts.model import AlertKind, AlertPolicy, Cause, CauseFinding, Member, Severity, Silence
from alerts.routing import DEFAULTS, Route, alert_policy
from checks.model import Outcome, Ruling
from tests.alerts.kit import ORDERS, at, finding, minutes

ROUTES = (
    Route(tables="shop.pay*", severity=Severity.CRITICAL, channels=("pager",)),
    Route(tables="shop.*", owner="shop team"),
    Route(kinds=(AlertKind.UNKNOWN,), channels=()),
    Route(checks=("range_*",), hold=minutes(7)),
    Route(owner="data platform", channels=("log", "slack")),
)


def folded_finding(*tables: str) -> CauseFinding:
    members = tuple(Member(table, "lag") for table in tables)
    cause = Cause(AlertKind.LATE, "", "hop:merge stalled")
    return CauseFinding(cause, Outcome.FAIL, Ruling(Outcome.FAIL, "stalled"), members)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param("shop.payments", ("shop team", ("pager",)), id="each field on its own"),
        pytest.param("shop.users", ("shop team", ("log", "slack")), id="falls through"),
        pytest.param("crm.users", ("data platform", ("log", "slack")), id="the catch-all"),
    ],
)
def test_the_first_route_that_states_a_field_decides_it(
    table: str, expected: tuple[str, tuple[str, ...]]
) -> None:
    decided = alert_policy(ROUTES, folded_finding(table))

    assert (decided.owner, decided.channels) == expected


def test_a_route_may_be_for_some_checks_only() -> None:
    assert alert_policy(ROUTES, finding("F")).hold == minutes(7)
    assert alert_policy(ROUTES, folded_finding("shop.users")).hold == DEFAULTS[AlertKind.LATE].hold


def test_an_empty_list_of_channels_tells_nobody() -> None:
    assert alert_policy(ROUTES, finding("F", kind=AlertKind.UNKNOWN)).channels == ()


def test_without_routes_everything_is_logged_by_its_kind() -> None:
    decided = alert_policy((), finding("F"))

    assert decided.channels == ("log",)
    assert decided.severity is Severity.CRITICAL
    assert decided.hold == DEFAULTS[AlertKind.LOST].hold


def test_a_common_cause_takes_the_gravest_and_tells_every_owner() -> None:
    decided = alert_policy(ROUTES, folded_finding("crm.users", "shop.payments", "shop.users"))

    assert decided.severity is Severity.CRITICAL
    assert decided.owner == "data platform, shop team"
    assert decided.channels == ("log", "slack", "pager")


def test_unknown_is_never_grave_by_default() -> None:
    assert DEFAULTS[AlertKind.UNKNOWN].severity is Severity.INFO
    assert DEFAULTS[AlertKind.UNKNOWN].hold >= minutes(10)


@pytest.mark.parametrize(
    ("silence", "minute", "muted"),
    [
        pytest.param(("shop.*", "*"), 5, True, id="inside"),
        pytest.param(("shop.*", "*"), 0, False, id="a window to come"),
        pytest.param(("shop.*", "*"), 10, False, id="its end is not in it"),
        pytest.param(("crm.*", "*"), 5, False, id="of other tables"),
        pytest.param(("*", "max_id"), 5, False, id="of other checks"),
    ],
)
def test_a_silence_covers_what_matches_while_it_lasts(
    silence: tuple[str, str], minute: int, muted: bool
) -> None:
    tables, checks = silence
    window = Silence("s1", at(1), at(10), "on call", "upgrade", tables, checks)

    decided: AlertPolicy = alert_policy((), finding("F", ORDERS), [window], at(minute))

    assert decided.muted is muted


def test_a_common_cause_is_silent_only_if_every_table_is() -> None:
    window = Silence("s1", at(0), at(10), "on call", "upgrade", "shop.*")

    assert alert_policy((), folded_finding("shop.a", "shop.b"), [window], at(1)).muted
    assert not alert_policy((), folded_finding("shop.a", "crm.b"), [window], at(1)).muted


@pytest.mark.parametrize(
    ("routes", "told"),
    [
        pytest.param((Route(channels=("slack", "log")),), ("log",), id="the others of the route"),
        pytest.param(
            (Route(tables="shop.*", channels=("hook",)), Route(channels=("slack",))),
            ("hook",),
            id="it alone, so any other",
        ),
        pytest.param((Route(channels=("slack",)),), ("log",), id="it alone and no other: the log"),
        pytest.param((Route(channels=()),), (), id="nobody, as wanted"),
        pytest.param((Route(channels=("hook",)),), ("hook",), id="not concerned"),
    ],
)
def test_who_is_not_reached_is_told_another_way(
    routes: tuple[Route, ...], told: tuple[str, ...]
) -> None:
    ailing = finding("F", Member("channel:slack", "channel"), AlertKind.SERVICE)

    assert alert_policy(routes, ailing).channels == told
