"""Runs a real schema registry (Apicurio) with Confluent's interface; its schemas survive a kill."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx

from demo import unpack
from demo.daemon import Daemon
from demo.web import LOCAL
from pipeline.spark import jars

START = timedelta(minutes=4)
MAIN = "io.quarkus.runner.GeneratedMain"


@dataclass(eq=False)
class Registry:
    """One registry on a loopback port, its database a file in *home*."""

    home: Path
    port: int
    leashed: bool = True
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.home = self.home.resolve()
        self.daemon = Daemon("registry", self.home / "registry.log", self.leashed)

    @property
    def url(self) -> str:
        """Root of the interface that Confluent's clients know."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def own_url(self) -> str:
        """Root of the interface that Apicurio's converter knows."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v2"

    def start(self) -> None:
        """Start on the existing schemas; returns when it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.daemon.start(self._command, self._answers, START)

    def stop(self) -> None:
        """Shut down; the schemas stay."""
        self.daemon.stop()

    def kill(self) -> None:
        """`kill -9`; the schemas stay."""
        self.daemon.kill()

    def converter(self, side: str) -> dict[str, str]:
        """Return settings with which a connector writes *side* (`key`, `value`) as Confluent.

        The numbers are content ids, as the Confluent API of this registry returns them.
        """
        settings = {
            "": "io.apicurio.registry.utils.converter.AvroConverter",
            ".apicurio.registry.url": self.own_url,
            ".apicurio.registry.auto-register": "true",
            ".apicurio.registry.find-latest": "false",
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.use-id": "contentId",
            ".apicurio.registry.headers.enabled": "false",
        }
        return {f"{side}.converter{name}": value for name, value in settings.items()}

    @property
    def _command(self) -> tuple[str, ...]:
        place = unpack.registry()
        return (
            jars.find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.http.access-log.enabled=false",
            "-Dquarkus.log.level=WARN",
            f"-Dapicurio.datasource.url=jdbc:h2:file:{self.home / 'schemas'}",
            *("-cp", f"{place}/*:{place}/lib/*"),
            MAIN,
        )

    def _answers(self) -> bool:
        try:
            return LOCAL.get(f"{self.url}/subjects", timeout=20).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False
