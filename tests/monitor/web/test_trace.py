"""A traced row is shown alike by the API, by the page and by the verb, and no value is markup."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import anyio.to_thread
import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from checks.trace import TraceState
from monitor.commands.trace import COMMAND
from monitor.observe.tables import TableRegistry
from monitor.web.api import build_application
from monitor.web.deps import BusyError, ThreadLimit
from monitor.web.trace import SHOWN, render_value
from pipeline.model import CaptureScope, Op, Table
from tests.builders.lake import LocalLake, row
from tests.monitor.rig import Client, Rig
from tests.monitor.serving import serving
from tests.monitor.test_tracing import based, named, proving
from tests.monitor.traced import TracedLake

PATH = "/v1/tables/db.t/trace"
WILD = "<script>alert(1)</script>"


@pytest.fixture
def traced(tmp_path: Path) -> TracedLake:
    """Row 1 is right, row 2 has another name at the source, and row 3 is only there."""
    made = proving(TracedLake(based(LocalLake(tmp_path / "traced"))))
    made.lake.play([row(Op.CREATE, 10, 1, WILD), row(Op.CREATE, 11, 2, "b")])
    for key, name in (("1", WILD), ("2", None), ("3", "x")):
        made.source.put(key, {"id": int(key), "name": name})
    return made


@pytest.fixture
def app(rig: Rig, traced: TracedLake, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    return build_traced(rig, traced, monkeypatch)


def build_traced(rig: Rig, traced: TracedLake, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The application with one table, that of *traced*."""
    table = traced.lake.catalog.table("db.t", traced.lake.checkpoint.shards)

    def known(_: TableRegistry, name: str) -> Table | None:
        return table if name == table.name else None

    monkeypatch.setattr(TableRegistry, "table", known)
    return build_application(replace(rig.api_parts(), rows=traced.tracer()))


@pytest.fixture
def server(app: FastAPI) -> Iterator[str]:
    with serving(app) as address:
        yield address


def verb(server: str, *words: str) -> Result:
    return CliRunner().invoke(COMMAND, ["db.t", *words, "--server", server])


def test_the_api_shows_all_hops(app: FastAPI) -> None:
    found = Client(app).get(PATH, params={"key": "2"}).json()

    (one,) = found["traces"]
    assert (found["key"], one["shard"], one["state"]) == ('["2"]', "s/db.t", "DIFFERENT")
    assert one["columns"] == ["name"]
    assert one["advice"].startswith("read the row again: sluice repair db.t --keys '[\"2\"]'")
    assert one["source"] == {"why": None, "row": {"id": "2", "name": None}, "not_shown": {}}
    assert one["mirror"]["row"] == {"id": "2", "name": "b"}
    assert (one["mirror"]["order"], one["mirror"]["batch"]) == ("1/1/11/0", 0)
    (change,) = one["change_log"]["changes"]
    assert (change["op"], change["order"], change["place"]) == ("c", "1/1/11/0", "s.db.t:0:11")
    assert one["topic"]["records"] == one["quarantine"]["messages"] == []
    assert found["search"]["down_to"] == 0


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        pytest.param("/v1/tables/db.x/trace?key=1", 404, "no table 'db.x'", id="no table"),
        pytest.param(f"{PATH}?key=x", 400, "no value of key column id", id="no key of it"),
        pytest.param(f"{PATH}?key=1&at=yesterday", 400, "yesterday", id="no instant"),
        pytest.param(PATH, 400, "key", id="no key at all"),
        pytest.param("/trace?table=db.x", 404, "no table 'db.x'", id="a page of no table"),
    ],
)
def test_what_cannot_be_traced_is_refused(app: FastAPI, path: str, status: int, why: str) -> None:
    answer = Client(app).get(path)

    assert answer.status_code == status
    assert why in answer.json()["error"]


def test_the_page_shows_the_same_and_no_value_is_markup(app: FastAPI) -> None:
    client = Client(app)
    empty = client.get("/trace", params={"table": "db.t"}).text
    right = client.get("/trace", params={"table": "db.t", "key": "1"}).text
    wrong = client.get("/trace", params={"table": "db.t", "key": "2"}).text
    odd = client.get("/trace", params={"table": "db.t", "key": WILD}).text

    assert "<form" in empty
    assert "data-state" not in empty
    assert 'data-state="MERGED"' in right
    assert 'data-state="DIFFERENT"' in wrong
    assert '<tr class="differs"><th>name</th><td><i>NULL</i></td><td>b</td></tr>' in wrong
    assert "no value of key column id" in odd
    assert "<script>" not in empty + right + wrong + odd
    assert "&lt;script&gt;" in right
    assert "&lt;script&gt;" in odd


def test_the_page_speaks_in_words_and_shows_the_key_as_it_was_typed(
    app: FastAPI, traced: TracedLake
) -> None:
    traced.lake.play([row(Op.DELETE, 20, 2)])
    traced.source.rows.pop(("db.t", '["2"]'))
    client = Client(app)
    gone = client.get("/trace", params={"table": "db.t", "key": "id=2"}).text
    lost = client.get("/trace", params={"table": "db.t", "key": "3"}).text

    assert "</span> id=2 in s/db.t</h2>" in gone
    assert '<td colspan="3"><i>no row on either side</i></td>' in gone
    assert "delete in batch 1, order 1/1/20/0, live" in gone
    assert "create in batch 0, order 1/1/11/0, live" in gone
    assert "no row on either side" not in lost


def test_page_api_and_verb_say_that_the_source_spells_the_key_otherwise(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = TracedLake(based(LocalLake(tmp_path / "words", key=("name",))))
    traced.source.fold = str.casefold
    traced.lake.play([named("db.t", 10, "Abc")])
    traced.source.put("Abc", {"id": 10, "name": "Abc"})
    app = build_traced(rig, traced, monkeypatch)

    page = Client(app).get("/trace", params={"table": "db.t", "key": "abc"}).text
    with serving(app) as address:
        said = verb(address, "abc").output

    assert "The source spells this key <code>[&#34;Abc&#34;]</code>" in page
    assert 'data-state="MERGED"' in page
    assert "the source spells the key so; it is looked for in the other hops" in said


def test_the_verb_shows_the_same(server: str) -> None:
    right, wrong, lost = (verb(server, key) for key in "123")

    assert (right.exit_code, wrong.exit_code, lost.exit_code) == (0, 4, 4)
    lines = [line for line in wrong.output.splitlines() if "[info" not in line]
    assert lines[0] == 'db.t ["2"] in s/db.t: DIFFERENT'
    assert lines[1] == "  the mirror has other values than the source: name"
    assert "  source      id=2, !name=NULL" in lines
    assert any(line.startswith("  change log  c batch 0, order 1/1/11/0, live") for line in lines)
    assert "              id=2, !name=b" in lines
    assert lines[-1].startswith("searched: ")
    assert "NOT_CAPTURED" in lost.output
    assert "  mirror      version" in lost.output


def test_a_value_begins_no_line_of_the_verb(traced: TracedLake, server: str) -> None:
    forged = 'x\ndb.t ["2"] in s/db.t: MERGED\r\n  what to do: nothing'
    traced.source.put("2", {"id": 2, "name": forged})

    said = verb(server, "2").output.splitlines()

    assert [line for line in said if line.startswith("db.t ")] == [
        'db.t ["2"] in s/db.t: DIFFERENT'
    ]
    (shown,) = (line for line in said if line.startswith("  source "))
    assert shown.endswith('name=x\\ndb.t ["2"] in s/db.t: MERGED\\r\\n  what to do: nothing')


def mask_name(column: str) -> str:
    return "column.mask" if column == "db.t.name" else ""


def test_page_and_verb_say_what_is_not_shown(traced: TracedLake, app: FastAPI, server: str) -> None:
    traced.source.put("2", {"id": 2, "name": "secret"})
    traced.captures = lambda: CaptureScope(lambda _: True, alters=mask_name)

    page, text = Client(app).get("/trace?table=db.t&key=2").text, verb(server, "2").output

    assert "<td><i>not shown: the collector alters it (column.mask)</i></td><td>b</td>" in page
    assert "id=2, name is not shown: the collector alters it (column.mask)" in text
    assert "secret" not in page + text


def test_an_undecided_row_ends_with_another_status(server: str, traced: TracedLake) -> None:
    traced.source.silent = True

    found = verb(server, "1")

    assert found.exit_code == 3
    assert "UNDECIDED" in found.output
    assert "did not answer: source:s: connection refused" in found.output
    assert "name=<script>" in found.output, "the mirror is shown"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_traces_no_row(app: FastAPI, traced: TracedLake, site: str) -> None:
    """An image of any page would commit heartbeats at the source."""
    client, headers = Client(app), {"Sec-Fetch-Site": site}

    refused = [
        client.get(path, headers=headers)
        for path in ("/trace?table=db.t&key=2", "/trace?table=db.t&%6bey=2", f"{PATH}?key=2")
    ]
    link = client.get("/trace?table=db.t", headers=headers)
    own = client.get("/trace?table=db.t&key=1", headers={"Sec-Fetch-Site": "same-origin"})

    assert [one.status_code for one in refused] == [403, 403, 403]
    assert "open the address directly" in refused[0].json()["error"]
    assert (link.status_code, own.status_code) == (200, 200)
    assert traced.source.beats == 1, "only our own page traced"


@pytest.mark.parametrize("path", ["/trace?table=db.t&key=1", f"{PATH}?key=1"])
def test_head_traces_no_row(app: FastAPI, traced: TracedLake, path: str) -> None:
    answer = Client(app).ask("HEAD", path)

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert traced.source.beats == 0


def test_beyond_so_many_no_trace_waits_and_none_takes_a_thread_of_the_gate() -> None:
    limit, end = ThreadLimit("traces", 1, 1), Event()

    async def ask() -> list[bool | int]:
        first = asyncio.create_task(limit.run(lambda: end.wait(5)))
        second = asyncio.create_task(limit.run(lambda: 2))
        await asyncio.sleep(0)  # both have begun
        with pytest.raises(BusyError, match="2 traces already run or wait; try again later"):
            await limit.run(lambda: 3)
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        end.set()
        return [await first, await second, await limit.run(lambda: 3)]

    assert asyncio.run(ask()) == [True, 2, 3]


@pytest.mark.parametrize("path", ["/trace?table=db.t&key=1", f"{PATH}?key=1"])
def test_a_trace_beyond_the_limit_is_refused_and_may_be_asked_for_again(
    app: FastAPI, traced: TracedLake, path: str
) -> None:
    app.state.parts = replace(app.state.parts, traces=ThreadLimit("traces", 0, 0))

    answer = Client(app).get(path)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert answer.json()["error"] == "0 traces already run or wait; try again later"
    assert traced.source.beats == 0


def test_every_state_has_a_color_and_a_line_in_the_guide() -> None:
    root = Path(__file__).parents[3]
    page = (root / "monitor/web/trace.html").read_text(encoding="utf-8")
    guide = (root / "docs/guides/trace-a-row.md").read_text(encoding="utf-8")

    assert [one for one in TraceState if f".{one}" not in page] == []
    assert [one for one in TraceState if f"| `{one}` |" not in guide] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, None, id="NULL"),
        pytest.param(b"\x00\xff", "0x00ff", id="bytes"),
        pytest.param(True, "True", id="boolean"),
        pytest.param("a" * (SHOWN + 3), "a" * SHOWN + "... 3 more", id="long text"),
        pytest.param([1, None], "[1, null]", id="list"),
    ],
)
def test_a_value_is_rendered_as_a_text(value: Any, text: str | None) -> None:
    assert render_value(value) == text
