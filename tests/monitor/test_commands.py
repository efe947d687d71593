"""Each verb tells a person what is true, and a program by its exit status."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from checks.model import Outcome, Ruling, Verdict
from checks.ordering import SourceOrdering
from monitor.__main__ import sluice as program
from monitor.commands import (
    ack,
    check_config,
    doctor,
    explain,
    gate,
    init,
    run,
    status,
    trace,
    waive,
)
from monitor.web.render import render_instant
from pipeline.errors import ConfigError
from pipeline.model import Missing, Ordering
from tests.monitor.config.test_config import MINIMAL
from tests.monitor.rig import ORDERS, USERS, Rig
from tests.monitor.serving import serving

DAY = "2026-03-28"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round(2)
    return rig


@pytest.fixture
def sluice(server: str) -> Callable[..., Result]:
    def run(verb: click.Command, *words: str) -> Result:
        return CliRunner().invoke(verb, [*words, "--server", server])

    return run


def _nothing(_: Rig) -> None:
    """Leave it as it is."""


def _by_offsets(rig: Rig) -> None:
    accepted = SourceOrdering(Ordering.OFFSET, Ordering.OFFSET, "shop")
    rig.assessor.orderings = {"shop": accepted}


def _silence(rig: Rig) -> None:
    rig.lake.silent = True
    rig.second(5)


@pytest.mark.parametrize(
    ("harm", "cut", "code", "said"),
    [
        pytest.param(
            _nothing, DAY, 0, "READY\n  shop.users mirror: ready, certificate", id="ready"
        ),
        pytest.param(
            _by_offsets, "2026-03-27", 0, "weaker_proof: proven by partition_offset", id="offsets"
        ),
        pytest.param(_nothing, "2026-03-30", 1, "cut_ahead", id="not ready"),
        pytest.param(_silence, "2026-03-29T12:00:02Z", 3, "no_mark", id="unknown"),
        pytest.param(
            lambda rig: rig.rule(USERS, Outcome.FAIL), DAY, 4, "range_counts says fail", id="lost"
        ),
        pytest.param(
            lambda rig: rig.intrude(USERS),
            "2026-03-29T12:00:02Z",
            4,
            "foreign_write",
            id="another writer",
        ),
    ],
)
def test_gate_answers_by_its_exit_status(
    *,
    rig: Rig,
    sluice: Callable[..., Result],
    harm: Callable[[Rig], None],
    cut: str,
    code: int,
    said: str,
) -> None:
    harm(rig)
    rig.second(2)

    result = sluice(gate.COMMAND, USERS, ORDERS, "--cut", cut)

    assert result.exit_code == code
    assert said in result.output


@pytest.mark.parametrize("ruled", [True, False])
def test_gate_names_gating_checks_without_a_result_beside_ready(
    rig: Rig, sluice: Callable[..., Result], *, ruled: bool
) -> None:
    rig.rule(USERS, Outcome.PASS if ruled else Outcome.UNKNOWN)

    result = sluice(gate.COMMAND, USERS, "--cut", DAY)

    line = "    checks without a result: range_counts; `sluice explain shop.users` shows why\n"
    assert result.exit_code == 0
    assert (line in result.output) is not ruled


@pytest.mark.parametrize(
    "words", [("--cut", "someday", USERS), ("shop.nobody",)], ids=["no cut", "no table"]
)
def test_gate_tells_a_wrong_question(sluice: Callable[..., Result], words: tuple[str, ...]) -> None:
    result = sluice(gate.COMMAND, *words)

    assert isinstance(result.exception, ConfigError)


def test_a_gate_nobody_answers_at_is_not_open() -> None:
    result = CliRunner().invoke(gate.COMMAND, [USERS, "--server", "http://127.0.0.1:9"])

    assert result.exit_code == 3
    assert "no service answers at http://127.0.0.1:9" in result.output
    assert "start `sluice run`" in result.output


def test_gate_prints_json_for_programs(sluice: Callable[..., Result]) -> None:
    result = sluice(gate.COMMAND, USERS, "--cut", DAY, "--json")

    assert json.loads(result.output)["tables"][0]["state"] == "ready"


def test_status_shows_tables_and_incidents(rig: Rig, sluice: Callable[..., Result]) -> None:
    rig.rule(ORDERS, Outcome.FAIL)
    rig.cycle.watch()

    result = sluice(status.COMMAND)

    assert result.exit_code == 0
    assert "shop.orders" in result.output
    assert "critical firing lost shop.orders range_counts" in result.output


def test_status_names_a_part_that_is_down_once(rig: Rig, sluice: Callable[..., Result]) -> None:
    rig.facts.broken["source:shop"] = "source:shop: down: connection refused"
    rig.cycle.watch()

    output = sluice(status.COMMAND).output

    assert "critical firing service source:shop: down: connection refused" in output


def test_status_begins_with_what_a_person_must_know_first(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    well = sluice(status.COMMAND).output.splitlines()
    rig.intrude(USERS)
    rig.watch()

    lines = sluice(status.COMMAND).output.splitlines()

    assert well[0].startswith("READY: all 2 tables are ready up to ")
    assert lines[0].startswith(f"BLOCKED {USERS}: version 2 ")
    assert "at merge); see docs/runbooks/blocked.md#foreign_write" in lines[0]


def test_f51_status_of_an_empty_service_says_what_it_waits_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "empty")
    rig.collector.position = Missing("connector shop has not stored an offset yet")
    rig.cycle.watch()
    with serving(rig.api()) as address:
        result = CliRunner().invoke(status.COMMAND, ["--server", address])
    rig.close()

    said = "source shop is read for the first time: nothing has landed yet: connector shop has not"
    assert said in result.output


def test_status_of_thousands_of_tables_fits_a_screen() -> None:
    service = FastAPI()
    state = {"state": "ready", "reasons": []}
    late = {"state": "not_ready", "reasons": [{"text": "late"}]}
    rows = [
        {"table": f"t{n:04}", "lag_seconds": 1, "day": {"mirror": s}, "recent": {"mirror": s}}
        for n in range(3000)
        for s in [late if n == 2999 else state]
    ]
    service.get("/v1/tables")(lambda: rows)
    service.get("/v1/incidents")(lambda: [])
    service.get("/v1/service")(lambda: {"turning": True, "why": "", "first": []})
    with serving(service) as address:
        result = CliRunner().invoke(status.COMMAND, ["--server", address])

    assert "t2999" in result.output
    assert len(result.output.splitlines()) < 60


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param(f"shop.{'orders_' * 20}", f"shop.{'orders_' * 20}", id="longer than a line"),
        pytest.param("shop.\x1b[2Jt", "shop.\\x1b[2Jt", id="an escape"),
        pytest.param("shop.t\nshop.u", "shop.t\\nshop.u", id="a line break"),
    ],
)
def test_f191_f163_status_in_a_pipe_shows_a_name_whole_and_harmless(name: str, shown: str) -> None:
    output = status_of(name, {"state": "ready", "reasons": []}, turning=True, why="", first=[])

    assert shown in output
    assert "\x1b" not in output


def status_of(name: str, state: dict[str, Any], **service: Any) -> str:
    """What `sluice status` prints of a service with one table of that name, in that state."""
    api = FastAPI()
    row = {"table": name, "lag_seconds": 1, "day": {"mirror": state}, "recent": {"mirror": state}}
    api.get("/v1/tables")(lambda: [row])
    api.get("/v1/incidents")(lambda: [])
    api.get("/v1/service")(lambda: service)
    with serving(api) as address:
        return CliRunner().invoke(status.COMMAND, ["--server", address]).output


def test_status_of_an_incident_lists_all_its_keys_and_the_columns_of_those_that_differ() -> None:
    api = FastAPI()
    keys = [f"s/d.t:{number}" for number in range(30)]
    incident = {
        **{"id": "a1", "about": "d.t", "check": "values", "reason": "why", "severity": "critical"},
        **{"state": "firing", "kind": "lost", "acknowledged": None, "keys": keys, "more_rows": 4},
        "differing": [
            {"columns": ["total", "state"], "more_columns": 0, "keys": ["s/d.t:7"]},
            {"columns": ["a", "b"], "more_columns": 1480, "keys": ["s/d.t:8"]},
        ],
    }
    api.get("/v1/incidents/a1")(lambda: incident)
    with serving(api) as address:
        result = CliRunner().invoke(status.COMMAND, ["--incident", "a1", "--server", address])

    assert result.output.splitlines() == [
        "critical firing lost d.t values: why (incident a1)",
        *(f"  {key}" for key in keys),
        "differ in total, state:",
        "  s/d.t:7",
        "differ in a, b and 1480 more:",
        "  s/d.t:8",
        "about 4 more rows differ, which are not named",
    ]


@pytest.mark.parametrize("name", ["[red]", "shop.[/]", "a[bold]b", ":cat:.t"])
def test_status_shows_a_name_as_it_is_whatever_rich_would_read_in_it(name: str) -> None:
    output = status_of(name, {"state": name, "reasons": [{"text": name}]}, turning=False, why=name)

    assert f"the states below are outdated: {name}" in output
    assert output.count(name) == 1 + 4


def test_ack_takes_an_incident_in_hand_by_the_id_that_status_shows(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    rig.rule(ORDERS, Outcome.FAIL)
    rig.cycle.watch()
    (incident,) = rig.store.incidents.open()

    assert f"(incident {incident.id})" in sluice(status.COMMAND).output
    result = sluice(ack.COMMAND, incident.id, "--who", "ann")

    assert (result.exit_code, result.output) == (0, f"{incident.id} is acknowledged by ann\n")
    assert f"(incident {incident.id}, acknowledged by ann)" in sluice(status.COMMAND).output
    held = rig.store.incidents.open()[0].acknowledged
    assert held is not None
    assert (held.who, held.at) == ("ann", rig.now)


def test_ack_of_what_is_not_open_says_so(sluice: Callable[..., Result]) -> None:
    result = sluice(ack.COMMAND, "no/such", "--who", "ann")

    assert isinstance(result.exception, ConfigError)
    assert "no open incident" in str(result.exception)


def test_explain_names_hops_reasons_and_what_to_waive(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    rig.intrude(USERS)
    rig.collector.position = Missing("no offset yet")
    rig.second(2)

    result = sluice(explain.COMMAND, USERS, "--cut", "now")

    assert "hop collection: " in result.output
    assert "sluice waive foreign_write:shop.users:2 --reason" in result.output


def test_f127_explain_shows_since_when_and_when_it_last_looked(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    kept = rig.store.verdicts.list(table=USERS, check="lag", limit=9)
    rig.round(3)

    result = sluice(explain.COMMAND, USERS)

    (line,) = [line for line in result.output.splitlines() if line.startswith("  lag: ")]
    assert f"since {render_instant(kept[-1].at)}" in line
    assert f"last run {render_instant(rig.current.board.tables[-1].lags.at)}" in line


def test_f128_explain_offers_the_repair_first_and_the_waiver_last(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    short = Ruling(Outcome.FAIL, "2 rows short", "missing_rows", ("[1, 3)",))
    rig.recorder.tell([Verdict(USERS, "range_counts", short, rig.now)])
    (incident,) = rig.store.incidents.open()

    result = sluice(explain.COMMAND, USERS, "--cut", "now")

    (line,) = {line for line in result.output.splitlines() if "check_failed" in line}
    repair = line.index(f"sluice repair {USERS} --incident {incident.id}")
    assert repair < line.index("sluice waive ")


def explain_reason(code: str, text: str, id_: str, *failing: str) -> str:
    """What `sluice explain t` shows of this reason, with *failing* checks of an incident."""
    reason = {"code": code, "text": text, "id": id_}
    about = {"table": "t", "stage": "mirror", "cut": "now", "state": "blocked", "eta": None}
    answer = {**about, "reasons": [reason], "hops": []}
    members = [{"table": "t", "check": check} for check in failing]
    incident = {"id": "a1", "kind": "lost", "failing": members}
    service = FastAPI()
    service.get("/v1/gate")(lambda: {"state": "blocked", "tables": [answer]})
    service.get("/v1/verdicts")(lambda: [])
    service.get("/v1/tables")(lambda: [])
    service.get("/v1/incidents")(lambda: [incident])
    service.get("/v1/checks")(lambda: [{"check": "day_counts", "why": "no date column is chosen"}])
    with serving(service) as address:
        return CliRunner().invoke(explain.COMMAND, ["t", "--server", address]).output


def test_explain_shows_an_id_as_a_shell_takes_it() -> None:
    id_ = 'schema:d.a "b" $HOME@7'

    output = explain_reason("shards_differ", "no", id_)

    shown = output.partition("(sluice ")[2].partition(" --reason")[0]
    assert shlex.split(shown) == ["waive", id_]
    assert "checks: none has run yet" in output
    assert "\n  day_counts: no verdict yet, no date column is chosen\n" in output


BASE, REPAIR = "sluice bootstrap t --reason ...", "sluice repair t --incident a1 --reason ..."
WAIVE = "or, to ignore it: sluice waive x --reason ..."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("range_counts: as schema says", f"{REPAIR}; {WAIVE}", id="names rows"),
        pytest.param("schema: of range_counts", f"{BASE}; {WAIVE}", id="names none"),
        pytest.param("completeness: 1 transactions", BASE, id="must not be waived"),
        pytest.param("mine: as range_counts says", WAIVE.split(": ")[1], id="of a plug-in"),
    ],
)
def test_explain_offers_what_ends_the_finding_of_a_check(text: str, shown: str) -> None:
    failing = ("completeness", "mine", "range_counts", "schema")

    output = explain_reason("check_failed", text, "x", *failing)

    assert f"  check_failed: {text}  ({shown})\n" in output


@pytest.mark.parametrize(
    ("state", "status"), [("unknown", 3), ("blocked", 0), ("not_ready", 0), ("ready", 0)]
)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_explain_ends_as_the_gate_does_where_nothing_is_known(
    state: str, status: int, more: list[str]
) -> None:
    service = FastAPI()
    about = {"table": "t", "stage": "mirror", "cut": "now", "state": state, "eta": None}
    answer: dict[str, object] = {**about, "reasons": [], "hops": []}
    service.get("/v1/gate")(lambda: {"state": state, "tables": [answer]})
    for path in ("verdicts", "tables", "incidents", "checks"):
        service.get(f"/v1/{path}")(lambda: [])
    with serving(service) as address:
        result = CliRunner().invoke(explain.COMMAND, ["t", "--server", address, *more])

    assert (result.exit_code, state in result.output) == (status, True)


@pytest.mark.parametrize("more", ["#x", "?cut=now", "/x", "%23", "/../users"])
def test_explain_never_tells_of_another_table_than_the_one_that_was_named(
    sluice: Callable[..., Result], more: str
) -> None:
    result = sluice(explain.COMMAND, f"{ORDERS}{more}")

    assert isinstance(result.exception, ConfigError)
    assert f"no table '{ORDERS}{more}'" in str(result.exception)


def test_a_service_at_an_address_of_the_sixth_version_is_asked_there(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL + "http: {host: '::1', port: 9}\n")

    result = CliRunner().invoke(status.COMMAND, ["--config", str(path)])

    assert "no service answers at http://[::1]:9/" in result.output


def test_an_address_that_is_none_is_told_as_such() -> None:
    result = CliRunner().invoke(gate.COMMAND, [USERS, "--server", "http://::1:8088"])

    assert isinstance(result.exception, ConfigError)
    assert "write http://host:port" in str(result.exception)


def test_a_level_that_no_log_has_is_wrong_usage() -> None:
    assert CliRunner().invoke(run.COMMAND, ["--log-level", "loud"]).exit_code == 2


def test_a_workers_file_of_another_encoding_is_told(tmp_path: Path) -> None:
    path, worker = tmp_path / "sluice.yaml", tmp_path / "worker.properties"
    path.write_text(MINIMAL)
    worker.write_bytes(b"\xe4=1\n")

    result = CliRunner().invoke(doctor.COMMAND, ["--config", str(path), "--worker", str(worker)])

    assert isinstance(result.exception, ConfigError)
    assert "is not UTF-8 text" in str(result.exception)


def test_waive_is_recorded_with_who_and_why(rig: Rig, sluice: Callable[..., Result]) -> None:
    words = ("foreign_write:shop.users:2", "--reason", "looked at it", "--who", "on call")
    rig.intrude(USERS)
    rig.second(2)

    first, second = sluice(waive.COMMAND, *words), sluice(waive.COMMAND, *words)

    kept = rig.store.waivers.list()
    assert (first.output, second.output) == (
        "foreign_write:shop.users:2 waived\n",
        "foreign_write:shop.users:2 was already waived\n",
    )
    assert [(one.id, one.who, one.reason) for one in kept] == [
        ("foreign_write:shop.users:2", "on call", "looked at it")
    ]


def test_f103_a_waiver_is_withdrawn_by_the_verb(rig: Rig, sluice: Callable[..., Result]) -> None:
    id_ = "foreign_write:shop.users:2"
    rig.intrude(USERS)
    rig.second(2)
    sluice(waive.COMMAND, id_, "--reason", "looked at it", "--until", "2099-01-01T00:00:00Z")
    (given,) = rig.store.waivers.list()
    assert given.until is not None

    done = sluice(waive.COMMAND, id_, "--withdraw", "--reason", "it was wrong", "--who", "me")
    again = sluice(waive.COMMAND, id_, "--withdraw", "--reason", "it was wrong")

    assert done.output == f"the waiver of {id_} is withdrawn\n"
    assert "no open waiver" in str(again.exception)
    assert rig.store.waivers.waived() == frozenset()
    assert rig.store.waivers.list()[0].withdrawn_why == "it was wrong"


def test_waive_of_what_nothing_is_named_is_refused_and_not_kept(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    result = sluice(waive.COMMAND, "nonsense", "--reason", "x")

    assert isinstance(result.exception, ConfigError)
    assert "'nonsense' is not the id of a gap" in str(result.exception)
    assert rig.store.waivers.list() == ()


def test_a_waiver_ends_after_a_length_as_a_pause_does(
    rig: Rig, sluice: Callable[..., Result]
) -> None:
    rig.intrude(USERS)
    rig.second(2)
    words = ("foreign_write:shop.users:2", "--reason", "x", "--until", "4h")

    result = sluice(waive.COMMAND, *words)

    (waiver,) = rig.store.waivers.list()
    assert (result.exit_code, waiver.until) == (0, rig.now + timedelta(hours=4))


def test_waive_without_a_reason_is_refused(sluice: Callable[..., Result]) -> None:
    result = sluice(waive.COMMAND, "schema:a.b@7", "--reason", " ")

    assert isinstance(result.exception, ConfigError)


def test_an_address_with_a_path_is_refused(server: str) -> None:
    result = CliRunner().invoke(status.COMMAND, ["--server", f"{server}/docs#"])

    assert isinstance(result.exception, ConfigError)
    assert (
        str(result.exception)
        == f"--server {server}/docs#: contains more than an address; write {server}"
    )


def test_init_writes_a_file_that_check_config_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "x")
    path = str(tmp_path / "sluice.yaml")

    written = CliRunner().invoke(init.COMMAND, ["--config", path])
    again = CliRunner().invoke(init.COMMAND, ["--config", path])
    checked = CliRunner().invoke(check_config.COMMAND, ["--config", path])

    assert written.exit_code == 0
    assert isinstance(again.exception, ConfigError)
    assert "is valid" in checked.output


def _without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A config, and what is said of a machine that has neither Java nor Spark's jars."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL)
    return str(path), f"no Java found in JAVA_HOME, {tmp_path}; install a Java 17 runtime"


def test_f180_check_config_warns_where_spark_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lack = _without_java(tmp_path, monkeypatch)

    checked = CliRunner().invoke(check_config.COMMAND, ["--config", path])
    as_json = CliRunner().invoke(check_config.COMMAND, ["--config", path, "--json"])

    assert checked.exit_code == 0
    assert f"warning: {lack}" in checked.output
    assert json.loads(as_json.stdout)["warnings"][-1].startswith(lack)


def test_f180_run_refuses_to_start_where_spark_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lack = _without_java(tmp_path, monkeypatch)

    result = CliRunner().invoke(run.COMMAND, ["--config", path])

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(lack)


def test_check_config_prints_the_schema() -> None:
    result = CliRunner().invoke(check_config.COMMAND, ["--schema"])

    assert "sources" in json.loads(result.output)["properties"]


def test_help_tells_each_verb_in_a_whole_sentence() -> None:
    told = CliRunner().invoke(program, ["--help"], prog_name="sluice").output

    verbs = told.partition("Commands:\n")[2].strip().splitlines()
    assert len(verbs) >= 8
    assert [line for line in verbs if line.endswith("...") or line[-1] not in ".?"] == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["--version"], 0, "sluice, version", id="version"),
        pytest.param(["fly"], 2, "no verb 'fly'", id="a verb that is not built"),
        pytest.param(["gate"], 2, "Missing argument", id="no table"),
        pytest.param(
            ["check-config", "--config", "/no/such.yaml"],
            2,
            (
                "cannot read /no/such.yaml: No such file or directory; use another file"
                " with --config, or"
            ),
            id="no config",
        ),
    ],
)
def test_the_program_ends_with_one_line_and_never_a_traceback(
    words: list[str], code: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "monitor", *words], capture_output=True, text=True, check=False
    )

    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "wait"),
    [
        (["shop.users", "-5"], 10),
        (["shop.users", "-5", "--wait", "3s", "--json"], 3),
        (["--json", "shop.users", "--wait", "3s", "-5"], 3),
        (["shop.users", "--", "-5"], 10),
    ],
)
def test_trace_takes_a_negative_number_as_a_key(words: list[str], wait: int) -> None:
    found = trace.COMMAND.make_context("trace", words).params

    assert (found["table"], found["key"]) == ("shop.users", "-5")
    assert found["wait"] == timedelta(seconds=wait)


def test_trace_refuses_an_option_that_it_does_not_have() -> None:
    refused = CliRunner().invoke(trace.COMMAND, ["shop.users", "5", "--wiat", "3s"])

    assert (refused.exit_code, "No such option" in refused.output) == (2, True)
