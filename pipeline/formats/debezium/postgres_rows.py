"""How do all rows of the Postgres connector in a batch read?  As ``envelope`` reads each.  Pure."""

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.debezium import postgres
from pipeline.formats.debezium.bulk import Mask, SourceBlock, longs, mask
from pipeline.formats.debezium.postgres import Partial, Placeholder
from pipeline.formats.format import AROUND, DECODED, INCREMENTAL
from pipeline.model import Origin

ANCHORED = rf"\A{postgres.COMMIT}\z"
TX = rf"\A({postgres.PLACE}):{postgres.PLACE}\z"
TX_TYPE = DECODED.field("tx").type


def take_over(
    given: MutableMapping[str, pa.Array],
    sources: Sequence[SourceBlock],
    its: Mask,
    unavailable: Placeholder,
) -> Mask:
    """Put what rows of *its* tell into the columns *given*: places, transactions, what is left out.

    The others of the batch stay as they are.  Says which rows can be read.
    """
    own = pa.array(its)
    lsn = longs([one.lsn for one in sources])
    found = pc.extract_regex(pa.array([one.sequence for one in sources], pa.string()), ANCHORED)
    commit = pc.struct_field(found, "commit")
    log = pc.coalesce(pc.if_else(pc.equal(commit, ""), None, commit).cast(pa.int64()), lsn)
    log = pc.if_else(found.is_valid(), log, pa.scalar(None, pa.int64()))
    row = pc.if_else(pc.equal(given["op"], "d"), 0, 1).cast(pa.int64())
    live, first = pc.equal(given["origin"], int(Origin.LIVE)), pc.equal(commit, "")
    around = pc.and_(pc.and_(own, live), pc.fill_null(first, False))
    signalled = pc.and_(pc.and_not(own, live), pc.invert(pc.fill_null(first, True)))
    given["snapshot"] = pc.if_else(around, AROUND, given["snapshot"])
    given["snapshot"] = pc.if_else(signalled, INCREMENTAL, given["snapshot"])
    for name, values in (("log", log), ("pos", lsn), ("row", row)):
        given[name] = pc.if_else(own, values, given[name])
    given["tx"] = _transactions(given["tx"], own)
    return _left_out(given, its, unavailable)


def _transactions(tx: pa.StructArray, own: pa.BooleanArray) -> pa.StructArray:
    names, orders = (pc.struct_field(tx, name) for name in ("id", "total_order"))
    numbers = pc.replace_substring_regex(names, TX, r"\1")
    names = pc.if_else(own, numbers, names)
    missing = tx.is_null() if tx.null_count else None
    return pa.StructArray.from_arrays([names, orders], fields=list(TX_TYPE), mask=missing)


def _left_out(given: MutableMapping[str, pa.Array], its: Mask, unavailable: Placeholder) -> Mask:
    """Take placeholders out of the rows after; tells which rows can be read at all."""
    after, fine = given["after"], np.ones(len(its), np.bool_)
    suspects = np.zeros(len(its), np.bool_)
    for sign in unavailable.signs:
        suspects |= mask(pc.fill_null(pc.match_substring(after, sign), False))
    found: dict[int, Partial] = {}
    for at in np.flatnonzero(suspects & its).tolist():
        try:
            partial = unavailable.left_out(after[at].as_py(), given["before"][at].as_py())
        except ValueError:
            fine[at] = False
            continue
        if partial is not None:
            found[at] = partial
    if found:
        _put(given, found)
    return fine


def _put(given: MutableMapping[str, pa.Array], found: Mapping[int, Partial]) -> None:
    """Rows after that are partial, by their places, which rise."""
    other = np.zeros(len(given["after"]), np.bool_)
    other[list(found)] = True
    texts = pa.array([one.text for one in found.values()], pa.string())
    given["after"] = pc.replace_with_mask(given["after"], pa.array(other), texts)
    changed: list[tuple[str, ...] | None] = [None] * len(other)
    left_out = changed.copy()
    for at, partial in found.items():
        changed[at], left_out[at] = partial.names, partial.left_out
    for name, names in (("changed", changed), ("left_out", left_out)):
        given[name] = pa.array(names, DECODED.field(name).type)
