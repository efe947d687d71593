"""Each mistake in `sluice.yaml` is one line that says where it is and what to write instead."""

import json
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it has none
import pytest
import yaml

from alerts.channels.webhook import Webhook
from checks.probes.max_id import MaxId
from monitor.config.file import Faults, config_schema, load_config, parse_config
from monitor.config.model import Config, Tuning
from monitor.config.sections import plugin_faults
from pipeline.errors import ConfigError
from pipeline.model import Ordering
from pipeline.settings import KafkaSecurity, MirrorSettings, PipelineSettings
from tests.monitor.config.plain import cases, without_place
from tests.pipeline.certificates import Authority

MINIMAL = """
lake: lake
kafka: 127.0.0.1:9092
sources:
  - name: shop
    host: 127.0.0.1
    port: 3306
    user: sluice
    prefix: shop
    collector: {url: http://127.0.0.1:8083, connector: shop}
"""
PLACE = Path("/etc/sluice/sluice.yaml")


def parse_text(more: str = "", text: str = MINIMAL) -> Config:
    return parse_config(text + more, PLACE)


def faults(text: str, also: Faults = lambda _: (), place: Path = PLACE) -> list[str]:
    """What is wrong with a config, without file, line and count; none where it is valid."""
    try:
        parse_config(text, place, also)
    except ConfigError as error:
        lines = str(error).splitlines()
        return [
            without_place(line) for line in lines if line != f"{len(lines) - 1} faults in {place}"
        ]
    return []


def test_a_lake_a_kafka_and_one_source_are_enough() -> None:
    config = parse_text()

    assert config.lake == "/etc/sluice/lake"
    assert config.store == "/etc/sluice/sluice.db"
    assert (config.http.host, config.http.port) == ("127.0.0.1", 8088)
    assert config.heartbeat == timedelta(seconds=1)
    assert config.settings.sources[0].topic_pattern == r"shop\..+"
    assert list(config.channels) == ["log"]
    assert "range_counts" in config.policy.gating


def test_a_mirror_between_two_clusters_may_put_a_word_before_the_names_of_topics() -> None:
    here = MINIMAL.replace("prefix: shop", "prefix: there.shop")
    mirror = "{kafka: 10.0.0.1:9092, url: http://m:8083, connector: m, alias: there}"

    (source,) = parse_text(f"    mirrored: {mirror}\n", text=here).sources

    assert source.mirrored == MirrorSettings("10.0.0.1:9092", "http://m:8083", "m", "there")
    assert (source.prefix, source.collected_prefix) == ("there.shop", "shop")
    assert source.every_topic(()).startswith(r"(?:there\.shop\.")


def test_a_source_says_what_the_order_of_its_changes_must_rest_on() -> None:
    (usual,), (weak,) = (
        parse_text().sources,
        parse_text("    weakest_order: partition_offset\n").sources,
    )

    assert (usual.weakest_order, weak.weakest_order) == (Ordering.LOG, Ordering.OFFSET)


def test_a_lake_may_be_an_address() -> None:
    config = parse_text(text=MINIMAL.replace("lake: lake", "lake: s3a://bucket/lake"))

    assert config.lake == "s3a://bucket/lake"


def test_tuning_is_what_the_pipeline_may_be_told_with_the_same_defaults() -> None:
    apart = {"lake", "kafka", "kafka_security", "sources", "rules", "transport"}
    apart |= {"transport_options", "table_format", "table_format_options"}
    apart |= {"publish", "invariants", "archive", "standards"}
    apart |= {"time_zone", "cycles"}
    theirs = {f.name: f for f in fields(PipelineSettings) if f.name not in apart}
    ours = {f.name: f for f in fields(Tuning)}

    assert list(ours) == list(theirs)
    assert all(
        ours[name].default == theirs[name].default
        for name in ours
        if ours[name].default is not MISSING
    )
    assert Tuning().upkeep == PipelineSettings("l", "k", ()).upkeep


@pytest.mark.parametrize(
    ("more", "line"),
    cases("""
    laek: x
      laek: unknown key; the nearest is lake; known: alerts,
    pipeline: {upkeep: {compact: PT1H}}
      pipeline.upkeep.compact: unknown key; known: keep_changes, keep_versions
    tables: [{shards: 'a(', table: b}]
      tables[0].shards: is not a regular expression: missing ), unterminated subpattern
    time_zone: Mars/Base
      time_zone: 'Mars/Base' is not a time zone; write a name such as Europe/Berlin
    time_zone: UTC+1
      time_zone: 'UTC+1' is not a time zone; write the name of a region such as Europe/Berlin
    http: {port: 22:22}
      http.port: 22:22 is a number to base 60 in YAML; quote it, or write a plain number
    readiness: {margin: 400d}
      readiness.margin: must be at most 1d, or no table is READY for a cut of today
    heartbeat: 5
      heartbeat: 5 is not a duration; write it as 30s, 5m
    heartbeat: 15 months
      heartbeat: 15 months is not a duration; write it as 30s
    heartbeat: PT0S
      heartbeat: must be longer than 0s
    probes: {max_ids: {}}
      probes.max_ids: no probe 'max_ids' in checks/probes; the nearest is max_id; known:
    probes: {max_id: {tolerence: 1}}
      probes.max_id.tolerence: unknown key; the nearest is tolerance; known:
    probes: {max_id: {every: often}}
      probes.max_id.every: often is not a duration
    probes: {max_id: {overrides: [{tolerance: 1}]}}
      probes.max_id.overrides[0].tables: is required
    probes: {max_id: {overrides: [{tables: 'a.*', tolernce: 1}]}}
      probes.max_id.overrides[0].tolernce: unknown key
    readiness: {gating: [range_count]}
      readiness.gating[0]: no probe 'range_count' in checks/probes; the nearest is range_counts;
    readiness: {rule: maybe}
      readiness.rule: must be 'both'
    readiness: {lag_budget: {gold: PT5M}}
      readiness.lag_budget: must be a mapping of tiers to durations
    channels: {pager: {}}
      channels.pager.kind: no channel 'pager' in alerts/channels; the nearest is pagerduty; known:
    alerts: {routes: [{channels: [log]}, {channels: [pager]}]}
      alerts.routes[1].channels: no channel 'pager'; known: log
    channels: {webhook: {url: 'http://x'}}
      channels.webhook.url: a secret must not be written here; write where it is: {env:
    channels: {ops: {kind: log, colour: red}}
      channels.ops.colour: unknown key; known:
    channels: {webhook: {url: {env: HOME}}}
      channels.webhook.url: must be an http
    kafka: again
      is not YAML: key 'kafka' occurs twice
    a: [
      is not YAML:
    alerts: {routes: [{table: 'x'}]}
      alerts.routes[0].table: unknown key; the nearest is tables; known:
    http: {port: '80'}
      http.port: must be a whole number
    http: {port: 99999}
      http.port: 99999 is not a port; use
    store: mysql://u:p@h/x
      store: must be the path of an SQLite file
    probes: {pipeline.clocks: {}}
      probes.pipeline.clocks: pipeline.clocks: it has no
    probes: {tests.monitor.config.plain: {}}
      probes.tests.monitor.config.plain: tests.monitor.config.plain.Plain is not a dataclass
    channels: {x: {kind: tests.monitor.config.plain}}
      channels.x.kind: tests.monitor.config.plain.Short has no per_minute, refresh; see
    """),
)
def test_a_mistake_is_told_with_its_place_and_the_way_out(more: str, line: str) -> None:
    (fault,) = faults(MINIMAL + more)

    assert fault.startswith(line)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param("lake: lake", "lake: hdfs://n/l", "lake: Sluice does not write", id="hdfs"),
        pytest.param("127.0.0.1:9092", "kafka-1", "kafka: 'kafka-1' is not a broker", id="no port"),
        pytest.param("127.0.0.1:9092", "a:1,b:99999", "kafka: 'b:99999' is no", id="a wide port"),
        pytest.param("127.0.0.1:9092", "kafka://k:9092", "kafka: 'kafka://k:9", id="a scheme"),
        pytest.param(
            "3306", "330600", "sources[0].port: 330600 is not a port", id="a source's port"
        ),
    ],
)
def test_an_address_that_nothing_can_answer_at_is_told(old: str, new: str, line: str) -> None:
    (fault,) = faults(MINIMAL.replace(old, new))

    assert fault.startswith(line)


def test_several_brokers_may_stand_with_spaces_and_the_sixth_version_of_addresses() -> None:
    text = MINIMAL.replace("127.0.0.1:9092", "'k1:9092, [::1]:9092'")

    assert parse_text(text=text).kafka == "k1:9092, [::1]:9092"


def test_a_tilde_is_the_home_folder_of_who_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/sluice")

    assert (
        parse_text(text=MINIMAL.replace("lake: lake", "lake: ~/lake")).lake == "/home/sluice/lake"
    )


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        *cases(r"""
    collector: => colector:
      sources[0].colector: unknown key; the nearest is collector; known: ca, certificate,
    user: sluice => user: sluice\n    password: hunter2
      sources[0].password: a secret must not be written here
    user: sluice => user: sluice\n    password: {env: SLUICE_NO_SUCH}
      sources[0].password: environment variable SLUICE_NO_SUCH is not set
    user: sluice => user: sluice\n    password: {file: /no/such/file}
      sources[0].password: cannot read /no/such/file: No such file or directory
    prefix: shop => prefix: shop\n    topics: '['
      sources[0].topics: is not a regular expression
    """),
        pytest.param("    port: 3306\n", "", "sources[0].port: is required", id="missing"),
    ],
)
def test_a_mistake_in_a_source_names_the_source(old: str, new: str, line: str) -> None:
    assert any(fault.startswith(line) for fault in faults(MINIMAL.replace(old, new)))


def test_a_secret_never_shows_in_a_message() -> None:
    text = MINIMAL.replace("user: sluice", "user: sluice\n    password: hunter2\n    x: y")

    told = faults(text)
    assert told
    assert "hunter2" not in str(told)


def test_all_mistakes_are_told_at_once() -> None:
    wrong = "laek: 1\nprobes: {nope: {}}\nheartbeat: 1\nchannels: {log: {x: 1}}"

    assert len(faults(MINIMAL + wrong)) == 4


def test_two_sources_of_one_name_are_refused() -> None:
    source = MINIMAL.partition("sources:\n")[2].replace("prefix: shop", "prefix: other")

    assert faults(MINIMAL + source) == [
        "sources[1].name: 'shop' is already the name of another source"
    ]


SECURED = """
kafka_security:
  protocol: SASL_SSL
  mechanism: SCRAM-SHA-512
  username: sluice
  password: {env: KAFKA_PASSWORD}
  ca: ca.pem
"""


def test_a_secured_cluster_is_named_with_a_secret_and_files_beside_the_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    (tmp_path / "ca.pem").touch()

    config = parse_config(MINIMAL + SECURED, tmp_path / "sluice.yaml")

    ca = str(tmp_path / "ca.pem")
    wanted = KafkaSecurity("SASL_SSL", "SCRAM-SHA-512", "sluice", "hunter2", ca)
    assert config.settings.kafka_security == wanted
    assert "hunter2" not in repr(config)


def test_f164_files_of_tls_lie_beside_the_config(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key = ours.certificate("us")
    files = "ca: ours.pem, certificate: us.crt, key: us.key"
    mirror = f"{{kafka: far:1, url: https://m, connector: m, {files}}}"
    lines = files.replace(", ", "\n    ")
    text = MINIMAL.replace("host: 127.0.0.1", f"host: db\n    {lines}")
    text = text.replace("url: http://127.0.0.1:8083", "url: https://connect:8083, ca: ours.pem")

    (source,) = parse_config(f"{text}    mirrored: {mirror}\n", tmp_path / "sluice.yaml").sources

    assert source.mirrored is not None
    for client in (source, source.mirrored):
        found = (client.ca, client.certificate, client.key)
        assert found == (str(ours.file), str(certificate), str(key))
    assert source.collector.ca == str(ours.file)


@pytest.mark.parametrize(
    ("more", "fault"),
    cases(r"""
    ca: ca.pem
      ca: needs TLS; set tls: true or remove it
    tls: true\n    ca: /none.pem
      ca: cannot read /none.pem: No such file
    tls: true\n    ca: empty.pem
      ca: {folder}/empty.pem has no PEM certificates; use
    tls: true\n    certificate: c.pem
      key: a certificate needs its key
    tls: true\n    key: k.pem
      key: does nothing without certificate
    mirrored: {kafka: far:1, url: http://m, connector: m, ca: ca.pem}
      mirrored.ca: needs an https url; write https:// or remove it
    """),
)
def test_f164_files_of_tls_that_do_nothing_or_cannot_be_used_are_told(
    more: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").touch()

    (line,) = faults(f"{MINIMAL}    {more}\n", place=tmp_path / "sluice.yaml")

    assert line.startswith(f"sources[0].{fault}".replace("{folder}", str(tmp_path)))


def test_f164_a_file_of_the_collectors_that_is_none_is_told_once(tmp_path: Path) -> None:
    text = MINIMAL.replace("http://127.0.0.1:8083", "https://127.0.0.1:8083")
    text = text.replace("connector: shop}", "connector: shop, ca: none.pem}")

    (line,) = faults(text, plugin_faults, tmp_path / "sluice.yaml")

    assert line.startswith("sources[0].collector.ca: ")
    assert "none.pem" in line


def test_the_cluster_before_a_mirror_is_secured_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    login = "mechanism: PLAIN, username: us, password: {env: KAFKA_PASSWORD}"
    secured = f"kafka_security: {{protocol: SASL_PLAINTEXT, {login}}}"

    config = parse_text(f"    mirrored: {{kafka: far:1, url: http://m, connector: m, {secured}}}\n")

    (source,) = config.sources
    assert source.mirrored is not None
    wanted = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "us", "hunter2")
    assert source.mirrored.kafka_security == wanted
    assert config.kafka_security == KafkaSecurity()


@pytest.mark.parametrize(
    ("section", "fault"),
    cases("""
    {protocol: SASL_SSL, password: hunter2}
      kafka_security.password: a secret must not be written here; write where it is:
    {protocol: SASL_SSL, mechanism: PLAIN, username: me}
      kafka_security.password: SASL_SSL needs it
    {protocol: SASL, mechanism: PLAIN}
      kafka_security.protocol: must be 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT' or
    {protocol: SASL_SSL, mechanism: GSSAPI}
      kafka_security.mechanism: must be 'PLAIN', 'SCRAM-SHA-256' or
    {protocol: SSL, ca: /no/such/ca.pem}
      kafka_security.ca: cannot read /no/such/ca.pem: No such file or directory
    {key_password: {env: HOME}}
      kafka_security.key_password: does nothing with protocol PLAINTEXT; set protocol to
    """),
)
def test_a_cluster_that_cannot_be_reached_so_is_told_before_anything_runs(
    section: str, fault: str
) -> None:
    found = faults(f"{MINIMAL}\nkafka_security: {section}\n")

    (told,) = [line for line in found if line.startswith(fault.partition(": ")[0])]
    assert told.startswith(fault)
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize("text", ["", "[]", "just words"], ids=["empty", "a list", "text"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    assert faults(text)[0].startswith("must be a mapping")


def test_secrets_come_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "from the environment")
    (tmp_path / "hook").write_text("https://hook.example/x\n", encoding="utf-8")
    text = MINIMAL.replace("user: sluice", "user: sluice\n    password: {env: SHOP_PASSWORD}")
    hook = f"{{url: {{file: {tmp_path / 'hook'}}}, secret: {{file: {tmp_path / 'hook'}}}}}"

    config = parse_text(f"channels: {{webhook: {hook}}}", text)

    assert config.sources[0].password == "from the environment"
    assert config.channels["webhook"] == Webhook("https://hook.example/x", "https://hook.example/x")
    assert "environment" not in repr(config.sources)


def test_the_log_is_a_channel_also_beside_others() -> None:
    config = parse_text("channels: {ops: {kind: log}}")

    assert sorted(config.channels) == ["log", "ops"]


def test_any_value_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PORT", "3307")
    monkeypatch.setenv("SHOP_TOLERANCE", "4")
    text = MINIMAL.replace("port: 3306", "port: {env: SHOP_PORT}")

    config = parse_text("probes: {max_id: {tolerance: {env: SHOP_TOLERANCE}}}", text)

    assert config.sources[0].port == 3307
    assert {plan.name: plan for plan in config.plans}["max_id"].probe.tolerance == 4
    assert faults(MINIMAL + "store: {env: SLUICE_NO_SUCH}") == [
        "store: environment variable SLUICE_NO_SUCH is not set"
    ]


def test_a_probe_has_its_own_settings_per_table() -> None:
    probes = """
probes:
  volatility: {enabled: false}
  max_id:
    every: PT7S
    tables: shop.*
    tolerance: 1
    overrides: [{tables: shop.orders, tolerance: 9}]
"""

    plans = {plan.name: plan for plan in parse_text(probes).plans}

    assert "volatility" not in plans
    assert plans["max_id"].every == timedelta(seconds=7)
    assert plans["max_id"].probe_for("shop.orders") == MaxId(tolerance=9)
    assert plans["max_id"].probe_for("shop.users") == MaxId(tolerance=1)
    assert plans["max_id"].probe_for("hr.people") is None


def test_a_probe_that_is_switched_off_holds_no_gate() -> None:
    config = parse_text("probes: {range_counts: {enabled: false}}")

    assert "range_counts" not in config.policy.gating
    assert "offset_keys" in config.policy.gating


def test_lag_budgets_go_by_tier() -> None:
    readiness = parse_text("readiness: {lag_budget: {0: PT1M, 2: PT1H}}").readiness

    assert readiness.budget(0) == timedelta(minutes=1)
    assert readiness.budget(1) == timedelta(hours=1)
    assert readiness.budget(2) == timedelta(hours=1)


def test_a_missing_file_is_told_with_the_verb_that_writes_one(tmp_path: Path) -> None:
    said = (
        "No such file or directory; use another file with --config, or create one"
        " with `sluice init`"
    )
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path / "sluice.yaml")
    with pytest.raises(ConfigError, match=r"Is a directory; use another file with --config$"):
        load_config(tmp_path)


def test_the_schema_for_editors_agrees_with_the_reader() -> None:
    whole = json.loads(json.dumps(config_schema()))
    good = {**yaml.safe_load(MINIMAL), "probes": {"max_id": {"every": "PT1M"}}}
    good["sources"][0]["password"] = {"env": "X"}
    bad = {**good, "probes": {"max_id": {"evry": "PT1M"}}}
    literal = {**good, "sources": [{**good["sources"][0], "password": "hunter2"}]}

    checker = jsonschema.Draft202012Validator(whole)

    assert checker.is_valid(good)
    assert not checker.is_valid(bad)
    assert not checker.is_valid(literal)
    assert checker.is_valid({**good, "kafka_security": {"password": {"file": "x"}}})
    assert not checker.is_valid({**good, "kafka_security": {"password": "hunter2"}})
