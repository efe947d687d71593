"""Landing and merging fail apart; what stands still is remembered until it is seen to go on."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from checks.model import NotYet
from monitor.config.sections import build_invariant_rules
from monitor.spark.requests import (
    CRASH,
    Deadlines,
    Failure,
    LaneRequests,
    Reply,
    Request,
    SparkLooks,
    Verb,
    answer_request,
    as_error,
    as_failure,
    dump_reply,
    dump_request,
    load_reply,
    load_request,
)
from monitor.store.holds import HoldRegistry
from monitor.store.requests import ResubmissionRecord, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.checkpoint import Gap
from pipeline.errors import (
    ConfigError,
    FormatError,
    HeldError,
    ProofError,
    SluiceError,
    UnreachableError,
)
from pipeline.invariants.column_loss import ColumnLoss
from pipeline.invariants.not_null import NotNull
from pipeline.lane import Lane
from pipeline.model import Account, Shard, Table
from pipeline.reports import Hold, LandingReport, MergeReport, SparkWork
from pipeline.resubmissions import Resubmission, ResubmissionState
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings, TableRule
from pipeline.suites import ExpectationResult, ExpectationSettings, SuiteAnswer, SuiteLook
from tests.monitor.store.kit import Full

NOW = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOLD = Hold("foreign_write:shop.users:7", "shop.users", "foreign_write", "restore version 6")
SOURCE_HOLD = Hold("server_changed:shop", "source:shop", "server_changed", "another server")


def _turn(table: str, batch: int = 3, hold: Hold | None = None) -> MergeReport:
    return MergeReport(table, batch, 9, Account(read=5, applied=5), NOW, SECOND, hold)


@dataclass
class FakeSpark:
    """Answers or raises what it was given, verb by verb."""

    land: LandingReport | SluiceError = field(
        default_factory=lambda: LandingReport(
            "main", 3, 5, NOW, SECOND, tables=(("shop.users", 5),)
        )
    )
    apply: tuple[MergeReport, ...] | SluiceError = ()
    backfills: tuple[BackfillState, ...] = ()
    down: SluiceError | None = None
    asked: list[Request] = field(default_factory=list)
    before: list[LandingReport] = field(default_factory=list)
    done: Mapping[str, SparkWork] = field(default_factory=dict)

    def call(self, request: Request, deadline: timedelta) -> Reply:
        self.asked.append(request)
        answer = {Verb.LAND: self.land, Verb.APPLY: self.apply}.get(request.verb, ())
        if request.verb is Verb.LAND and self.before:
            answer = self.before.pop(0)
        if self.down is not None:
            raise self.down
        if isinstance(answer, SluiceError):
            raise answer
        if isinstance(answer, LandingReport):
            return Reply(1, landed=answer, spark=self.done)
        return Reply(1, applied=answer, backfills=self.backfills, spark=self.done)


def _requests(store: ServiceStore, spark: FakeSpark) -> LaneRequests:
    deadlines = Deadlines(SECOND, SECOND, SECOND)
    hold_registry = HoldRegistry(store.holds)
    hold_registry.load()
    return LaneRequests(
        call=spark.call,
        lane="main",
        sources=("shop",),
        deadlines=deadlines,
        waived=store.waivers.waived,
        hold_registry=hold_registry,
        accounts=store.accounts,
        ledger=store.ledger,
        backfills=store.backfills,
        resubmissions=store.resubmissions,
        clock=lambda: NOW,
        readers=lambda: {"shop.users": 4},
    )


def test_corrected_messages_are_asked_for_until_they_are_told_as_landed(
    store: ServiceStore,
) -> None:
    asked = Resubmission("r1", "b.db.t:0:1@0", "e30=", key="AP8=", headers=(("h", None),), at=NOW)
    said = ("db.t", "a typing error", "ann", NOW)
    made = ResubmissionRecord(asked.id, asked.change, *said, original="0" * 64)
    store.resubmissions.add(asked, made)
    landed = LandingReport("main", 3, 5, NOW, SECOND)
    done = replace(landed, resubmitted=(ResubmissionState("r1", 3),))
    spark = FakeSpark(before=[landed, done, landed])
    requests = _requests(store, spark)

    for _ in range(3):
        requests.land()

    assert [one.resubmissions for one in spark.asked] == [(asked,), (asked,), ()]


def test_what_spark_jobs_did_is_added_up_over_replies(store: ServiceStore) -> None:
    spark = FakeSpark(done={"land": SparkWork(1, 4, 30_000, 2.5)})
    requests = _requests(store, spark)

    requests.land()
    spark.done = {"land": SparkWork(2, 3, 50_000, 1.5), "merge": SparkWork(1, 1, 9, 0.5)}
    requests.apply()

    assert requests.spark == {
        "land": SparkWork(3, 7, 80_000, 4.0),
        "merge": SparkWork(1, 1, 9, 0.5),
    }


def test_a_backlog_of_large_batches_is_no_landing_that_is_overdue(store: ServiceStore) -> None:
    """The job is late after the deadline of one request; the next tick goes on."""
    full = LandingReport("main", 3, 5, NOW, SECOND, capped=True)
    spark = FakeSpark(before=[full] * 9)
    requests = _requests(store, spark)
    requests.clock = lambda: NOW + len(spark.asked) * SECOND / 5

    requests.land()

    assert [one.verb for one in spark.asked] == [Verb.LAND, Verb.LAND]


def test_landing_and_merging_are_asked_for_apart_and_each_account_is_kept_once(
    store: ServiceStore,
) -> None:
    spark = FakeSpark(apply=(_turn("shop.users"),))
    requests = _requests(store, spark)

    requests.land()
    requests.apply()
    requests.apply()

    assert [one.verb for one in spark.asked] == [Verb.LAND, Verb.APPLY, Verb.APPLY]
    assert store.accounts.totals()["shop.users", "applied"] == 5
    assert requests.problem == ""


def test_what_turns_said_is_kept_once_a_store_that_was_full_takes_it_and_no_turn_comes_before(
    store: ServiceStore,
) -> None:
    """Else their changes are in no account, and a table that went on stays held."""
    held = (_turn("shop.users", 2, HOLD),)
    spark = FakeSpark(apply=held)
    requests = _requests(store, spark)
    requests.apply()
    disk = Full(store.database)
    spark.apply = (*(_turn(f"shop.t{n}") for n in range(500)), _turn("shop.users"))

    for _ in range(2):
        with pytest.raises(UnreachableError, match="full"):
            requests.apply()
    disk.free()
    spark.apply = ()
    requests.apply()

    assert [one.verb for one in spark.asked] == [Verb.APPLY] * 3
    assert store.accounts.totals()["shop.t499", "applied"] == 5
    assert store.accounts.totals()["shop.users", "applied"] == 10
    assert requests.hold_registry.holds() == ()


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        pytest.param([(3, True), (4, True)], 3, id="while batches are full"),
        pytest.param([(3, False), (4, True)], 1, id="one that holds all is the last"),
        pytest.param([(None, True)], 1, id="so is one where nothing could be landed"),
        pytest.param(
            [(n, True) for n in range(30)], 10, id="not for ever: what is waived is asked"
        ),
    ],
)
def test_a_backlog_is_landed_without_a_pause(
    before: list[tuple[int | None, bool]], asked: int, store: ServiceStore
) -> None:
    told = [LandingReport("main", batch, 5, NOW, SECOND, capped=capped) for batch, capped in before]
    spark = FakeSpark(before=told)

    _requests(store, spark).land()

    assert [one.verb for one in spark.asked] == [Verb.LAND] * asked


def test_what_is_landed_is_merged_though_kafka_is_down(store: ServiceStore) -> None:
    spark = FakeSpark(UnreachableError("kafka: no broker"), (_turn("shop.users"),))
    requests = _requests(store, spark)

    with pytest.raises(UnreachableError, match="kafka: no broker"):
        requests.land()
    requests.apply()

    assert store.accounts.totals()["shop.users", "applied"] == 5
    assert requests.problem == "kafka: no broker"


@pytest.mark.parametrize(
    ("land", "apply", "problem"),
    [
        pytest.param("", "", "", id="nothing"),
        pytest.param("no broker", "", "no broker", id="landing"),
        pytest.param("", "no disk", "no disk", id="merging"),
        pytest.param("no broker", "no disk", "no broker; no disk", id="both, each its own way"),
        pytest.param("died", "died", "died", id="both, by the same cause"),
    ],
)
def test_each_of_the_two_ails_until_it_goes_well_itself(
    store: ServiceStore, land: str, apply: str, problem: str
) -> None:
    spark = FakeSpark()
    requests, well = _requests(store, spark), (spark.land, spark.apply)
    spark.land = UnreachableError(land) if land else well[0]
    spark.apply = UnreachableError(apply) if apply else well[1]
    for ask in (requests.land, requests.apply):
        with suppress(UnreachableError):
            ask()
    told = requests.problem

    spark.land, spark.apply = well
    requests.land()
    half = requests.problem
    requests.apply()

    assert (told, half, requests.problem) == (problem, apply, "")


def test_a_hold_stands_until_that_table_goes_on_also_over_a_restart(store: ServiceStore) -> None:
    spark = FakeSpark(apply=(_turn("shop.users", hold=HOLD), _turn("shop.orders")))
    _requests(store, spark).apply()
    later = _requests(store, spark)

    spark.apply = (_turn("shop.orders", 4),)
    later.apply()
    silent = later.hold_registry.holds()
    spark.apply = (_turn("shop.users", 5),)
    later.apply()

    assert silent == (HOLD,)
    assert later.hold_registry.holds() == ()


def test_a_source_is_held_as_long_as_landing_says_so(store: ServiceStore) -> None:
    spark = FakeSpark(LandingReport("main", None, 0, NOW, SECOND, holds=(SOURCE_HOLD,)))
    requests = _requests(store, spark)
    requests.land()
    held = requests.hold_registry.holds()

    spark.land = LandingReport("main", 4, 1, NOW, SECOND)
    requests.land()

    assert held == (SOURCE_HOLD,)
    assert requests.hold_registry.holds() == ()


def test_a_lane_that_cannot_go_on_holds_every_source(store: ServiceStore) -> None:
    spark = FakeSpark(HeldError("lane_taken", "another writer has batch 4"))
    requests = _requests(store, spark)

    with pytest.raises(HeldError):
        requests.land()

    assert [(one.subject, one.reason) for one in requests.hold_registry.holds()] == [
        ("source:shop", "lane_taken")
    ]


def test_upkeep_spares_what_is_being_read(store: ServiceStore) -> None:
    spark = FakeSpark()

    _requests(store, spark).maintain()

    assert spark.asked[0].readers == {"shop.users": 4}


def test_what_was_cancelled_is_told_until_it_is_forgotten_and_then_no_more(
    store: ServiceStore,
) -> None:
    spark = FakeSpark(backfills=(BackfillState("x", "", "s/a", why="it was cancelled"),))
    requests = _requests(store, spark)

    requests.run_backfills()
    requests.run_backfills()
    spark.backfills = ()
    requests.run_backfills()
    assert [one.backfills for one in spark.asked] == [(), (), ()]

    requests.run_backfills()
    assert len(spark.asked) == 3

    store.backfills.add(StoredBackfill("y", "shop.a", "a gap", "ann", NOW))
    requests.run_backfills()
    assert spark.asked[-1].backfills == (BackfillRequest("y", "shop.a"),)


def test_why_nothing_could_be_read_again_is_told_with_what_waits_for_it(
    store: ServiceStore,
) -> None:
    spark = FakeSpark(down=UnreachableError("the lake is read-only"))
    requests = _requests(store, spark)
    store.backfills.add(StoredBackfill("x", "shop.a", "a gap", "ann", NOW))

    with pytest.raises(UnreachableError):
        requests.run_backfills()

    (one,) = store.backfills.list()
    assert (one.why, one.ended) == ("it failed: the lake is read-only", None)
    spark.down, spark.backfills = None, (BackfillState("x", "shop.a", "s/a", 5),)
    requests.run_backfills()
    assert store.backfills.list()[0].why == ""


def test_tier_0_is_asked_for_by_itself_and_ails_by_itself(store: ServiceStore) -> None:
    spark = FakeSpark(apply=(_turn("shop.users"),))
    requests = _requests(store, spark)
    requests.paused = lambda: frozenset({"shop.orders"})

    requests.apply_urgent()
    requests.problems[Verb.APPLY_URGENT] = "no disk"

    (asked,) = spark.asked
    assert (asked.verb, asked.paused) == (Verb.APPLY_URGENT, frozenset({"shop.orders"}))
    assert requests.problem == "no disk"


def test_a_table_that_is_read_again_or_asked_for_waits_for_no_cycle(store: ServiceStore) -> None:
    spark = FakeSpark()
    requests = _requests(store, spark)
    requests.wanted = lambda: frozenset({"shop.users"})
    store.backfills.add(StoredBackfill("x", "shop.orders", "a gap", "ann", NOW))

    requests.apply()

    assert spark.asked[0].wanted == {"shop.users", "shop.orders"}


AT = datetime(2026, 10, 25, 0, 59, 59, 999999, tzinfo=UTC)
GAP = Gap("t:0:5", "t", 0, 5, 9, "retention", ("shop.users", "shop.orders"))
SENT_HOLD = Hold("h", "source:shop", "server_changed", "waive it")
SOURCE = SourceSettings(
    "shop", "h", 3306, "u", CollectorSettings("http://c", "shop"), "shop", "pass\nword ü"
)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(0), id="an opening"),
        pytest.param(
            Reply(
                7, LandingReport("main", None, 0, AT, timedelta(0), gaps=(GAP,), holds=(SENT_HOLD,))
            ),
            id="a landing that committed nothing",
        ),
        pytest.param(
            Reply(
                8,
                LandingReport(
                    "main", 3, 5, AT, timedelta(microseconds=1), capped=True, tables=(("a", 5),)
                ),
            ),
            id="a capped landing",
        ),
        pytest.param(
            Reply(
                9,
                applied=(
                    MergeReport(
                        "a", 3, 4, Account(5, 4, ignored={"p": 1}), AT, timedelta(1), SENT_HOLD
                    ),
                ),
            ),
            id="a held table",
        ),
        pytest.param(Reply(10, failure=Failure("HeldError", "a: b", "a", "b")), id="a failure"),
    ],
)
def test_a_reply_survives_the_pipe_on_one_line(reply: Reply) -> None:
    line = dump_reply(reply)

    assert load_reply(line) == reply
    assert line.count(b"\n") == 1


def test_a_request_carries_waivers_and_settings_on_one_line() -> None:
    settings = PipelineSettings(
        "/lake", "k:1", (SOURCE,), (TableRule("a.*", "b", key=("x",)),), spark={"a": "b"}
    )
    request = Request(3, Verb.OPEN, frozenset({"h:1", "g"}), {"a": 1}, settings)

    line = dump_request(request)

    assert load_request(line) == request
    assert line.count(b"\n") == 1


def test_invariants_come_out_as_what_they_were() -> None:
    listed, _ = build_invariant_rules(
        [{"tables": "a.*", "not_null": {"columns": ["x"]}, "column_loss": {"share": 0.5}}], Path()
    )
    settings = PipelineSettings("/lake", "k:1", (SOURCE,), invariants=listed)

    opened = load_request(dump_request(Request(3, Verb.OPEN, settings=settings))).settings

    assert opened == settings
    assert opened is not None
    assert [type(one) for _, one in opened.demanded("a.b")] == [NotNull, ColumnLoss]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a"),
        UnreachableError("b"),
        FormatError("c"),
        HeldError("foreign_write", "d"),
        ProofError("e"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_raised_over_there_is_raised_again_here(error: SluiceError) -> None:
    again = as_error(as_failure(error))

    assert type(again) is type(error)
    assert str(again) == str(error)


def test_an_error_of_a_narrower_class_keeps_who_must_act() -> None:
    class UnfitError(UnreachableError):
        """A codec that only Spark can read."""

    assert as_failure(UnfitError("zstd")) == Failure("UnreachableError", "zstd")


def test_an_error_nobody_foresaw_is_a_crash_that_may_pass() -> None:
    failure = as_failure(ValueError("boom"))

    assert failure == Failure(CRASH, "ValueError: boom")
    assert isinstance(as_error(failure), UnreachableError)


TABLE = Table("shop.t", (Shard("shop", "s.t"),), ("id",), "id")
EXPECTED = ExpectationSettings("expect_column_to_exist", {"column": "id"}, "warning")


def _look(version: int = 3, *, state: str = "one") -> SuiteLook:
    return SuiteLook(TABLE, version, 7, None, state, (EXPECTED,), ("our.expectations",))


def test_a_look_and_its_answer_survive_the_pipe() -> None:
    request = Request(4, Verb.CHECK, look=_look())
    result = ExpectationResult("expect_x(id)", None, "info", 3, ("shop/s.t:1",))
    reply = Reply(4, answer=SuiteAnswer(7, 20, (result,)))

    assert load_request(dump_request(request)) == request
    assert load_reply(dump_reply(reply)) == reply


def test_a_look_is_answered_once_and_a_later_version_replaces_one_that_waits() -> None:
    looks, made = SparkLooks(), list[int]()
    answer = SuiteAnswer(7, 20, ())

    def make(look: SuiteLook) -> SuiteAnswer:
        assert looks.answer(look.key) == NotYet("Spark evaluates it")
        made.append(look.version)
        return answer

    assert looks.answer(_look().key) is None
    looks.ask(_look(3))
    looks.ask(_look(4))
    assert looks.answer(_look().key) == NotYet("Spark evaluates it")
    assert looks.answer(_look(state="other").key) is None
    looks.run(make)

    assert made == [4]
    assert looks.answer(_look().key) == answer
    assert looks.answer(_look().key) is None


def test_a_look_that_fails_is_the_failure_of_its_check_alone(store: ServiceStore) -> None:
    spark = FakeSpark(down=UnreachableError("the spark process is starting again"))
    requests = _requests(store, spark)
    requests.looks.ask(_look())

    requests.check()

    assert [one.look for one in spark.asked] == [_look()]
    with pytest.raises(UnreachableError, match="starting again"):
        requests.looks.answer(_look().key)
    assert requests.looks.answer(_look().key) is None


def test_a_look_that_its_deadline_killed_is_asked_for_again_later_and_later() -> None:
    """Each kill of the Spark process stops landing and merging, so the next waits longer."""
    now, made = NOW, list[datetime]()

    def make(_: SuiteLook) -> SuiteAnswer:
        nonlocal now
        made.append(now)
        now += timedelta(hours=2)
        raise UnreachableError("spark process missed 2:00:00; killed")

    looks = SparkLooks(lambda: now)
    while now < NOW + timedelta(days=5):
        try:
            if looks.answer(_look().key) is None:
                looks.ask(_look())
        except UnreachableError as error:
            said = str(error)
            assert "killed (after 2:00:00, attempt " in said
            assert "Spark looks at shop.t again at 2026-" in said
        looks.run(make)
        now += timedelta(minutes=1)

    apart = [(b - a) // timedelta(hours=1) for a, b in pairwise(made)]
    assert apart == [4, 6, 10, 18, 26, 26, 26]
    assert looks.answer(_look(state="other").key) is None


def test_a_look_is_made_at_once_after_a_success_or_a_failure_that_took_no_time() -> None:
    now, down = NOW, True

    def make(_: SuiteLook) -> SuiteAnswer:
        nonlocal now
        if down:
            raise UnreachableError("the spark process is starting again")
        now += timedelta(hours=1)
        return SuiteAnswer(7, 20, ())

    looks = SparkLooks(lambda: now)
    for _ in range(20):
        looks.ask(_look())
        looks.run(make)
        with pytest.raises(UnreachableError, match=r"^the spark process is starting again$"):
            looks.answer(_look().key)
        assert looks.answer(_look().key) is None
    down = False
    looks.ask(_look())
    looks.run(make)
    assert looks.answer(_look().key) == SuiteAnswer(7, 20, ())
    assert looks.answer(_look().key) is None


@pytest.mark.parametrize("error", [RuntimeError("secret"), KeyboardInterrupt()])
def test_a_look_that_raises_anything_is_at_work_no_more(error: BaseException) -> None:
    looks = SparkLooks(lambda: NOW)
    looks.ask(_look())

    def make(look: SuiteLook) -> SuiteAnswer:
        raise error

    if isinstance(error, Exception):
        looks.run(make)
        with pytest.raises(ProofError, match="RuntimeError; see the log"):
            looks.answer(_look().key)
    else:
        with pytest.raises(KeyboardInterrupt):
            looks.run(make)
    assert looks.answer(_look().key) is None


def test_without_spark_a_look_is_undecided_and_no_crash(tmp_path: Path) -> None:
    settings = PipelineSettings(str(tmp_path), "", ())
    lane = SimpleNamespace(
        landing=SimpleNamespace(settings=settings), enter_pool=lambda name: None, session=None
    )

    with pytest.raises(ProofError, match=r"Spark cannot read shop\.t in format delta; increase"):
        answer_request(cast("Lane", lane), Request(1, Verb.CHECK, look=_look()))


def test_a_merge_that_its_deadline_killed_may_take_longer_the_next_time(
    store: ServiceStore,
) -> None:
    """A rewrite begins again after each kill: with the same deadline it would never end."""
    limits, now, needed = list[timedelta](), NOW, timedelta(minutes=100)

    def call(_: Request, limit: timedelta) -> Reply:
        nonlocal now
        limits.append(limit)
        now += min(needed, limit)
        if needed > limit:
            raise UnreachableError(f"spark process missed {limit}; killed")
        return Reply(1, applied=())

    half, hour = timedelta(minutes=30), timedelta(hours=1)
    requests = replace(
        _requests(store, FakeSpark()),
        call=call,
        deadlines=Deadlines(hour, half, 2 * hour),
        clock=lambda: now,
    )

    for reason in ("may take 1:00:00", "may take 2:00:00"):
        with pytest.raises(UnreachableError, match=reason):
            requests.apply()
        assert reason in requests.problem
    requests.apply()
    needed = half
    requests.apply()
    assert limits == [half, hour, 2 * hour, half]
    assert requests.problem == ""

    needed = 3 * hour
    for _ in range(4):
        with pytest.raises(UnreachableError):
            requests.apply()
    assert limits[4:] == [half, hour, 2 * hour, 2 * hour]
    assert "may take" not in requests.problem


def test_a_merge_that_ended_with_its_process_may_not_take_longer(store: ServiceStore) -> None:
    spark = FakeSpark()
    spark.down = UnreachableError("spark process died")
    requests = _requests(store, spark)

    with pytest.raises(UnreachableError, match=r"^spark process died$"):
        requests.apply()
