"""Decides whether a mirror is still the one that a check has compared, changed only by Sluice.

What a check has compared is void for another Delta table in the same folder, for an older version,
and after a foreign commit, even a waived one. A mirror that was put back and merged again has the
same batch as before, so the log entry of the compared version is compared, too.
Cannot detect: a foreign commit that changes only columns or properties.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from checks.world import World
from pipeline.apply.foreign_commits import KnownVersion, newest_foreign
from pipeline.errors import ProofError
from pipeline.model import Table

MIRROR = "mirror"
"""Key of the `MirrorState` in the memory of a check."""


@dataclass(frozen=True, slots=True)
class MirrorState:
    """A mirror as a check has read it: table id, version, applied batch, digest of the entry."""

    id: str
    version: int
    batch: int
    entry: str

    def dumps(self) -> list[str | int]:
        """Return JSON values for the memory of a check."""
        return [*astuple(self)]

    @classmethod
    def loads(cls, raw: Sequence[str | int] | None) -> "MirrorState | None":
        """Read back what :meth:`dumps` wrote; None without it, as from an earlier version."""
        if raw is None or len(raw) != len(cls.__slots__):
            return None
        return cls(str(raw[0]), int(raw[1]), int(raw[2]), str(raw[3]))


def follow_mirror(table: Table, world: World, known: MirrorState | None) -> tuple[MirrorState, str]:
    """Return the state of the pinned mirror, and why it does not continue *known*; else empty.

    Also empty if *known* is None. Only commits since *known* are read.
    """
    mirror, why = world.mirror(table), ""
    if known is not None:
        now = f"version {mirror.version} with batch {mirror.batch}"
        was = f"version {known.version} with batch {known.batch}"
        if mirror.id != known.id:
            why = f"the mirror is another table now, at {now}, and was compared at {was}"
        elif mirror.version < known.version or mirror.batch < known.batch:
            why = f"the mirror is {now} again, and was compared at {was}"
    since = known.version if known and not why else mirror.version
    try:
        found = world.mirror_commits(table, since - 1)
    except ProofError as error:
        found, why = (), why or f"the mirror was compared earlier, and {error}"
    commits = [one for one in found if one.version <= mirror.version]
    entry = commits[-1].entry if commits else ""
    if known is not None and not why:
        after = [one for one in commits if one.version > known.version]
        foreign = newest_foreign(after, KnownVersion(known.version))
        if commits and known.entry and commits[0].entry != known.entry:
            why = f"the mirror was put back behind version {known.version}, which was compared"
        elif foreign >= 0:
            why = f"version {foreign} of the mirror is not Sluice's, and was not compared"
    return MirrorState(mirror.id, mirror.version, mirror.batch, entry), why
