"""Which probe runs when, in which world, and what becomes of its verdict."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import event

from alerts.model import Event
from alerts.round import AlertSettings
from alerts.routing import Route
from checks.model import NotYet, Outcome, Ruling, Undecided, Verdict
from checks.world import World
from monitor.config.plans import CheckPlan
from monitor.observe.probing import Probing
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.tables import TableRegistry
from monitor.observe.verdicts import LatestVerdicts
from monitor.store.history import Verdicts
from monitor.store.store import ServiceStore
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Fence, Shard, Table
from tests.monitor.rig import NOON
from tests.pipeline.hanging import Hanging

MINUTE = timedelta(minutes=1)


def probed_table(name: str, tier: int = 1) -> Table:
    return Table(name, (Shard("shop", name),), ("id",), "id", tier=tier)


FIRST, SECOND, URGENT = (
    probed_table("shop.a"),
    probed_table("shop.b"),
    probed_table("shop.z", tier=0),
)


@dataclass
class FakeRoster:
    """Some tables."""

    known: Sequence[Table] = (SECOND, FIRST, URGENT)

    def tables(self) -> Sequence[Table]:
        return self.known


@dataclass
class FakeWorld:
    """A world that only knows the time."""

    now: datetime
    number: int

    def clock(self) -> datetime:
        return self.now

    def begin(self, check: str) -> None:
        assert check


@dataclass(frozen=True)
class Number:
    """A reading."""

    value: float | None = 0.0
    as_of: tuple[Fence, ...] = ()
    suspicious: bool = False


@dataclass
class FakeProbe:
    """Notes where it looked, and in which world; answers what it was told to."""

    answer: object = field(default_factory=Number)
    limit: timedelta = MINUTE
    every: timedelta = MINUTE
    gating: bool = False
    looked: list[tuple[str, int]] = field(default_factory=list)
    pasts: list[Sequence[float]] = field(default_factory=list)
    hanging: dict[str, Hanging] = field(default_factory=dict)
    suspicious: set[str] = field(default_factory=set)

    def measure(self, table: Table, world: FakeWorld) -> object:
        self.looked.append((table.name, world.number))
        if isinstance(self.answer, Exception):
            raise self.answer
        if table.name in self.hanging:
            self.hanging[table.name]()
        if table.name in self.suspicious:
            return NotYet("a row differs", suspicious=True)
        return self.answer

    def judge(self, reading: Number, past: Sequence[float]) -> Ruling:
        self.pasts.append(past)
        return Ruling(Outcome.PASS, "fine")


@dataclass
class LookingBack(FakeProbe):
    """One that is shown earlier values."""

    looks_back: int = 1000


class Bench:
    """Probing over a real store, its time moved by hand; the clock may be wrong by ``step``."""

    def __init__(self, folder: Path) -> None:
        self.now, self.step, self.worlds = NOON, timedelta(), 0
        self.store = ServiceStore.open(folder / "s.db")
        self.rulings = LatestVerdicts()
        self.recorder = VerdictRecorder(
            AlertSettings(), self.store, self.rulings, frozenset(), frozenset(), self.clock
        )

    def clock(self) -> datetime:
        return self.now + self.step

    def elapsed(self) -> float:
        return self.now.timestamp()

    def open_world(self, _names: tuple[str, ...], _worker: int) -> World:
        self.worlds += 1
        return cast("World", FakeWorld(self.now, self.worlds))

    def probing(self, *plans: CheckPlan, workers: int = 1) -> Probing:
        return Probing(
            plans=plans,
            roster=cast("TableRegistry", FakeRoster()),
            history=self.store.verdicts,
            recorder=self.recorder,
            open_world=self.open_world,
            clock=self.clock,
            workers_of=lambda _: workers,
            elapsed=self.elapsed,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.store.close()


def plan(
    probe: Any, name: str = "max_id", tables: str = "*", every: timedelta = MINUTE
) -> CheckPlan:
    return CheckPlan(name, every, tables, probe)


def test_tier_0_comes_first_and_the_probes_of_a_table_share_one_world(bench: Bench) -> None:
    one, other = FakeProbe(), FakeProbe()

    bench.probing(plan(one), plan(other, "offset_keys")).round()

    assert one.looked == [("shop.z", 1), ("shop.a", 2), ("shop.b", 3)]
    assert other.looked == one.looked


def test_a_probe_looks_only_where_its_plan_says(bench: Bench) -> None:
    probe = FakeProbe()

    bench.probing(plan(probe, tables="shop.a")).round()

    assert probe.looked == [("shop.a", 1)]


@pytest.mark.parametrize(
    ("seconds", "looks"),
    [
        pytest.param(59, 1, id="not before its time"),
        pytest.param(59.6, 2, id="a tick that is a little early"),
        pytest.param(60, 2, id="when it is due"),
    ],
)
def test_a_probe_keeps_its_own_pace(bench: Bench, seconds: float, looks: int) -> None:
    probe = FakeProbe()
    probing = bench.probing(plan(probe, tables="shop.a"))

    probing.round()
    bench.now += timedelta(seconds=seconds)
    probing.round()

    assert len(probe.looked) == looks


def test_one_that_had_nothing_new_is_asked_again_at_once_and_tells_nothing(bench: Bench) -> None:
    probe = FakeProbe(NotYet("counted for the first time"))
    probing = bench.probing(plan(probe, tables="shop.a"))

    probing.round()
    probing.round()

    assert len(probe.looked) == 2
    assert bench.store.verdicts.list() == ()


def test_one_that_can_look_again_says_so_before_it_can_rule(bench: Bench) -> None:
    probe = FakeProbe(ProofError("shop.a has no mirror yet"))
    probing = bench.probing(plan(probe, "volatility", "shop.a"))

    probing.round()
    before = bench.store.incidents.open()
    bench.now += MINUTE
    probe.answer = NotYet("the first interval begins")
    for _ in range(3):
        probing.round()

    newest = bench.rulings.newest("shop.a", "volatility")
    assert newest is not None
    assert newest.ruling == Ruling(Outcome.UNKNOWN, "the first interval begins", "not_yet")
    assert (len(before), bench.store.incidents.open()) == (1, ())
    assert len(bench.store.verdicts.list()) == 2


@pytest.mark.parametrize(("rests", "looks"), [(False, 3), (True, 1)])
def test_a_probe_that_rests_is_asked_again_after_its_pause(
    bench: Bench, *, rests: bool, looks: int
) -> None:
    probe = FakeProbe(NotYet("nothing to do", rests=rests))
    probing = bench.probing(plan(probe, tables="shop.a"))

    for _ in range(3):
        probing.round()
    before = len(probe.looked)
    bench.now += MINUTE * 60
    probing.round()

    assert (before, len(probe.looked)) == (looks, looks + 1)
    assert probing.waits("shop.a") == {"max_id": "nothing to do"}

    bench.now += MINUTE * 60
    probe.answer = Number()
    probing.round()

    assert probing.waits("shop.a") == {}


@pytest.mark.parametrize("outcome", ["pass", "moving"])
def test_nothing_new_leaves_what_was_ruled_standing(bench: Bench, outcome: str) -> None:
    probe = FakeProbe(Number() if outcome == "pass" else Undecided("in_motion", "it moves"))
    probing = bench.probing(plan(probe, tables="shop.a"))

    probing.round()
    before = bench.rulings.newest("shop.a", "max_id")
    bench.now += MINUTE
    probe.answer = NotYet("counted for the first time")
    probing.round()

    assert bench.rulings.newest("shop.a", "max_id") is before


def test_every_number_is_kept_and_handed_to_the_next_ruling_of_a_probe_that_looks_back(
    bench: Bench,
) -> None:
    probe = LookingBack(Number(1.0))
    probing = bench.probing(plan(probe, tables="shop.a"))

    for value in (1.0, 2.0, 3.0):
        probe.answer = Number(value)
        probing.round()
        bench.now += MINUTE

    assert probe.pasts == [[], [1.0], [1.0, 2.0]]


def test_f45_a_probe_that_does_not_look_back_has_no_past_read_for_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = FakeProbe(Number(1.0))
    monkeypatch.delattr(Verdicts, "history")
    probing = bench.probing(plan(probe, tables="shop.a"))

    for value in (1.0, 2.0):
        probe.answer = Number(value)
        probing.round()
        bench.now += MINUTE

    assert probe.pasts == [[], []]


def test_f44_a_number_is_kept_when_it_changes_and_once_an_hour_at_most(bench: Bench) -> None:
    probe = FakeProbe(Number(0.0))
    probing = bench.probing(plan(probe, tables="shop.a"))

    for minute in range(190):
        probe.answer = Number(0.0 if minute < 100 else float(minute))
        probing.round()
        bench.now += MINUTE

    kept = bench.store.verdicts.history("shop.a", "max_id")
    assert [(at - NOON) // MINUTE for at, _ in kept] == [0, 100, 160]


def test_f44_one_more_pass_asks_the_store_for_nothing(bench: Bench) -> None:
    probing = bench.probing(plan(FakeProbe(), tables="shop.a"))
    probing.round()
    bench.recorder.news([])  # what is open is read after each write, once
    asked = list[str]()
    event.listen(
        bench.store.database.engine, "before_cursor_execute", lambda *a: asked.append(a[2])
    )

    for _ in range(3):
        bench.now += MINUTE
        probing.round()

    assert asked == []
    newest = bench.rulings.newest("shop.a", "max_id")
    assert newest is not None
    assert newest.at == NOON + 3 * MINUTE


def test_f44_a_fail_that_lasts_is_kept_once_an_hour(bench: Bench) -> None:
    for minute in range(130):
        verdict = Verdict("shop.a", "gap", Ruling(Outcome.FAIL, f"{minute} min"), bench.now)
        bench.recorder.tell([verdict], kept=bench.recorder.changed([verdict]))
        bench.now += MINUTE

    kept = bench.store.verdicts.list("shop.a", "gap")
    assert [one.ruling.reason for one in kept] == ["120 min", "60 min", "0 min"]


def test_one_more_unknown_like_the_last_is_not_kept(bench: Bench) -> None:
    probe = FakeProbe(UnreachableError("source:shop: no route to host"))
    probing = bench.probing(plan(probe, tables="shop.a", every=timedelta(seconds=1)))

    for _ in range(5):
        probing.round()
        bench.now += timedelta(seconds=1)

    (kept,) = bench.store.verdicts.list()
    newest = bench.rulings.newest("shop.a", "max_id")
    assert (kept.ruling.outcome, kept.cause) == (Outcome.UNKNOWN, "source:shop")
    assert newest is not None
    assert newest.at == NOON + timedelta(seconds=4)


def test_a_broken_probe_stops_no_other(bench: Bench) -> None:
    broken, sound = FakeProbe(ValueError("a bug")), FakeProbe()

    bench.probing(plan(broken, tables="shop.a"), plan(sound, "offset_keys", "shop.a")).round()

    outcomes = {one.check: one.ruling.outcome for one in bench.store.verdicts.list()}
    assert outcomes == {"max_id": Outcome.UNKNOWN, "offset_keys": Outcome.PASS}


OWN = {name: Table(f"{name}.t", (Shard(name, f"{name}.t"),), ("id",), "id") for name in "abc"}
FOLDED = Table("all.t", (Shard("b", "b.u"), Shard("c", "c.u")), ("id",), "id")


def lines(bench: Bench, hanging: Hanging, *plans: CheckPlan, workers: int = 1) -> Probing:
    """Probes of tables of three sources, one of them of a table that lies in two."""
    probing = bench.probing(*plans, workers=workers)
    probing.roster = cast("TableRegistry", FakeRoster((*OWN.values(), FOLDED)))
    hanging.watched(probing.lines)
    return probing


def test_f45_of_three_sources_a_probe_of_one_hangs_for_ever_and_the_others_are_ruled_on(
    bench: Bench, hanging: Hanging
) -> None:
    probe = FakeProbe(hanging={"b.t": hanging})
    probing = lines(bench, hanging, plan(probe))

    for _ in range(3):
        probing.round()
        bench.now += MINUTE

    ruled = {name: bench.rulings.newest(name, "max_id") for name in ("a.t", "c.t", "all.t")}
    assert all(one and one.at == NOON + 2 * MINUTE for one in ruled.values())
    assert [name for name, _ in probe.looked].count("b.t") == 1, "never a second beside it"
    assert hanging.stuck == ["probes of b"]


def test_f45_what_waits_for_a_probe_that_hangs_is_unknown_by_its_name_and_repeated(
    bench: Bench, hanging: Hanging
) -> None:
    probe, behind = FakeProbe(hanging={"b.t": hanging}), FakeProbe()
    probing = lines(bench, hanging, plan(probe), plan(behind, "offset_keys"))
    probing.round()
    early = bench.rulings.of("b.t")

    for _ in range(3):
        bench.now += MINUTE
        probing.round()

    told = {one.check: one for one in bench.rulings.of("b.t")}
    why = "check max_id of b.t has not ended since 12:00:00 UTC; probes of b wait for it"
    assert early == ()
    assert {name: one.ruling.reason for name, one in told.items()} == {
        "max_id": why,
        "offset_keys": why,
    }
    assert {(one.ruling.outcome, one.cause, one.at) for one in told.values()} == {
        (Outcome.UNKNOWN, "job:probe", NOON + 3 * MINUTE)
    }
    assert len(bench.store.incidents.open()) == 1
    assert len(bench.store.verdicts.list(table="b.t")) == 2, "a repetition is not stored"


def test_a_check_that_hangs_fires_after_15_minutes_and_resolves_when_it_has_ended(
    bench: Bench, hanging: Hanging
) -> None:
    bench.recorder.settings = AlertSettings((Route(channels=("log",)),))
    probe = FakeProbe(hanging={"b.t": hanging})
    probing = lines(bench, hanging, plan(probe))
    states = list[str]()
    for _ in range(19):
        probing.round()
        states += [one.state.value for one in bench.store.incidents.open()]
        bench.now += MINUTE
    hanging.release()
    probe.hanging.clear()
    probing.lines.elapsed = lambda: 0.0

    for _ in range(2):
        probing.round()
        hanging.release()  # to its end
        bench.now += MINUTE

    assert states == ["pending"] * 15 + ["firing"] * 2
    assert bench.store.incidents.open() == ()
    told = [one.message.event for one in bench.store.outbox.waiting("log", 100)]
    assert told == [Event.FIRED, Event.CLEARED]


def test_a_check_that_hangs_is_reported_once_a_minute_although_rounds_are_shorter(
    bench: Bench, hanging: Hanging
) -> None:
    probing = lines(bench, hanging, plan(FakeProbe(hanging={"b.t": hanging})))
    times = set[datetime]()

    for _ in range(40):
        probing.round()
        times |= {one.seen for one in bench.store.incidents.open()}
        bench.now += MINUTE / 6

    assert sorted(times) == [
        NOON + timedelta(seconds=each) for each in (70, 130, 190, 250, 310, 370)
    ]


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_step_of_the_clock_makes_no_probe_hang_and_hides_none(
    bench: Bench, hanging: Hanging, step: timedelta
) -> None:
    probing = lines(bench, hanging, plan(FakeProbe(hanging={"b.t": hanging})))
    probing.round()

    bench.step = step
    probing.round()
    stepped = bench.rulings.of("b.t")
    bench.now += 2 * MINUTE
    probing.round()

    assert stepped == ()
    (told,) = bench.rulings.of("b.t")
    assert "max_id of b.t has not ended since 12:00:00 UTC" in told.ruling.reason


def test_one_that_hangs_holds_its_own_table_and_no_other_of_its_source(
    bench: Bench, hanging: Hanging
) -> None:
    probe, other = FakeProbe(hanging={"shop.a": hanging}), FakeProbe()
    probing = bench.probing(plan(probe), plan(other, "offset_keys"), workers=2)
    hanging.watched(probing.lines)

    for _ in range(3):
        probing.round()
        bench.now += MINUTE

    told = {name: bench.rulings.newest(name, "offset_keys") for name in ("shop.a", "shop.b")}
    why = "check max_id of shop.a has not ended since 12:00:00 UTC; checks of shop.a wait for it"
    assert [name for name, _ in probe.looked].count("shop.a") == 1
    assert told["shop.a"]
    assert told["shop.a"].ruling.reason == why
    assert told["shop.b"]
    assert (told["shop.b"].ruling.outcome, told["shop.b"].at) == (Outcome.PASS, NOON + 2 * MINUTE)


def test_tables_of_a_source_are_probed_side_by_side_each_by_one_worker_in_a_world_of_its_own(
    bench: Bench,
) -> None:
    """Three workers meet: each waits for the two others."""
    meeting, workers = threading.Barrier(3), list[int]()

    def meet(sources: tuple[str, ...], worker: int) -> World:
        meeting.wait(timeout=60)
        workers.append(worker)
        return bench.open_world(sources, worker)

    probe, other = FakeProbe(), FakeProbe()
    probing = bench.probing(plan(probe), plan(other, "offset_keys"), workers=3)
    probing.open_world = meet
    probing.lines.elapsed = lambda: 0.0  # a round waits for all of them

    probing.round()

    assert sorted(workers) == [0, 1, 2]
    assert sorted(probe.looked) == sorted(other.looked)
    assert sorted(name for name, _ in probe.looked) == ["shop.a", "shop.b", "shop.z"]


def test_what_looks_suspicious_is_looked_at_again_before_all_others(bench: Bench) -> None:
    """Other checks of the same table wait for their turn."""
    probe, other = FakeProbe(every=timedelta(seconds=1)), FakeProbe()
    first, second = plan(probe, every=timedelta(seconds=1)), plan(other, "offset_keys")
    probing = bench.probing(first, second)
    probe.suspicious = {"shop.b"}

    probing.round()
    probe.suspicious, probe.looked = set(), []
    bench.now += MINUTE
    probing.round()

    assert [name for name, _ in probe.looked] == ["shop.b", "shop.z", "shop.a"]
    assert other.looked[-3:] == [("shop.z", 5), ("shop.a", 6), ("shop.b", 7)]


def test_a_verdict_that_is_not_all_is_followed_up_in_the_next_round(bench: Bench) -> None:
    probe = FakeProbe(Number(suspicious=True))
    probing = bench.probing(plan(probe, tables="shop.a"))

    probing.round()
    probe.answer = Number()
    for _ in range(3):
        probing.round()

    assert len(probe.looked) == 2


def test_a_line_goes_on_when_its_probe_has_ended(bench: Bench, hanging: Hanging) -> None:
    probe = FakeProbe(hanging={"b.t": hanging})
    probing = lines(bench, hanging, plan(probe))
    probing.round()
    hanging.release()
    probe.hanging.clear()
    bench.now += MINUTE
    probing.lines.elapsed = lambda: 0.0
    probing.round()
    hanging.release()  # to its end
    bench.now += MINUTE

    probing.round()

    newest = bench.rulings.newest("b.t", "max_id")
    assert newest is not None
    assert newest.ruling.outcome is Outcome.PASS


def test_what_breaks_in_a_line_breaks_the_round_and_no_other_line(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing = lines(bench, hanging, plan(FakeProbe()))
    tell = bench.recorder.tell

    def full(verdicts: Sequence[Verdict], **kept: Any) -> None:
        if verdicts[0].table == "b.t":
            raise UnreachableError("store: disk full")
        tell(verdicts, **kept)

    monkeypatch.setattr(bench.recorder, "tell", full)

    with pytest.raises(UnreachableError, match="disk full"):
        probing.round()

    ruled = [bench.rulings.newest(name, "max_id") is not None for name in ("a.t", "c.t", "all.t")]
    assert ruled == [True] * 3


@pytest.mark.parametrize("code", ["not_reached", "unreachable", "unprovable", "over_time"])
def test_f118_a_stale_unknown_ends_with_a_look_that_finds_nothing_wrong(
    bench: Bench, code: str
) -> None:
    probe = FakeProbe(Undecided(code, "the mirror has not reached 13:01:43, waited 1268 s"))
    probing = bench.probing(plan(probe, tables="shop.a"))
    probing.round()

    probe.answer = NotYet("no transaction has ended yet")
    bench.now += MINUTE
    probing.round()

    newest = bench.rulings.newest("shop.a", "max_id")
    assert newest is not None
    assert newest.ruling.code == "not_yet"
    assert newest.ruling.reason == "no transaction has ended yet"


def test_f118_a_fail_before_it_still_counts(bench: Bench) -> None:
    failed = Verdict("shop.a", "max_id", Ruling(Outcome.FAIL, "lost", "x"), NOON)
    bench.recorder.tell([failed])
    probe = FakeProbe(Undecided("not_reached", "waited"))
    probing = bench.probing(plan(probe, tables="shop.a"))
    probing.round()
    probe.answer = NotYet("a cycle has begun")
    bench.now += MINUTE
    probing.round()

    assert [one.ruling.code for one in bench.rulings.of("shop.a")] == ["not_yet", "x"]
