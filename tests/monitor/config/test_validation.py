import re
from datetime import timedelta
from pathlib import Path

import pytest

from checks import run as probes
from monitor.config.file import load_config, parse_config
from monitor.config.sections import plugin_faults
from monitor.config.validation import CHECKS, OBJECT_STORES
from monitor.observe import system_checks as own_verdicts
from pipeline.delta import store
from pipeline.errors import ConfigError
from pipeline.sources.source import read_limits
from tests.monitor.config.plain import cases
from tests.monitor.config.test_config import MINIMAL, PLACE, faults

SECOND = """
  - name: second
    host: 127.0.0.1
    port: 3306
    user: sluice
    collector: {url: http://127.0.0.1:8083, connector: second}
    prefix: """


def built_faults(text: str) -> list[str]:
    return faults(text, plugin_faults)


def test_a_prefix_is_a_name_that_a_topic_can_begin_with() -> None:
    right = ["shop", "there.shop", "Shop-1_b.2"]
    wrong = ["a..b", ".shop", "shop.", "shop ", "shop/", "shop\u00e9", "there.shop/"]

    told = {
        one: faults(MINIMAL.replace("prefix: shop", f"prefix: '{one}'")) for one in right + wrong
    }

    refused = "is not a valid topic prefix; use A-Z, a-z, 0-9, '_' and '-', separated by dots"
    assert told == {one: [f"sources[0].prefix: '{one}' {refused}"] * (one in wrong) for one in told}


def test_a_source_has_a_name_that_names_of_shards_can_begin_with() -> None:
    """A slash, blank, star or colon would make names of shards and parts ambiguous."""
    wrong = ["eu/shop", "", " ", "a b", "a*", "a:b", "worker"]

    told = {one: faults(MINIMAL.replace("name: shop", f"name: '{one}'")) for one in wrong}

    refused = "is not a source name; write A-Z, a-z, 0-9, '_', '.' and '-', and not 'worker'"
    assert told == {one: [f"sources[0].name: {one!r} {refused}"] for one in wrong}
    assert faults(MINIMAL.replace("name: shop", "name: eu.shop-1")) == []


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        *cases("""
    shop => shop
      'shop' is already the prefix of source shop; use a prefix of its own for each connector
    """),
        pytest.param(
            "shop",
            "shop.eu",
            "source shop also reads these topics, because its prefix is 'shop'; "
            "list the topics of source shop in `topics`",
            id="below the first",
        ),
        pytest.param(
            "shop.eu",
            "shop",
            "source second also reads these topics, because its prefix is 'shop'; "
            "list the topics of source second in `topics`",
            id="above the first",
        ),
        pytest.param(r"shop", "shop2", "", id="beside it"),
        pytest.param("shop\n    topics: shop[.]a[.].+", "shop.eu", "", id="topics are named"),
    ],
)
def test_a_topic_is_read_as_one_sources_only(first: str, second: str, line: str) -> None:
    told = faults(MINIMAL.replace("prefix: shop", f"prefix: {first}") + SECOND.strip("\n") + second)

    assert told == ([f"sources[1].prefix: {line}"] if line else [])


@pytest.mark.parametrize(
    ("shards", "table", "line"),
    [
        pytest.param(r"shop\.orders_\d+", "shop.orders", "", id="folded"),
        pytest.param(r"(\w+)\.(\w+)_\d+", r"\1.\2", "", id="by groups"),
        pytest.param(r"(?P<db>\w+)\.t", r"\g<db>.t", "", id="by a name"),
        pytest.param(r"(\w+\.\w+)", r"\1", "", id="database and table in one group"),
        pytest.param(
            r"shop\.(\w+)",
            r"shop.\2",
            r"'shop.\2' does not fit shards, which has 1 groups: invalid group reference 2",
            id="a group that is not there",
        ),
        pytest.param(
            r"shop\.x", r"\g<n>.t", r"'\g<n>.t' does not fit shards, which has 0", id="a name"
        ),
        pytest.param(r"shop\.x", r"a\q.t", r"'a\q.t' does not fit shards", id="a bad escape"),
        pytest.param(r"shop\.x", "orders", "'orders' is not a table name; write", id="no database"),
        pytest.param(r"shop\.x", "", "'' is not a table name; write database.table", id="empty"),
        pytest.param(r"shop\.x", "shop.", "'shop.' is not a table name; write", id="no name"),
        pytest.param(r"shop\.x", "shop.a/b", "'shop.a/b' is not a table name; write", id="a slash"),
    ],
)
def test_a_rule_names_a_table(shards: str, table: str, line: str) -> None:
    told = faults(MINIMAL + f"tables: [{{shards: '{shards}', table: '{table}'}}]")

    assert len(told) == (1 if line else 0)
    assert all(fault.startswith(f"tables[0].table: {line}") for fault in told)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("tier: 0", "tier"),
        ("unique_across_shards: true", "unique_across_shards"),
        ("key: [id]", "key"),
    ],
)
def test_two_rules_say_nothing_different_of_one_table(said: str, name: str) -> None:
    """Else the next shard that comes could change it: two lines would merge into one mirror."""
    rules = f"tables: [{{shards: a.b, table: c.t, {said}}}, {{shards: a.d, table: c.t%s}}]"

    assert faults(MINIMAL + rules % "") == [
        f"tables[1].{name}: tables[0] has another value for c.t; use one value"
    ]
    assert faults(MINIMAL + rules % f", {said}") == []
    assert faults(MINIMAL + rules % ", ignore: true") == []


def test_a_rule_that_ignores_names_what_it_likes() -> None:
    assert faults(MINIMAL + "tables: [{shards: 'shop[.]x', table: '', ignore: true}]") == []


def test_a_master_is_one_that_spark_knows() -> None:
    right = ["local", "local[4]", "local[*]", "local[2,3]", "yarn"]
    right += ["spark://host:7077", "k8s://https://host:443"]
    wrong = ["", "locl[2]", "local[0]", "local[x]", "host:7077", "spark:"]

    told = {one: faults(MINIMAL + f"pipeline: {{master: '{one}'}}") for one in right + wrong}

    refused = (
        "is not a Spark master; use local[4], local[*], yarn, spark://host:port or k8s://address"
    )
    assert told == {one: [f"pipeline.master: {one!r} {refused}"] * (one in wrong) for one in told}


@pytest.mark.parametrize(
    "url", ["http://bob:hunter2@c:0", "ftp://bob:hunter2@c", "bob:hunter2@c:1"]
)
def test_no_login_of_a_wrong_address_is_told(url: str) -> None:
    mirror = f"{{kafka: k:1, url: '{url}', connector: m}}"

    told = faults(MINIMAL + f"    mirrored: {mirror}\n")

    assert len(told) == 1
    assert told[0].startswith("sources[0].mirrored.url: ")
    assert "(hidden)@c" in told[0]
    assert "hunter2" not in told[0]


def test_a_mirror_answers_at_an_address() -> None:
    wrong = ["m:8083", "//m:8083", "ftp://m", "http://"]
    wrong += ["http://m:abc", "http://[m", "http://m:99999", "http://m:0"]
    for url in wrong:
        told = faults(MINIMAL + f"    mirrored: {{kafka: k:1, url: '{url}', connector: m}}\n")

        refused = "is not an address; write http://host:port"
        assert told == [f"sources[0].mirrored.url: {url!r} {refused}"]


def test_a_number_that_nothing_can_come_of_is_told() -> None:
    cases = [
        ("readiness: {margin: -PT5S}", "readiness.margin: must not be negative"),
        ("schedule: {cycles: {0: PT1M}}", "schedule.cycles.0: is not a tier that can wait"),
        (
            "schedule: {cycles: {2: PT15M}}",
            "schedule.cycles.2: 15m must be shorter than readiness.lag_budget",
        ),
        ("schedule: {cycles: {x: 1h}}", "schedule.cycles.x: is not a tier that can wait"),
        ("schedule: {land: 99ms}", "schedule.land: must be at least 100ms"),
        ("schedule: {prune: 1ms}", "schedule.prune: must be at least 100ms"),
        ("schedule: {land_deadline: 1s}", "schedule.land_deadline: must be at least 10s"),
        (
            "schedule: {merge: 2h}",
            "schedule.merge: 2h is longer than schedule.merge_deadline (30m)",
        ),
        (
            "readiness: {heartbeat_age: 1s}",
            (
                "readiness.heartbeat_age: 1s is not longer than `heartbeat`"
                " (1s), so no table would be"
            ),
        ),
        (
            "heartbeat: 15s",
            "readiness.heartbeat_age: 15s is not longer than `heartbeat` (15s)",
        ),
        (
            "schedule: {watch: 1m}",
            "readiness.sample_age: 1m is not longer than schedule.watch (1m)",
        ),
        (
            "probes: {day_counts: {days: 3661}}",
            "probes.day_counts.days: must be less than or equal to 3660",
        ),
        ("pipeline: {urgent_rows: 0}", "pipeline.urgent_rows: must be at least 1"),
        ("pipeline: {batch_rows: 0}", "pipeline.batch_rows: must be at least 1"),
        ("pipeline: {small_batch_rows: -1}", "pipeline.small_batch_rows: must be at least 0"),
        ("pipeline: {landing_tasks: 0}", "pipeline.landing_tasks: must be at least 1"),
        ("pipeline: {merge_workers: 0}", "pipeline.merge_workers: must be at least 1"),
        (
            "pipeline: {driver_memory: lots}",
            "pipeline.driver_memory: 'lots' is not a size with a unit; write",
        ),
        (
            "pipeline: {driver_memory: 0g}",
            "pipeline.driver_memory: '0g' is not a size with a unit; write",
        ),
        (
            "pipeline: {upkeep: {vacuum_every: PT0S}}",
            "pipeline.upkeep.vacuum_every: must be longer",
        ),
        *(
            (
                f"pipeline: {{upkeep: {{{name}: {short}}}}}",
                f"pipeline.upkeep.{name}: must be at least 1h",
            )
            for name in ("keep_versions", "keep_changes")
            for short in ("PT0S", "1s", "59m")
        ),
    ]
    for more, line in cases:
        (told,) = faults(MINIMAL + more)

        assert told.startswith(line), told


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: shop", "name: " + "s" * 65, "name: is too long for the heartbeat table"),
        ("user: sluice", "user: ' '", "user: is empty; write the user for Sluice's login"),
        ("name: shop", 'name: "a\\nb"', "name: 'a\\nb' is not a source name; write A-Z"),
        ("host: 127.0.0.1", "host: ''", "host: '' is not a host; write a name or an address"),
        ("host: 127.0.0.1", "host: 'db:3306'", "host: 'db:3306' is not a host; write a name"),
        ("host: 127.0.0.1", "host: 'mysql://db'", "host: 'mysql://db' is not a host; write a name"),
        ("port: 3306", "port: 0", "port: 0 is not a port; use 1 to 65535"),
        ("connector: shop", "connector: ''", "collector.connector: is empty"),
        ("prefix", "heartbeat: beat\n    prefix", "heartbeat: 'beat' is not a table name; write"),
        ("prefix", "heartbeat: a.b.c\n    prefix", "heartbeat: 'a.b.c' is not a table name; write"),
    ],
)
def test_a_source_that_could_not_be_asked_is_told(old: str, new: str, line: str) -> None:
    (told,) = faults(MINIMAL.replace(old, new))

    assert told.startswith(f"sources[0].{line}")


def test_an_address_of_the_sixth_version_is_a_host_and_sizes_may_be_in_any_unit() -> None:
    text = MINIMAL.replace("host: 127.0.0.1", "host: '::1'")

    assert faults(text + "pipeline: {driver_memory: 4GB}\nreadiness: {margin: PT0S}") == []


def test_a_rule_needs_no_table() -> None:
    for more in ("", ", ignore: true", ", tier: 0"):
        assert faults(MINIMAL + f"tables: [{{shards: 'shop[.]x'{more}}}]") == []


OFF = "must be a mapping of settings; to switch it off, write {enabled: false}"
NONE = "must be a mapping of settings, such as {kind: log}"


def test_a_section_that_would_pass_for_its_defaults_is_told() -> None:
    cases = [
        ("probes: false", "probes: must be a mapping of names"),
        ("probes: {max_id: false}", f"probes.max_id: {OFF}"),
        ("probes: {max_id: true}", f"probes.max_id: {OFF}"),
        ("probes: {max_id: [a]}", f"probes.max_id: {OFF}"),
        ("channels: []", "channels: must be a mapping of names"),
        ("channels: {log: false}", f"channels.log: {NONE}"),
        ("channels: {slack: here}", f"channels.slack: {NONE}"),
        ("channels: {a: {kind: [a]}}", "channels.a.kind: no channel \"['a']\" in alerts/channels"),
        ("channels: {log: {per_minute: 0}}", "channels.log.per_minute: must be at least 1"),
        (
            "readiness: {gating: [max_id]}\nprobes: {max_id: {enabled: false}}",
            "readiness.gating[0]: probe 'max_id' is switched off and cannot block the gate",
        ),
    ]
    for more, line in cases:
        (told,) = faults(MINIMAL + more)

        assert told.startswith(line), told


def test_an_empty_section_has_its_defaults() -> None:
    assert faults(MINIMAL + "probes:\n  max_id:\nchannels:\n  log:\n") == []


def test_what_cannot_be_read_at_all_is_told_too() -> None:
    cases = [
        ("tables: &a [*a]", "a YAML alias contains itself; write the values out"),
        ("tables: {!!binary aGk=: a}", "a key is not a text: keys must be str"),
        ('store: "a\\0b"', "store: 'a\\x00b' is not a path: "),
        ("store: ~nobody_at_all/x", "store: '~nobody_at_all/x' is not a path: "),
    ]
    for more, line in cases:
        (told,) = faults(MINIMAL + more)

        assert told.startswith(line), told


def test_a_file_of_another_encoding_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_bytes(b"lake: \xe4\n")

    with pytest.raises(ConfigError, match=r"is not UTF-8 text .byte 6.; save"):
        load_config(path)


def test_a_mistake_in_a_source_is_told_once_and_no_source_at_all_as_such() -> None:
    assert faults(MINIMAL.replace("port: 3306", "port: x")) == [
        'sources[0].port: must be a whole number, not "x"'
    ]
    assert faults("lake: l\nkafka: k:1\nsources: []") == [
        "sources: is empty; write at least one entry"
    ]


def test_a_host_is_a_name_or_an_address_wherever_it_stands() -> None:
    right = ["mysql-1", "my_sql", "a.b.example.", "1.2.3.4", "::1", "\u00fc.example"]
    wrong = ["a..b", ".a", "-a", "a b", "300.1.1.1", "[::1]", "a:1", "x" * 64]
    refused = "is not a host; write a name or an address"
    for host in right + wrong:
        told = faults(MINIMAL.replace("host: 127.0.0.1", f"host: '{host}'"))
        bound = faults(MINIMAL + f"http: {{host: '{host}'}}")

        bound = [line for line in bound if "other machines can reach" not in line]
        port = ", and the port in `port`"
        assert told == [f"sources[0].host: {host!r} {refused}{port}"] * (host in wrong)
        assert bound == [f"http.host: {host!r} {refused}"] * (host in wrong)


def test_a_broker_has_a_host_that_can_be_one() -> None:
    for broker in ("a..b:9092", "-a:9092", "a b:9092", ":9092"):
        told = faults(MINIMAL.replace("127.0.0.1:9092", f"'k:1,{broker}'"))

        refused = "is not a broker; write host:port, or several separated by commas"
        assert told == [f"kafka: {broker!r} {refused}"]


def test_bases_that_are_to_be_made_and_never_may_are_a_fault() -> None:
    text = MINIMAL + "rebootstrap: [{tables: 'shop.*', how: auto, at_once: 0}]\n"

    assert faults(text) == [
        "rebootstrap[0].at_once: must be 1 or more; to start none, use how: ask"
    ]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("rows: 0", "rows: must be 1 or more; to repair nothing, use how: ask"),
        ("tables_a_day: 0", "tables_a_day: must be 1 or more; to repair nothing, use how: ask"),
        ("tries: -1", "tries: must be 1 or more; to repair nothing, use how: ask"),
        (
            "rows: 9, rows_a_day: 8",
            "rows: 9 is above rows_a_day, 8, so a repair of so many rows could never start;"
            " decrease rows or increase rows_a_day",
        ),
    ],
)
def test_limits_of_repairs_that_allow_none_are_a_fault(rule: str, told: str) -> None:
    text = MINIMAL + f"repair: [{{tables: 'shop.*', how: auto, {rule}}}]\n"

    assert faults(text) == [f"repair[0].{told}"]


@pytest.mark.parametrize(("how", "faulty"), [("auto", True), ("ask", False)])
def test_a_repair_that_would_trust_a_replica_is_made_by_a_person_only(
    how: str, faulty: bool
) -> None:
    text = MINIMAL.replace(
        "    prefix: shop\n", "    prefix: shop\n    options: {read_from: b:3306}\n"
    )
    assert text != MINIMAL

    found = faults(f"{text}repair: [{{tables: 'shop.*', how: {how}}}]\n")

    wanted = "repair[0].how: auto would read rows at the replica that read_from of source"
    assert [one.startswith(wanted) for one in found] == [True] * faulty


AUTH = "http: {host: '%s', auth: {token: {env: SLUICE_TEST_TOKEN}}}"


def test_f161_a_host_that_other_machines_reach_needs_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICE_TEST_TOKEN", "0123456789abcdef")
    local = ["127.0.0.1", "127.0.0.2", "::1", "localhost", "LOCALHOST"]
    for host in (*local, "", "0.0.0.0", "::", "10.0.0.7", "sluice.example.org"):  # noqa: S104
        told = faults(MINIMAL + f"http: {{host: '{host}'}}")

        assert len(told) == (host not in local), host
        assert all("set http.auth: {token: {file: PATH}}" in line for line in told)
        assert faults(MINIMAL + AUTH % host) == []


def test_f161_a_token_that_protects_little_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for token in ("short", "0123456789 abcdef", "0123456789abcdef\u00e9"):
        monkeypatch.setenv("SLUICE_TEST_TOKEN", token)

        (told,) = faults(MINIMAL + AUTH % "10.0.0.7")

        assert told.startswith("http.auth.token: must have at least 16 ASCII characters")
        assert token not in told


def test_f161_a_token_is_never_written_in_the_config() -> None:
    (told,) = faults(MINIMAL + "http: {auth: {token: 0123456789abcdef}}")

    assert told.startswith("http.auth.token: a secret must not be written here")
    assert "0123456789abcdef" not in told
    assert faults(MINIMAL + "http: {auth: {token: {file: /no/such}}}") == [
        "http.auth.token: cannot read /no/such: No such file or directory;"
        " correct the path, or the file"
    ]


def test_f160_a_server_to_follow_is_a_host_or_a_host_and_a_port() -> None:
    wrong = ["", "a b", "db2:x", "mysql://db2"]
    for listed in ("db2", "db2:3306", "10.0.0.7", *wrong):
        told = faults(MINIMAL.rstrip() + f"\n    follow_hosts: ['{listed}']\n")

        refused = "is not a server; write host or host:port"
        at = "sources[0].follow_hosts[0]"
        assert told == [f"{at}: {listed!r} {refused}"] * (listed in wrong)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("running: -1", ".running: must be greater than or equal to 1"),
        ("running: 0", ".running: must be greater than or equal to 1"),
        ("rows: 0", ".rows: must be greater than or equal to 1"),
        ("rate: -5", ".rate: must be greater than or equal to 0"),
        ("statement: 0s", ".statement: must be greater than or equal to 100 milliseconds"),
        ("call: -PT1S", ".call: must be greater than or equal to 100 milliseconds"),
        ("connect: 0s", ".connect: must be greater than or equal to 100 milliseconds"),
        ("lag: -PT1S", ".lag: must be greater than or equal to 0 seconds"),
        ("statement: 10s, call: 5s", ".call: 5s is shorter than limits.statement (10s)"),
    ],
)
def test_limits_that_ask_nothing_or_without_end_are_refused(said: str, line: str) -> None:
    (told,) = built_faults(MINIMAL + f"    options: {{limits: {{{said}}}}}\n")

    assert told.startswith(f"sources[0].options.limits{line}")


@pytest.mark.parametrize(
    "wrong", ["schedule: {cycles: {x: 1h}}", "readiness: {lag_budget: {x: 1h}}"]
)
@pytest.mark.parametrize("kafka", ["kafka: 127.0.0.1:9092", ""])
def test_a_tier_that_is_none_is_told_beside_what_else_is_wrong(wrong: str, kafka: str) -> None:
    text = MINIMAL.replace("kafka: 127.0.0.1:9092", kafka) + f"    kind: nosuch\n{wrong}"

    told = built_faults(text)

    assert any(
        line.startswith(("schedule.cycles.x: is not", "readiness.lag_budget: ")) for line in told
    )
    assert any(line.startswith("sources[0].kind: ") for line in told)
    assert any(line.startswith("kafka: is required") for line in told) == (not kafka)


@pytest.mark.parametrize(
    ("more", "places"),
    [
        pytest.param(
            'tables: [{shards: "\\ud83d", table: shop.orders}]',
            ["tables[0].shards"],
            id="a pattern",
        ),
        pytest.param(
            'probes: {plaintext: {patterns: {phone: "\\ud83d"}}}\nheartbeat: 0x_',
            ["probes.plaintext.patterns.phone", "heartbeat"],
            id="beside another fault",
        ),
        pytest.param('alerts: {"\\ud83d": 1}', [r"alerts.\ud83d"], id="a key"),
        pytest.param('lake: "\\U0001f600"', [], id="a whole character"),
    ],
)
def test_half_of_a_surrogate_pair_is_told_with_its_key(more: str, places: list[str]) -> None:
    text = MINIMAL.replace("lake: lake\n", "") if "lake" in more else MINIMAL

    told = dict(line.split(": ", 1) for line in built_faults(f"{text}\n{more}\n"))

    assert [*told] == places
    assert all("half of a surrogate pair" in told[one] for one in places[:1])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2026-02-30", "a date that exists"),
        ("2026-02-28T25:00:00Z", "a date that exists"),
        ("0x_", "a whole number that can be read"),
        ("9" * 5_000, "a whole number that can be read"),
        ("0x" + "f" * 5_000, "a whole number that can be read"),
        ("!!bool maybe", "true or false"),
    ],
)
def test_a_value_that_looks_like_a_date_or_number_and_is_none_is_told_with_its_key(
    value: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MINIMAL.replace("3306", value) + "heartbeat: 0x_"
    with pytest.raises(ConfigError) as error:
        parse_config(text, PLACE)
    monkeypatch.setenv("PORT", value)
    in_env = faults(MINIMAL.replace("port: 3306", "port: {env: PORT}"))

    shown = value.removeprefix("!!bool ")
    shown = shown if len(shown) <= 40 else f"{shown[:20]}..."
    told = f"{shown} is not {kind}; correct it, or quote it if it is a text"
    lines = [_line(text, key) for key in ("port:", "heartbeat:")]
    assert str(error.value).splitlines() == [
        f"{PLACE}:{lines[0]}: sources[0].port: {told}",
        f"{PLACE}:{lines[1]}: heartbeat: 0x_ is not a whole number that can be read;"
        " correct it, or quote it if it is a text",
        f"2 faults in {PLACE}",
    ]
    in_place = told if shown != value else told.replace(shown, "$PORT")
    assert in_env == [f"sources[0].port: environment variable PORT: {in_place}"]


@pytest.mark.parametrize(
    ("more", "places"),
    [
        (
            "invariants: [{tables: shop.orders, range: {columns: {total: {least: 2026-99-99}}}}]",
            ["invariants[0].range.columns.total.least"],
        ),
        (
            "tables: {2026-99-99: 1, 2026-99-98: 2}",
            ["tables", "tables.2026-99-99", "tables.2026-99-98"],
        ),
        (
            "invariants: [{tables: shop.orders, range: {columns: {total: {}}}}]\nheartbeat: 0x_",
            ["invariants[0].range", "heartbeat"],
        ),
    ],
)
def test_beside_an_unreadable_value_no_fault_is_told_that_follows_from_it(
    more: str, places: list[str]
) -> None:
    assert [one.partition(": ")[0] for one in faults(f"{MINIMAL}\n{more}\n")] == places


def _line(text: str, key: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if key in line)


FIVE_STAGES = MINIMAL.replace("port: 3306", "port: 0x_") + (
    "    tpyo: 1\n"
    "tables:\n"
    "  - {shards: 'shop.orders', table: shop.orders, tier: 'x'}\n"
    "  - {shards: 'shop.users', table: users}\n"
    "pipeline: {upkeep: {vacuum_every: often, keep_versions: 1s}}\n"
    "readiness: {gating: [max_ids]}\n"
    "table_format: icebergg\n"
)


def test_independent_faults_of_five_stages_are_found_in_one_run() -> None:
    """A value, a name and a type, a rule between settings, a name of a probe, and a plug-in."""
    found = [line.partition(": ")[0] for line in built_faults(FIVE_STAGES)]

    assert sorted(found) == [
        "pipeline.upkeep.keep_versions",
        "pipeline.upkeep.vacuum_every",
        "readiness.gating[0]",
        "sources[0].port",
        "sources[0].tpyo",
        "table_format",
        "tables[0].tier",
        "tables[1].table",
    ]


@pytest.mark.parametrize(
    ("more", "at"),
    [
        pytest.param(
            "tables: [{shards: 'a.b', tier: 1x}, 7, {shards: 'c.d', table: d}]",
            ["tables[0].tier", "tables[1]", "tables[2].table"],
            id="entries keep their numbers",
        ),
        pytest.param(
            "tables: [{shards: '(', table: a.b}, {shards: 'c.d', table: c.d, tier: x}]\n"
            "repair: [{tables: 'c.d', how: auto, rows: 0}]",
            ["tables[0].shards", "tables[1].tier", "repair[0].rows"],
            id="a rule of a table whose tier is wrong",
        ),
        pytest.param(
            "pipeline: {upkeep: {vacuum_every: x, keep_versions: 1s}, master: nowhere}",
            ["pipeline.upkeep.vacuum_every", "pipeline.upkeep.keep_versions", "pipeline.master"],
            id="other keys of a section",
        ),
    ],
)
def test_a_fault_of_type_hides_no_other_fault_of_its_section(more: str, at: list[str]) -> None:
    found = [line.partition(": ")[0] for line in built_faults(MINIMAL + more)]

    assert sorted(found) == sorted(at)


def test_all_faults_are_told_at_once_although_a_type_is_wrong() -> None:
    text = MINIMAL.replace("port: 3306", "port: x") + (
        "readiness: {gating: [max_ids], sample_age: 1s}\n"
        "alerts: {routes: [{tables: 'source:shopp', channels: [lgo]}]}\n"
        "table_format: icebergg\n"
    )

    assert [line.partition(": ")[0] for line in built_faults(text)] == [
        "sources[0].port",
        "readiness.gating[0]",
        "readiness.sample_age",
        "alerts.routes[0].tables",
        "alerts.routes[0].channels",
        "table_format",
    ]


@pytest.mark.parametrize("deep", [101, 3_000])
def test_a_file_that_is_nested_without_end_is_told_with_its_line(deep: int) -> None:
    (told,) = faults("lake: l\nkafka: " + "[" * deep + "]" * deep)

    assert told == "is not YAML: is nested deeper than 100 levels (line 2, column 107)"


def test_nonsense_is_refused_with_its_place() -> None:
    cases = [
        ("tables: [{shards: a.b, table: 'shop.*'}]", "tables[0].table: 'shop.*' is a pattern;"),
        ("tables: [{shards: '', table: a.b}]", "tables[0].shards: is empty; set a value"),
        ("tables: [{shards: a.b, key: []}]", "tables[0].key: is empty; set a value, or remove"),
        ("tables: [{shards: a.b, key: ['']}]", "tables[0].key: contains an empty name; write"),
        ("tables: [{shards: a.b, key: [id, id]}]", "tables[0].key: 'id' occurs twice"),
        ("publish: [{tables: ''}]", "publish[0].tables: is empty; set a value, or remove"),
        ("probes: {day_counts: {columns: []}}", "probes.day_counts.columns: is empty; set a value"),
        ("probes: {day_counts: {columns: [' ']}}", "probes.day_counts.columns: contains an empty"),
        ("probes: {range_counts: {tables: ''}}", "probes.range_counts.tables: is empty; set"),
        ("http: {names: ['http://x']}", "http.names[0]: 'http://x' is not a host; write a name"),
        ("http: {names: [a, '']}", "http.names[1]: '' is not a host; write a name or an address"),
        (
            "openlineage: {url: 'http://127.0.0.1', timeout: 0s}",
            "openlineage.timeout: must be longer than 0s",
        ),
        (
            "pipeline: {spark: {spark.master: 'local[1]'}}",
            "pipeline.spark.spark.master: is set by pipeline.master; write it there",
        ),
        (
            "pipeline: {spark: {spark.driver.memory: 1g}}",
            "pipeline.spark.spark.driver.memory: is set by pipeline.driver_memory",
        ),
        ("pipeline: {spark: {foo: x}}", "pipeline.spark.foo: is not a Spark setting; use a name"),
        ("pipeline: {driver_memory: 1k}", "pipeline.driver_memory: '1k' is too small for Spark;"),
        ("pipeline: {driver_memory: 511m}", "pipeline.driver_memory: '511m' is too small"),
        ("openlineage: {url: 'marquez:5000'}", "openlineage.url: 'marquez:5000' is not an address"),
        ("openlineage: {file: log.json}", "openlineage.file: 'log.json' is not an absolute path"),
        ("alerts: {storm_limit: 0}", "alerts.storm_limit: must be at least 1, or no incident"),
        ("alerts: {storm_limit: -3}", "alerts.storm_limit: must be at least 1, or no incident"),
        ("alerts: {runbooks: ''}", "alerts.runbooks: is empty; write a folder or address"),
        ("publish: [{tables: 'shop.['}]", "publish[0].tables: 'shop.[' has a '[' without ']'"),
        ("rebootstrap: [{tables: orders}]", "rebootstrap[0].tables: 'orders' matches no table"),
        ("repair: [{tables: orders}]", "repair[0].tables: 'orders' matches no table"),
        ("probes: {max_id: {tables: 'x.['}}", "probes.max_id.tables: 'x.[' has a '[' without"),
        ("pipeline: {lane: ''}", "pipeline.lane: '' is not a lane name; use A-Z"),
        ("pipeline: {lane: a/b}", "pipeline.lane: 'a/b' is not a lane name; use A-Z"),
        ("store: {env: }", "store: name an environment variable after `env:`"),
        ("pipeline: {merge_workers: 257}", "pipeline.merge_workers: must be at most 256"),
        ("pipeline: {landing_tasks: 10001}", "pipeline.landing_tasks: must be at most 10000"),
    ]
    for more, line in cases:
        (told,) = faults(MINIMAL + more)

        assert told.startswith(line), told


def test_memory_that_spark_can_begin_with_is_fine() -> None:
    for size in ("512m", "524288k", "1g", "1TB"):
        assert faults(MINIMAL + f"pipeline: {{driver_memory: {size}}}") == []


def test_what_is_wrong_beside_values_of_a_wrong_type_is_told_at_once() -> None:
    text = MINIMAL.replace("port: 3306", "port: '3306'").replace(
        "kafka: 127.0.0.1:9092", "kafka: x"
    )

    told = faults(text + "pipeline: {merge_workers: 0}\nstore: ':memory:'\npublish: [{tables: ''}]")

    assert [line.partition(": ")[0] for line in told] == [
        "kafka",
        "sources[0].port",
        "pipeline.merge_workers",
        "store",
        "publish[0].tables",
    ]


PREFIX = MINIMAL.replace("prefix: shop", "prefix: x/y")
OTHER = (
    "  - {name: mall, host: db, port: 3306, user: sluice, prefix: a/b,"
    " collector: {url: 'http://connect:8083', connector: mall}}\n"
)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param(
            PREFIX.replace("port: 3306", "port: nope"), ["port", "prefix"], id="a value of a type"
        ),
        pytest.param(
            PREFIX.replace("    host: 127.0.0.1\n", ""), ["host", "prefix"], id="a key is missing"
        ),
        pytest.param(
            MINIMAL.replace("port: 3306", "port: nope") + "    options: {limits: {call: -3s}}\n",
            ["port", "options.limits.call"],
            id="what a plug-in finds",
        ),
        pytest.param(
            PREFIX.replace("prefix: x/y", "prefix: {a: b}"), ["prefix"], id="once for each key"
        ),
        pytest.param(
            PREFIX + "    transport: 3\n", ["transport"], id="the transport decides on prefixes"
        ),
        pytest.param(PREFIX + "    transprot: kafka\n", ["transprot"], id="a slip in a name"),
        pytest.param(
            MINIMAL + "    tls: maybe\n    certificate: none.pem\n",
            ["tls"],
            id="keys that are judged together",
        ),
    ],
)
def test_a_second_fault_of_a_source_is_told_unless_it_may_follow(text: str, at: list[str]) -> None:
    found = [line.partition(": ")[0] for line in built_faults(text)]

    assert found == [f"sources[0].{one}" for one in at]


def test_a_value_of_a_wrong_type_in_one_source_hides_no_fault_of_another() -> None:
    text = MINIMAL.replace("port: 3306", "port: nope")

    found = [line.partition(": ")[0] for line in built_faults(text + OTHER)]

    assert found == ["sources[0].port", "sources[1].prefix"]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("sources: {}\n", ["sources", "lake"]),
        (MINIMAL + "readiness: {rule: maybe}\nschedule: {cycles: {2: 14m}}", ["readiness.rule"]),
        (MINIMAL + "heartbeat: often\nreadiness: {heartbeat_age: 1s}", ["heartbeat"]),
        (MINIMAL + "schedule: {watch: often}\nreadiness: {sample_age: 1s}", ["schedule.watch"]),
        (
            MINIMAL.replace("lake: lake", "lake: 3") + "publish: [{tables: a.b, where: lake}]",
            ["lake"],
        ),
        (MINIMAL.replace("127.0.0.1:9092", "") + "kafka_security: {protocol: SSL}", ["kafka"]),
        (MINIMAL.replace("prefix: shop", "prefix: ' '") + "transport: 3", ["transport"]),
    ],
)
def test_what_hangs_on_a_value_of_a_wrong_type_is_not_judged(text: str, at: list[str]) -> None:
    assert sorted(line.partition(": ")[0] for line in faults(text)) == sorted(at)


def test_a_limit_of_statements_alone_lets_calls_take_as_long() -> None:
    said = "    options: {limits: {statement: 1m}}\n"

    assert built_faults(MINIMAL + said) == []
    assert read_limits({"limits": {"statement": "1m"}}).call == timedelta(minutes=1)


def test_labels_of_kubernetes_are_settings_of_spark() -> None:
    name = "spark.kubernetes.driver.label.app.kubernetes.io/name"

    assert built_faults(MINIMAL + f"pipeline: {{spark: {{{name}: x}}}}\n") == []


RUNBOOKS = Path(__file__).resolve().parents[3] / "docs" / "runbooks"
NO_CHECKS = {"connector", "readiness", "silent", "unproven"}  # headings there that are none


def route(text: str) -> list[str]:
    return faults(f"{MINIMAL}\nalerts: {{routes: [{{tables: '*'}}, {{{text}}}]}}\n")


@pytest.mark.parametrize(
    ("text", "line"),
    cases("""
    checks: [lag, range_count]
      alerts.routes[1].checks[1]: no check 'range_count'; the nearest is range_counts;
    checks: ['rnge_*']
      alerts.routes[1].checks[0]: no check 'rnge_*';
    tables: 'source:shpo'
      alerts.routes[1].tables: no 'source:shpo'; the nearest is source:shop;
    tables: 'channel:slakc'
      alerts.routes[1].tables: no 'channel:slakc'; the nearest is channel:log;
    tables: orders
      alerts.routes[1].tables: 'orders' matches no table; write database.table, or a
    """),
)
def test_a_route_that_would_never_be_taken_is_refused(text: str, line: str) -> None:
    (told,) = route(text)

    assert told.startswith(line)


@pytest.mark.parametrize(
    "text",
    [
        "checks: ['range_*', lag, hold, collected, worker, stalled]",
        "tables: 'source:sh*'",
        "tables: 'collector:*'",
        "tables: worker",
        "tables: kafka",
        "tables: 'channel:log'",
        "tables: 'job:*'",
        "tables: 'shop.*'",
    ],
)
def test_a_route_for_what_there_can_be_is_taken(text: str) -> None:
    assert route(text) == []


def test_a_probe_for_a_table_without_its_database_is_refused() -> None:
    assert faults(f"{MINIMAL}\nprobes: {{max_id: {{tables: orders}}}}\n") == [
        "probes.max_id.tables: 'orders' matches no table; write database.table, or a pattern"
        " such as shop.*"
    ]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("{shards: 'shop[.]tmp_.+', ignore: true}", id="no tables"),
        pytest.param("{shards: 'shop[.]t.*', tier: 0}", id="tables of their own names"),
        pytest.param("{shards: 'a_(.+)[.]t', table: 'shop.\\1'}", id="groups, and a database"),
    ],
)
def test_a_rule_whose_tables_are_called_database_table_lets_no_other_name_pass(rule: str) -> None:
    told = faults(f"{MINIMAL}\ntables: [{rule}]\nalerts: {{routes: [{{tables: orders}}]}}\n")

    assert [line.partition(";")[0] for line in told] == [
        "alerts.routes[0].tables: 'orders' matches no table"
    ]


def test_an_override_for_a_table_without_its_database_is_refused() -> None:
    probe = "max_id: {overrides: [{tables: 'shop.*', none: 1}, {tables: orders}]}"

    told = faults(f"{MINIMAL}\nprobes: {{{probe}}}\n")

    assert "probes.max_id.overrides[1].tables: 'orders' matches no table; write" in " ".join(told)
    assert len(told) == 2


def test_where_groups_make_the_names_of_tables_any_pattern_may_match() -> None:
    rules = "tables: [{shards: 'shop[.](.+)_1', table: '\\1'}]"

    assert faults(f"{MINIMAL}\n{rules}\nprobes: {{max_id: {{tables: orders}}}}\n") == []


def test_every_check_that_has_a_runbook_can_be_routed() -> None:
    pages = [page.read_text(encoding="utf-8") for page in RUNBOOKS.glob("*.md")]
    told = {name for page in pages for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)}

    assert told - NO_CHECKS <= {*CHECKS, *probes.probe_names()}
    assert {*own_verdicts.CHECKS} <= CHECKS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the config stands, beside a file and a folder."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path / "sluice.yaml"


def only_fault(path: Path, text: str) -> str:
    (told,) = faults(text, place=path)
    return told


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        pytest.param("a%20b", "lake: '{here}/a%20b' contains '%'", id="a sign for another letter"),
        pytest.param("'a\\b'", "contains '\\\\'", id="a backslash"),
        pytest.param("s3://bucket/a%20b", "contains '%'", id="in a bucket"),
        pytest.param(
            "s3:/x", "'s3:/x' is not an address; write s3://bucket/folder", id="a slash less"
        ),
        pytest.param("s3://", "is not an address", id="no bucket"),
        pytest.param("' s3a://b'", "is not an address", id="a blank before"),
        pytest.param("S3a://b", "is not an address", id="in other letters"),
        pytest.param("foo://x", "'foo://x' has an unknown scheme", id="no such kind"),
        pytest.param("file:/x", "has an unknown scheme", id="Hadoop's way of a path"),
        pytest.param("C:/x", "has an unknown scheme", id="another system's path"),
        pytest.param("s3://k:s@b/x", "lake: contains a key; set it in the env", id="a secret"),
        pytest.param("s3://b/x?k=SIG", "lake: contains a query, which may be a key", id="a query"),
        pytest.param("abfss://c@a/x?sv=1&sig=SIG", "contains a query", id="a signature"),
        pytest.param("'s3://b/x#SIG'", "contains a query", id="a fragment"),
        pytest.param("abfss://c:SIG@a/x", "lake: contains a key", id="a password of Azure"),
        pytest.param("https://a/x?sig=SIG", "contains a query", id="a signature of no known kind"),
        pytest.param("ftp://k:SIG@b/x", "'ftp://(hidden)@b/x' has an unknown", id="a login"),
        pytest.param("HDFS://x", "does not write tables on HDFS", id="HDFS"),
        pytest.param("'  '", "lake: is empty", id="blanks"),
        pytest.param("file", "{here}/file is a file", id="a file"),
        pytest.param("file/lake", "{here}/file is a file", id="below a file"),
    ],
)
def test_a_lake_that_cannot_be_read_by_all_is_refused(path: Path, lake: str, said: str) -> None:
    text = MINIMAL.replace("lake: lake", f"lake: {lake}")

    told = only_fault(path, text)

    assert said.format(here=path.parent) in told
    assert "SIG" not in told


@pytest.mark.parametrize(
    "lake",
    ["lake", "a b", "./x:y", "/no/such/folder", "file:///data", "s3://bucket", "abfss://c@a/x"],
)
def test_a_lake_elsewhere_is_fine_and_is_not_made(path: Path, lake: str) -> None:
    config = parse_config(MINIMAL.replace("lake: lake", f"lake: {lake}"), path)

    assert config.lake in (lake, str((path.parent / lake).resolve()))
    assert sorted(one.name for one in path.parent.iterdir()) == ["file", "folder"]


def test_the_kinds_of_lakes_are_those_that_the_lake_knows() -> None:
    assert OBJECT_STORES == store.OBJECT_STORES


@pytest.mark.parametrize(
    ("place", "said"),
    [
        pytest.param(
            "folder", "store: {here}/folder is a directory; use a file in it", id="folder"
        ),
        pytest.param(".", "store: {here} is a directory", id="its own folder"),
        pytest.param("file/sluice.db", "store: {here}/file is a file", id="below a file"),
        pytest.param("lake", "store: is the directory of the lake; use a file", id="the lake"),
        pytest.param("':memory:'", "store: ':memory:' is not a file on a disk", id="no file"),
        pytest.param(
            "mysql://x/y", ("store: must be the path of an SQLite file"), id="another database"
        ),
    ],
)
def test_a_store_that_can_be_no_file_is_refused(path: Path, place: str, said: str) -> None:
    told = only_fault(path, f"{MINIMAL}store: {place}\n")

    assert told.startswith(said.format(here=path.parent))


@pytest.mark.parametrize("how", ["parquet", "clone"])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        pytest.param("lake/mirrors", "overlaps with {here}/lake/mirrors", id="the mirrors"),
        pytest.param("lake/mirrors/shop/", "overlaps with {here}/lake/mirrors", id="inside"),
        pytest.param("lake/changes", "overlaps with {here}/lake/changes", id="the log"),
        pytest.param("x/../lake/changes/a", "overlaps with {here}/lake/changes", id="in it"),
        pytest.param("lake", "overlaps with {here}/lake/mirrors", id="the lake"),
        pytest.param("/", "overlaps with {here}/lake/mirrors", id="above it"),
        pytest.param("file", "{here}/file is a file; use a directory", id="a file"),
        pytest.param("file/images", "{here}/file is a file; use a directory", id="below a file"),
    ],
)
def test_images_where_upkeep_deletes_files_are_refused(
    path: Path, how: str, where: str, said: str
) -> None:
    told = only_fault(path, f"{MINIMAL}publish: [{{tables: '*', how: {how}, where: {where}}}]\n")

    assert told.startswith("publish[0].where: ")
    assert said.format(here=path.parent) in told


@pytest.mark.parametrize("where", ["images", "lake/images", "lake/mirrors2", "folder", "s3://b/x"])
def test_images_in_a_folder_of_their_own_are_fine(path: Path, where: str) -> None:
    text = f"{MINIMAL}publish: [{{tables: '*', how: parquet, where: {where}}}]\n"

    assert parse_config(text, path).publish[0].where.endswith(where)


def test_images_in_a_bucket_do_not_share_the_mirrors(path: Path) -> None:
    text = MINIMAL.replace("lake: lake", "lake: s3://b/lake")

    told = only_fault(
        path, f"{text}publish: [{{tables: '*', how: parquet, where: s3://b/lake/}}]\n"
    )

    assert "overlaps with s3://b/lake/mirrors" in told


@pytest.mark.parametrize(
    ("more", "cycles"),
    [
        pytest.param("", {2: 5}, id="a third of the budget of tier 2, which is that of tier 1"),
        pytest.param("readiness: {lag_budget: {0: PT1M, 2: PT60M}}", {2: 20}, id="or its own"),
        pytest.param(
            "schedule: {cycles: {1: PT10M}}", {1: 10}, id="what is told, and nothing else"
        ),
        pytest.param("schedule: {cycles: {}}", {}, id="none"),
    ],
)
def test_low_tiers_wait_for_less_than_would_be_late(more: str, cycles: dict[int, int]) -> None:
    told = parse_config(MINIMAL + more, PLACE).settings.cycles

    assert told == {tier: timedelta(minutes=length) for tier, length in cycles.items()}


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        pytest.param("tier: 0", 20_000, id="batches are short where a table is urgent"),
        pytest.param("tier: 0, ignore: true", 2_000_000, id="one that is ignored is not"),
        pytest.param("tier: 1", 2_000_000, id="none is"),
    ],
)
def test_tier_0_has_a_line_of_its_own_where_a_rule_names_it(rule: str, rows: int) -> None:
    settings = parse_config(f"{MINIMAL}tables: [{{shards: 'a.b', {rule}}}]", PLACE).settings

    assert (settings.divided, settings.most_rows) == (rows == 20_000, rows)
