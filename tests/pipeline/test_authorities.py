import pytest

from pipeline.settings import is_https, without_login


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://connect:8083", True),
        ("HTTPS://connect:8083", True),
        ("http://connect:8083", False),
        ("http://https:1", False),
    ],
)
def test_only_who_is_dialled_by_https_shows_a_certificate(url: str, *, shown: bool) -> None:
    assert is_https(url) is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:hunter2@c:0", "http://(hidden)@c:0"),
        ("http://bob:hun/ter@2@c:0", "http://(hidden)@c:0"),
        ("http://bob:hunter2@[", "http://(hidden)@["),
        ("bob:hunter2@c:0", "(hidden)@c:0"),
        ("//hunter2@c", "//(hidden)@c"),
        (
            "at https://b:hunter2@n/a and\nftp://hunter2@n",
            "at https://(hidden)@n/a and\nftp://(hidden)@n",
        ),
        ("http://c:8083/a", "http://c:8083/a"),
        ("maven", "maven"),
    ],
)
def test_no_login_of_an_address_is_shown(text: str, shown: str) -> None:
    assert without_login(text) == shown
