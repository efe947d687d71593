from dataclasses import replace

import pytest

from alerts.causes import find_cause, fold_findings
from alerts.lifecycle import advance_incident
from alerts.model import Acknowledgement, AlertKind, AlertPolicy, Cause, Incident, Member
from checks.model import MOST_NAMED, FailKind, Outcome, RowColumns, Ruling, Verdict
from tests.alerts.kit import at, minutes, verdict
from tests.builders.values import lost_rows

DOWN = "source:shop unreachable"
BEYOND_HELP = ("no_history", "not_yet", "unsupported")


def unknown_verdict(code: str, cause: str = "") -> Verdict:
    """A verdict that knows nothing, for that reason."""
    ruling = Ruling(Outcome.UNKNOWN, "why", code)
    return Verdict("shop.orders", "range_counts", ruling, at(0), cause=cause)


def open_incidents(*verdicts: Verdict) -> list[Incident]:
    """Incidents after one round of *verdicts* that fire at once."""
    steps = [
        advance_incident(None, found, AlertPolicy(), at(0)) for found in fold_findings(verdicts, ())
    ]
    return [incident for incident, _ in steps if incident is not None]


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        pytest.param("lag", AlertKind.LATE, id="a lag is late, not lost"),
        pytest.param("range_counts", AlertKind.LOST, id="a probe that fails is a loss"),
        pytest.param(
            "somebody's own probe", AlertKind.LOST, id="an unlisted check compares both ends"
        ),
        pytest.param("snapshot_again", AlertKind.SUSPECT, id="an odd one is for a person to judge"),
        pytest.param("gap", AlertKind.BLOCKED, id="a gap blocks"),
        pytest.param(
            "channel", AlertKind.SERVICE, id="a channel that takes nothing is ours to mend"
        ),
        pytest.param("job", AlertKind.SERVICE, id="a failing job is the service's own trouble"),
    ],
)
def test_a_failing_check_is_an_alert_of_its_kind(check: str, kind: AlertKind) -> None:
    assert find_cause(verdict("F", check=check)) == Cause(kind, check, "shop.orders")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        pytest.param(FailKind.LOST, AlertKind.LOST, id="a loss"),
        pytest.param(FailKind.SUSPECT, AlertKind.SUSPECT, id="a suspicion"),
    ],
)
def test_f125_a_probe_says_what_its_fail_means(said: FailKind, kind: AlertKind) -> None:
    told = replace(verdict("F", check="few_rows"), kind=said)

    assert find_cause(told) == Cause(kind, "few_rows", "shop.orders")


def test_a_promise_that_a_check_cannot_keep_is_an_incident_of_its_own() -> None:
    behind = Ruling(Outcome.UNKNOWN, "16 ranges take 8 days, and not 7.0 days", "behind")
    late = Verdict("shop.users", "values", behind, at(0), kind=FailKind.LOST)

    (incident,) = open_incidents(late)

    assert incident.cause == Cause(AlertKind.UNKNOWN, "values", "shop.users")


def test_unknown_is_never_blamed_as_a_loss() -> None:
    cause = find_cause(verdict("?"))

    assert cause == Cause(AlertKind.UNKNOWN, "range_counts", "shop.orders")


def test_one_cause_is_one_finding_that_lists_its_tables() -> None:
    tables = [f"shop.t{n}" for n in range(5)]

    (found,) = fold_findings([verdict("?", table, cause=DOWN) for table in tables], ())

    assert found.cause == Cause(AlertKind.UNKNOWN, "", DOWN)
    assert found.outcome is Outcome.FAIL
    assert [member.table for member in found.failing] == tables


def test_a_common_cause_is_over_only_when_every_member_was_seen_good() -> None:
    standing = open_incidents(verdict("F", "a", cause=DOWN), verdict("F", "b", cause=DOWN))

    (half,) = fold_findings([verdict("P", "a")], standing)
    (whole,) = fold_findings([verdict("P", "a"), verdict("P", "b")], standing)

    assert (half.outcome, half.failing) == (Outcome.UNKNOWN, (Member("b", "range_counts"),))
    assert (whole.outcome, whole.failing) == (Outcome.PASS, ())


def test_members_may_recover_in_different_rounds() -> None:
    standing = open_incidents(verdict("F", "a", cause=DOWN), verdict("F", "b", cause=DOWN))
    (half,) = fold_findings([verdict("P", "a")], standing)
    later, _ = advance_incident(standing[0], half, AlertPolicy(), at(1))

    (whole,) = fold_findings([verdict("P", "b")], [later] if later else [])

    assert whole.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("first", "then", "subject", "cause"),
    [
        pytest.param(
            verdict("F"),
            verdict("F", cause="hop:consumer stalled"),
            "shop.orders",
            "hop:consumer stalled",
            id="something else is blamed",
        ),
        pytest.param(
            unknown_verdict("unreachable", "source:shop"),
            unknown_verdict("unreachable", "collector:shop"),
            "source:shop",
            "collector:shop",
            id="it is unknown for another reason",
        ),
    ],
)
def test_another_cause_is_no_evidence_that_the_first_is_over(
    first: Verdict, then: Verdict, subject: str, cause: str
) -> None:
    found = fold_findings([then], open_incidents(first))

    assert {each.cause.subject: each.outcome for each in found} == {
        cause: Outcome.FAIL,
        subject: Outcome.UNKNOWN,
    }


def test_unknown_after_a_fail_leaves_the_loss_standing_and_is_found_on_its_own() -> None:
    standing = open_incidents(verdict("F"))

    found = fold_findings([verdict("?")], standing)

    assert {each.cause.kind: each.outcome for each in found} == {
        AlertKind.LOST: Outcome.UNKNOWN,
        AlertKind.UNKNOWN: Outcome.FAIL,
    }


@pytest.mark.parametrize("letter", ["P", "F"])
def test_any_knowledge_ends_an_unknown(letter: str) -> None:
    standing = open_incidents(verdict("?"))

    found = {each.cause.kind: each.outcome for each in fold_findings([verdict(letter)], standing)}

    assert found[AlertKind.UNKNOWN] is Outcome.PASS


@pytest.mark.parametrize("code", BEYOND_HELP)
def test_not_knowing_what_nobody_can_help_opens_nothing(code: str) -> None:
    assert fold_findings([unknown_verdict(code)], ()) == ()


@pytest.mark.parametrize("code", BEYOND_HELP)
def test_a_silence_is_over_when_the_answer_is_that_there_can_be_none(code: str) -> None:
    standing = open_incidents(unknown_verdict("unreachable", "source:shop"))

    (found,) = fold_findings([unknown_verdict(code)], standing)

    assert (found.cause.kind, found.outcome, found.failing) == (AlertKind.UNKNOWN, Outcome.PASS, ())


@pytest.mark.parametrize("code", BEYOND_HELP)
def test_a_fail_is_not_over_because_nothing_can_be_known(code: str) -> None:
    standing = open_incidents(verdict("F"))

    (found,) = fold_findings([unknown_verdict(code)], standing)

    assert (found.cause.kind, found.outcome) == (AlertKind.LOST, Outcome.UNKNOWN)


def test_a_fail_is_never_beyond_help() -> None:
    ruling = Ruling(Outcome.FAIL, "why", BEYOND_HELP[0])

    cause = find_cause(Verdict("shop.orders", "range_counts", ruling, at(0)))

    assert cause == Cause(AlertKind.LOST, "range_counts", "shop.orders")


def test_unknown_ends_no_incident_that_was_about_to_fire() -> None:
    (found,) = fold_findings([verdict("F")], ())
    pending, _ = advance_incident(None, found, AlertPolicy(hold=minutes(5)), at(0))
    assert pending is not None

    findings = fold_findings([verdict("?")], [pending])

    assert {one.cause.kind: one.outcome for one in findings} == {
        AlertKind.LOST: Outcome.UNKNOWN,
        AlertKind.UNKNOWN: Outcome.FAIL,
    }


def test_unknown_ends_no_incident_that_recovers() -> None:
    (standing,) = open_incidents(verdict("F"))
    (passed,) = fold_findings([verdict("P")], [standing])
    recovering, _ = advance_incident(standing, passed, AlertPolicy(keep=minutes(5)), at(1))
    assert recovering is not None

    findings = fold_findings([verdict("?")], [recovering])

    assert [one.outcome for one in findings if one.cause == standing.cause] == [Outcome.UNKNOWN]


def test_a_finding_quotes_the_first_member_and_names_the_run_that_found_it() -> None:
    """Whatever order the verdicts have: else a message would change from round to round."""
    late = [
        verdict("F", "b", "gap", DOWN, run="2"),
        verdict("F", "a", "gap", DOWN, run="1"),
        replace(
            verdict("F", "c", "gap", DOWN, run="3"),
            ruling=Ruling(Outcome.FAIL, "c", "gap", ("c:1", "c:2")),
        ),
    ]

    (found,) = fold_findings(late, ())

    assert (found.run, found.ruling) == ("1", late[1].ruling)


def test_verdicts_of_others_say_nothing_about_an_incident() -> None:
    standing = open_incidents(verdict("F"))

    assert fold_findings([verdict("P", "shop.users"), verdict("P", check="max_id")], standing) == ()


ROWS = "shop/db.orders:"


@pytest.mark.parametrize(
    ("first", "then", "joins"),
    [
        pytest.param(
            lost_rows("max_id", f"{ROWS}9"),
            lost_rows("range_counts", f"{ROWS}9"),
            True,
            id="one row",
        ),
        pytest.param(
            lost_rows("range_counts", f"{ROWS}5-9"),
            lost_rows("max_id", f"{ROWS}9"),
            True,
            id="one of them",
        ),
        pytest.param(
            lost_rows("max_id", f"{ROWS}9"),
            lost_rows("range_counts", f"{ROWS}8-9"),
            True,
            id="more rows",
        ),
        pytest.param(
            lost_rows("range_counts", f"{ROWS}5-9"),
            lost_rows("values", f"{ROWS}9-12", f"{ROWS}40"),
            True,
            id="some of them, and others",
        ),
        pytest.param(
            lost_rows("max_id", f"{ROWS}9"),
            lost_rows("range_counts", f"{ROWS}9", more=3),
            True,
            id="it is cut off",
        ),
        pytest.param(
            lost_rows("range_counts", f"{ROWS}5-9"),
            lost_rows("values", f"{ROWS}4", f"{ROWS}10-12", more=3),
            False,
            id="rows beside them",
        ),
        pytest.param(
            replace(lost_rows("max_id", f"{ROWS}9"), table="shop.users"),
            lost_rows("range_counts", f"{ROWS}9"),
            False,
            id="another table's",
        ),
        pytest.param(
            lost_rows("max_id", f"{ROWS}9"),
            lost_rows("range_counts", "shop/db.others:9"),
            False,
            id="another shard's",
        ),
    ],
)
def test_f198_one_lost_row_is_one_incident(first: Verdict, then: Verdict, joins: bool) -> None:
    standing = open_incidents(first)

    found = fold_findings([then], standing)

    (blamed,) = [one for one in found if Member("shop.orders", then.check) in one.failing]
    assert (blamed.cause == standing[0].cause) is joins


def test_losses_of_one_round_that_share_a_row_are_one_incident() -> None:
    counts, wrong = lost_rows("range_counts", f"{ROWS}5-7"), lost_rows("max_id", f"{ROWS}90")
    values = lost_rows("values", f"{ROWS}5-7", f"{ROWS}20")

    found = fold_findings([counts, wrong, values], ())

    joined, other = found
    assert (joined.cause.check, joined.ruling.keys) == ("range_counts", values.ruling.keys)
    assert joined.failing == (member("range_counts"), member("values"))
    assert (other.cause.check, other.failing) == ("max_id", (member("max_id"),))


def test_a_loss_joins_one_that_names_its_rows_only_now() -> None:
    standing = open_incidents(lost_rows("values", f"{ROWS}20"))
    grown = lost_rows("values", f"{ROWS}5-7", f"{ROWS}20")

    (found,) = fold_findings([lost_rows("range_counts", f"{ROWS}5-7"), grown], standing)

    assert (found.cause.check, found.ruling.keys) == ("values", grown.ruling.keys)
    assert found.failing == (member("range_counts"), member("values"))


def test_an_open_loss_names_no_rows_of_another_that_was_open_before_it_named_them() -> None:
    """A changed row was named first, and then the lost rows by a check that counts."""
    standing = open_incidents(
        lost_rows("values", f"{ROWS}20"), lost_rows("range_counts", f"{ROWS}5-7")
    )
    changed, counted = standing

    (same,) = fold_findings([lost_rows("values", f"{ROWS}5-7", f"{ROWS}20")], standing)
    (grown,) = fold_findings(
        [lost_rows("values", f"{ROWS}6-8", f"{ROWS}20", f"{ROWS}30", more=2)], standing
    )

    assert (same.cause, same.ruling) == (changed.cause, changed.ruling)
    assert (grown.cause, grown.ruling.keys) == (
        changed.cause,
        (f"{ROWS}8", f"{ROWS}20", f"{ROWS}30"),
    )
    assert grown.ruling.more == 2
    shown = f"{ROWS}8, {ROWS}20, {ROWS}30"
    assert grown.ruling.reason.endswith(f"; of these, other open incidents do not name {shown}")
    assert counted.ruling.keys == (f"{ROWS}5-7",)


@pytest.mark.parametrize(
    ("now", "keys"),
    [
        pytest.param((f"{ROWS}5-7",), (f"{ROWS}5-7",), id="no row of its own is left"),
        pytest.param((f"{ROWS}20-21",), (f"{ROWS}20-21",), id="no row of the other"),
    ],
)
def test_an_open_loss_keeps_what_it_finds_if_that_is_all_its_own_or_none_of_it(
    now: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    standing = open_incidents(
        lost_rows("values", f"{ROWS}20"), lost_rows("range_counts", f"{ROWS}5-7")
    )

    (found,) = fold_findings([lost_rows("values", *now)], standing)

    assert (found.ruling.keys, found.ruling.reason) == (
        keys,
        lost_rows("values", *now).ruling.reason,
    )


def test_rows_that_two_open_losses_have_named_stay_in_both() -> None:
    values, counts = lost_rows("values", f"{ROWS}20"), lost_rows("range_counts", f"{ROWS}5-7")
    standing = [
        replace(one, ruling=replace(one.ruling, keys=(f"{ROWS}5-7", f"{ROWS}20")))
        for one in open_incidents(values, counts)
    ]

    every = (f"{ROWS}5-7", f"{ROWS}20", f"{ROWS}30")

    found = fold_findings([lost_rows("values", *every), counts], standing)

    assert [one.ruling.keys for one in found] == [every, (f"{ROWS}5-7",)]


def test_rows_that_are_not_listed_are_no_less_because_listed_ones_are_left_out() -> None:
    standing = open_incidents(
        lost_rows("values", f"{ROWS}20"), lost_rows("range_counts", f"{ROWS}5-7")
    )
    own = [f"{ROWS}{number}" for number in (20, 30, 40, 50)]

    (cut,) = fold_findings([lost_rows("values", f"{ROWS}5-7", own[0], more=2)], standing)
    (many,) = fold_findings([lost_rows("values", f"{ROWS}5-7", *own)], standing)

    assert (cut.ruling.keys, cut.ruling.more) == ((own[0],), 2)
    assert many.ruling.keys == tuple(own)
    assert many.ruling.reason.endswith(f"do not name {', '.join(own[:3])}, ...")
    assert cut.ruling.reason.endswith(f"do not name {own[0]}")


def test_a_loss_of_another_table_or_kind_takes_no_rows_away() -> None:
    odd = replace(lost_rows("range_counts", f"{ROWS}5-7"), kind=FailKind.SUSPECT)
    elsewhere = replace(lost_rows("range_counts", f"{ROWS}5-7"), table="shop.users")
    standing = open_incidents(lost_rows("values", f"{ROWS}20"), odd, elsewhere)
    grown = lost_rows("values", f"{ROWS}5-7", f"{ROWS}20")

    (found,) = fold_findings([grown], standing)

    assert found.ruling.keys == grown.ruling.keys


def member(check: str) -> Member:
    return Member("shop.orders", check)


def test_a_suspicion_about_rows_of_an_open_loss_stays_a_suspicion() -> None:
    odd = replace(lost_rows("max_id", f"{ROWS}9"), kind=FailKind.SUSPECT)

    found = fold_findings([odd], open_incidents(lost_rows("range_counts", f"{ROWS}9")))

    assert [one.cause.kind for one in found] == [AlertKind.SUSPECT]


def test_a_loss_of_rows_that_were_only_suspect_is_a_loss() -> None:
    standing = open_incidents(replace(lost_rows("range_counts", f"{ROWS}9"), kind=FailKind.SUSPECT))

    found = fold_findings([lost_rows("max_id", f"{ROWS}9")], standing)

    assert [one.cause.kind for one in found] == [AlertKind.LOST]


def test_a_loss_that_has_an_incident_stays_there_when_another_loss_names_its_rows() -> None:
    wide, own = lost_rows("range_counts", f"{ROWS}5-9"), lost_rows("max_id", f"{ROWS}9")

    (found,) = fold_findings([own], [*open_incidents(wide), *open_incidents(own)])

    assert (found.cause.check, found.outcome) == ("max_id", Outcome.FAIL)


def test_a_loss_that_two_checks_found_is_over_only_when_both_pass() -> None:
    standing = told_of(None, lost_rows("range_counts", "s/d.t:1", table="d.t"), minute=0)
    standing = told_of(standing, lost_rows("max_id", "s/d.t:1", table="d.t"), minute=1)

    (half,) = fold_findings([verdict("P", "d.t", "range_counts")], [standing])

    assert (half.outcome, half.failing) == (Outcome.UNKNOWN, (Member("d.t", "max_id"),))


def test_a_loss_that_two_checks_found_counts_the_keys_that_are_not_listed() -> None:
    first = [f"s/d.t:{number}" for number in range(0, 2 * MOST_NAMED, 2)]
    checks = (
        lost_rows("range_counts", *first, table="d.t"),
        lost_rows("max_id", "s/d.t:1", "s/d.t:3", table="d.t"),
    )
    standing = told_of(None, lost_rows("range_counts", "s/d.t:0-9999", table="d.t"), minute=0)

    grown = told_of(standing, *checks, minute=1)
    (found,) = fold_findings(checks, [standing])

    assert grown.members == (Member("d.t", "max_id"), Member("d.t", "range_counts"))
    assert (found.ruling.keys, found.ruling.more) == (tuple(first), 2)


def test_a_loss_that_leaves_rows_to_another_keeps_the_columns_of_its_own_alone() -> None:
    first = lost_rows("range_counts", "s/d.t:1-3", table="d.t")
    own = lost_rows("values", "s/d.t:9", table="d.t")
    wide = replace(
        own,
        ruling=replace(
            own.ruling,
            keys=("s/d.t:2", "s/d.t:9", "s/d.t:11"),
            differing=(
                RowColumns(("a",), ("s/d.t:2", "s/d.t:9")),
                RowColumns(("b",), ("s/d.t:2",)),
            ),
        ),
    )

    (found,) = fold_findings([wide], [*open_incidents(first), *open_incidents(own)])

    assert found.ruling.keys == ("s/d.t:9", "s/d.t:11")
    assert found.ruling.differing == (RowColumns(("a",), ("s/d.t:9",)),)


def test_a_loss_that_two_checks_found_has_the_columns_that_either_of_them_names() -> None:
    counted = lost_rows("range_counts", "s/d.t:1", "s/d.t:3", table="d.t")
    compared = lost_rows("values", "s/d.t:1", table="d.t")
    columns = (RowColumns(("a",), ("s/d.t:1",)),)
    compared = replace(compared, ruling=replace(compared.ruling, differing=columns))
    standing = told_of(None, counted, minute=0)

    later = told_of(standing, counted, compared, minute=1)

    assert (later.ruling.keys, later.ruling.differing) == (counted.ruling.keys, columns)


@pytest.mark.parametrize("check", ["range_counts", "values", "max_id", "offset_keys", "day_counts"])
def test_f198_rows_that_somebody_else_deleted_are_no_incident_of_their_own(check: str) -> None:
    standing = open_incidents(verdict("F", check="foreign_write"))

    found = fold_findings([lost_rows(check, f"{ROWS}9")], standing)
    after = fold_findings([lost_rows(check, f"{ROWS}9")], ())

    assert found == ()
    assert [one.cause.kind for one in after] == [AlertKind.LOST]


@pytest.mark.parametrize("check", ["completeness", "inversions"])
def test_f198_a_loss_on_the_way_does_not_follow_from_a_foreign_write(check: str) -> None:
    found = fold_findings(
        [lost_rows(check, "tx-1")], open_incidents(verdict("F", check="foreign_write"))
    )

    assert [one.cause.check for one in found] == [check]


def test_f198_a_loss_from_before_a_foreign_write_stays() -> None:
    loss = lost_rows("range_counts", f"{ROWS}9")
    standing = [*open_incidents(loss), *open_incidents(verdict("F", check="foreign_write"))]

    (found,) = fold_findings([loss], standing)

    assert (found.cause.check, found.outcome) == ("range_counts", Outcome.FAIL)


def test_f198_a_check_that_knew_nothing_before_a_foreign_write_had_found_no_loss() -> None:
    standing = [*open_incidents(verdict("?")), *open_incidents(verdict("F", check="foreign_write"))]

    found = fold_findings([lost_rows("range_counts", f"{ROWS}9")], standing)

    assert [(one.cause.kind, one.outcome) for one in found] == [(AlertKind.UNKNOWN, Outcome.PASS)]


def test_a_loss_that_grows_by_one_of_its_checks_is_told_again() -> None:
    """The other still names an acknowledged row, and is the first by name."""
    opened = told_of(None, lost_rows("values", "s/d.t:1", "s/d.t:2", table="d.t"), minute=0)
    joined = told_of(opened, lost_rows("range_counts", "s/d.t:1", table="d.t"), minute=1)
    known = replace(joined, acknowledged=Acknowledgement("me", at(2)), unheard=None)

    grown = told_of(
        known,
        lost_rows("range_counts", "s/d.t:1", table="d.t"),
        lost_rows("values", "s/d.t:1-2", "s/d.t:50-900", table="d.t"),
        minute=3,
    )

    assert grown.ruling.keys == ("s/d.t:1-2", "s/d.t:50-900")
    assert (grown.acknowledged, grown.worse) == (None, at(3))


def test_a_check_that_fails_in_an_incident_stays_in_it_with_other_rows() -> None:
    opened = told_of(None, lost_rows("range_counts", "s/d.t:9", table="d.t"), minute=0)
    joined = told_of(
        opened,
        lost_rows("range_counts", "s/d.t:9", table="d.t"),
        lost_rows("values", "s/d.t:9", "s/d.t:77", table="d.t"),
        minute=1,
    )
    passed = verdict("P", check="range_counts", table="d.t")

    later = told_of(joined, passed, lost_rows("values", "s/d.t:88", table="d.t"), minute=2)

    assert (later.id, later.ruling.keys) == (joined.id, ("s/d.t:88",))
    assert later.worse == at(2)


def told_of(incident: Incident | None, *verdicts: Verdict, minute: float) -> Incident:
    """The one incident after a round."""
    (found,) = fold_findings(verdicts, [incident] if incident else [])
    after, _ = advance_incident(incident, found, AlertPolicy(), at(minute))
    assert after is not None
    return after
