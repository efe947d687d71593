"""Are all changes that a mirror needs in the change log?  Only a new base helps where they are not.

Changes may have been lost before they landed, or may no longer be kept.  Pure.
"""

from collections.abc import Mapping, Sequence

from pipeline.apply.moved_rows import RowMove
from pipeline.errors import HeldError
from pipeline.living import is_there
from pipeline.mark import Mark
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


def require_kept(table: Table, mark: Mark, dropped: int) -> None:
    """Refuse to begin a mirror of which batches since its base, up to *dropped*, are gone.

    Raises:
        HeldError: ``no_base``.
    """
    lost = sorted(name for name in _names(table) if mark.based.get(name, dropped + 1) <= dropped)
    if lost:
        detail = f"changes of {lost[0]} since its base are no longer kept; take a new base"
        raise HeldError("no_base", detail)


def _names(table: Table) -> set[str]:
    return {str(shard) for shard in table.shards}
