"""The example job waits at a real gate, and merges what was certified, once."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from examples.merge_job import ask, certified_version, merge_day
from tests.monitor.rig import ORDERS, Rig
from tests.monitor.serving import serving

DAY = "2026-03-28"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "rig")
    made.round()
    made.round()
    yield made
    made.close()


@pytest.fixture
def gate(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address


def orders(*rows: tuple[int, str, int]) -> pa.Table:
    columns = zip(*rows, strict=True)
    names = ("id", "customer", "amount")
    return pa.table(dict(zip(names, columns, strict=True)))


@pytest.mark.spark
def test_a_job_merges_the_certified_version_and_nothing_newer(
    spark: SparkSession, gate: str, tmp_path: Path
) -> None:
    mirror, target = str(tmp_path / "mirror"), str(tmp_path / "revenue")
    version = certified_version(gate, ORDERS, DAY, patience=0, wait=0)
    write_deltalake(mirror, orders((0, "ann", 1)))
    for number in range(1, version + 3):  # two versions more than what was certified
        write_deltalake(mirror, orders((number, "ann" if number % 2 else "bob", 1)), mode="append")

    for _ in range(2):
        merge_day(spark, mirror, version, DAY, target)

    found = spark.sql(f"SELECT customer, orders FROM delta.`{target}`").collect()
    assert DeltaTable(mirror).version() == version + 2
    assert sum(row["orders"] for row in found) == version + 1
    assert len({row["customer"] for row in found}) == len(found)


def test_a_job_waits_while_the_day_is_not_complete(gate: str) -> None:
    with pytest.raises(TimeoutError, match="not complete up to 2027-01-01"):
        certified_version(gate, ORDERS, "2027-01-01", patience=0, wait=0)


def test_a_job_waits_for_a_service_that_is_away() -> None:
    with pytest.raises(TimeoutError, match="Connection refused"):
        certified_version("http://127.0.0.1:9", ORDERS, DAY, patience=0, wait=0)


@contextmanager
def stranger(status: int, headers: Mapping[str, str], body: str) -> Iterator[tuple[str, list[str]]]:
    """A server that is no gate: its address, and the tokens that it was sent."""
    tokens = list[str]()

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        server.server_close()


YES = '{"ready": true, "tables": [{"version": 7}]}'
READY = {"Sluice-Gate": "ready"}
NO_YES = {
    "no header": (200, {}, YES),
    "another state": (200, {"Sluice-Gate": "not_ready"}, YES),
    "another status": (202, READY, YES),
    "blocked": (409, {"Sluice-Gate": "blocked"}, YES),
    "another's 404": (404, {}, YES),
    "a page of a 404": (404, {}, "<html>no such page</html>"),
    "a page": (200, {}, "<html>log in</html>"),
    "a list": (200, {}, "[]"),
}


@pytest.mark.parametrize(("status", "headers", "body"), NO_YES.values(), ids=NO_YES)
def test_only_the_gates_own_yes_is_a_yes(
    status: int, headers: Mapping[str, str], body: str
) -> None:
    with stranger(status, headers, body) as (address, _), pytest.raises(RuntimeError) as refused:
        certified_version(address, ORDERS, DAY, patience=0, wait=0)

    assert str(refused.value).startswith(f"the gate will not open for {ORDERS}: {status} ")


def test_whom_a_redirect_names_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_TOKEN", "0123456789abcdef")
    with (
        stranger(200, READY, YES) as (other, theirs),
        stranger(302, {"Location": f"{other}/v1/gate"}, "") as (address, ours),
        pytest.raises(RuntimeError, match=r"will not open for .*: 302 "),
    ):
        certified_version(address, ORDERS, DAY, patience=0, wait=0)

    assert (ours, theirs) == (["Bearer 0123456789abcdef"], [])


def test_a_proxy_of_the_environment_is_not_asked(
    gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stranger(200, READY, YES) as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        version = certified_version(gate, ORDERS, DAY, patience=0, wait=0)

    assert asked == []
    assert version != 7


@pytest.mark.parametrize(
    ("table", "cut"), [("no.such", DAY), (ORDERS, "yesterday")], ids=["a table", "a cut"]
)
def test_a_wrong_question_ends_the_job_at_once(gate: str, table: str, cut: str) -> None:
    assert ask(gate, table, cut, 0)[0] == 400

    with pytest.raises(RuntimeError, match="will not open"):
        certified_version(gate, table, cut, patience=3600, wait=0)
