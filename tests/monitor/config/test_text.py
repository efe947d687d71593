"""What a newcomer's file says wrongly is told in words of this project; for pipeline/faults.py."""

from pathlib import Path

import pytest

from monitor.config.file import parse_config
from pipeline.settings import may_be_spark_secret
from tests.monitor.config.plain import cases
from tests.monitor.config.test_config import MINIMAL, faults

REMOVE = "is empty; write its value, or remove the line"


@pytest.mark.parametrize(
    "section",
    [
        *("tables", "pipeline", "readiness", "alerts", "http", "schedule", "kafka_security"),
        *("time_zone", "heartbeat", "store"),
    ],
)
def test_a_section_that_was_left_empty_says_so(section: str) -> None:
    assert faults(f"{MINIMAL}\n{section}:\n") == [f"{section}: {REMOVE}"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param("lake: lake", "lake:", "lake: is empty; write its value", id="required"),
        pytest.param(
            "host: 127.0.0.1", "host:", "sources[0].host: is empty; write its value", id="within"
        ),
    ],
)
def test_what_must_be_there_is_not_to_be_removed(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new)) == [line]


@pytest.mark.parametrize(
    ("more", "line"),
    cases("""
    alerts: {routes: }
      alerts.routes: is empty; write its value, or remove the line
    pipeline: 3
      pipeline: must be a mapping of settings, such as `name: value`
    tables: {shards: a}
      tables: must be a list; write each entry on a line of its own, after `- `
    alerts: {routes: [{kinds: [losst]}]}
      alerts.routes[0].kinds[0]: must be 'late', 'lost', 'suspect',
    """),
)
def test_what_is_of_another_kind_is_told_without_a_librarys_words(more: str, line: str) -> None:
    (told,) = faults(f"{MINIMAL}\n{more}\n")

    assert told.startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *cases(r"""
    lake: a: b\n
      is not YAML: mapping values are not allowed here (line 1, column 8)
    lake: a\nkafka: b\nlake: c\n
      is not YAML: key 'lake' occurs twice; remove one (line 3, column 1)
    """),
        pytest.param(
            "lake: a\n\tb: 1\n",
            "is not YAML: while scanning for the next token, found character '\\t' that cannot"
            " start any token (line 2, column 1); indent with spaces",
            id="a tab",
        ),
        pytest.param(
            "lake: a\nb: \x01\n",
            "is not YAML: special characters are not allowed: character #x0001 (line 2, column 4)",
            id="an odd letter",
        ),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(text: str, line: str) -> None:
    assert faults(text) == [line]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    cases(r"""
    port: 3306 => port: '3306'
      sources[0].port: must be a whole number, not "3306"; remove the quotes
    port: 3306 => port: many
      sources[0].port: must be a whole number, not "many"
    port: 3306 => port: 33.5
      sources[0].port: must be a whole number, not 33.5
    user: sluice => user: sluice\n    follow_collector: 'no'
      sources[0].follow_collector: must be true or false without quotes, not "no"
    lake: lake => lake: lake\ndisks: {free_share: '0.2'}
      disks.free_share: must be a number, not "0.2"; remove the quotes
    user: sluice => user: true
      sources[0].user: must be a text, not true; write it in quotes
    user: sluice => user: [a]
      sources[0].user: must be a text, not a list
    lake: lake => lake: ''
      lake: is empty; write its value
    lake: lake => lake: lake\nstore: ''
      store: is empty; write its value, or remove the line
    """),
)
def test_a_value_of_another_type_is_shown_with_the_way_out(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new)) == [line]


WITH_FILE = MINIMAL.replace("user: sluice", "user: sluice\n    password: {file: secrets/shop}")
HOOK = "channels: {webhook: {url: {file: secrets/url}, secret: {file: secrets/shop}}}\n"
SECURITY = (
    "kafka_security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: {file: %s}}\n"
)


def test_a_secrets_file_is_named_from_the_configs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "etc", tmp_path / "elsewhere"
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "shop").write_text("hidden\n")
    (home / "secrets" / "url").write_text("https://hook.example/x")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    config = parse_config(WITH_FILE + HOOK + SECURITY % "secrets/shop", home / "sluice.yaml")

    assert config.sources[0].password == "hidden"
    assert config.channels["webhook"].secret == "hidden"
    assert config.kafka_security.password == "hidden"


def test_a_file_with_its_whole_path_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("hidden")

    config = parse_config(MINIMAL + SECURITY % (tmp_path / "s"), Path("/etc/sluice.yaml"))

    assert config.kafka_security.password == "hidden"


UNSET = "environment variable SLUICE_NO_SUCH is not set"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(
            MINIMAL + "http: {port: {env: SLUICE_NO_SUCH}}\nreadiness: {rule: bth}\nkafak: x\n",
            ["http.port: ", "kafak: unknown key", "readiness.rule: must be"],
            id="beside it",
        ),
        pytest.param(
            MINIMAL.replace("port: 3306", "port: {env: SLUICE_NO_SUCH}").replace(
                "host: 127", "hst: 127"
            ),
            ["sources[0].host: is required", "sources[0].hst: unknown", "sources[0].port: "],
            id="in one section",
        ),
        pytest.param(
            MINIMAL
            + "probes: {max_id: {tolerance: {env: SLUICE_NO_SUCH}, tries: x, tolrance: 1}}\n",
            [
                "probes.max_id.tolerance: ",
                "probes.max_id.tolrance: unknown",
                "probes.max_id.tries: ",
            ],
            id="in a probe",
        ),
        pytest.param(
            MINIMAL + "channels: {webhook: {url: {env: SLUICE_NO_SUCH}, per_minute: x}}\n",
            ["channels.webhook.per_minute: ", "channels.webhook.url: "],
            id="in a channel, of what it needs",
        ),
        pytest.param(
            MINIMAL + "alerts: {routes: {env: SLUICE_NO_SUCH}}\nschedule: {land: 3}\n",
            ["alerts.routes: ", "schedule.land: 3 is not a duration"],
            id="of a list",
        ),
    ],
)
def test_what_is_not_set_hides_no_other_mistake_and_is_told_once(
    text: str, wanted: list[str]
) -> None:
    told = sorted(faults(text))

    assert len(told) == len(wanted), told
    assert all(line.startswith(start) for line, start in zip(told, wanted, strict=True)), told
    assert sum(line.endswith(UNSET) for line in told) == 1


SECRET_SETTINGS = [
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.lake.account.blob.core.windows.net",
    "spark.executorEnv.AZURE_STORAGE_ACCOUNT_KEY",
    "spark.executorEnv.AZURE_STORAGE_CONNECTION_STRING",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.sql.catalog.x.s3.access-key-id",
    "spark.executorEnv.accountKey",
    "spark.ssl.keyPassword",
]
PLAIN_SETTINGS = [
    "spark.kryo.registrator",
    "spark.kryoserializer.buffer.max",
    "spark.ssl.keyStore",
    "spark.ssl.keyStoreType",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.io.encryption.keySizeBits",
    "spark.executor.memory",
    "spark.jars",
    "spark.submit.deployMode",
]
ABOUT_SECRETS = [
    "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY",
    "spark.kubernetes.executor.secrets.lake",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "spark.hadoop.hadoop.security.credential.provider.path",
    "spark.security.credentials.hadoopfs.enabled",
    "spark.authenticate.secret.file",
]


@pytest.mark.parametrize("name", SECRET_SETTINGS)
def test_a_secret_of_spark_is_not_written_down(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_THE_KEY", "0123")

    told = faults(MINIMAL + f"pipeline: {{spark: {{{name}: hunter2}}}}\n")
    config = parse_config(
        MINIMAL + f"pipeline: {{spark: {{{name}: {{env: SLUICE_THE_KEY}}}}}}\n", Path("/etc/s")
    )

    assert told == [
        f"pipeline.spark.{name}: a secret must not be written here; "
        "write where it is: {env: NAME} or {file: PATH}"
    ]
    assert config.pipeline.spark == {name: "0123"}
    assert may_be_spark_secret(name), "a command line would show it"


@pytest.mark.parametrize("name", PLAIN_SETTINGS + ABOUT_SECRETS)
def test_a_setting_of_spark_that_is_no_secret_may_be_written_down(name: str) -> None:
    config = parse_config(MINIMAL + f"pipeline: {{spark: {{{name}: x}}}}\n", Path("/etc/s"))

    assert config.pipeline.spark == {name: "x"}
    assert may_be_spark_secret(name) == (name in ABOUT_SECRETS), "Spark needs it at its start"


def test_a_secret_that_is_empty_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("\n")
    monkeypatch.setenv("SLUICE_EMPTY", "")
    ways = {
        "{env: SLUICE_EMPTY}": "environment variable SLUICE_EMPTY",
        "{file: secret}": f"{tmp_path}/secret",
    }

    for way, what in ways.items():
        assert faults(f"{MINIMAL}    password: {way}\n", place=tmp_path / "sluice.yaml") == [
            f"sources[0].password: {what} is empty; write the secret there, or remove the line"
        ]
