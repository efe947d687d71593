"""Imports the code of Python workers once, in the process from which Spark forks them.

A worker that imports for itself needs about a second, and Spark ends workers that are idle for
a minute. Start nothing here that a fork would break: no client, and no `deltalake`.

A plug-in that cannot be imported is skipped here. The worker that needs it imports it again and
reports the error.
"""

import gc
import os
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

from pipeline.spark.session import NICENESS, PRELOADED

TASKS = ("pipeline.apply.merge_job", "pipeline.landing.task")
"""What each worker runs.  Named, not imported: this package may not import theirs."""

for module in TASKS:
    import_module(module)
for module in filter(None, os.environ.get(PRELOADED, "").split(",")):
    with suppress(Exception):  # whoever needs it imports it again, and is told why it fails
        import_module(module)

if __name__ == "__main__":
    os.nice(int(os.environ.get(NICENESS, "0")))
    gc.freeze()  # pages that are never swept stay shared between all workers
    manager()  # type: ignore[no-untyped-call]
