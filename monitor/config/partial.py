"""Reduces a config with type faults to a valid one, so that one run can check the rest.

Faults are removed key by key, or entry by entry in a section that is a list. A fault in the reduced
config may be a consequence of a removal; `Reduced.is_following` decides that.
"""

import copy
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import ValidationError

from monitor.config.model import Config
from pipeline.durations import with_durations
from pipeline.settings import SourceSettings, TlsSettings

_JUDGED_BY: Mapping[str, set[str]] = {  # a section -> sections that its check needs
    "readiness": {"heartbeat", "schedule"},
    "schedule": {"heartbeat", "readiness"},
    "store": {"lake"},
    "publish": {"lake", "tables"},
    "kafka": {"transport"},
    "kafka_security": {"kafka", "transport"},
    "sources": {"transport"},
    "alerts": {"tables"},
    "archive": {"tables"},
    "copies": {"tables"},
    "invariants": {"tables"},
    "probes": {"tables"},
    "rebootstrap": {"tables"},
    "repair": {"tables"},
    "standards": {"tables"},
}
_STAND_IN: Mapping[str, Any] = {
    "lake": "lake",
    "kafka": "localhost:9092",
    "sources": [
        {
            "name": "any",
            "host": "localhost",
            "port": 1,
            "user": "any",
            "prefix": "any",
            "collector": {"url": "http://localhost", "connector": "any"},
        }
    ],
}
_DECIDING = {"name", "kind", "transport", "format"}
"""Keys of a source that decide how its other keys are checked; a fault in one skips them all."""
_TLS = {one.name for one in fields(TlsSettings)}
"""Keys of a source that are checked together."""
_MOST_STEPS = 50  # each removes at least one key of each fault
_ENTRY = re.compile(r"(\w+)\[(\d+)\]")
_Part = str | int


def validate_config(plain: Mapping[str, Any]) -> Config:
    """Build the model of *plain*.

    Raises:
        ValidationError: *plain* has type faults.
    """
    return with_durations(
        lambda raw: Config.model_validate_json(json.dumps(raw)),
        json.loads(json.dumps(plain, default=str)),
    )


@dataclass(eq=False)
class Reduced:
    """The valid part of a config, and what was removed from it.

    ``lost`` are sections that lost an entry or their whole content. ``changed`` are sections that
    lost a key. Sections that refer to either are not checked. ``faulty`` are the keys and list
    entries with faults, as in the file. ``kept`` maps each list section to the file numbers of its
    remaining entries.
    """

    plain: dict[str, Any]
    lost: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    kept: dict[str, list[int]] = field(default_factory=dict)

    def original_key(self, key: str) -> str:
        """Return *key* of the reduced config as it is in the file."""
        found = _ENTRY.match(key)
        if found is None or found[1] not in self.kept:
            return key
        return f"{found[1]}[{self.kept[found[1]][int(found[2])]}]{key[found.end() :]}"

    def is_following(self, key: str, said: str) -> bool:
        """Tell whether a fault at *key*, in the file, may be a consequence of a removal."""
        section = re.split(r"[.\[]", key, maxsplit=1)[0]
        if section in self.lost - self.kept.keys() or _JUDGED_BY.get(section, set()) & (
            self.lost | self.changed
        ):
            return True
        own = {one for one in self.faulty if re.split(r"[.\[]", one, maxsplit=1)[0] == section}
        if any(_is_within(key, one) or _is_within(one, key) for one in own):
            return True
        names = {one.rpartition(".")[2] for one in own if not one.endswith("]")}
        return any(re.search(rf"\b{re.escape(name)}\b", said) for name in names)


def reduce_config(plain: Mapping[str, Any]) -> tuple[Config, Reduced] | None:
    """Return the valid part of *plain*; None if no part is valid."""
    reduced = Reduced({**copy.deepcopy(_STAND_IN), **copy.deepcopy(dict(plain))})
    reduced.lost |= {name for name in _STAND_IN if name not in plain}
    for _ in range(_MOST_STEPS):
        before = copy.deepcopy(reduced.plain)
        try:
            return validate_config(reduced.plain), reduced
        except ValidationError as error:
            # The last first: removing an entry does not renumber those before it.
            places = sorted({_of_entries(one["loc"]) for one in error.errors()}, reverse=True)
            for place in places:
                inner = any(one[: len(place)] == place and one != place for one in places)
                if not inner:  # a fault of the list itself may come from a fault in it
                    _remove(reduced, [part for _, part in place])
        if reduced.plain == before:
            return None
    return None


def _of_entries(loc: tuple[_Part, ...]) -> tuple[Any, ...]:
    """Return *loc* in sortable form: numbers of list entries by size, names by their text."""
    return tuple((isinstance(part, str), part) for part in loc)


def _remove(reduced: Reduced, loc: list[_Part]) -> None:
    section = str(loc[0]) if loc else ""
    if section not in reduced.plain:
        return
    value = reduced.plain[section]
    if isinstance(value, list) and len(loc) > 1 and isinstance(loc[1], int):
        _remove_of_entry(reduced, section, loc[1], loc[2:])
        return
    steps = _existing(value, loc[1:])
    if steps and isinstance(steps[-1], int):  # entries within a section keep their numbers
        steps = steps[: next(n for n, step in enumerate(steps) if isinstance(step, int))]
    if steps:
        reduced.changed.add(section)
        reduced.faulty.add(_joined(section, steps))
        _delete(value, steps)
    else:
        _remove_section(reduced, section)


def _remove_of_entry(reduced: Reduced, section: str, at: int, inner: list[_Part]) -> None:
    entries = reduced.plain[section]
    if at >= len(entries):  # removed already, because of another fault
        return
    kept = reduced.kept.setdefault(section, [*range(len(entries))])
    if section == "sources" and inner and _replace_key(entries[at], inner[0]):
        own = _TLS if inner[0] in _TLS else {str(inner[0])}
        reduced.faulty |= {f"{section}[{kept[at]}].{name}" for name in own}
        return
    reduced.faulty.add(f"{section}[{kept[at]}]")
    steps = _existing(entries[at], inner)
    name = entries[at].get("name") if isinstance(entries[at], Mapping) else None
    if section == "sources" and isinstance(name, str):  # references to it need only its name
        entries[at] = {**copy.deepcopy(_STAND_IN["sources"][0]), "name": name}
    elif steps and all(isinstance(step, str) for step in steps):
        _delete(entries[at], steps)
    else:
        del entries[at], kept[at]
        reduced.lost.add(section)
        if not entries:
            _remove_section(reduced, section)


def _replace_key(source: Any, key: _Part) -> bool:
    """Replace or remove *key* of *source*; False if other keys depend on it.

    An unknown key also returns False, because it may be any other key, misspelled.
    """
    known = {one.name for one in fields(SourceSettings)} - _DECIDING
    if not isinstance(source, dict) or key not in known:
        return False
    stand_in = _STAND_IN["sources"][0]
    if key in stand_in:
        source[key] = copy.deepcopy(stand_in[str(key)])
        return True
    return source.pop(key, None) is not None


def _remove_section(reduced: Reduced, section: str) -> None:
    reduced.lost.add(section)
    reduced.kept.pop(section, None)
    del reduced.plain[section]
    if section in _STAND_IN:
        reduced.plain[section] = copy.deepcopy(_STAND_IN[section])


def _existing(node: Any, loc: Iterable[_Part]) -> list[_Part]:
    """Return the first parts of *loc* that *node* has; pydantic adds parts of its own to some."""
    steps: list[_Part] = []
    for part in loc:
        if not _has(node, part):
            break
        node = node[part]
        steps.append(part)
    return steps


def _has(node: Any, part: _Part) -> bool:
    if isinstance(node, list):
        return isinstance(part, int) and part < len(node)
    return isinstance(node, Mapping) and part in node


def _delete(node: Any, steps: list[_Part]) -> None:
    for step in steps[:-1]:
        node = node[step]
    del node[steps[-1]]


def _joined(section: str, steps: Iterable[_Part]) -> str:
    return section + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps)


def _is_within(key: str, other: str) -> bool:
    return key == other or key.startswith((f"{other}.", f"{other}["))
