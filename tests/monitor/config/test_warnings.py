"""What is allowed and likely a mistake is warned of with its line; what is none is not."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from monitor.__main__ import sluice
from monitor.config.file import parse_config
from monitor.config.text import locate_faults
from monitor.config.warnings import config_warnings, exposed_files
from pipeline.errors import ConfigError
from tests.monitor.config.test_config import MINIMAL

PLACE = Path("/etc/sluice.yaml")


def doubts(more: str) -> list[str]:
    return config_warnings(parse_config(f"{MINIMAL}\n{more}", PLACE))


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse_config(text, PLACE)
    return str(error.value)


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        pytest.param(["{shards: 'a.*'}", "{shards: 'a\\.b'}"], "tables[1]", id="a part"),
        pytest.param(["{shards: '.*'}", "{shards: 'a_\\d+\\.b'}"], "tables[1]", id="all"),
        pytest.param(["{shards: 'a\\.b'}", "{shards: 'a\\.b'}"], "tables[1]", id="the same"),
        pytest.param(
            ["{shards: 'a_\\d+\\.b'}", "{shards: 'a_[0-4]\\.b'}"], "tables[1]", id="a class"
        ),
        pytest.param(
            ["{shards: 'a\\..*'}", "{shards: 'b\\..*'}", "{shards: '(a|b)\\.c'}"],
            "tables[2]",
            id="two together",
        ),
    ],
)
def test_f190_a_rule_that_earlier_ones_leave_nothing_is_warned_of(
    rules: list[str], key: str
) -> None:
    (told,) = doubts("tables:\n" + "\n".join(f"  - {one}" for one in rules))

    assert told.startswith(f"{key}.shards: ")
    assert "has no effect, because tables[" in told


@pytest.mark.parametrize(
    "rules",
    [
        ["{shards: 'a\\.b'}", "{shards: 'a\\..*'}"],
        ["{shards: 'a_\\d+\\.b'}", "{shards: 'a_\\w+\\.b'}"],
        ["{shards: 'a_[0-3]\\.b'}", "{shards: 'a_[0-4]\\.b'}"],
        ["{shards: 'a\\.b'}", "{shards: '(?i)A\\.B'}"],
    ],
)
def test_f190_a_rule_that_something_is_left_for_is_not(rules: list[str]) -> None:
    assert doubts("tables:\n" + "\n".join(f"  - {one}" for one in rules)) == []


@pytest.mark.parametrize(
    ("globs", "by"),
    [
        pytest.param(["shop.*", "shop.orders"], "repair[0]", id="a part"),
        pytest.param(["*", "shop.*"], "repair[0]", id="all"),
        pytest.param(["shop.orders", "shop.orders"], "repair[0]", id="the same"),
        pytest.param(["shop.o[a-s]*", "shop.o[c-e]?"], "repair[0]", id="a class"),
        pytest.param(["a.*", "b.*", "[ab].c"], "repair[0] and repair[1]", id="two together"),
    ],
)
@pytest.mark.parametrize("section", ["repair", "rebootstrap"])
def test_an_automatic_rule_that_earlier_ones_leave_nothing_is_warned_of(
    section: str, globs: list[str], by: str
) -> None:
    (found,) = doubts(f"{section}: [" + ", ".join(f"{{tables: '{one}'}}" for one in globs) + "]")

    at, by = f"{section}[{len(globs) - 1}].tables", by.replace("repair", section)
    why = f"{globs[-1]!r} has no effect, because {by} matches the same names first"
    assert found == f"{at}: {why}; move this rule up, or remove it"


@pytest.mark.parametrize(
    "globs",
    [
        ["shop.orders", "shop.*"],
        ["shop.?", "shop.*"],
        ["*.orders", "shop.*"],
        ["shop.[a-m]*", "shop.*"],
        ["shop.[!a-m]*", "shop.[a-n]*"],
        ["shop.[z-a]", "shop.[z-a]*"],
    ],
)
def test_an_automatic_rule_that_something_is_left_for_is_not(globs: list[str]) -> None:
    assert doubts("repair: [" + ", ".join(f"{{tables: '{one}'}}" for one in globs) + "]") == []


OFF = "max_id: {enabled: false}, offset_keys: {enabled: false}"


@pytest.mark.parametrize(
    ("glob", "probes", "warned"),
    [
        pytest.param("shop.*", "range_counts: {enabled: false}", True, id="all are off"),
        pytest.param("shop.a", "range_counts: {tables: shop.b}", True, id="for this table"),
        pytest.param("shop.*", "range_counts: {tables: 'stock.*'}", True, id="for this database"),
        pytest.param("shop.*", "range_counts: {tables: shop.b}", False, id="one table has one"),
        pytest.param("shop.*", "range_counts: {tables: '*.a'}", False, id="maybe"),
        pytest.param("shop.a", "range_counts: {tables: '*'}", False, id="it has one"),
    ],
)
def test_an_automatic_repair_that_no_check_can_start_is_warned_of(
    glob: str, probes: str, warned: bool
) -> None:
    rule = f"probes: {{{OFF}, {probes}}}\nrepair: [{{tables: '{glob}', how: %s}}]"

    found = doubts(rule % "auto")

    assert doubts(rule % "ask") == []
    assert len(found) == warned
    for one in found:
        assert one.startswith(
            "repair[0].how: auto repairs no row, because no check that names wrong rows looks at"
            f" {glob!r}; enable one of the probes range_counts, values, max_id, offset_keys, or"
        )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param(
            "tables: [{shards: 'shop_*.orders'}]",
            r"tables[0].shards: 'shop_*.orders' looks like a glob, but is read as a regular"
            r" expression; write 'shop_.*\\.orders'",
            id="a glob for a regex",
        ),
        pytest.param(
            "tables: [{shards: 'a\\.b', table: a.b.c}]",
            "tables[0].table: 'a.b.c' is not a table name: it has 2 dots; put a name that contains"
            ' dots in double quotes: a."b.c" is b.c of database a, and'
            ' "a.b".c is c of database a.b',
            id="a name with two dots",
        ),
        pytest.param(
            "tables: [{shards: 'shop.*', table: shop.orders}]",
            r"tables[0].shards: 'shop.*' also matches the tables of other databases whose names"
            r" begin with 'shop', and shop.orders gets the rows of all; for one database write"
            r" 'shop\..*'",
            id="a glob of one database",
        ),
        pytest.param(
            "archive: [{tables: 'shop.*', windows: [{since: 2026-03-28T01:00:00Z, until:"
            " 2026-03-28T05:00:00Z, column: made, before: '2027-01-01', reason: r, who: w}]}]",
            "archive[0].windows[0].before: 2027-01-01 is after the window, so every delete in it"
            " counts as archiving; write an earlier day",
            id="an archive of the future",
        ),
        pytest.param(
            "tables: [{shards: 'shop\\..*', table: shop.orders, ignore: true}]",
            "tables[0].table: has no effect beside `ignore: true`; remove one",
            id="a table that is ignored",
        ),
        pytest.param(
            "tables: [{shards: s.o, table: shop.orders}]\n"
            "copies: {cache: {kind: postgres, host: h, database: d, user: u,"
            " tables: shop.ordrs}}",
            "copies.cache.tables[0]: 'shop.ordrs' matches no table of `tables`; the nearest is",
            id="a copy of no table",
        ),
        pytest.param(
            "probes: {max_id: {tables: 'shop\\..*'}}",
            r"probes.max_id.tables: 'shop\\..*' looks like a regular expression; write a glob",
            id="a regex for a glob",
        ),
        pytest.param(
            "tables: [{shards: s.o, table: shop.orders}]\nprobes: {max_id: {tables: shop.order}}",
            "probes.max_id.tables: 'shop.order' matches no table of `tables`; the nearest is ",
            id="a name beside one",
        ),
        pytest.param(
            "tables: [{shards: s.o, table: shop.orders}, {shards: .*, ignore: true}]\n"
            "publish: [{tables: 'other.*'}]",
            "publish[0].tables: 'other.*' matches no table of `tables`; the nearest is shop.orders",
            id="all tables are known",
        ),
        pytest.param(
            "tables: [{shards: s.o, tier: 9}]",
            "tables[0].tier: 9 is in neither readiness.lag_budget nor schedule.cycles, so tier 2"
            " applies; known: [0, 1, 2]",
            id="a tier of no budget",
        ),
    ],
)
def test_f190_what_is_likely_a_mistake_is_warned_of(more: str, told: str) -> None:
    (found,) = doubts(more)

    assert found.startswith(told)


@pytest.mark.parametrize(
    "more",
    [
        "tables: [{shards: 'shop_\\d*\\.orders', tier: 2}]\n"
        "probes: {max_id: {tables: 'shop.*_log'}}",
        "tables: [{shards: '(shop|other)_[0-9]*\\.o.*', table: shop.orders}]",
        "tables: [{shards: s.o, tier: 5}]\nreadiness: {lag_budget: {0: PT5M, 5: PT1H}}",
        "alerts: {routes: [{tables: 'source:*', channels: [log]}]}",
    ],
)
def test_f190_what_is_none_is_not_warned_of(more: str) -> None:
    assert doubts(more) == []


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A file of a suite that expects something."""
    path = tmp_path / "suite.json"
    path.write_text(
        '{"expectations": [{"type": "expect_column_values_to_not_be_null"}]}', encoding="utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("at", "section"),
    [
        ("probes.expectations", "probes: {expectations: {suites: {'shop.*': %s}}}"),
        (
            "invariants[0].expectations",
            "invariants: [{tables: shop.a, expectations: {suites: {'shop.*': %s}}}]",
        ),
    ],
)
def test_a_suite_without_an_expectation_is_warned_of(suite: Path, at: str, section: str) -> None:
    suite.write_text('{"expectations": []}', encoding="utf-8")

    (found,) = doubts(section % suite)

    assert found.startswith(f"{at}.suites: shop.*: {suite} has no expectations; ")


ORDERS = "tables: [{shards: 's\\.o', table: shop.orders}]\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("gate", ["", ", gate: true"])
def test_a_suite_for_a_table_that_there_may_not_be_is_warned_of_with_its_key(
    suite: Path, gate: str
) -> None:
    probe = f"probes: {{expectations: {{suites: {{shop.oders: {suite}}}{gate}}}}}\n"
    part = f"{{tables: 'shop.*', expectations: {{suites: {{shop.oders: {suite}}}}}}}"

    told = doubts(
        f"{ORDERS}{probe}invariants: [{part}, {{tables: shop.oder, not_null: {{columns: [id]}}}}]"
    )

    end = "matches no table of `tables`; the nearest is shop.orders"
    assert told == [
        f"probes.expectations.suites: 'shop.oders' {end}",
        f"invariants[0].expectations.suites: 'shop.oders' {end}",
        f"invariants[1].tables: 'shop.oder' {end}",
    ]


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (
            "invariants: [{tables: shop.orders, expectations: {suites: {shop.oders: %s}}}]",
            "invariants[0].expectations.suites: 'shop.oders' matches no table of 'shop.orders'; ",
        ),
        (
            "invariants: [{tables: 'shop.*', expectations: {suites: {ship.orders: %s}}}]",
            "invariants[0].expectations.suites: 'ship.orders' matches no table of 'shop.*'; ",
        ),
        (
            "invariants: [{tables: shop.orders, expectations: {suites: {'ship.*': %s}}}]",
            "invariants[0].expectations.suites: 'ship.*' matches no table of 'shop.orders'; ",
        ),
        (
            "invariants: [{tables: shop.orders, expectations: {}}]",
            "invariants[0].expectations: has no expectations; write `suite`, or files under",
        ),
        (
            "probes: {expectations: {suites: {'': %s}}}",
            "probes.expectations.suites: the name before %s is empty; write a table's name",
        ),
        (
            "probes: {expectations: {suites: {orders: %s}, gate: true}}",
            "probes.expectations.suites: 'orders' matches no table; write database.table, or a",
        ),
    ],
)
def test_a_suite_that_no_row_can_meet_is_refused(suite: Path, section: str, told: str) -> None:
    told, section = (one.replace("%s", str(suite)) for one in (told, section))

    assert refused(f"{MINIMAL}{ORDERS}{section}").startswith(f"{PLACE}:12: {told}")


def test_an_invariant_may_have_suites_of_tables_by_pattern(suite: Path) -> None:
    suites = f"{{'shop.*': {suite}, shop.orders: {suite}, '*.orders': {suite}}}"

    assert doubts(f"invariants: [{{tables: shop.*, expectations: {{suites: {suites}}}}}]") == []


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("volatility: {slack: 50}", "slack: with 50, no number of changes is too few; write a"),
        ("volatility: {slack: 1}", "slack: with 1, no number of changes is too few; write a"),
        ("volatility: {slack: 0.99}", ""),
        ("volatility: {needed: 8, weeks: 1}", "needed: with weeks 1 there are at most 7 compar"),
        ("volatility: {needed: 7, weeks: 1}", ""),
        ("volatility: {needed: 28, weeks: 1, interval: 15m}", ""),
        ("volatility: {needed: 99, weeks: 4}", ""),
        ("volatility: {weeks: 4, interval: 14d}", "needed: with weeks 4 there are at most 2 c"),
        ("volatility: {weeks: 12, interval: 14d}", ""),
        ("day_counts: {fields: [total]}", "fields: are added up only by named dates; name these"),
        ("day_counts: {fields: [total], columns: [day]}", ""),
        ("expectations: {gate: true}", "gate: has no effect without `suite` or `suites`"),
        ("expectations: {modules: [a.b]}", "modules: has no effect without `suite` or `suites`"),
        ("plaintext: {clear: [mail]}", "clear: has no effect unless columns has '*'; add it, or"),
        ("plaintext: {clear: [a], columns: [b]}", "clear: has no effect unless columns has '*'; "),
        ("plaintext: {clear: [a], columns: ['*']}", ""),
    ],
)
def test_settings_of_a_probe_without_effect_are_warned_of(section: str, told: str) -> None:
    name, _, settings = section.partition(": ")
    override = "{tables: 'shop.*', " + settings.removeprefix("{")

    plain = doubts(f"probes: {{{section}}}")
    overridden = doubts(f"probes: {{{name}: {{overrides: [{override}]}}}}")
    shared = doubts(f"probes: {{{section[:-1]}, overrides: [{{tables: 'shop.*'}}]}}}}")

    assert len(plain) == len(overridden) == len(shared) == bool(told)
    for found, at in ((plain, ""), (overridden, "overrides[0]."), (shared, "overrides[0].")):
        assert all(one.startswith(f"probes.{name}.{at}{told}") for one in found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("kind", "severity", "told"),
    [
        ("expect_column_values_to_not_be_null", "critical", 0),
        ("expect_column_values_to_not_be_null", "warning", 1),
        ("expect_table_row_count_to_equal", "critical", 1),
    ],
)
def test_a_gate_or_an_invariant_that_can_hold_nothing_is_warned_of(
    tmp_path: Path, kind: str, severity: str, told: int
) -> None:
    one = f'{{"type": "{kind}", "severity": "{severity}"}}'
    path = tmp_path / "gate.json"
    path.write_text(f'{{"expectations": [{one}]}}', encoding="utf-8")

    for suite in (f"suite: [{one}]", f"suites: {{shop.a: {path}}}"):
        found = doubts(f"probes: {{expectations: {{gate: true, {suite}}}}}")
        assert len(found) == told
        assert all(each.startswith("probes.expectations.gate: has no effect w") for each in found)
        found = doubts(f"invariants: [{{tables: shop.a, expectations: {{{suite}}}}}]")
        at = f"invariants[0].expectations.{suite.partition(':')[0]}: has no effect without an expe"
        assert [each.startswith(at) for each in found] == [True] * told


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("mostly", "severity"), [(0.9, "critical"), (1, "critical"), (0.9, "info")]
)
def test_a_share_of_rows_that_holds_nothing_is_warned_of(mostly: float, severity: str) -> None:
    kwargs = f"{{column: a, mostly: {mostly}}}"
    plain = "{type: expect_column_values_to_not_be_null, kwargs: {column: id}}"
    share = f"{{type: expect_column_values_to_not_be_null, kwargs: {kwargs}, severity: {severity}}}"
    suite = f"suite: [{plain}, {share}]"

    found = doubts(f"probes: {{expectations: {{gate: true, {suite}}}}}")
    found += doubts(f"invariants: [{{tables: shop.a, expectations: {{{suite}}}}}]")

    told = "expectations.suite[1].kwargs.mostly: holds no row, because a slice does not show"
    places = ("probes.", "invariants[0].") if (mostly, severity) == (0.9, "critical") else ()
    assert [one.startswith(f"{at}{told}") for at, one in zip(places, found, strict=True)] == [
        True for _ in places
    ]


def test_exceptions_to_named_columns_are_warned_of() -> None:
    (told,) = doubts("invariants: [{tables: shop.a, plaintext: {clear: [a], columns: [b]}}]")

    assert told.startswith("invariants[0].plaintext.clear: has no effect unless columns has '*'; ")


def test_f190_a_tier_below_none_is_refused() -> None:
    text = f"{MINIMAL}\ntables:\n  - shards: a\n    tier: -1\n"
    line = text[: text.index("tier:")].count("\n") + 1

    assert (
        refused(text) == f"{PLACE}:{line}: tables[0].tier: -1 is not a tier; use 0 (urgent), 1 or 2"
    )


@pytest.mark.parametrize(
    ("zone", "near"),
    [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("utc0", "UTC")],
)
def test_f190_a_bad_time_zone_is_told_with_its_value_and_the_nearest(zone: str, near: str) -> None:
    told = refused(f"{MINIMAL}\ntime_zone: {zone}\n")

    assert f"time_zone: {zone!r} is not a time zone; the nearest is {near}" in told


@pytest.mark.parametrize("zone", ["CEST", "PDT", "BST", "AEST"])
def test_for_an_abbreviation_no_other_zone_is_offered(zone: str) -> None:
    told = refused(f"{MINIMAL}\ntime_zone: {zone}\n")

    assert f"time_zone: {zone!r} is not a time zone; write a name such as Europe/Berlin" in told


def test_f190_every_fault_has_its_line() -> None:
    text = (
        "lake: lake\nkafka: 127.0.0.1:9092\nsources:\n  - name: shop\n    hst: h\n    port: 1\n"
        "    user: u\nprobes:\n  max_id:\n    every: x\n"
        "channels:\n  a.b:\n    kind: log\n    bad: 1\n"
    )

    told = refused(text).splitlines()

    count = told.pop()
    assert count == f"{len(told)} faults in {PLACE}"
    lines = {line.split(": ")[1]: line.split(": ")[0] for line in told}
    assert lines["sources[0].hst"] == f"{PLACE}:5"
    assert lines["sources[0].host"] == f"{PLACE}:4"  # that lacks it
    assert lines["probes.max_id.every"] == f"{PLACE}:10"
    assert lines["channels.a.b.bad"] == f"{PLACE}:14"
    assert any("sources[0].hst: unknown key; the nearest is host; known: " in line for line in told)


def test_f190_a_key_that_the_file_has_not_has_no_line() -> None:
    assert locate_faults(PLACE, ["kafka: is required"], "lake: a\n") == [
        f"{PLACE}: kafka: is required"
    ]
    assert locate_faults(PLACE, ["kafka: is required"], "[") == [f"{PLACE}: kafka: is required"]


def test_f190_check_config_tells_warnings_and_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    path = tmp_path / "sluice.yaml"
    path.write_text(f"{MINIMAL}\ntables:\n  - shards: a\\.b\n    tier: 9\n")
    line = path.read_text().splitlines().index("    tier: 9") + 1

    words = CliRunner().invoke(sluice, ["check-config", "--config", str(path)])
    told = CliRunner().invoke(sluice, ["check-config", "--config", str(path), "--json"])

    assert words.exit_code == told.exit_code == 0
    assert words.stderr.startswith(f"warning: {path}:{line}: tables[0].tier: 9 is in neither")
    assert [one.split(": ")[1] for one in json.loads(told.stdout)["warnings"]] == ["tables[0].tier"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o600, 0o400])
def test_private_files_that_others_may_read_are_warned_of(tmp_path: Path, mode: int) -> None:
    for name in ("token", "sluice.key", "sluice.crt", "lineage.jsonl"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o644 if name in ("sluice.crt", "lineage.jsonl") else mode)
    raw = {
        "sources": [{"ca": "ca.pem", "certificate": "sluice.crt", "key": "sluice.key"}],
        "http": {"auth": {"token": {"file": str(tmp_path / "token")}}},
        "channels": {"slack": {"url": {"file": "gone"}}},
        "tables": [{"shards": ".*", "key": ["id"]}],
        "openlineage": {"file": "lineage.jsonl"},
    }

    found = [str(one) for one in exposed_files(raw, tmp_path / "sluice.yaml")]

    said = f"can be read by other users (mode {mode:04o}); run chmod 600 {tmp_path}"
    wanted = [
        f"sources[0].key: {tmp_path}/sluice.key {said}/sluice.key",
        f"http.auth.token: {tmp_path}/token {said}/token",
    ]
    assert found == (wanted if mode & 0o044 else [])


def test_check_config_warns_of_a_token_that_others_may_read(tmp_path: Path) -> None:
    config, token = tmp_path / "sluice.yaml", tmp_path / "token"
    config.write_text(f"{MINIMAL}\nhttp: {{auth: {{token: {{file: token}}}}}}\n")
    token.write_text("0123456789abcdef")
    token.chmod(0o644)

    done = CliRunner().invoke(sluice, ["check-config", "--config", str(config)])

    assert done.exit_code == 0
    assert f"http.auth.token: {token} can be read by other users" in done.stderr
    assert "0123456789abcdef" not in done.output


def test_a_fault_names_the_variable_of_the_environment_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret/value")

    told = refused(
        f"{MINIMAL}\nhttp: {{port: {{env: SHOP_PASSWORD}}}}\n"
        "probes: {max_id: {tolerance: {env: SHOP_PASSWORD}}}\n"
    )

    assert "s3cret" not in told
    assert "http.port: must be a whole number, not " in told
    assert 'not "$SHOP_PASSWORD"' in told
