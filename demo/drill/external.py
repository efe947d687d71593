"""Runs a drill on servers that others run: checks them first, and cleans up at its end.

All things that it creates there have one name: database, connector, topics, and for Postgres
publication and slot. It touches nothing with another name, and refuses a name that is taken. Each
thing is noted in a file before it is created, with the command that removes it, because a killed
drill removes nothing.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx
import psycopg
import pymysql
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from demo.connect import ConnectClient
from demo.drill.tables import DrillSource, Names
from demo.processes import wait_until
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.settings import CollectorSettings, SourceSettings, parse_host_port, without_login

NOTES = "remove.txt"
"""File in the drill's folder: commands that remove what it created; deleted with the last one."""
RANDOM = "sluice_drill_"
"""Prefix of names that the drill chooses."""
CONNECT = "DRILL_CONNECT"
"""Variable with the address of Connect, for one that has a login."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
PORTS = range(1, 2**16)
EXAMPLE = "db-1:3306"
GONE = timedelta(minutes=1)
KAFKA_ANSWER = 10_000  # milliseconds
FAILURES = (SluiceError, pymysql.Error, psycopg.Error, KafkaError, OSError, ValueError, LookupError)
TOPICS = r"(__debezium-heartbeat\.|__schema-history\.)?{prefix}(\..*)?"


class RefusedError(UnreachableError):
    """Raised if the database server answers that it refuses the request."""


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """Addresses of the user's servers, and the drill's login.

    ``seen`` and ``kafka_seen`` are the addresses of database and Kafka in Connect's network.
    ``connector_password`` is the password in the connector's config, such as a reference that
    Connect resolves.
    """

    kind: str
    host: str
    port: int
    user: str
    kafka: str
    connect: str = field(repr=False)
    name: str
    password: str = field(default="", repr=False)
    connector_password: str = field(default="", repr=False)
    seen: tuple[str, int] | None = None
    kafka_seen: str = ""
    tls: bool | None = None
    ca: str = ""

    @property
    def where(self) -> str:
        """Host and port of the database."""
        return f"{self.host}:{self.port}"


def read_addresses(
    given: Mapping[str, Any], environment: Mapping[str, str]
) -> ServerAddresses | None:
    """Return the servers of the options; None if no option is *given*: the drill starts its own.

    The variable DRILL_CONNECT takes the place of `--connect` beside other options.

    Raises:
        ConfigError: an option is missing or invalid.
    """
    named = {option: value for option, value in given.items() if value not in (None, "")}
    if not named:
        return None
    connect = "--connect"
    if "connect" not in named and (address := environment.get(CONNECT)):
        connect, named["connect"] = CONNECT, address
    kinds = [kind for kind in ("mysql", "postgres") if kind in named]
    missing = [f"--{option}" for option in ("user", "kafka") if option not in named]
    missing += [] if "connect" in named else [f"--connect or the variable {CONNECT}"]
    if not kinds:
        missing.insert(0, "--mysql or --postgres")
    if missing:
        msg = f"options of your own servers are missing: {', '.join(missing)}; add them"
        raise ConfigError(msg)
    if len(kinds) > 1:
        raise ConfigError("--mysql and --postgres are both given; name one server")
    host, port = parse_host_port(f"--{kinds[0]}", named[kinds[0]], EXAMPLE)
    if not _is_url(named["connect"]):
        shown = without_login(named["connect"])
        raise ConfigError(f"{connect}: {shown!r} is not an address; write http://HOST:PORT")
    name = named.get("name") or f"{RANDOM}{secrets.token_hex(4)}"
    if not NAME.fullmatch(name):
        msg = f"--name: {name!r} cannot be used; write up to 40 of a-z, 0-9 and _, a letter first"
        raise ConfigError(msg)
    password = ""
    if variable := named.get("password_env"):
        if variable not in environment:
            msg = f"--password-env: {variable} is not set in the environment; export it"
            raise ConfigError(msg)
        password = environment[variable]
    seen = named.get("database_seen")
    return ServerAddresses(
        kind=kinds[0],
        host=host,
        port=port,
        user=named["user"],
        kafka=named["kafka"],
        connect=named["connect"],
        name=name,
        password=password,
        connector_password=named.get("connector_password", password),
        seen=parse_host_port("--database-seen", seen, EXAMPLE) if seen else None,
        kafka_seen=named.get("kafka_seen", ""),
        tls=named.get("tls"),
        ca=named.get("ca", ""),
    )


def _is_url(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and (url.port or 1) in PORTS


@dataclass(frozen=True, slots=True)
class MadeThing:
    """A thing that the drill creates on a server; ``remove`` and ``command`` both remove it.

    ``remove`` may be called if it does not exist.
    """

    what: str
    command: str
    remove: Callable[[], object]


@dataclass(eq=False)
class Cleanup:
    """Removes created things, newest first; ``file`` has the commands for the remaining ones."""

    file: Path
    say: Callable[[str], None] = lambda _: None
    _made: list[MadeThing] = field(default_factory=list)

    def claim(self) -> None:
        """Refuse to start if an earlier drill has left something.

        Raises:
            ConfigError: it has.
        """
        if self.file.exists():
            msg = (
                "an earlier drill has left things on your servers; run the commands in"
                f" {self.file}, remove that file, and start again"
            )
            raise ConfigError(msg)

    def add(self, made: MadeThing) -> None:
        """Note a thing before it is created."""
        self._made.append(made)
        self._note()

    def forget(self, made: MadeThing) -> None:
        """Forget a thing that could not be created: another owner's thing has its name."""
        self._made.remove(made)
        self._note()

    def remove_all(self) -> None:
        """Remove everything; a thing that cannot be removed is reported and stays noted."""
        if not self._made:  # the file may be that of an earlier drill
            return
        left = []
        for made in reversed(self._made):
            try:
                made.remove()
            except FAILURES as error:
                said = " ".join(without_login(str(error)).split())
                self.say(f"{made.what} is left: {said}; run: {made.command}")
                left.append(made)
        if not left:
            self.say("your servers: everything that the drill has made is removed")
        self._made = left[::-1]
        self._note()

    def _note(self) -> None:
        if not self._made:
            self.file.unlink(missing_ok=True)
            return
        commands = [made.command for made in reversed(self._made)]
        self.file.write_text("\n".join(commands) + "\n", encoding="utf-8")


class ExternalDatabase(Protocol):
    """A database server that others run."""

    @property
    def label(self) -> str:
        """Return its kind and address."""
        ...

    def troubles(self) -> Iterator[str]:
        """Yield why the drill cannot run on it, each with its remedy; nothing is changed."""
        ...

    def warnings(self) -> Iterator[str]:
        """Yield what may make the results worse, each with its remedy."""
        ...

    def describe(self) -> str:
        """Return its kind, address and the drill's user, for the report."""
        ...

    def create(self) -> None:
        """Create the database of the drill.

        Raises:
            RefusedError: the server refuses it.
            UnreachableError: the server does not answer.
        """
        ...

    def things(self) -> Sequence[MadeThing]:
        """Return the things created on it, in order."""
        ...

    def source(self) -> DrillSource:
        """Return the tables of the drill on it."""
        ...

    def trial_config(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Return *config* of the connector for Connect's check before the database exists."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteKafka:
    """Brokers that others run."""

    bootstrap: str

    def topics(self) -> list[str]:
        """Names of all topics."""
        with closing(self._admin()) as admin:
            return list(admin.list_topics())

    def troubles(self, prefix: str) -> Iterator[str]:
        """Yield faults: no answer, or topics with that *prefix*."""
        try:
            taken = own_topics(self.topics(), prefix)
        except (KafkaError, OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            yield f"Kafka at {self.bootstrap} does not answer: {said}; check --kafka"
            return
        if taken:
            yield (
                f"Kafka at {self.bootstrap} has topics of the name {prefix} already, such as"
                f" {taken[0]}; give another --name"
            )

    def delete_topics(self, prefix: str) -> None:
        """Delete topics with *prefix*; returns when none is left."""
        with closing(self._admin()) as admin:
            wait_until(lambda: not _deleted(admin, prefix), GONE, f"end of the topics {prefix}")

    def _admin(self) -> Any:
        return KafkaAdminClient(
            bootstrap_servers=self.bootstrap.split(","),
            request_timeout_ms=KAFKA_ANSWER,
            bootstrap_timeout_ms=KAFKA_ANSWER,
        )


def own_topics(topics: Iterable[str], prefix: str) -> list[str]:
    """Return those of *topics* that a connector with that *prefix* creates, sorted."""
    pattern = re.compile(TOPICS.format(prefix=re.escape(prefix)))
    return sorted(name for name in topics if pattern.fullmatch(name))


def _deleted(admin: Any, prefix: str) -> list[str]:
    """Delete the existing topics with *prefix*, and return their names."""
    if found := own_topics(admin.list_topics(), prefix):
        admin.delete_topics(found, raise_errors=False)
    return found


@dataclass(eq=False)
class ExternalServers:
    """The user's database, Kafka and Connect, with what the drill creates on them."""

    addresses: ServerAddresses
    database: ExternalDatabase
    kafka: RemoteKafka
    connect: ConnectClient
    cleanup: Cleanup

    def start(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Check all servers, and create the database of the drill.

        Raises:
            ConfigError: lists everything that prevents the drill, a line each.
        """
        self.cleanup.claim()
        if troubles := list(self.troubles()):
            raise ConfigError("\n".join(troubles))
        for line in self.describe():
            say(line)
        for line in self.database.warnings():
            say(f"warning: {line}")
        name, url = self.addresses.name, without_login(self.connect.url)
        first, *others = self.database.things()
        self.cleanup.add(first)
        try:
            self.database.create()
        except RefusedError:  # after any other error the database may exist
            self.cleanup.forget(first)
            raise
        kafka_topics = f"kafka-topics.sh --bootstrap-server {self.kafka.bootstrap}"
        self.cleanup.add(
            MadeThing(
                f"topics {name} of Kafka at {self.kafka.bootstrap}",
                f"{kafka_topics} --delete --topic '{TOPICS.format(prefix=name)}'",
                lambda: self.kafka.delete_topics(name),
            )
        )
        for made in others:
            self.cleanup.add(made)
        self.cleanup.add(
            MadeThing(
                f"connector {name} of Connect at {url}",
                f"curl -X DELETE {url}/connectors/{name}",
                self._remove_connector,
            )
        )
        say(f"what the drill makes, it removes; were it killed, run the commands in {self.notes}")

    @property
    def notes(self) -> Path:
        """Return the file with the commands that remove everything."""
        return self.cleanup.file

    def stop(self) -> None:
        """Remove everything that was created."""
        self.cleanup.remove_all()

    def describe(self) -> tuple[str, ...]:
        """Return the servers and users of the drill; without passwords."""
        name = self.addresses.name
        return (
            self.database.describe(),
            f"your Kafka at {self.kafka.bootstrap}",
            f"your Connect at {without_login(self.connect.url)}",
            f"on them, only what is called {name}: a database, a connector, and topics",
        )

    def troubles(self) -> Iterator[str]:
        """Yield everything that prevents the drill, each with its remedy; nothing is changed."""
        of_database = list(self.database.troubles())
        yield from of_database
        yield from self.kafka.troubles(self.addresses.name)
        try:
            yield from self._connect_troubles(validates=not of_database)
        except SluiceError as error:
            yield f"{error}; check --connect"

    def _connect_troubles(self, *, validates: bool) -> Iterator[str]:
        name, where = self.addresses.name, f"Connect at {without_login(self.connect.url)}"
        config = self.database.source().connector(self.addresses.kafka_seen or self.kafka.bootstrap)
        plugin, trial = config["connector.class"], self.database.trial_config(config)
        if name in self.connect.connectors():
            yield f"{where} has a connector {name} already; give another --name"
        if plugin not in self.connect.plugins():
            yield (
                f"{where} has no plug-in {plugin}; add Debezium's to plugin.path of its workers,"
                " and restart them"
            )
        elif validates:
            for setting, said in self.connect.faults(name, trial).items():
                hidden = self.addresses.connector_password
                shown = said.replace(hidden, "(hidden)") if hidden else said
                yield (
                    f"{where} cannot run the connector: {setting}: {shown}; if Connect has another"
                    " address for the database or Kafka, give --database-seen or --kafka-seen"
                )

    def _remove_connector(self) -> None:
        """Remove the connector and its offsets, which workers older than Kafka 3.6 keep."""
        name = self.addresses.name
        if name not in self.connect.connectors():
            return
        try:
            self.connect.halt(name)
            self.connect.forget_offsets(name)
        except UnreachableError as error:
            self.cleanup.say(f"Connect keeps offsets of {name}, which have no effect: {error}")
        self.connect.deregister(name)


def source_settings(addresses: ServerAddresses) -> SourceSettings:
    """Return how `sluice run` logs in to the database."""
    return SourceSettings(
        name=addresses.where,
        host=addresses.host,
        port=addresses.port,
        user=addresses.user,
        password=addresses.password,
        collector=CollectorSettings(),
        prefix=addresses.name,
        tls=addresses.tls,
        ca=addresses.ca,
    )


def service_settings(addresses: ServerAddresses, names: Names) -> dict[str, Any]:
    """Return the source of the service's config; None removes a key of the demo's config."""
    password = {"password": None} if not addresses.password else {}
    tls = {"tls": addresses.tls} if addresses.tls is not None else {}
    return {
        "name": names.source,
        "host": addresses.host,
        "port": addresses.port,
        "user": addresses.user,
        "prefix": names.prefix,
        "heartbeat": names.heartbeats,
        "collector": {"url": {"env": "DEMO_CONNECT"}, "connector": names.prefix},
        "follow_collector": addresses.seen is None,
        **({"ca": addresses.ca} if addresses.ca else {}),
        **password,
        **tls,
    }
