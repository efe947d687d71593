"""Rebuilds the rows that a renamed table had just below its RENAME, from landed changes.

`RENAME TABLE t TO t_old, t_new TO t` gives t the rows of t_new, and no event of t describes
them. They are in the change log under their previous name, from its base on. Folded as of the
rename, they are what a snapshot at its order would have read.

The table is held as `renamed` if the rows may be incomplete, or if one name has more than
2,000,000 changes. A table whose rows the collector did not send has no base under its previous
name, so it is held too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.fold import ROW_OPS, fold_changes
from pipeline.apply.row_metadata import Integers, flat_column, is_above, rank_order, rank_rows
from pipeline.changelog.scan import APPLIED_COLUMNS, Part, open_file, row_groups, scan_files
from pipeline.changelog.table import CHANGES
from pipeline.delta.store import Store
from pipeline.errors import HeldError
from pipeline.formats.json_text import quote_text
from pipeline.model import Op, Order, Origin, Shard

MOST_ROWS = 2_000_000  # of one name that are folded at once
FLOORS = (Op.TRUNCATE, Op.SETTLE)


@dataclass(frozen=True, slots=True)
class PreviousName:
    """A name that rows had until just below ``order``.

    ``unique`` is set by its table's rule. A base below ``doubted`` does not count. Rows below
    ``born`` do not have the value that the source filled into a column added later. ``base`` is its
    newest base, ``since`` the batch in which the rows of that base began.
    """

    shard: Shard
    order: Order
    unique: bool = False
    doubted: Order | None = None
    born: Order | None = None
    base: Order | None = None
    since: int = -1


@dataclass(frozen=True, slots=True)
class TableRename:
    """Rows move to *shard* of *table* at *order*; ``names`` are their earlier names, newest first.

    Without names no rows move in, and the shard's earlier rows are removed.
    """

    shard: Shard
    table: str
    order: Order
    names: tuple[PreviousName, ...]
    unique: bool = False


def move_rows(move: TableRename, store: Store, files: Sequence[Part], dropped: int) -> pa.Table:
    """The rows as a snapshot at the rename's order would have read them, and its settle.

    In: all *files* of the change log; batches up to *dropped* are no longer kept.
    Out: rows of ``APPLIED_COLUMNS``.

    Raises:
        HeldError: ``renamed``; the rows are not all in the change log, or too many.
    """
    nothing = pa.schema([CHANGES.field(name) for name in APPLIED_COLUMNS]).empty_table()
    every = pa.concat_tables([nothing, *_under_each_name(move, store, files, dropped)])
    folded = fold_changes(every).rows
    folded = folded.filter(pc.not_equal(flat_column(folded["op"]), str(Op.DELETE)))
    common = {
        "source": move.shard.source,
        "shard": move.shard.name,
        "table": move.table,
        "op": str(Op.READ),
        "before": None,
        "order": asdict(move.order),
        "origin": int(Origin.SNAPSHOT),
    }
    key = folded["key"].combine_chunks()
    before = "[" if move.unique else _before_key(move.shard)
    keys = pc.binary_join_element_wise(before, pc.utf8_slice_codeunits(key, 1), "")
    settle = {**common, "op": str(Op.SETTLE), "batch": -1}
    rows = _replace_columns(folded, {**common, "key": keys})
    return pa.concat_tables([rows, pa.Table.from_pylist([settle], rows.schema)])


def _under_each_name(
    move: TableRename, store: Store, files: Sequence[Part], dropped: int
) -> Iterator[pa.Table]:
    """Changes under each name, back to the newest base; their keys do not contain the shard."""
    for at, name in enumerate(move.names):
        came = move.names[at + 1].order if at + 1 < len(move.names) else None
        rows = _read_landed(name, move, store, files)
        floor = _floor(rows, name, dropped)
        ends = floor is not None and (came is None or came < floor)
        first = floor if ends else came
        if first is None:
            _refuse(move, f"of {name.shard.name} the change log has no whole base")
        yield _since(rows, name, first, move)
        if ends:
            return


def _read_landed(
    name: PreviousName, move: TableRename, store: Store, files: Sequence[Part]
) -> pa.Table:
    """Return the landed changes of the name's shard below the order of its rename."""
    shard = name.shard.name
    if (number := sum(_rows(part, shard, store) for part in files)) > MOST_ROWS:
        _refuse(move, f"{number} changes of {shard} are more than are moved at once")
    rows = scan_files(
        store,
        files,
        among=("shard", (shard,)),
        ops=(*ROW_OPS, *FLOORS, Op.ERROR),
        columns=APPLIED_COLUMNS,
    )
    rows = rows.filter(pc.equal(flat_column(rows["source"]), name.shard.source))
    broken = pc.equal(flat_column(rows["op"]), str(Op.ERROR))
    placed = rows.filter(pc.invert(broken))
    below = is_above(rank_order(name.order, Origin.SNAPSHOT)[:-1], rank_rows(placed)[:-1])
    return pa.concat_tables([placed.filter(pa.array(below)), rows.filter(broken)])


def _rows(part: Part, shard: str, store: Store) -> int:
    """An upper bound of the shard's rows in a file: those of the row groups that may hold it."""
    with open_file(store, part.path) as file:
        groups = tuple(row_groups(file.metadata, "shard"))
    return sum(group.rows for group in groups if group.holds((shard,)))


def _floor(rows: pa.Table, name: PreviousName, dropped: int) -> Order | None:
    """The newest truncate or settle, if it is not in doubt and all changes since are kept."""
    ops = pa.array([str(op) for op in FLOORS])
    found = rows.filter(pc.is_in(flat_column(rows["op"]), ops))["order"].to_pylist()
    floor = max((Order(**order) for order in found), default=None)
    if floor is None or (name.doubted is not None and floor < name.doubted):
        return None
    kept = name.base is not None and name.base <= floor and name.since > dropped
    return floor if dropped < 0 or kept else None


def _since(rows: pa.Table, name: PreviousName, first: Order, move: TableRename) -> pa.Table:
    """The row changes at *first* or later; their keys do not contain the shard."""
    broken = pc.equal(flat_column(rows["op"]), str(Op.ERROR))
    errors, rows = rows.filter(broken), rows.filter(pc.invert(broken))
    rows = rows.filter(
        pa.array(~is_above(rank_order(first, Origin.SNAPSHOT)[:-1], rank_rows(rows)[:-1]))
    )
    if len(errors) and pc.max(errors["batch"]).as_py() >= (pc.min(rows["batch"]).as_py() or 0):
        _refuse(move, f"changes of {name.shard.name} could not be read")
    rows = rows.filter(pc.is_in(flat_column(rows["op"]), pa.array([str(op) for op in ROW_OPS])))
    if name.born is not None and _any_below(name.born, rank_rows(rows)):
        _refuse(move, f"a column was added to {name.shard.name} while it had rows")
    start = 1 if name.unique else len(_before_key(name.shard))
    keys = pc.utf8_slice_codeunits(flat_column(rows["key"]).combine_chunks(), start)
    keys = pc.binary_join_element_wise("[", keys, "")
    return _replace_columns(
        rows, {"key": keys, "shard": move.shard.name}
    )  # one shard for all, so that none outlives it


def _any_below(order: Order, ranks: Integers) -> bool:
    return bool(is_above(rank_order(order, Origin.SNAPSHOT)[:-1], ranks[:-1]).any())


def _before_key(shard: Shard) -> str:
    """The beginning of a row's canonical key if keys are not unique across shards."""
    return f"[{quote_text(shard.source)},{quote_text(shard.name)},"


def _replace_columns(rows: pa.Table, replaced: Mapping[str, object]) -> pa.Table:
    """The rows with some columns replaced: by an array, or by one value for all rows."""
    columns = []
    for name in APPLIED_COLUMNS:
        kind, value = CHANGES.field(name).type, replaced.get(name)
        if name not in replaced:
            columns.append(rows[name].cast(kind))
        elif isinstance(value, pa.Array):
            columns.append(value.cast(kind))
        else:
            columns.append(pa.repeat(pa.scalar(value, kind), len(rows)))
    return pa.table(columns, pa.schema([CHANGES.field(name) for name in APPLIED_COLUMNS]))


def _refuse(move: TableRename, why: str) -> NoReturn:
    shard, rows_of = move.shard.name, move.names[0].shard.name
    detail = f"{shard} has had the rows of {rows_of} since {move.order}, and {why}"
    raise HeldError("renamed", f"{move.shard.source}: {detail}; take a new base of {shard}")
