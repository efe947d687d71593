"""A lake made by hand, and a copy of its table kept by passes of the real thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.apply.table_format import Mirrors
from pipeline.copies.copy import (
    CopiedTable,
    CopiedVersion,
    Copy,
    CopyPosition,
    CopyStep,
    CopyTarget,
)
from pipeline.copies.sync import CopySync
from pipeline.model import Op, Shard, Table
from pipeline.settings import TableRule
from tests.builders.lake import LocalLake, row

C, D = Op.CREATE, Op.DELETE
TABLE = Table("db.t", (Shard("s", "db.t"),), ("id",), "id")


@dataclass(eq=False)
class Copied:
    """``table`` of *lake* in *copy*; ``bring`` is what the service does again and again."""

    lake: LocalLake
    copy: Copy
    table: Table = TABLE
    target: CopyTarget = field(init=False)
    copying: CopySync = field(init=False)
    lossy: bool = False
    """Whether the copy may have counted other rows than the merges."""
    done: list[CopiedVersion] = field(default_factory=list)
    written: CopiedTable = field(init=False)
    """The table of the newest step, as the copy has been given it."""

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        """Begin with an empty memory, as after a restart."""
        self.target = self.copy.opened(self.lake.settings.lake)
        mirrors = Mirrors(self.lake.settings, self.lake.table_format)
        self.copying = CopySync(self.target, mirrors, count=self.count)

        def note(table: CopiedTable, step: CopyStep) -> int | None:
            self.written = table
            return type(self.target).write(self.target, table, step)

        self.target.write = note  # type: ignore[method-assign]

    def count(self, table: str, done: CopiedVersion) -> None:
        """Note what was done to the table; it has counted as the merges have."""
        assert table == self.table.name
        self.done.append(done)
        assert self.lossy or done.changed in (None, done.taken)

    @property
    def position(self) -> CopyPosition | None:
        """As the copy itself says."""
        return self.target.positions().get(self.table.name)

    def bring(self, *, counted: bool = True) -> CopyPosition | None:
        """One pass; it ends where the copy says it does."""
        made = self.copying.bring(self.table, self.position, counted=counted)
        assert made == self.position
        return made

    def play(self, *rows: Mapping[str, Any]) -> CopyPosition | None:
        """Land and apply one batch, then bring the copy up to it."""
        self.lake.land(*rows)
        turn = self.lake.apply()
        assert turn.hold is None, turn.hold
        return self.bring()

    def mirrored(self) -> dict[Any, dict[str, Any]]:
        """Rows of the mirror, by id; read by code that is not ours."""
        rows = self.lake.mirror()
        return {r["id"]: {n: v for n, v in r.items() if n != "_sluice"} for r in rows}


def left_of_two(home: Path, copy: Copy) -> Copied:
    """Two shards had a row of one key each; that of the second is deleted, and *copy* knows it."""
    shards = (Shard("s", "db.t"), Shard("s", "db.u"))
    lake = LocalLake(home, rules=(TableRule(r"db\.[tu]", "db.t"),), shards=("db.t", "db.u"))
    copied = Copied(lake, copy, Table("db.t", shards, ("id",), "id"))
    lake.land(row(C, 10, 1, "t"), row(C, 11, 1, "u", shard="db.u"))
    assert lake.apply().hold is None
    copied.bring()
    lake.land(row(D, 20, 1, shard="db.u"))
    assert lake.apply().hold is None
    copied.bring()
    return copied


def made_anew(copied: Copied, home: Path) -> Copied:
    """A mirror with other rows in the place of that of *copied*, which had some."""
    copied.lake.play([row(C, 90, 1, "old"), row(C, 91, 2, "old")])
    copied.bring()
    again = Copied(LocalLake(home), copied.copy)
    again.lake.play([row(C, 10, 1, "new")])
    again.target.owner = copied.lake.settings.lake  # type: ignore[attr-defined]
    return again
