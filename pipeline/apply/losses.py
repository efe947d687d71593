"""Are all changes that a mirror needs in the change log?  Only a new base helps where they are not.

Changes may have been lost before they landed, may no longer be kept, or may have been written by
other standards than those of today.  A new base is none where it read a part of the rows.  Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from shlex import quote

from pipeline.apply.catalog import Catalog
from pipeline.apply.moved_rows import RowMove
from pipeline.apply.turn import Counts, Unread
from pipeline.errors import HeldError
from pipeline.living import is_there
from pipeline.mark import Mark, source_of
from pipeline.model import Order, Shard, SnapshotAgain, Table
from pipeline.report import Hold
from pipeline.row_standards import ALWAYS

FEW_ROWS = 100  # or a tenth: so many may go unasked by a snapshot that heals a loss
FEW_OF_ALL = 0.1


def require_landed(
    table: Table, mark: Mark, moves: Sequence[RowMove], gaps: Mapping[str, Sequence[str]]
) -> None:
    """Refuse a table with an open gap; so may one be of which rows have yet to come.

    Unread changes of such a one hold it, too: of the table's own the gate tells.  What was lost of
    a shard that is dropped is missed no more.  *gaps*: ``source/shard`` -> ids of the mark's that
    concern it.

    Raises:
        HeldError: ``gap``, ``quarantine``.
    """
    others = {str(one.shard) for move in moves for one in move.names}
    names = {name for name in _names(table) if is_there(mark, name)} | others
    lost = sorted(gap for name in names for gap in gaps.get(name, ()))
    if lost:
        raise HeldError("gap", f"changes were lost before landing ({lost[0]}); take a new base")
    open_ = mark.quarantine.items() if others else ()
    unread = [subject for subject, one in open_ if others & {*one.shards}]
    if unread:
        detail = f"its rows had another name, and changes of that are unread ({unread[0]})"
        raise HeldError("quarantine", f"{detail}; take a new base of {table.name}")


def require_alike(table: Table, mark: Mark, moves: Sequence[RowMove], catalog: Catalog) -> None:
    """Refuse a table of which rows would be written by two standards, or with and without one.

    Raises:
        HeldError: ``standards``.
    """
    wanted = catalog.standards.digest(table.name)
    for other in sorted({one.shard.name for move in moves for one in move.names}):
        if catalog.standards.digest(catalog.router.table(other)) != wanted:
            detail = f"its rows had the name {other}, and other `standards` there"
            raise HeldError("standards", f"{detail}; take a new base of {table.name}")
    for name in sorted(_names(table)):
        known = mark.standards.get(name, ALWAYS)
        if not is_there(mark, name) or (name not in mark.shards and known is ALWAYS):
            continue
        if known.digest != wanted:
            detail = f"`standards` changed: rows of {name} are written otherwise from now on"
            raise HeldError("standards", f"{detail}; the next batch that lands takes note of it")
        if known.since >= 0 and mark.based.get(name, -1) <= known.since:
            detail = f"`standards` changed: rows of {name} from before are written otherwise"
            raise HeldError("standards", f"{detail}; take a new base")


def require_kept(table: Table, mark: Mark, dropped: int) -> None:
    """Refuse to begin a mirror of which batches since its base, up to *dropped*, are gone.

    Raises:
        HeldError: ``no_base``.
    """
    lost = sorted(name for name in _names(table) if mark.based.get(name, dropped + 1) <= dropped)
    if lost:
        detail = f"changes of {lost[0]} since its base are no longer kept; take a new base"
        raise HeldError("no_base", detail)


def require_archived(table: Table, kept: int, waived: Collection[str]) -> None:
    """Refuse to make a mirror anew of a table of which *kept* rows went to an archive.

    Raises:
        HeldError: ``archived_rows``; somebody has to say that they may go, or has put them back.
    """
    name = f"archived_rows:{table.name}:{kept}"
    if name not in waived:
        detail = f"its mirror is gone, and with it {kept} rows that went to an archive: no source"
        detail += " has them, and a mirror that is made anew would lack them"
        advice = "put the mirror back; or waive this, and copy them from the old one into the new"
        raise HeldError("archived_rows", f"{detail}; {advice}", name)


def read_again(table: Table, mark: Mark) -> dict[Shard, Order]:
    """The base of each shard that had one before, where a collector's snapshot is its base now."""
    names = {shard: str(shard) for shard in table.shards}
    return {shard: mark.bases[n] for shard, n in names.items() if _taken_again(mark, n)}


def unread_rows(table: str, mark: Mark, counts: Counts) -> Iterator[Hold]:
    """The holds of a *table* of which a snapshot did not read rows that its mirror has.

    One for each shard, for each snapshot is waived by itself.  A collector's snapshot may have
    been asked for with a condition on the rows, and no event shows it.  A mirror that is short of
    nothing loses no row by a new snapshot but those of which a change tells; where something was
    lost before it, or unread, many rows are asked about.  *counts* are those of the turn that
    takes the snapshot up.  Cannot see: rows that no turn had applied before it, which the change
    log alone has.
    """
    for shard, unread in sorted(counts.unread.items()):
        name = str(shard)
        again = _taken_again(mark, name)
        if again is None:
            continue
        healing = again.asked or name not in mark.again
        if unread.rows > (max(FEW_ROWS, FEW_OF_ALL * unread.of) if healing else 0):
            yield _unread(table, mark, name, again, unread)


def _unread(table: str, mark: Mark, name: str, again: SnapshotAgain, unread: Unread) -> Hold:
    rows = f"{unread.rows} of {unread.of} rows that the mirror has from before it"
    id_ = f"unread_rows:{name}@{again.batch}"
    advice = (
        f"if it had a condition, or nobody knows: sluice bootstrap {quote(table)};"
        f" if these rows are gone from the source, let it delete them: waive {id_}"
    )
    if mark.reached(source_of(name)) is not None and not mark.passed(source_of(name), again.order):
        detail = (
            f"the snapshot of {name} did not read {rows}, and their deletes may be on their way"
        )
        return Hold(id_, table, "awaited", f"{detail}; {advice}")
    detail = f"the snapshot of {name} did not read {rows}, and no change tells that they are gone"
    return Hold(id_, table, "unread_rows", f"{detail}; {advice}")


def _taken_again(mark: Mark, shard: str) -> SnapshotAgain | None:
    """The snapshot by which a *shard* has its base, if it had one before; None if it had none."""
    base, source = mark.bases.get(shard), source_of(shard)
    if base is None:
        return None
    own, whole = mark.again.get(shard), mark.again.get(source)
    if own is not None and own.order == base:
        return own
    return whole if whole is not None and whole.order == base.event else None


def _names(table: Table) -> set[str]:
    return {str(shard) for shard in table.shards}
