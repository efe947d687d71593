"""An oracle that shares code with what it judges shares its errors."""

import subprocess
import sys

PROBE = """
import sys
import demo.oracle.compare, tests.oracle.promise, demo.shop.workload
layers = {"pipeline", "checks", "alerts", "monitor"}
print(*sorted(layers & {name.partition(".")[0] for name in sys.modules}))
"""


def test_the_oracle_and_the_shop_import_no_layer_of_the_product() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    )

    assert ended.stdout.strip() == ""
