import pytest

from monitor.web.trusted import refusal

NAMES = frozenset({"Sluice.example.org"})
ANY, SHOWN = "/v1/tables", ("/v1/quarantine/message", "/v1/bootstraps", "/v1/rereads")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        pytest.param("127.0.0.1:8088", "", id="a program on this machine"),
        pytest.param("[::1]:8088", "", id="an address of the sixth version"),
        pytest.param("localhost:8088", "http://localhost:8088", id="the service's own page"),
        pytest.param("10.0.0.9:8088", "", id="an address"),
        pytest.param("sluice.example.org", "https://sluice.example.org", id="a name of ours"),
    ],
)
def test_f35_who_calls_it_by_its_name_may_change_something(host: str, origin: str) -> None:
    assert refusal("POST", ANY, host, origin, NAMES) == ""


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
    ],
)
def test_f35_a_foreign_name_or_page_changes_nothing(host: str, origin: str) -> None:
    assert refusal("POST", ANY, host, origin, NAMES) != ""
    assert refusal("DELETE", ANY, host, origin, NAMES) != ""
    assert refusal("GET", ANY, host, origin, NAMES) == ""


def test_f35_the_refusal_says_what_to_do() -> None:
    assert "list it in http.names" in refusal("POST", ANY, "sluice.internal:8088", "", NAMES)


@pytest.mark.parametrize("shown", SHOWN)
def test_what_shows_values_is_not_read_under_a_foreign_name(shown: str) -> None:
    assert refusal("GET", shown, "evil.example:8088", "", NAMES) != ""
    assert refusal("GET", shown, "sluice.example.org", "", NAMES) == ""
