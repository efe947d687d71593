"""Questions that wait are asked once for all who ask them, and a failed turn is not for ever."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from monitor.__main__ import sluice as program
from monitor.runtime import RequestPriority
from monitor.web import deps
from monitor.web.deps import (
    Access,
    Limit,
    LongPoll,
    LongPollFullError,
    TableNames,
    Text,
    find_refusal,
)
from tests.monitor.rig import USERS, Rig
from tests.monitor.serving import serving


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns follow each other."""
    monkeypatch.setattr(deps, "AGAIN", 0.0)


class Gate:
    """Answers a question with how often it was asked so."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, question: str) -> int:
        """Count it."""
        self.asked.append(question)
        if question == "wrong":
            raise ValueError(question)
        return self.asked.count(question)


def room(gate: Gate) -> LongPoll[str, int]:
    return LongPoll(gate.ask, RequestPriority())


def gather(*waiting: Awaitable[int | None]) -> list[int | BaseException | None]:
    async def all_of_them() -> list[int | BaseException | None]:
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_all_who_wait_for_the_same_share_an_answer() -> None:
    gate = Gate()
    own = room(gate)

    found = gather(*(own.next(name) for name in "aabab"))

    assert found == [1, 1, 1, 1, 1]
    assert sorted(gate.asked) == ["a", "b"]


def test_who_goes_on_waiting_gets_an_answer_of_another_turn() -> None:
    gate = Gate()
    own = room(gate)

    async def twice() -> list[int | None]:
        return [await own.next("a"), await own.next("a")]

    assert asyncio.run(twice()) == [1, 2]


def test_a_question_that_cannot_be_answered_fails_for_its_own_callers_alone() -> None:
    own = room(Gate())

    found = gather(own.next("wrong"), own.next("a"), own.next("wrong"))

    assert [type(one) for one in found] == [ValueError, int, ValueError]
    assert gather(own.next("a")) == [2]


def test_a_caller_who_leaves_takes_nobodys_answer_away() -> None:
    own = room(Gate())

    async def one_leaves() -> int | None:
        first, second = (asyncio.create_task(own.next("a")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(one_leaves()) == 1


def due(own: LongPoll[str, int], waiting: str, asked: str = "") -> list[str]:
    """Who is asked next of those *waiting*, one of whom whatever it hopes for."""

    async def turn() -> list[str]:
        own._waiting = {name: asyncio.get_running_loop().create_future() for name in waiting}
        own._asked = {name: asyncio.create_task(asyncio.sleep(0, 1)) for name in asked}
        return [*await own._due()]

    return asyncio.run(turn())


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question is asked a turn whatever it hopes for, and two of those that hope."""
    monkeypatch.setattr(deps, "FEWEST", 1)
    monkeypatch.setattr(deps, "MOST", 2)


def _broken(_: Sequence[str]) -> Sequence[str]:
    raise OSError("no log")


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(
    ("hopeful", "closing", "asked"),
    [
        pytest.param(lambda _: (), False, "a", id="none has hope"),
        pytest.param(lambda asked: asked[-1:], False, "ae", id="the last has"),
        pytest.param(lambda asked: asked, False, "abc", id="of thousands, few a turn"),
        pytest.param(_broken, False, "a", id="a look that fails"),
        pytest.param(lambda _: (), True, "abcde", id="the service ends"),
    ],
)
def test_who_has_hope_is_asked_before_the_others_and_all_where_the_service_ends(
    hopeful: Callable[[Sequence[str]], Sequence[str]], closing: bool, asked: str
) -> None:
    own = LongPoll(Gate().ask, RequestPriority(), hopeful, lambda: closing)

    assert due(own, "abcde") == [*asked]


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(("asked", "next_"), [("", "abc"), ("a", "bc"), ("ab", "c"), ("abc", "d")])
def test_those_with_hope_do_not_queue_up_behind_each_other(asked: str, next_: str) -> None:
    own = LongPoll(Gate().ask, RequestPriority(), lambda rest: rest)

    assert due(own, "abcde", asked) == [*next_]


@pytest.mark.usefixtures("in_turn")
def test_who_has_no_hope_is_asked_in_turn_all_the_same() -> None:
    gate = Gate()
    own = LongPoll(gate.ask, RequestPriority(), lambda _: ())

    assert gather(*(own.next(name) for name in "abc")) == [1, 1, 1]


def test_whose_time_is_over_is_answered_in_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(deps, "AGAIN", 3600.0)
    monkeypatch.setattr(deps, "GRACE", 3600.0)
    own = room(gate)

    async def twice() -> list[int | None]:
        return [await own.next("a", 0.0), await own.next("a", 0.0)]

    assert asyncio.run(twice()) == [1, 2]


@pytest.mark.parametrize("question", ["a", "wrong"])
def test_whose_time_is_over_waits_no_longer_for_an_answer_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    monkeypatch.setattr(deps, "GRACE", 0.0)
    gate, free, forgotten = Gate(), threading.Event(), list[object]()

    def ask(asked: str) -> int:
        free.wait()
        return gate.ask(asked)

    own = LongPoll(ask, RequestPriority())

    async def once() -> bool:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: forgotten.append(told))
        waiting = asyncio.create_task(own.next(question, 0.0))
        ended, _ = await asyncio.wait({waiting}, timeout=5)
        free.set()
        while own._waiting:
            await asyncio.sleep(0)
        gc.collect()
        return waiting in ended and waiting.result() is None

    assert asyncio.run(once())
    assert (gate.asked, forgotten) == ([question], [])


def test_questions_that_wait_give_way_to_those_that_are_new() -> None:
    gate, way = Gate(), RequestPriority()
    own, gave = LongPoll(gate.ask, way), list[list[str]]()
    way.give = lambda: gave.append([*gate.asked])  # type: ignore[method-assign]

    gather(own.next("a"))

    assert (gave, gate.asked) == ([[]], ["a"])


def test_beyond_so_many_nobody_waits_and_who_left_makes_room() -> None:
    gate = Gate()
    own = LongPoll(gate.ask, RequestPriority(), most=2)

    first = gather(*(own.next(name) for name in "aab"))
    later = gather(own.next("b"))

    assert first[:2] == [1, 1]
    assert isinstance(first[2], LongPollFullError)
    assert later == [1]


def test_who_has_gone_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "AGAIN", 3600.0)
    monkeypatch.setattr(deps, "SEEN", 0.01)
    own = LongPoll(Gate().ask, RequestPriority(), most=1)

    async def gone() -> bool:
        return True

    async def both() -> list[int | None]:
        return [await asyncio.wait_for(own.next("a", 300, gone), 5) for _ in "ab"]

    assert asyncio.run(both()) == [None, None]


NAMES = frozenset({"Sluice.example.org", "10.0.0.7"})
TOKEN = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
WAIVER = {"id": f"gap:{USERS}", "who": "ann", "reason": "a test"}


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        pytest.param("127.0.0.1:8088", "", id="a program on this machine"),
        pytest.param("[::1]:8088", "", id="an address of the sixth version"),
        pytest.param("localhost:8088", "http://localhost:8088", id="the service's own page"),
        pytest.param("10.0.0.9:8088", "", id="the address that it listens on"),
        pytest.param("[::ffff:10.0.0.9]:8088", "", id="the same within the sixth version"),
        pytest.param("10.0.0.7", "", id="an address of ours"),
        pytest.param("sluice.example.org", "https://sluice.example.org", id="a name of ours"),
    ],
)
def test_f35_a_request_under_our_name_is_accepted(host: str, origin: str) -> None:
    assert find_refusal(host, origin, NAMES, "10.0.0.9") == ""


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        pytest.param("evil.example:8088", "http://evil.example:8088", id="a rebound name"),
        pytest.param("evil.example:8088", "", id="a rebound name without its page"),
        pytest.param("127.0.0.1:8088", "http://evil.example", id="a foreign page"),
        pytest.param("localhost:8088", "http://localhost:3000", id="a page of another port"),
        pytest.param("127.0.0.1:8088", "null", id="a page of nowhere"),
        pytest.param("127.0.0.1.evil.example", "", id="a name that looks like an address"),
        pytest.param("", "", id="no name"),
        pytest.param("[::1", "", id="no name that can be read"),
        pytest.param("10.0.0.8:8088", "", id="an address of another machine"),
        pytest.param("0.0.0.0:8088", "", id="no address of a machine"),
    ],
)
def test_f161_a_request_under_a_foreign_name_or_from_a_foreign_page_is_refused(
    host: str, origin: str
) -> None:
    assert find_refusal(host, origin, NAMES, "10.0.0.9") != ""


def test_f35_the_refusal_says_what_to_do() -> None:
    assert "add it to http.names" in find_refusal("sluice.internal:8088", "", NAMES)


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/livez", "/v1/incidents", "/v1/tables", "/v1/bootstraps", "/docs"]
)
def test_f161_no_route_is_read_under_a_foreign_name(rig: Rig, path: str) -> None:
    answer = rig.client.get(path, headers={"Host": "evil.example"})

    assert answer.status_code == 403
    assert rig.client.get(path).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param("", id="none"),
        pytest.param("Bearer ", id="an empty one"),
        pytest.param(f"Bearer {TOKEN[:-1]}", id="a part of it"),
        pytest.param(f"Bearer {TOKEN}0", id="more than it"),
        pytest.param(f"Basic {TOKEN}", id="another scheme"),
        pytest.param(TOKEN, id="no scheme"),
        pytest.param("Bearer \u00e9", id="no ASCII"),
    ],
)
def test_f161_without_the_token_nothing_is_written(sent: str) -> None:
    near, far = Access(NAMES, TOKEN), Access(NAMES, TOKEN, beyond=True)

    for method in ("POST", "DELETE", "PUT", "PATCH", "ODD"):
        assert near.unauthorized(method, "/v1/waivers", sent)
        assert far.unauthorized(method, "/livez", sent)
    assert not near.unauthorized("GET", "/v1/incidents", sent)
    assert far.unauthorized("GET", "/v1/incidents", sent)
    assert far.unauthorized("GET", "/metrics/", sent)
    assert not any(far.unauthorized("GET", one, sent) for one in ("/livez", "/readyz", "/metrics"))


def test_f161_with_the_token_all_is_accepted() -> None:
    for sent in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        for beyond in (False, True):
            access = Access(NAMES, TOKEN, beyond=beyond)
            assert not access.unauthorized("POST", "/v1/waivers", sent)
            assert not access.unauthorized("GET", "/v1/incidents", sent)


def test_f161_beyond_this_machine_nothing_is_answered_while_no_token_is_set() -> None:
    assert Access(NAMES, "", beyond=True).unauthorized("GET", "/v1/tables", "Bearer ")
    assert not Access(NAMES).unauthorized("POST", "/v1/waivers", "")


def test_f161_one_post_without_the_token_waives_nothing(rig: Rig) -> None:
    rig.token = TOKEN

    refused = rig.client.post("/v1/waivers", json=WAIVER)
    ended = rig.client.delete("/v1/waivers/any", headers={"Authorization": "Bearer x"})

    assert (refused.status_code, ended.status_code) == (401, 401)
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert "SLUICE_TOKEN" in refused.json()["error"]
    assert rig.client.get("/v1/waivers").json() == []
    assert rig.client.post("/v1/waivers", json=WAIVER, headers=BEARER).status_code != 401


@pytest.mark.parametrize("way", ["config", "environment", "neither"])
def test_f161_the_verbs_send_the_token(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    rig.token, rig.beyond = TOKEN, True
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.delenv("SLUICE_TOKEN", raising=False)
    with serving(rig.api()) as server:
        named = tmp_path / "sluice.yaml"
        port = server.rpartition(":")[2]
        named.write_text(f"http: {{port: {port}, auth: {{token: {{file: token}}}}}}\n")
        where = ("--config", str(named)) if way == "config" else ("--server", server)
        if way == "environment":
            monkeypatch.setenv("SLUICE_TOKEN", TOKEN)
        result = CliRunner().invoke(program, ["status", *where])

    said = f"{result.output}{result.exception}"
    assert TOKEN not in said
    assert ("needs the token of http.auth" in said) == (way == "neither")
    assert (result.exit_code == 0) == (way != "neither")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
@pytest.mark.parametrize("path", ["/v1/gate", f"/v1/readiness/{USERS}"])
def test_a_page_of_another_site_makes_no_certificate(rig: Rig, site: str, path: str) -> None:
    """An image of any page asked for a cut of another microsecond each time."""
    rig.round()
    rig.round()
    named = {"table": USERS} if path == "/v1/gate" else {}
    before = len(rig.store.certificates.holding(USERS))

    answers = [
        rig.client.get(
            path,
            params={**named, "cut": f"2026-03-27T00:00:00.00000{number}Z"},
            headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "image"},
        )
        for number in range(3)
    ]

    assert {one.status_code for one in answers} == {403}
    assert len(rig.store.certificates.holding(USERS)) == before


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_person_may_read_the_api_in_a_browser(rig: Rig, site: str) -> None:
    assert rig.client.get("/v1/tables", headers={"Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/runbooks/lost.md"])
def test_a_link_of_another_site_leads_to_a_page(rig: Rig, path: str) -> None:
    rig.round()

    assert rig.client.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/gate", f"/v1/readiness/{USERS}"])
def test_head_makes_no_certificate(rig: Rig, path: str) -> None:
    rig.round()
    rig.round()
    named = {"table": USERS} if path == "/v1/gate" else {}
    asked = {**named, "cut": "2026-03-27T00:00:00.000001Z"}
    before = len(rig.store.certificates.holding(USERS))

    answer = rig.client.ask("HEAD", path, params=asked)

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    assert len(rig.store.certificates.holding(USERS)) == before
    assert rig.client.get(path, params=asked).status_code == 200
    assert len(rig.store.certificates.holding(USERS)) == before + 1


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        pytest.param(Text, "x" * 1000, "x" * 1001, id="a long reason"),
        pytest.param(Text, " x ", "  ", id="a blank one"),
        pytest.param(TableNames, ["shop.a"], [], id="no table"),
        pytest.param(TableNames, ["shop.a"] * 1000, ["shop.a"] * 1001, id="too many tables"),
        pytest.param(TableNames, ["shop.a"], ["shop.a", ""], id="one of no name"),
        pytest.param(Limit, 10_000, 10_001, id="too long a list"),
        pytest.param(Limit, 1, 0, id="an empty list"),
    ],
)
def test_what_goes_too_far_is_refused(kind: Any, allowed: object, refused: object) -> None:
    TypeAdapter(kind).validate_python(allowed)

    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(refused)
