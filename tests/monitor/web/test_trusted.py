"""Who may ask: by Host, Origin and token."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from monitor.__main__ import sluice as program
from monitor.web.deps import Access, find_refusal
from tests.monitor.rig import USERS, Rig
from tests.monitor.serving import serving

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
