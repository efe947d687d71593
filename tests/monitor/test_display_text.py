"""No text from outside is a command to somebody's terminal."""

import logging
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from monitor import runtime
from monitor.display_text import (
    did_you_mean,
    escape_control_characters,
    escape_line,
    say,
    say_lines,
    similar_names,
    visible_in,
)

MONITOR = Path(runtime.__file__).parent
EVIL = "\x1b]0;owned\x07shop.\u202eredro\x9b2J"
SHOWN = "\\x1b]0;owned\\x07shop.\\u202eredro\\x9b2J"


@pytest.fixture
def console() -> Iterator[StringIO]:
    root, stream = logging.getLogger(), StringIO()
    before, level = root.handlers[:], root.level
    runtime.configure_logging(json=False, stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_f163_control_characters_are_written_out_and_lines_kept() -> None:
    assert escape_control_characters(EVIL) == SHOWN
    assert escape_control_characters("größe\t1\nline 2") == "größe\t1\nline 2"
    assert visible_in({"a": [EVIL, 1, None]}) == {"a": [SHOWN, 1, None]}


@given(st.text())
def test_f163_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", escape_control_characters(text)
    )


def test_f163_a_verb_writes_such_a_name_so_that_it_can_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(EVIL)
    say(EVIL, err=True)

    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


def test_a_value_begins_no_line_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    say("note=x\nshop.orders: READY\r\n", err=True)
    say_lines(f"two faults:\n{EVIL}", err=True)

    _, said = capsys.readouterr()
    assert said.splitlines() == ["note=x\\nshop.orders: READY\\r\\n", "two faults:", SHOWN]
    assert visible_in({"a": ["b\nc"]}, escape_line) == {"a": ["b\\nc"]}


def test_f163_so_does_the_log_and_its_tracebacks(console: StringIO) -> None:
    log = structlog.get_logger("test")
    log.warning("landed", table=EVIL)
    try:
        raise ValueError(EVIL)  # noqa: TRY301
    except ValueError:
        log.exception("failed")

    assert "\x1b" not in console.getvalue()
    assert "\u202e" not in console.getvalue()
    assert console.getvalue().count("\\x1b]0;owned") == 2


def test_f163_verbs_write_through_the_one_function() -> None:
    files = [*MONITOR.glob("commands/*.py"), MONITOR / "__main__.py"]

    assert [path.name for path in files if "click.echo(" in path.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("statu", "the nearest is status; known: ack, gate, status"),
        ("xyzzy", "known: ack, gate, status"),
        ("stage", "known: ack, gate, status"),
    ],
)
def test_of_few_the_nearest_is_named_and_all_there_are(asked: str, told: str) -> None:
    assert did_you_mean(asked, ["gate", "status", "ack"]) == told


def test_of_none_it_is_said_that_there_are_none() -> None:
    assert did_you_mean("copy:a", []) == "known: none yet"


def test_of_thousands_those_that_begin_or_end_alike_are_named() -> None:
    names = [f"shop.t{number:04}" for number in range(5_000)]

    told = similar_names("shop.t0421x", names)

    assert told.startswith("shop.t0421, ")
    assert told.endswith(" and 4990 more")
    assert similar_names("shop.x", ["b", "a"]) == "b, a"
    assert similar_names("shop.x", []) == "none yet"
