"""Are all changes that a mirror needs in the change log?  Only a new base helps where they are not.

Changes may have been lost before they landed, may no longer be kept, or may have been written by
other standards than those of today.  Pure.
"""

from collections.abc import Collection, Mapping, Sequence

from pipeline.apply.catalog import Catalog
from pipeline.apply.moved_rows import RowMove
from pipeline.checkpoint import ALWAYS, Mark, is_there
from pipeline.errors import HeldError
from pipeline.model import Table


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


def _names(table: Table) -> set[str]:
    return {str(shard) for shard in table.shards}
