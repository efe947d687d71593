"""What a verb does not need it does not load: a job asks at the gate every few seconds."""

import json
import subprocess
import sys

import pytest

SLOW = (
    *("pydantic", "sqlalchemy", "pyarrow", "pandas", "numpy", "pyspark", "great_expectations"),
    *("deltalake", "fastapi", "structlog", "kafka", "pymysql", "checks", "alerts"),
)
ASKED = """
import json, sys
from monitor import __main__
sys.argv = ["sluice", *{words}]
try:
    __main__.main()
except SystemExit:
    pass
print("\\n" + json.dumps(sorted({slow} & {{name.partition(".")[0] for name in sys.modules}})))
"""


@pytest.mark.parametrize(
    ("words", "also"),
    [
        pytest.param(["--help"], {"httpx", "rich", "yaml"}, id="help"),
        pytest.param(["gate", "--help"], {"httpx", "rich"}, id="help of a verb"),
        pytest.param(["status"], set(), id="status"),
        pytest.param(["gate", "a.b"], set(), id="gate"),
        pytest.param(["explain", "a.b"], set(), id="explain"),
        pytest.param(["waive", "x", "--reason", "y"], set(), id="waive"),
    ],
)
def test_f51_a_verb_loads_nothing_that_it_does_not_need(words: list[str], also: set[str]) -> None:
    asks = [] if "--help" in words else ["--server", "http://127.0.0.1:9"]
    script = ASKED.format(words=[*words, *asks], slow=also | set(SLOW))

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert asks == [] or "no service answers" in done.stderr


def test_the_spark_process_loads_no_store_and_before_it_opens_no_spark() -> None:
    script = "import sys, monitor.spark.worker; print(*{'sqlalchemy', 'pyspark'} & {*sys.modules})"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
