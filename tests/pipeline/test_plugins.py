"""Plug-ins are found by name, and their options get the types of their fields."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from alerts import channels
from checks import probes
from checks.probes.max_id import MaxId
from pipeline import formats, plugins, sources
from pipeline.durations import FORM
from pipeline.errors import ConfigError
from pipeline.plugins import build_object


def test_an_implementation_is_found_by_the_name_of_its_file() -> None:
    assert plugins.find_class(probes, "PROBE", "max_id") is MaxId


def test_all_that_stand_in_the_folder_are_known() -> None:
    assert {"log", "slack", "webhook"} <= set(plugins.list_keys(channels, "CHANNEL"))


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"no probe 'max_ids' .* nearest is max_id; known: .*max_id"
    ):
        plugins.find_class(probes, "PROBE", "max_ids")


def test_a_name_with_a_dot_is_a_module_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_own").mkdir()
    (tmp_path / "our_own" / "rows.py").write_text("class Rows: ...\nPROBE = Rows\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert plugins.find_class(probes, "PROBE", "our_own.rows") is sys.modules["our_own.rows"].Rows


def test_a_module_that_lacks_a_library_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import nowhere_to_be_had\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "needs.py").write_text("import nowhere_to_be_had\n")

    with pytest.raises(ConfigError, match=r"own\.needs: No module named 'nowhere_to_be_had'"):
        plugins.find_class(probes, "PROBE", "own.needs")


def test_a_module_without_the_class_is_no_implementation() -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.clocks: it has no PROBE; write there"):
        plugins.find_class(probes, "PROBE", "pipeline.clocks")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "raise RuntimeError('licence server is away')",
            r"own_ones\.one: its import fails: RuntimeError: licence server is away",
            id="an import that raises",
        ),
        pytest.param("def (", r"own_ones\.one: its import fails: SyntaxError", id="no Python"),
        pytest.param("raise SystemExit(3)", "its import fails: SystemExit: 3", id="one that ends"),
        pytest.param("PROBE = 5", r"own_ones\.one: its PROBE is 5; it must be a class", id="a 5"),
        pytest.param(None, r"own_ones\.one: there is no such module .* PYTHONPATH", id="none"),
    ],
)
def test_what_is_wrong_with_a_module_elsewhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, told: str
) -> None:
    (tmp_path / "own_ones").mkdir()
    if text is not None:
        (tmp_path / "own_ones" / "one.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_ones", "own_ones.one"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    with pytest.raises(ConfigError, match=told):
        plugins.find_class(probes, "PROBE", "own_ones.one")


def test_in_a_folder_the_class_stands_in_the_file_named_for_the_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").write_text("")
    (tmp_path / "whole" / "probe.py").write_text("class Rows: ...\nPROBE = Rows\n")
    (tmp_path / "around").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert (
        plugins.find_class(sources, "SOURCE", "mysql").__module__ == "pipeline.sources.mysql.source"
    )
    with pytest.raises(ConfigError, match="no probe 'whole'"):
        plugins.find_class(probes, "PROBE", "whole")
    monkeypatch.setattr(probes, "__path__", [*probes.__path__, str(tmp_path)])
    assert plugins.find_class(probes, "PROBE", "whole").__name__ == "Rows"


def test_a_folder_without_the_file_of_the_seam_is_no_implementation() -> None:
    assert plugins.list_keys(sources, "SOURCE") == ("files", "mariadb", "mysql", "postgres")
    assert plugins.list_keys(formats, "FORMAT") == (
        "canal_json",
        "dbevents_avro",
        "debezium_avro",
        "debezium_json",
        "file_rows",
        "maxwell_json",
        "simple_binlog",
    )
    with pytest.raises(ConfigError, match="no format 'debezium' in pipeline/formats"):
        plugins.find_class(formats, "FORMAT", "debezium")


def test_what_only_some_implementations_have_is_asked_for_without_an_error() -> None:
    asked = ("files", "mysql", "mariadb", "tests.toy.source")

    assert [plugins.has_class(sources, "ARRIVALS", one) for one in asked] == [True, *[False] * 3]


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
    return build_object(Plug, given, {"folder": "/a", **options}, at="options", injected=told)


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
            f"options.wait: soon is not a duration; {FORM}",
            id="no duration",
        ),
        pytest.param({"wait": 3}, "options.wait: 3 is not a duration", id="a bare number"),
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
