"""Write the reference pages from the code: ``python -m docs.generate``.

A page is never edited by hand: tests/docs/test_reference.py compares each page with the code. The
text of a key is the string below its field. Without one, it is the sentences of its class's
docstring that begin with the key, else those that name it.
"""

import ast
import dataclasses
import inspect
import re
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import click
from pydantic_core import PydanticUndefined

from alerts import channels
from alerts.channel import Channel
from checks import probes, reason_codes
from checks.run import Probe
from monitor.__main__ import sluice
from monitor.board import CurrentBoard
from monitor.config.model import Config
from monitor.config.plans import Beside
from monitor.config.text import secret_fields
from monitor.web.api import openapi_document
from monitor.web.metrics import METRICS, Scrape
from pipeline import (
    collectors,
    copies,
    formats,
    invariants,
    plugins,
    sources,
    standards,
    tables,
    transports,
)

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `python -m docs.generate`; change the code instead. -->"
RUNBOOKS = HERE.parent / "runbooks"


def main() -> None:
    """Write every page that differs from the code."""
    HERE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        file, text = HERE / name, page()
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{file}\n")


def joined(*parts: str) -> str:
    """Join blocks of Markdown with an empty line; leave out empty blocks."""
    return "\n\n".join(part for part in parts if part) + "\n"


def drawn(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; empty without rows."""
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows]
    if not cells:
        return ""
    lines = [list(head), ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Texts of docstrings.


def prose(text: str) -> str:
    """Return a docstring's text as Markdown."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?([\w]+)`", r"`\1`", text)
    text = re.sub(r"(?<![\w*`])\*([a-z_]+)\*(?![\w*`])", r"`\1`", text.replace("``", "`"))
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring before its Raises or Args, one line each."""
    body = re.split(r"^\s*(?:Raises|Args):", text, flags=re.MULTILINE)[0]
    flat = [prose(paragraph) for paragraph in re.split(r"\n\s*\n", body)]
    return [one for part in flat for one in re.split(r"(?<=[.:])(?<!:)\s+(?=[A-Z`(])", part) if one]


@cache
def _below_fields(kind: type) -> dict[str, str]:
    """Return the string below each field, by the field's name."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind) or sys.modules[kind.__module__]))
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for one, after in zip(node.body, node.body[1:], strict=False):
                target = one.target if isinstance(one, ast.AnnAssign) else None
                text = after.value if isinstance(after, ast.Expr) else None
                if isinstance(target, ast.Name) and isinstance(text, ast.Constant):
                    found[target.id] = prose(str(text.value))
    return found


def _parents(kind: type) -> list[type]:
    return [one for one in kind.__mro__ if one.__module__.split(".")[0] in _OURS]


_OURS = ("pipeline", "checks", "alerts", "monitor")


def described(
    kind: type, names: Sequence[str], protocol: type | None = None
) -> tuple[dict[str, str], str]:
    """Return the text of each of *names*, and the rest of the docstring.

    A key without a text in the class gets that of the *protocol*'s member.
    """
    members = {name: getattr(protocol, name, None) for name in names}
    below = {
        name: sentences(one.__doc__)[0] for name, one in members.items() if one and one.__doc__
    }
    for parent in _parents(kind):
        below = {**_below_fields(parent), **below}
    own = sentences(inspect.cleandoc(kind.__doc__ or ""))
    every = [
        *own,
        *(one for parent in _parents(kind)[1:] for one in sentences(parent.__doc__ or "")),
    ]
    found, used = {}, set[str]()
    for name in names:
        leads = [one for one in every if name in _subjects(one)]
        says = leads or [one for one in every if f"`{name}`" in one]
        found[name] = below.get(name) or " ".join(
            _stripped(one, name) for one in dict.fromkeys(says)
        )
        used |= {*says} if name not in below else set()
    rest = [one for one in own if one not in used or not re.match(r"`", one)]
    if protocol and not names:
        rest = rest[:1]
    return found, " ".join(one for one in rest if " raises " not in one)


def _stripped(sentence: str, name: str) -> str:
    """Return *sentence* without the *name* that it begins with, if nothing else is lost."""
    rest = re.sub(rf"^`{name}`(?:: | is (?!not))", "", sentence)
    return rest if rest == sentence else rest[:1].upper() + rest[1:]


def _subjects(sentence: str) -> list[str]:
    start = re.match(r"(?:(?:`\w+`)(?:, (?:and )?| and | or )?)+", sentence)
    return re.findall(r"`(\w+)`", start[0]) if start else []


# config.md


@dataclass
class Pages:
    """Sections of the config's page, in the order in which their classes are met."""

    sections: dict[type, str]
    waiting: list[tuple[str, type]]
    missing: list[str]
    word: str = ""

    def link(self, kind: type, at: str) -> str:
        """Return a link to the section of *kind*; a new section is added with the key *at*."""
        if kind not in self.sections:
            self.sections[kind] = f"{self.word} {at}".strip()
            self.waiting.append((self.sections[kind], kind))
        return f"[settings](#{_anchor(self.sections[kind])})"

    def type_text(self, hint: Any, at: str) -> str:
        """Return a type in words for operators."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.type_text(args[0], at) + _bounds(args[1:])
        if origin is not None:
            return self._made_of(origin, args, at)
        if dataclasses.is_dataclass(hint):
            return self.link(typing.cast("type", hint), at)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return ", ".join(f"`{one.value}`" for one in hint)
        return _PLAIN.get(hint, "any")

    def _made_of(self, origin: Any, args: Sequence[Any], at: str) -> str:
        if origin is typing.Literal:
            return ", ".join(f"`{one}`" for one in args if one)
        if origin is tuple:
            return f"list: {self.type_text(args[0], at + '[]')}"
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return f"mapping: {self.type_text(args[1], at + '.NAME')}"
        kinds = [self.type_text(one, at) for one in args if one is not type(None)]
        return " or ".join(kinds)

    def section(self, level: int, title: str, kind: type, seam: "Seam | None" = None) -> str:
        """Return heading, text and keys of one class; *seam* is set for a plug-in."""
        hidden, protocol = (seam.given, seam.protocol) if seam else ((), None)
        named = [one for one in dataclasses.fields(kind) if one.init and one.name[0] != "_"]
        shown = [one for one in named if one.name not in hidden]
        hints = typing.get_type_hints(kind, include_extras=True) if shown else {}
        texts, rest = described(kind, [one.name for one in shown], protocol)
        self.missing += [f"{title}.{name}" for name, text in texts.items() if not text]
        secret, at = secret_fields(kind), title.rsplit(" ", maxsplit=1)[-1]
        rows = [
            (
                f"`{one.name}`",
                "secret"
                if one.name in secret
                else self.type_text(hints[one.name], f"{at}.{one.name}"),
                _default(one.default, one.default_factory),
                texts[one.name],
            )
            for one in shown
        ]
        table = drawn(("key", "type", "default", "what it does"), rows)
        return joined(f"{'#' * level} {title}", rest, table or "No settings.").rstrip("\n")


_PLAIN: Mapping[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "`true`, `false`",
    timedelta: "duration",
    datetime: "instant with offset",
    ZoneInfo: "time zone",
}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _bounds(marks: Iterable[Any]) -> str:
    said = []
    for mark in marks:
        for one in getattr(mark, "metadata", [mark]):
            for name, word in (
                ("ge", "at least"),
                ("gt", "above"),
                ("le", "at most"),
                ("lt", "below"),
            ):
                if (bound := getattr(one, name, None)) is not None:
                    said.append(f"{word} {shown_value(bound)}")
    return "".join(f", {one}" for one in said)


def shown_value(value: Any) -> str:
    """Return a value as it is written in the file."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(shown_value(one) for one in value) + "]"
    if isinstance(value, timedelta):
        return _length(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _length(value: timedelta) -> str:
    seconds = value.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def _default(value: Any, factory: Any = dataclasses.MISSING) -> str:
    if factory not in (dataclasses.MISSING, None):
        value = factory()
    if value in (dataclasses.MISSING, PydanticUndefined):
        return "required"
    if value is None or value == "" or dataclasses.is_dataclass(value):
        return ""
    return f"`{shown_value(value)}`"


@dataclass(frozen=True, slots=True)
class Seam:
    """The plug-ins of one folder; *given* are fields that the service sets, not the file."""

    title: str
    word: str
    folder: ModuleType
    about: str
    given: tuple[str, ...] = ()
    protocol: type | None = None


SEAMS = (
    Seam(
        "Source",
        "SOURCE",
        sources,
        "`sources[].kind` names one; its keys are below `sources[].options`.",
        ("settings",),
    ),
    Seam(
        "Collector",
        "COLLECTOR",
        collectors,
        "`sources[].collector.kind` names one; its keys are below `sources[].collector.options`.",
        ("url", "connector", "stream", "unavailable", "source", "ca", "certificate", "key"),
    ),
    Seam(
        "Format",
        "FORMAT",
        formats,
        "`sources[].format` names one; its keys are below `sources[].format_options`.",
    ),
    Seam(
        "Transport",
        "TRANSPORT",
        transports,
        "`transport` names that of all sources, `sources[].transport` that of one;"
        " its keys are below `transport_options` beside it.",
        ("bootstrap", "security", "source"),
    ),
    Seam(
        "Table format",
        "TABLE_FORMAT",
        tables,
        "`table_format` names one; its keys are below `table_format_options`.",
        ("session",),
    ),
    Seam(
        "Invariant",
        "INVARIANT",
        invariants,
        "`invariants` is a list. Each entry has `tables`, a pattern of table names, and beside it"
        " invariants by their names.",
    ),
    Seam(
        "Standard",
        "STANDARD",
        standards,
        "`standards` is a list. Each entry has `tables` (a pattern of table names), `key` (the"
        " columns of their key), `clear` (names of other columns that land unchanged), and beside"
        " these standards by their names.",
    ),
    Seam(
        "Probe",
        "PROBE",
        probes,
        "Below `probes` each probe has its name. One that is not named runs with its defaults;"
        " only `values` has to be named. Every probe has these keys beside its own:",
        protocol=Probe,
    ),
    Seam(
        "Channel",
        "CHANNEL",
        channels,
        "Below `channels` each channel has a name of your choice, and `kind`, which is the name"
        " itself if it is absent.",
        protocol=Channel,
    ),
    Seam(
        "Copy",
        "COPY",
        copies,
        "Below `copies` each copy has a name of your choice, its `kind`, and `tables`, a pattern of"
        " table names or a list of them.",
    ),
)


def config_page() -> str:
    """Return every key of the config file."""
    return _config()[0]


def undescribed() -> list[str]:
    """Return the keys of the config that no text describes."""
    return _config()[1]


def _config() -> tuple[str, list[str]]:
    pages = Pages({}, [], [])
    parts = [
        "# Configuration",
        NOTE,
        "Every key of `sluice.yaml`. `sluice init` writes a file with each section; `sluice"
        " check-config` names each mistake with its line. An unknown key is a mistake.",
        "A duration is written as `30s`, `5m`, `1h30m` or `2d`, or in ISO 8601. A secret is a"
        " reference: `{env: NAME}` or `{file: PATH}`; any other value may be `{env: NAME}`, too."
        " Paths are relative to the file.",
        _top(pages),
    ]
    while pages.waiting:
        title, kind = pages.waiting.pop(0)
        parts.append(pages.section(2, title, kind))
    for seam in SEAMS:
        pages.word = seam.title
        parts += [f"## {_PLURALS.get(seam.title, seam.title + 's')}", seam.about]
        if seam.folder is probes:
            parts.append(pages.section(3, "Keys of every probe", Beside))
        by_class: dict[type, list[str]] = {}
        for name in plugins.list_keys(seam.folder, seam.word):
            by_class.setdefault(plugins.find_class(seam.folder, seam.word, name), []).append(name)
        for kind, names in by_class.items():
            title = f"{seam.title} {', '.join(names)}"
            parts += [pages.section(3, title, kind, seam), _pace(kind, seam)]
        while pages.waiting:
            title, kind = pages.waiting.pop(0)
            parts.append(pages.section(3, title, kind))
    return joined(*parts), pages.missing


_PLURALS = {"Copy": "Copies", "Source": "Source kinds"}


def _top(pages: Pages) -> str:
    texts, _ = described(Config, list(Config.model_fields))
    pages.missing += [name for name, text in texts.items() if not text]
    hints = typing.get_type_hints(Config, include_extras=True)
    rows = [
        (
            f"`{name}`",
            _BY_NAME.get(name) or pages.type_text(hints[name], name),
            _default(field.get_default()) if name not in _BY_NAME else "",
            texts[name],
        )
        for name, field in Config.model_fields.items()
    ]
    return joined("## Top level", drawn(("key", "type", "default", "what it does"), rows)).rstrip()


_BY_NAME = {
    "probes": "[settings](#probes) by name",
    "channels": "[settings](#channels) by name",
    "copies": "[settings](#copies) by name",
    "invariants": "list: [settings](#invariants)",
    "standards": "list: [settings](#standards)",
}


def _pace(kind: type, seam: Seam) -> str:
    if seam.folder is not probes:
        return ""
    every, gating = getattr(kind, "every"), getattr(kind, "gating")  # noqa: B009
    closes = "A FAIL blocks the table's gate" if gating else "A FAIL leaves the gate open"
    return (
        f"It looks at each table every {_length(every)}."
        f" {closes}, unless `readiness.gating` says otherwise."
    )


# cli.md


def cli_page() -> str:
    """Return every verb with its options and exit statuses."""
    context = click.Context(sluice, info_name="sluice")
    group = typing.cast("click.Group", sluice)
    parts = [
        "# Command line",
        NOTE,
        "`sluice VERB --help` prints the same. `sluice --version` prints the version.",
        "Exit status 0 is success, 2 is wrong usage or a mistake in the config, and 3 is a service"
        " or server that does not answer, unless the verb says otherwise. With `--json` an error is"
        ' `{"error": "..."}` on stdout.',
    ]
    verbs = {name: group.get_command(context, name) for name in group.list_commands(context)}
    found = {name: verb for name, verb in verbs.items() if verb is not None}
    rows = [(f"[`{name}`](#sluice-{name})", _first(verb)) for name, verb in found.items()]
    parts.append(drawn(("verb", "what it does"), rows))
    for name, verb in found.items():
        parts += _verb(verb, f"sluice {name}", context, 2)
    return joined(*parts)


def _verb(verb: click.Command, name: str, above: click.Context, level: int) -> Iterator[str]:
    context = click.Context(verb, info_name=name.rsplit(maxsplit=1)[-1], parent=above)
    yield f"{'#' * level} {name}"
    usage = " ".join([name, *verb.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```"
    text = prose_blocks(verb.help or "")
    about, status, exits = text.partition("Exit status ")
    yield about.strip()
    if status:
        yield _exits(exits)
    rows = [
        (
            ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts)),
            _taken(option, context),
            _usual(option),
            prose(option.help or ""),
        )
        for option in verb.params
        if isinstance(option, click.Option)
    ]
    yield drawn(("option", "value", "default", "what it does"), rows)
    for inner, command in getattr(verb, "commands", {}).items():
        yield from _verb(command, f"{name} {inner}", context, level + 1)


def prose_blocks(text: str) -> str:
    """Return a help text as paragraphs of Markdown."""
    return "\n\n".join(prose(part) for part in inspect.cleandoc(text).split("\n\n"))


def _exits(text: str) -> str:
    """Return ``0: ready; 1: not yet`` as a table, and the text after it."""
    listed, _, after = text.partition(". ")
    rows = [one.partition(": ")[::2] for one in re.split(r"; (?=\d: )", listed.rstrip("."))]
    return joined(drawn(("exit status", "when"), rows), after).rstrip()


def _first(verb: click.Command) -> str:
    return sentences(verb.help or "")[0]


def _taken(option: click.Option, context: click.Context) -> str:
    if option.is_flag:
        return "flag"
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{one}`" for one in option.type.choices)
    many = ", may be repeated" if option.multiple else ""
    needed = ", required" if option.required else ""
    return option.make_metavar(context).lower() + many + needed


def _usual(option: click.Option) -> str:
    known = option.default
    if option.is_flag or callable(known) or not isinstance(known, str | int | float | Path):
        return "on" if option.is_flag and known is True else ""
    return f"`{known}`" if str(known) else ""


# metrics.md


def metrics_page() -> str:
    """Return every metric that the service exposes."""
    rows = [
        (f"`{one.name}`", one.kind, _labels(one.labels), one.help)
        for one in sorted(METRICS, key=lambda one: one.name)
    ]
    own = {name for one in METRICS for name in (one.name, one.name.removesuffix("_total"))}
    scrape = Scrape(CurrentBoard(), lambda: datetime(2026, 1, 1, tzinfo=UTC))
    library = [
        (_exposed(one.name, one.type), one.type, _labels(_of_samples(one)), one.documentation)
        for one in scrape.registry.collect()
        if one.name not in own
    ]
    head = ("metric", "type", "labels", "what it is")
    return joined(
        "# Metrics",
        NOTE,
        "Everything at `/metrics`. A value that is not known is absent, so alert on absence, too."
        " [Rules](../../grafana/prometheus/rules.yaml) and"
        " [dashboards](../../grafana/dashboards/overview.json) use these names.",
        "## Pipeline",
        drawn(head, rows),
        "## Service",
        drawn(head, sorted(library)),
    )


def _labels(names: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in names)


def _exposed(name: str, kind: str) -> str:
    return f"`{name}_total`" if kind == "counter" else f"`{name}`"


def _of_samples(family: Any) -> list[str]:
    return list(
        dict.fromkeys(name for one in family.samples for name in one.labels if name != "le")
    )


# api.md


def api_page() -> str:
    """Return every operation of the API."""
    document = openapi_document()
    common = _common(document)
    parts = [
        "# HTTP API",
        NOTE,
        "The running service has the same as `/openapi.json`, with the schema of each answer."
        " Times are RFC 3339; durations are written as `30s`, `5m` or in ISO 8601.",
        "With [`http.auth`](config.md#httpauth) every POST and DELETE needs the token as"
        " `Authorization: Bearer`; so does reading, on an address that other machines reach.",
        "## Errors of every operation",
        drawn(("status", "when"), common),
        "An error's body is a problem document (RFC 9457), in which `detail` says what is wrong"
        " and how to fix it.",
    ]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation, document, common)
    return joined(*parts)


def _common(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the errors with the same text in nearly every operation."""
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    every = Counter(
        (status, one["description"])
        for operation in operations
        for status, one in operation["responses"].items()
        if status >= "400"
    )
    return sorted(one for one, count in every.items() if count >= len(operations) - 2)


def _operation(
    title: str,
    operation: Mapping[str, Any],
    document: Mapping[str, Any],
    common: Sequence[tuple[str, str]],
) -> Iterator[str]:
    yield f"## {title}"
    yield prose_blocks(operation.get("description", operation.get("summary", "")))
    rows: list[tuple[str, ...]] = [
        (
            f"`{one['name']}`",
            one["in"] + (", required" if one.get("required") else ""),
            _schema_text(one["schema"], document),
            prose(one.get("description", "")),
        )
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        rows += _body(body["schema"], document)
    yield drawn(("parameter", "where", "type", "what it is"), rows)
    answers = [
        (status, one["description"], _content(one, document))
        for status, one in operation["responses"].items()
        if (status, one["description"]) not in common
    ]
    yield drawn(("status", "answer", "body"), answers)


def _body(schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found = _resolved(schema, document)
    needed = found.get("required", ())
    return [
        (
            f"`{name}`",
            "body" + (", required" if name in needed else ""),
            _schema_text(one, document),
            prose(one.get("description", "")),
        )
        for name, one in found.get("properties", {}).items()
    ]


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return found


def _schema_text(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_schema_text(one, document) for one in schema["anyOf"]]
        return " or ".join(one for one in dict.fromkeys(kinds) if one != "null")
    found = _resolved(schema, document)
    if "enum" in found:
        text = ", ".join(f"`{one}`" for one in found["enum"])
    elif "const" in found:
        text = f"`{found['const']}`"
    elif found.get("type") == "array":
        text = f"list of {_schema_text(found.get('items', {}), document)}"
    else:
        text = {"date-time": "time"}.get(found.get("format", ""), found.get("type", "any"))
    usual = schema.get("default")
    return text + (f", default `{usual}`" if usual not in (None, "", []) else "")


def _content(answer: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    found = []
    for kind, one in answer.get("content", {}).items():
        schema = one.get("schema", {})
        names = [schema.get("$ref"), schema.get("items", {}).get("$ref")]
        names += [part.get("$ref") for part in schema.get("anyOf", ())]
        named = " or ".join(f"`{name.split('/')[-1]}`" for name in names if name)
        many = "list of " if "items" in schema else ""
        found.append(f"{many}{named}" if named else f"`{kind}`")
    return ", ".join(found)


# reasons.md


def reasons_page() -> str:
    """Return every code that says why a table is not ready, is held, or did not pass."""
    gate = [(f"`{code}`", text) for code, text in sorted(reason_codes.READINESS.items())]
    check = [(f"`{code}`", text) for code, text in sorted(reason_codes.CHECKS.items())]
    return joined(
        "# Reason codes",
        NOTE,
        "`sluice explain TABLE` prints the codes with a text for the case at hand; so do the gate's"
        " answer, incidents and the metric `sluice_not_ready_reason`.",
        "## Reasons in a gate's answer",
        "A table that is held has the code of its [hold](#why-a-table-is-held) instead.",
        drawn(("code", "meaning"), gate),
        "## Why a table is held",
        "The runbook [blocked](../runbooks/blocked.md#hold) has the details.",
        drawn(("code", "meaning", "what to do"), holds()),
        "## What a check found",
        "The runbooks [lost](../runbooks/lost.md), [suspect](../runbooks/suspect.md) and"
        " [unknown](../runbooks/unknown.md) have a section for each check.",
        drawn(("code", "meaning"), check),
    )


def holds() -> list[tuple[str, str, str]]:
    """Return code, meaning and remedy of each hold, from the runbook's table."""
    text = (RUNBOOKS / "blocked.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition("\n## hold\n")[2], flags=re.MULTILINE)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return sorted(
        (f"`{code}`", _moved(why), _moved(fix))
        for codes, why, fix in rows
        for code in re.findall(r"`(\w+)`", codes)
    )


def _moved(text: str) -> str:
    """Return *text* of a runbook with links that start at the reference pages."""
    return re.sub(r"\]\((?!\.\./)(\w+\.md|#)", r"](../runbooks/\1", text.strip()).replace(
        "](../runbooks/#", "](../runbooks/blocked.md#"
    )


PAGES: Mapping[str, Callable[[], str]] = {
    "config.md": config_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
    "api.md": api_page,
    "reasons.md": reasons_page,
}

if __name__ == "__main__":
    main()
