"""Rows are read at the server that ``read_from`` names only if it is a standby of the source."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from pipeline.errors import ProofError
from pipeline.model import Head, Shard
from pipeline.sources.postgres.position import log_position
from pipeline.sources.postgres.row_reader import PostgresRowReader
from pipeline.sources.row_reader import ReadFence, RowsAsked
from tests.builders.values import source_settings

HEAD = Head("1/2/3", log_position(50))
FENCE = ReadFence(HEAD, 7, HEAD.position, "700")
ASKED = RowsAsked(Shard("shop", "public.orders"), ("id",), None, None, 10)


@dataclass
class Server:
    """A server with all that the fence needs, on the timeline of the source."""

    writes: str | None
    asked: list[str] = field(default_factory=list)

    @property
    def session(self) -> Any:
        return self

    def ask(self, statement: str) -> list[dict[str, str]]:
        self.asked.append(statement)
        return [{"oldest": "701", "lsn": HEAD.position.words}]

    def within_limits(self) -> Any:
        raise ReadingError

    def head(self) -> Head:
        return HEAD

    def log_writer(self) -> str | None:
        return self.writes

    def newest_heartbeat(self) -> int:
        return 7

    def heartbeat_time(self) -> None:
        return None


class ReadingError(Exception):
    """Rows would be read now."""


def read(there: str | None) -> None:
    """Read rows at a server that writes the log *there*; the source writes ``started 1``."""
    options = {"database": "shop", "read_from": "b:5432"}
    rows = PostgresRowReader(
        source_settings(kind="postgres", options=options), patience=timedelta()
    )
    rows.server, rows.read_from = cast("Any", Server("started 1")), cast("Any", Server(there))
    rows.read(FENCE, ASKED)


def test_rows_are_not_read_at_a_server_that_writes_a_log_of_its_own() -> None:
    with pytest.raises(ProofError, match=r"not read: it is no standby: .*; correct read_from$"):
        read("started 2")


@pytest.mark.parametrize("there", [None, "started 1"], ids=["a standby", "the source itself"])
def test_rows_are_read_at_a_standby_and_at_the_source_itself(there: str | None) -> None:
    with pytest.raises(ReadingError):
        read(there)
