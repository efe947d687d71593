"""Images of random histories, that arrive through two partitions in batches of any size.

The model is a dict: what the changes below a cut leave of the table, whatever came when.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipeline.image import DueCut
from pipeline.model import Fence, Head, Op
from pipeline.settings import PublishRule
from pipeline.sources.mysql.position import binlog_position
from tests.builders.lake import NOW, LocalLake, row
from tests.example_count import examples

KEYS, CHANGES, CUTS = 6, 60, 3
EACH = timedelta(hours=2)  # between two cuts, in which some passes are


@dataclass(eq=False)
class History:
    """Changes in the order of their positions, and how far each partition has come."""

    random: Random
    changes: list[dict[str, Any]] = field(default_factory=list)
    sent: list[int] = field(default_factory=lambda: [0, 0])

    def write(self) -> None:
        """All at once; nobody has read any of it."""
        there: set[int] = set()
        for number in range(CHANGES):
            key, pos = self.random.randrange(KEYS), 10 + 10 * number
            op = Op.UPDATE if key in there else Op.CREATE
            if key in there and self.random.random() < 0.4:
                op = Op.DELETE
            there = there - {key} if op is Op.DELETE else there | {key}
            place = {"partition": key % 2, "offset": pos}
            self.changes.append(row(op, pos, key, f"v{number}", **place))

    def some(self, most: int) -> list[dict[str, Any]]:
        """What is read next of both partitions, up to position *most*."""
        found = []
        for partition in (0, 1):
            own = [one for one in self.changes if one["partition"] == partition]
            left = [one for one in own[self.sent[partition] :] if one["order"].pos < most]
            came = left[: self.random.randrange(9)]
            self.sent[partition] += len(came)
            found += came
        self.random.shuffle(found)
        return found

    def landed(self, pos: int) -> bool:
        """Whether all below *pos* has been read."""
        for partition in (0, 1):
            own = [one for one in self.changes if one["partition"] == partition]
            if any(one["order"].pos < pos for one in own[self.sent[partition] :]):
                return False
        return True

    def model(self, pos: int) -> dict[int, str]:
        """The table as the changes below *pos* leave it."""
        rows: dict[int, str] = {}
        for number, one in enumerate(self.changes):
            key = int(one["key"].split('"')[-2])
            if one["order"].pos < pos:
                rows[key] = f"v{number}"
                if one["op"] == Op.DELETE:
                    del rows[key]
        return rows


@dataclass(frozen=True)
class Cut:
    at: datetime
    pos: int
    number: int

    def due(self) -> DueCut:
        head = Head("A", binlog_position(1, self.pos))
        day = f"2026-01-{self.number + 1:02}"
        return DueCut(self.at, {"s": Fence("s", self.number, self.at, head)}, day)


@pytest.mark.parametrize("seed", range(examples(6, brief=1)))
def test_an_image_is_what_the_changes_below_its_cut_leave(tmp_path: Path, seed: int) -> None:
    lake = LocalLake(tmp_path, publish=(PublishRule("db.*", hold_back=timedelta(days=9)),))
    random = Random(seed)
    history, cuts = draw_history(lake, random)
    passed = 0
    while not history.landed(10**9):
        due, ahead = let_come(lake, cuts)
        lake.land(*history.some(ahead))
        covered = [one for one in due if history.landed(one.pos)]
        prove(lake, covered)
        lake.run()
        passed += 1
        assert passed < 500
        if random.random() < 0.1:
            lake.reopen()
    finish(lake, cuts)

    images = {one.cut: one for one in lake.images()}

    first = {99: "first"}
    assert [lake.rows(version=images[one.at].version) for one in cuts] == [
        first | history.model(one.pos) for one in cuts
    ]
    assert lake.rows() == first | history.model(10**9)
    assert all(one.late == () for one in images.values())


def draw_history(lake: LocalLake, random: Random) -> tuple[History, list[Cut]]:
    """What will come to a table of one row, and cuts at random places of it."""
    history = History(random)
    history.write()
    lake.play([row(Op.CREATE, 5, 99, "first")])
    positions = sorted(random.sample(range(10, 10 * CHANGES), CUTS))
    return history, [Cut(NOW + EACH * (n + 1), pos, n) for n, pos in enumerate(positions)]


def let_come(lake: LocalLake, cuts: list[Cut]) -> tuple[list[Cut], int]:
    """Cuts that are over in the next pass, and the place up to which may be read before it."""
    now = lake.now + timedelta(minutes=10)
    due = [one for one in cuts if one.at <= now]
    lake.cuts = tuple(one.due() if one in due else DueCut(one.at) for one in cuts)
    return due, next((one.pos for one in cuts if one.at > now), 10**9)


def prove(lake: LocalLake, covered: list[Cut]) -> None:
    if covered:
        lake.prove(covered[-1].pos, covered[-1].number)


def finish(lake: LocalLake, cuts: list[Cut]) -> None:
    """All has landed, and it is long after the last cut."""
    lake.now = max(lake.now, cuts[-1].at)
    lake.cuts = tuple(one.due() for one in cuts)
    prove(lake, cuts)
    lake.land()
    for _ in range(3):  # an old turn may be told first
        lake.run()
