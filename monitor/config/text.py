"""Reads `sluice.yaml` as plain values, and resolves references to environment and files.

This module knows no setting. So a verb that only calls the service reads a few keys, without
importing the model of the config.

Any value may be `{env: NAME}`, so that two environments can share one file. A secret must be
`{env: NAME}` or `{file: PATH}` and is never written in the config. A field is secret if its
dataclass hides it from `repr` (`field(repr=False)`). The same option keeps it out of logs.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from pipeline.errors import ConfigError, describe_half_pair

_DEEPEST = 100
_LONGEST_SHOWN = 40
_SCALARS = {
    "int": "a whole number that can be read",
    "float": "a number that can be read",
    "timestamp": "a date that exists",
    "bool": "true or false",
    "binary": "base64",
}
"""YAML tag -> the required form of its value."""
_NULL, _TEXT = "tag:yaml.org,2002:null", "tag:yaml.org,2002:str"
_INDEX = re.compile(r"\[(\d+)\]")
_Step = tuple[yaml.Mark, yaml.Node, str]
"""Position of a part of a key, the node below it, and the rest of the key."""


def read_text(path: Path) -> str:
    """Return the content of the file.

    Raises:
        ConfigError: it is unreadable, or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        begin = ", or create one with `sluice init`" if isinstance(error, FileNotFoundError) else ""
        msg = f"cannot read {path}: {error.strerror}; use another file with --config{begin}"
        raise ConfigError(msg) from None
    except UnicodeDecodeError as error:
        raise build_config_error(
            path, [f"is not UTF-8 text (byte {error.start}); save it as UTF-8"]
        ) from None


def parse_mapping(text: str, path: Path) -> dict[str, Any]:
    """Return the sections of *text* by their names.

    Raises:
        ConfigError: as ``read_mapping``, or a value is unreadable.
    """
    raw, unreadable = read_mapping(text, path)
    if unreadable:
        raise build_config_error(path, unreadable, text)
    return raw


def read_mapping(text: str, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the sections of *text*, and a fault for each unreadable value, which is None there.

    Raises:
        ConfigError: it is not YAML, or not a mapping; the message names *path* and line.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        faults = list(_unreadable_values(loader, root, "", set()))
        raw = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise build_config_error(
            path, [f"is not YAML: {_describe_yaml_error(error, text)}"]
        ) from None
    if not isinstance(raw, dict):
        raise build_config_error(
            path, ["must be a mapping of sections; `sluice init` creates an example"]
        )
    try:
        json.dumps(raw, default=str)  # every value must be valid JSON
    except (ValueError, RecursionError):
        raise build_config_error(
            path, ["a YAML alias contains itself; write the values out"]
        ) from None
    except TypeError as error:
        raise build_config_error(path, [f"a key is not a text: {error}; quote it"]) from None
    return {str(key): value for key, value in raw.items()}, faults


def _unreadable_values(
    loader: yaml.SafeLoader, node: yaml.Node | None, at: str, seen: set[int]
) -> Iterator[str]:
    """Yield each value that looks like a number or date and is invalid, as ``key: fault``.

    A text with half of a surrogate pair is invalid, too. The value is then read as null, a key as
    text.
    """
    if node is None or id(node) in seen:  # an alias is reported at its anchor
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        kind = node.tag.rpartition(":")[2]
        fault = describe_half_pair(node.value)
        if fault or (kind in _SCALARS and (fault := _unreadable(loader, node))):
            yield f"{at}: {fault}"
            node.tag, node.value = _NULL, ""
    elif isinstance(node, yaml.SequenceNode):
        for number, one in enumerate(node.value):
            yield from _unreadable_values(loader, one, f"{at}[{number}]", seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            name = name.encode(errors="backslashreplace").decode()
            place = f"{at}.{name}" if at else name
            if faults := list(_unreadable_values(loader, key, place, seen)):
                key.tag, key.value = _TEXT, name
            yield from faults
            yield from _unreadable_values(loader, value, place, seen)


def _unreadable(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """Return why the scalar has no value; PyYAML raises Python's plain errors for it."""
    if ":" in node.value and node.tag.rpartition(":")[2] in ("int", "float"):
        return f"{node.value} is a number to base 60 in YAML; quote it, or write a plain number"
    try:
        str(loader.construct_object(node))  # str() refuses an int of more than 4,300 digits
    except (ValueError, ArithmeticError, LookupError, AttributeError):
        for built in (loader.recursive_objects, loader.constructed_objects):
            built.pop(node, None)  # so that it is read again, as null
        kind = _SCALARS[node.tag.rpartition(":")[2]]
        shown = node.value if len(node.value) <= _LONGEST_SHOWN else f"{node.value[:20]}..."
        return f"{shown} is not {kind}; correct it, or quote it if it is a text"
    return ""


def _describe_yaml_error(error: yaml.YAMLError, text: str) -> str:
    """Describe a YAML error in one line; YAML's own text calls every file a string."""
    if isinstance(error, yaml.MarkedYAMLError):
        position = error.problem_mark or error.context_mark
        what = ", ".join(one for one in (error.context, error.problem) if one)
        fix = "; indent with spaces" if "'\\t'" in what else ""
        return f"{what}{_place(position.line, position.column)}{fix}" if position else what
    if isinstance(error, ReaderError):
        before = text[: error.position].split("\n")
        place = _place(len(before) - 1, len(before[-1]))
        return f"{error.reason}: character #x{error.character:04x}{place}"
    return " ".join(str(error).split())


def _place(line: int, column: int) -> str:
    return f" (line {line + 1}, column {column + 1})"


def resolve_path(text: str, path: Path) -> str:
    """Return *path* resolved from the folder of the config, unless it is a URL."""
    return text if "://" in text else str((path.parent / Path(text).expanduser()).resolve())


def build_config_error(path: Path, faults: list[str], text: str = "") -> ConfigError:
    """Build one error of all faults: a line each, in the order of the file, and their number.

    *text* is the file, for line numbers.
    """
    lines = locate_faults(path, faults, text)
    count = [f"{len(lines)} faults in {path}"] if len(lines) > 1 else []
    return ConfigError("\n".join([*lines, *count]))


def locate_faults(path: Path, faults: Iterable[str], text: str) -> list[str]:
    """Prefix each ``key: what`` of *faults* with the file and the line of the key in *text*.

    They are in the order of the file; those without a line come first.
    """
    try:
        root = yaml.compose(text, _Loader) if text else None
    except yaml.YAMLError:
        root = None
    placed = sorted(
        ((*_find_position(root, fault.partition(": ")[0]), fault) for fault in faults),
        key=lambda one: one[:2],
    )
    return [f"{path}:{line}: {fault}" if line else f"{path}: {fault}" for line, _, fault in placed]


def _find_position(root: yaml.Node | None, key: str) -> tuple[int, int]:
    """Return line and column of *key*, or of its longest existing part; (0, 0) without any."""
    node, rest, position = root, key, None
    while rest and node is not None:
        step = _into_list(node, rest) or _into_mapping(node, rest)
        if step is None:
            break
        position, node, rest = step
    return (0, 0) if position is None else (position.line + 1, position.column)


def _into_list(node: yaml.Node, rest: str) -> _Step | None:
    found = _INDEX.match(rest)
    if found is None or not isinstance(node, yaml.SequenceNode):
        return None
    number = int(found[1])
    if number >= len(node.value):
        return None
    return node.value[number].start_mark, node.value[number], rest[found.end() :].lstrip(".")


def _into_mapping(node: yaml.Node, rest: str) -> _Step | None:
    """Follow the longest key with which *rest* starts, because a key may contain dots."""
    if not isinstance(node, yaml.MappingNode):
        return None
    fitting = [
        (name, below)
        for name, below in node.value
        if rest == name.value or rest.startswith((f"{name.value}.", f"{name.value}["))
    ]
    if not fitting:
        return None
    name, below = max(fitting, key=lambda pair: len(pair[0].value))
    return name.start_mark, below, rest[len(name.value) :].lstrip(".")


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys and deep nesting.

    YAML itself silently keeps the last of two equal keys, and does not limit the nesting.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse nesting that is deeper than any config."""
        self.depth += 1
        if self.depth > _DEEPEST:
            position = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            what = f"is nested deeper than {_DEEPEST} levels"
            raise yaml.composer.ComposerError(None, None, what, position)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a mapping with a duplicate key."""
        keys: list[Any] = []
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} occurs twice; remove one", key.start_mark
                )
            keys.append(key.value)
        return super().construct_mapping(node, deep)

    def construct_date_text(self, node: yaml.ScalarNode) -> str:
        """Return a date or time as its text, whether it is quoted or not.

        ValueError if there is no such date.
        """
        self.construct_yaml_timestamp(node)
        return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_date_text)


WAYS = "{env: NAME} or {file: PATH}"
SECRET_SCHEMA = {
    "oneOf": [
        {
            "type": "object",
            "properties": {way: {"type": "string"}},
            "required": [way],
            "additionalProperties": False,
        }
        for way in ("env", "file")
    ]
}
"""JSON Schema of a secret, for editors."""


def resolve_secrets(
    raw: Mapping[str, Any], kind: type, where: str, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Replace the references in *raw*'s secret fields of *kind* by the secrets.

    Relative paths start at *folder*, the folder of the config, wherever the program was started.
    Returns the new mapping and one line per invalid reference. An invalid value is left out, so
    that no message built from the mapping can show it.
    """
    return resolve_names(raw, secret_fields(kind) & raw.keys(), where, folder)


def resolve_names(
    raw: Mapping[str, Any], names: Iterable[str], where: str, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Replace the references in the fields *names* of *raw*, as :func:`resolve_secrets`."""
    found, faults = dict(raw), []
    for name in sorted(names):
        try:
            found[name] = _read(raw[name], folder)
        except ValueError as error:
            faults.append(f"{where}.{name}: {error}")
            del found[name]
    return found, faults


def expand_environment(raw: Any, at: str) -> tuple[Any, list[str]]:
    """Replace every ``{env: NAME}`` in *raw* by its value, read as YAML: a port is a number."""
    if isinstance(raw, Mapping):
        if set(raw) == {"env"} and isinstance(raw["env"], str):
            return _expanded(raw["env"], at)
        if set(raw) == {"env"}:
            return None, [f"{at}: name an environment variable after `env:`"]
        pairs = {
            key: expand_environment(value, f"{at}.{key}" if at else str(key))
            for key, value in raw.items()
        }
        return {k: v for k, (v, _) in pairs.items()}, [f for _, fs in pairs.values() for f in fs]
    if isinstance(raw, list):
        items = [expand_environment(value, f"{at}[{number}]") for number, value in enumerate(raw)]
        return [value for value, _ in items], [fault for _, faults in items for fault in faults]
    return raw, []


def hide_environment(faults: Iterable[str], raw: Any) -> list[str]:
    """Return *faults* with ``$NAME`` in place of each value that *raw* takes from the environment.

    If two variables were mixed up, a fault would otherwise show a password.
    """
    names = sorted(_environment_names(raw))
    values = {name: os.environ[name] for name in names if os.environ.get(name)}
    found = []
    for fault in faults:
        key, sign, said = fault.partition(": ")
        for name, value in values.items():
            said = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", rf"${name}", said)
        found.append(f"{key}{sign}{said}")
    return found


def _environment_names(raw: Any) -> set[str]:
    """Return the names of all ``{env: NAME}`` in *raw*."""
    if isinstance(raw, Mapping):
        if set(raw) == {"env"} and isinstance(raw["env"], str):
            return {raw["env"]}
        raw = list(raw.values())
    return set[str]().union(*map(_environment_names, raw)) if isinstance(raw, list) else set()


def without_unset(faults: Iterable[str], unset: Iterable[str]) -> list[str]:
    """Return *faults* without those about a value whose variable is *unset*."""
    places = [fault.partition(": ")[0] for fault in unset]
    within = tuple(f"{place}{sign}" for place in places for sign in (": ", ".", "["))
    return [fault for fault in faults if not fault.startswith(within)]


def without_consequences(faults: Iterable[str], unreadable: Iterable[str]) -> list[str]:
    """Return *faults* without those about an *unreadable* value, or about an object around it.

    The value is read as null, so its object may seem incomplete.
    """
    places = [fault.partition(": ")[0] for fault in unreadable]

    def contains_one(fault: str) -> bool:
        key = fault.partition(": ")[0]
        return any(place.startswith((f"{key}.", f"{key}[")) for place in places)

    return [one for one in without_unset(faults, unreadable) if not contains_one(one)]


def secret_fields(kind: type) -> frozenset[str]:
    """Return the names of the fields of dataclass *kind* that hold secrets."""
    return frozenset(field.name for field in fields(kind) if not field.repr)


def _expanded(name: str, at: str) -> tuple[Any, list[str]]:
    try:
        text = _from_environment(name)
    except ValueError as error:
        return None, [f"{at}: {error}"]
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if faults := list(_unreadable_values(loader, root, at, set())):
            return None, [f"{at}: environment variable {name}: {faults[0].partition(': ')[2]}"]
        return None if root is None else loader.construct_document(root), []
    except yaml.YAMLError:
        return None, [
            f"{at}: environment variable {name} is not a YAML value; quote special characters"
        ]


def _read(reference: object, folder: Path) -> str:
    match reference:
        case {"env": str(name), **rest} if not rest:
            return _full(_from_environment(name), f"environment variable {name}")
        case {"file": str(path), **rest} if not rest:
            return _full(_from_file(folder / path), str(folder / path))
    msg = f"a secret must not be written here; write where it is: {WAYS}"
    raise ValueError(msg)


def _full(secret: str, where: str) -> str:
    if not secret:
        msg = f"{where} is empty; write the secret there, or remove the line"
        raise ValueError(msg)
    return secret


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        fix = "" if re.fullmatch(r"[A-Za-z_]\w*", name) else "; use a name of A-Z, 0-9 and _"
        msg = f"environment variable {name} is not set{fix}"
        raise ValueError(msg)
    return value


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        msg = f"cannot read {path}: {reason}; correct the path, or the file"
        raise ValueError(msg) from None
