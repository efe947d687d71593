"""What stands in the config that a server's own tables propose?  Text in, text out.

It is for a person to edit, so it says beside each rule what it is for; comments that fit no rule
stand below.  What it cannot know (Kafka, the collector) stays as in the template.  Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

import yaml

from monitor.onboarding.proposal import USUAL, Proposal, ProposedRule, SeenTable
from pipeline.errors import ConfigError
from pipeline.settings import CollectorSettings, SourceSettings

_NOTE = (
    "# Proposed from the server's catalogue; rows are its own estimates.  For what minutes matter,",
    "# add `tier: 0`.  Where a key is unique across all shards of a table, add",
    "# `unique_across_shards: true`; else the shard is a part of it.",
)
ADDRESS = "KIND://USER@HOST:PORT[/DATABASE][?tls=false]"
TLS = {"": None, "tls=true": True, "tls=false": False}  # by an address's query
ALIASES = {"postgresql": "postgres"}  # schemes that others write, and the kind that they mean
NAMED = 20  # tables named in one comment
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
    """A server as the command line names it, and where its user's password stands."""

    settings: SourceSettings
    password_env: str


def addressed(
    address: str, name: str, password_env: str | None, environment: Mapping[str, str]
) -> AddressedSource:
    """Read ``kind://user@host:port/database``; the *environment* holds the password.

    A kind whose source is one database needs its name; other kinds refuse one, see
    :func:`require_database`.

    ``?tls=false`` behind it reads a server that speaks no TLS, or shows a certificate that the
    system does not trust.

    Raises:
        ConfigError: it is none, or the password is not where it should be.
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
    """Check that the address names a database where, and only where, the kind has that option.

    Raises:
        ConfigError: the address lacks the database, or names one that the kind has no use for.
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
        raise ConfigError(f"--from-source: {address!r} is no address; {usage}")
    return parts


def written(template: str, source: AddressedSource, proposal: Proposal) -> str:
    """*template* with the server in the place of its example, and *proposal* as its tables."""
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
        told = ", ".join(f"{one}: {_scalar(str(value))}" for one, value in its.options.items())
        lines.append(f"    options: {{{told}}}")
    return "\n".join(lines) + "\n"


def _tables(proposal: Proposal) -> Iterator[str]:
    yield from _NOTE
    if proposal.rules:
        yield "tables:"
        yield from (f"  - {_rule(one)}" for one in proposal.rules)
    yield from _comment("Tables under their own names", map(_told, _largest(proposal.alone)))
    yield from _comment("Without a key, so held until a rule names one by `key:`", proposal.keyless)
    unlike = (f"{name}: {why}" for name, why in sorted(proposal.unlike.items()))
    yield from _comment("Alike by name, and yet no shards of one table", unlike)


def _rule(one: ProposedRule) -> str:
    rule = one.rule
    told = [f"shards: {_quoted(rule.shards)}"]
    if rule.table != USUAL.table:
        told.append(f"table: {_scalar(rule.table)}")
    if rule.tier != USUAL.tier:
        told.append(f"tier: {rule.tier}")
    key = ", ".join(one.of[0].key) or "none"
    count = f"{len(one.of)} shards" if len(one.of) > 1 else "1 table"
    return f"{{{', '.join(told)}}}  # {count}, about {one.rows:,} rows, key {_shown(key)}"


def _largest(tables: Iterable[SeenTable]) -> list[SeenTable]:
    return sorted(tables, key=lambda one: (-(one.rows or 0), one.name))


def _told(one: SeenTable) -> str:
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
    """On one line: a name may hold the end of one, and would end the comment."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _scalar(text: str) -> str:
    """Plain, if YAML reads it back as the same text."""
    try:
        plain = yaml.safe_load(f"{{a: {text}}}") == {"a": text} and text.isprintable()
    except yaml.YAMLError:
        plain = False
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    """In quotes: single ones, which leave backslashes alone, unless letters are not printable."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return str(yaml.safe_dump(text, default_style='"', width=1_000_000)).strip()
