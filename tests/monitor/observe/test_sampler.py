"""A look never fails: who does not answer is Missing, with his words and never told too young."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from monitor.observe.foreign_writes import ForeignWrites
from monitor.observe.heartbeats import FenceBook
from monitor.observe.sampler import Sampler, Sampling, newest_below, sync_positions
from monitor.store.store import ServiceStore
from pipeline.apply.foreign_commits import Intrusion, waiver_id
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.model import Acknowledged, Fence, Head, Hop, Missing, Shard, Table
from pipeline.sources.mysql.position import binlog_position
from pipeline.tables.lake import Lake
from tests.monitor.rig import NOON, SOURCE, USERS, FakeCollector, Rig
from tests.pipeline.hanging import Hanging

SECOND = timedelta(seconds=1)
TABLE = Table("shop.t", (Shard("shop", "shop.t"),), ("id",), "id")
MARK = Checkpoint(lane="main", batch=4)
FENCE = Fence("shop", 7, NOON, Head("A", binlog_position(1, 700)))
BEATS = tuple(
    Fence(
        "shop",
        n,
        NOON + timedelta(seconds=n),
        Head("old" if n < 3 else "A", binlog_position(1, n * 100)),
    )
    for n in range(1, 6)
)


def collectors(**own: "FakeCollector") -> Mapping[str, Collector]:
    return {name: cast("Collector", one) for name, one in own.items()}


class SlowLake:
    """A lake that answers a second after it was asked; what it says may be changed."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.newest: Checkpoint | None = MARK
        self.standing: MirrorPosition | None = MirrorPosition(0, 4, "m")
        self.commits: list[Commit] = []
        self.error: Exception | None = None
        self.damage: Exception | None = None
        self.oldest = 0  # its log was cleaned of older commits
        self.since: list[int | None] = []

    def checkpoint(self) -> Checkpoint | None:
        self.bench.now += SECOND
        if self.error is not None:
            raise self.error
        return self.newest

    def applied(self, table: str) -> MirrorPosition | None:
        self.bench.now += SECOND
        if self.damage is not None:
            raise self.damage
        return self.standing

    def history(self, table: str, since: int | None, until: int) -> Sequence[Commit]:
        self.since.append(since)
        if since is not None and since + 1 < self.oldest:
            raise ProofError("the log of shop.t is gone")
        after = until - 100 if since is None else since
        return [one for one in self.commits[self.oldest :] if after < one.version <= until]


class Bench:
    """A sampler over fakes, its time moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = NOON
        self.collector, self.lake = (
            FakeCollector(Acknowledged(binlog_position(1, 700))),
            SlowLake(self),
        )
        self.waived: frozenset[str] = frozenset()
        store = ServiceStore.open(folder / "s.db")
        fences = FenceBook(store.fences)
        fences.add(FENCE)
        store.close()
        lake = cast("Lake", self.lake)
        self.sampler = Sampler(
            collectors=collectors(shop=self.collector),
            lake=lake,
            fences=fences,
            clock=lambda: self.now,
            budget=30 * SECOND,
            heartbeat_budget=10 * SECOND,
            foreign=ForeignWrites(lake, lambda: self.waived),
        )

    def look(self) -> Sampling:
        """One look at the one table."""
        return self.sampler.with_mirrors(self.sampler.upstream(), self.sampler.mirrors([TABLE]))

    def commit(self, operation: str, *, ours: bool, to: int | None = None) -> None:
        """One more version of the mirror."""
        version = len(self.lake.commits)
        noted = {"sluice": {"after": version - 1}} if ours else None
        parameters = {} if to is None else {"version": str(to)}
        made = Commit(
            *(version, operation, NOON, True),
            note=noted,
            parameters=parameters,
            entry=f"entry {version}",
        )
        self.lake.commits.append(made)
        self.lake.standing = MirrorPosition(version, 4, "m", entry=made.entry)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_sample_is_as_old_as_its_question(bench: Bench) -> None:
    look = bench.look()

    assert look.at == NOON
    assert look.checkpoint == Sample(MARK, NOON, 30 * SECOND)
    assert look.mirrors["shop.t"] == Sample(MirrorPosition(0, 4, "m"), NOON + SECOND, 30 * SECOND)
    assert look.sources["shop"].fences == Sample((FENCE,), NOON, 10 * SECOND)
    assert look.sources["shop"].acknowledged == Sample(
        Acknowledged(binlog_position(1, 700)), NOON, 30 * SECOND
    )


def test_who_does_not_answer_is_missing_with_his_words_and_no_other_is(bench: Bench) -> None:
    bench.lake.error = UnreachableError("lake: no route to host")
    bench.collector.silent = True

    look = bench.look()

    refused = "connector shop: connection refused"
    assert look.checkpoint == Missing("lake: no route to host")
    assert look.sources["shop"].acknowledged == Missing(refused)
    assert look.troubles == {"shop": CollectorState("unreachable", refused)}
    assert isinstance(look.mirrors["shop.t"], Sample)
    assert isinstance(look.sources["shop"].fences, Sample)


def test_what_is_not_there_yet_is_missing_and_not_zero(bench: Bench) -> None:
    bench.lake.newest, bench.lake.standing = None, None
    bench.collector.position = Missing("the collector has no offset yet")

    look = bench.look()

    assert look.checkpoint == Missing("nothing has landed yet")
    assert look.mirrors["shop.t"] == Missing("there is no mirror yet")
    assert look.sources["shop"].acknowledged == Missing("the collector has no offset yet")


def test_f02_a_mirror_that_is_not_there_or_damaged_is_told_from_one_that_nobody_reached(
    bench: Bench,
) -> None:
    reached = bench.look().unreadable
    bench.lake.damage = UnreachableError("lake: no route to host")
    silent = bench.look().unreadable
    bench.lake.damage = HeldError("log_damaged", "its log has a hole")
    damaged = bench.look().unreadable
    bench.lake.damage, bench.lake.standing = None, None
    gone = bench.look().unreadable
    bench.lake.standing = MirrorPosition(0, 4, "n")

    assert reached == silent == {}
    assert damaged == {"shop.t": "log_damaged: its log has a hole"}
    assert gone == {"shop.t": "there is no mirror"}
    assert bench.look().unreadable == {}


def test_a_table_that_was_not_sampled_is_missing() -> None:
    assert Sampling.nothing().samples(TABLE).mirror == Missing("the mirror was not sampled")


def test_f113_looks_that_saw_the_same_are_alike_whatever_was_worked_out_of_one() -> None:
    one, other = Sampling.nothing(), Sampling.nothing()
    one.once("key", lambda: 1)

    assert one == other
    assert repr(one) == repr(other)


@pytest.mark.parametrize("state", ["failed", "paused", "stopped"])
def test_a_collector_that_does_not_run_is_a_trouble(bench: Bench, state: str) -> None:
    bench.collector.trouble = CollectorState(state, "why")

    assert bench.look().troubles == {"shop": CollectorState(state, "why")}


def test_a_foreign_commit_is_told_until_it_is_taken_back(bench: Bench) -> None:
    for _ in range(2):
        bench.commit("MERGE", ours=True)
    clean = bench.look().intrusions
    bench.commit("DELETE", ours=False)
    found, again = bench.look().intrusions, bench.look().intrusions
    bench.commit("RESTORE", ours=False, to=1)

    assert clean == {}
    assert found == again == {"shop.t": Intrusion(2, "DELETE", 1)}
    assert bench.look().intrusions == {}


def test_a_foreign_commit_that_is_waived_is_told_no_more(bench: Bench) -> None:
    bench.commit("MERGE", ours=True)
    bench.commit("DELETE", ours=False)
    found = bench.look().intrusions
    bench.waived = frozenset({waiver_id("shop.t", 1), waiver_id("shop.other", 2)})

    assert found == {"shop.t": Intrusion(1, "DELETE", 0)}
    assert bench.look().intrusions == {}


def test_f19_a_waiver_that_names_no_version_accepts_nothing_and_breaks_nothing(
    bench: Bench,
) -> None:
    bench.commit("MERGE", ours=True)
    bench.commit("DELETE", ours=False)
    bench.waived = frozenset({"foreign_write:shop.t:VERSION", "foreign_write:shop.t:"})

    assert bench.look().intrusions == {"shop.t": Intrusion(1, "DELETE", 0)}


def test_only_commits_since_the_last_look_are_read(bench: Bench) -> None:
    for _ in range(150):
        bench.commit("MERGE", ours=True)
    bench.look()
    bench.look()
    bench.commit("MERGE", ours=True)
    bench.look()

    assert bench.lake.since == [49, 148]  # and the one read last, which may be another now


def test_a_log_that_was_cleaned_up_before_the_first_look_is_nobodys_fault(bench: Bench) -> None:
    bench.lake.standing, bench.lake.oldest = MirrorPosition(300, 4, "m"), 300

    look = bench.look()

    assert isinstance(look.mirrors["shop.t"], Sample)
    assert look.intrusions == {}


def test_a_foreign_commit_is_found_at_the_first_look_at_a_log_that_was_cleaned_up(
    bench: Bench,
) -> None:
    for _ in range(3):
        bench.commit("MERGE", ours=True)
    bench.commit("DELETE", ours=False)
    bench.lake.oldest = 2

    assert bench.look().intrusions == {"shop.t": Intrusion(3, "DELETE", 2)}


def test_a_log_that_was_cleaned_of_the_commit_read_last_is_read_on(bench: Bench) -> None:
    bench.commit("MERGE", ours=True)
    bench.look()
    bench.commit("DELETE", ours=False)
    bench.lake.oldest = len(bench.lake.commits) - 1

    assert bench.look().intrusions == {"shop.t": Intrusion(1, "DELETE", 0)}


def test_a_log_that_loses_commits_between_two_looks_proves_nothing(bench: Bench) -> None:
    bench.commit("MERGE", ours=True)
    bench.commit("MERGE", ours=True)
    bench.look()
    bench.lake.standing, bench.lake.oldest = MirrorPosition(300, 4, "m"), 300

    assert bench.look().mirrors["shop.t"] == Missing("the log of shop.t is gone")


@pytest.mark.parametrize(
    ("arrived", "number"),
    [
        pytest.param(Acknowledged(binlog_position(1, 450)), 4, id="the newest that it has passed"),
        pytest.param(Acknowledged(binlog_position(1, 400)), 4, id="its own place is enough"),
        pytest.param(Acknowledged(binlog_position(2, 4)), 5, id="in a later file"),
        pytest.param(
            Acknowledged(binlog_position(1, 250)), None, id="one of another server says nothing"
        ),
    ],
)
def test_the_newest_heartbeat_below_what_has_arrived(
    arrived: Acknowledged, number: int | None
) -> None:
    found = newest_below(BEATS, arrived)

    assert (found.number if found else None) == number


def test_f04_what_arrived_of_the_server_before_says_nothing_of_the_one_now() -> None:
    old, new = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
    fences = (Fence("shop", 1, NOON, Head("B", binlog_position(1, 100, f"{old}:1-80,{new}:1"))),)

    assert newest_below(fences, Acknowledged(binlog_position(9, 9, f"{old}:1-80"))) is None
    assert (
        newest_below(fences, Acknowledged(binlog_position(9, 9, f"{old}:1-80,{new}:1-2")))
        == fences[0]
    )


def _hops(rig: Rig) -> dict[Hop, object]:
    view = rig.view(USERS)
    return {each.hop: each.lag for each in view.lags.hops}


def test_without_a_mirror_there_is_no_such_hop(rig: Rig) -> None:
    rig.round()

    assert sync_positions([SOURCE], {"shop": cast(Collector, rig.collector)}, rig.fences) == {}
    assert Hop.SYNC not in _hops(rig)


def test_a_mirror_that_lags_shows_as_its_own_hop_and_a_silent_one_as_missing(rig: Rig) -> None:
    rig.watcher.sampler.synced = {"shop": lambda: 1}
    rig.round()
    for _ in range(3):
        rig.write_heartbeat()
    rig.cycle.watch()
    assert _hops(rig)[Hop.SYNC] == timedelta(seconds=4)

    rig.watcher.sampler.synced = {"shop": lambda: Missing("the mirror does not answer")}
    rig.round()
    assert isinstance(_hops(rig)[Hop.SYNC], Missing)


def test_batches_that_the_log_has_lost_prove_nothing_though_others_have_their_numbers(
    rig: Rig,
) -> None:
    """It was put back and landed on between two looks: what they covered is not there any more."""
    rig.round()
    first = replace(rig.newest, batch=5, incarnations={"0": 7})
    seen = []
    for mark in (
        first,
        replace(first, batch=6),
        replace(first, batch=8, incarnations={"0": 7, "6": 9}),
        replace(first, batch=9, incarnations={"0": 7, "6": 9}),
    ):
        rig.lake.newest = mark
        rig.second()
        seen.append([one.batch for one in rig.watcher.look(timedelta()).steps])

    assert seen == [[5], [5, 6], [8], [8, 9]]


@pytest.fixture
def hanging(bench: Bench, hanging: Hanging) -> Hanging:
    hanging.watched(bench.sampler.upstreams, bench.sampler.looks)
    return hanging


def test_f21_of_three_collectors_one_hangs_for_ever_and_the_others_are_sampled(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = Acknowledged(binlog_position(1, 700))
    silent = FakeCollector(position)
    bench.sampler.collectors = collectors(
        a=FakeCollector(position), b=silent, c=FakeCollector(position)
    )
    monkeypatch.setattr(silent, "acknowledged", hanging)

    first, second = bench.look(), bench.look()

    why = "the collector of b has not answered since 12:00:00 UTC"
    for look in (first, second):
        assert look.sources["b"].acknowledged == Missing(why)
        assert look.troubles == {"b": CollectorState("unreachable", why)}
        assert isinstance(look.sources["b"].fences, Sample)
    assert second.sources["a"].acknowledged == Sample(position, second.at, 30 * SECOND)
    assert second.sources["c"].acknowledged == Sample(position, second.at, 30 * SECOND)
    assert isinstance(second.checkpoint, Sample)
    assert hanging.stuck == ["the collector of b"]


def test_f21_mirrored_topics_that_hang_keep_nothing_but_their_own_hop(
    bench: Bench, hanging: Hanging
) -> None:
    bench.sampler.collectors = collectors(shop=bench.collector, other=bench.collector)
    bench.sampler.synced = {"shop": hanging, "other": lambda: 5}

    sources = bench.look().sources

    why = "the mirror of the topics of shop has not answered since 12:00:00 UTC"
    assert sources["shop"].synced == Missing(why)
    assert sources["other"].synced == Sample(5, NOON, 30 * SECOND)
    assert isinstance(sources["shop"].acknowledged, Sample)


def test_f21_a_mirror_that_hangs_keeps_no_other_from_being_looked_at(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [replace(TABLE, name=f"shop.t{number}") for number in range(9)]
    answer = bench.lake.applied
    monkeypatch.setattr(
        bench.lake, "applied", lambda name: hanging() if name == "shop.t4" else answer(name)
    )

    first, second = bench.sampler.mirrors(tables), bench.sampler.mirrors(tables)

    missing = {name for name, one in second.items() if isinstance(one, Missing)}
    assert missing == {"shop.t4"}
    assert first["shop.t4"] == second["shop.t4"]
    assert "mirror shop.t4 has not answered since" in str(first["shop.t4"])
    assert hanging.stuck == ["mirror shop.t4"]


def test_f21_a_change_log_that_hangs_leaves_what_is_known_of_sources_and_mirrors(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.lake, "checkpoint", hanging)

    look = bench.look()

    assert look.checkpoint == Missing("the change log has not answered since 12:00:00 UTC")
    assert isinstance(look.sources["shop"].acknowledged, Sample)
    assert isinstance(look.mirrors["shop.t"], Sample)


def test_mirrors_that_hang_are_given_up_after_a_few_and_what_was_known_of_the_others_counts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"shop.u{number}" for number in range(20)]
    rig.round()
    shards = {Shard("shop", name): name for name in names}
    rig.set_checkpoint(batch=1, shards=shards, tables=dict.fromkeys(names, 1))
    rig.lake.mirrors = {name: MirrorPosition(0, 1, name) for name in names}
    rig.second()
    known = rig.watcher.look(timedelta()).mirrors
    hanging = Hanging()
    hanging.watched(rig.watcher.sampler.looks)
    monkeypatch.setattr(rig.lake, "applied", hanging)
    rig.second()

    after = rig.watcher.look(timedelta(), names).mirrors

    assert {name for name in names if isinstance(after[name], Missing)} == set(names[:4])
    assert all(after[name] == known[name] for name in names[4:])
    hanging.release()


def test_who_asked_earlier_and_is_told_later_takes_no_newer_sample_away(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.round()
    plain = rig.watcher.sampler.mirrors

    def overtaken(tables: Iterable[Table]) -> Mapping[str, object]:
        found = plain(tables)
        monkeypatch.setattr(rig.watcher.sampler, "mirrors", plain)
        rig.second()
        rig.watcher.look(timedelta(), [USERS])
        return found

    monkeypatch.setattr(rig.watcher.sampler, "mirrors", overtaken)
    rig.second()

    sample = rig.watcher.look(timedelta(), [USERS]).mirrors[USERS]

    assert isinstance(sample, Sample)
    assert sample.at == rig.now


def test_a_mirror_that_outruns_the_mark_is_judged_by_one_that_is_read_after_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What began in between, a new base above all, is in the mirror and unknown to the old one."""
    rig.round()
    plain = rig.watcher.sampler.mirrors

    def while_landing_goes_on(tables: Iterable[Table]) -> Mapping[str, object]:
        rig.land()
        rig.apply()
        return plain(tables)

    monkeypatch.setattr(rig.watcher.sampler, "mirrors", while_landing_goes_on)
    rig.second()

    look = rig.watcher.look(timedelta())

    assert isinstance(look.checkpoint, Sample)
    assert look.checkpoint.value == rig.lake.newest
    assert look.steps[-1].batch == look.checkpoint.value.batch
    mirror = look.mirrors[USERS]
    assert isinstance(mirror, Sample)
    assert mirror.value.batch == look.checkpoint.value.batch
