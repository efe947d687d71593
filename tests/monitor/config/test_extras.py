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


MISSING = {
    "probes.plaintext": "phonenumbers",
    "probes.expectations": "great_expectations",
    "sources[0].kind": "psycopg",
    "copies.other.kind": "psycopg",
    "copies.cache.kind": "redis",
    "lake": "obstore",
}
"""Key of a setting in the config below -> the package that it needs."""


@pytest.mark.parametrize("verb", ["check-config", "run"])
def test_f181_each_missing_extra_is_named_with_its_command(config: Path, verb: str) -> None:
    more = (
        "probes: {plaintext: {columns: [note]}, expectations: {suite: [{type: x}]}}\n"
        "copies: {other: {kind: postgres, tables: a.b}, cache: {kind: redis, tables: a.b}}\n"
    )
    text = MINIMAL.replace("    port:", "    kind: postgres\n    port:", 1)
    config.write_text(more + text.replace("lake: lake", "lake: s3a://bucket/", 1))

    done = without_extras(verb, "--config", str(config))

    found = [line for line in done.stderr.splitlines() if "needs the package" in line]
    assert len(found) == len(MISSING)
    for key, package in MISSING.items():
        command = f"needs the package {package}; run `pip install '.[{EXTRAS[package]}]'`"
        command += " in the checkout of Sluice"
        (line,) = [line for line in found if f": {key}: " in line]
        assert line.endswith(command)
    assert done.returncode == 2
