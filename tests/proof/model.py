"""Landing and gate as they are, over a source, a collector and mirrors that a seed plays with.

What a transaction wrote, and when, is known here; the service knows only its own clock.  Clocks go
wrong, servers fail over, topics are made anew, mirrors are written to by others and rebuilt.  Rows
are lost, found, waived in part and repaired, and the service restarts in between.  The collector
may skip a piece of the log, leave out a row by a setting, or go on in the log of another server
that names no transactions.  At most one of
the two clocks is fast at a time: what both agree on nobody can know better.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from random import Random

from checks.certificate import Certificate
from checks.model import Outcome, Ruling
from monitor.store.alerts import Waiver
from pipeline.clocks import ClockReading
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.model import Acknowledged, CaptureScope, Fence, Head, Op, Stage
from pipeline.sources.mysql.position import binlog_position
from tests.builders.harness import LandingHarness, Topics
from tests.monitor.rig import Rig

TABLE, TOPIC = "db.t", "shop.db.t"
KEYS = 8
CHECK = "range_counts"
Contents = Mapping[int, int]
"""Key -> number of the last transaction that wrote it."""
TOLERANCE = Finding(
    *(REFUSE, "errors.tolerance", "collector:shop", "errors.tolerance=all", "set it to none"),
    effect=Effect.DROPS,
)


@dataclass(frozen=True, slots=True)
class Written:
    """One transaction: a heartbeat, or number ``number`` of row ``key``, committed at ``at``."""

    number: int
    key: int | None
    server: int
    gtid: str
    at: datetime


@dataclass(eq=False)
class Database:
    """Servers that took over from one another, and the collector of the newest.

    ``carried`` of what was ``written`` is in the topics, as the collector knows.  ``snapshots``:
    log and position of each -> how much had been written before it.  ``named``: transactions have
    names, GTIDs.  ``tolerant``: the collector leaves out rows that it cannot send; it leaves out
    the next ``refused`` ones.
    """

    topics: Topics
    written: list[Written] = field(default_factory=list)
    server: int = 0
    begun: int = 0
    carried: int = 0
    snapshots: dict[tuple[int, int], int] = field(default_factory=dict)
    named: bool = True
    tolerant: bool = False
    refused: int = 0

    def write(self, number: int, key: int | None, at: datetime) -> None:
        """Commit one transaction."""
        own = sum(one.server == self.server for one in self.written) + 1
        self.written.append(Written(number, key, self.server, f"{_uuid(self.server)}:{own}", at))

    def carry(self, most: int) -> None:
        """Bring at most so many transactions into the topics."""
        for place, one in list(enumerate(self.written))[self.carried : self.carried + most]:
            left_out = self.tolerant and self.refused > 0 and one.key is not None
            self.refused -= left_out
            if not left_out:
                self.send(place, one)
            self.carried = place + 1

    def skip(self) -> None:
        """Go on behind all that is written: what was not carried is never sent."""
        self.carried = len(self.written)

    def send(self, place: int, one: Written) -> None:
        """Bring one, perhaps again."""
        log, pos = self.server + 1, self.pos(place)
        if one.key is None:
            self.topics.write_heartbeat("shop", one.number, pos=pos, log=log)
            return
        tx = one.gtid if self.named else None
        self.topics.put("shop", pos, str(one.number), log=log, tx=tx, key=one.key)

    def snapshot(self) -> None:
        """Bring every row as it stands now, after all that was written."""
        self.carry(len(self.written))
        rows = {one.key: one.number for one in self.written if one.key is not None}
        place = {"db": "db", "table": "t", "file": f"binlog.{self.server + 1:06d}", "row": 0}
        place["pos"] = self.pos(len(self.written))
        self.snapshots[self.server + 1, self.pos(len(self.written))] = len(self.written)
        if beats := [one.number for one in self.written if one.key is None]:
            at = self.pos(len(self.written))
            self.topics.write_heartbeat("shop", beats[-1], pos=at, log=self.server + 1, read=True)
        for left, (key, number) in zip(reversed(range(len(rows))), rows.items(), strict=True):
            told = {"snapshot": "true" if left else "last_in_data_collection"}
            value = {"after": {"id": key, "name": str(number)}, "source": place | told, "op": "r"}
            record = (json.dumps({"id": key}).encode(), json.dumps(value).encode())
            self.topics.held.setdefault(TOPIC, []).append(record)

    def fail_over(self) -> None:
        """Another server, with all of it at other places."""
        self.server += 1
        self.begun = len(self.written)

    def pos(self, place: int) -> int:
        """Where the newest server has a transaction in its log."""
        return 1_000 * (place + 1) if self.server == 0 else 70 * (place + 1)

    def position(self, count: int) -> Acknowledged:
        """The place after the first *count* transactions."""
        sets = defaultdict[int, int](int)
        for one in self.written[:count]:
            sets[one.server] += 1
        names = (f"{_uuid(server)}:1-{many}" for server, many in sets.items())
        executed = ",".join(names) if self.named else ""
        return Acknowledged(binlog_position(self.server + 1, self.pos(count - 1) + 1, executed))

    def sends(self) -> None:
        """All there is."""

    def head(self) -> Head:
        return Head(f"server-{self.server}", self.position(len(self.written)).position)

    def acknowledged(self) -> Acknowledged:
        return self.position(self.carried)

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def captures(self) -> CaptureScope:
        return CaptureScope(lambda _: True, hazards=(TOLERANCE,) if self.tolerant else ())


@dataclass(frozen=True, slots=True)
class Version:
    """What a version of a mirror holds: all through ``batch``, but for rows that others deleted."""

    batch: int
    deleted: frozenset[int] = frozenset()
    waived: frozenset[int] = frozenset()  # of those, by a person


@dataclass(frozen=True, slots=True)
class Unknown:
    """A statement about the table, committed at ``at`` after ``place`` others, that nobody read."""

    at: datetime
    place: int


class Model(Rig):
    """A rig whose batches are really landed; ``truth`` is the time that no clock has to show."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.topics = Topics()
        self.database = Database(self.topics)
        self.home = folder / "lake"
        self.numbers, self.source_apart = 0, timedelta()
        self.versions: dict[tuple[str, int], Version] = {}
        self.unknown: list[Unknown] = []
        super().__init__(folder)
        self.begun = self.now
        self.topics.alter("shop", 5, "name", kind="CREATE", log=1)
        self.dictionary.there = [TABLE]
        for _ in range(3):
            self.write_heartbeat()
            self.carry(1)
            self.land()
            self.apply()

    @property
    def truth(self) -> datetime:
        """The time."""
        return self.now - self.apart

    def _build(self) -> None:
        super()._build()
        self.assessor.unproven = lambda _, __: ""
        own = (self.home, self.topics, self.database)
        self.harness = LandingHarness(*own, names=("shop",), ticks=self._ticks)  # type: ignore[arg-type]

    def _ticks(self) -> float:
        """Landing's own seconds go by five times as fast, so that what lingers is over soon."""
        return 5 * self.truth.timestamp()

    def write_heartbeat(self) -> Fence:
        """One second later, one heartbeat, with what both clocks show."""
        self.second()
        known = self.fences.of("shop")
        number = known[-1].number + 1 if known else 1
        read = ClockReading(self.now, self.truth + self.source_apart, self.now)
        self.database.write(number, None, self.truth)
        fence = Fence("shop", number, read.earlier, self.database.head())
        self.clocks.compared("shop", read.skew, fence.at)
        self.fences.add(fence, read.later)
        self.collector.position = self.database.acknowledged()
        return fence

    def change(self) -> None:
        """A transaction or two, each a moment later."""
        for _ in range(self.random.randint(0, 2)):
            self.second(self.random.random() / 2)
            self.numbers += 1
            self.database.write(self.numbers, self.random.randrange(KEYS), self.truth)

    def carry(self, most: int) -> None:
        """The collector goes on."""
        self.database.carry(most)
        self.collector.position = self.database.acknowledged()

    def set_source_clock(self, by: float) -> None:
        """Somebody puts the source's clock forward, or back."""
        self.source_apart += timedelta(seconds=by)

    def land(self, *, changes: bool = True) -> None:
        """One batch of what the topics hold."""
        self.harness.land()
        self.lake.newest = self.harness.loop.checkpoint

    def apply(self, *tables: str) -> None:
        """Merge what is landed."""
        super().apply(TABLE)
        self._note(frozenset())

    def lose_statement(self) -> None:
        """One goes with the topic of statements, of which nobody had listed it."""
        self.second(0.1)
        self.unknown.append(Unknown(self.truth, len(self.database.written)))
        self.topics.say("shop", 1, "TRUNCATE TABLE t")
        self.topics.delete("shop")

    def describe(self) -> None:
        """Somebody reads the table anew; the topic of statements is there again with another."""
        self.topics.say("shop", 2, "CREATE USER x")
        self.database.snapshot()

    def intrude(self, table: str = TABLE) -> None:
        """Somebody deletes a row of the mirror."""
        if table in self.lake.mirrors:
            super().intrude(table)
            self._note(frozenset({self.random.randrange(KEYS)}))

    def lose(self, keys: Collection[int], *, named: int) -> bool:
        """A merge loses rows; a check finds them at once, and names at most so many."""
        if TABLE not in self.lake.mirrors:
            return False
        super().apply(TABLE)
        self._note(frozenset(keys))
        self._find(named)
        return True

    def waive(self) -> None:
        """A person waives the first row that the check names."""
        failed = self.rulings.newest(TABLE, CHECK)
        if failed is None or failed.ruling.outcome is not Outcome.FAIL:
            return
        key = failed.ruling.keys[0]
        self.store.waivers.add(Waiver(f"{CHECK}:{TABLE}:{key}", "a test row", "me", self.now))
        self._excuse()

    def withdraw(self) -> None:
        """A person withdraws all waivers of rows; what was answered meanwhile was excused."""
        for id_ in self.store.waivers.waived():
            self.store.waivers.withdraw(id_, who="me", why="no test rows", at=self.now)
        if TABLE in self.lake.mirrors and self._here().waived:
            super().apply(TABLE)
            self._note(frozenset())

    def repair(self) -> None:
        """Somebody repairs what is lost, and the check passes."""
        self.withdraw()
        if TABLE not in self.lake.mirrors:
            return
        super().apply(TABLE)
        now = self.lake.mirrors[TABLE]
        self.versions[now.mirror, now.version] = Version(now.batch)
        self.say(TABLE, Ruling(Outcome.PASS, "all rows are on both sides"), CHECK)

    def _find(self, named: int) -> None:
        lost = sorted(self._here().deleted)
        keys = tuple(f"shop/{TABLE}:{key}" for key in lost[:named])
        ruling = Ruling(Outcome.FAIL, "rows missing", "missing_rows", keys, len(lost[named:]))
        self.say(TABLE, ruling, CHECK)

    def _here(self) -> Version:
        now = self.lake.mirrors[TABLE]
        return self.versions.get((now.mirror, now.version), Version(-1))

    def _excuse(self) -> None:
        now = self.lake.mirrors[TABLE]
        self.versions[now.mirror, now.version] = replace(self._here(), waived=self._waived())

    def _waived(self) -> frozenset[int]:
        """Keys that a waiver covers now, whatever was rebuilt since it was given."""
        ids = (one for one in self.store.waivers.waived() if one.startswith(f"{CHECK}:"))
        return frozenset(int(one.rpartition(":")[2]) for one in ids)

    def rebuild(self, table: str = TABLE) -> None:
        """The mirror is moved away; a new one has all of the change log."""
        if table in self.lake.mirrors:
            super().rebuild(table)

    def _note(self, deleted: frozenset[int]) -> None:
        now = self.lake.mirrors[TABLE]
        before = self.versions.get((now.mirror, now.version - 1), Version(-1))
        version = Version(now.batch, before.deleted | deleted, self._waived())
        self.versions[now.mirror, now.version] = version

    def violations(self, one: Certificate, landed: Mapping[int, Contents]) -> list[str]:
        """Rows older in what *one* speaks of than its cut was worth."""
        batch, deleted = one.evidence.batch, frozenset[int]()
        if one.stage is Stage.MIRROR:
            version = self.versions[one.evidence.mirror, one.evidence.version or 0]
            batch, deleted = version.batch, version.deleted - version.waived
        holds = landed.get(batch, {})
        due: dict[int, int] = {}
        for each in self.database.written:
            if each.key is not None and each.at < one.cut:
                due[each.key] = each.number
        late = [
            f"{one.stage} as of {one.cut}: row {key} is of {holds.get(key)}, due is {number}"
            for key, number in due.items()
            if holds.get(key, -1) < number or key in deleted
        ]
        unread = (each for each in self.unknown if each.at < one.cut)
        return late + [
            f"{one.stage} as of {one.cut}: batch {batch} knows nothing of a statement of {each.at}"
            for each in unread
            if not any(base <= batch and each.place < place for base, place in self.bases)
        ]

    @cached_property
    def bases(self) -> list[tuple[int, int]]:
        """Batch that completed a snapshot, and how much was written before it: when all is over."""
        settled = [(row["batch"], row["order"]) for row in self.harness.landed(Op.SETTLE)]
        read = self.database.snapshots
        places = [(batch, read.get((at["log"], at["pos"]))) for batch, at in settled]
        return [(batch, place) for batch, place in places if place is not None]

    def landed(self) -> dict[int, Contents]:
        """Batch -> what a mirror holds that is applied through it, by the change log alone."""
        rows = self.harness.landed(Op.CREATE, Op.READ)
        found: dict[int, Contents] = {}
        newest: dict[int, int] = {}
        last = max((row["batch"] for row in rows), default=-1)
        by_batch = defaultdict[int, list[dict[str, object]]](list)
        for row in rows:
            by_batch[row["batch"]].append(row)
        for batch in range(max(last, self.harness.loop.checkpoint.batch) + 1):
            for row in by_batch[batch]:
                after = json.loads(str(row["after"]))
                if "name" in after:
                    key, number = int(after["id"]), int(after["name"])
                    newest[key] = max(newest.get(key, -1), number)
            found[batch] = dict(newest)
        return found


def _uuid(server: int) -> str:
    return f"{server:08d}-0000-0000-0000-000000000000"
