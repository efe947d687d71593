"""Settings that drop, rewrite or delay changes make their tables unproven, and are remembered.

Covers pipeline/landing/hazards.py, source_feed.py and the hazards of a Capture.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from checks.blocks import blocks
from checks.waivable import waivable
from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.capture import Capture, both
from pipeline.collectors.connect.connector_findings import hazards
from pipeline.collectors.connect.demands import DEMANDS
from pipeline.collectors.connect.mysql import ConnectedMySql
from pipeline.collectors.connect.postgres import ConnectedPostgres
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.landing.bases import Settled
from pipeline.landing.hazards import hazard_id, with_hazards
from pipeline.landing.next_mark import _heals
from pipeline.landing.source_feed import LINGER
from pipeline.mark import Existence, Mark
from pipeline.model import Order, Shard, Table
from pipeline.report import Gap, read_gap, tell_gap
from pipeline.route import Router
from pipeline.settings import TableRule
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.server_findings import DEMANDS as SERVER_DEMANDS
from pipeline.sources.mysql.server_findings import hazards as server_hazards
from tests.checks.test_readiness import inputs
from tests.pipeline.landing.desk import Desk
from tests.pipeline.landing.test_left_out import ALL
from tests.pipeline.landing.test_unbased_tables import message

SKIPS = Finding(
    REFUSE, "errors.tolerance", "connector c", "errors.tolerance=all: x", "fix", Effect.DROPS
)
LATE = replace(SKIPS, code="replica", what="it is a replica", effect=Effect.DELAYS)
T, U = "shop/db.t", "shop/db.u"
KNOWN = Mark("main", 5, shards={T: "db.t", U: "db.u", "till/db.t": "till.t", "shop/db.x": None})
TOLD = {"shop": replace(ALL, hazards=(SKIPS,))}


def opened(made: Mark, told: Mapping[str, Capture], *waived: str, router: Router) -> list[Gap]:
    made = with_hazards(made, told, router, frozenset(waived))
    return [read_gap(text) for text in made.gaps.values()]


def gaps(made: Mark, *found: Finding, waived: str = "") -> list[Gap]:
    return opened(made, {"shop": replace(ALL, hazards=found)}, waived, router=Router())


def test_f102_all_tables_of_the_source_that_are_there_are_unproven() -> None:
    gone = {U: Existence(Order(1, 1, 1), there=False)}

    (gap,) = gaps(KNOWN, SKIPS)

    assert gap.shards == (T, U)
    assert "errors.tolerance=all" in gap.why
    assert gaps(replace(KNOWN, existing=gone), SKIPS)[0].shards == (T,)
    assert gaps(KNOWN) == []


def test_f102_only_tables_that_the_setting_names_are_unproven() -> None:
    (gap,) = gaps(KNOWN, replace(SKIPS, shards=r"db\.t"))

    assert gap.shards == (T,)


def test_f102_a_base_that_began_while_the_setting_lasted_closes_nothing() -> None:
    made = with_hazards(KNOWN, TOLD, Router(), frozenset())
    later = with_hazards(replace(made, batch=9), TOLD, Router(), frozenset())
    after = with_hazards(replace(later, batch=12), {"shop": ALL}, Router(), frozenset())

    (gap,) = [read_gap(text) for text in after.gaps.values()]

    assert gap.id == read_gap(next(iter(made.gaps.values()))).id, "one and the same"
    assert not _heals(Settled(T, Order(1, 1, 1), 9), gap)
    assert _heals(Settled(T, Order(1, 1, 1), 10), gap)


def test_f102_a_waiver_names_the_setting_and_its_value() -> None:
    id_ = hazard_id("shop", SKIPS)
    other = replace(SKIPS, what="errors.tolerance=some: x")

    assert waivable(id_)
    assert gaps(KNOWN, SKIPS, waived=id_) == []
    assert [gap.id for gap in gaps(KNOWN, other, waived=id_)] == [hazard_id("shop", other)]


def test_f110_what_only_delays_ends_with_it() -> None:
    made = with_hazards(KNOWN, {"shop": replace(ALL, hazards=(LATE,))}, Router(), frozenset())

    assert waivable(next(iter(made.gaps)))
    assert with_hazards(made, {}, Router(), frozenset()).gaps == made.gaps, "nobody answered"
    assert with_hazards(made, {"shop": ALL}, Router(), frozenset()).gaps == {}


def test_f102_keys_of_the_connector_are_accepted_where_the_config_names_a_key() -> None:
    rekeyed = replace(SKIPS, effect=Effect.REKEYS)
    router = Router((TableRule(r"db\.t", key=("id",)),))

    (gap,) = opened(KNOWN, {"shop": replace(ALL, hazards=(rekeyed,))}, router=router)

    assert gap.shards == (U,)


def test_f102_the_batch_that_first_sees_a_setting_blocks_the_gate_and_a_restart_remembers(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, names="a")
    held = desk.topics.held
    held["a.public.old"] = [message("old", 500, 1, "last"), message("old", 600, 2)]
    desk.server.published = replace(ALL, text="", hazards=(SKIPS,))
    desk.land()
    again = Desk(tmp_path, names="a")

    for made in (desk.loop.mark, again.loop.mark):
        found = blocks(
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
    desk, now = Desk(tmp_path, names="a"), [0.0]
    (feed,) = desk.loop.feeds
    feed.clock = lambda: now[0]
    desk.server.published = replace(ALL, text="", hazards=(SKIPS,))
    told = []
    for at, published in ((0.0, desk.server.published), (LINGER, ALL), (LINGER + 1, ALL)):
        now[0], desk.server.published = at, replace(published, text="")
        found = feed.captures()
        assert isinstance(found, Capture)
        told.append(found.hazards)

    assert told == [(SKIPS,), (SKIPS,), ()]


def test_f102_a_setting_seen_while_the_collector_was_silent_is_told_later(tmp_path: Path) -> None:
    desk = Desk(tmp_path, names="a")
    (feed,) = desk.loop.feeds
    desk.server.published = replace(ALL, text="", hazards=(SKIPS,))
    feed.server()
    feed._silence = "the connector does not answer"
    feed.captures()
    feed._silence, desk.server.published = "", None

    found = feed.captures()

    assert isinstance(found, Capture)
    assert found.hazards == (SKIPS,)


def test_f102_a_source_without_lists_of_its_own_leaves_the_digest_of_the_lists() -> None:
    found = both(ALL, replace(ALL, text="", hazards=(SKIPS,)))

    assert (found.text, found.hazards) == (ALL.text, (SKIPS,))


GOOD = {
    "skipped.operations": "none",
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
FILTER = {"transforms": "f", "transforms.f.type": "io.debezium.transforms.Filter$Value"}
OVERRIDE = "snapshot.select.statement.overrides"


@pytest.mark.parametrize("good", [MYSQL, POSTGRES], ids=["mysql", "postgres"])
def test_f102_a_connector_as_sluice_sets_it_has_no_hazard(good: Mapping[str, str]) -> None:
    assert hazards(good, "c") == ()


@pytest.mark.parametrize("base", [MYSQL, POSTGRES], ids=["mysql", "postgres"])
def test_f102_each_demand_with_an_effect_is_a_hazard(base: Mapping[str, str]) -> None:
    own = ConnectedMySql.demands if base is MYSQL else ConnectedPostgres.demands
    listed = [one for one in (*DEMANDS, *own) if one.effect is not Effect.NONE]

    for one in listed:
        wrong = one.bad[0] if one.bad else "wrong"
        codes = [found.code for found in hazards({**base, one.name: wrong}, "c")]
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
        pytest.param({"producer.override.acks": "1"}, "acks", "db.t", None, id="acks"),
        pytest.param({"producer.override.retries": "0"}, "retries", "db.t", None, id="retries"),
    ],
)
def test_f102_other_settings_that_are_hazards(
    more: Mapping[str, str], code: str, shard: str, other: str | None
) -> None:
    (found,) = hazards({**MYSQL, **more}, "c")

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
    ],
)
def test_f102_settings_that_harm_no_change(more: Mapping[str, str]) -> None:
    assert hazards({**MYSQL, **more}, "c") == ()


def test_f102_each_variable_of_the_server_with_an_effect_is_a_hazard() -> None:
    listed = [one for one in SERVER_DEMANDS if one.effect is not Effect.NONE]

    for one in listed:
        facts = ServerFacts((8, 0), False, {one.name: one.bad[0] if one.bad else "wrong"})
        assert [found.code for found in server_hazards(facts, "s")] == [one.name]
    assert [one.name for one in listed if one.name.startswith("binlog")] == [
        one.name for one in listed
    ]


@pytest.mark.parametrize(
    ("line", "lost", "kept"),
    [
        ("binlog_do_db=shop", "crm.t", "shop.t"),
        ("binlog_ignore_db=crm,test", "crm.t", "shop.t"),
    ],
)
def test_f102_databases_that_the_log_leaves_out(line: str, lost: str, kept: str) -> None:
    (found,) = server_hazards(ServerFacts((8, 0), False, unlogged=(line,)), "s")

    assert (found.affects(lost), found.affects(kept)) == (True, False)


def test_f110_a_replica_is_a_hazard_and_more_so_one_that_logs_nothing() -> None:
    replica = ServerFacts((8, 0), False, {"log_replica_updates": "ON"}, replica=True)
    mute = replace(replica, variables={"log_replica_updates": "OFF"})

    assert [(one.code, one.effect) for one in server_hazards(replica, "s")] == [
        ("replica", Effect.DELAYS)
    ]
    assert [one.code for one in server_hazards(mute, "s")] == ["log_replica_updates", "replica"]
    assert server_hazards(replace(replica, replica=False), "s") == ()


def test_f102_what_still_comes_is_merged_while_a_setting_makes_the_table_unproven() -> None:
    made = with_hazards(KNOWN, {"shop": replace(ALL, hazards=(SKIPS, LATE))}, Router(), frozenset())
    state = LandedState(made, Catalog(Router(), {}))

    assert state.holding == {}
    assert {*state.gaps[T]} == {hazard_id("shop", SKIPS)}
    assert read_gap(tell_gap(Gap("setting:0:1@1", "setting", 0, 1, 2, "x"))).doubt == ""
