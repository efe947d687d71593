"""Pipes through the shared servers, and a registry; what they registered ends with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.postgres import Postgres
from demo.servers import Servers
from pipeline.landing import gaps
from tests.pipeline.live import Pipe
from tests.pipeline.postgres_live import PostgresPipe
from tests.pipeline.registry_server import Answers, registry_server


@pytest.fixture
def pipe(servers: Servers, spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Pipe]]:
    """A way to get a pipe of a database name, with fields of its own."""
    del spark  # lanes take up the session that is there
    with ExitStack() as ended:

        def make(name: str, **fields: Any) -> Pipe:
            made = Pipe(servers, tmp_path / name, name, **fields)
            ended.callback(made.end)
            return made

        yield make


@pytest.fixture
def postgres_pipe(
    servers: Servers, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[..., PostgresPipe]]:
    """The same of Postgres; the version ends the database's name."""
    del spark  # lanes take up the session that is there
    with ExitStack() as ended:

        def make(name: str, **fields: Any) -> PostgresPipe:
            name = f"{name}_{postgres.version}"
            made = PostgresPipe(servers, tmp_path / name, name, postgres=postgres, **fields)
            ended.callback(made.end)
            return made

        yield make


@pytest.fixture
def lists_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a collector count one second after they were seen first, not thirty."""
    monkeypatch.setattr(gaps, "GRACE", timedelta(seconds=1))


@pytest.fixture
def registry() -> Iterator[Answers]:
    """A schema registry that answers as it is told."""
    with registry_server() as made:
        yield made
