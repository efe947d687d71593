"""Runs a bucket on this machine, for a lake in object storage; its server can be made to fail."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import obstore
from obstore.store import S3Store

from demo.daemon import Daemon
from demo.ports import listening

START = timedelta(minutes=4)
BUCKET = "bucket"
KEY, SECRET = "sluice", "sluice-secret"


@dataclass(eq=False)
class S3:
    """One server on a loopback port with one bucket; its content is lost when it ends."""

    home: Path
    port: int
    leashed: bool = True
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started."""
        self.daemon = Daemon("s3", self.home / "s3.log", self.leashed)

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment with which a process reaches the bucket."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def start(self) -> None:
        """Start it with an empty bucket; returns when the bucket exists."""
        self.home.mkdir(parents=True, exist_ok=True)
        command = (sys.executable, "-m", "demo.s3_server", str(self.port), KEY, BUCKET)
        self.daemon.start(command, lambda: listening(self.port), START)

    def stop(self) -> None:
        """End it."""
        self.daemon.stop()

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """Make it fail with *fault* (a ``Fault`` of its server) until the block ends."""
        self._tell(fault)
        try:
            yield
        finally:
            self._tell("")

    def names(self, prefix: str) -> list[str]:
        """Keys below *prefix*."""
        store = S3Store(
            BUCKET,
            endpoint=self.url,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region="us-east-1",
            client_options={"allow_http": True},
        )
        return [str(one["path"]) for chunk in obstore.list(store, prefix) for one in chunk]

    def _tell(self, fault: str) -> None:
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            http.put("/-/fault", content=fault).raise_for_status()
