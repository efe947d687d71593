"""Where the service answers is read without the rest of the file, and its secrets."""

import re
from pathlib import Path

import pytest

from monitor.config.location import HOST, PORT, STORE, ZONE, read_location
from monitor.config.model import Config
from pipeline.errors import ConfigError


def _written(folder: Path, text: str) -> Path:
    path = folder / "sluice.yaml"
    path.write_text(text)
    return path


def test_the_defaults_are_those_of_the_model() -> None:
    fields = Config.model_fields
    http = fields["http"].default

    assert (http.host, http.port, fields["store"].default) == (HOST, PORT, STORE)
    assert fields["time_zone"].default.key == ZONE


def test_f51_a_fault_elsewhere_and_an_unset_secret_keep_nobody_from_asking(tmp_path: Path) -> None:
    text = "sources: [{password: {env: NOT_SET}}, nonsense]\nhttp: {port: 9000}\n"

    found = read_location(_written(tmp_path, text))

    assert found.address == "http://127.0.0.1:9000"
    assert found.store == (tmp_path / "sluice.db").resolve()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        pytest.param("0.0.0.0", "http://127.0.0.1:8088", id="bound everywhere"),  # noqa: S104
        pytest.param("'::1'", "http://[::1]:8088", id="of the sixth version"),
        pytest.param("gauge", "http://gauge:8088", id="a name"),
        pytest.param("{env: GAUGE}", "http://10.0.0.7:8088", id="from the environment"),
    ],
)
def test_a_host_is_called_as_one_dials_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    monkeypatch.setenv("GAUGE", "10.0.0.7")

    found = read_location(_written(tmp_path, f"http: {{host: {host}}}\n"))

    assert found.address == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("http: 8088", "http: must be a mapping", id="no mapping"),
        pytest.param("http: {host: 1}", "http.host: 1 is not a host", id="no host"),
        pytest.param("http: {port: here}", "http.port: 'here' is not a port", id="no port"),
        pytest.param("http: {port: 65536}", "http.port: 65536 is not a port", id="too high"),
        pytest.param("http: {port: {env: NOT_SET}}", "NOT_SET is not set", id="unset"),
        pytest.param("store: []", "store: must be the path", id="no store"),
        pytest.param("time_zone: Mars/Base", "time_zone: 'Mars/Base' is not", id="no zone"),
        pytest.param("time_zone: [1]", "time_zone: '[1]' is no", id="no text"),
        pytest.param("[]", "must be a mapping", id="no config"),
    ],
)
def test_what_is_no_address_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = _written(tmp_path, text)

    with pytest.raises(ConfigError) as told:
        read_location(path)

    assert re.match(rf"{path}(:\d+)?: ", str(told.value))
    assert said in str(told.value)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="sluice init"):
        read_location(Path("/no/such.yaml"))


def test_f161_the_token_is_read_and_one_that_cannot_be_keeps_nobody_from_asking(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")

    found = read_location(_written(tmp_path, "http: {auth: {token: {file: token}}}\n"))
    unread = read_location(_written(tmp_path, "http: {port: 9, auth: {token: {env: NOT_SET}}}\n"))
    odd = read_location(_written(tmp_path, "http: {auth: [1]}\n"))

    assert found.token == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(found)
    assert (unread.token, unread.address, odd.token) == ("", "http://127.0.0.1:9", "")
