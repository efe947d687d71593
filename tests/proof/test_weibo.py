"""The system of docs/systems/weibo.md, from files to gate, and what it outlives."""

import gzip
import shutil
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.processes import wait_until
from tests.proof.test_kill import new_folder
from tests.proof.weibo import SOON, Weibo, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(scope="module")
def weibo(request: pytest.FixtureRequest) -> Iterator[Weibo]:
    """What it has written stays where a test failed."""
    failed, made = request.session.testsfailed, Weibo(new_folder("weibo"))
    try:
        yield made
    finally:
        made.stop()
    if request.session.testsfailed == failed:
        shutil.rmtree(made.home)


def test_rows_of_files_are_mirrored_once_each_and_the_gate_opens(weibo: Weibo) -> None:
    weibo.put("views", "a.json", *({"id": n, "page": f"p{n}"} for n in range(100)))
    weibo.put("views", "b.json", {"id": 100, "page": "late"}, ago=5)
    weibo.start()
    cut = now()

    weibo.ready("views", cut)
    assert weibo.mirrored("views") == weibo.written["views"]


def test_files_that_arrive_while_the_service_is_killed_are_mirrored_once(weibo: Weibo) -> None:
    """One that is late by hours, one of the past and one of the future by their clocks, too."""
    for number in range(30):
        rows = ({"user": number, "url": f"u{n}"} for n in range(50))
        skew = {3: -90 * 86_400, 4: 3_600}.get(number, 0)
        weibo.put("clicks", f"{number}.json", *rows, ago=number % 7, skew=skew)
        if number in (10, 20):
            wait_until(lambda: bool(weibo.mirrored("clicks")), SOON, "the first rows")
            weibo.kill()
            weibo.put("clicks", f"between{number}.json", {"user": -number, "url": "x"})
            weibo.start()
    cut = now()

    weibo.ready("clicks", cut)
    assert weibo.mirrored("clicks") == weibo.written["clicks"]
    assert {row["_hour"] for row in weibo.rows("clicks")} >= {
        int(weibo.place("clicks", "x", ago).parent.name) for ago in range(7)
    }


def test_rows_of_a_late_hour_reach_a_copy_once_each(weibo: Weibo) -> None:
    weibo.put("clicks", "late.json", {"user": 7, "url": "nine hours late"}, ago=9)

    wait_until(lambda: weibo.copied() == weibo.written["clicks"], SOON, "all rows in the copy")


def test_csv_parquet_and_packed_files_are_rows_like_any_other(weibo: Weibo) -> None:
    with weibo.beside(weibo.place("orders", "a.csv")) as path:
        path.write_text('id,note\n1,"two\nlines"\n2,\n')
    weibo.note("orders", {"id": "1", "note": "two\nlines"}, {"id": "2"})
    with weibo.beside(weibo.place("orders", "b.parquet")) as path:
        pq.write_table(pa.table({"id": ["3"], "note": ["x"]}), path)
    weibo.note("orders", {"id": "3", "note": "x"})
    with weibo.beside(weibo.place("orders", "c.csv.gz")) as path:
        path.write_bytes(gzip.compress(b"id,note\n4,packed\n"))
    weibo.note("orders", {"id": "4", "note": "packed"})
    cut = now()

    weibo.ready("orders", cut)
    assert weibo.mirrored("orders") == weibo.written["orders"]


def test_a_file_that_is_rewritten_or_half_written_blocks_its_table_by_name(weibo: Weibo) -> None:
    path = weibo.put("views", "c.json", {"id": 200, "page": "once"})
    cut = now()
    weibo.ready("views", cut)

    path.write_text('{"id": 201, "page": "again"}\n')
    weibo.place("views", "half.json").write_text('{"id": 202, "pa')

    weibo.blocked("views", "undecoded change", "logs.views")
    assert weibo.mirrored("views") == weibo.written["views"]
    weibo.ready("clicks", now())


def test_late_hours_are_told_with_their_rows(weibo: Weibo) -> None:
    late = {one["partition"]: one for one in weibo.ask("/v1/late") if one["shard"] == "logs.clicks"}
    every = weibo.ask("/v1/arrivals", source="logs")["partitions"]

    clicks = [one for one in every if one["shard"] == "logs.clicks"]
    assert sum(one["rows"] for one in clicks) == sum(weibo.written["clicks"].values())
    assert {one["table"] for one in clicks} == {"logs.clicks"}
    folders = (weibo.place("clicks", "x", ago).parent for ago in range(2, 7))
    assert {str(one.relative_to(weibo.base)) for one in folders} <= late.keys()
