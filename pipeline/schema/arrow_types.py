"""Which Arrow type has a column?  The lake's type over Arrow: there is one map only.  Pure."""

import pyarrow as pa

from pipeline.schema.column import Column

ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def arrow_type(column: Column) -> pa.DataType:
    """Arrow type of *column* in a mirror."""
    lake = column.dialect.lake_type(column)
    if lake.startswith("decimal("):
        digits, fraction = lake.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(digits), int(fraction))
    return ARROW[lake]
