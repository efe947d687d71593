"""Defines the operator's settings of the pipeline, and routes shards to tables.

The config file maps to these classes one to one. Routing rules are ordered, and the first match
decides. A shard that no rule matches is a table with its own name. A table name that incidents
use for a component, such as `kafka` or `source:shop`, gets a `~` after that word.

The host checks (local or not, TLS or not) do not ask the DNS. Certificate authorities are
loaded for `https:` URLs only. Measured: loading all of the machine's takes 0.1 s.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Literal, Self, TypeVar

from pipeline.archive import ArchiveRule
from pipeline.errors import ConfigError, UnreachableError
from pipeline.model import Ordering, ShardId

_HOST_PORT = re.compile(r"(?:\[(\S+)\]|([\w.-]+)):([0-9]{1,5})")
_LOGIN = re.compile(r"(?:\A(?!\S*//)|(?<=//))\S*@")


def is_https(url: str) -> bool:
    """Whether the server at *url* must show a certificate."""
    return url[:6].lower() == "https:"


def without_login(text: str) -> str:
    """*text* without the user and password of any URL in it, even if the URL is not valid."""
    return _LOGIN.sub("(hidden)@", text)


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The IP address in *text*, as IPv4 if possible; None if it is a name."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


def parse_host_port(key: str, text: str, example: str) -> tuple[str, int]:
    """Host and port of ``host:port``; brackets around an IPv6 address are removed.

    Raises:
        ConfigError: *text*, the value of *key*, has another form.
    """
    if (found := _HOST_PORT.fullmatch(text)) is not None:
        bracketed, name, port = found.groups()
        is_host = name or (":" in bracketed and address_of(bracketed) is not None)
        if is_host and 0 < int(port) < 2**16:
            return name or bracketed, int(port)
    shown = without_login(text)
    raise ConfigError(f"{key}: {shown!r} is not host:port; write for example {example}")


def needs_tls(tls: bool | None, host: str) -> bool:
    """Whether the server at *host* must use TLS: as *tls* says, else unless it is local."""
    return not (is_loopback(host) or host.startswith("/")) if tls is None else tls


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine by its loopback interface; the DNS is not asked."""
    if host.lower() == "localhost":
        return True
    address = address_of(host)
    return address is not None and address.is_loopback


_UNSAFE = re.compile(r"[/\\%~\x00-\x1f\x7f]")  # in the name of a folder
_TAKEN = re.compile(r"\.{1,2}|_delta_log|_samples")  # names with another meaning for readers
_SPARK_SECRET = re.compile(
    r"secret|password|passphrase|token|credential|connection[._-]?string|[._]sas[._]"
    r"|(?:access|account|api|encryption|private|sas)[._-]?key(?:id)?(?![a-z])|(?:^|[._-])key(?:[._-]|$)",
    re.IGNORECASE,
)
_SPARK_NO_SECRET = re.compile(  # settings about a secret that contain none
    r"provider|secretKeyRef|\.secrets\.|^spark\.security\.credentials\.|mechanism|binding|BitLength"
    r"|\.(?:type|enabled|file|path|class|impl)$",
    re.IGNORECASE,
)


def may_be_spark_secret(name: str) -> bool:
    """Whether Spark's setting *name* may hold a secret, so that no command line may show it."""
    return bool(_SPARK_SECRET.search(name))


def is_spark_secret(name: str) -> bool:
    """Whether Spark's setting *name* holds a secret, which is never written in clear text."""
    return may_be_spark_secret(name) and not _SPARK_NO_SECRET.search(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM files of one TLS client: its authorities, its certificate, and the certificate's key.

    Without ``ca`` the machine's authorities are trusted. ``key`` has no passphrase.

    ``tls``: whether the server must use TLS and show a certificate for its host; by default it must
    before it gets a credential, except on loopback and at a Unix socket.
    """

    ca: str = ""
    """PEM file of the trusted authorities; without it those of the machine."""
    certificate: str = ""
    """PEM file of the client's certificate."""
    key: str = ""
    """PEM file of the certificate's key, without a passphrase."""
    tls: bool | None = None

    @property
    def given(self) -> bool:
        """Whether any file is set."""
        return bool(self.ca or self.certificate or self.key)

    def tls_advice(self, said: str, host: str) -> str:
        """The fix for the TLS error that *host* reported in *said*; empty for other errors."""
        if not needs_tls(self.tls, host) or not re.search("SSL|TLS|certificate", said):
            return ""
        trusting = self.ca or "the system"
        return (
            f"; TLS needs a certificate for {host} that {trusting} trusts:"
            " set ca: to the file of the certificate's authority, or set tls: false"
        )


@dataclass(frozen=True, slots=True)
class CollectorSettings(TlsSettings):
    """The address of one source's collector; ``ca`` and the like are for an https ``url``.

    ``kind`` names a file of collectors/; empty for the default. ``url`` and ``connector`` are empty
    if the collector has no address. ``options`` are further settings of that kind: fields of its
    class.
    """

    url: str = ""
    """Address of the Connect cluster; empty if the collector has no address."""
    connector: str = ""
    """Name of the connector; empty if the collector has no address."""
    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The settings without the login in the address."""
        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        shown["url"] = without_login(self.url)
        parts = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"CollectorSettings({parts})"


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How brokers and Sluice authenticate each other; by default neither does.

    ``ca``, ``certificate`` and ``key`` are PEM files, also where Spark's tasks run; without ``ca``
    the machine's own authorities are trusted. ``mechanism`` is for ``SASL_...`` only.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether brokers use TLS, and whether they ask for a login."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str = ""
    """The login, with `SASL_...` only."""
    password: str = field(default="", repr=False)
    """The password of the login."""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    """The passphrase of `key`."""


@dataclass(frozen=True, slots=True)
class MirrorSettings(TlsSettings):
    """A MirrorMaker 2 between the collector's cluster, ``kafka``, and ours.

    ``connector`` is its MirrorSourceConnector, with its address ``url``. ``alias`` is what its
    replication policy puts before the names of topics, without the dot; empty if it keeps them.
    ``ca`` and the like are for an https ``url``.
    """

    kafka: str
    """Brokers of the cluster that the collector writes to."""
    url: str
    """Address of the Connect cluster of MirrorMaker."""
    connector: str
    """Name of its MirrorSourceConnector."""
    alias: str = ""
    kafka_security: KafkaSecurity = KafkaSecurity()
    """TLS and login of the brokers in `kafka`."""


@dataclass(frozen=True, slots=True)
class RegistrySettings(TlsSettings):
    """A schema registry with the API of Confluent's; ``/schemas/ids`` is appended to ``url``.

    ``user`` and ``password``, or a ``token``, if it asks for them.
    """

    url: str
    """Address of the registry, to which `/schemas/ids` is appended."""
    user: str = ""
    """The login, if the registry asks for one."""
    password: str = field(default="", repr=False)
    """The password of `user`."""
    token: str = field(default="", repr=False)
    """Bearer token, instead of `user` and `password`."""
    timeout: timedelta = timedelta(seconds=3)
    """How long one answer may take."""


@dataclass(frozen=True, slots=True)
class SourceSettings(TlsSettings):
    """One database server and the topics its changes arrive in.

    ``prefix`` is the collector's topic prefix. Schema changes arrive in the topic ``prefix``. Rows
    arrive in topics that match ``topics``, a regular expression on the whole name; by default
    ``prefix.<database>.<table>``. The format adds others, such as one for transactions.

    ``follow_collector``: ask the server the collector is connected to, even if its address is not
    the one given here (a fail-over); turn it off if the two see different networks. The collector
    is followed only to ``host`` and to the servers of ``follow_hosts``. Without TLS ``host`` is
    followed only at ``port``, because a process that listens at another port could read the
    password. The password is sent to no other server.

    ``heartbeat`` is the ``database.table`` Sluice writes to, its only write right. ``mirrored``:
    the collector writes to another cluster, and a mirror copies its topics here; ``prefix`` and
    ``topics`` are then the names that they have here.

    ``weakest_order``: the weakest basis for the order of changes with which a table may be READY; a
    format whose messages have no log positions needs a weaker one than the default.

    ``kind`` and ``format``: empty for what its kind of collector usually reads and writes.
    ``transport`` is the transport of its topics, with ``transport_options``; empty for that of all
    other sources. ``options`` and ``format_options`` are further settings of the ``kind`` and of
    the ``format``: fields of their classes.
    """

    name: str
    """A name of your choice, which statuses and incidents use."""
    host: str
    """Host name or address of the server."""
    port: int
    """Port of the server."""
    user: str
    """The database user that Sluice logs in as."""
    collector: CollectorSettings
    """The collector, which reads the server's log and writes the topics."""
    prefix: str
    password: str = field(default="", repr=False)
    """The password of `user`."""
    kind: str = ""
    format: str = ""
    transport: str = ""
    topics: str = ""
    """Regular expression of the topics of rows; by default `prefix.<database>.<table>`."""
    heartbeat: str = "sluice.heartbeat"
    follow_collector: bool = True
    follow_hosts: tuple[str, ...] = ()
    """Servers that the collector may read after a failover: `host` (any port) or `host:port`."""
    mirrored: MirrorSettings | None = None
    weakest_order: Ordering = Ordering.LOG
    options: Mapping[str, Any] = field(default_factory=dict)
    format_options: Mapping[str, Any] = field(default_factory=dict)
    transport_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topic_pattern(self) -> str:
        """Regular expression for the whole name of each topic that this source's rows use.

        By default all below the prefix: table names may contain dots, and collectors may replace
        special characters.
        """
        return self.topics or re.escape(self.prefix) + r"\..+"

    @property
    def collected_prefix(self) -> str:
        """The collector's own topic prefix, without the mirror's alias."""
        if self.mirrored is None or not self.mirrored.alias:
            return self.prefix
        return self.prefix.removeprefix(f"{self.mirrored.alias}.")

    @property
    def secured(self) -> bool:
        """Whether the server must use TLS: by `tls`, or by default by its host."""
        return needs_tls(self.tls, self.host)

    def at(self, host: str, port: int) -> Self:
        """The same settings for the server that the collector reads.

        Raises:
            UnreachableError: the config does not name that server, so it gets no password.
        """
        if not self._may_follow(host, port):
            text = f"{host}:{port}"
            msg = (
                f"source:{self.name}: the collector reads {text}, which the config does not name;"
                f" if it is this source's server, add it to follow_hosts of {self.name}"
            )
            raise UnreachableError(msg)
        return replace(self, host=host, port=port)

    def _may_follow(self, host: str, port: int) -> bool:
        if _is_same_host(host, self.host) and (port == self.port or self.secured):
            return True
        for listed in self.follow_hosts:
            if _is_same_host(host, listed):
                return True
            name, _, number = listed.rpartition(":")
            is_one = address_of(listed) is None and number == str(port)  # not a bare IPv6 address
            if is_one and name and _is_same_host(host, name):
                return True
        return False

    def every_topic(self, added: Iterable[str]) -> str:
        """The same for all its topics: rows, schema changes, and those that its format *added*."""
        names = (re.escape(name) for name in (self.prefix, *added))
        return f"(?:{'|'.join((self.topic_pattern, *names))})"


def _is_same_host(one: str, other: str) -> bool:
    return _plain_host(one) == _plain_host(other) or (is_loopback(one) and is_loopback(other))


def _plain_host(text: str) -> str:
    """One spelling of a host: names in lower case, addresses in canonical form."""
    bare = text.strip().removeprefix("[").removesuffix("]").removesuffix(".").lower()
    return str(address_of(bare) or bare)


@dataclass(frozen=True, slots=True)
class TableRule:
    r"""Which shards fold into which table; the first rule that matches a shard decides.

    ``shards`` is a regular expression on the whole ``database.table``; ``table`` may use its
    groups (``\1``); without it each shard is a table of its own name, as is one that no rule
    matches.  Rules for one table need the same ``key``, ``tier`` and ``unique_across_shards``.
    """

    shards: str
    """A regular expression on the whole name of a shard, `database.table`."""
    table: str = r"\g<0>"
    """The table that gets the rows of these shards; `\1` is the first group of `shards`."""
    unique_across_shards: bool = False
    """One key means one row in all shards; without it each shard has its own keys."""
    key: tuple[str, ...] = ()
    """Unique columns without NULL that identify a row, for tables that declare no key."""
    tier: int = 1
    """0 is merged in a separate queue, 1 is usual, 2 and above may wait (`schedule.cycles`)."""
    ignore: bool = False
    """These shards are not mirrored."""


@dataclass(frozen=True, slots=True)
class InvariantRule:
    """The invariants of tables whose name matches the glob ``tables``.

    ``invariants`` are each by the name of its file in invariants/, or of a user's module.
    """

    tables: str
    invariants: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class StandardRule:
    """How columns of tables whose name matches the glob ``tables`` are written in the lake.

    ``key`` names the key columns of these tables, in the order in which they are sent.
    ``standards`` are each by the name of its file in standards/, or of a user's module; of two that
    name one column, the first counts. ``clear`` are globs of the names of other columns, which land
    unchanged; if a standard hides values, a row with any further column is quarantined. Letter case
    does not matter.
    """

    tables: str
    key: tuple[str, ...]
    standards: tuple[tuple[str, Any], ...]
    clear: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How long old versions and old changes are kept, and how often older ones are removed."""

    vacuum_every: timedelta = timedelta(hours=24)
    """How often old files are removed."""
    keep_versions: timedelta = timedelta(days=7)
    """How long old versions of mirrors can be read."""
    keep_changes: timedelta = timedelta(days=30)
    """How long changes stay in the change log."""


@dataclass(frozen=True, slots=True)
class PublishRule:
    """Tables with an image at the end of each business day; the first rule that matches decides.

    ``tables`` is a glob on the table's name. An image is a version of the mirror (``pin``); the
    files and log entries that its readers need are kept for ``keep``. With ``clone`` it is also a
    table of its own, in ``where`` (by default beside the mirrors), which uses the mirror's files.
    With ``parquet`` it is exported to a folder for each day in ``where``, which is kept instead.

    After the end of the day a mirror is not merged until all changes before it have provably
    landed, but at most for ``hold_back``; after that there is no image of that day. After ``due`` a
    missing image is reported. ``none`` makes no images of tables that a later rule matches. ``day``
    is a date column, by which changes that are too late for an image are counted.
    """

    tables: str
    how: Literal["pin", "clone", "parquet", "none"] = "pin"
    """What an image is: `pin`, `clone`, `parquet`, or `none`."""
    where: str = ""
    """Folder of `clone` and `parquet`; by default beside the mirrors."""
    keep: timedelta = timedelta(days=7)
    """How long a version stays readable."""
    hold_back: timedelta = timedelta(minutes=5)
    """How long a mirror waits at the end of a day for changes that have not landed."""
    due: timedelta = timedelta(minutes=30)
    """How long after the end of a day a missing image is notified."""
    day: str = ""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """All settings of one lane's pipeline.

    ``lake`` is a folder or a URI (``s3a://``) without a slash at its end. ``batch_rows`` caps one
    landing batch. ``small_batch_rows`` is the size up to which a batch is read and written in the
    driver, without a Spark job. ``landing_tasks`` is the maximum number of tasks of a larger one.
    ``urgent_rows`` caps a landing batch once the first snapshot of a table of tier 0 has ended; by
    default it is small enough to be landed in the driver, where it waits for no Spark job.

    ``transport`` is the transport of the topics, except for sources that name their own, with
    ``transport_options``, further fields of its class; ``kafka`` is empty if it needs none.
    ``table_format`` is the format of mirrors, with ``table_format_options``.

    ``publish`` lists the tables with images, ``invariants`` the conditions that no merged slice may
    break. ``archive`` lists the deletes that only move rows to an archive, ``standards`` the
    columns that are written differently from their source. Days are those of ``time_zone``.
    ``cycles``: tier -> merge interval of its tables.
    """

    lake: str
    kafka: str
    sources: tuple[SourceSettings, ...]
    rules: tuple[TableRule, ...] = ()
    lane: str = "main"
    batch_rows: int = 2_000_000
    urgent_rows: int = 20_000
    small_batch_rows: int = 20_000
    landing_tasks: int = 4
    merge_workers: int = 2
    master: str = "local[2]"
    driver_memory: str = "1500m"
    spark: Mapping[str, str] = field(default_factory=dict)
    upkeep: MaintenanceSettings = MaintenanceSettings()
    kafka_security: KafkaSecurity = KafkaSecurity()
    transport: str = "kafka"
    transport_options: Mapping[str, Any] = field(default_factory=dict)
    table_format: str = "delta"
    table_format_options: Mapping[str, Any] = field(default_factory=dict)
    publish: tuple[PublishRule, ...] = ()
    invariants: tuple[InvariantRule, ...] = ()
    archive: tuple[ArchiveRule, ...] = ()
    standards: tuple[StandardRule, ...] = ()
    time_zone: str = "UTC"
    cycles: Mapping[int, timedelta] = field(default_factory=dict)

    def demanded(self, table: str) -> tuple[tuple[str, Any], ...]:
        """All invariants of *table*, each by its name; a name may occur more than once."""
        rules = (rule for rule in self.invariants if fnmatchcase(table, rule.tables))
        return tuple(one for rule in rules for one in rule.invariants)

    @property
    def divided(self) -> bool:
        """Whether tables of tier 0 have a merge queue of their own, because a rule names some."""
        return any(rule.tier == 0 and not rule.ignore for rule in self.rules)

    @property
    def most_rows(self) -> int:
        """The cap of a landing batch while tables of tier 0 are live: they must not wait long."""
        return min(self.batch_rows, self.urgent_rows) if self.divided else self.batch_rows

    def cycle(self, tier: int) -> timedelta:
        """The merge interval of *tier*: that of the highest configured tier up to it."""
        named = [one for one in self.cycles if one <= tier]
        return self.cycles[max(named)] if named else timedelta()

    @property
    def carried(self) -> bool:
        """Whether any source's topics use ``transport``, and not one of the source's own."""
        return not self.sources or any(not one.transport for one in self.sources)

    @property
    def kafka_fields(self) -> Mapping[str, Any]:
        """Fields of the transport's class that have config sections of their own; empty without."""
        return {"bootstrap": self.kafka, "security": self.kafka_security} if self.kafka else {}

    def published(self, table: str) -> PublishRule | None:
        """How images of *table* are made; None if none are made."""
        fitting = (rule for rule in self.publish if fnmatchcase(table, rule.tables))
        rule = next(fitting, None)
        return None if rule is None or rule.how == "none" else rule

    @property
    def changes(self) -> str:
        """The change log's address."""
        return f"{self.lake}/changes"

    def mirror(self, table: str) -> str:
        """The address of a table's mirror: ``<lake>/mirrors/<database>/<table>``.

        Special characters of a path are escaped by number, and so is the escape sign: ``d.a`` and
        ``d.a/`` are two tables, and must not be one mirror.
        """
        return f"{self.lake}/mirrors/{_folder(table)}"

    def written_images(self, table: str) -> tuple[str, str] | None:
        """Where images of *table* are exported: an address, and its folder there.

        None if they are not exported.
        """
        rule = self.published(table)
        if rule is None or rule.how != "parquet":
            return None
        return rule.where.rstrip("/") or f"{self.lake}/images", _folder(table)

    def cloned_images(self, table: str) -> tuple[str, str] | None:
        """Where clones of *table*'s images are: an address, and a folder there.

        If images are pinned, only corrected ones are cloned. None if no images are made, or all are
        exported.
        """
        rule = self.published(table)
        if rule is None or rule.how == "parquet":
            return None
        return rule.where.rstrip("/") or f"{self.lake}/clones", _folder(table)


@lru_cache(maxsize=20_000)  # called twice for each of thousands of mirrors in each look
def _folder(table: str) -> str:
    """``database/table``; a database name with a dot stays whole, in its quotes."""
    try:
        first = ShardId.beginning(ShardId.parse(table).database).removesuffix(".")
    except ValueError:
        first = table.partition(".")[0]
    both = (first, table[len(first) + 1 :]) if len(first) < len(table) else (table,)
    parts = [_UNSAFE.sub(lambda found: _numbered(found[0]), one) for one in both]
    safe = [_numbered(one[0]) + one[1:] if _TAKEN.fullmatch(one) else one for one in parts]
    return "/".join(safe)


def _numbered(character: str) -> str:
    return f"~{ord(character):02X}"


T = TypeVar("T")
MOST_KNOWN = 100_000  # shards whose rule and table are cached
PARTS = ("kafka", "merging", "worker", "lake", "store", "storm")
"""Names of components in incidents, which tables wait for."""
KINDS_OF_PARTS = (*("source", "collector", "clock", "retention", "channel", "job", "rule", "disk"),)
"""The same for components that exist several times: ``source:shop``."""
_A_PART = re.compile(rf"({'|'.join(PARTS)})(~*)$|({'|'.join(KINDS_OF_PARTS)})(~*):", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Router:
    """Fold shards into tables; a shard that no rule matches is a table with its own name.

    A table must not have the name of a component, or their incidents would be mixed up. Such a
    table name gets a ``~`` after the component's word; one that already has it gets another, so
    that two names stay distinct.
    """

    rules: tuple[TableRule, ...] = ()
    _found: dict[str, TableRule | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _tables: dict[str, str | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _patterns: dict[str, re.Pattern[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # ``re`` itself caches only 512

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Pickle only the rules."""
        return type(self), (self.rules,)

    def rule(self, shard: str) -> TableRule | None:
        """The rule that decides for ``db.table`` *shard*, if any; cached between rounds."""
        return _kept(self._found, shard, self._decisive)

    def table(self, shard: str) -> str | None:
        """Name of the table that *shard* folds into; None for a shard that the rules ignore."""
        return _kept(self._tables, shard, self._folded)

    def may_fold_into(self, table: str) -> bool:
        """Whether a rule can fold a shard that was never seen into *table*.

        A rule whose table name uses groups of the shard's name can yield any name.
        """
        return any(
            "\\" in rule.table or _apart(rule.table) == table
            for rule in self.rules
            if not rule.ignore
        )

    def unique(self, shard: str) -> bool:
        """Whether keys of the shard's table are unique across all of its shards."""
        rule = self.rule(shard)
        return rule is not None and rule.unique_across_shards

    def _decisive(self, shard: str) -> TableRule | None:
        return next((rule for rule in self.rules if self._match(rule, shard)), None)

    def _folded(self, shard: str) -> str | None:
        rule = self.rule(shard)
        if rule is None:
            return _apart(shard)
        if rule.ignore:
            return None
        match = self._match(rule, shard)
        return _apart(match.expand(rule.table)) if match else None

    def _match(self, rule: TableRule, shard: str) -> re.Match[str] | None:
        pattern = self._patterns.get(rule.shards)
        if pattern is None:
            pattern = re.compile(rule.shards, re.DOTALL)  # a name may hold a line break
            self._patterns[rule.shards] = pattern
        return pattern.fullmatch(shard)


def _apart(table: str) -> str:
    """*table*, or a name near it if it is the name of a component."""
    found = _A_PART.match(table)
    if found is None:
        return table
    word = found[1] or found[3]
    return f"{word}~{table.removeprefix(word)}"


def _kept(known: dict[str, T], shard: str, find: Callable[[str], T]) -> T:
    """The cached result for *shard*, or that of *find*; any thread may fill the cache."""
    try:
        return known[shard]
    except KeyError:  # not cached, or cleared by another thread
        found = find(shard)
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[shard] = found
    return found
