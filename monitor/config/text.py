"""What stands in `sluice.yaml`, as plain values?  Read without knowing what any of it means.

Apart from what knows: a verb that only asks the service reads two lines of the file, and waits
for no model of the rest.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from pipeline.errors import ConfigError

_DEEPEST = 100
_INDEX = re.compile(r"\[(\d+)\]")
_Step = tuple[yaml.Mark, yaml.Node, str]
"""Where a part of a key stands, what is below it, and the rest of the key."""


def read_text(path: Path) -> str:
    """All of the file.

    Raises:
        ConfigError: it cannot be read, or is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        begin = ", or let `sluice init` write one" if isinstance(error, FileNotFoundError) else ""
        msg = f"cannot read {path}: {error.strerror}; name another by --config{begin}"
        raise ConfigError(msg) from None
    except UnicodeDecodeError as error:
        raise refusal(path, [f"is not UTF-8 text, from byte {error.start} on"]) from None


def mapping(text: str, path: Path) -> dict[str, Any]:
    """The sections of *text* by their names.

    Raises:
        ConfigError: it is no YAML, or no mapping; *path* is where it says so.
    """
    try:
        raw = yaml.load(text, _Loader)  # noqa: S506  - a SafeLoader that refuses doubled keys
    except yaml.YAMLError as error:
        raise refusal(path, [f"is not YAML: {_told(error, text)}"]) from None
    if not isinstance(raw, dict):
        raise refusal(path, ["must be a mapping; `sluice init` writes one to begin with"])
    try:
        json.dumps(raw, default=str)  # as it is read from here on
    except (ValueError, RecursionError):
        raise refusal(path, ["an alias stands within what it stands for"]) from None
    except TypeError as error:
        raise refusal(path, [f"a key is no name: {error}; quote it"]) from None
    return {str(key): value for key, value in raw.items()}


def _told(error: yaml.YAMLError, text: str) -> str:
    """What is wrong and where, on one line; YAML's own words call every file a string."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = ", ".join(one for one in (error.context, error.problem) if one)
        return f"{what}{_place(mark.line, mark.column)}" if mark else what
    if isinstance(error, ReaderError):
        before = text[: error.position].split("\n")
        place = _place(len(before) - 1, len(before[-1]))
        return f"{error.reason}: character #x{error.character:04x}{place}"
    return " ".join(str(error).split())


def _place(line: int, column: int) -> str:
    return f" (line {line + 1}, column {column + 1})"


def placed(text: str, path: Path) -> str:
    """A place as *path*'s file names it: from its folder, if it is no URL."""
    return text if "://" in text else str((path.parent / Path(text).expanduser()).resolve())


def refusal(path: Path, faults: list[str], text: str = "") -> ConfigError:
    """All that is wrong with the file, a line each; *text* is what it holds, if that is YAML."""
    return ConfigError("\n".join(located(path, faults, text)))


def located(path: Path, faults: Iterable[str], text: str) -> list[str]:
    """Each of *faults*, ``key: what``, behind the file's name and the key's line in its *text*."""
    try:
        root = yaml.compose(text, _Loader) if text else None
    except yaml.YAMLError:
        root = None
    return [f"{path}{_line(root, fault.partition(': ')[0])}: {fault}" for fault in faults]


def _line(root: yaml.Node | None, key: str) -> str:
    """``:12`` where *key*, or the last part of it that the file has, stands; empty if none does."""
    node, rest, mark = root, key, None
    while rest and node is not None:
        step = _into_list(node, rest) or _into_mapping(node, rest)
        if step is None:
            break
        mark, node, rest = step
    return "" if mark is None else f":{mark.line + 1}"


def _into_list(node: yaml.Node, rest: str) -> _Step | None:
    found = _INDEX.match(rest)
    if found is None or not isinstance(node, yaml.SequenceNode):
        return None
    number = int(found[1])
    if number >= len(node.value):
        return None
    return node.value[number].start_mark, node.value[number], rest[found.end() :].lstrip(".")


def _into_mapping(node: yaml.Node, rest: str) -> _Step | None:
    """A key may hold dots itself: the longest that *rest* begins with."""
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
    """YAML's own rule for a key that stands twice is that the last one wins, silently.

    Neither does it bound how deep a file is nested, which each reader of it follows.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse what is nested deeper than anything that a config says."""
        self.depth += 1
        if self.depth > _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            what = f"is nested deeper than {_DEEPEST} levels"
            raise yaml.composer.ComposerError(None, None, what, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a mapping that names one key twice."""
        keys: list[Any] = []
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} stands twice", key.start_mark
                )
            keys.append(key.value)
        return super().construct_mapping(node, deep)
