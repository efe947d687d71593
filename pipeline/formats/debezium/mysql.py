"""Reads positions, snapshot kinds and table ids of Debezium's MySQL and MariaDB connectors.

A position is the number of the binlog file, the offset in it, and the row in its event.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.debezium.connector import (
    Columns,
    Connector,
    LogPosition,
    Mask,
    Placeholder,
    Slices,
    SourceBlock,
    put_values,
    to_int64,
)
from pipeline.formats.format import INCREMENTAL, LONG_NAME, LONGEST_NAME, Decoded
from pipeline.formats.json_text import integer_of, text_of
from pipeline.model import Op, Origin, ShardId

LOG_NUMBER = re.compile(r"\.([0-9]{1,18})\Z")  # of binlog.000003
NO_SERVER = 2**32  # ids of MySQL servers are below
_NAME = r'"((?:[^"]|"")+)"'
_TABLE_ID = re.compile(rf"{_NAME}\.{_NAME}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MySqlConnector:
    """Rules of MySQL and MariaDB, and of messages that name no connector."""

    name: str = "mysql"
    database_field: str = "db"
    no_shard: str = "source.db or source.table is missing"
    long_name: str = LONG_NAME
    no_position: str = "source.file, source.pos or source.row is missing"
    heartbeat_op: str | None = None
    describes_rows: bool = False

    def fits(self, name: str) -> bool:
        return len(name) <= LONGEST_NAME

    def position(self, source: Slices, op: Op) -> LogPosition | None:
        log = log_number(text_of(source.get("file")))
        pos, row = integer_of(source.get("pos")), integer_of(source.get("row"))
        return None if log is None or pos is None or row is None else (log, pos, row)

    def snapshot(self, source: Slices, name: str | None) -> str | None:
        if name is None or not is_signalled(integer_of(source.get("server_id"))):
            return name
        return INCREMENTAL

    def transaction_id(self, name: str) -> str:
        return name

    def complete_row(self, row: Decoded, placeholder: Placeholder) -> Decoded:
        return row

    def fill_columns(
        self,
        columns: Columns,
        sources: Sequence[SourceBlock],
        rows: Mask,
        placeholder: Placeholder,
    ) -> Mask:
        files = pa.array([one.file for one in sources], pa.string()).dictionary_encode()
        numbers = pa.array([log_number(one) for one in files.dictionary.to_pylist()], pa.int64())
        put_values(columns, "log", numbers.take(files.indices), rows)
        put_values(columns, "pos", to_int64([one.pos for one in sources]), rows)
        put_values(columns, "row", to_int64([one.row for one in sources]), rows)
        read = pc.equal(columns["origin"], int(Origin.SNAPSHOT))
        if read.true_count:
            signalled = pa.array([is_signalled(one.server_id) for one in sources])
            snapshot = pc.if_else(pc.and_(read, signalled), INCREMENTAL, columns["snapshot"])
            put_values(columns, "snapshot", snapshot, rows)
        return np.ones(len(sources), np.bool_)


def log_number(file: str | None) -> int | None:
    """Return the number of a log file; None without one."""
    found = LOG_NUMBER.search(file or "")
    return int(found[1]) if found else None


def is_signalled(server: int | None) -> bool:
    """Return whether rows of a snapshot were read on request of a signal.

    Measured on 3.5: a snapshot of all tables has server id 0, even if the connector has read that
    server before. One that a signal requests has the id that is in the log.
    """
    return server is not None and 0 < server < NO_SERVER


def read_table_id(text: str, named: ShardId | None = None) -> ShardId:
    """Return the table of an id in ``tableChanges``; *named* is the table of the source block.

    Measured: an id is `"shop"."orders"`, always in double quotes. A double quote inside a name is
    doubled; a dot or a backtick is not escaped. Debezium does not escape a name that begins or ends
    with a double quote. Such an id can be read in two ways, so the table of the source block counts
    if it has the same id.

    Raises:
        ValueError: it does not have the form of Debezium's ids for MySQL and MariaDB.
    """
    if named is not None and text == f"{_quoted(named.database)}.{_quoted(named.relation)}":
        return named
    found = _TABLE_ID.fullmatch(text)
    if found is None:
        msg = f'table id {text!r} is not built as "database"."table"'
        raise ValueError(msg)
    return ShardId(*(name.replace('""', '"') for name in found.groups()))


def _quoted(name: str) -> str:
    """Quote a name as Debezium's ``TableId.toDoubleQuotedString`` does."""
    if name.startswith('"') or name.endswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'


MYSQL: Connector = MySqlConnector()
