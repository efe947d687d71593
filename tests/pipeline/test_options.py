"""Options of a plug-in get the types of its class's fields, or are refused by their place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipeline.durations import FORM
from pipeline.errors import ConfigError
from pipeline.plugins import build_object


@dataclass(frozen=True, slots=True)
class Limits:
    """What stands in a section below."""

    rows: int = 5
    pause: timedelta = timedelta(seconds=1)


@dataclass(eq=False)
class Plug:
    """Two fields are given, the others are options."""

    kind: ClassVar[str] = "plug"
    url: str
    name: str
    folder: Path
    wait: timedelta = timedelta(seconds=9)
    columns: tuple[str, ...] = ()
    limits: Limits = Limits()
    hook: Callable[[], None] | None = None
    lock: "Lock | None" = None
    _open: list[str] = field(default_factory=list)


class Lock:
    """No type that a file could name."""


class Plain:
    """A class that is no dataclass."""

    def __init__(self, wait: timedelta) -> None:
        self.wait = wait


def made(options: Mapping[str, Any], told: Mapping[str, Any] | None = None) -> Plug:
    given = ("http://here", "shop")
    return build_object(Plug, given, {"folder": "/a", **options}, at="options", told=told)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        pytest.param("folder", "/b", Path("/b"), id="path"),
        pytest.param("wait", "PT3S", timedelta(seconds=3), id="duration"),
        pytest.param("columns", ["a", "b"], ("a", "b"), id="tuple"),
        pytest.param(
            "limits", {"pause": "PT2S"}, Limits(5, timedelta(seconds=2)), id="section with types"
        ),
    ],
)
def test_an_option_gets_the_type_of_its_field(name: str, option: object, value: object) -> None:
    found = made({name: option})

    assert getattr(found, name) == value
    assert (found.url, found.name) == ("http://here", "shop")


def test_a_class_that_is_no_dataclass_gets_types_too() -> None:
    assert build_object(Plain, (), {"wait": "PT1M"}, at="o").wait == timedelta(minutes=1)


def test_what_is_told_is_taken_as_it_is() -> None:
    limits, lock = Limits(7), Lock()

    found = made({"wait": "PT1S"}, {"limits": limits, "lock": lock})

    assert (found.limits, found.lock, found.wait) == (limits, lock, timedelta(seconds=1))


@pytest.mark.parametrize("name", ["wait", "weight"])
def test_what_stands_in_a_section_of_its_own_is_no_option(name: str) -> None:
    with pytest.raises(ConfigError, match=f"options.{name}: unknown key") as refused:
        made({name: "PT1S"}, {"wait": timedelta()})

    assert "wait" not in str(refused.value).partition("known: ")[2].split(", ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(
            {"wait": "soon"},
            f"options.wait: is not a duration; {FORM}",
            id="no duration",
        ),
        pytest.param({"wait": 3}, "options.wait: is not a duration", id="a bare number"),
        pytest.param({"folder": 3}, "options.folder: must be", id="a number for a path"),
        pytest.param(
            {"limits": {"rows": "many"}},
            'options.limits.rows: must be a whole number, not "many"',
            id="inside a section",
        ),
        pytest.param(
            {"limits": {"row": 1}},
            "options.limits.row: unknown key; the nearest is rows; known: pause, rows",
            id="unknown inside a section",
        ),
        pytest.param({"lock": "x"}, "options.lock: cannot be set; remove it", id="a lock"),
        pytest.param({"hook": "x"}, "options.hook: cannot be set; remove it", id="a function"),
        pytest.param(
            {"pace": 1},
            "options.pace: unknown key; known: columns, folder, hook, limits, lock, wait",
            id="unknown",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_its_place(
    options: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        made(options)

    assert str(refused.value).startswith(said)


def test_a_field_without_a_default_is_required() -> None:
    with pytest.raises(ConfigError, match=r"^options\.folder: is required$"):
        build_object(Plug, ("http://here", "shop"), {}, at="options")
