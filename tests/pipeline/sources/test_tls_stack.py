"""Real servers whose certificate is for another host, or of another authority, are refused."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.mysql import MySQL
from demo.ports import free_ports
from demo.postgres import NOBODY, Postgres
from demo.servers import Servers
from pipeline.collectors.collector import CollectionScope
from pipeline.collectors.connect.config import required_config
from pipeline.errors import UnreachableError
from pipeline.settings import CollectorSettings, KafkaSecurity, SourceSettings
from pipeline.sources.mysql.session import Session
from pipeline.sources.postgres.session import PostgresSession
from pipeline.spark import jars
from tests.pipeline.certificates import Authority

pytestmark = pytest.mark.stack
CONNECT = CollectorSettings("http://connect:8083", "secured")
STORED = "changeit"


@dataclass(eq=False)
class Secured:
    """A server whose certificate by ``ours`` is for one host only, and how it is asked."""

    ours: Authority
    foreign: Authority
    source: SourceSettings
    serve: Callable[[tuple[Path, Path]], None]

    def source_with(self, authority: Authority) -> SourceSettings:
        """The source that trusts *authority* alone, and shows a certificate of ``ours``."""
        certificate, key = self.ours.certificate("sluice")
        return replace(
            self.source, ca=str(authority.file), certificate=str(certificate), key=str(key)
        )

    def variables(self, authority: Authority) -> Mapping[str, str]:
        """Variables of Connect's workers by their references, made as the docs say."""
        pem, key = self.ours.certificate("debezium")
        trust, keys = (self.ours.folder / f"{authority.name}-{n}.p12" for n in ("trust", "keys"))
        der = key.with_suffix(".pk8")
        for path in (trust, keys, der):
            path.unlink(missing_ok=True)
        tool = Path(jars.find_java()).resolve().with_name("keytool")
        store = f"-keystore {trust} -storetype PKCS12 -storepass {STORED}"
        _run(f"{tool} -importcert -noprompt -alias ca -file {authority.file} {store}")
        _run(f"openssl pkcs12 -export -in {pem} -inkey {key} -out {keys} -passout pass:{STORED}")
        _run(f"openssl pkcs8 -topk8 -nocrypt -in {key} -outform DER -out {der}")
        named = {
            "CA": str(authority.file),
            "CERTIFICATE": str(pem),
            "KEY": str(der),
            "TRUSTSTORE": str(trust),
            "TRUSTSTORE_PASSWORD": STORED,
            "KEYSTORE": str(keys),
            "KEYSTORE_PASSWORD": STORED,
        }
        of = "${env:SECURED_DEBEZIUM_PASSWORD}"
        return {of: "debezium"} | {f"${{env:SECURED_DATABASE_{n}}}": v for n, v in named.items()}


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)


def _ask(source: SourceSettings) -> Any:
    if source.kind:
        with closing(PostgresSession(source, "postgres")) as session:
            shown = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            return session.ask(shown)[0]["client_dn"]
    with closing(Session(source)) as session:
        return session.ask("SHOW STATUS LIKE 'Ssl_version'")[0]["value"]


@pytest.fixture(params=["mysql", "postgres"])
def secured(
    request: pytest.FixtureRequest, server_folder: Path, start_postgres: Callable[..., Postgres]
) -> Iterator[Secured]:
    """One server of each kind; it serves nothing yet."""
    folder = server_folder / f"tls-{request.param}"
    ours, foreign = Authority(folder, "ours"), Authority(folder, "foreign")
    source = SourceSettings("secured", "127.0.0.1", 0, "sluice", CONNECT, "secured", tls=True)
    source = replace(source, password="sluice")
    (port,) = free_ports(1)
    if request.param == "postgres":
        server = start_postgres()

        def serve(files: tuple[Path, Path]) -> None:
            for path, name in zip((ours.file, *files), ("ca", "cert", "key"), strict=True):
                made = server.data.resolve() / f"{name}.pem"
                shutil.copy(path, made)
                made.chmod(0o600)
                if os.geteuid() == 0:
                    os.chown(made, NOBODY, NOBODY)
            named = {f"ssl_{name}_file": f"{name}.pem" for name in ("ca", "cert", "key")}
            server.options = {**server.options, "ssl": "on", **named}
            server.restart()

        options = {"database": "postgres"}
        asked = replace(source, port=server.port, kind="postgres", options=options)
        yield Secured(ours, foreign, asked, serve)
        return
    mysql = MySQL(folder / "server", port)

    def serve_mysql(files: tuple[Path, Path]) -> None:
        mysql.options = {
            "ssl-ca": str(ours.file),
            **{"ssl-cert": str(files[0]), "ssl-key": str(files[1])},
        }
        mysql.restart()

    yield Secured(ours, foreign, replace(source, port=port), serve_mysql)
    mysql.kill()


def _validated(
    servers: Servers, source: SourceSettings, variables: Mapping[str, str], **own: str
) -> str:
    """What Debezium says that is wrong with the settings, after it has tried the server."""
    scope = CollectionScope(source, servers.kafka.bootstrap, KafkaSecurity(), ())
    config = {
        name: variables.get(value, value) for name, value in required_config(scope, own).items()
    }
    assert "${" not in str(config)
    kind = config["connector.class"].rpartition(".")[2]
    url = f"{servers.connect.url}/connector-plugins/{kind}/config/validate"
    answer = httpx.put(url, json={**config, "name": "secured"}, timeout=120)
    return "; ".join(
        said
        for one in answer.raise_for_status().json()["configs"]
        for said in one["value"]["errors"]
    )


def test_f164_only_the_named_host_by_the_named_authority_gets_the_password(
    secured: Secured, servers: Servers
) -> None:
    secured.serve(secured.ours.certificate("server", "127.0.0.1", "localhost"))
    right, wrong = secured.source_with(secured.ours), secured.source_with(secured.foreign)
    assert _ask(right) in ("/CN=sluice", "TLSv1.3", "TLSv1.2")
    with pytest.raises(UnreachableError, match=r"(?i)certificate.*set ca: to the file"):
        _ask(wrong)
    assert _validated(servers, right, secured.variables(secured.ours)) == ""
    assert "onnect" in _validated(servers, wrong, secured.variables(secured.foreign))

    by_machine = replace(right, ca="", certificate="", key="")
    assert "onnect" in _validated(servers, by_machine, secured.variables(secured.ours))

    secured.serve(secured.ours.certificate("elsewhere", "db.example"))
    with pytest.raises(UnreachableError, match=r"(?i)certificate.*set ca: to the file"):
        _ask(right)
    variables = secured.variables(secured.ours)
    assert "onnect" in _validated(servers, right, variables)
    unverified = (
        {"database.sslmode": "require"} if right.kind else {"database.ssl.mode": "required"}
    )
    assert _validated(servers, right, variables, **unverified) == "", "only the name was wrong"
