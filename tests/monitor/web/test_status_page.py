"""The page says what is true, in words that do not need its colours."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from alerts.model import Acknowledgement
from alerts.round import AlertSettings, settle_round
from checks.model import Outcome, Reason, Ruling, Verdict, Verified
from checks.readiness import ReadinessState
from monitor.board import Board, TableView
from monitor.web.problems import Api
from monitor.web.status_page import (
    AT_ONCE,
    DOCS,
    RUNBOOK_ROUTES,
    TableQuestion,
    runbook_link,
    select_page,
    status_page,
)
from tests.docs.markdown import PAGES, anchors
from tests.monitor.boards import (
    ALL_WELL,
    LOST,
    MIXED,
    MUTE,
    NOT_READY,
    NOW,
    READY,
    SOURCE_DOWN,
    UNKNOWN,
    board,
    incident,
    view,
)

CHROMIUM = (
    shutil.which("chromium") or "/usr/bin/chromium-browser",  # as Ubuntu calls it
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class _Words(HTMLParser):
    """The text of a page, without its style."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._silent = False

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        """Styles are no words."""
        self._silent = tag == "style"

    def handle_data(self, data: str) -> None:
        """Everything else is."""
        if not self._silent:
            self.words += data.split()


def test_the_page_shows_openly_that_a_check_hangs() -> None:
    why = "check max_id of shop.users has not ended since 09:20:00 UTC; probes of shop wait for it"
    slow = Verdict("shop.users", "max_id", Ruling(Outcome.UNKNOWN, "slow", "over_time"), NOW)
    hangs = replace(slow, ruling=Ruling(Outcome.UNKNOWN, why, "unreachable"), cause="job:probe")
    pages = [
        status_page(
            board(READY, incidents=settle_round(AlertSettings(), (), [one], (), NOW).changed), NOW
        )
        for one in (slow, hangs)
    ]

    assert [">Checks without a result yet: 1<" in page for page in pages] == [True, True]
    assert ['<details class="soft" open>' in page for page in pages] == [False, True]
    assert why in pages[1]


def _text(html: str) -> str:
    reader = _Words()
    reader.feed(html)
    return " ".join(reader.words)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        pytest.param(board(READY), ["READY 1", "shop.users", "lag 10 s"], id="ready"),
        pytest.param(
            board(NOT_READY),
            ["NOT READY", "ready in about 1 min 15 s", "applied through batch 41"],
            id="not ready, why, and when",
        ),
        pytest.param(
            board(LOST, incidents=(incident(),)),
            ["LOST", "3 rows short in ids [100, 120)", "docs/runbooks/lost.md#range_counts"],
            id="lost, which keys, what to do",
        ),
        pytest.param(
            board(LOST, incidents=(incident(),)), ["and 3 more", "owner data platform"], id="owner"
        ),
        pytest.param(
            board(LOST, incidents=(replace(incident(), acknowledged=Acknowledgement("ann", NOW)),)),
            ["owner data platform, acknowledged by ann"],
            id="somebody has it in hand",
        ),
        pytest.param(
            board(UNKNOWN),
            ["UNKNOWN", "lag unknown", "the newest heartbeat is 75 s old"],
            id="unknown is never a number",
        ),
        pytest.param(SOURCE_DOWN, ["source:shop: down: cannot connect"], id="a part down"),
        pytest.param(
            MUTE,
            ["channel:slack: deliveries that failed in a row: 3", "4 alerts wait, 2 given up"],
            id="a channel that does not work",
        ),
        pytest.param(
            ALL_WELL, ["Open incidents: 0", "None.", "ready up to 2026-11-21"], id="all well"
        ),
        pytest.param(Board(), ["nothing is known", "No table is known yet"], id="just started"),
    ],
)
def test_the_page_says(shown: Board, said: list[str]) -> None:
    text = _text(status_page(shown, NOW))

    assert [words for words in said if words not in text] == []


def test_why_checks_are_unknown_is_said_once_for_all_of_one_reason() -> None:
    unable = Ruling(Outcome.UNKNOWN, "the key is not one integer column", "unsupported")
    verdicts = tuple(Verdict("shop.users", one, unable, NOW) for one in ("max_id", "range_counts"))

    text = _text(status_page(board(replace(READY, verdicts=verdicts)), NOW))

    assert text.count("max_id, range_counts: the key is not one integer column") == 1


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, ""),
        (Verified(None, None, 4), "values: not every row is compared yet"),
        (Verified(None, NOW - timedelta(days=2), 4), "values: every row compared within 2 d"),
        (
            Verified(NOW - timedelta(seconds=50), NOW - timedelta(days=2), 4),
            "values: every row compared within 2 d, changes up to 50 s ago",
        ),
    ],
)
def test_a_table_shows_when_its_rows_were_compared(known: Verified | None, said: str) -> None:
    words = _text(status_page(board(replace(READY, verified=known)), NOW))

    assert said in words
    assert bool(said) == ("compared" in words)


def test_f54_a_healthy_page_tells_of_no_tick_that_was_missed_long_ago() -> None:
    busy = replace(ALL_WELL.jobs[0], lately={"missed": 3})

    assert "missed" not in _text(status_page(ALL_WELL, NOW))
    assert "missed 3 in the last 10 min" in _text(status_page(replace(ALL_WELL, jobs=(busy,)), NOW))


def test_the_runbook_is_a_link() -> None:
    html = status_page(board(LOST, incidents=(incident(),)), NOW)

    assert html.count('<a href="runbooks/lost.md#range_counts">') == 2


def test_what_is_worst_comes_first() -> None:
    html = status_page(MIXED, NOW)

    names = [one.table.name for one in (LOST, UNKNOWN, NOT_READY, READY)]
    places = [html.index(f'data-table="{name}"') for name in names]
    assert places == sorted(places)


def test_the_head_counts_a_table_by_the_graver_of_its_answers() -> None:
    lost_now = replace(READY, recent=LOST.recent)

    text = _text(status_page(board(lost_now, READY), NOW))

    assert "LOST 1 READY 1" in text


def test_a_board_that_has_grown_old_shows_no_state_but_unknown() -> None:
    html = status_page(MIXED, NOW + timedelta(minutes=3))

    assert 'id="stale"' in html
    assert html.count('data-state="unknown"') == 4
    assert 'data-state="ready"' not in html
    assert "works" not in _text(html)


def test_f191_a_long_name_is_broken_behind_a_separator_and_not_in_mid_word() -> None:
    view = replace(READY, table=replace(READY.table, name="warehouse.orders_of<b>.last_year"))

    html = status_page(board(view), NOW)

    parted = "warehouse.<wbr>orders_<wbr>of&lt;b&gt;.<wbr>last_<wbr>year"
    assert f'<div class="name">{parted}</div>' in html
    assert 'data-table="warehouse.orders_of&lt;b&gt;.last_year"' in html


def test_text_from_outside_is_text() -> None:
    evil = replace(incident(), owner="<script>alert(1)</script>")

    html = status_page(board(LOST, incidents=(evil,)), NOW)

    assert "<script>" not in html


def test_the_page_needs_nothing_from_elsewhere() -> None:
    html = status_page(MIXED, NOW)

    assert "http-equiv" in html
    for way in ("src=", "@import", "url(http", "<script"):
        assert way not in html


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[Board, int], str]:
    def dom(shown: Board, width: int) -> str:
        page = tmp_path / "page.html"
        probe = "<script>document.body.dataset.wide = document.documentElement.scrollWidth</script>"
        html = status_page(shown, NOW).replace('<meta http-equiv="refresh" content="5">', "")
        page.write_text(html.replace("</body>", f"{probe}</body>"), encoding="utf-8")
        done = subprocess.run(
            [
                *CHROMIUM,
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},1200",
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    return dom


@pytest.mark.stack
@pytest.mark.parametrize("width", [500, 1150, 1600], ids=["narrow", "in between", "wide"])
@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        pytest.param(board(READY), "ready", id="ready"),
        pytest.param(board(NOT_READY), "not_ready", id="not ready"),
        pytest.param(board(LOST, incidents=(incident(),)), "lost", id="lost"),
        pytest.param(board(UNKNOWN), "unknown", id="unknown"),
    ],
)
def test_a_real_browser_shows_the_state_and_never_scrolls_sideways(
    browse: Callable[[Board, int], str], shown: Board, kind: str, width: int
) -> None:
    dom = browse(shown, width)

    assert f'data-state="{kind}"' in dom
    assert f'<use href="#{kind}"' in dom
    assert f'data-wide="{width}"' in dom


LATE = Reason("late", "time since the cut is below the lags' sum")


def many(count: int) -> list[TableView]:
    """Every tenth is not ready."""
    states = [ReadinessState.READY, ReadinessState.NOT_READY]
    return [
        view(f"shop.orders_{n:05}", states[n % 10 == 9], LATE, seconds=(1.0, 2.0, 3.0))
        for n in range(count)
    ]


def state(one: TableView) -> str:
    return one.worst.value


@pytest.mark.parametrize(
    ("asked", "names", "found"),
    [
        pytest.param(TableQuestion("00012"), ["shop.orders_00012"], 1, id="by a part of its name"),
        pytest.param(TableQuestion(" ORDERS_0001 "), None, 10, id="however it is written"),
        pytest.param(TableQuestion(state="not_ready"), None, 20, id="by state"),
        pytest.param(TableQuestion("00012", "not_ready"), [], 0, id="by both"),
        pytest.param(TableQuestion(page=99), None, 200, id="a page too far is the last"),
        pytest.param(TableQuestion(page=-1), None, 200, id="a page before the first is that"),
    ],
)
def test_tables_are_found(asked: TableQuestion, names: list[str] | None, found: int) -> None:
    told = select_page(many(200), state, asked)

    assert told.found == found
    assert names is None or [one.table.name for one in told.views] == names
    assert dict(told.states) == {"ready": 180, "not_ready": 20}


def test_pages_follow_one_another_and_keep_what_was_asked() -> None:
    first = select_page(many(200), state, TableQuestion("orders&<"))
    asked = TableQuestion("orders", page=2)

    second = select_page(many(200), state, asked)

    assert first.after == ""
    assert (second.first, len(second.views)) == (AT_ONCE + 1, AT_ONCE)
    assert (second.before, second.after) == ("?text=orders&page=1", "?text=orders&page=3")


def test_f46_a_page_of_5000_tables_shows_those_that_need_a_person_and_counts_all() -> None:
    page = status_page(board(*many(5_000), incidents=(incident(),)), NOW)

    assert len(page.encode()) < 200_000
    assert page.count("data-table=") == AT_ONCE
    assert page.count('data-state="not_ready"') == AT_ONCE
    assert "<b>4500</b>" in page
    assert "1 to 60 of 5000" in page
    assert 'href="?page=2"' in page


def test_f46_incidents_and_their_tables_are_told_to_twenty_of_each() -> None:
    one = incident()
    members = tuple(replace(one.members[0], table=f"shop.t{n:05}") for n in range(5_000))
    many_of = tuple(
        replace(one, cause=replace(one.cause, subject=f"part {n}"), members=members)
        for n in range(300)
    )

    page = status_page(board(*many(3), incidents=many_of), NOW)

    assert len(page.encode()) < 200_000
    assert "and 4980 more" in page
    assert "280 more" in page


def get(path: str, **headers: str) -> httpx.Response:
    app = Api(routes=RUNBOOK_ROUTES.routes)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


SERVED = [page for page in PAGES if page.is_relative_to(DOCS)]
HREF = re.compile(r'(?:href|src)="([^"]*)"')


def test_each_page_of_the_docs_is_served_with_an_anchor_for_each_of_its_headings() -> None:
    for page in SERVED:
        text = served(page)
        missing = [one for one in anchors(page) if f'id="{one}"' not in text]
        assert missing == [], page


def test_each_link_of_a_served_page_leads_to_what_is_served() -> None:
    texts = {page: served(page) for page in SERVED}
    for page, text in texts.items():
        for target in HREF.findall(text.partition("<body>")[2]):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if target in ("../", "./"):  # the status page
                continue
            if file.suffix == ".png":
                assert get(f"/{file.relative_to(DOCS)}").status_code == 200, (page, target)
            else:
                assert file in texts, (page, target)
                assert not anchor or f'id="{anchor}"' in texts[file], (page, target)


def test_a_healthy_status_page_leads_to_guides_runbooks_and_the_api() -> None:
    found = HREF.findall(status_page(ALL_WELL, NOW))
    links = [one for one in found if not one.startswith(("#", "trace?", "ledger?"))]

    answers = {one: get(f"/{one}").status_code for one in links if one != "data:,"}

    assert {*answers} >= {"guides/README.md", "runbooks/service.md", "docs"}
    assert {*answers.values()} == {200}


def test_a_link_to_what_is_not_served_becomes_text() -> None:
    text = served(DOCS / "guides" / "readiness-gate-and-airflow.md")

    assert "airflow_gate.py" in text
    assert "examples/" not in "".join(HREF.findall(text))


def served(page: Path) -> str:
    answer = get(f"/{page.relative_to(DOCS)}")
    assert answer.status_code == 200, page
    return answer.text


@pytest.mark.parametrize("asked", ["bytes=5-1", "items=0-1", "bytes=a-b", "bytes=0-10"])
def test_a_picture_is_sent_whole_whatever_range_is_asked_for(asked: str) -> None:
    answer = get("/images/status.png", range=asked)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.content == (DOCS / "images" / "status.png").read_bytes()


@pytest.mark.parametrize(
    ("runbook", "href"),
    [
        pytest.param("https://wiki/r/late.md#lag", "https://wiki/r/late.md#lag", id="elsewhere"),
        pytest.param("docs/runbooks/late.md#lag", "runbooks/late.md#lag", id="the service's own"),
        pytest.param("docs/runbooks/nothing.md", "", id="a page that is not there"),
        pytest.param("javascript:alert(1)", "", id="no address"),
    ],
)
def test_a_link_leads_somewhere_or_is_none(runbook: str, href: str) -> None:
    assert runbook_link(runbook) == href


@pytest.mark.parametrize(
    ("path", "status"),
    [("/runbooks/nothing.md", 404), ("/runbooks/..%2Fddl.md", 400), ("/x.md", 404)],
)
def test_what_is_no_page_is_not_found(path: str, status: int) -> None:
    assert get(path).status_code == status
