"""Writes an archive of the classes that Spark loads; with it Spark starts in half the time.

`python -m pipeline.spark.classes` writes it beside the jars, in a minute. A session on a `local`
master uses it if it exists. The archive is one of Java's class data sharing. Java ignores an
archive that was made by another Java or with other jars.

Source of the options: the `java` command's manual for Java 17, "Application Class Data Sharing".
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import cast

from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from pipeline.errors import SluiceError, UnreachableError
from pipeline.settings import PipelineSettings
from pipeline.spark import jars
from pipeline.spark.session import ARCHIVE, ARCHIVE_SIZE, NO_CDS_LOG, open_session

_SECONDS = 300  # until a process that writes the archive has ended


def write_archive() -> None:
    """Write the archive of the classes that a MERGE needs, and replace the old one when complete.

    Raises:
        UnreachableError: Spark did not start, or Java wrote no archive.
    """
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent, prefix=".classes-") as scratch:
        made = Path(scratch) / ARCHIVE.name
        java = f'-XX:TieredStopAtLevel=1 "-XX:ArchiveClassesAtExit={made}" {NO_CDS_LOG}'
        spark = {"spark.driver.extraJavaOptions": java, "spark.sql.warehouse.dir": scratch}
        session = open_session(PipelineSettings(scratch, "", (), spark=spark), jars.spark_jars())
        _load_classes(session, f"{scratch}/table")
        java_process = cast(JavaGateway, session.sparkContext._gateway).proc
        session.stop()
        java_process.stdin.close()  # this ends Java, which then writes the archive
        status = java_process.wait(_SECONDS)
        if status or not made.exists():
            raise UnreachableError(f"Java ended with status {status}, and wrote no archive")
        with made.open("rb") as whole:
            os.fsync(whole.fileno())
        size = Path(scratch) / ARCHIVE_SIZE.name
        size.write_text(str(made.stat().st_size), encoding="ascii")
        made.replace(ARCHIVE)
        size.replace(ARCHIVE_SIZE)


def _load_classes(session: SparkSession, table: str) -> None:
    """Write, merge and read a Delta table, as a merge of a mirror does."""
    rows = session.range(100).selectExpr("id", "id AS value", "CAST(id AS string) AS text")
    rows.write.format("delta").save(table)
    rows.createOrReplaceTempView("came")
    merge = f"MERGE INTO delta.`{table}` t USING came ON t.id = came.id"
    every = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    session.sql(f"{merge} {every}").collect()
    session.read.format("delta").load(table).toPandas()


if __name__ == "__main__":
    try:
        write_archive()
    except SluiceError as error:
        sys.exit(str(error))
