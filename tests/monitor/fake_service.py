"""`sluice run` with a Spark process that needs no Spark."""

import sys
from pathlib import Path

from monitor import service
from monitor.config.file import load_config
from monitor.runtime import configure_logging

SPARK = (sys.executable, "-m", "tests.monitor.fake_worker")

if __name__ == "__main__":
    configure_logging(json=True)
    sys.exit(
        service.run_service(load_config(Path(sys.argv[1])), Path(sys.argv[2]).write_text, SPARK)
    )
