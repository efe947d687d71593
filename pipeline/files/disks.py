"""Are the disks of the logs there?  One that is not mounted is a folder without files."""

from pathlib import Path

from pipeline.errors import UnreachableError
from pipeline.files.ledger import Ledger
from pipeline.files.listing import folders
from pipeline.model import ShardId


def require_disks(base: Path, ledger: Ledger) -> None:
    """Remember in *ledger* which logs lie on disks of their own, and whether all of them do.

    Raises:
        UnreachableError: all logs that were there are gone, or the disk of one or all.
        OSError: a folder cannot be read.
    """
    known = {ShardId.parse(shard).relation for shard in ledger.columns()}
    found = set(folders(base))
    if not base.is_dir() or (known and known.isdisjoint(found)):
        what = f"no folder of {', '.join(sorted(known))}" if known else "no such folder"
        raise UnreachableError(f"files in {base}: {what}; is its disk mounted?")
    own, before = {one for one in found if device(base / one) != device(base)}, ledger.own_disks()
    if device(base) != device(ROOT):
        own.add(BASE)
    for gone in sorted(before - own):
        if not (base / gone / GONE).is_dir():  # a writer makes folders of its days, mounted or not
            what = "it lay on a disk of its own, and does not now; is that mounted?"
            raise UnreachableError(f"files in {base / gone}: {what} {IF_NOT}")
    if own != before:
        ledger.keep_own_disks(own)


def device(at: Path) -> int:
    """The number of the disk that a folder, or what a link leads to, lies on."""
    return at.stat().st_dev


ROOT, BASE = Path("/"), "."
GONE = "2000_01_01"
IF_NOT = f"If it is gone for good, make the folder {GONE} in its place"
