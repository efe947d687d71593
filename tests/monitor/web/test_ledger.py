"""The ledger of a table over HTTP: which minute and hop miss rows, and which are unknown."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from checks.ledger import EVENTS, LedgerEntry
from checks.model import Outcome, Ruling, Verdict
from monitor.commands.ledger import COMMAND
from pipeline.copies.copy import CopiedVersion
from pipeline.minute_counts import MINUTES
from pipeline.model import Account, Hop
from pipeline.reports import LandingReport, MergeReport, TopicCounts
from tests.monitor.rig import ORDERS, USERS, Rig
from tests.monitor.serving import serving

NO_TIME = timedelta()
MINUTE = timedelta(minutes=1)


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """A service that knows where its copies are, as each does."""
    rig.store.ledger.know_copies({"cache": "redis://cache:6379/0"})
    return rig


@pytest.fixture
def counted(rig: Rig) -> Rig:
    """Three minutes of ORDERS: one balances, one misses a row, the newest waits for its merge."""
    rig.round()
    first, second, third = (str(minute(rig, ago)) for ago in (3, 2, 1))
    landed = [
        {first: {"c": 2}, second: {"c": 1, "d": 1}},
        {third: {"u": 4}},
    ]
    for batch, counts in enumerate(landed):
        report = LandingReport("main", batch, 1, rig.now, NO_TIME, minutes={ORDERS: counts})
        rig.store.ledger.add_landing(report)
    read = {first: {"c": 2}, second: {"c": 1}}
    explained = {first: {"applied": 1, "superseded": 1}, second: {"applied": 1}}
    account = Account(read=3, applied=2, superseded=1, minutes=read, explained=explained)
    merged = MergeReport(ORDERS, 0, 1, account, rig.now, NO_TIME, since=-1)
    rig.store.ledger.add_merges("main", [merged], rig.now)
    rig.round()
    return rig


def minute(rig: Rig, ago: int) -> int:
    return int((rig.now - ago * MINUTE).timestamp()) // 60


def ask(rig: Rig, **asked: Any) -> dict[str, Any]:
    answer = rig.client.get(f"/v1/tables/{ORDERS}/ledger", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_each_minute_says_what_is_missing_and_what_became_of_the_rest(counted: Rig) -> None:
    *_, merge = ask(counted)["hops"]

    assert (merge["hop"], merge["residual"]) == ("merge", 1)
    assert [(one["state"], one["residual"]) for one in merge["minutes"]] == [
        ("balanced", 0),
        ("residual", 1),
        ("in_flight", None),
    ]
    balanced, lost, flying = merge["minutes"]
    assert balanced["explained"] == {"applied": 1, "superseded": 1}
    assert lost["missing"] == {"d": 1}
    assert flying["in_flight"] == {"u": 4}


def test_a_span_holds_the_minutes_that_begin_in_it(counted: Rig) -> None:
    start = (counted.now - 2 * MINUTE).replace(second=0, microsecond=0)
    span = {"from": start.isoformat(), "to": (start + MINUTE).isoformat()}

    *_, merge = ask(counted, **span)["hops"]

    assert [one["state"] for one in merge["minutes"]] == ["residual"]


def test_a_table_without_kept_minutes_has_no_residual(counted: Rig) -> None:
    *_, merge = counted.client.get(f"/v1/tables/{USERS}/ledger").json()["hops"]

    assert (merge["residual"], merge["minutes"]) == (0, [])


@pytest.mark.parametrize(
    ("outcome", "code", "status"),
    [
        pytest.param(Outcome.UNKNOWN, "over_time", 3, id="not ended"),
        pytest.param(Outcome.UNKNOWN, "unsupported", 0, id="never by this source"),
        pytest.param(Outcome.PASS, "", 0, id="counted"),
    ],
)
def test_the_command_exits_3_for_a_hop_that_was_not_counted(
    address: str, counted: Rig, outcome: Outcome, code: str, status: int
) -> None:
    before = run(address, USERS)[0]
    counted.say(USERS, Ruling(outcome, "it says so", code), "completeness")
    counted.round()

    assert (before, run(address, USERS)[0]) == (3, status)


def test_the_command_exits_3_for_a_table_of_which_nothing_is_merged(rig: Rig) -> None:
    rig.write_heartbeat()
    rig.land()
    rig.set_checkpoint(bases={})
    rig.watch()
    rig.say(USERS, Ruling(Outcome.PASS, "fine"), "completeness")
    rig.watch()

    with serving(rig.api()) as found:
        status, said = run(found, USERS)

    assert (status, said.count("residual of all kept minutes: unknown")) == (3, 2)
    assert said.count("not counted: no row is merged yet") == 2


@pytest.mark.parametrize(
    ("span", "status"),
    [
        pytest.param(
            {"from": "2026-03-01T00:00:00Z", "to": "2026-03-03T00:00:00Z"}, 400, id="long"
        ),
        pytest.param(
            {"from": "2026-03-03T00:00:00Z", "to": "2026-03-03T00:00:00Z"}, 400, id="none"
        ),
        pytest.param({"from": "yesterday"}, 400, id="no instant"),
        pytest.param({"to": "0001-01-01T00:00:00Z"}, 400, id="nothing before it"),
        pytest.param({"from": "0001-01-01", "to": "0001-01-02"}, 400, id="first day"),
        pytest.param({"from": "2026-02-30"}, 400, id="no such day"),
        pytest.param({"from": "0001-01-01T00:00:00Z", "to": "0001-01-01T01:00:00Z"}, 200, id="1"),
        pytest.param({"to": "9999-12-31T23:59:59.999Z"}, 200, id="9999"),
        pytest.param({"from": "9999-12-31", "to": "9999-12-31T12:00:00Z"}, 200, id="last day"),
    ],
)
def test_a_span_that_cannot_be_is_refused(counted: Rig, span: dict[str, str], status: int) -> None:
    page = counted.client.get("/ledger", params={"table": ORDERS, **span})
    answer = counted.client.get(f"/v1/tables/{ORDERS}/ledger", params=span)

    assert (answer.status_code, page.status_code) == (status, status)
    if status != 200:
        assert "give" in answer.text
        assert "cut" not in answer.text


@pytest.mark.parametrize("name", ["from", "to"])
def test_an_error_names_the_parameter_that_is_wrong(counted: Rig, name: str) -> None:
    span = {"from": "2026-03-28T00:00:00Z", "to": "2026-03-28T01:00:00Z", name: "2026-03-28T9"}

    answer = counted.client.get(f"/v1/tables/{ORDERS}/ledger", params=span)

    assert f"{name} '2026-03-28T9': give an instant with its offset" in answer.text


@pytest.mark.parametrize(
    ("first", "last", "since", "until"),
    [
        ("2026-03-27", "2026-03-28", "2026-03-26T23:00:00+00:00", "2026-03-27T23:00:00+00:00"),
        ("2026-03-29", "2026-03-30", "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00"),
        ("2026-10-25", "2026-10-26", "2026-10-24T22:00:00+00:00", "2026-10-25T23:00:00+00:00"),
    ],
)
def test_a_date_is_its_first_instant_in_the_zone(
    counted: Rig, first: str, last: str, since: str, until: str
) -> None:
    found = ask(counted, **{"from": first, "to": last})

    assert (found["since"], found["until"]) == (since, until)


def test_a_source_that_counts_nothing_is_never_shown_as_balanced(counted: Rig) -> None:
    def note() -> tuple[object, ...]:
        collection, *_ = ask(counted)["hops"]
        page = counted.client.get("/ledger", params={"table": ORDERS}).text
        assert collection["note"] in page
        return collection["hop"], collection["residual"], collection["minutes"], collection["note"]

    off = "not counted: completeness has not ruled, or is off"
    assert note() == ("collection", None, [], off)

    counted.say(ORDERS, Ruling(Outcome.UNKNOWN, "it names none", "unsupported"), "completeness")
    counted.round()
    assert note() == ("collection", None, [], "not counted by this source: it names none")


def test_what_transactions_announced_and_did_not_land_is_named_by_minute(counted: Rig) -> None:
    at, number = counted.now, minute(counted, 2)
    found = LedgerEntry(number, {EVENTS: 5}, {EVENTS: 4}, batch=3, found=at)
    failed = Ruling(Outcome.FAIL, "1 transactions", "missing_events", ("a",))
    verdict = Verdict(ORDERS, "completeness", failed, at, counted=(found,))
    counted.recorder.tell([verdict])
    counted.round()

    collection, *_ = ask(counted)["hops"]
    (lost,) = collection["minutes"]
    assert (collection["residual"], lost["state"], lost["missing"]) == (1, "residual", {EVENTS: 1})
    paging = counted.store.ledger.losses()[ORDERS]
    assert ({one.hop for one in paging.residuals}, paging.more) == ({Hop.MERGE}, 0)

    counted.recorder.tell([verdict])  # counted again after a restart
    passed = replace(verdict, ruling=Ruling(Outcome.PASS, "2 transactions complete"), counted=())
    counted.round()
    counted.recorder.tell([passed])
    counted.round()

    collection, *_ = ask(counted)["hops"]
    (good,) = collection["minutes"]
    assert (collection["residual"], good["state"], good["proof"]) == (
        *(0, "made_good"),
        "completeness passes",
    )
    assert good["went_in"] == {EVENTS: 5}


def test_an_unknown_table_is_refused(counted: Rig) -> None:
    assert counted.client.get("/v1/tables/shop.order/ledger").status_code == 404


def test_the_metric_has_the_rows_of_residuals_and_nothing_while_they_are_unknown(
    counted: Rig,
) -> None:
    name = f'sluice_ledger_residual_rows{{table="{ORDERS}",hop="merge"}}'
    assert f"{name} 1.0" in counted.client.get("/metrics").text

    lost = LandingReport("main", 5, 1, counted.now, NO_TIME, minutes={USERS: {"7": {"c": 1}}})
    counted.store.ledger.add_landing(lost)
    account = Account(minutes={"7": {"c": 1}})
    merged = MergeReport(USERS, 5, 1, account, counted.now, NO_TIME, since=-1)
    counted.store.ledger.add_merges("main", [merged], counted.now)
    counted.round()

    assert (
        f'sluice_ledger_residual_rows{{table="{USERS}"' not in counted.client.get("/metrics").text
    )


def test_the_page_has_a_cell_for_each_minute_and_a_line_for_each_that_does_not_balance(
    counted: Rig,
) -> None:
    page = counted.client.get("/ledger", params={"table": ORDERS}).text

    assert re.findall(r'<g data-state="(\w+)">', page) == ["balanced", "residual", "in_flight"]
    (line,) = re.findall(r"<tr data-minute.*</tr>", page)
    assert re.findall(r"<td>(.*?)</td>", line)[1:] == [
        *("merge", "residual", "1 c, 1 d", "1 c", "1 d", "1 applied", ""),
    ]


def test_a_residual_that_is_older_than_the_minutes_shown_is_named_with_its_time(
    counted: Rig,
) -> None:
    number = minute(counted, 2)
    start = datetime.fromtimestamp(number * 60, UTC)
    later = {"from": (start + MINUTE).isoformat(), "to": counted.now.isoformat()}

    page = counted.client.get("/ledger", params={"table": ORDERS, **later}).text
    merge = ask(counted, **later)["hops"][-1]

    assert "No minute shown has a residual, and none is unknown." in page
    (query, text) = re.findall(r'href="ledger\?(.*?)">merge</a>: in all (.*?)\.</p>', page)[0]
    when = f"{start:%Y-%m-%d %H:%M:%S} UTC"
    assert text == f"1 row, of {when} to {when}"
    assert (merge["oldest"], merge["newest"]) == (start.isoformat(),) * 2
    linked = counted.client.get(f"/ledger?{html.unescape(query)}").text
    assert '<g data-state="residual">' in linked
    assert "Not shown" not in linked


@pytest.mark.parametrize("number", MINUTES)
def test_a_residual_of_the_first_or_last_minute_that_there_is_has_a_link(
    counted: Rig, number: int
) -> None:
    landed = {USERS: {str(number): {"c": 1}}}
    report = LandingReport("main", 2, 1, counted.now, NO_TIME, minutes=landed)
    counted.store.ledger.add_landing(report)
    merged = MergeReport(USERS, 2, 1, Account(minutes={}), counted.now, NO_TIME, since=1)
    counted.store.ledger.add_merges("main", [merged], counted.now)

    page = counted.client.get("/ledger", params={"table": USERS}).text

    (query,) = re.findall(r'href="ledger\?(.*?)">merge</a>', page)
    linked = counted.client.get(f"/ledger?{html.unescape(query)}").text
    assert '<g data-state="residual">' in linked


def test_residuals_on_both_sides_of_the_minutes_shown_are_named(counted: Rig) -> None:
    for batch, number in enumerate((minute(counted, 600), minute(counted, -600)), 5):
        landed = {ORDERS: {str(number): {"c": 2}}}
        report = LandingReport("main", batch, 1, counted.now, NO_TIME, minutes=landed)
        counted.store.ledger.add_landing(report)
        nothing = Account(minutes={})
        merged = MergeReport(ORDERS, batch, 1, nothing, counted.now, NO_TIME, since=batch - 1)
        counted.store.ledger.add_merges("main", [merged], counted.now)

    page = counted.client.get("/ledger", params={"table": ORDERS}).text

    first, last = (
        f"{datetime.fromtimestamp(minute(counted, ago) * 60, UTC):%Y-%m-%d %H:%M:%S} UTC"
        for ago in (600, -600)
    )
    assert f"merge</a>: in all 5 rows, of {first} to {last}." in page
    assert '<g data-state="residual">' in page


def test_an_older_residual_of_a_copy_is_named_with_its_time_by_the_page_and_the_command(
    rig: Rig,
) -> None:
    rig.gate.copies = lambda _: ("cache",)
    start = rig.now.replace(second=0, microsecond=0) - timedelta(hours=5)
    lost = {str(minute(rig, 300)): {"u": 1}}
    done = [
        CopiedVersion(3, swept=True, lineage="m"),
        CopiedVersion(4, start, lost, {}, lineage="m"),
    ]
    rig.store.ledger.copies.add_copied("cache", ORDERS, done, rig.now)
    rig.round()

    page = rig.client.get("/ledger", params={"table": ORDERS}).text
    copied = ask(rig)["hops"][-1]
    with serving(rig.api()) as address:
        _, said = run(address, ORDERS)

    at = start.isoformat()
    assert (copied["residual"], copied["oldest"], copied["newest"]) == (1, at, at)
    (query,) = re.findall(r'href="ledger\?(.*?)">copy:cache</a>: in all 1 row', page)
    assert '<g data-state="residual">' in rig.client.get(f"/ledger?{html.unescape(query)}").text
    assert f"copy:cache: residual of all kept minutes: 1, of {at} to {at}" in said


@pytest.fixture
def address(counted: Rig) -> Iterator[str]:
    with serving(counted.api()) as found:
        yield found


def run(address: str, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(COMMAND, [*words, "--server", address])
    return found.exit_code, found.output


def test_the_command_has_a_line_for_each_minute_and_exits_1_for_a_residual(address: str) -> None:
    status, said = run(address, ORDERS)

    *_, total, heads, balanced, lost, flying = said.splitlines()
    assert status == 1
    lost_at = lost.split()[0]
    assert total == f"merge: residual of all kept minutes: 1, of {lost_at} to {lost_at}"
    assert heads.split()[:4] == ["minute", "state", "went", "in"]
    assert re.split(r" {2,}", balanced.strip())[1:4] == ["balanced", "2 c", "2 c"]
    assert re.split(r" {2,}", lost.strip())[1:5] == ["residual", "1 c, 1 d", "1 c", "1 d"]
    assert re.split(r" {2,}", flying.strip())[1:] == ["in_flight", "-", "-", "-", "-", "4 u"]


def test_the_command_prints_the_answer_of_the_api(address: str, counted: Rig) -> None:
    start = (counted.now - 2 * MINUTE).replace(second=0, microsecond=0)
    span = ["--from", start.isoformat(), "--to", (start + MINUTE).isoformat()]
    status, said = run(address, ORDERS, "--json", *span)

    asked = {"from": start.isoformat(), "to": (start + MINUTE).isoformat()}
    assert (status, json.loads(said)) == (1, ask(counted, **asked))


def test_two_dates_show_the_residual_of_the_first(address: str, counted: Rig) -> None:
    day = (counted.now - 2 * MINUTE).astimezone(counted.gate.zone).date()

    status, said = run(address, ORDERS, "--from", str(day), "--to", str(day + timedelta(days=1)))

    assert (status, "residual  " in said) == (1, True)


def test_the_command_exits_0_without_a_residual_and_3_for_an_unknown_minute(
    address: str, counted: Rig
) -> None:
    counted.say(USERS, Ruling(Outcome.PASS, "fine"), "completeness")
    counted.round()
    assert run(address, USERS)[0] == 0

    counted.store.ledger.add_landing(LandingReport("main", 5, 1, counted.now, NO_TIME))
    merged = MergeReport(USERS, 5, 1, Account(), counted.now, NO_TIME, since=-1)
    counted.store.ledger.add_merges("main", [merged], counted.now)

    span = ["--to", (counted.now + MINUTE).isoformat(), "--from", counted.now.isoformat()]
    assert run(address, USERS, *span)[0] == 3


def test_the_status_page_links_to_the_ledger_of_a_table(counted: Rig) -> None:
    assert f'href="ledger?table={ORDERS}"' in counted.client.get("/").text


def test_a_time_of_which_minutes_are_forgotten_is_never_taken_for_one_without_rows(
    address: str, counted: Rig
) -> None:
    kept = counted.now - timedelta(hours=6)
    counted.say(USERS, Ruling(Outcome.PASS, "fine"), "completeness")
    counted.watch(0)
    counted.store.ledger.prune(counted.now + timedelta(hours=7))
    span = ["--to", counted.now.isoformat(), "--from", (kept - MINUTE).isoformat()]
    note = f"minutes before {kept.isoformat()} are kept only if they had a residual"

    for table, code, empty in ((USERS, 3, "no row is known"), (ORDERS, 1, "residual  ")):
        status, said = run(address, table, *span)
        page = counted.client.get("/ledger", params={"table": table, "from": span[3]}).text

        assert (status, said.splitlines()[1]) == (code, note)
        assert empty in said
        assert f"M{note[1:]}." in page
    assert run(address, USERS, "--from", kept.isoformat(), *span[:2])[0] == 0


def test_a_time_in_the_future_is_said_to_be_one(address: str, counted: Rig) -> None:
    later = counted.now + timedelta(days=1)

    status, said = run(
        address, USERS, "--from", later.isoformat(), "--to", (later + MINUTE).isoformat()
    )

    assert (status, said.splitlines()[1]) == (
        3,
        f"this time is in the future; it is {counted.now.isoformat()} now",
    )
    assert "no row is known" in said


def test_the_page_says_what_dates_a_minute_of_each_hop(rig: Rig) -> None:
    rig.gate.copies = lambda _: ("cache",)
    page = rig.client.get("/ledger", params={"table": ORDERS}).text

    cards = re.findall(r'data-hop="([\w:]+)">.*?, by the time of (.*?)[;<]', page, re.DOTALL)
    assert cards == [
        ("collection", "the end of each transaction"),
        ("landing", "its landing"),
        ("merge", "each change"),
        ("copy:cache", "each change, or of the commit that removed rows"),
    ]


def test_what_came_from_topics_is_shown_in_its_own_units(counted: Rig) -> None:
    units = {"messages": 3, "rows": 5}
    topics = {ORDERS: TopicCounts(units, units, {"u": 4, "quarantined": 1})}
    counted.store.ledger.add_landing(
        LandingReport("main", 2, 5, counted.now, NO_TIME, topics=topics)
    )

    span = {"to": (counted.now + MINUTE).isoformat()}
    _, landing, _ = ask(counted, **span)["hops"]
    page = counted.client.get("/ledger", params={"table": ORDERS, **span}).text

    (one,) = landing["minutes"]
    assert (landing["hop"], landing["residual"], one["state"]) == ("landing", 0, "balanced")
    assert one["explained"] == {"u": 4, "quarantined": 1}
    assert "balanced, 3 messages, 5 rows in, 3 messages, 5 rows out" in page
    assert "by the time of its landing" in page
