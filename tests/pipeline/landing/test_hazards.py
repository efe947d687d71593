"""Settings that drop, rewrite or delay changes make their tables unproven, and are remembered."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from checks.blocks import find_blocks, is_waivable
from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.checkpoint import Checkpoint, Epoch, Existence, Gap
from pipeline.collectors.connect.findings import IN_FLIGHT, find_config_hazards
from pipeline.collectors.connect.mysql import ConnectedMySql
from pipeline.collectors.connect.postgres import ConnectedPostgres
from pipeline.collectors.connect.requirements import CONFLUENT, DEMANDS, JSON, NULLABLES, NULLS
from pipeline.errors import UnreachableError
from pipeline.finding import (
    EVERY,
    REFUSE,
    Demand,
    Effect,
    Finding,
    find_unmet,
    join_alternatives,
    split_alternatives,
)
from pipeline.landing.bases import Settled
from pipeline.landing.hazards import detect_hazards, find_unrecorded_hazards, hazard_id
from pipeline.landing.listing import LINGER
from pipeline.landing.next_checkpoint import heals
from pipeline.landing.source_holds import RESENT
from pipeline.model import Acknowledged, CaptureScope, Missing, Order, Shard, Table, combine_scopes
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.doctor import DEMANDS as SERVER_DEMANDS
from pipeline.sources.mysql.doctor import collect_hazards as server_hazards
from pipeline.sources.mysql.facts import ServerFacts
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.postgres.doctor import collect_publication_hazards as table_hazards
from pipeline.sources.postgres.doctor import identity_findings
from pipeline.sources.postgres.facts import PostgresShardFacts, PublishedFacts
from pipeline.sources.source import FoldedTable
from pipeline.transports.topics import TopicFacts, undescribed_parts
from pipeline.transports.topics import find_topic_hazards as topic_hazards
from tests.builders import batch_context
from tests.builders.harness import LandingHarness, load_gaps
from tests.builders.values import by_shard
from tests.checks.test_readiness import inputs
from tests.pipeline.landing.test_left_out import ALL
from tests.pipeline.landing.test_unbased_tables import message

SKIPS = Finding(
    REFUSE,
    "errors.tolerance",
    "connector c",
    "errors.tolerance=all: x",
    "fix",
    Effect.DROPS,
    setting="errors.tolerance=all",
)
LATE = replace(
    SKIPS, code="replica", what="it is a replica", effect=Effect.DELAYS, setting="replica"
)
COMPACT = replace(
    SKIPS,
    code="cleanup.policy",
    where="Kafka",
    what="cleanup.policy=compact: y",
    setting="cleanup.policy=compact",
)
T, U = "shop/db.t", "shop/db.u"
KNOWN = Checkpoint(
    "main",
    5,
    shards={
        Shard.parse(T): "db.t",
        Shard.parse(U): "db.u",
        Shard.parse("till/db.t"): "till.t",
        Shard.parse("shop/db.x"): None,
    },
)
TOLD = {"shop": replace(ALL, hazards=(SKIPS,))}
GONE = {"shop": ALL}
END = Order(1, 1, 500)


def checkpoint_after(
    made: Checkpoint,
    told: Mapping[str, CaptureScope],
    *waived: str,
    router: Router = Router(),  # noqa: B008
    ends: Mapping[str, Order] = {"shop": END},
) -> Checkpoint:
    """*made* once that was *told* of hazards."""
    return detect_hazards(
        made, batch_context(made, captures=told, ends=ends, router=router, waived=frozenset(waived))
    )


def unrecorded(harness: LandingHarness) -> Mapping[str, tuple[Finding, ...]]:
    return find_unrecorded_hazards(harness.loop.feeds, harness.checkpoint)


def load_open_gaps(
    made: Checkpoint, told: Mapping[str, CaptureScope], *waived: str, router: Router
) -> list[Gap]:
    return load_gaps(checkpoint_after(made, told, *waived, router=router))


def gaps(made: Checkpoint, *found: Finding, waived: str = "") -> list[Gap]:
    return load_open_gaps(made, {"shop": replace(ALL, hazards=found)}, waived, router=Router())


def test_f102_all_tables_of_the_source_that_are_there_are_unproven() -> None:
    gone = {Shard.parse(U): Existence(Order(1, 1, 1), there=False)}

    (gap,) = gaps(KNOWN, SKIPS)

    assert gap.shards == (T, U)
    assert "errors.tolerance=all" in gap.why
    assert gaps(replace(KNOWN, existing=gone), SKIPS)[0].shards == (T,)
    assert gaps(KNOWN) == []


def test_f102_only_tables_that_the_setting_names_are_unproven() -> None:
    (gap,) = gaps(KNOWN, replace(SKIPS, shards=r"db\.t"))

    assert gap.shards == (T,)


def test_f102_only_a_base_above_the_end_of_the_log_after_the_setting_closes_it() -> None:
    made = checkpoint_after(KNOWN, TOLD)
    later = checkpoint_after(replace(made, batch=9), TOLD)
    over = checkpoint_after(replace(later, batch=12), GONE)

    (gap,) = load_gaps(over)

    assert gap.id == next(iter(made.gaps.values())).id, "one and the same"
    assert not heals(Settled(Shard.parse(T), Order(1, 1, 900), 13), next(iter(later.gaps.values())))
    assert not heals(Settled(Shard.parse(T), Order(1, 1, 900), 9), gap), "it landed before"
    assert not heals(Settled(Shard.parse(T), END, 13), gap), "its rows may have waited in a topic"
    assert heals(Settled(Shard.parse(T), Order(1, 1, 501), 13), gap)


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        pytest.param({}, {"shop": END}, id="the collector is silent"),
        pytest.param(GONE, {}, id="the server is silent"),
        pytest.param(
            {"shop": replace(ALL, steady=False)}, {"shop": END}, id="the looks have just begun"
        ),
    ],
)
def test_f102_nothing_closes_it_while_nobody_knows_that_the_setting_is_gone(
    told: Mapping[str, CaptureScope], ends: Mapping[str, Order]
) -> None:
    made = checkpoint_after(replace(checkpoint_after(KNOWN, TOLD), batch=12), told, ends=ends)

    (gap,) = load_gaps(made)

    assert gap.above is None
    assert not heals(Settled(Shard.parse(T), Order(1, 1, 900), 99), gap)


def test_f102_only_settings_of_whom_does_not_answer_are_not_gone() -> None:
    made = checkpoint_after(KNOWN, {"shop": replace(ALL, hazards=(SKIPS, COMPACT))})
    told = {"shop": replace(ALL, unanswered=frozenset({"Kafka"}))}

    over = {one.hazard.where: one.above for one in checkpoint_after(made, told).hazards.values()}

    assert over == {"connector c": END, "Kafka": None}


def test_f102_tables_of_a_setting_that_is_told_twice_count_all() -> None:
    few, more = (replace(SKIPS, shards=one) for one in (r"db\.t", r"db\.t|db\.u"))

    assert gaps(KNOWN, more, few)[0].shards == gaps(KNOWN, few, more)[0].shards == (T, U)
    assert gaps(KNOWN, SKIPS, few)[0].shards == gaps(KNOWN, few, SKIPS)[0].shards == (T, U)


def test_f102_a_table_whose_rows_land_once_the_setting_is_gone_has_the_gap_too() -> None:
    over = checkpoint_after(replace(checkpoint_after(KNOWN, TOLD), batch=12), GONE)
    bases = by_shard({"shop/db.old": Order(1, 1, 400), "shop/db.new": Order(1, 1, 600)})
    more = replace(
        over,
        batch=13,
        bases=bases,
        shards={
            **over.shards,
            Shard.parse("shop/db.old"): "db.old",
            Shard.parse("shop/db.new"): "db.new",
        },
    )

    (gap,) = load_gaps(checkpoint_after(more, GONE))

    assert gap.shards == ("shop/db.old", T, U)


def test_f102_a_table_has_the_gap_even_if_no_table_was_known_while_the_setting_lasted() -> None:
    empty = Checkpoint("main", 5)
    over = checkpoint_after(replace(checkpoint_after(empty, TOLD), batch=12), GONE)
    more = replace(
        over, batch=13, shards={Shard.parse(T): "db.t"}, bases={Shard.parse(T): Order(1, 1, 400)}
    )

    (gap,) = load_gaps(checkpoint_after(more, GONE))

    assert (over.gaps, gap.shards, gap.above) == ({}, (T,), END)


def test_f102_a_setting_is_forgotten_once_all_has_landed_that_was_sent_by_it() -> None:
    epochs = {"shop": Epoch(1, "server", binlog_position(1, 400))}
    over = checkpoint_after(replace(checkpoint_after(KNOWN, TOLD), batch=12, epochs=epochs), GONE)
    half, whole = (
        replace(over, acknowledged={"shop": Acknowledged(binlog_position(1, pos))})
        for pos in (END.pos, END.pos + 1)
    )

    assert over.hazards.keys() == checkpoint_after(half, GONE).hazards.keys() == over.gaps.keys()
    assert checkpoint_after(whole, GONE).hazards == {}
    assert checkpoint_after(whole, GONE).gaps == over.gaps


def test_f102_rows_of_a_base_that_waited_in_a_topic_are_not_ready_after_the_setting(
    tmp_path: Path,
) -> None:
    harness, now = LandingHarness(tmp_path, names="a"), [0.0]
    (feed,) = harness.loop.feeds
    feed.clock = lambda: now[0]
    harness.server.published = replace(ALL, text="", hazards=(SKIPS,))
    harness.server.end = 600
    harness.topics.put("a", 500, "first")
    harness.topics.write_heartbeat("a", 1, pos=510)
    harness.land()

    def unproven() -> bool:
        table = Table("db.t", (Shard("a", "db.t"),), key=("id",))
        found = find_blocks(inputs(table=table, taken={"landed": harness.checkpoint}), frozenset())
        return any(one.code == "unproven" for one in found)

    harness.server.published = replace(ALL, text="")
    for now[0] in (LINGER, 2 * LINGER + 1):
        harness.land()
    harness.topics.snapshot("a", 550, 2)  # sent while the setting lasted; a third row was dropped
    harness.server.end = 800
    harness.topics.put("a", 700, "live")
    harness.land()
    waited = harness.checkpoint.bases[Shard("a", "db.t")].pos, unproven()
    harness.topics.snapshot("a", 900, 3)
    harness.server.end = 1100
    harness.topics.put("a", 1000, "live")
    harness.land()

    assert waited == (550, True)
    assert (harness.checkpoint.bases[Shard("a", "db.t")].pos, unproven()) == (900, False)


@pytest.mark.parametrize("found", [SKIPS, LATE], ids=["drops", "delays"])
def test_f198_a_gap_of_several_tables_stays_one_while_the_setting_lasts(found: Finding) -> None:
    told = {"shop": replace(ALL, hazards=(found,))}
    both_there = checkpoint_after(KNOWN, told)
    gone = {Shard.parse(U): Existence(Order(1, 1, 1), there=False)}
    left = replace(KNOWN, batch=6, existing=gone)
    made = both_there
    shared = [gap.shared for gap in load_gaps(made)]
    for gaps_left in (both_there.gaps, {}):  # a base heals the table that is left, and is no end
        now = replace(left, gaps=gaps_left)
        made = detect_hazards(now, batch_context(made, captures=told))
        (gap,) = load_gaps(made)
        shared.append(gap.shared)
        assert gap.shards == ((T,) if not gaps_left or found is LATE else (T, U))

    assert shared == [True, True, True]


def test_f102_a_waiver_names_the_setting_and_its_value() -> None:
    id_ = hazard_id("shop", SKIPS)
    other = replace(SKIPS, setting="errors.tolerance=some")

    assert is_waivable(id_)
    assert gaps(KNOWN, SKIPS, waived=id_) == []
    assert [gap.id for gap in gaps(KNOWN, other, waived=id_)] == [hazard_id("shop", other)]


def test_a_waiver_survives_a_new_wording() -> None:
    reworded = replace(SKIPS, what="errors.tolerance=all: y", fix="another fix")

    assert hazard_id("shop", reworded) == hazard_id("shop", SKIPS)
    assert gaps(KNOWN, reworded, waived=hazard_id("shop", SKIPS)) == []


def test_each_hazard_is_identified_by_a_setting_and_not_by_its_text() -> None:
    unpublished = PostgresShardFacts(
        Shard("", "db.t"), published=PublishedFacts(rows="x > 1", left_out=("c",))
    )
    nothing = PostgresShardFacts(Shard("", "db.t"), identity="n")
    indexed = PostgresShardFacts(
        Shard("", "db.t"), identity="i", identified=("code",), unique=(("id",),)
    )
    server = ServerFacts(
        (8, 0), False, {"log_replica_updates": "OFF"}, unlogged=("binlog_do_db=x",)
    )
    config = {**MYSQL, **FILTER, "gtid.source.includes": "a", "errors.tolerance": "all"}
    flying = {f"producer.override.{IN_FLIGHT}": "5"}
    topics = [*inherited("u"), TopicFacts("p.db.own", 1, {"cleanup.policy": "compact"})]
    found = [
        *find_config_hazards({**config, **flying}, "c"),
        *server_hazards(replace(server, replica=True), "s"),
        *table_hazards([unpublished, nothing, indexed], "sluice", "publication sluice"),
        *topic_hazards(topics, "p", frozenset(), routed=False),
    ]

    assert [(one.code, one.setting) for one in found] == [
        ("errors.tolerance", "errors.tolerance=all"),
        ("gtid.source.includes", "gtid.source.includes=a"),
        ("transforms", "transforms.f.type=io.debezium.transforms.Filter$Value"),
        (IN_FLIGHT, f"{IN_FLIGHT}=5"),
        ("binlog_do_db", "binlog_do_db=x"),
        ("log_replica_updates", "log_replica_updates=OFF"),
        ("replica", "replica"),
        ("replica_identity", "db.t: n"),
        ("replica_identity", "db.t: i id"),
        ("columns_unpublished", "db.t: sluice c"),
        ("unpublished", "db.t: sluice x > 1"),
        ("cleanup.policy", "topic p.db.own: cleanup.policy=compact"),
        ("cleanup.policy", "default for topics of p: cleanup.policy=compact"),
    ]
    assert {one.identity for one in found} == {replace(one, what="new").identity for one in found}


def test_a_demand_with_another_explanation_identifies_the_same_setting() -> None:
    demand = Demand("errors.tolerance", "a change is skipped", good=("none",), effect=Effect.DROPS)
    settings = {"errors.tolerance": "all"}
    (before,) = find_unmet([demand], settings, "c", remedy="")
    (after_,) = find_unmet([replace(demand, why="rows get lost")], settings, "c", remedy="")

    assert before.what != after_.what
    assert hazard_id("shop", before) == hazard_id("shop", after_)


def test_a_waiver_of_the_digest_of_a_text_counts_while_the_text_is_the_same() -> None:
    unnamed = replace(SKIPS, setting="")
    id_ = hazard_id("shop", unnamed)

    assert id_ != hazard_id("shop", SKIPS)
    assert gaps(KNOWN, SKIPS, waived=id_) == []
    assert gaps(KNOWN, replace(SKIPS, what="another text"), waived=id_) != []


def test_f110_what_only_delays_ends_with_it() -> None:
    made = checkpoint_after(KNOWN, {"shop": replace(ALL, hazards=(LATE,))})

    assert is_waivable(next(iter(made.gaps)))
    assert checkpoint_after(made, {}).gaps == made.gaps, "nobody answered"
    assert checkpoint_after(made, GONE).gaps == {}


@pytest.mark.parametrize(
    ("key", "shards"),
    [
        pytest.param(("code",), [], id="its key is sent"),
        pytest.param(("code", "id"), [(T,)], id="half of its key is sent"),
        pytest.param((), [(T,)], id="the config names none: its first one counts"),
    ],
)
def test_f102_an_index_as_replica_identity_is_well_with_the_key_of_the_config(
    key: tuple[str, ...], shards: list[tuple[str, ...]]
) -> None:
    unique = (("id",), ("code",))
    table = PostgresShardFacts(Shard("", "db.t"), identity="i", identified=("code",), unique=unique)
    found = table_hazards([table], "sluice", "publication sluice")
    router = Router((TableRule(r"db\.t", key=key),))

    told = load_open_gaps(KNOWN, {"shop": replace(ALL, hazards=found)}, router=router)

    assert [gap.shards for gap in told] == shards
    assert bool(identity_findings(table, FoldedTable("db.t", key))) == bool(shards), (
        "as the doctor says"
    )


def test_f102_keys_of_the_connector_are_accepted_where_the_config_names_a_key() -> None:
    rekeyed = replace(SKIPS, effect=Effect.REKEYS)
    router = Router((TableRule(r"db\.t", key=("id",)),))

    (gap,) = load_open_gaps(KNOWN, {"shop": replace(ALL, hazards=(rekeyed,))}, router=router)

    assert gap.shards == (U,)


def test_f102_the_batch_that_first_sees_a_setting_blocks_the_gate_and_a_restart_remembers(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    held = harness.topics.held
    held["a.public.old"] = [message("old", 500, 1, "last"), message("old", 600, 2)]
    harness.server.published = replace(ALL, text="", hazards=(SKIPS,))
    harness.land()
    again = LandingHarness(tmp_path, names="a")

    for made in (harness.checkpoint, again.checkpoint):
        found = find_blocks(
            inputs(
                table=Table("public.old", (Shard("a", "public.old"),), key=("id",)),
                taken={"landed": made},
            ),
            frozenset(),
        )
        assert [(one.code, one.id) for one in found if one.code == "unproven"] == [
            ("unproven", hazard_id("a", SKIPS))
        ]
        assert any("errors.tolerance=all" in one.text for one in found)


def test_f102_a_setting_that_is_gone_is_told_for_a_while(tmp_path: Path) -> None:
    harness, now = LandingHarness(tmp_path, names="a"), [0.0]
    (feed,) = harness.loop.feeds
    feed.clock = lambda: now[0]
    harness.server.published = replace(ALL, text="", hazards=(SKIPS,))
    told = []
    looks = ((0.0, (SKIPS,)), (900.0, ()), (900 + LINGER, ()), (901 + LINGER, ()))
    for at, hazards_now in looks:
        now[0], harness.server.published = at, replace(ALL, text="", hazards=hazards_now)
        found = feed.captures()
        assert isinstance(found, CaptureScope)
        feed.recorded(found)
        told.append(found.hazards)

    assert told == [(SKIPS,), (SKIPS,), (SKIPS,), ()], "as of the first look that did not see it"


def passing(harness: LandingHarness) -> Iterator[float]:
    """Times of looks of which the first two see a setting; at the last it is long gone."""
    (feed,) = harness.loop.feeds
    for at, found in ((10.0, (SKIPS,)), (60.0, (SKIPS,)), (70.0, ()), (131.0, ()), (190.0, ())):
        feed.clock = partial(float, at)
        harness.server.published = replace(ALL, text="", hazards=found)
        yield at


def started(home: Path) -> LandingHarness:
    harness = LandingHarness(home, names="a", ticks=partial(float, 0))
    harness.server.end = 600
    harness.topics.put("a", 500, "first")
    harness.land()
    return harness


def seen_while_kafka_is_down(home: Path, monkeypatch: pytest.MonkeyPatch) -> LandingHarness:
    """A setting is seen, and gone, while no batch can be committed."""
    harness = started(home)

    def down(_: object) -> None:
        raise UnreachableError("Kafka does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(harness.topics, "ends", down)
        for _ in passing(harness):
            with pytest.raises(UnreachableError):
                harness.land()
    return harness


def later(harness: LandingHarness) -> list[str]:
    harness.server.end = 2000
    harness.topics.put("a", 1900, "later")
    harness.land()
    return list(harness.checkpoint.gaps)


def test_f102_a_setting_seen_while_kafka_did_not_answer_is_in_the_next_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = seen_while_kafka_is_down(tmp_path, monkeypatch)

    assert later(harness) == [hazard_id("a", SKIPS)]
    feed = harness.loop.feeds[0]
    found = feed.captures()
    assert isinstance(found, CaptureScope)
    assert found.hazards == (), "the mark says it"


def test_f102_a_setting_seen_while_kafka_did_not_answer_outlives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = seen_while_kafka_is_down(tmp_path, monkeypatch)
    again = LandingHarness(tmp_path, topics=harness.topics, names="a", ticks=partial(float, 0))
    seen = unrecorded(harness)

    again.loop.feeds[0].remind(seen["a"])

    assert seen == {"a": (SKIPS,)}
    assert unrecorded(again) == seen
    assert later(again) == [hazard_id("a", SKIPS)]
    assert unrecorded(again) == {}


def test_f102_a_setting_that_lasts_is_no_news_once_a_mark_has_it(tmp_path: Path) -> None:
    harness = started(tmp_path)
    harness.server.published = replace(ALL, text="", hazards=(SKIPS,))
    harness.land()

    harness.land()

    assert unrecorded(harness) == {}


def test_f102_a_setting_seen_while_the_source_was_held_is_in_a_mark_at_once(tmp_path: Path) -> None:
    harness = started(tmp_path)
    harness.topics.put("a", 400, "below, and not sent again")
    harness.land()
    harness.now += RESENT

    batches = []
    for at in passing(harness):
        landed = harness.land()
        assert [one.reason for one in landed.holds] == ["disorder"]
        batches += [at] if landed.batch is not None else []
        assert list(LandingHarness(tmp_path, names="a").checkpoint.gaps) == [hazard_id("a", SKIPS)]
    assert batches == [10.0], "one batch says it"


@pytest.mark.parametrize("silent", ["the server", "the stored offset"])
def test_f102_a_setting_of_the_connector_is_in_the_next_mark_whoever_was_silent(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = started(tmp_path)
    own = harness.server.captures

    def fail() -> None:
        raise UnreachableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(harness.server, "captures", lambda: replace(own(), hazards=(SKIPS,)))
        patch.setattr(harness.server, "sends" if silent == "the server" else "acknowledged", fail)
        assert isinstance(harness.loop.feeds[0].acknowledged(), Missing) != (silent == "the server")
        assert isinstance(harness.loop.feeds[0].captures(), Missing)

    assert later(harness) == [hazard_id("a", SKIPS)]


def test_a_collector_that_hangs_is_not_asked_for_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (feed,) = (harness := LandingHarness(tmp_path, names="a")).loop.feeds
    at = iter((0.0, 3.0))
    feed.clock = partial(next, at)

    def fail() -> None:
        raise UnreachableError("no answer in 3 s")

    def asked() -> None:
        raise AssertionError

    monkeypatch.setattr(harness.server, "acknowledged", fail)
    monkeypatch.setattr(harness.server, "captures", asked)

    assert isinstance(feed.acknowledged(), Missing)
    assert feed.captures() == Missing("no answer in 3 s")


def test_f102_a_service_that_has_just_begun_does_not_know_what_is_gone(tmp_path: Path) -> None:
    (feed,) = LandingHarness(tmp_path, names="a").loop.feeds
    steady = []
    for at in (50.0, 50 + LINGER, 51 + LINGER):
        feed.clock = partial(float, at)
        found = feed.captures()
        assert isinstance(found, CaptureScope)
        steady.append(found.steady)

    assert steady == [False, False, True]


def test_f102_a_setting_seen_while_the_collector_was_silent_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise UnreachableError("the connector does not answer")

    harness = LandingHarness(tmp_path, names="a")
    (feed,) = harness.loop.feeds
    harness.server.published = replace(ALL, text="", hazards=(SKIPS,))
    feed.server()
    with monkeypatch.context() as patch:
        patch.setattr(harness.server, "acknowledged", fail)
        feed.acknowledged()
        feed.captures()
    feed.acknowledged()
    harness.server.published = None

    found = feed.captures()

    assert isinstance(found, CaptureScope)
    assert found.hazards == (SKIPS,)


def test_f102_a_source_without_lists_of_its_own_leaves_the_digest_of_the_lists() -> None:
    found = combine_scopes(ALL, replace(ALL, text="", hazards=(SKIPS,)))

    assert (found.text, found.hazards) == (ALL.text, (SKIPS,))


GOOD = {
    "skipped.operations": "none",
    "event.converting.failure.handling.mode": "fail",
    "enable.time.adjuster": "false",
    "decimal.handling.mode": "string",
}
MYSQL = {
    **GOOD,
    "connector.class": ConnectedMySql.classes[0],
    "bigint.unsigned.handling.mode": "precise",
}
POSTGRES = {
    **GOOD,
    "connector.class": ConnectedPostgres.classes[0],
    "plugin.name": "pgoutput",
    "include.unknown.datatypes": "true",
    "interval.handling.mode": "string",
}
NULLS_KEPT = {"value.converter": JSON, NULLS: "false"}
FILTER = {"transforms": "f", "transforms.f.type": "io.debezium.transforms.Filter$Value"}
OVERRIDE = "snapshot.select.statement.overrides"


@pytest.mark.parametrize("good", [MYSQL, POSTGRES], ids=["mysql", "postgres"])
def test_f102_a_connector_as_sluice_sets_it_has_no_hazard(good: Mapping[str, str]) -> None:
    assert find_config_hazards(good, "c") == ()


@pytest.mark.parametrize("base", [MYSQL, POSTGRES], ids=["mysql", "postgres"])
def test_f102_each_demand_with_an_effect_is_a_hazard(base: Mapping[str, str]) -> None:
    own = ConnectedMySql.demands if base is MYSQL else ConnectedPostgres.demands
    listed = [one for one in (*DEMANDS, *own) if one.effect is not Effect.NONE]

    for one in listed:
        wrong = one.bad[0] if one.bad else "wrong"
        codes = [found.code for found in find_config_hazards({**base, one.name: wrong}, "c")]
        assert codes == [one.name]
    assert len(listed) >= 10


@pytest.mark.parametrize(
    ("more", "code", "shard", "other"),
    [
        pytest.param(FILTER, "transforms", "db.t", None, id="filter"),
        pytest.param(
            {"transforms": "x", "transforms.x.type": "org.own.Odd"},
            "transforms",
            "db.t",
            None,
            id="own",
        ),
        pytest.param({"converters": "x"}, "converters", "db.t", None, id="converters"),
        pytest.param({"post.processors": "x"}, "post.processors", "db.t", None, id="processors"),
        pytest.param({OVERRIDE: "db.t"}, OVERRIDE, "db.t", "db.u", id="override"),
        pytest.param(
            {OVERRIDE: "db.t", f"{OVERRIDE}.db.t": "SELECT * FROM db.t WHERE id > 5"},
            *(OVERRIDE, "db.t", "db.u"),
            id="filtered snapshot",
        ),
        pytest.param(
            {"message.key.columns": "db.t:a;db.v:b"},
            *("message.key.columns", "DB.T", "db.u"),
            id="keys",
        ),
        pytest.param(
            {"gtid.source.excludes": "x"}, "gtid.source.excludes", "db.t", None, id="gtids"
        ),
        pytest.param(
            {"snapshot.include.collection.list": r"db\.u, sluice.heartbeat"},
            *("snapshot.include.collection.list", "db.t", "db.u"),
            id="a snapshot of some tables",
        ),
        pytest.param({"producer.override.acks": "1"}, "acks", "db.t", None, id="acks"),
        pytest.param({"producer.override.retries": "0"}, "retries", "db.t", None, id="retries"),
        pytest.param(
            {f"producer.override.{IN_FLIGHT}": "${file:kafka.properties:most}"},
            *(IN_FLIGHT, "db.t", None),
            id="a number that only Connect reads",
        ),
        pytest.param({"value.converter": JSON}, NULLS, "db.t", None, id="NULL by default"),
        pytest.param({**NULLS_KEPT, NULLS: "true"}, NULLS, "db.t", None, id="NULL becomes another"),
        pytest.param({"value.converter": CONFLUENT}, NULLABLES, "db.t", None, id="NULL in Avro"),
    ],
)
def test_f102_other_settings_that_are_hazards(
    more: Mapping[str, str], code: str, shard: str, other: str | None
) -> None:
    (found,) = find_config_hazards({**MYSQL, **more}, "c")

    assert found.code == code
    assert found.affects(shard)
    assert other is None or not found.affects(other)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            {
                OVERRIDE: "db.t",
                f"{OVERRIDE}.db.t": "SELECT id, ratio * 1e0 AS ratio, `at` FROM db.t",
            },
            id="whole rows",
        ),
        pytest.param({"column.exclude.list": "db.t.secret"}, id="columns left out are named"),
        pytest.param(
            {
                "transforms": "r",
                "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
            },
            id="router",
        ),
        pytest.param(
            {"gtid.source.excludes": "x", "gtid.source.filter.dml.events": "false"}, id="gtids"
        ),
        pytest.param(NULLS_KEPT, id="NULL stays"),
        pytest.param({"value.converter": CONFLUENT, NULLABLES: "True"}, id="NULL stays in Avro"),
        pytest.param({NULLS: "true"}, id="the converter is the worker's"),
        pytest.param(
            {
                f"producer.override.{IN_FLIGHT}": "${env:MOST}",
                "producer.override.enable.idempotence": "true",
            },
            id="idempotence keeps the order",
        ),
    ],
)
def test_f102_settings_that_harm_no_change(more: Mapping[str, str]) -> None:
    assert find_config_hazards({**MYSQL, **more}, "c") == ()


def test_f102_each_variable_of_the_server_with_an_effect_is_a_hazard() -> None:
    listed = [one for one in SERVER_DEMANDS if one.effect is not Effect.NONE]

    for one in listed:
        wrong = {one.name: one.bad[0] if one.bad else "wrong"}
        facts = ServerFacts((8, 0), False, wrong, replica=False)
        assert [found.code for found in server_hazards(facts, "s")] == [one.name]
    assert {one.name for one in listed if not one.name.startswith("binlog")} == {
        "log_bin_compress",
        "wsrep_on",
        "group_replication_single_primary_mode",
    }


@pytest.mark.parametrize(
    ("line", "lost", "kept"),
    [("binlog_do_db=shop", "crm.t", "shop.t"), ("binlog_ignore_db=crm,test", "crm.t", "shop.t")],
)
def test_f102_databases_that_the_log_leaves_out(line: str, lost: str, kept: str) -> None:
    (found,) = server_hazards(ServerFacts((8, 0), False, unlogged=(line,), replica=False), "s")

    assert (found.affects(lost), found.affects(kept)) == (True, False)


def test_f110_a_replica_is_a_hazard_and_more_so_one_that_logs_nothing() -> None:
    replica = ServerFacts((8, 0), False, {"log_replica_updates": "ON"}, replica=True)
    mute = replace(replica, variables={"log_replica_updates": "OFF"})

    assert [(one.code, one.effect) for one in server_hazards(replica, "s")] == [
        ("replica", Effect.DELAYS)
    ]
    assert [one.code for one in server_hazards(mute, "s")] == ["log_replica_updates", "replica"]
    assert server_hazards(replace(replica, replica=False), "s") == ()


@pytest.mark.parametrize(
    ("mariadb", "right"), [(True, "GRANT SLAVE MONITOR"), (False, "GRANT REPLICATION CLIENT")]
)
def test_a_server_that_does_not_say_whether_it_is_a_replica_counts_as_one(
    mariadb: bool, right: str
) -> None:
    silent = ServerFacts((10, 11), mariadb, {"log_slave_updates": "OFF"}, replica=None)

    found = {one.code: one for one in server_hazards(silent, "s")}

    assert {code: one.effect for code, one in found.items()} == {
        "log_slave_updates": Effect.DELAYS,
        "replica": Effect.DELAYS,
    }
    assert found["replica"].fix.startswith(right)
    assert found["replica"].identity != "replica", "a waiver of this is none of a known replica"


def test_f102_what_still_comes_is_merged_while_a_setting_makes_the_table_unproven() -> None:
    made = checkpoint_after(KNOWN, {"shop": replace(ALL, hazards=(SKIPS, LATE))})
    state = LandedState(made, Catalog(Router(), {}))

    assert state.holding == {}
    assert {*state.gaps[T]} == {hazard_id("shop", SKIPS)}
    assert Gap("setting:0:1@1", "setting", 0, 1, 2, "x").doubt == ""


def inherited(*own: str, untold: str = "") -> list[TopicFacts]:
    """Topics of t and u below a compacting default, but for those with a setting of their *own*."""
    policy = "cleanup.policy"
    return [
        TopicFacts(f"p.db.{name}", 1, {policy: "delete"})
        if name in own
        else TopicFacts(f"p.db.{name}", 1, {policy: "compact"}, frozenset({policy}))
        for name in "tu"
        if name not in untold
    ]


def default(*own: str, untold: str = "") -> dict[str, CaptureScope]:
    """The hazards of these topics, as the service asks for them."""
    found = topic_hazards(inherited(*own, untold=untold), "p", frozenset({"p"}), routed=False)
    names = [f"p.db.{name}" for name in untold]
    parts = partial(undescribed_parts, undescribed=names, prefix="p", routed=False)
    return {"shop": replace(ALL, hazards=tuple(found), unreported=parts)}


def open_gaps(made: Checkpoint) -> dict[tuple[str, ...], Order | None]:
    """Tables of each gap -> from where on a base closes it."""
    return {gap.shards: gap.above for gap in load_gaps(made)}


def test_f102_a_table_that_lands_after_its_topic_left_a_harmful_default_has_a_gap() -> None:
    made = checkpoint_after(replace(KNOWN, shards={Shard.parse(U): "db.u"}), default())
    made = checkpoint_after(replace(made, batch=9), default("t"))

    made = checkpoint_after(
        replace(made, batch=12, shards={Shard.parse(U): "db.u", Shard.parse(T): "db.t"}),
        default("t"),
    )

    assert open_gaps(made) == {(U,): None, (T,): END}


def test_f102_a_base_heals_a_table_whose_topic_left_a_harmful_default() -> None:
    made = checkpoint_after(KNOWN, default())
    both_there = open_gaps(made)
    for batch in range(6, 40):
        made = checkpoint_after(replace(made, batch=batch), default("t"))

    assert both_there == {(T, U): None}
    assert open_gaps(made) == {(U,): None, (T,): END}
    gaps_of = {gap.shards: gap for gap in load_gaps(made)}
    assert heals(Settled(Shard.parse(T), Order(1, 1, 900), 50), gaps_of[(T,)])
    assert not heals(Settled(Shard.parse(U), Order(1, 1, 900), 50), gaps_of[(U,)])
    assert all(is_waivable(id_) for id_ in made.gaps)


def test_f102_topics_leave_a_harmful_default_one_after_the_other() -> None:
    later = Order(1, 1, 800)
    made = checkpoint_after(replace(checkpoint_after(KNOWN, default()), batch=9), default("t"))

    last = checkpoint_after(replace(made, batch=12), default("t", "u"), ends={"shop": later})
    at_once = checkpoint_after(replace(made, batch=12), default("t", "u"))

    assert open_gaps(last) == {(T,): END, (U,): later}
    assert open_gaps(at_once) == {(T,): END, (U,): END}


def test_f102_a_harmful_default_that_begins_again_for_one_topic_is_not_forgotten_of_another() -> (
    None
):
    over = checkpoint_after(replace(checkpoint_after(KNOWN, default()), batch=9), default("t", "u"))
    unlanded = replace(over, batch=12, gaps={}, shards={Shard.parse(U): "db.u"})

    again = checkpoint_after(replace(over, batch=12), default("t"))
    landed = replace(checkpoint_after(unlanded, default("t")), batch=13, shards=KNOWN.shards)

    assert open_gaps(over) == {(T, U): END}
    assert open_gaps(again) == {(U,): None, (T,): END}
    assert open_gaps(checkpoint_after(landed, default("t"))) == {(U,): None, (T,): END}


def test_f102_a_waiver_of_a_default_holds_for_topics_that_left_it() -> None:
    made = checkpoint_after(KNOWN, default())
    (id_,) = made.gaps

    split = checkpoint_after(replace(made, batch=9), default("t"))

    assert checkpoint_after(replace(split, batch=10), default("t"), id_).gaps == {}
    assert checkpoint_after(KNOWN, default(), id_).gaps == {}
    (ended,) = split.gaps.keys() - {id_}
    assert open_gaps(checkpoint_after(replace(split, batch=10), default("t"), ended)) == {
        (U,): None
    }


def test_f102_a_default_lasts_for_a_topic_that_is_not_told_and_ends_for_others() -> None:
    made = checkpoint_after(KNOWN, default())

    told = checkpoint_after(replace(made, batch=9), default("t", untold="u"))
    untold = checkpoint_after(replace(made, batch=9), default("t", untold="t"))

    assert open_gaps(told) == {(U,): None, (T,): END}
    assert open_gaps(untold) == {(T, U): None}


@pytest.mark.parametrize("untold", ["t", "u"])
def test_f102_a_topics_own_setting_lasts_while_it_is_not_told(untold: str) -> None:
    facts = [TopicFacts("p.db.t", 1, {"cleanup.policy": "compact"})]
    found = tuple(topic_hazards(facts, "p", frozenset(), routed=False))
    made = checkpoint_after(KNOWN, {"shop": replace(ALL, hazards=found)})
    parts = partial(undescribed_parts, undescribed=[f"p.db.{untold}"], prefix="p", routed=False)

    over = checkpoint_after(replace(made, batch=9), {"shop": replace(ALL, unreported=parts)})

    assert open_gaps(over) == {(T,): None if untold == "t" else END}


def test_f102_a_default_of_thousands_of_topics_is_one_gap_that_changes_no_more() -> None:
    names = [f"db.orders_{number}" for number in range(3000)]
    policy = {"cleanup.policy": "compact"}
    topics = [TopicFacts(f"p.{name}", 1, policy, frozenset(policy)) for name in names]
    found = tuple(topic_hazards(topics, "p", frozenset({"p"}), routed=False))
    told = {"shop": replace(ALL, hazards=found)}
    landed = replace(KNOWN, shards={Shard("shop", name): name for name in names})

    made = checkpoint_after(landed, told)
    later = checkpoint_after(replace(made, batch=6), told)

    assert [len(gap.shards) for gap in load_gaps(made)] == [3000]
    assert (later.gaps, later.hazards) == (made.gaps, made.hazards)
    assert len(replace(made, shards={}).dumps()) < 150 * 3000


def test_f102_the_tables_of_many_alternatives_are_those_of_each() -> None:
    topics = ["db.t", "db.a_b", "x.y.t", "db.T-1", "_._"]
    names = ["db.t", "DB.T", "db.u", "db.a b", "db.ab", '"x.y".t', "db.t-1", '"é".é', "é.é", "dbxt"]
    facts = [TopicFacts(f"p.{one}", 1, {"cleanup.policy": "compact"}) for one in topics]
    single = list(topic_hazards(facts, "p", frozenset(), routed=False))
    every = replace(SKIPS, shards=join_alternatives({one.shards for one in single}))

    found = {name for name in names if every.affects(name)}

    assert found == {name for name in names if any(one.affects(name) for one in single)}
    assert {"db.t", "DB.T", "db.a b", '"x.y".t', "é.é"} <= found


@pytest.mark.parametrize(
    ("shards", "parts"),
    [
        pytest.param("", {EVERY}, id="all tables"),
        pytest.param(r"db\.t|db\.u", {r"db\.t", r"db\.u"}, id="two tables"),
        pytest.param(r"(a|b)\.t", {r"(a|b)\.t"}, id="parentheses"),
        pytest.param(r"db\.a\|b", {r"db\.a\|b"}, id="a name with a bar"),
    ],
)
def test_f102_alternatives_of_tables(shards: str, parts: set[str]) -> None:
    assert split_alternatives(shards) == parts
    assert join_alternatives(split_alternatives(shards)) == shards
