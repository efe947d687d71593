"""What a schema shows of tables: no key, changes that no log has, columns that prove nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.finding import NOTE, REFUSE, WARN, FindingSeverity
from pipeline.model import Shard
from pipeline.sources.mysql.doctor import allows_zero_dates, check_tables
from pipeline.sources.mysql.facts import Cascade, ServerFacts, ShardFacts, describe_source
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.source import FoldedTable

STRICT = "STRICT_TRANS_TABLES,NO_ZERO_DATE"
SERVER = ServerFacts((8, 0), mariadb=False, variables={"sql_mode": STRICT})
ID = Column("id", "BIGINT", nullable=False)
USERS = ShardFacts(Shard("shop", "shop.users"), columns=(ID,), unique=(("id",),), primary=True)
CASCADE = Cascade("fk", "shop.teams", "ON DELETE CASCADE")
BORN = Column("born", "DATE")


def fold(shard: str) -> FoldedTable | None:
    return None if shard.startswith("tmp.") else FoldedTable(shard)


def ruled(*shards: ShardFacts, server: ServerFacts = SERVER) -> dict[str, FindingSeverity]:
    return {finding.code: finding.severity for finding in check_tables(shards, server, fold)}


@pytest.mark.parametrize(
    ("shard", "expected"),
    [
        pytest.param(USERS, {}, id="nothing to say"),
        pytest.param(replace(USERS, unique=(), primary=False), {"no_key": WARN}, id="no key"),
        pytest.param(replace(USERS, primary=False), {}, id="a unique index is a key, too"),
        pytest.param(replace(USERS, cascades=(CASCADE,)), {"unproven": WARN}, id="cascade"),
        pytest.param(replace(USERS, engine="MyISAM"), {"engine": WARN}, id="no transactions"),
        pytest.param(
            replace(USERS, columns=(ID, Column("at", "POINT"))),
            {"unverifiable": NOTE},
            id="geometry",
        ),
        pytest.param(
            replace(USERS, columns=(ID, Column("size", "ENUM", values=("s", "?")))),
            {"unverifiable": NOTE},
            id="a label that the server cannot say",
        ),
        pytest.param(
            replace(USERS, columns=(ID, Column("w", "FLOAT", 12))), {"rounded": WARN}, id="FLOAT"
        ),
        pytest.param(
            replace(USERS, columns=(ID, Column("w", "FLOAT", 10, 2), Column("v", "FLOAT", 30))),
            {},
            id="a FLOAT that is printed whole",
        ),
        pytest.param(
            replace(USERS, shard=Shard("shop", "tmp.users"), unique=()), {}, id="ignored by a rule"
        ),
    ],
)
def test_a_table_is_ruled_by_its_schema(
    shard: ShardFacts, expected: Mapping[str, FindingSeverity]
) -> None:
    assert ruled(shard) == expected


def test_columns_that_a_snapshot_rounds_are_named_with_the_way_out() -> None:
    shard = replace(
        USERS, columns=(ID, Column("weight", "FLOAT"), Column("size", "FLOAT UNSIGNED"))
    )

    (told,) = check_tables([shard], SERVER, fold)

    assert told.what.startswith("FLOAT in weight, size: a snapshot rounds it to six digits")
    assert "make weight, size of shop.users DOUBLE by ALTER TABLE ... MODIFY with all" in told.fix
    assert "MODIFY takes away what is left out" in told.fix
    assert "MODIFY weight" not in told.fix  # whoever copied that would lose NOT NULL


@pytest.mark.parametrize(
    ("server", "found"),
    [
        pytest.param(SERVER, True, id="MySQL 8"),
        pytest.param(replace(SERVER, version=(9, 5)), True, id="MySQL 9.5"),
        pytest.param(replace(SERVER, version=(9, 7)), False, id="MySQL 9.6 and later log it"),
        pytest.param(
            replace(SERVER, version=(9, 7), variables={"innodb_native_foreign_keys": "ON"}),
            True,
            id="unless told to leave it to InnoDB",
        ),
        pytest.param(replace(SERVER, version=(11, 4), mariadb=True), True, id="MariaDB"),
    ],
)
def test_cascades_are_unproven_where_the_engine_acts_on_them(
    server: ServerFacts, found: bool
) -> None:
    cascading = replace(USERS, cascades=(CASCADE,))

    assert ("unproven" in ruled(cascading, server=server)) is found
    assert describe_source(server, [cascading], {"shop.users"}).unlogged == (
        {
            "shop.users": "rows changed by foreign keys are not in the log:"
            " shop.teams ON DELETE CASCADE (fk)"
        }
        if found
        else {}
    )


@pytest.mark.parametrize(
    ("modes", "possible"),
    [
        (STRICT, False),
        ("NO_ZERO_DATE,STRICT_ALL_TABLES", False),
        ("TRADITIONAL", False),
        ("NO_ZERO_DATE", True),
        ("STRICT_TRANS_TABLES", True),
        ("", True),
    ],
)
def test_zero_dates_are_kept_out_only_by_both_modes(modes: str, possible: bool) -> None:
    server = replace(SERVER, variables={"sql_mode": modes})

    found = check_tables([replace(USERS, columns=(ID, BORN))], server, fold)

    assert allows_zero_dates(server) is possible
    assert [(f.code, "NO_ZERO_DATE" in f.fix) for f in found] == (
        [("unverifiable", True)] if possible else []
    )


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(("id",), {}, id="unique"),
        pytest.param(("id", "born"), {"key": REFUSE}, id="may be NULL"),
        pytest.param(("nobody",), {"key": REFUSE}, id="no such column"),
        pytest.param(("name",), {"key": WARN}, id="not shown to be unique"),
    ],
)
def test_a_key_from_the_config_is_held_to_the_schema(
    key: tuple[str, ...], expected: Mapping[str, FindingSeverity]
) -> None:
    users = replace(USERS, columns=(ID, BORN, Column("name", "TEXT", nullable=False)))

    folded = FoldedTable(USERS.shard.name, key)
    found = check_tables([users], SERVER, lambda _: folded, topic_keys=True)

    assert {finding.code: finding.severity for finding in found} == expected


@pytest.mark.parametrize(
    ("shard", "key", "topic_keys", "refused"),
    [
        pytest.param(USERS, ("id",), False, False, id="the primary key"),
        pytest.param(USERS, ("name",), False, True, id="another than is sent"),
        pytest.param(USERS, ("name",), True, False, id="the connector names keys itself"),
        pytest.param(replace(USERS, primary=False), ("id",), False, True, id="none is sent"),
    ],
)
def test_f11_a_key_that_the_connector_does_not_send_is_refused(
    shard: ShardFacts, key: tuple[str, ...], topic_keys: bool, refused: bool
) -> None:
    named = replace(shard, columns=(ID, Column("name", "TEXT", nullable=False)))
    folded = FoldedTable(shard.shard.name, key)

    found = check_tables([named], SERVER, lambda _: folded, topic_keys=topic_keys)

    sent = [finding for finding in found if finding.code == "key_sent"]
    assert [one.severity for one in sent] == ([REFUSE] if refused else [])
    assert all(f":{key[0]} in the connector" in one.fix for one in sent)


def test_keys_of_the_connector_stand_in_for_a_missing_key() -> None:
    assert check_tables([replace(USERS, unique=())], SERVER, fold, topic_keys=True) == []


def test_shards_of_a_table_share_one_finding() -> None:
    shards = [
        ShardFacts(Shard("shop", f"shop_{n}.orders"), columns=(ID,), unique=()) for n in range(5)
    ]

    found = check_tables(shards, SERVER, lambda _: FoldedTable("shop.orders"))

    assert [(f.where, f.what.partition(": ")[0]) for f in found] == [
        ("table shop.orders", "shop_0.orders, shop_1.orders, shop_2.orders and 2 more")
    ]
    assert found[0].fix.startswith("ALTER TABLE shop_0.orders ADD PRIMARY KEY (...)")
    assert found[0].fix.endswith("(and the same for 4 more)")
