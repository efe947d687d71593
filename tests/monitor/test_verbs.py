"""Every verb that is asked about what is not there answers with a sentence and exit status 2."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import pytest
from click.testing import CliRunner
from fastapi import FastAPI

from monitor import __main__
from tests.monitor.config.test_config import MINIMAL
from tests.monitor.rig import USERS, Rig
from tests.monitor.serving import serving

ASKS = frozenset(
    {
        "ack",
        "archive",
        "bootstrap",
        "explain",
        "gate",
        "late",
        "ledger",
        "lineage",
        "pause",
        "quarantine",
        "repair",
        "replay",
        "resume",
        "status",
        "waive",
        "trace",
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    rig.round(2)
    with serving(rig.api()) as address:
        yield address
    rig.close()


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """Something else that answers with JSON, whatever it is asked."""
    other = FastAPI()
    other.get("/{path:path}")(lambda path: {"error_code": 404, "message": f"HTTP 404 {path}"})
    with serving(other) as address:
        yield address


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit status; anything but an exit would be a traceback, and fails the test."""
    monkeypatch.setattr(sys, "argv", ["sluice", *words])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["gate", "no.such"], "no table 'no.such'; known: ", id="gate: a table"),
        pytest.param(["gate", ""], "no table ''; known: ", id="gate: no name"),
        pytest.param(["gate", USERS, "no.such"], "no table 'no.such'", id="gate: one of two"),
        pytest.param(["gate", "\udcff"], "is not valid text", id="gate: bytes that are no text"),
        pytest.param(["gate", USERS, "--cut", "x"], "bad cut 'x'", id="gate: a cut"),
        pytest.param(["gate", USERS, "--cut", ""], "bad cut ''", id="gate: an empty cut"),
        pytest.param(["gate", USERS, "--cut", "2026-02-30"], "no such cut", id="gate: a day"),
        pytest.param(["gate", USERS, "--wait", "nan"], "is not a number", id="gate: no time"),
        pytest.param(["gate", USERS, "--wait", "inf"], "is out of range", id="gate: for ever"),
        pytest.param(["gate", USERS, "--server", "here"], "write http://host:port", id="a server"),
        pytest.param(["gate", USERS, "--server", "http://h:99999"], "out of range", id="a port"),
        pytest.param(
            ["status", "--server", "http://h:1/v1"], "write http://h:1", id="a server with a path"
        ),
        pytest.param(
            ["replay", USERS, "--reason", "x", "--date", "2026-02-30"], "'--date'", id="a day"
        ),
        pytest.param(["init", "--name", "foo"], "--from-source", id="init: a name alone"),
        pytest.param(["init", "--password-env", "BAR"], "--from-source", id="init: a password"),
        pytest.param(["ledger", "no.such"], "no table 'no.such'; known: ", id="ledger: a table"),
        pytest.param(["ledger", USERS, "--from", "x"], "from 'x': give", id="ledger: since when"),
        pytest.param(["late", "--since", "x"], "bad since 'x'", id="late: since when"),
        pytest.param(
            ["lineage", "\udcff"], "is not valid text", id="lineage: bytes that are no text"
        ),
        *(
            pytest.param(words, "is not valid text; use UTF-8", id=f"{words[0]}: odd bytes")
            for words in (
                ["ledger", "\udcff"],
                ["trace", "\udcff", "1"],
                ["ack", "\udcff"],
                ["waive", "\udcff", "--withdraw", "--reason", "x"],
                ["status", "--incident", "\udcff"],
            )
        ),
        pytest.param(["explain", "no.such"], "no table 'no.such'; known: ", id="explain: a table"),
        pytest.param(["explain", ""], "no table ''", id="explain: no name"),
        pytest.param(["explain", ".."], "no table '..'", id="explain: a name that climbs"),
        pytest.param(
            ["explain", "\udcff"], "is not valid text", id="explain: bytes that are no text"
        ),
        pytest.param(["explain", USERS, "--cut", ""], "bad cut ''", id="explain: an empty cut"),
        pytest.param(["ack", "none"], "no open incident 'none'", id="ack: an incident"),
        pytest.param(["ack", ""], "no open incident ''", id="ack: no id"),
        pytest.param(["waive", "nothing", "--reason", "x"], "is not the id", id="waive: an id"),
        pytest.param(
            ["waive", "schema:a.b@7", "--reason", "x"],
            "nothing has the id 'schema:a.b@7' now",
            id="waive: an id that nothing bears",
        ),
        pytest.param(["waive", "", "--reason", "x"], "id: must not be empty", id="waive: no id"),
        pytest.param(["status", "--config", "/no/such"], "cannot read", id="status: a config"),
        pytest.param(["jars", "--from", "here"], "'here' is no URL", id="jars: a repository"),
        pytest.param(["run", "--config", "/no/such"], "cannot read", id="run: a config"),
        pytest.param(["check-config", "--config", "/"], "Is a directory", id="check: a folder"),
        pytest.param(["init", "--config", "/no/such/x"], "cannot write", id="init: a folder"),
        pytest.param(["connector", "no"], "no source 'no'; known: shop", id="connector: a source"),
        pytest.param(["doctor", "--worker", "/no"], "cannot read /no", id="doctor: a worker"),
        pytest.param(["doctor", "--outage-days", "nan"], "is not a number", id="doctor: no days"),
        pytest.param(["doctor", "--outage-days", "1e99"], "is out of range", id="doctor: ages"),
        pytest.param(
            ["bootstrap", "no.such", "--reason", "x"],
            "unknown table 'no.such': none of its changes has landed",
            id="bootstrap: a table",
        ),
        pytest.param(
            ["bootstrap", USERS, "--reason", "x", "--cancel"],
            "no backfill is running; nothing was cancelled",
            id="bootstrap: nothing to cancel",
        ),
        pytest.param(
            ["repair", USERS, "--reason", "x"], "no rows are named: give", id="repair: no rows"
        ),
        pytest.param(
            ["replay", USERS, "--reason", "x", "--where", "now() > 1"],
            "unsupported condition at '() > 1'",
            id="replay: a function",
        ),
        pytest.param(
            ["pause", "no.such", "--reason", "x"],
            "no table 'no.such'; nothing was recorded",
            id="pause: a table",
        ),
        pytest.param(
            ["quarantine", "show", "nothing"],
            "this service reads no change log",
            id="quarantine: a service without one",
        ),
        pytest.param(["quarantine", "list", "--limit", "0"], "limit: ", id="quarantine: none"),
        pytest.param(
            ["quarantine", "resend", "x", "--reason", "x"],
            "--text FILE, --bytes FILE, or --unchanged",
            id="quarantine: nothing to send",
        ),
        pytest.param(["resume", USERS], "is not paused", id="resume: none"),
        pytest.param(
            [
                *("archive", "keep", "no.such", "--since", "2026-03-28T01:00:00Z"),
                *("--until", "2026-03-28T02:00:00Z", "--reason", "x"),
            ],
            "no table 'no.such'",
            id="archive: a table",
        ),
        pytest.param(
            ["archive", "withdraw", "x/y", "--reason", "x"],
            "unknown window 'x/y'",
            id="archive: no such window",
        ),
        pytest.param(["trace", "no.such", "1"], "no table 'no.such'", id="trace: a table"),
        pytest.param(
            ["trace", USERS, "1", "--wait", "10m"],
            "'10m' is out of range; use 0s to 1m",
            id="trace: too long",
        ),
        pytest.param(["compare", "no.such"], "nothing has landed in", id="compare: no lake"),
        pytest.param(["fly"], "no verb 'fly'", id="a verb"),
    ],
)
def test_f51_what_is_not_there_is_told_in_a_sentence(
    *,
    words: list[str],
    said: str,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sluice.yaml").write_text(MINIMAL)
    monkeypatch.chdir(tmp_path)
    asks = words[0] in ASKS and not {"--config", "--server"} & set(words)

    status = _run([*words, *(["--server", server] if asks else [])], monkeypatch)

    assert status == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        pytest.param(
            "/v1/certificates/none", 404, ("unknown certificate 'none'"), id="a certificate"
        ),
        pytest.param("/v1/readiness/no.such", 404, "no table 'no.such'", id="a table"),
        pytest.param("/v1/gate?table=no.such", 400, "no table 'no.such'", id="a table at the gate"),
        pytest.param(f"/v1/gate?table={USERS}&cut=x", 400, "bad cut 'x'", id="a cut"),
        pytest.param(
            f"/v1/tables/{USERS}/trace?key=1&at=2026-01-01T00:00:00",
            400,
            "bad at '2026-01-01T00:00:00'",
            id="an instant of a trace",
        ),
        pytest.param(f"/v1/gate?table={USERS}&stage=copy", 400, "needs `copy`", id="no copy"),
        pytest.param("/v1/incidents?state=none", 400, "must be 'pending'", id="a state"),
        pytest.param("/v1/gates", 400, "no path /v1/gates; the nearest is /v1/gate", id="a path"),
    ],
)
def test_f51_programs_are_told_in_a_sentence_under_error(
    path: str, status: int, said: str, server: str
) -> None:
    answer = httpx.get(server + path, trust_env=False)

    assert answer.status_code == status
    assert said in answer.json()["error"]


@pytest.mark.parametrize("path", ["/", "/livez", "/v1/tables"])
def test_f191_head_is_answered_as_get_without_the_body(path: str, server: str) -> None:
    head = httpx.head(server + path, trust_env=False)
    get = httpx.get(server + path, trust_env=False)

    assert head.status_code == get.status_code == 200
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


def test_f191_the_gate_takes_no_head_as_each_yes_is_a_certificate(server: str) -> None:
    head = httpx.head(f"{server}/v1/gate?table={USERS}&cut=2026-03-28", trust_env=False)

    assert (head.status_code, head.headers["Allow"]) == (405, "GET")


def test_f51_every_verb_is_asked() -> None:
    function = test_f51_what_is_not_there_is_told_in_a_sentence
    (marks,) = [mark.args[1] for mark in function.pytestmark]  # type: ignore[attr-defined]
    asked = {case.values[0][0] for case in marks}

    verbs = __main__.Verbs().list_commands(click.Context(__main__.sluice))
    assert set(verbs) - asked == set()


ASKING = pytest.mark.parametrize(
    "words",
    [
        pytest.param(["status"], id="status"),
        pytest.param(["gate", USERS], id="gate"),
        pytest.param(["explain", USERS], id="explain"),
        pytest.param(["waive", "schema:a.b", "--reason", "x"], id="waive"),
        pytest.param(["bootstrap", USERS, "--reason", "x"], id="bootstrap"),
        pytest.param(["quarantine", "list"], id="quarantine"),
    ],
)


@ASKING
def test_exit_status_3_if_no_service_answers(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run([*words, "--server", "http://127.0.0.1:9"], monkeypatch) == 3
    assert "no service answers at http://127.0.0.1:9" in capsys.readouterr().err


@ASKING
def test_f51_another_service_that_answers_there_is_told_as_such(
    *,
    words: list[str],
    stranger: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run([*words, "--server", stranger], monkeypatch) == 3
    assert "is not Sluice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["statu"], "no verb 'statu'; the nearest is status; known: ack, ", id="near"),
        pytest.param(
            ["xyzzy"], "no verb 'xyzzy'; known: ack, archive, bootstrap, ", id="far from all"
        ),
    ],
)
def test_a_verb_that_is_none_is_told_with_those_there_are(words: list[str], said: str) -> None:
    result = CliRunner().invoke(__main__.sluice, words, prog_name="sluice")

    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("words", [["-h"], ["status", "-h"]])
def test_help_is_asked_for_by_its_short_name_too(words: list[str]) -> None:
    """By a process of its own: click keeps how a verb was first asked for help."""
    command = [sys.executable, "-m", "monitor", *words]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout[:13]) == (0, "Usage: sluice")


@pytest.mark.parametrize(
    "named",
    [
        pytest.param([], id="by the config"),
        pytest.param(["--server", "http://127.0.0.1:9", "--config", "none.yaml"], id="by --server"),
    ],
)
def test_a_cut_that_is_none_is_wrong_usage_though_no_service_answers(
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"{MINIMAL}\nhttp: {{port: 9}}\n", encoding="utf-8")
    words = ["sluice", "gate", USERS, "--cut", "tomorrow", "--config", str(path), *named]
    monkeypatch.setattr(sys, "argv", words)

    with pytest.raises(SystemExit) as end:
        __main__.main()

    assert end.value.code == 2
    assert "bad cut 'tomorrow': give a date" in capsys.readouterr().err


def test_a_server_that_no_machine_can_be_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sluice", "status", "--server", "http://a..b:1"])

    with pytest.raises(SystemExit) as end:
        __main__.main()

    assert end.value.code == 2
    assert "not a valid host name; write http://host:port" in capsys.readouterr().err
