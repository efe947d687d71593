"""The page says what is true, in words that do not need its colours."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from alerts.model import Acknowledgement
from checks.model import Outcome, Ruling, Verdict
from monitor.board import Board
from monitor.web.status_page import status_page
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
            ["channel:slack: sendings that failed in a row: 3", "4 alerts wait, 2 given up"],
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
