"""No credential is sent in clear text beyond this machine unless the config says so."""

from pathlib import Path

import pytest

from monitor.config.file import load_config
from monitor.config.sections import plugin_faults
from pipeline.copies.postgres import PostgresCopy
from pipeline.copies.redis import RedisCopy
from pipeline.errors import ConfigError
from tests.monitor.config.test_sections import LEAST
from tests.pipeline.certificates import Authority

CLEAR = "would go to there in clear text; write https://, or set tls: false to send them so"
SECTIONS = {
    "channels.am": "channels: {{am: {{kind: alertmanager, url: '{url}', {rest}}}}}",
    "openlineage": "openlineage: {{url: '{url}', {rest}}}",
    "sources[0].format_options.registry": (
        "format: debezium_avro, format_options: {{registry: {{url: '{url}', {rest}}}}}"
    ),
}
SECRET = {
    "channels.am": "authorization: {env: SECRET}",
    "openlineage": "token: {env: SECRET}",
    "sources[0].format_options.registry": "user: u, password: secret",
}


def write_config(folder: Path, section: str) -> Path:
    path = folder / "sluice.yaml"
    own = section.startswith("format:")
    path.write_text(f"{LEAST.rstrip()[:-1]}, {section}}}" if own else f"{LEAST}{section}\n")
    return path


def faults(folder: Path, section: str) -> list[str]:
    path = write_config(folder, section)
    try:
        load_config(path, plugin_faults)
    except ConfigError as error:
        return [line.partition(": ")[2] for line in str(error).splitlines()]
    return []


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "secret")
    monkeypatch.setenv("PLAIN", "http://there/secret")


def section(at: str, url: str, rest: str = "") -> str:
    return SECTIONS[at].format(url=url, rest=rest)


@pytest.mark.parametrize("at", SECTIONS)
def test_f164_a_secret_for_an_http_address_beyond_this_machine_is_refused(
    tmp_path: Path, at: str
) -> None:
    secret = SECRET[at]
    refused = [f"{at}.url: its credentials {CLEAR}"]

    assert faults(tmp_path, section(at, "http://there:1", secret)) == refused
    assert faults(tmp_path, section(at, "http://bob:pw@there:1")) == refused
    assert faults(tmp_path, section(at, "http://there:1", f"{secret}, tls: false")) == []
    assert faults(tmp_path, section(at, "https://there:1", secret)) == []
    assert faults(tmp_path, section(at, "http://127.0.0.1:1", secret)) == []
    assert faults(tmp_path, section(at, "http://there:1")) == []


@pytest.mark.parametrize("at", SECTIONS)
def test_f164_settings_of_tls_that_do_nothing_are_refused(tmp_path: Path, at: str) -> None:
    assert faults(tmp_path, section(at, "http://there", "ca: ca.pem")) == [
        f"{at}.ca: needs an https url; write https:// or remove it"
    ]
    assert faults(tmp_path, section(at, "http://there", "tls: true")) == [
        f"{at}.tls: true needs an https url; write https:// or remove it"
    ]
    assert faults(tmp_path, section(at, "https://there", "tls: false")) == [
        f"{at}.tls: false does nothing with an https url; remove it"
    ]


@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_f164_an_address_that_is_a_secret_itself_is_not_sent_in_clear(
    tmp_path: Path, kind: str
) -> None:
    url = f"{{kind: {kind}, url: {{env: PLAIN}}"

    assert faults(tmp_path, f"channels: {{c: {url}}}}}") == [
        f"channels.c.url: its credentials {CLEAR}"
    ]
    assert faults(tmp_path, f"channels: {{c: {url}, tls: false}}}}") == []


def test_f164_a_collector_behind_a_login_needs_https(tmp_path: Path) -> None:
    login = LEAST.replace("http://c:8083", "http://bob:pw@c:8083")
    path = tmp_path / "sluice.yaml"
    path.write_text(login)

    with pytest.raises(ConfigError, match=r"sources\[0\]\.collector\.url: its credentials would"):
        load_config(path)
    path.write_text(login.replace("connector: shop", "connector: shop, tls: false"))
    load_config(path)


REDIS = "copies: {{c: {{kind: redis, tables: 'x.*', host: there, {rest}}}}}"


def test_f164_a_copy_beyond_this_machine_speaks_tls_by_default(tmp_path: Path) -> None:
    files = "ca: ours.pem, certificate: sluice.crt, key: sluice.key"
    ours = Authority(tmp_path, "ours")
    ours.certificate("sluice")

    (plan,) = load_config(write_config(tmp_path, REDIS.format(rest=files))).copied

    assert plan.copy == RedisCopy(
        "there",
        ca=str(ours.file),
        certificate=str(tmp_path / "sluice.crt"),
        key=str(tmp_path / "sluice.key"),
    )
    assert faults(tmp_path, REDIS.format(rest="tls: false")) == []
    assert faults(tmp_path, REDIS.format(rest="tls: false, ca: ours.pem")) == [
        "copies.c.ca: needs TLS; set tls: true or remove it"
    ]
    (told,) = faults(tmp_path, REDIS.format(rest="ca: none.pem"))
    assert told.startswith(f"copies.c.ca: cannot read {tmp_path}/none.pem: No such file")
    assert PostgresCopy("there", "d", "u").tls is None


def test_f164_an_authority_of_the_registry_is_named_from_the_folder_of_the_config(
    tmp_path: Path,
) -> None:
    ours = Authority(tmp_path, "ours")
    at = "sources[0].format_options.registry"
    path = write_config(tmp_path, section(at, "https://there", "ca: ours.pem"))

    (source,) = load_config(path, plugin_faults).sources

    assert source.format_options["registry"]["ca"] == str(ours.file)
