"""The process that Spark forks its Python workers from: what they run is imported once, here.

A worker that imports for itself needs a second for it, and Spark ends those that were idle for a
minute.  Nothing may be begun here that a fork would tear: no client, and no ``deltalake``.
"""

import gc
import os
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

import pipeline.apply.mirror_job
import pipeline.landing.task  # noqa: F401
from pipeline.worker_environment import NICENESS, PRELOADED

for module in filter(None, os.environ.get(PRELOADED, "").split(",")):
    with suppress(Exception):  # whoever needs it imports it again, and is told why it fails
        import_module(module)

if __name__ == "__main__":
    os.nice(int(os.environ.get(NICENESS, "0")))
    gc.freeze()  # pages that are never swept stay shared between all workers
    manager()  # type: ignore[no-untyped-call]
