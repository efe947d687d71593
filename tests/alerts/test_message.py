from dataclasses import replace

import pytest

from alerts.message import compose_message, hide_text_keys
from alerts.model import AlertKind, Cause, Event, Incident, Member, Notice
from checks.model import Outcome, Ruling
from tests.alerts.kit import at, firing


def folded_incident(count: int) -> Incident:
    members = tuple(Member(f"shop.t{n:03}", "lag") for n in range(count))
    return replace(
        firing(),
        cause=Cause(AlertKind.LATE, "", "hop:consumer stalled"),
        members=members,
        failing=members,
        ruling=Ruling(Outcome.FAIL, "no batch for 300 s"),
    )


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (Event.FIRED, "LOST shop.orders range_counts: 2 rows short in ids [100, 120)"),
        (Event.REPEATED, "still LOST shop.orders range_counts: 2 rows short in ids [100, 120)"),
        (Event.CLEARED, "resolved: LOST shop.orders range_counts: 2 rows short in ids [100, 120)"),
    ],
)
def test_the_subject_names_table_check_and_range(event: Event, subject: str) -> None:
    assert compose_message(Notice(event, firing(), at(3))).subject == subject


def test_the_body_says_what_since_when_who_and_what_now() -> None:
    incident = replace(
        firing(),
        ruling=Ruling(Outcome.FAIL, "foreign commit at version 17", "foreign_write", ("[1, 2)",)),
    )

    message = compose_message(
        Notice(Event.FIRED, incident, at(3)), "https://docs.example.org/runbooks/"
    )

    for line in (
        "what: foreign commit at version 17",
        "keys: [1, 2)",
        "since: 2026-03-01 00:00:00 UTC",
        "owner: data-platform",
        "what now: https://docs.example.org/runbooks/lost.md#range_counts",
    ):
        assert line in message.body.splitlines()
    assert message.ended is None


def test_the_body_shows_some_keys_counts_the_others_and_says_where_they_are_listed() -> None:
    keys = tuple(f"shop/d.t:{number}" for number in range(0, 50, 2))
    incident = replace(firing(), ruling=Ruling(Outcome.FAIL, "why", "missing_rows", keys))

    body = compose_message(Notice(Event.FIRED, incident, at(3))).body

    (told,) = [line for line in body.splitlines() if line.startswith("keys: ")]
    shown, rest = told.removeprefix("keys: ").split(" and ")
    assert shown.split(", ") == [*keys[:20]]
    assert rest == f"5 more; run `sluice status --incident {incident.id}` to list all"


def test_what_is_over_says_until_when() -> None:
    message = compose_message(Notice(Event.CLEARED, firing(), at(3)))

    assert "until: 2026-03-01 00:03:00 UTC" in message.body.splitlines()
    assert message.ended == at(3)


def test_a_common_cause_lists_its_tables_up_to_a_bound() -> None:
    message = compose_message(Notice(Event.FIRED, folded_incident(60), at(0)))

    assert message.subject == "LATE 60 tables: hop:consumer stalled: no batch for 300 s"
    assert message.runbook == "docs/runbooks/late.md#lag"
    assert "shop.t000, shop.t001" in message.body
    assert "shop.t049 and 10 more" in message.body
    assert "shop.t050" not in message.body


def test_few_tables_are_named_in_the_subject() -> None:
    assert (
        "shop.t000, shop.t001:"
        in compose_message(Notice(Event.FIRED, folded_incident(2), at(0))).subject
    )


@pytest.mark.parametrize("reason", ["x" * 5000, "two\nlines\tand tabs"])
def test_the_subject_is_one_line_of_bounded_length(reason: str) -> None:
    incident = replace(firing(), ruling=Ruling(Outcome.FAIL, reason))

    subject = compose_message(Notice(Event.FIRED, incident, at(0))).subject

    assert len(subject) <= 200
    assert subject.isprintable()


def test_every_kind_has_words_and_a_page() -> None:
    for kind in AlertKind:
        message = compose_message(Notice(Event.FIRED, firing(kind=kind), at(0)))

        assert message.runbook.startswith(f"docs/runbooks/{kind}.md")
        assert "meaning: " in message.body


@pytest.mark.parametrize(
    ("check", "fix"),
    [
        pytest.param("range_counts", "repair the rows", id="rows that it names"),
        pytest.param("ledger", "take a new base", id="rows that are only counted"),
        pytest.param("copy_ledger", "load the copy again", id="rows of a copy"),
    ],
)
def test_the_meaning_of_a_loss_says_what_ends_it(check: str, fix: str) -> None:
    incident = replace(firing(), cause=Cause(AlertKind.LOST, check, "shop.orders"))

    body = compose_message(Notice(Event.FIRED, incident, at(3))).body

    (meaning,) = [line for line in body.splitlines() if line.startswith("meaning: ")]
    assert meaning.endswith(f"; {fix}")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("missing_rows", "LOST"),
        ("doubled_rows", "LOST"),
        ("mirror_short", "LOST"),
        ("extra_rows", "EXTRA"),
        ("extra_events", "EXTRA"),
        ("mirror_ahead", "EXTRA"),
    ],
)
def test_f194_what_only_the_lake_has_is_not_called_lost(code: str, word: str) -> None:
    incident = firing()
    one = replace(incident, ruling=replace(incident.ruling, code=code))

    assert compose_message(Notice(Event.FIRED, one, at(3))).subject.startswith(
        f"{word} shop.orders "
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param('t:0:5 ["ann@example.org"]', 't:0:5 ["…"]', id="an address"),
        pytest.param(
            'key ["shop","a.b",7,"x]y\\"z"] twice', 'key ["…", "…", 7, "…"] twice', id="odd"
        ),
        pytest.param("ids [100, 120)", "ids [100, 120)", id="a range"),
        pytest.param("keys [1, 2], [3]", "keys [1, 2], [3]", id="numbers"),
        pytest.param("a [bold] word", "a [bold] word", id="no key"),
        pytest.param('["open', '["open', id="cut off"),
    ],
)
def test_f37_texts_in_keys_are_hidden_and_nothing_else(text: str, told: str) -> None:
    assert hide_text_keys(text) == told


@pytest.mark.parametrize(
    ("key", "parts", "told"),
    [
        pytest.param('["s","s.t","7","-8"]', (True, True), '["s", "s.t", "7", "-8"]', id="numbers"),
        pytest.param('["7","8"]', (True, True), '["7", "8"]', id="unique across shards"),
        pytest.param('["s","s.t","7","8"]', (True, False), '["s", "s.t", "7", "…"]', id="a text"),
        pytest.param('["s","s.t","a@b"]', (False,), '["s", "s.t", "…"]', id="an address"),
        pytest.param('["s","s.t","a@b"]', (True,), '["s", "s.t", "…"]', id="no integer"),
        pytest.param('["s","s.t",null,"8"]', (True, True), '["s", "s.t", null, "8"]', id="null"),
        pytest.param('["s","s.t","7","8"]', (), '["…", "…", "…", "…"]', id="types not known"),
        pytest.param('["s","7","8"]', (True, True), '["…", "…", "…"]', id="another length"),
    ],
)
def test_source_shard_and_integers_of_a_key_are_shown(
    key: str, parts: tuple[bool, ...], told: str
) -> None:
    reason = f'1 row differs: {key}, not ["7"]'
    ruling = Ruling(Outcome.FAIL, reason, "x", (key,), integer_parts=parts)

    message = compose_message(Notice(Event.FIRED, replace(firing(), ruling=ruling), at(0)))

    assert f'1 row differs: {told}, not ["…"]' in message.body
    assert f"keys: {told}" in message.body


@pytest.mark.parametrize("shown", [False, True])
def test_f37_an_alert_names_no_address_unless_it_may(*, shown: bool) -> None:
    key = 'shop.users:0:5 ["ann@example.org"]'
    lost = replace(firing(), ruling=Ruling(Outcome.FAIL, f"1 keys missing: {key}", "x", (key,)))

    told = compose_message(Notice(Event.FIRED, lost, at(0)), text_keys=shown)

    assert ("ann@example.org" in told.subject, "ann@example.org" in told.body) == (shown, shown)
    assert "shop.users:0:5" in told.subject
