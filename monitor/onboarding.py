"""Proposes a config to edit from the tables in a server's catalogue.

It reads only the catalogue, never a row. Row counts are estimates of the server.

Tables are shards of one table if their names differ only in numbers and their columns and keys
are equal. The proposed digit pattern matches exactly these tables of the server.

The text explains each rule in a comment. Comments that concern no rule come last. Settings that
the server cannot know (Kafka, the collector) stay as in the template.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

import yaml

from pipeline.build import open_source
from pipeline.errors import ConfigError
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, Router, SourceSettings, TableRule

LATE = re.compile(r"(?:^|_)(?:log|logs|history|archive|audit|backup|bak|old|tmp|temp)(?:_|\d|$)")
USUAL = TableRule(shards=".*")
LOW = 2  # the tier proposed for logs, archives and backups
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class SeenTable:
    """A physical table of a server; ``columns`` are texts, in order; ``rows`` is an estimate."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """A rule, and the tables that it matches."""

    rule: TableRule
    of: tuple[SeenTable, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all tables, as far as they are known."""
        return sum(one.rows or 0 for one in self.of)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposed rules, in the order of the config: most rows first.

    ``alone`` are tables without a rule, under their own names.  ``unlike``: template of a name ->
    why tables with such names are not shards of one table.
    """

    rules: tuple[ProposedRule, ...]
    alone: tuple[SeenTable, ...]
    unlike: Mapping[str, str]

    @property
    def keyless(self) -> tuple[str, ...]:
        """Tables without a key: their mirrors are held until ``key:`` names one."""
        every = (*self.alone, *(one for rule in self.rules for one in rule.of))
        return tuple(sorted(one.name for one in every if not one.key))


def propose_rules(seen: Iterable[SeenTable]) -> Proposal:
    """Group tables by their names without numbers; each is in one rule, or in ``alone``."""
    tables = sorted(seen, key=lambda one: one.name)
    groups: dict[tuple[str, ...], list[SeenTable]] = defaultdict(list)
    for one in tables:
        groups[tuple(_NUMBER.split(one.name)[::2])].append(one)
    rules: list[ProposedRule] = []
    alone: list[SeenTable] = []
    unlike: dict[str, str] = {}
    taken = {one.name for one in tables}
    for words, group in groups.items():
        why = _no_shards(group)
        rule = None if why or len(group) == 1 else _rule(group, taken)
        if rule is None:
            alone += group
            unlike |= {"#".join(words): why} if why else {}
        else:
            taken.add(rule.table)
            rules.append(ProposedRule(rule, tuple(group)))
    apart, alone = _propose_rest(alone)
    ordered = sorted((*rules, *apart), key=lambda one: (-one.rows, one.rule.shards))
    return Proposal(tuple(ordered), tuple(alone), unlike)


def _no_shards(group: Sequence[SeenTable]) -> str:
    """Why tables with similar names are not shards of one table; empty if they may be."""
    first = group[0]
    for one in group[1:]:
        if one.columns != first.columns:
            return f"{first.name} and {one.name} have different columns"
        if one.key != first.key:
            return f"{first.name} and {one.name} have different keys"
    return ""


def _rule(group: Sequence[SeenTable], taken: set[str]) -> TableRule:
    """Return one rule for *group* under an unused name; equal numbers stay in the name."""
    split = [_NUMBER.split(one.name) for one in group]
    shards, name = "", ""
    for at, parts in enumerate(zip(*split, strict=True)):
        varies = len(set(parts)) > 1
        shards += r"\d+" if varies else re.escape(parts[0])
        name += "" if varies else parts[0]
        if varies and at + 1 < len(split[0]):  # also remove the separator before the number
            name = name.rstrip("_-")
    database, _, relation = name.partition(".")
    relation = relation.strip("_-") or "shards"
    table = f"{database.strip('_-') or 'shards'}.{relation}"
    while table in taken or Router().table(table) != table:
        table += "_all"
    return TableRule(shards, _template(table), tier=_tier(table))


def _template(table: str) -> str:
    return table.replace("\\", r"\\")


def _tier(table: str) -> int:
    relation = table.partition(".")[2].lower()
    return LOW if LATE.search(relation) else USUAL.tier


def _propose_rest(alone: Sequence[SeenTable]) -> tuple[list[ProposedRule], list[SeenTable]]:
    """Return rules for the tables of a lower tier, and the other tables."""
    rules, rest = [], []
    for one in alone:
        tier = _tier(one.name)
        if tier == USUAL.tier:
            rest.append(one)
        else:
            rules.append(ProposedRule(TableRule(re.escape(one.name), tier=tier), (one,)))
    return rules, rest


Progress = Callable[[Iterable[Shard], int], Iterable[Shard]]


def survey_tables(settings: SourceSettings, progress: Progress) -> tuple[SeenTable, ...]:
    """Return every table but Sluice's own; *progress* wraps the shards and gets their count.

    Raises:
        UnreachableError: the server does not answer.
        ConfigError: the kind of source is unknown, or its user may not log in.
    """
    with closing(open_source(settings)) as source:
        shards = [one for one in source.shards(".*") if one.name != settings.heartbeat]
        rows = source.describe([one.name for one in shards]).rows
        return tuple(
            SeenTable(
                one.name,
                tuple(map(str, source.columns(one))),
                source.key_columns(one),
                rows.get(one.name),
            )
            for one in progress(shards, len(shards))
        )


_NOTE = (
    "# Proposed from the server's catalogue; rows are its own estimates.  For what minutes matter,",
    "# add `tier: 0`.  Where a key is unique across all shards of a table, add",
    "# `unique_across_shards: true`; else the shard is a part of it.",
)
ADDRESS = "KIND://USER@HOST:PORT[/DATABASE][?tls=false]"
TLS = {"": None, "tls=true": True, "tls=false": False}  # by the query of an address
ALIASES = {"postgresql": "postgres"}  # common scheme -> kind of source
NAMED = 20  # most tables named in one comment
_TABLES = "# tables:\n"
_SOURCE = """\
  - name: shop
    host: 127.0.0.1
    port: 3306
    user: sluice
    password: {env: SHOP_PASSWORD}
    # The collector's topic prefix: rows arrive in shop.<database>.<table>
    prefix: shop
    collector:
      url: http://127.0.0.1:8083
      connector: shop
"""


@dataclass(frozen=True, slots=True)
class AddressedSource:
    """A server from the command line, and the environment variable with its password."""

    settings: SourceSettings
    password_env: str


def parse_address(
    address: str, name: str, password_env: str | None, environment: Mapping[str, str]
) -> AddressedSource:
    """Parse ``kind://user@host:port/database``; the *environment* has the password.

    A kind whose source is one database requires its name; other kinds reject one, see
    :func:`require_database`.

    Append ``?tls=false`` for a server without TLS, or with a certificate that the system does not
    trust.

    Raises:
        ConfigError: *address* is not an address, or the password is not in the environment.
    """
    parts = _split(address)
    variable = password_env or f"{name.upper().replace('-', '_')}_PASSWORD"
    if variable not in environment:
        raise ConfigError(
            f"${variable} is not set; export the password of {parts.username} there,"
            " or name another variable by --password-env"
        )
    return AddressedSource(
        SourceSettings(
            name=name,
            kind=ALIASES.get(parts.scheme, parts.scheme),
            host=parts.hostname or "",
            port=parts.port or 0,
            user=unquote(parts.username or ""),
            password=environment[variable],
            prefix=name,
            collector=CollectorSettings("http://127.0.0.1:8083", name),
            tls=TLS[parts.query],
            options={"database": database} if (database := unquote(parts.path[1:])) else {},
        ),
        variable,
    )


def require_database(settings: SourceSettings, options: Collection[str]) -> None:
    """Check that the address names a database if, and only if, the kind has that option.

    Raises:
        ConfigError: the database is missing, or given for a kind that does not take one.
    """
    kind, named = settings.kind, "database" in settings.options
    if "database" in options and not named:
        raise ConfigError(
            f"--from-source: a {kind} source is one database; write {kind}://USER@HOST:PORT/DATABASE"
        )
    if named and "database" not in options:
        raise ConfigError(
            f"--from-source: a {kind} source has all databases of its server;"
            f" write {kind}://USER@HOST:PORT"
        )


def _split(address: str) -> SplitResult:
    usage = f"write {ADDRESS}"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"--from-source: {error}; {usage}") from None
    if parts.password is not None:
        raise ConfigError(
            "--from-source: a password in it would stay in the shell's history;"
            " export it, and name the variable by --password-env"
        )
    if parts.query not in TLS or parts.fragment or "/" in parts.path[1:]:
        raise ConfigError(
            f"--from-source: {address!r} has more than an address; {usage}, and set the rest"
            " in the file that is written"
        )
    if not (parts.scheme and parts.username and parts.hostname and port):
        raise ConfigError(f"--from-source: {address!r} is not an address; {usage}")
    return parts


def fill_template(template: str, source: AddressedSource, proposal: Proposal) -> str:
    """Return *template* with the server instead of its example, and *proposal* as its tables."""
    before, _, after = template.partition(_TABLES)
    _, _, rest = after.partition("\n\n")
    before = before.replace(_SOURCE, _source(source))
    return before + "\n".join(_tables(proposal)) + "\n\n" + rest


def _source(source: AddressedSource) -> str:
    its, name = source.settings, _scalar(source.settings.name)
    lines = [
        f"  - name: {name}",
        f"    kind: {_scalar(its.kind)}",
        f"    host: {_scalar(its.host)}",
        f"    port: {its.port}",
        f"    user: {_scalar(its.user)}",
        f"    password: {{env: {_scalar(source.password_env)}}}",
        f"    # The collector's topic prefix: rows arrive in {its.prefix}.<database>.<table>",
        f"    prefix: {name}",
        "    collector:",
        "      url: http://127.0.0.1:8083",
        f"      connector: {name}",
    ]
    if its.tls is not None:
        lines.append(f"    tls: {str(its.tls).lower()}")
    if its.options:
        options = ", ".join(f"{one}: {_scalar(str(value))}" for one, value in its.options.items())
        lines.append(f"    options: {{{options}}}")
    return "\n".join(lines) + "\n"


def _tables(proposal: Proposal) -> Iterator[str]:
    yield from _NOTE
    if proposal.rules:
        yield "tables:"
        yield from (f"  - {_written_rule(one)}" for one in proposal.rules)
    yield from _comment(
        "Tables under their own names", map(_describe_table, _largest(proposal.alone))
    )
    yield from _comment("Without a key, so held until a rule names one by `key:`", proposal.keyless)
    unlike = (f"{name}: {why}" for name, why in sorted(proposal.unlike.items()))
    yield from _comment("Similar names, but not shards of one table", unlike)


def _written_rule(one: ProposedRule) -> str:
    rule = one.rule
    fields = [f"shards: {_quoted(rule.shards)}"]
    if rule.table != USUAL.table:
        fields.append(f"table: {_scalar(rule.table)}")
    if rule.tier != USUAL.tier:
        fields.append(f"tier: {rule.tier}")
    key = ", ".join(one.of[0].key) or "none"
    count = f"{len(one.of)} shards" if len(one.of) > 1 else "1 table"
    return f"{{{', '.join(fields)}}}  # {count}, about {one.rows:,} rows, key {_shown(key)}"


def _largest(tables: Iterable[SeenTable]) -> list[SeenTable]:
    return sorted(tables, key=lambda one: (-(one.rows or 0), one.name))


def _describe_table(one: SeenTable) -> str:
    rows = "rows not known" if one.rows is None else f"about {one.rows:,} rows"
    return f"{one.name}: {rows}, key {', '.join(one.key) or 'none'}"


def _comment(title: str, lines: Iterable[str]) -> Iterator[str]:
    every: Sequence[str] = list(lines)
    if every:
        yield f"# {title} ({len(every)}):"
        yield from (f"#   {_shown(line)}" for line in every[:NAMED])
    if len(every) > NAMED:
        yield f"#   and {len(every) - NAMED} more"


def _shown(text: str) -> str:
    """Replace unprintable characters: a line break in a name would end the comment."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _scalar(text: str) -> str:
    """Return *text* unquoted if YAML parses it as the same text, else quoted."""
    try:
        plain = yaml.safe_load(f"{{a: {text}}}") == {"a": text} and text.isprintable()
    except yaml.YAMLError:
        plain = False
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    """Return *text* in single quotes, which leave backslashes alone; double if not printable."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return str(yaml.safe_dump(text, default_style='"', width=1_000_000)).strip()
