import pytest

from pipeline.authorities import vouched


@pytest.mark.parametrize(
    ("url", "shown"),
    [("https://connect:8083", True), ("http://connect:8083", False), ("http://https:1", False)],
)
def test_only_who_is_dialled_by_https_shows_a_certificate(url: str, *, shown: bool) -> None:
    assert vouched(url) is shown
