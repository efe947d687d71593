"""F33: one cause is one incident; what follows from it is shown and opens nothing."""

from collections.abc import Iterable, Sequence

import pytest

from alerts.causes import fold_findings
from alerts.model import AlertKind, Incident, Member
from alerts.round import AlertSettings, settle_round, withdraw_members
from alerts.routing import Route
from checks.model import Outcome, Ruling, Verdict
from tests.alerts.kit import at, minutes, verdict

SILENT = "source:shop"
AT_ONCE = AlertSettings((Route(hold=minutes(0), keep=minutes(0)),))
PROBES = ("range_counts", "max_id", "offset_keys", "completeness")


def run_rounds(
    *told: Iterable[Verdict], starting: Sequence[str] = ()
) -> tuple[list[Incident], int]:
    """Open incidents after these rounds, a minute apart, and how many notices were sent."""
    standing: dict[str, Incident] = {}
    notices = 0
    for minute, verdicts in enumerate(told):
        found = settle_round(
            AT_ONCE, list(standing.values()), list(verdicts), (), at(minute), starting=starting
        )
        notices += len(found.notices)
        for incident in found.dropped:
            standing.pop(incident.id)
        for incident in found.changed:
            standing[incident.id] = incident
            if incident.state == "resolved":
                del standing[incident.id]
    return list(standing.values()), notices


def kinds(incidents: Iterable[Incident]) -> list[tuple[str, str, str]]:
    return sorted((one.cause.kind.value, one.cause.check, one.cause.subject) for one in incidents)


def unknown(table: str, check: str, code: str = "not_reached", cause: str = "") -> Verdict:
    return Verdict(table, check, Ruling(Outcome.UNKNOWN, "why", code), at(0), cause=cause)


def suffering(table: str) -> list[Verdict]:
    """What a held table's round looks like."""
    probes = [unknown(table, probe) for probe in PROBES]
    return [verdict("F", table, "hold"), verdict("F", table, "lag"), *probes]


def test_f33_a_held_table_is_one_incident() -> None:
    found, notices = run_rounds(suffering("shop.orders"), suffering("shop.orders"))

    assert kinds(found) == [("blocked", "hold", "shop.orders")]
    assert notices == 1


def test_f33_a_probe_that_speaks_in_a_round_of_its_own_finds_its_table_held() -> None:
    found, _ = run_rounds([verdict("F", check="hold")], [unknown("shop.orders", "max_id")])

    assert kinds(found) == [("blocked", "hold", "shop.orders")]


def test_f33_a_thousand_tables_of_a_silent_source_are_one_incident_that_lists_them() -> None:
    tables = [f"shop.t{number}" for number in range(1000)]
    down = [verdict("F", name, "service", cause=SILENT) for name in (SILENT, *tables)]
    silent = [unknown(name, "max_id", "unreachable", SILENT) for name in tables]

    found, notices = run_rounds(down, silent, down, silent)

    assert kinds(found) == [("service", "", SILENT)]
    assert set(found[0].tables) == {SILENT, *tables}
    assert notices == 1


def test_f33_a_thousand_tables_that_one_source_makes_late_are_one_incident() -> None:
    late = [verdict("F", f"shop.t{number}", "lag", cause=SILENT) for number in range(1000)]

    found, notices = run_rounds(late, late)

    assert kinds(found) == [("late", "", SILENT)]
    assert notices == 1


def test_f33_lateness_that_moves_down_the_way_stays_one_incident() -> None:
    source, own = verdict("F", check="lag", cause=SILENT), verdict("F", check="lag")

    found, _ = run_rounds([source], [own], [source])
    over, _ = run_rounds([source], [own], [verdict("P", check="lag")])

    assert kinds(found) == [("late", "", SILENT)]
    assert over == []


def test_f33_lateness_for_which_an_open_cause_is_blamed_belongs_to_that_one() -> None:
    source, own = verdict("F", check="lag", cause=SILENT), verdict("F", check="lag")
    both = [*open_late(source), *open_late(own)]

    (found,) = (one for one in fold_findings([own], both) if one.outcome is Outcome.FAIL)

    assert found.cause == both[1].cause


def test_f33_a_table_does_not_join_the_lateness_of_another() -> None:
    found, _ = run_rounds([verdict("F", "a", "lag")], [verdict("F", "b", "lag")])

    assert kinds(found) == [("late", "lag", "a"), ("late", "lag", "b")]


def test_f33_a_lag_that_becomes_known_is_late_and_one_that_is_known_no_more_is_unknown() -> None:
    late, silent = verdict("F", check="lag"), verdict("?", check="lag")

    known, _ = run_rounds([silent], [late])
    lost, _ = run_rounds([late], [silent])

    assert kinds(known) == [("late", "lag", "shop.orders")]
    assert kinds(lost) == [("late", "lag", "shop.orders"), ("unknown", "lag", "shop.orders")]


def open_late(*verdicts: Verdict) -> tuple[Incident, ...]:
    return settle_round(AT_ONCE, [], list(verdicts), (), at(0)).changed


@pytest.mark.parametrize("together", [True, False], ids=["in the same round", "in a later round"])
def test_f33_what_a_part_that_fails_leaves_unknown_follows_from_it(together: bool) -> None:
    """Also of a table that the part's own incident does not list."""
    down, silent = verdict("F", SILENT, "service", SILENT), unknown("a", "max_id", cause=SILENT)

    found, _ = run_rounds([down, silent]) if together else run_rounds([down], [silent])

    assert kinds(found) == [("service", "", SILENT)]


def test_f33_a_part_that_works_is_blamed_no_more_though_not_each_table_has_spoken() -> None:
    down = [verdict("F", name, "service", cause=SILENT) for name in (SILENT, "a", "b")]

    found, _ = run_rounds(down, [verdict("P", SILENT, "service"), verdict("P", "a", "service")])

    assert found == []


def test_f33_what_one_waits_for_the_first_time_opens_nothing() -> None:
    fresh = [unknown("shop.orders", name, "lag_unknown") for name in ("lag", *PROBES)]

    found, _ = run_rounds(fresh, fresh, starting=("shop.orders",))
    later, _ = run_rounds(fresh, fresh)

    assert found == []
    assert len(later) == 1 + len(PROBES)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param("range_counts", id="a loss"),
        pytest.param("gap", id="a gap"),
        pytest.param("volatility", id="a suspicion"),
        pytest.param("headroom", id="a loss that is near"),
    ],
)
@pytest.mark.parametrize("cause", ["", SILENT], ids=["a held table", "a silent source"])
def test_f33_a_loss_is_never_swallowed_by_another_cause(check: str, cause: str) -> None:
    still = verdict("F", check="service" if cause else "hold", cause=cause)

    found, notices = run_rounds([still], [still, verdict("F", check=check)])

    assert check in {one.cause.check for one in found}
    assert (len(found), notices) == (2, 2)


def test_f33_a_loss_is_told_while_its_table_is_read_for_the_first_time() -> None:
    found, _ = run_rounds([verdict("F")], starting=("shop.orders",))

    assert [one.cause.kind for one in found] == [AlertKind.LOST]


def test_f33_a_loss_that_was_told_stays_when_its_table_is_held_and_nothing_can_be_known() -> None:
    found, _ = run_rounds([verdict("F")], [verdict("F", check="hold")], [unknown(*found_by())])

    assert [one.cause.kind for one in found] == [AlertKind.LOST, AlertKind.BLOCKED]


def found_by() -> tuple[str, str]:
    return "shop.orders", "range_counts"


def test_f33_what_is_not_known_of_a_table_that_is_now_held_ends_and_its_lateness_rests() -> None:
    before = [unknown("shop.orders", "max_id"), verdict("F", check="lag")]

    found, notices = run_rounds(before, suffering("shop.orders"), suffering("shop.orders"))

    assert kinds(found) == [("blocked", "hold", "shop.orders"), ("late", "lag", "shop.orders")]
    assert notices == 4  # two began, the hold, the end of not knowing


def test_f33_a_lateness_nobody_was_told_of_goes_with_the_hold_that_explains_it() -> None:
    patient = AlertSettings((Route(checks=("lag",), hold=minutes(5)), Route(hold=minutes(0))))
    (late,) = settle_round(patient, [], [verdict("F", check="lag")], (), at(0)).changed
    held = [verdict("F", check="hold"), verdict("F", check="lag")]

    found = settle_round(patient, [late], held, (), at(1))

    assert [one.cause.check for one in found.changed] == ["hold"]
    assert found.dropped == (late,)


def test_f33_what_is_late_after_the_hold_is_late_again() -> None:
    free = [verdict("P", check="hold"), verdict("F", check="lag")]

    found, _ = run_rounds(suffering("shop.orders"), free, free)

    assert kinds(found) == [("late", "lag", "shop.orders")]


def test_f33_a_part_that_works_is_blamed_no_more_though_another_ails() -> None:
    down = [verdict("F", name, "service", cause=SILENT) for name in (SILENT, "a", "b")]
    other = "collector:shop"
    after = [
        verdict("P", SILENT, "service"),
        *(verdict("F", name, "service", cause=other) for name in (other, "a", "b")),
    ]

    found, _ = run_rounds(down, after)

    assert kinds(found) == [("service", "", other)]


def test_f33_a_table_that_is_dropped_meanwhile_keeps_no_incident_open() -> None:
    down = [verdict("F", name, cause="hop down") for name in ("a", "b")]
    (standing,), _ = run_rounds(down)
    watched = [Member("a", "range_counts")]

    left = withdraw_members(AT_ONCE, [standing], watched, at(1)).changed[0]
    found = settle_round(AT_ONCE, [left], [verdict("P", "a")], (), at(2))

    assert left.failing == tuple(watched)
    assert [one.state.value for one in found.changed] == ["resolved"]
