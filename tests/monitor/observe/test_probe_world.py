"""What one probe may see in one round: one mirror, blame by name, and no more than was proven."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from checks.mirror_state import MirrorState
from checks.ordering import SourceOrdering
from checks.world import Commit, LogReader, MirrorSide, ShardBase
from monitor.clients import LakeClient
from monitor.config.plans import CheckPlan
from monitor.observe.heartbeats import FenceBook
from monitor.observe.probing import ProbeWorld
from monitor.observe.sampler import Sampling
from monitor.spark.requests import SparkLooks
from monitor.store.store import ServiceStore
from pipeline.backfill_state import Backfill
from pipeline.changelog.transactions import FindIncarnation
from pipeline.checkpoint import Checkpoint, Gap, Incarnations, Quarantine
from pipeline.collectors.collector import Collector
from pipeline.errors import ProofError, UnreachableError
from pipeline.lags.samples import LandedBatch, MirrorPosition, Sample
from pipeline.model import (
    CaptureScope,
    Fence,
    Missing,
    Order,
    Ordering,
    Origin,
    Shard,
    Table,
)
from tests.builders.values import fence
from tests.monitor.rig import NOON

SHARD = Shard("shop", "shop.t")
NOTHING = Missing("nothing has landed yet")
TABLE = Table("shop.t", (SHARD,), ("id",), "id")
OTHER = Table("shop.u", (SHARD,), ("id",), "id")


class FakeMirrors:
    """Each opening is at a newer version; every mirror is applied through *batch*."""

    def __init__(self, batch: int = 4) -> None:
        self.opened: list[str] = []
        self.batch = batch

    def mirror(self, table: Table) -> MirrorSide:
        self.opened.append(table.name)
        found = SimpleNamespace(id="m", version=len(self.opened), batch=self.batch)
        return cast("MirrorSide", found)

    def applied(self, _: str) -> MirrorPosition:
        return MirrorPosition(8, self.batch, "m", entry="entry 8")

    def history(self, _: str, since: int, until: int) -> list[Commit]:
        return [Commit(one, "MERGE", NOON, entry=f"{one}") for one in range(since + 1, until + 1)]


def world(
    folder: Path,
    *,
    steps: tuple[LandedBatch, ...] = (),
    checkpoint: Sample[Checkpoint] | Missing = NOTHING,
    mirrors: FakeMirrors | None = None,
    logs: list[int] | None = None,
) -> ProbeWorld:
    """A world over fakes, with two heartbeats written."""
    store = ServiceStore.open(folder / "s.db")
    fences = FenceBook(store.fences)
    for number in (1, 2):
        fences.add(fence(number, NOON + timedelta(seconds=number)))
    store.close()
    opened = [] if logs is None else logs

    def changes(names: tuple[str, ...], worker: int, incarnation: FindIncarnation) -> LogReader:
        assert (names, worker, incarnation(0)) == (("shop",), 0, None)
        opened.append(1)
        return cast("LogReader", SimpleNamespace(number=len(opened), batch=2 + len(opened)))

    lake = SimpleNamespace(lake=mirrors or FakeMirrors(), changes=changes)
    return ProbeWorld(
        look=Sampling(NOON, {}, checkpoint, {}, steps=steps),
        sources={},
        lake=cast("LakeClient", lake),
        names=("shop",),
        fences=fences,
        memory=store.memory,
        clock_now=lambda: NOON + timedelta(seconds=9),
        now=NOON,
        zone=ZoneInfo("UTC"),
        orderings={"shop": SourceOrdering(Ordering.SEQUENCE)},
        looks=SparkLooks(),
    )


def test_the_order_of_a_tables_changes_is_that_of_its_sources(tmp_path: Path) -> None:
    assert world(tmp_path).ordering(TABLE) is Ordering.SEQUENCE


def test_the_losses_of_a_table_are_its_open_gaps_and_undecoded_changes(tmp_path: Path) -> None:
    gaps = {
        "g@1": Gap("g@1", "t", 0, 1, 9, "retention", shards=(str(SHARD),)),
        "all@1": Gap("all@1", "t", 0, 1, 9, "retention"),
        "other@1": Gap("other@1", "t", 0, 1, 9, "retention", tables=("shop.x",)),
    }
    quarantine = {
        str(SHARD): Quarantine("shop.t", 7, 3, ("m:0:1@7",)),
        "topic:t": Quarantine(None, 8, 1, ("t:0:2@8",), (str(SHARD),)),
        "topic:x": Quarantine(None, 8, 1, ("x:0:3@8",)),
    }
    landed = Checkpoint("shop", 9, gaps=gaps, quarantine=quarantine)

    known = world(tmp_path, checkpoint=Sample(landed, NOON, timedelta(1)))

    more = f"{SHARD}:and 2 more@7"
    assert {*known.losses(TABLE)} == {"g@1", "all@1", "m:0:1@7", more, "t:0:2@8"}


def test_a_loss_concerns_the_shards_that_it_names_or_all(tmp_path: Path) -> None:
    second = Shard("shop", "shop.t2")
    gaps = {
        "g@1": Gap("g@1", "t", 0, 1, 9, "retention", shards=(str(second), "shop/shop.x")),
        "all@1": Gap("all@1", "t", 0, 1, 9, "retention"),
        "delay:a@1": Gap("delay:a@1", "delay:shop", 0, 1, 9, "a setting", shards=(str(SHARD),)),
    }
    quarantine = {str(SHARD): Quarantine("shop.t", 7, 1, ("m:0:1@7",))}
    landed = Checkpoint("shop", 9, gaps=gaps, quarantine=quarantine)
    known = world(tmp_path, checkpoint=Sample(landed, NOON, timedelta(1)))

    assert known.losses(replace(TABLE, shards=(SHARD, second))) == {
        "g@1": {second},
        "all@1": {SHARD, second},
        "m:0:1@7": {SHARD},
    }


@pytest.mark.parametrize(
    ("waived", "concerned"),
    [
        pytest.param("shop.shop.t:0:7@9", True, id="a gap in its topic, or a change"),
        pytest.param("shop.shop.u:0:7@9", False, id="in the topic of another table"),
        pytest.param("routed:0:7@9", True, id="in an unknown topic"),
        pytest.param("beats:shop:0:7@9", True, id="heartbeats of its source"),
        pytest.param("beats:other:0:7@9", False, id="heartbeats of another source"),
        pytest.param("beats:gone:0:7@9", True, id="heartbeats of an unknown source"),
        pytest.param("torn:shop/shop.t:0:7@9", True, id="of its shard"),
        pytest.param("torn:shop/shop.u:0:7@9", False, id="of another shard"),
        pytest.param("shop/shop.t:and 3 more@9", True, id="all other changes"),
        pytest.param("shop/shop.u:and 3 more@9", False, id="all other changes of another"),
        pytest.param("topic:shop.shop.t:and 3 more@9", True, id="all others of its topic"),
        pytest.param("setting:shop:format@0a1b2c3d", True, id="a setting"),
        pytest.param("setting:other:format@0a1b2c3d", False, id="a setting of another source"),
        pytest.param("delay:shop:format@0a1b2c3d", False, id="a setting that delays"),
        pytest.param("ledger:shop.t:u:2026-01-01", False, id="no gap"),
        pytest.param("values:shop.t:shop/shop.t:7", False, id="a row"),
        pytest.param("snapshot:shop/shop.t@9", False, id="a snapshot"),
    ],
)
def test_what_was_waived_stays_a_loss_of_its_table(
    tmp_path: Path, waived: str, concerned: bool
) -> None:
    """The next batch deletes it from the checkpoint, perhaps before any probe has seen it."""
    shards: dict[Shard, str | None] = {
        SHARD: "shop.t",
        Shard("shop", "shop.u"): "shop.u",
        Shard("other", "shop.v"): "shop.v",
    }
    landed = Checkpoint("shop", 9, shards=shards)
    known = world(tmp_path, checkpoint=Sample(landed, NOON, timedelta(1)))
    known.waived = lambda: frozenset({waived})

    assert known.losses(TABLE) == ({waived: {SHARD}} if concerned else {})


@pytest.mark.parametrize(
    ("topic", "ended", "waived", "lasts"),
    [
        pytest.param("lists:shop", False, False, True, id="a table that is left out"),
        pytest.param("lists:shop", False, True, True, id="one that was waived just now"),
        pytest.param("unkept:shop", False, False, True, id="a log that is not retained"),
        pytest.param("unkept:shop", True, False, False, id="a log that is retained again"),
        pytest.param("setting:shop", False, False, True, id="a setting"),
        pytest.param("setting:shop", True, False, False, id="a setting that was corrected"),
        pytest.param("log:shop", False, False, False, id="another log"),
        pytest.param("shop.shop.t", False, False, False, id="offsets of a topic"),
    ],
)
def test_a_gap_whose_cause_lasts_is_a_loss_once_it_has_ended_or_is_waived(
    tmp_path: Path, topic: str, ended: bool, waived: bool, lasts: bool
) -> None:
    id_, above = f"{topic}:0:7@9", Order(1, 1, 1) if ended else None
    gap = Gap(id_, topic, 0, 7, 7, "why", shards=(str(SHARD),), above=above)
    landed = Checkpoint("shop", 9, gaps={id_: gap}, shards={SHARD: "shop.t"})
    known = world(tmp_path, checkpoint=Sample(landed, NOON, timedelta(1)))
    known.waived = lambda: frozenset({id_} if waived else ())

    assert known.loses_changes(TABLE) is lasts
    assert not known.loses_changes(replace(TABLE, name="shop.u", shards=(Shard("shop", "shop.u"),)))
    assert {*known.losses(TABLE)} == ({id_} if waived or not lasts else set())


def test_without_a_checkpoint_losses_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="nothing has landed yet"):
        world(tmp_path).losses(TABLE)
    with pytest.raises(UnreachableError, match="nothing has landed yet"):
        world(tmp_path).loses_changes(TABLE)


def test_all_probes_of_a_round_see_one_version_of_a_mirror(tmp_path: Path) -> None:
    mirrors = FakeMirrors()
    seen = world(tmp_path, mirrors=mirrors)

    versions = [seen.mirror(table).version for table in (TABLE, OTHER, TABLE)]

    assert versions == [1, 2, 1]
    assert mirrors.opened == ["shop.t", "shop.u"]


@pytest.mark.parametrize(
    ("since", "state"),
    [
        pytest.param(None, (8, "entry 8"), id="unknown"),
        pytest.param(MirrorState("m", 6, 4, "entry 6"), (7, "entry 7"), id="as in the look"),
        pytest.param(MirrorState("m", 7, 4, "entry 7"), (7, "entry 7"), id="not changed since"),
        pytest.param(MirrorState("m", 7, 4, "another"), (8, "entry 8"), id="another commit"),
        pytest.param(MirrorState("m", 8, 4, "entry 8"), (8, "entry 8"), id="newer than the look"),
        pytest.param(MirrorState("n", 6, 4, "entry 6"), (8, "entry 8"), id="another mirror"),
        pytest.param(MirrorState("m", 6, 5, "entry 6"), (8, "entry 8"), id="a later batch"),
    ],
)
def test_the_state_of_a_mirror_is_known_without_opening_it(
    tmp_path: Path, since: MirrorState | None, state: tuple[int, str]
) -> None:
    """The look has seen version 7, and version 8 was committed since."""
    mirrors = FakeMirrors()
    seen = world(tmp_path, mirrors=mirrors)
    position = MirrorPosition(7, 4, "m", entry="entry 7")
    seen.look = replace(seen.look, mirrors={TABLE.name: Sample(position, NOON, timedelta(1))})

    found = seen.mirror_state(TABLE, since)

    assert ((found.version, found.entry), mirrors.opened) == (state, [])


def test_the_state_of_a_pinned_mirror_is_that_of_its_version(tmp_path: Path) -> None:
    seen = world(tmp_path)
    seen.mirror(TABLE)

    assert seen.mirror_state(TABLE, MirrorState("m", 0, 4, "")) == MirrorState("m", 1, 4, "1")


def test_the_log_is_opened_once_and_only_when_it_is_asked(tmp_path: Path) -> None:
    logs: list[int] = []
    seen = world(tmp_path, logs=logs)
    before = list(logs)

    assert seen.log() is seen.log()
    assert (before, logs) == ([], [1])


def test_the_log_is_opened_again_for_a_mirror_that_has_newer_batches(tmp_path: Path) -> None:
    """Otherwise a check would take rows of such a batch for unchanged."""
    seen = world(tmp_path, mirrors=FakeMirrors(batch=4))
    first = seen.log().batch
    seen.mirror(TABLE)
    second = seen.log().batch
    seen.mirror(OTHER)

    assert (first, second, seen.log().batch) == (3, 4, 4)


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        pytest.param(1, 1, id="at it"),
        pytest.param(1.5, 2, id="the first after it"),
        pytest.param(3, None, id="not written yet"),
    ],
)
def test_the_fence_after_an_instant(tmp_path: Path, seconds: float, number: int | None) -> None:
    found = world(tmp_path).fence_after("shop", NOON + timedelta(seconds=seconds))

    assert (found and found.number) == number


def test_a_source_without_heartbeats_has_no_fence(tmp_path: Path) -> None:
    assert world(tmp_path).fence_after("crm", NOON) is None


@pytest.mark.parametrize(
    ("applied", "passed", "asked", "reached"),
    [
        pytest.param(
            4,
            fence(2, NOON + timedelta(seconds=2)),
            fence(2, NOON + timedelta(seconds=2)),
            True,
            id="exactly",
        ),
        pytest.param(
            4,
            fence(2, NOON + timedelta(seconds=2)),
            fence(1, NOON + timedelta(seconds=1)),
            True,
            id="and more",
        ),
        pytest.param(
            4,
            fence(1, NOON + timedelta(seconds=1)),
            fence(2, NOON + timedelta(seconds=2)),
            False,
            id="the heartbeat is not landed",
        ),
        pytest.param(
            3,
            fence(2, NOON + timedelta(seconds=2)),
            fence(2, NOON + timedelta(seconds=2)),
            False,
            id="landed, and not merged",
        ),
        pytest.param(
            4,
            fence(2, NOON + timedelta(seconds=2), identity="B"),
            fence(1, NOON + timedelta(seconds=1)),
            False,
            id="heartbeats of another server",
        ),
        pytest.param(
            4,
            fence(2, NOON + timedelta(seconds=2)),
            fence(1, NOON + timedelta(seconds=1), source="crm"),
            False,
            id="of another source",
        ),
    ],
)
def test_a_fence_is_reached_when_a_batch_that_covers_it_is_merged(
    tmp_path: Path, applied: int, passed: Fence, asked: Fence, reached: bool
) -> None:
    steps = (LandedBatch(4, {"shop.t": 4}, {"shop": passed}),)
    seen = world(tmp_path, steps=steps, mirrors=FakeMirrors(applied))

    assert seen.reached(TABLE, [asked]) is reached


@pytest.mark.parametrize(
    ("applied", "until"),
    [
        pytest.param(9, 2, id="all of its changes are merged"),
        pytest.param(3, 1, id="the newest is not merged"),
        pytest.param(1, None, id="nothing is merged"),
    ],
)
def test_a_mirror_holds_everything_up_to_the_newest_heartbeat_that_is_merged(
    tmp_path: Path, applied: int, until: int | None
) -> None:
    steps = (
        LandedBatch(2, {"shop.t": 2}, {"shop": fence(1, NOON + timedelta(seconds=1))}),
        LandedBatch(7, {"shop.t": 4}, {"shop": fence(2, NOON + timedelta(seconds=2))}),
        LandedBatch(8, {"shop.t": 4}, {}),
    )
    found = world(tmp_path, steps=steps, mirrors=FakeMirrors(applied)).held_until(TABLE)

    assert found == (None if until is None else NOON + timedelta(seconds=until))


def test_f146_a_mirror_is_not_opened_while_no_batch_covers_the_fence(tmp_path: Path) -> None:
    mirrors = FakeMirrors(4)
    steps = (LandedBatch(4, {"shop.t": 4}, {"shop": fence(1, NOON + timedelta(seconds=1))}),)
    seen = world(tmp_path, steps=steps, mirrors=mirrors)

    assert not seen.reached(TABLE, [fence(2, NOON + timedelta(seconds=2))])
    assert mirrors.opened == []
    assert seen.reached(TABLE, [fence(1, NOON + timedelta(seconds=1))])
    assert mirrors.opened == ["shop.t"]


class CountedSteps(tuple[LandedBatch, ...]):
    """Steps that know how often somebody went through them."""

    walks: list[int]

    def __new__(cls, steps: Iterable[LandedBatch]) -> "CountedSteps":
        """The same steps, walked never yet."""
        made = super().__new__(cls, steps)
        made.walks = []
        return made

    def __iter__(self) -> Iterator[LandedBatch]:
        self.walks.append(1)
        return super().__iter__()


def test_f146_the_steps_of_a_look_are_gone_through_once_for_a_fence_and_not_for_each_table(
    tmp_path: Path,
) -> None:
    steps = CountedSteps(
        [LandedBatch(4, {"shop.t": 4}, {"shop": fence(2, NOON + timedelta(seconds=2))})]
    )
    first = world(tmp_path, steps=steps)
    second = replace(first, _mirrors={})

    found = [
        one.reached(table, [fence(2, NOON + timedelta(seconds=2))])
        for one in (first, second)
        for table in (TABLE, OTHER)
    ]

    assert found == [True] * 4
    assert len(steps.walks) == 1


def test_f146_the_lives_of_a_mark_are_ordered_once_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered, of = list[int](), Incarnations.of

    def counting(told: Mapping[str, int]) -> Incarnations:
        ordered.append(1)
        return of(told)

    monkeypatch.setattr(Incarnations, "of", counting)
    seen = world(tmp_path, checkpoint=landed_sample(7, b0=1))
    for table in (TABLE, OTHER):
        seen.remember(table, "max_id", {"a": 1})
        assert seen.recall(table, "max_id") == {"a": 1}

    assert len(ordered) == 1
    seen.memory.database.close()


ORDER = Order(1, 7, 100)
READ = Backfill("x", Origin.SNAPSHOT, ORDER, "A", 2)


@pytest.mark.parametrize(
    ("checkpoint", "reached"),
    [
        pytest.param(Checkpoint("main", 4, backfills={SHARD: READ}), False, id="its first is read"),
        pytest.param(
            Checkpoint("main", 4, backfills={SHARD: READ}, bases={SHARD: ORDER}),
            True,
            id="another one is read",
        ),
        pytest.param(
            Checkpoint("main", 4, backfills={SHARD: replace(READ, origin=Origin.REPLAY)}),
            True,
            id="some rows are read",
        ),
        pytest.param(
            Checkpoint("main", 5, bases={SHARD: ORDER}, complete={SHARD: 5}),
            False,
            id="its newest is not merged",
        ),
        pytest.param(
            Checkpoint("main", 5, bases={SHARD: ORDER}, complete={SHARD: 4}),
            True,
            id="its newest is merged",
        ),
    ],
)
def test_rows_of_before_a_table_has_its_base_are_missed_by_nobody(
    tmp_path: Path, checkpoint: Checkpoint, reached: bool
) -> None:
    steps = (LandedBatch(4, {"shop.t": 4}, {"shop": fence(2, NOON + timedelta(seconds=2))}),)
    sample = Sample(checkpoint, NOON, timedelta(1))

    seen = world(tmp_path, steps=steps, checkpoint=sample, mirrors=FakeMirrors(4))

    assert seen.reached(TABLE, [fence(2, NOON + timedelta(seconds=2))]) is reached


def test_several_sources_must_be_reached_in_one_batch(tmp_path: Path) -> None:
    one, other = (
        fence(2, NOON + timedelta(seconds=2)),
        fence(2, NOON + timedelta(seconds=2), source="crm"),
    )
    steps = (
        LandedBatch(3, {"shop.t": 3}, {"shop": one}),
        LandedBatch(4, {"shop.t": 3}, {"crm": other}),
    )

    assert not world(tmp_path, steps=steps).reached(TABLE, [one, other])


def test_a_table_that_no_later_batch_has_changed_needs_no_later_merge(tmp_path: Path) -> None:
    steps = (LandedBatch(9, {"shop.t": 4}, {"shop": fence(2, NOON + timedelta(seconds=2))}),)

    assert world(tmp_path, steps=steps, mirrors=FakeMirrors(4)).reached(
        TABLE, [fence(2, NOON + timedelta(seconds=2))]
    )


@pytest.mark.parametrize(
    ("checkpoint", "batch"),
    [
        pytest.param(NOTHING, -1, id="before the first"),
        pytest.param(
            Sample(Checkpoint(lane="main", batch=7), NOON, timedelta(1)), 7, id="the newest"
        ),
    ],
)
def test_the_batch_landed(
    tmp_path: Path, checkpoint: Sample[Checkpoint] | Missing, batch: int
) -> None:
    assert world(tmp_path, checkpoint=checkpoint).landed_batch() == batch


@pytest.mark.parametrize(
    ("applied", "known"),
    [pytest.param(6, True, id="merged"), pytest.param(5, False, id="landed, and not merged")],
)
def test_a_base_counts_when_the_mirror_has_it(tmp_path: Path, applied: int, *, known: bool) -> None:
    name, order = str(SHARD), Order(1, 4, 50)
    checkpoint = Checkpoint(
        "main",
        7,
        bases={Shard.parse(name): order},
        based={Shard.parse(name): 3},
        complete={Shard.parse(name): 6},
    )
    seen = world(
        tmp_path, checkpoint=Sample(checkpoint, NOON, timedelta(1)), mirrors=FakeMirrors(applied)
    )

    assert seen.bases(TABLE) == ({name: ShardBase(order, 3)} if known else {})


@pytest.mark.parametrize(
    "checkpoint",
    [
        pytest.param(NOTHING, id="no mark"),
        pytest.param(Sample(Checkpoint("main", 7), NOON, timedelta(1)), id="no base"),
    ],
)
def test_a_base_that_is_not_known_does_not_count(
    tmp_path: Path, checkpoint: Sample[Checkpoint] | Missing
) -> None:
    assert world(tmp_path, checkpoint=checkpoint).bases(TABLE) == {}


def test_a_check_remembers_its_own_by_table(tmp_path: Path) -> None:
    seen = world(tmp_path)

    seen.remember(TABLE, "max_id", {"a": 1})

    assert seen.recall(TABLE, "max_id") == {"a": 1}
    assert seen.recall(OTHER, "max_id") is None
    seen.memory.database.close()


def landed_sample(batch: int, **lives: int) -> Sample[Checkpoint]:
    told = {first.removeprefix("b"): life for first, life in lives.items()}
    return Sample(Checkpoint(lane="main", batch=batch, incarnations=told), NOON, timedelta(1))


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        pytest.param(landed_sample(9, b0=1), True, id="the same"),
        pytest.param(landed_sample(9, b0=1, b8=2), True, id="landing was started anew since"),
        pytest.param(NOTHING, True, id="it cannot be read"),
        pytest.param(landed_sample(6, b0=1), False, id="it was set back"),
        pytest.param(landed_sample(9, b0=1, b7=2), False, id="it was set back, and went on"),
        pytest.param(landed_sample(9, b0=2), False, id="another, that has come as far"),
    ],
)
def test_what_was_remembered_of_a_log_goes_with_its_batches(
    tmp_path: Path, now: Sample[Checkpoint] | Missing, *, kept: bool
) -> None:
    before = world(tmp_path, checkpoint=landed_sample(7, b0=1))
    before.remember(TABLE, "max_id", {"a": 1})

    after = replace(before, look=replace(before.look, checkpoint=now))

    assert after.recall(TABLE, "max_id") == ({"a": 1} if kept else None)
    assert after.recall(TABLE, "max_id", lasting=True) == {"a": 1}
    before.memory.database.close()


def test_a_check_runs_where_the_config_has_it_look_at_the_table(tmp_path: Path) -> None:
    plan = CheckPlan("values", timedelta(seconds=20), TABLE.name, object())
    seen = replace(world(tmp_path), plans=(plan,))

    asked = ((TABLE, "values"), (OTHER, "values"), (TABLE, "range_counts"))

    assert [seen.runs(*one) for one in asked] == [True, False, False]
    seen.memory.database.close()


@pytest.mark.parametrize(
    "stamp",
    [
        {"kept": {}},
        {"kept": 7, "batch": 1, "life": None},
        {"kept": {}, "batch": "x", "life": None},
        {"kept": {}, "batch": 1, "life": None, "at": "x"},
        {"kept": {}, "batch": 1, "life": None, "at": "2026-03-02"},
    ],
)
def test_a_memory_of_another_shape_names_what_a_person_does(
    tmp_path: Path, stamp: dict[str, Any]
) -> None:
    seen = world(tmp_path, checkpoint=landed_sample(7, b0=1))
    seen.memory.remember(TABLE.name, "max_id", stamp, NOON)

    with pytest.raises(ProofError, match=r"max_id for shop\.t is unreadable; delete that row"):
        seen.recall(TABLE, "max_id")
    seen.memory.database.close()


AHEAD = NOON + timedelta(hours=1)


def test_a_check_does_not_wait_for_a_time_that_the_clock_had_when_it_was_ahead(
    tmp_path: Path,
) -> None:
    seen = world(tmp_path)
    right, late = NOON + timedelta(seconds=1), NOON + timedelta(days=9)
    seen.clock_now = lambda: AHEAD
    spans = [[1, right.isoformat()], [2, AHEAD.isoformat()]]
    seen.remember(TABLE, "values", {"ended": AHEAD.isoformat(), "spans": spans})
    seen.remember(TABLE, "day_counts", {"until": late.isoformat(), "name": "2026"})

    seen.clock_now = lambda: NOON + timedelta(seconds=5)
    first = seen.recall(TABLE, "values")
    seen.clock_now = lambda: NOON + timedelta(seconds=9)
    again = seen.recall(TABLE, "values")

    known = (NOON + timedelta(seconds=5)).isoformat()
    assert first == again == {"ended": known, "spans": [[1, right.isoformat()], [2, None]]}
    assert seen.recall(TABLE, "day_counts") == {"until": late.isoformat(), "name": "2026"}
    seen.memory.database.close()


def test_a_check_cannot_look_while_the_clock_is_behind_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    """The first heartbeat after such a look would be one from before it."""
    seen = world(tmp_path)
    seen.clock_now = lambda: NOON + timedelta(seconds=2)
    kept = {"ended": (NOON + timedelta(seconds=2)).isoformat()}
    seen.remember(TABLE, "values", kept)

    seen.clock_now = lambda: NOON - timedelta(hours=1)
    said = "^clock:shop: Sluice's clock is 3602.0 s behind a heartbeat of shop; set the clocks"
    for table in (TABLE, OTHER):
        with pytest.raises(UnreachableError, match=said):
            seen.recall(table, "values")
    seen.clock_now = lambda: NOON

    assert seen.recall(TABLE, "values") == {"ended": NOON.isoformat()}
    assert seen.recall(OTHER, "values") is None
    seen.memory.database.close()


def test_now_stands_still_and_the_clock_does_not(tmp_path: Path) -> None:
    seen = world(tmp_path)

    assert (seen.now, seen.clock()) == (NOON, NOON + timedelta(seconds=9))


def test_a_collector_is_asked_once_a_look_and_a_silent_one_is_named(tmp_path: Path) -> None:
    """However many tables of it are compared."""
    asked = list[str]()

    def captures(name: str) -> CaptureScope:
        asked.append(name)
        if name == "shop":
            return CaptureScope(lambda _: True, text="all")
        raise UnreachableError("connector stock: no answer")

    seen = world(tmp_path)
    seen.collectors = {
        name: cast("Collector", SimpleNamespace(captures=partial(captures, name)))
        for name in ("shop", "stock")
    }

    assert [seen.collected("shop").text for _ in range(2)] == ["all", "all"]
    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"^collector:stock: connector stock: no answer"):
            seen.collected("stock")
    assert asked == ["shop", "stock"]
