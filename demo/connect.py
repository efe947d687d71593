"""Runs a real Kafka Connect, standalone, with Debezium; remote workers have the same interface.

A standalone worker loses its connectors when it ends, but not their offsets. So registrations are
kept here, and `start` registers them again.
"""

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from demo import processes, unpack
from demo.daemon import Daemon
from demo.java import Program
from demo.processes import Process
from demo.web import LOCAL
from pipeline.errors import UnreachableError
from pipeline.settings import without_login

START = timedelta(minutes=4)
RUNNING = timedelta(minutes=4)
STALE = timedelta(seconds=30)  # how long an earlier failure may still be reported
ANSWER = 120.0  # seconds; Connect loads a connector's class before it answers
BALANCED = timedelta(minutes=1)  # how long a cluster may refuse requests while it rebalances
PROVIDERS = "org.apache.kafka.common.config.provider"


class ConnectClient(ABC):
    """Connectors of a worker, or of a cluster of workers, through the REST interface."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Root of the REST interface."""

    def connectors(self) -> list[str]:
        """Names of all connectors."""
        names: list[str] = self._ask("GET", "/connectors")
        return names

    def plugins(self) -> set[str]:
        """Classes of the connectors that the workers have."""
        return {plugin["class"] for plugin in self._ask("GET", "/connector-plugins")}

    def faults(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return setting -> why a connector *name* could not run with it; nothing is registered."""
        plugin = config["connector.class"]
        path = f"/connector-plugins/{plugin}/config/validate"
        answer = self._ask("PUT", path, {**config, "name": name})
        values = [setting["value"] for setting in answer["configs"]]
        return {one["name"]: " ".join(one["errors"]) for one in values if one["errors"]}

    def register(self, name: str, config: Mapping[str, str]) -> None:
        """Create or change a connector; returns when its task runs.

        Raises:
            UnreachableError: Connect refuses it, or its task fails; with the reason.
        """
        before = self._failures(name)
        self.configure(name, config)
        self._wait_for(name, before)

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Create or change a connector; a halted one stays halted.

        Raises:
            UnreachableError: Connect refuses it; with the reason.
        """
        self._ask("PUT", f"/connectors/{name}/config", dict(config))

    def deregister(self, name: str) -> None:
        """Remove a connector; its offsets stay."""
        self._ask("DELETE", f"/connectors/{name}")

    def revive(self, name: str) -> None:
        """Restart what failed of a connector, as an operator would; returns when it runs."""
        before = self._failures(name)
        self._ask("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
        self._wait_for(name, before)

    def pause(self, name: str) -> None:
        """Stop reading; the task stays."""
        self._ask("PUT", f"/connectors/{name}/pause")

    def resume(self, name: str) -> None:
        """Read again after `pause` or `halt`."""
        self._ask("PUT", f"/connectors/{name}/resume")

    def halt(self, name: str) -> None:
        """End the task; its offsets can be changed only then."""
        self._ask("PUT", f"/connectors/{name}/stop")
        stopped = "STOPPED"
        processes.wait_until(
            lambda: self.status(name)["connector"]["state"] == stopped, RUNNING, f"halt of {name}"
        )

    def status(self, name: str) -> dict[str, Any]:
        """Return what Connect reports about a connector and its tasks."""
        answer: dict[str, Any] = self._ask("GET", f"/connectors/{name}/status")
        return answer

    def config(self, name: str) -> dict[str, str]:
        """A connector's settings."""
        answer: dict[str, str] = self._ask("GET", f"/connectors/{name}/config")
        return answer

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return acknowledged positions: `{"partition": {...}, "offset": {...}}` each."""
        answer: list[dict[str, Any]] = self._ask("GET", f"/connectors/{name}/offsets")["offsets"]
        return answer

    def forget_offsets(self, name: str) -> None:
        """Reset a halted connector to the state before its first run."""
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def move_offset(self, name: str, file: str, pos: int, gtids: str = "") -> None:
        """Move a halted connector of a MySQL to another position of the log."""
        (known,) = self.offsets(name)
        kept = {n: one for n, one in known["offset"].items() if n in ("ts_sec", "server_id")}
        more = {"gtids": gtids} if gtids else {}
        self._store(name, known["partition"], {**kept, "file": file, "pos": pos, **more})

    def change_offset(self, name: str, changed: Mapping[str, Any]) -> None:
        """Change the one stored offset of a halted connector."""
        (known,) = self.offsets(name)
        self._store(name, known["partition"], {**known["offset"], **changed})

    def _store(self, name: str, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        stored = {"offsets": [{"partition": partition, "offset": offset}]}
        self._ask("PATCH", f"/connectors/{name}/offsets", stored)

    def _wait_for(self, name: str, before: Collection[str]) -> None:
        """Return when all its tasks run; failures of *before* may still be reported for a while."""
        stale = time.monotonic() + STALE.total_seconds()
        processes.wait_until(
            lambda: self._runs(name, before if time.monotonic() < stale else ()),
            RUNNING,
            f"running connector {name}",
        )

    def _runs(self, name: str, before: Collection[str]) -> bool:
        """Tell whether all its tasks run without failures that are not in *before*."""
        answer = self._answer("GET", f"/connectors/{name}/status")
        if answer.status_code == httpx.codes.NOT_FOUND:  # no worker of the cluster has it yet
            return False
        tasks = answer.json()["tasks"] if answer.is_success else []
        failed = sorted(_traces(tasks) - set(before))
        if failed:
            msg = f"connector {name} failed: {failed[0][:1500]}"
            raise UnreachableError(msg)
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def _failures(self, name: str) -> set[str]:
        """Return why tasks have failed; empty for a connector that does not exist yet."""
        with suppress(UnreachableError):
            return _traces(self.status(name)["tasks"])
        return set()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._answer(method, path, body)
        if answer.is_error:
            msg = f"Connect refuses {method} {path}: {answer.text[:1500]}"
            raise UnreachableError(msg)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:  # such as the page of a proxy
            msg = f"Connect answers {method} {path} with no JSON: {answer.text[:200]!r}"
            raise UnreachableError(msg) from error

    def _answer(self, method: str, path: str, body: Any = None) -> httpx.Response:
        until = time.monotonic() + BALANCED.total_seconds()
        while True:
            try:
                answer = LOCAL.request(method, self.url + path, json=body, timeout=ANSWER)
            except httpx.HTTPError as error:
                msg = f"Connect does not answer at {without_login(self.url)}: {error}"
                raise UnreachableError(msg) from error
            if answer.status_code != httpx.codes.CONFLICT or time.monotonic() > until:
                return answer
            time.sleep(1)


@dataclass(frozen=True, slots=True)
class RemoteConnect(ConnectClient):
    """Workers that others run; ``address`` may contain a login."""

    address: str = field(repr=False)

    @property
    def url(self) -> str:
        """Return the address as it was given."""
        return self.address.rstrip("/")


@dataclass(eq=False)
class Connect(ConnectClient):
    """One worker; its folder contains its connectors and their offsets.

    ``beside`` names folders of jars with connectors that are no plugins, such as MirrorMaker's.
    """

    home: Path
    port: int
    bootstrap: str
    leashed: bool = True
    beside: tuple[str, ...] = ()
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.home = self.home.resolve()
        self.daemon = Daemon("connect", self.home / "connect.log", self.leashed)

    @property
    def url(self) -> str:
        """Root of the REST interface."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the worker, and every connector that was registered before."""
        self.home.mkdir(parents=True, exist_ok=True)
        settings = self.home / "connect.properties"
        settings.write_text(self._settings(), encoding="utf-8")
        self.daemon.start(self._program.command, self._answers, START)
        for name, config in self._registered().items():
            self._ask("PUT", f"/connectors/{name}/config", config)

    def stop(self) -> None:
        """Shut down; offsets and registrations stay."""
        if self.daemon.stop():
            self._program.keep_classes()

    def kill(self) -> None:
        """`kill -9`; what was not flushed is sent again after a restart.

        The kill waits while the worker writes its file of offsets: a standalone worker empties that
        file first, and would then begin with a snapshot. Workers of a cluster keep offsets in a
        topic, and cannot lose them.
        """
        if self.daemon.running and self.daemon.process is not None:
            worker = self.daemon.process
            processes.wait_until(lambda: self._stands_still(worker), START, "offsets on the disk")
        self.daemon.kill()

    def restart(self) -> None:
        """Kill it, and start it again with the same connectors."""
        self.kill()
        self.start()

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Create or change a connector, and remember it for the next start."""
        super().configure(name, config)
        self._remember({**self._registered(), name: dict(config)})

    def deregister(self, name: str) -> None:
        """Remove a connector; its offsets stay."""
        super().deregister(name)
        self._remember({k: v for k, v in self._registered().items() if k != name})

    def _stands_still(self, worker: Process) -> bool:
        """Pause *worker*; return False, and let it continue, if it was writing its offsets."""
        worker.hold()
        try:
            open_files = [file.readlink() for file in Path(f"/proc/{worker.pid}/fd").iterdir()]
        except FileNotFoundError:  # the process has ended meanwhile
            return True
        if self.home / "offsets" not in open_files:
            return True
        worker.signal(signal.SIGCONT)
        return False

    @property
    def _program(self) -> Program:
        settings = str(self.home / "connect.properties")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return Program(main, (settings,), self.home, heap="768m", beside=self.beside)

    def _answers(self) -> bool:
        try:
            return LOCAL.get(f"{self.url}/connectors", timeout=20).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _registered(self) -> dict[str, dict[str, str]]:
        file = self.home / "connectors.json"
        if not file.exists():
            return {}
        known: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
        return known

    def _remember(self, connectors: Mapping[str, Mapping[str, str]]) -> None:
        (self.home / "connectors.json").write_text(json.dumps(connectors), encoding="utf-8")

    def _settings(self) -> str:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        settings = {
            "bootstrap.servers": self.bootstrap,
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.home / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": ",".join(str(folder) for folder in unpack.plugins()),
            "plugin.discovery": "service_load",
            "config.providers": "file",  # so that passwords can be references: ${file:PATH:KEY}
            "config.providers.file.class": f"{PROVIDERS}.FileConfigProvider",
            "listeners": self.url,
            "connector.client.config.override.policy": "All",
            "producer.acks": "all",
            "producer.enable.idempotence": "true",
            "producer.max.in.flight.requests.per.connection": "1",
            "producer.retries": "2147483647",
            "producer.delivery.timeout.ms": "2147483647",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _traces(tasks: list[dict[str, str]]) -> set[str]:
    return {task["trace"] for task in tasks if task["state"] == "FAILED"}
