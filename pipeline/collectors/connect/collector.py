"""Queries Debezium on Kafka Connect: stored offset, state, settings, and server address.

Kafka has every record before the stored offset, which is up to `offset.flush.interval.ms` old.
Its content depends on the kind of database.

`examine_connector` collects the findings for `sluice doctor` from the other modules of this
package. The collector also registers the connector and changes its settings.
"""

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import httpx

from pipeline.collectors.collector import (
    HIDDEN,
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
    Registration,
    is_secret,
)
from pipeline.collectors.connect.config import (
    alternative_settings,
    find_references,
    firm_demands,
    holds_secret,
    is_forbidden,
    list_transforms,
    require_references,
    required_config,
)
from pipeline.collectors.connect.database import (
    database_of_connector,
    database_of_kind,
    every_database,
)
from pipeline.collectors.connect.findings import (
    connector_findings,
    find_config_hazards,
    heartbeat_findings,
    largest_record,
    producer_findings,
)
from pipeline.collectors.connect.requirements import version_findings
from pipeline.collectors.connect.routing import follow_routers
from pipeline.collectors.connect.table_filter import find_column_settings, read_capture
from pipeline.errors import ConfigError, UnreachableError
from pipeline.finding import WARN, Finding
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.http import BoundedClient
from pipeline.model import Acknowledged, CaptureScope, Missing, TopicPartition
from pipeline.settings import SourceSettings, TlsSettings, without_login
from pipeline.tls import verify_option

HISTORY = "schema.history.internal.kafka.topic"


def examine_connector(
    settings: SourceSettings,
    state: CollectorState,
    config: Mapping[str, str],
    worker: Mapping[str, str] | None,
    plugins: Sequence[Any] = (),
) -> CollectorExamination:
    """Findings on its state, settings, producer and version, and on the heartbeat table.

    *plugins* are those that its worker lists.
    """
    where = f"collector:{settings.name}"
    return CollectorExamination(
        (
            *_state(state, settings.collector.connector, where),
            *connector_findings(config, where, source=settings, worker=worker),
            *producer_findings(config, where, worker),
            *heartbeat_findings(config, settings.heartbeat, where),
            *version_findings(database_of_kind(settings.kind).least, config, plugins, where),
        ),
        kept_topic=config.get(HISTORY, ""),
        own_keys="message.key.columns" in config,
        largest=largest_record(config, worker),
    )


def _state(state: CollectorState, connector: str, where: str) -> list[Finding]:
    if state.running:
        return []
    what = f"connector {connector} is {state.state}: {state.detail}".rstrip(": ")
    fix = f"POST /connectors/{connector}/restart?includeTasks=true"
    return [Finding(WARN, "state", where, what, fix)]


LONGEST_MESSAGE = 1_000  # characters of a message of Connect
VALIDATION = timedelta(seconds=30)  # Connect connects to the database to validate settings
WORST_FIRST = ("failed", "unassigned", "restarting", "stopped", "paused", "running")


@dataclass(eq=False)
class ConnectCollector:
    """One connector of one Connect cluster, queried by REST at the address of any worker.

    ``settings`` are settings of the connector that are added, or override those of Sluice.
    ``unavailable`` is the placeholder that the source's format reads as an unsent value.
    ``source`` is the source that it collects; its names and topics are compared with the
    connector's.
    ``ca``, ``certificate`` and ``key`` are PEM files for an https address.
    Methods that send requests raise UnreachableError if the worker or connector does not answer.
    """

    usual_kind: ClassVar[str] = "mysql"
    usual_format: ClassVar[str] = "debezium_json"
    rests_on: ClassVar[str] = ""
    url: str = field(repr=False)  # it may contain a user and password
    connector: str
    timeout: timedelta = timedelta(seconds=3)
    """How long one answer may take."""
    settings: Mapping[str, str] = field(default_factory=dict)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    unavailable: str = UNAVAILABLE
    source: SourceSettings | None = None
    _client: BoundedClient = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Build the client; this sends no request.

        Raises:
            ConfigError: ``url`` is not an address, ``settings`` hold a secret in clear text, or a
                PEM file cannot be used.
        """
        if not _address(self.url):
            shown = without_login(self.url)
            raise ConfigError(f"collector.url: {shown!r} is not an address; write http://host:port")
        require_references(self.settings)
        self._client = BoundedClient(
            base_url=self.url.rstrip("/"), timeout=self.timeout, verify=self._verification()
        )

    def acknowledged(self) -> Acknowledged | Missing:
        """The stored offset; Missing if none is stored yet, or its form is unknown."""
        with self._understanding("/offsets"):
            stored = self._get("/offsets").get("offsets", [])
            if len(stored) > 1:  # offsets of an earlier topic prefix remain forever
                prefix = self._settings().get("topic.prefix")
                stored = [entry for entry in stored if entry["partition"].get("server") == prefix]
            if not stored:
                return Missing(f"connector {self.connector} has not stored an offset yet")
            return _acknowledged(stored[0].get("offset") or {})

    def carried(self) -> Mapping[TopicPartition, int]:
        """Last offset of each partition that this connector, a MirrorMaker 2, has replicated."""
        alias = self._settings().get("source.cluster.alias")
        with self._understanding("/offsets"):
            offsets = self._get("/offsets").get("offsets", [])
            return {
                TopicPartition(at["topic"], int(at["partition"])): int(entry["offset"]["offset"])
                for entry in offsets
                if entry["offset"] and (at := entry["partition"]).get("cluster") == alias
            }

    def address(self) -> tuple[str, int]:
        """Host and port of the database that the connector is configured to read."""
        config = self._settings()
        try:
            port = config.get("database.port", database_of_connector(config).port)
            return config["database.hostname"], int(port)
        except (KeyError, ValueError) as error:
            msg = f"connector {self.connector} names no database.hostname and database.port"
            raise UnreachableError(msg) from error

    def config(self) -> Mapping[str, str]:
        """All settings except those that hold secrets; a secret in another setting is hidden."""
        return {
            name: HIDDEN if is_secret(value, named=False) else value
            for name, value in self._settings().items()
            if not holds_secret(name)
        }

    def captures(self) -> CaptureScope:
        """The tables by its lists and routers, with the hazards of its settings."""
        config = self._settings()
        where = f"connector {self.connector}"
        found = find_config_hazards(config, where, self.unavailable, self.source)
        lists = follow_routers(read_capture(config), config, self.source)
        return replace(lists, alters=find_column_settings(config), hazards=found)

    def state(self) -> CollectorState:
        """The worst state of connector and tasks, as Connect names it, in lower case."""
        with self._understanding("/status"):
            status = self._get("/status")
            parts = [status.get("connector", {}), *status.get("tasks", [])]
            if len(parts) == 1 and parts[0].get("state") == "RUNNING":
                return CollectorState("unassigned", "the connector has no task yet")
            worst = min(parts, key=_badness)
            trace = _brief(worst.get("trace") or "")
            return CollectorState(str(worst.get("state", "")).lower(), trace)

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Findings on its present state, settings and version."""
        return examine_connector(settings, self.state(), self.config(), worker, self._plugins())

    def registration(self, scope: CollectionScope) -> Registration:
        """How to register it with Debezium's settings for *scope*."""
        return Registration(
            required_config(scope, self.settings),
            firm_demands(scope, self.settings),
            alternative_settings(self.settings),
            holds_secret,
            self._registered,
            self._register,
            lambda name: is_forbidden(scope, self.settings, name),
            lambda wanted, now: {**now, **list_transforms(scope.source, {**wanted, **now})},
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _verification(self) -> ssl.SSLContext | bool:
        files = TlsSettings(ca=self.ca, certificate=self.certificate, key=self.key)
        try:
            return verify_option(self.url, files)
        except ConfigError as error:
            raise ConfigError(f"collector.{error}") from error

    def _registered(self) -> Mapping[str, str] | None:
        """All its settings, secrets included; None if the connector does not exist."""
        if not self._exists():
            return None
        return self._settings()

    def _register(self, settings: Mapping[str, str]) -> None:
        """Create or change the connector; Connect restarts its task.

        Raises:
            ConfigError: Connect rejects the settings.
        """
        answer = self._answer("PUT", "/config", dict(settings))
        if answer.status_code == httpx.codes.BAD_REQUEST:
            said = f"{self._where} refuses these settings: {_said(answer)}"
            raise ConfigError(f"{said}{_unresolved(settings)}")
        self._found(answer, "/config")

    def _exists(self) -> bool:
        """False only if the answer is 404 with JSON: a proxy's 404 proves nothing."""
        answer = self._answer("GET", "/config")
        if answer.status_code != httpx.codes.NOT_FOUND:
            return True
        return not (answer.headers.get("content-type", "").startswith("application/json"))

    def _plugins(self) -> list[Any]:
        """The plugins that the worker lists, each with class and version."""
        answer = self._request("GET", "/connector-plugins", None)
        try:
            found = _readable(answer.json()) if answer.is_success else None
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            return found
        msg = f"{self._where} answered /connector-plugins with {answer.status_code} and no list"
        raise UnreachableError(msg)

    def _settings(self) -> dict[str, str]:
        """All its settings, secrets included.

        Raises:
            UnreachableError: a value is not text.
        """
        config = self._get("/config")
        odd = [name for name, value in config.items() if not isinstance(value, str)]
        if odd:
            name = odd[0].partition(".with.salt.")[0]
            what = f"{self._where} answered /config with a {name} that is no text"
            raise UnreachableError(f"{what}; write it as text, or remove it")
        return config

    @contextmanager
    def _understanding(self, path: str) -> Iterator[None]:
        """Raise UnreachableError if an answer has an unknown form."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            what = f"{self._where} answered {path} in a form that is not known"
            raise UnreachableError(f"{what}: {type(error).__name__}: {error}") from error

    def _get(self, path: str) -> dict[str, Any]:
        return self._found(self._answer("GET", path), path)

    @property
    def _where(self) -> str:
        return f"connector {self.connector} at {self._client.base_url.netloc.decode()}"

    def _answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self._request(method, f"/connectors/{quote(self.connector, safe='')}{path}", body)

    def _request(self, method: str, url: str, body: Any) -> httpx.Response:
        patience = self.timeout if body is None else max(self.timeout, VALIDATION)
        try:
            return self._client.request(method, url, json=body, timeout=patience.total_seconds())
        except (httpx.HTTPError, UnicodeError) as error:  # UnicodeError: an invalid host name
            msg = f"{self._where}: {type(error).__name__}: {error}"
            raise UnreachableError(msg) from error

    def _found(self, answer: httpx.Response, path: str) -> dict[str, Any]:
        try:
            found = _readable(answer.json())
        except (ValueError, RecursionError) as error:
            msg = f"{self._where} answered {path} with {answer.status_code} and no JSON"
            raise UnreachableError(msg) from error
        if answer.is_success and isinstance(found, dict):
            return found
        msg = f"{self._where} answered {path} with {answer.status_code}: {_said(answer)}"
        raise UnreachableError(msg)


def _readable(answer: Any) -> Any:
    """The *answer* with "?" for each lone surrogate, which no store or page can encode."""
    return json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))


def _said(answer: httpx.Response) -> str:
    """Connect's error message in one line; empty if the answer has none."""
    try:
        found = _readable(answer.json())
    except (ValueError, RecursionError):
        return ""
    said = found.get("message", "") if isinstance(found, dict) else ""
    return " ".join(str(said).split())[:LONGEST_MESSAGE]


def _unresolved(settings: Mapping[str, str]) -> str:
    """Advice to append to an error if *settings* have references; empty without them."""
    found = find_references(settings)
    if not found:
        return ""
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    return (
        f"; if the database denies access, Connect must resolve {', '.join(found)}: set these"
        " variables for its workers, and in"
        f" their file config.providers=env and config.providers.env.class={provider}"
    )


def _address(url: str) -> bool:
    try:
        found = urlsplit(url)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # an invalid port or bracket
        return False


def _acknowledged(offset: Mapping[str, Any]) -> Acknowledged | Missing:
    positions = (one.acknowledged(offset) for one in every_database())
    unknown = Missing(f"the stored offset has no position of a log, only {sorted(offset)}")
    return next((said for said in positions if said is not None), unknown)


def _badness(part: Mapping[str, Any]) -> int:
    state = str(part.get("state", "")).lower()
    return WORST_FIRST.index(state) if state in WORST_FIRST else 0


def _brief(trace: str) -> str:
    """The first line and the root cause of a stack trace."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return " | ".join(dict.fromkeys([*lines[:1], *causes[-1:]]))[:500]


COLLECTOR: type[Collector] = ConnectCollector
