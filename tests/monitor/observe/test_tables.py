"""Tests which tables are watched, with which shards, and by which key."""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from monitor.observe.tables import TableRegistry, find_table
from pipeline.checkpoint import Checkpoint, Existence
from pipeline.errors import UnreachableError
from pipeline.model import Order, Shard, Table
from pipeline.settings import TableRule
from pipeline.standards.table_standards import NO_STANDARDS
from tests.builders.values import by_shard
from tests.counting import count_calls, count_matches
from tests.monitor.observe.dictionaries import BIG, FakeDictionary
from tests.monitor.rig import NOON
from tests.pipeline.hanging import Hanging

ORDERS = TableRule(shards=r"shop_\d+\.orders", table="shop.orders", tier=0)


class Watch:
    """A roster, its source, and its time."""

    def __init__(self, *rules: TableRule, **tables: dict[str, str]) -> None:
        self.now = NOON
        named = {name.replace("__", "."): columns for name, columns in tables.items()}
        self.source = FakeDictionary(named)
        self.roster = TableRegistry(lambda: {"shop": self.source}, rules, self.clock)

    def clock(self) -> datetime:
        return self.now

    def see(self, **shards: str | None) -> tuple[Table, ...]:
        """Land a batch that knows these shards, and tell the tables there are then."""
        named = {Shard("shop", name.replace("__", ".")): table for name, table in shards.items()}
        self.roster.update(Checkpoint(lane="main", batch=0, shards=named))
        return self.roster.tables()

    def drop(self, *dropped: str, shards: Mapping[str, str | None]) -> tuple[Table, ...]:
        """Land a batch that tells of shards of the source, and of a DROP of some of them."""
        gone = {Shard("shop", name): Existence(Order(1, 1, 9), there=False) for name in dropped}
        named = {Shard("shop", name): table for name, table in shards.items()}
        self.roster.update(Checkpoint(lane="main", batch=0, shards=named, existing=gone))
        return self.roster.tables()


def test_before_the_first_mark_no_name_can_be_called_unknown() -> None:
    watch = Watch()

    assert (watch.roster.known, watch.roster.tables()) == (False, ())
    watch.see()
    assert watch.roster.known


def test_a_shard_is_a_table_of_its_own_or_folds_or_is_ignored() -> None:
    watch = Watch(ORDERS, shop__users=BIG, shop_0__orders=BIG, shop_1__orders=BIG)

    orders, users = watch.see(
        shop_1__orders="shop.orders",
        shop_0__orders="shop.orders",
        shop__users="shop.users",
        shop__audit=None,
    )

    assert [shard.name for shard in orders.shards] == ["shop_0.orders", "shop_1.orders"]
    assert (orders.name, orders.tier, users.name, users.tier) == ("shop.orders", 0, "shop.users", 1)
    assert watch.roster.table("shop.audit") is None


def test_a_shard_that_was_never_landed_is_listed_so_that_its_table_is_not_called_ready() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG)

    (orders,) = watch.see(shop_0__orders="shop.orders")

    assert [shard.name for shard in orders.shards] == ["shop_0.orders", "shop_1.orders"]


def test_a_shard_that_was_never_landed_stays_listed_while_the_source_does_not_answer() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG)
    watch.see(shop_0__orders="shop.orders")
    watch.source.silent = True
    watch.now += timedelta(minutes=5)

    (orders,) = watch.see(shop_0__orders="shop.orders")

    assert [shard.name for shard in orders.shards] == ["shop_0.orders", "shop_1.orders"]
    assert watch.roster.unlisted(orders) == ""
    assert watch.roster.declared() == {ORDERS.shards: ""}


def test_a_source_that_never_listed_its_tables_leaves_those_of_a_rule_in_doubt() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG, shop__users=BIG)
    watch.source.silent = True

    orders, users = watch.see(shop_0__orders="shop.orders", shop__users="shop.users")

    why = "source shop has not listed its tables: no route to host"
    assert (watch.roster.unlisted(orders), watch.roster.unlisted(users)) == (why, "")
    watch.source.silent = False
    watch.now += timedelta(minutes=1)
    watch.see(shop_0__orders="shop.orders", shop__users="shop.users")
    assert watch.roster.unlisted(orders) == ""


def test_a_table_that_new_rules_give_a_shard_is_in_doubt_until_a_batch_has_landed_under_them() -> (
    None
):
    """Until then the mark tells of the shard as of another table's, and of no gap."""
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG)
    before = {"shop_0__orders": "shop.orders", "shop_1__orders": "shop_1.orders"}

    old, single = watch.see(**before)
    doubts = watch.roster.unlisted(old), watch.roster.unlisted(single)
    (new,) = watch.see(shop_0__orders="shop.orders", shop_1__orders="shop.orders")

    assert doubts == ("its rule is new, and nothing has landed under it yet", "")
    assert watch.roster.unlisted(new) == ""


def test_a_shard_that_is_no_longer_ignored_leaves_its_table_in_doubt_until_a_batch_has_landed() -> (
    None
):
    """Its base is known, for a base is a shard's; but no row of it is in that table's mirror."""
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG)

    (old,) = watch.see(shop_0__orders="shop.orders", shop_1__orders=None)
    doubt = watch.roster.unlisted(old)
    (new,) = watch.see(shop_0__orders="shop.orders", shop_1__orders="shop.orders")

    assert doubt == "its rule is new, and nothing has landed under it yet"
    assert watch.roster.unlisted(new) == ""


def test_a_shard_that_is_gone_leaves_no_table_in_doubt() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG)

    (orders,) = watch.drop(
        "shop_1.orders", shards={"shop_0.orders": "shop.orders", "shop_1.orders": None}
    )

    assert watch.roster.unlisted(orders) == ""


def test_a_shard_that_went_since_a_look_leaves_its_own_table_in_doubt_and_no_other() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG, shop__users=BIG)
    shards = {
        "shop/shop_0.orders": "shop.orders",
        "shop/shop_1.orders": "shop.orders",
        "shop/shop.users": "shop.users",
    }
    looked_at = Checkpoint(lane="main", batch=0, shards=by_shard(shards))
    watch.drop("shop_1.orders", shards={name[5:]: table for name, table in shards.items()})

    doubts = [watch.roster.unlisted(table, looked_at) for table in watch.roster.tables()]

    assert doubts == ["its shards changed during the request; ask again", ""]


def test_a_table_of_which_nothing_was_landed_is_known_to_whoever_asks_its_source() -> None:
    watch = Watch(ORDERS, shop__empty=BIG, shop_1__orders=BIG)
    names = ("shop.empty", "shop.orders", "shop_1.orders", "shop.none", "shop.(empty)")

    found = [name for name in names if watch.roster.has_source_of(name)]
    watch.source.silent = True

    assert found == ["shop.empty", "shop.orders"]
    assert not watch.roster.has_source_of("shop.empty")


def test_a_table_of_which_nothing_was_landed_is_not_watched() -> None:
    watch = Watch(ORDERS, shop__users=BIG, shop_0__orders=BIG)

    assert [table.name for table in watch.see(shop__users="shop.users")] == ["shop.users"]


@pytest.mark.parametrize(
    ("columns", "key", "id_column"),
    [
        pytest.param({"id": "bigint"}, ("id",), "id", id="one integer"),
        pytest.param({"id": "MEDIUMINT"}, ("id",), "id", id="however it is spelt"),
        pytest.param({"code": "varchar"}, ("code",), None, id="a text"),
        pytest.param({"amount": "decimal"}, ("amount",), None, id="a number, but no integer"),
        pytest.param(
            {"order_id": "bigint", "line": "int"}, ("order_id", "line"), None, id="several"
        ),
        pytest.param({}, (), None, id="none"),
    ],
)
def test_only_one_integer_is_an_id_to_range_over(
    columns: dict[str, str], key: tuple[str, ...], id_column: str | None
) -> None:
    (table,) = Watch(shop__t=columns).see(shop__t="shop.t")

    assert (table.key, table.id_column) == (key, id_column)


def test_a_key_that_the_config_names_goes_before_the_sources() -> None:
    rule = TableRule(shards=r"shop\.t", table="shop.t", key=("code",))

    (table,) = Watch(rule, shop__t={"id": "bigint", "code": "int"}).see(shop__t="shop.t")

    assert (table.key, table.id_column) == (("code",), "code")


def test_a_source_that_falls_silent_takes_no_key_away() -> None:
    watch = Watch(shop__t=BIG)
    before = watch.see(shop__t="shop.t")
    watch.source.silent = True
    watch.now += timedelta(minutes=5)

    assert watch.see(shop__t="shop.t") == before


def test_a_source_that_was_always_silent_leaves_the_table_without_a_key() -> None:
    watch = Watch(ORDERS, shop__t=BIG)
    watch.source.silent = True

    (table,) = watch.see(shop__t="shop.t")

    assert (table.name, table.key, table.id_column) == ("shop.t", (), None)


@pytest.mark.parametrize(
    ("seconds", "shards", "asked"),
    [
        pytest.param(59, {"shop_0__orders": "shop.orders"}, 1, id="not in every round"),
        pytest.param(60, {"shop_0__orders": "shop.orders"}, 2, id="every minute"),
        pytest.param(
            1,
            {"shop_0__orders": "shop.orders", "shop_1__orders": "shop.orders"},
            2,
            id="when shards change",
        ),
    ],
)
def test_sources_are_asked_now_and_then(seconds: float, shards: dict[str, str], asked: int) -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG, shop_1__orders=BIG)

    watch.see(shop_0__orders="shop.orders")
    watch.now += timedelta(seconds=seconds)
    watch.see(**shards)

    assert watch.source.asked == asked


TWO = {"shop_0.orders": "shop.orders", "shop_1.orders": "shop.orders"}


def test_f20_a_source_that_is_no_longer_in_the_config_takes_its_shards_along() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG)
    shards = {"shop/shop_0.orders": "shop.orders", "gone/shop_1.orders": "shop.orders"}
    alone = {"gone/other.t": "other.t"}
    watch.roster.update(Checkpoint(lane="main", batch=0, shards=by_shard(shards | alone)))

    (orders,) = watch.roster.tables()

    assert (orders.name, orders.shards) == ("shop.orders", (Shard("shop", "shop_0.orders"),))


def test_f20_dropping_the_oldest_shard_takes_no_key_from_the_others() -> None:
    watch = Watch(ORDERS, shop_1__orders=BIG)

    (orders,) = watch.drop("shop_0.orders", shards=TWO)

    assert (orders.shards, orders.key) == ((Shard("shop", "shop_1.orders"),), ("id",))


def test_f20_a_shard_that_the_source_no_longer_knows_leaves_the_key_to_the_others() -> None:
    watch = Watch(ORDERS, shop_0__orders={}, shop_1__orders=BIG)

    (orders,) = watch.drop(shards=TWO)

    assert (len(orders.shards), orders.key, orders.id_column) == (2, ("id",), "id")


def test_f26_a_dropped_table_is_watched_no_more_until_it_is_created_again() -> None:
    watch = Watch(shop__t=BIG)
    before = watch.drop(shards={"shop.t": "shop.t"})
    dropped = watch.drop("shop.t", shards={"shop.t": "shop.t"})
    again = watch.drop(shards={"shop.t": "shop.t"})

    assert [table.name for table in before] == [table.name for table in again] == ["shop.t"]
    assert dropped == ()
    assert watch.roster.known, "a job that asks for it is told so"


def test_f26_a_table_that_is_ignored_now_is_watched_no_more() -> None:
    rule = TableRule(shards=r"shop\.t", table="shop.t", ignore=True)

    assert Watch(rule, shop__t=BIG).see(shop__t="shop.t") == ()


@pytest.mark.parametrize(
    ("there", "landed", "why"),
    [
        pytest.param({"shop_0__orders": BIG}, {"shop_0__orders": "shop.orders"}, "", id="landed"),
        pytest.param(
            {"shop__users": BIG},
            {"shop__users": "shop.users"},
            "no source is known to have a table that it matches, and none has landed",
            id="misspelt",
        ),
        pytest.param(
            {"shop__users": BIG, "shop_0__orders": BIG, "shop_1__orders": BIG},
            {"shop__users": "shop.users"},
            "shop_0.orders of source shop and 1 more: nothing of it has landed",
            id="not captured",
        ),
    ],
)
def test_f06_a_rule_for_which_nothing_is_collected_is_told(
    there: dict[str, dict[str, str]], landed: dict[str, str], why: str
) -> None:
    ignored = TableRule(shards=r"tmp\..*", table="tmp", ignore=True)
    watch = Watch(ignored, ORDERS, **there)

    watch.see(**landed)

    assert watch.roster.declared() == {ORDERS.shards: why}


def test_f06_a_rule_whose_tables_another_takes_first_asks_for_nothing_itself() -> None:
    first = TableRule(shards=r"shop_0\.orders", table="shop.first")
    watch = Watch(first, ORDERS, shop_0__orders=BIG)

    watch.see(shop_0__orders="shop.first")

    assert watch.roster.declared()[first.shards] == ""
    assert watch.roster.declared()[ORDERS.shards].startswith("no source is known")


def test_rules_are_gone_through_once_for_a_shard_however_many_rounds() -> None:
    watch = Watch(ORDERS, shop_0__orders=BIG)
    watch.see(shop_0__orders="shop.orders")

    def look_often() -> None:
        for _ in range(10):
            (orders,) = watch.see(shop_0__orders="shop.orders")
            assert watch.roster.unlisted(orders) == ""

    assert count_matches(look_often) == 0


def test_a_source_is_asked_once_for_all_rules_and_its_shards_are_gone_through_once() -> None:
    names = [f"shop__t{number:03}" for number in range(40)]
    rules = [TableRule(re.escape(name.replace("__", "."))) for name in names]
    watch = Watch(*rules, shop__other=BIG, **dict.fromkeys(names, BIG))
    landed = many(39)
    assert [table.name for table in watch.see(**landed)] == [*landed.values()]
    asked = watch.source.asked
    watch.now += timedelta(seconds=60)
    calls = count_calls(lambda: watch.see(**landed), of="rule")

    assert (asked, watch.source.asked) == (1, 2)
    assert calls < 10 * len(rules)
    assert [why for why in watch.roster.declared().values() if why] == [
        "shop.t039 of source shop: nothing of it has landed"
    ]


def many(count: int) -> dict[str, str | None]:
    return {f"shop__t{number:03}": f"shop.t{number:03}" for number in range(count)}


def test_f21_a_silent_source_is_asked_for_one_key_and_not_for_each_of_its_tables() -> None:
    watch = Watch()
    watch.source.silent = True

    tables = watch.see(**many(50))

    assert len(tables) == 50
    assert watch.source.keyed == 1


def test_f21_a_silent_source_keeps_no_other_from_telling_its_keys() -> None:
    silent, other = FakeDictionary(silent=True), FakeDictionary({"shop.b": {"id": "BIGINT"}})
    roster = TableRegistry(lambda: {"a": silent, "b": other}, (), lambda: NOON)

    roster.update(
        Checkpoint(
            "main", 0, shards={Shard.parse("a/shop.a"): "shop.a", Shard.parse("b/shop.b"): "shop.b"}
        )
    )

    assert [table.id_column for table in roster.tables()] == [None, "id"]


def test_keys_are_asked_again_when_a_statement_has_landed_and_now_and_then() -> None:
    named = {f"shop.t{number:03}": {"id": "BIGINT"} for number in range(20)}
    watch = Watch(**{name.replace(".", "__"): columns for name, columns in named.items()})
    watch.see(**many(20))
    first = watch.source.keyed
    for _ in range(10):
        watch.now += timedelta(minutes=2)
        watch.see(**many(20))
    at_rest = watch.source.keyed
    told = {Shard.parse("shop/shop.t003"): Existence(Order(1, 2, 3), there=True)}
    shards = {f"shop/{name}": name for name in named}
    watch.now += timedelta(minutes=2)
    watch.roster.update(Checkpoint("main", 1, shards=by_shard(shards), existing=told))
    altered = watch.source.keyed
    watch.now += timedelta(hours=2)
    watch.roster.update(Checkpoint("main", 1, shards=by_shard(shards), existing=told))

    assert (first, at_rest, altered, watch.source.keyed) == (20, 20, 21, 41)


def test_a_look_that_breaks_off_hides_no_shard_from_the_next() -> None:
    watch = Watch()
    watch.see(shop__users="shop.users")
    whole = watch.roster.sources

    def broken() -> Mapping[str, FakeDictionary]:
        raise RuntimeError("no more threads")

    watch.roster.sources = broken
    with pytest.raises(RuntimeError):
        watch.see(shop__users="shop.users", shop__orders="shop.orders")
    watch.roster.sources = whole

    tables = watch.see(shop__users="shop.users", shop__orders="shop.orders")

    assert [table.name for table in tables] == ["shop.orders", "shop.users"]


class Three:
    """A roster over three sources, each with a shard of one folded table and a table of its own."""

    def __init__(self, hanging: Hanging) -> None:
        self.now, self.hanging = NOON, hanging
        self.sources = {
            name: FakeDictionary({f"{name}.orders": BIG, f"{name}.own": BIG}, source=name)
            for name in "abc"
        }
        rule = TableRule(shards=r"a\.orders|c\.orders", table="all.orders")
        odd = TableRule(shards=r"b\.orders", table="b.orders")
        self.roster = TableRegistry(lambda: self.sources, (rule, odd), lambda: self.now)
        hanging.watched(self.roster.asking)

    def see(self) -> dict[str, str | None]:
        """Land a batch that knows all shards; the tables' keys, by name."""
        shards = {f"{name}/{name}.own": f"{name}.own" for name in "abc"}
        shards |= {"a/a.orders": "all.orders", "b/b.orders": "b.orders"}
        self.roster.update(Checkpoint("main", 0, shards=by_shard(shards)))
        return {table.name: table.id_column for table in self.roster.tables()}


KNOWN = {"a.own": "id", "all.orders": "id", "b.orders": None, "b.own": None, "c.own": "id"}


@pytest.mark.parametrize("method", ["shards", "key_columns"])
def test_f21_of_three_sources_one_hangs_for_ever_and_the_others_tell_their_tables(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    three = Three(hanging)
    monkeypatch.setattr(three.sources["b"], method, hanging)

    first = three.see()
    three.now += timedelta(minutes=5)
    second = three.see()

    assert first == second == KNOWN
    assert len(hanging.stuck) == 1
    doubts = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}
    why = "source b has not listed its tables: has not answered since 12:00:00 UTC"
    assert doubts == dict.fromkeys(KNOWN, "") | ({"b.orders": why} if method == "shards" else {})


def test_a_source_that_has_told_and_sent_nothing_yet_may_have_a_shard_of_any_folded_table(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = Three(hanging)
    monkeypatch.setattr(three.sources["c"], "shards", hanging)
    landed = Checkpoint(
        "main", 0, shards={Shard.parse("a/a.own"): "a.own", Shard.parse("a/a.orders"): "all.orders"}
    )

    three.roster.update(landed)
    before = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}
    three.roster.update(replace(landed, shards={**landed.shards, Shard.parse("c/c.own"): "c.own"}))
    after = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}

    why = "source c has not listed its tables: has not answered since 12:00:00 UTC"
    assert (before["a.own"], before["all.orders"]) == ("", why)
    assert after["all.orders"] == ""


def test_f21_keys_that_are_told_late_are_taken_over_at_the_next_look(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = Three(hanging)
    hung = three.sources["b"]
    tell = hung.key_columns
    monkeypatch.setattr(hung, "key_columns", lambda shard: _late(hanging, tell, shard))

    before = three.see()
    hanging.release()
    after = three.see()

    assert before == KNOWN
    assert after == KNOWN | {"b.orders": "id", "b.own": "id"}


def _late(
    hanging: Hanging, tell: Callable[[Shard], tuple[str, ...]], shard: Shard
) -> tuple[str, ...]:
    with contextlib.suppress(UnreachableError):
        hanging()
    return tell(shard)


def test_one_table_is_found_without_asking_for_the_keys_of_others() -> None:
    """With its shard that never landed, and without one that is gone."""
    names = ("shop_0.orders", "shop_1.orders", "shop.users")
    source = FakeDictionary(dict.fromkeys(names, BIG))
    shards = {f"shop/{name}": name for name in ("shop.users",)}
    landed = {"shop/shop_0.orders": "shop.orders", "shop/shop_9.orders": "shop.orders", **shards}
    gone = {Shard.parse("shop/shop_9.orders"): Existence(Order(1, 1, 9), there=False)}
    checkpoint = Checkpoint(lane="main", batch=0, shards=by_shard(landed), existing=gone)

    asked = ("shop.orders", checkpoint, (ORDERS,), {"shop": source}, NO_STANDARDS)
    found = find_table(*asked)

    shards_found = (Shard("shop", "shop_0.orders"), Shard("shop", "shop_1.orders"))
    assert found == Table("shop.orders", shards_found, ("id",), "id", tier=0)
    assert source.keyed == 1
    assert find_table("shop.none", *asked[1:]) is None
