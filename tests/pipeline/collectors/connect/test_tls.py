"""A connector verifies its database as Sluice does, and Connect is verified by files of its own."""

import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.build import open_collector
from pipeline.collectors.collector import CollectionScope, Registration
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.collectors.connect.config import (
    alternative_settings,
    firm_demands,
    holds_secret,
    is_forbidden,
    required_config,
)
from pipeline.collectors.connect.findings import connector_findings
from pipeline.errors import ConfigError, UnreachableError
from pipeline.finding import REFUSE
from pipeline.settings import CollectorSettings, KafkaSecurity, PipelineSettings, SourceSettings
from tests.pipeline.certificates import Authority
from tests.pipeline.collectors.connect.fake_connect import fake_connect

CONNECT = CollectorSettings("http://connect:8083", "shop-1")
MYSQL = SourceSettings("shop", "db.example", 3306, "sluice", CONNECT, "shop")
POSTGRES = replace(MYSQL, kind="postgres", options={"database": "shop"})
MARIADB = replace(MYSQL, kind="mariadb")
MODES = {"": "database.ssl.mode", "mariadb": "database.ssl.mode", "postgres": "database.sslmode"}
VERIFIED = {"": "verify_identity", "mariadb": "verify-full", "postgres": "verify-full"}
KINDS = pytest.mark.parametrize("source", [MYSQL, MARIADB, POSTGRES], ids=list(VERIFIED.values()))


def tls_of(source: SourceSettings, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings for TLS that a connector of *source* is wanted to have."""
    scope = CollectionScope(source, "kafka:9092", KafkaSecurity(), ())
    return {
        name: value for name, value in required_config(scope, own or {}).items() if ".ssl" in name
    }


def applied(source: SourceSettings, now: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a registered connector with the settings *now* is changed to."""
    scope = CollectionScope(source, "kafka:9092", KafkaSecurity(), ())
    made = Registration(
        *(
            required_config(scope, own),
            firm_demands(scope, own),
            alternative_settings(own),
            holds_secret,
        ),
        now=lambda: now,
        put=lambda _: None,
        forbidden=lambda name: is_forbidden(scope, own, name),
    )
    return made.target(
        {**required_config(replace(scope, source=replace(source, tls=False)), {}), **now}
    )


@KINDS
def test_f164_a_connector_verifies_the_server_by_default(source: SourceSettings) -> None:
    assert tls_of(source)[MODES[source.kind]] == VERIFIED[source.kind]
    assert tls_of(replace(source, tls=True, host="localhost")) == tls_of(source)
    assert tls_of(replace(source, tls=False)) == {}
    assert tls_of(replace(source, host="127.0.0.1")) == {}


@KINDS
def test_f164_the_address_that_the_connector_is_given_decides(source: SourceSettings) -> None:
    tunnel = replace(source, host="127.0.0.1", follow_collector=False)

    assert tls_of(tunnel, {"database.hostname": "db.example"})[MODES[source.kind]]
    assert tls_of(source, {"database.hostname": "localhost"}) == {}


@KINDS
@pytest.mark.parametrize("before", ["required", "require", "preferred", ""])
def test_f164_a_registered_connector_that_verifies_nothing_is_changed(
    source: SourceSettings, before: str
) -> None:
    mode = MODES[source.kind]
    now = {mode: before} if before else {}

    assert applied(source, now, {})[mode] == VERIFIED[source.kind]
    assert applied(source, now, {mode: "verify-ca"})[mode] == "verify-ca"
    assert applied(replace(source, tls=False), now, {}).get(mode, "") == before


def test_f164_files_are_variables_of_the_worker() -> None:
    def with_files(source: SourceSettings) -> SourceSettings:
        return replace(source, ca="/our/ca.pem", certificate="/our/us.crt", key="/our/us.key")

    assert tls_of(with_files(POSTGRES)) == {
        "database.sslmode": "verify-full",
        "database.sslrootcert": "${env:SHOP_DATABASE_CA}",
        "database.sslcert": "${env:SHOP_DATABASE_CERTIFICATE}",
        "database.sslkey": "${env:SHOP_DATABASE_KEY}",
    }
    assert tls_of(with_files(MYSQL)) == {
        "database.ssl.mode": "verify_identity",
        "database.ssl.truststore": "${env:SHOP_DATABASE_TRUSTSTORE}",
        "database.ssl.truststore.password": "${env:SHOP_DATABASE_TRUSTSTORE_PASSWORD}",
        "database.ssl.keystore": "${env:SHOP_DATABASE_KEYSTORE}",
        "database.ssl.keystore.password": "${env:SHOP_DATABASE_KEYSTORE_PASSWORD}",
    }


def test_f164_without_files_the_authorities_of_the_jvm_are_trusted() -> None:
    java = {"database.sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}

    assert tls_of(POSTGRES) == {"database.sslmode": "verify-full", **java}
    assert tls_of(MYSQL) == {"database.ssl.mode": "verify_identity"}


def test_f164_a_file_that_a_person_named_is_not_hidden_by_a_factory() -> None:
    root = {"database.sslrootcert": "/etc/ca.pem"}

    assert tls_of(POSTGRES, root) == {"database.sslmode": "verify-full", **root}
    assert "database.sslfactory" not in applied(POSTGRES, root, {})
    assert applied(POSTGRES, {}, root)["database.sslrootcert"] == "/etc/ca.pem"


@KINDS
def test_f164_the_doctor_refuses_a_connector_that_does_not_verify(source: SourceSettings) -> None:
    scope = CollectionScope(source, "kafka:9092", KafkaSecurity(), ())
    config, mode = required_config(scope, {}), MODES[source.kind]

    def found(source: SourceSettings, config: Mapping[str, str]) -> list[tuple[object, str, str]]:
        every = connector_findings(config, "collector:shop", source=source, worker={})
        return [(one.severity, one.what, one.fix) for one in every if one.code == mode]

    assert found(source, config) == []
    ((severity, what, fix),) = found(source, {**config, mode: "require"})
    assert severity is REFUSE
    assert what.startswith(f"{mode}=require: an attacker on the network")
    assert fix.startswith(f"{mode}={VERIFIED[source.kind]} in the connector's config")
    assert found(source, {k: v for k, v in config.items() if k != mode})[0][0] is REFUSE
    assert found(replace(source, tls=False), {**config, mode: "require"}) == []
    assert found(source, {**config, mode: "require", "database.hostname": "::1"}) == []


FACTORY = "database.sslfactory"
NON_VALIDATING = "org.postgresql.ssl.NonValidatingFactory"
WEAKENING = [
    pytest.param(POSTGRES, FACTORY, NON_VALIDATING, id="a factory that believes all"),
    pytest.param(POSTGRES, "database.sslhostnameverifier", "a.Believer", id="any name"),
    pytest.param(POSTGRES, "driver.sslmode", "disable", id="past the mode"),
    pytest.param(POSTGRES, "driver.sslfactory", NON_VALIDATING, id="past the factory"),
    pytest.param(POSTGRES, "driver.socketFactory", "a.Socket", id="sockets of its own"),
    pytest.param(MYSQL, "driver.sslMode", "DISABLED", id="past MySQL's mode"),
    pytest.param(MYSQL, "driver.trustCertificateKeyStoreUrl", "file:/x", id="authorities"),
    pytest.param(MYSQL, "database.verifyServerCertificate", "false", id="no certificate"),
    pytest.param(MARIADB, "driver.trustServerCertificate", "true", id="any certificate"),
    pytest.param(MARIADB, "driver.disableSslHostnameVerification", "true", id="a server's name"),
]


@pytest.mark.parametrize(("source", "name", "value"), WEAKENING)
def test_f164_what_makes_the_driver_believe_any_server_is_refused_and_taken_away(
    source: SourceSettings, name: str, value: str
) -> None:
    scope = CollectionScope(source, "kafka:9092", KafkaSecurity(), ())
    config = {**required_config(scope, {}), name: value}

    def found(source: SourceSettings) -> list[tuple[object, str]]:
        every = connector_findings(config, "collector:shop", source=source, worker={})
        return [(one.severity, one.what) for one in every if one.code == name]

    ((severity, what),) = found(source)
    assert severity is REFUSE
    assert "an attacker on the network can read rows" in what
    assert applied(source, config, {}).get(name, "") in ("", required_config(scope, {}).get(name))
    assert applied(source, config, {name: value})[name] == value, "a person chose it"
    plain = replace(source, tls=False)
    assert found(plain) == []
    assert applied(plain, config, {})[name] == value


def test_f164_a_factory_that_validates_stays_and_another_is_replaced_by_one_that_fits() -> None:
    libpq = "org.postgresql.ssl.LibPQFactory"
    java = "org.postgresql.ssl.DefaultJavaSSLFactory"
    root = {"database.sslrootcert": "/etc/ca.pem"}
    files = replace(POSTGRES, ca="/our/ca.pem")

    assert applied(POSTGRES, {FACTORY: libpq, **root}, {})[FACTORY] == libpq
    assert applied(POSTGRES, {FACTORY: java}, {})[FACTORY] == java
    assert applied(POSTGRES, {FACTORY: NON_VALIDATING}, {})[FACTORY] == java
    assert applied(POSTGRES, {FACTORY: NON_VALIDATING, **root}, {})[FACTORY] == libpq
    assert applied(files, {FACTORY: NON_VALIDATING}, {})[FACTORY] == libpq


def test_f164_files_of_a_person_and_other_settings_of_the_driver_are_let_be() -> None:
    own = {
        "database.sslrootcert": "/etc/ca.pem",
        "database.sslcert": "/etc/us.crt",
        "database.sslkey": "/etc/us.key",
        "driver.connectTimeout": "5000",
        "database.history.producer.ssl.truststore.location": "/etc/x",
    }
    scope = CollectionScope(POSTGRES, "kafka:9092", KafkaSecurity(), ())
    config = {**required_config(scope, own)}

    found = connector_findings(config, "collector:shop", source=POSTGRES, worker={})

    assert [one.code for one in found if one.code in own] == []
    assert {name: applied(POSTGRES, config, {})[name] for name in own} == own


def _context(server: Authority, *hosts: str, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*server.certificate("connect", *hosts))
    if clients is not None:
        context.load_verify_locations(clients.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _asked_tls(url: str, **files: Any) -> dict[str, str]:
    given: dict[str, Any] = {name: str(file) for name, file in files.items()}
    source = replace(MYSQL, collector=CollectorSettings(url, "shop-1", **given))
    with closing(open_collector(source, PipelineSettings("/lake", "kafka:1", (source,)))) as asked:
        assert isinstance(asked, ConnectCollector)
        return dict(asked.config())


def test_f164_connect_is_believed_by_the_named_authority_only(tmp_path: Path) -> None:
    ours, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    with fake_connect(_context(ours, "127.0.0.1")) as worker:
        worker.registered["shop-1"] = {"topic.prefix": "shop"}

        assert _asked_tls(worker.url, ca=ours.file) == {"topic.prefix": "shop"}
        for files in ({"ca": foreign.file}, {}):
            with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                _asked_tls(worker.url, **files)
    with (
        fake_connect(_context(ours, "connect.example")) as worker,
        pytest.raises(UnreachableError, match=r"not valid for '127\.0\.0\.1'"),
    ):
        _asked_tls(worker.url, ca=ours.file)


def test_f164_connect_is_shown_who_asks(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key = ours.certificate("sluice")
    with fake_connect(_context(ours, "127.0.0.1", clients=ours)) as worker:
        worker.registered["shop-1"] = {"topic.prefix": "shop"}

        assert _asked_tls(worker.url, ca=ours.file, certificate=certificate, key=key)
        with pytest.raises(UnreachableError):
            _asked_tls(worker.url, ca=ours.file)


def test_f164_files_that_cannot_be_used_are_named_and_nobody_is_asked_for_a_passphrase(
    tmp_path: Path,
) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key = map(str, ours.certificate("sluice", passphrase="dangerous"))
    ca = str(tmp_path / "none.pem")

    with pytest.raises(ConfigError, match=r"collector\.ca: cannot read .*none\.pem"):
        ConnectCollector("https://c:1", "c", ca=ca)
    with pytest.raises(ConfigError, match=r"collector\.certificate: .*has a passphrase"):
        ConnectCollector("https://c:1", "c", certificate=certificate, key=key)
