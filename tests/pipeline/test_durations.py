"""One spelling of a length of time for config, command line and API; ISO 8601 stays accepted."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.cli.options import Duration
from monitor.config.file import parse_config
from pipeline.durations import parse_duration
from pipeline.errors import ConfigError
from pipeline.plugins import build_object
from tests.monitor.config.test_config import MINIMAL

DAYS = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("5min", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        (" 1h 30m ", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(days=7)),
        ("0s", timedelta()),
        ("PT4H", timedelta(hours=4)),
        ("P1DT2H", timedelta(hours=26)),
    ],
)
def test_f192_a_duration_is_read_as_it_is_written(text: str, found: timedelta) -> None:
    assert parse_duration(text) == found


@pytest.mark.parametrize(
    "text",
    [*("", "5", "m", "5x", "1m1h", "1s1s", "5 months", "PT", "-5m", "1h30", "nan"), "9" * 20 + "w"],
)
def test_f192_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write it as 30s|is too long"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_f192_every_number_of_seconds_is_read(seconds: int) -> None:
    whole = timedelta(seconds=seconds)
    text = f"{seconds // 86400}d{seconds // 3600 % 24}h{seconds // 60 % 60}m{seconds % 60}s"

    assert (
        parse_duration(text)
        == parse_duration(f"{seconds}s")
        == parse_duration(f"PT{seconds}S")
        == whole
    )


def test_f192_the_config_reads_durations_at_any_depth() -> None:
    config = parse_config(
        MINIMAL
        + "heartbeat: 2s\nschedule: {land: 1500ms, cycles: {2: 4m}}\n"
        + "readiness: {lag_budget: {0: 5m, 1: PT15M}}\n"
        + "probes: {max_id: {every: 1m}}\n"
        + "publish: [{tables: 'a.*', keep: 7d}, {tables: 'b.*', due: 90m}]\n"
        + "alerts: {routes: [{hold: 30s}]}\n",
        Path("/etc/sluice.yaml"),
    )

    assert config.heartbeat == timedelta(seconds=2)
    assert config.schedule.land == timedelta(seconds=1.5)
    assert config.schedule.cycles == {"2": timedelta(minutes=4)}
    assert config.readiness.budget(0) == timedelta(minutes=5)
    assert config.readiness.budget(1) == timedelta(minutes=15)
    assert config.publish[0].keep == timedelta(days=7)
    assert config.publish[1].due == timedelta(minutes=90)
    assert config.alerts.routes[0].hold == timedelta(seconds=30)
    assert next(one.every for one in config.plans if one.name == "max_id") == timedelta(minutes=1)


def test_f192_a_bound_is_checked_of_either_spelling() -> None:
    for text in ("0s", "PT0S"):
        with pytest.raises(ConfigError, match="heartbeat: must be longer than 0s"):
            parse_config(f"{MINIMAL}heartbeat: {text}\n", Path("/etc/sluice.yaml"))


@dataclass(frozen=True)
class Plugin:
    """Options of a plug-in."""

    wait: timedelta = timedelta()
    note: str = ""


def test_f192_options_of_plug_ins_read_them_and_texts_stay_texts() -> None:
    made = build_object(Plugin, (), {"wait": "1h30m", "note": "5m"}, at="options")

    assert made == Plugin(timedelta(minutes=90), "5m")


@pytest.mark.parametrize(
    ("text", "found"),
    [("90", timedelta(seconds=90)), ("1.5", timedelta(seconds=1.5)), ("1m", timedelta(minutes=1))],
)
def test_f192_a_number_on_the_command_line_has_the_unit_that_it_had(
    text: str, found: timedelta
) -> None:
    assert Duration(timedelta(seconds=1), DAYS).convert(text, None, None) == found


@pytest.mark.parametrize("text", ["2d", "-1", "1e99", "inf", "nan", "x", "PT25H"])
def test_f192_an_option_has_bounds(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration(timedelta(seconds=1), DAYS).convert(text, None, None)
