"""A config that needs what is not installed is refused with the command that installs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.installed import EXTRAS
from tests.monitor.config.test_config import MINIMAL

# None in sys.modules is how Python marks what must not be imported, as if it were not there.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({packages}, None))
from monitor import __main__
sys.argv = ["sluice", *{words}]
__main__.main()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "sluice.yaml"


def without_extras(*words: str) -> subprocess.CompletedProcess[str]:
    script = WITHOUT.format(packages=list(EXTRAS), words=list(words))
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


def test_f181_the_base_installation_does_what_needs_no_extra(config: Path) -> None:
    config.write_text(MINIMAL)

    done = without_extras("check-config", "--config", str(config))

    assert done.returncode == 0, done.stderr
    assert "is valid" in done.stdout


def test_f181_the_schema_is_printed_without_extras() -> None:
    done = without_extras("check-config", "--schema")

    assert done.returncode == 0, done.stderr
    assert {"plaintext", "expectations"} <= set(
        json.loads(done.stdout)["properties"]["probes"]["properties"]
    )


@pytest.mark.parametrize(
    ("verb", "change", "place", "package"),
    [
        pytest.param(
            "check-config",
            ("lake: ", "probes: {plaintext: {columns: [note]}}\nlake: "),
            "probes.plaintext: ",
            "phonenumbers",
            id="plaintext",
        ),
        pytest.param(
            "check-config",
            ("lake: ", "probes: {expectations: {suite: [{type: x}]}}\nlake: "),
            "probes.expectations: ",
            "great_expectations",
            id="expectations",
        ),
        pytest.param(
            "run",
            ("    port:", "    kind: postgres\n    port:"),
            "sources[0].kind: ",
            "psycopg",
            id="source",
        ),
        pytest.param(
            "doctor",
            ("lake: ", "copies: {other: {kind: postgres, tables: a.b}}\nlake: "),
            "copies.other.kind: ",
            "psycopg",
            id="copy in Postgres",
        ),
        pytest.param(
            "check-config",
            ("lake: ", "copies: {other: {kind: redis, tables: a.b}}\nlake: "),
            "copies.other.kind: ",
            "redis",
            id="copy in Redis",
        ),
        pytest.param(
            "check-config", ("lake: ", "lake: s3a://bucket/"), "lake: ", "obstore", id="bucket"
        ),
    ],
)
def test_f181_a_missing_extra_is_named_with_its_command(
    config: Path, verb: str, change: tuple[str, str], place: str, package: str
) -> None:
    assert change[0] in MINIMAL
    config.write_text(MINIMAL.replace(*change, 1))

    done = without_extras(verb, "--config", str(config))

    command = f"needs the package {package}; run `pip install 'sluice[{EXTRAS[package]}]'`"
    (line,) = [line for line in done.stderr.splitlines() if "needs the package" in line]
    assert place in line
    assert line.endswith(command)
    assert done.returncode == 2
