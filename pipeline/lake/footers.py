"""Can a Parquet file's rows be taken as they stand, by every reader alike?  Pure.

Files of old Spark hold dates and times of another calendar, or INT96 times that wrap around outside
of 1677 to 2262: Spark reads them as they were meant, nobody else does.
"""

from typing import Any

from pipeline.errors import HeldError

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def footer_fits(footer: Any, name: str) -> None:
    """Return only if Sluice may read and keep the file's rows; *footer* is pyarrow's.

    Raises:
        HeldError: ``file_format``; names file and column.
    """
    told = footer.metadata or {}
    for key in _LEGACY:
        if key in told:
            raise _refused(name, f"Spark wrote it with its legacy calendar ({key.decode()})")
    schema = footer.schema
    for i in range(len(schema)):
        column = schema.column(i)
        if column.physical_type == "INT96":
            raise _refused(name, f"column {column.path} holds INT96 times")


def _refused(name: str, why: str) -> HeldError:
    return HeldError(
        "file_format",
        f"{name}: {why}; let Spark rewrite the table with "
        "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or rebuild it",
    )
