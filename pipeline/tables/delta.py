"""What stands in a lake of Delta tables?  Its mark, its mirrors, its change log; read only.

A reader is pinned to the version that was newest when it was asked for; ask again to see more.
"""

from dataclasses import dataclass

from pipeline.errors import HeldError, ProofError
from pipeline.lake.commits import Commit
from pipeline.lake.log_reader import LogReader
from pipeline.lake.mirror_reader import MirrorReader
from pipeline.lake.pinned import folders, open_table
from pipeline.lake.query import literal
from pipeline.mark import Mark
from pipeline.model import Op, Table
from pipeline.settings import PipelineSettings

FIRST_LOOK = 100  # commits


@dataclass(eq=False)
class DeltaLake:
    """The change log and the mirrors of one lane, in the lake of its settings."""

    settings: PipelineSettings

    @property
    def app(self) -> str:
        """Transaction id that numbers this lane's batches, in the change log and in mirrors."""
        return f"sluice:{self.settings.lane}"

    def mark(self) -> Mark | None:
        """The newest batch's mark; None before the first batch.

        Raises:
            HeldError: ``mark_lost`` if a batch is numbered but its mark is not there.
        """
        changes = open_table(self.settings.changes)
        batch = changes.transaction(self.app) if changes else None
        if changes is None or batch is None:
            return None
        found = changes.select(
            f'SELECT "after" FROM t WHERE batch = {batch} AND op = {literal(Op.MARK)}'  # noqa: S608
            f" AND lane = {literal(self.settings.lane)}"
        )
        if len(found) != 1:
            detail = f"batch {batch} has {len(found)} marks in {changes.path}"
            raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
        return Mark.loads(found[0]["after"])

    def applied(self, table: str) -> tuple[int, int] | None:
        """Version of a mirror and the batch applied in it, -1 for none; None if it is not there."""
        found = open_table(self.settings.mirror(table))
        if found is None:
            return None
        batch = found.transaction(self.app)
        return found.version, -1 if batch is None else batch

    def tables(self) -> tuple[str, ...]:
        """Names of the mirrors that are there, sorted."""
        databases = folders(f"{self.settings.lake}/mirrors")
        paths = [path for database in databases for path in folders(database)]
        there = [path for path in paths if f"{path}/_delta_log" in folders(path)]
        return tuple(sorted(".".join(path.split("/")[-2:]) for path in there))

    def mirror(self, table: Table) -> MirrorReader:
        """The newest version of a mirror, pinned.

        Raises:
            ProofError: if there is no mirror yet.
        """
        found = open_table(self.settings.mirror(table.name))
        if found is None:
            msg = f"{table.name} has no mirror at {self.settings.mirror(table.name)} yet"
            raise ProofError(msg)
        return MirrorReader(found, table, self.app)

    def changes(self) -> LogReader:
        """The newest version of the change log, pinned.

        Raises:
            ProofError: if there is no change log yet.
        """
        found = open_table(self.settings.changes)
        if found is None:
            msg = f"there is no change log at {self.settings.changes} yet"
            raise ProofError(msg)
        return LogReader(found, self.settings.lane)

    def history(self, table: str, since: int | None) -> tuple[Commit, ...]:
        """Commits of a mirror after version *since*, oldest first; empty without a mirror.

        None asks for the newest hundred, or as many of them as the log still tells.

        Raises:
            ProofError: if one of them is no longer in the log, so that nobody can tell.
        """
        found = open_table(self.settings.mirror(table))
        if found is None:
            return ()
        return found.recent(FIRST_LOOK) if since is None else found.commits(since)
