"""Imports the code of Python workers once, in the process from which Spark forks them.

Otherwise each worker would spend about a second on imports, and Spark ends workers that are idle
for a minute. Start nothing here that a fork would break: no client, and no `deltalake`.

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
"""Modules that each worker runs.  They are named because this package may not import them."""

for module in TASKS:
    import_module(module)
for module in filter(None, os.environ.get(PRELOADED, "").split(",")):
    with suppress(Exception):  # the worker that needs it imports it again and reports the error
        import_module(module)

if __name__ == "__main__":
    os.nice(int(os.environ.get(NICENESS, "0")))
    gc.freeze()  # memory that the collector never touches stays shared between all workers
    manager()  # type: ignore[no-untyped-call]
