"""The process that Spark forks its Python workers from: what they run is imported once, here.

A worker that imports for itself needs a second for it, and Spark ends those that were idle for a
minute.  Nothing may be begun here that a fork would tear: no client, and no ``deltalake``.
"""

import gc

from pyspark.daemon import manager

import pipeline.apply.mirror_job
import pipeline.formats.debezium_json
import pipeline.landing.task
import pipeline.transports.consume  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # pages that are never swept stay shared between all workers
    manager()  # type: ignore[no-untyped-call]
