"""Windows of a source's offsets by partition, and what came late, as HTTP and the verb tell it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from monitor.commands import late
from pipeline.sources.source import PartitionArrivals
from tests.monitor.rig import NOON, Rig

HOUR = "clicks/2026_03_29/05"


@dataclass(frozen=True)
class Shelf:
    """Ten files of a row each, of which those from the offset 8 on came late."""

    def end(self) -> int:
        return 10

    def between(self, after: int, until: int) -> Sequence[PartitionArrivals]:
        rows = max(until - after, 0)
        late = len([at for at in range(after, until) if at >= 8])
        one = PartitionArrivals("logs.clicks", HOUR, rows, rows, late, NOON, NOON)
        return [one] if rows else []

    def late(self, since: datetime | None) -> Sequence[PartitionArrivals]:
        return self.between(8, 10) if since is None or since <= NOON else []

    def close(self) -> None:
        pass


@pytest.fixture
def told(rig: Rig) -> Rig:
    rig.round()
    rig.arrivals = {"logs": Shelf()}
    return rig


def test_a_window_goes_on_where_the_last_one_ended(told: Rig) -> None:
    asked = {"source": "logs", "after": 0, "until": 9}
    first = told.client.get("/v1/arrivals", params=asked).json()
    then = told.client.get("/v1/arrivals", params={**asked, "after": first["until"], "until": 99})

    (one,) = first["partitions"]
    assert (one["partition"], one["files"], one["rows"], one["late"]) == (HOUR, 9, 9, 1)
    assert one["table"] is None  # nothing of it has landed yet
    assert then.json()["until"] == 10
    assert [part["rows"] for part in then.json()["partitions"]] == [1]
    assert told.client.get("/v1/arrivals", params={"source": "logs", "after": 10}).json() == {
        **{"source": "logs", "after": 10, "until": 10, "partitions": []},
    }


def test_a_source_that_tells_of_no_partitions_is_refused(told: Rig) -> None:
    answer = told.client.get("/v1/arrivals", params={"source": "shop"})

    assert answer.status_code == 404
    assert answer.json()["error"] == "no source 'shop' with partitions; known: logs"


def test_late_rows_of_files_are_told_beside_those_of_images(told: Rig, server: str) -> None:
    (found,) = told.client.get("/v1/late").json()
    lines = CliRunner().invoke(late.COMMAND, ["--server", server]).output

    assert (found["partition"], found["rows"], found["landed"]) == (HOUR, 2, NOON.isoformat())
    assert lines == (
        f"logs.clicks {HOUR}: 2 rows of 2 files, the last taken at {NOON.isoformat()}\n"
    )
    later = (NOON + timedelta(seconds=1)).isoformat()
    assert told.client.get("/v1/late", params={"since": later}).json() == []
