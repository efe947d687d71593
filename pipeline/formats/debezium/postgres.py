"""Reads positions and partial rows of Debezium's Postgres connector.

Measured on 3.5, pgoutput: `source.sequence` is the text `["a","b"]`, a the end of the last
commit before the row's transaction (null until the connector has seen one), b the row's own
position, which is `source.lsn`. Positions rise within a transaction, commits from one to the
next; so the order is (a, position). A changed key is a delete and a create at one position, in
this order.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.debezium.connector import (
    Columns,
    Connector,
    LogPosition,
    Mask,
    Partial,
    Placeholder,
    Slices,
    SourceBlock,
    put_values,
    to_int64,
    to_mask,
)
from pipeline.formats.format import AROUND, DECODED, INCREMENTAL, Decoded, Tx
from pipeline.formats.json_text import integer_of, text_of
from pipeline.model import Op, Origin

LSN = r"[0-9]{1,18}"
COMMIT = rf'\[(?:null|"(?P<commit>{LSN})"),(?:null|"{LSN}")\]'
SEQUENCE = re.compile(COMMIT)
ANCHORED = rf"\A{COMMIT}\z"
TX = re.compile(rf"({LSN}):{LSN}")  # the transaction's number, and a position that differs
ANCHORED_TX = rf"\A({LSN}):{LSN}\z"
TX_TYPE = DECODED.field("tx").type


LONGEST_NAME = 63  # bytes: NAMEDATALEN of Postgres, less its end


@dataclass(frozen=True, slots=True)
class PostgresConnector:
    """Rules of Postgres.

    A transaction may have been open while the slot was made. Then no commit comes before it, and
    its rows may be below the snapshot, which has none of them (``AROUND``).

    Measured on 3.7: a snapshot of all tables has no commit, even if the connector has stored one
    before. One that a signal requests has the last commit that was streamed. Cannot detect: a
    signalled snapshot before any commit.
    """

    name: str = "postgresql"
    database_field: str = "schema"
    no_shard: str = "source.schema or source.table is missing"
    long_name: str = f"the name of the schema or table is longer than {LONGEST_NAME} bytes"
    no_position: str = "source.lsn or source.sequence is missing, or of a wrong kind"
    heartbeat_op: str | None = "m"  # pg_logical_emit_message: no row, and no table
    describes_rows: bool = True

    def fits(self, name: str) -> bool:
        return len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME

    def position(self, source: Slices, op: Op) -> LogPosition | None:
        found = SEQUENCE.fullmatch(text_of(source.get("sequence")) or "")
        lsn = integer_of(source.get("lsn"))
        if found is None or lsn is None:
            return None
        return int(found["commit"] or lsn), lsn, 0 if op == Op.DELETE else 1

    def snapshot(self, source: Slices, name: str | None) -> str | None:
        found = SEQUENCE.fullmatch(text_of(source.get("sequence")) or "")
        if found is None:
            return name
        if name is None:
            return AROUND if found["commit"] is None else None
        return name if found["commit"] is None else INCREMENTAL

    def transaction_id(self, name: str) -> str:
        found = TX.fullmatch(name)
        return found[1] if found else name

    def complete_row(self, row: Decoded, placeholder: Placeholder) -> Decoded:
        tx = row.tx and Tx(self.transaction_id(row.tx.id), row.tx.total_order)
        after = row.after if row.op != Op.READ else None
        partial = placeholder.left_out(after, row.before) if after is not None else None
        if partial is None:
            return replace(row, tx=tx)
        names, left_out = partial.names, partial.left_out
        return replace(row, tx=tx, after=partial.text, changed=names, left_out=left_out)

    def fill_columns(
        self,
        columns: Columns,
        sources: Sequence[SourceBlock],
        rows: Mask,
        placeholder: Placeholder,
    ) -> Mask:
        lsn = to_int64([one.lsn for one in sources])
        found = pc.extract_regex(pa.array([one.sequence for one in sources], pa.string()), ANCHORED)
        commit = pc.struct_field(found, "commit")
        log = pc.coalesce(pc.if_else(pc.equal(commit, ""), None, commit).cast(pa.int64()), lsn)
        put_values(
            columns, "log", pc.if_else(found.is_valid(), log, pa.scalar(None, pa.int64())), rows
        )
        put_values(columns, "pos", lsn, rows)
        row = pc.if_else(pc.equal(columns["op"], str(Op.DELETE)), 0, 1).cast(pa.int64())
        put_values(columns, "row", row, rows)
        live, first = pc.equal(columns["origin"], int(Origin.LIVE)), pc.equal(commit, "")
        around = pc.and_(live, pc.fill_null(first, False))
        signalled = pc.and_(pc.invert(live), pc.invert(pc.fill_null(first, True)))
        snapshot = pc.if_else(around, AROUND, columns["snapshot"])
        put_values(columns, "snapshot", pc.if_else(signalled, INCREMENTAL, snapshot), rows)
        put_values(columns, "tx", _transactions(columns["tx"]), rows)
        return _left_out(columns, rows, placeholder)


def _transactions(tx: pa.StructArray) -> pa.StructArray:
    names, orders = (pc.struct_field(tx, name) for name in ("id", "total_order"))
    numbers = pc.replace_substring_regex(names, ANCHORED_TX, r"\1")
    missing = tx.is_null() if tx.null_count else None
    return pa.StructArray.from_arrays([numbers, orders], fields=list(TX_TYPE), mask=missing)


def _left_out(columns: Columns, rows: Mask, placeholder: Placeholder) -> Mask:
    """Remove placeholders from the rows after; return which rows can be read.

    A snapshot reads whole rows. A row that gets another key is sent as a create, and may omit
    values as an update does.
    """
    after, fine = columns["after"], np.ones(len(rows), np.bool_)
    suspects = np.zeros(len(rows), np.bool_)
    for sign in placeholder.signs:
        suspects |= to_mask(pc.fill_null(pc.match_substring(after, sign), False))
    found: dict[int, Partial] = {}
    suspects &= ~to_mask(pc.fill_null(pc.equal(columns["op"], str(Op.READ)), False))
    for at in np.flatnonzero(suspects & rows).tolist():
        try:
            partial = placeholder.left_out(after[at].as_py(), columns["before"][at].as_py())
        except ValueError:
            fine[at] = False
            continue
        if partial is not None:
            found[at] = partial
    if found:
        _put_partial(columns, found)
    return fine


def _put_partial(columns: Columns, found: Mapping[int, Partial]) -> None:
    """Replace the images after of the rows that *found* names; its keys are indexes and rise."""
    other = np.zeros(len(columns["after"]), np.bool_)
    other[list(found)] = True
    texts = pa.array([one.text for one in found.values()], pa.string())
    columns["after"] = pc.replace_with_mask(columns["after"], pa.array(other), texts)
    changed: list[tuple[str, ...] | None] = [None] * len(other)
    left_out = changed.copy()
    for at, partial in found.items():
        changed[at], left_out[at] = partial.names, partial.left_out
    for name, names in (("changed", changed), ("left_out", left_out)):
        columns[name] = pa.array(names, DECODED.field(name).type)


POSTGRES: Connector = PostgresConnector()
