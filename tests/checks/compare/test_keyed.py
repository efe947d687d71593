"""Rows are compared by their keys: those that differ are named, and those in motion are not."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from checks.compare import keyed, keyed_cycle
from checks.compare.look import Look, choose_columns, digest_changes
from checks.compare.reconcile import last_digests
from checks.counting import Differences, SuspectState
from checks.model import NotYet, Outcome, RowColumns, Ruling, Verdict, Verified
from checks.probes.values import Values
from checks.run import Check, run_probe
from pipeline.errors import ProofError, SlowError
from pipeline.model import Op, Order
from pipeline.readings import RowVersion
from pipeline.row_digest import Bucketing, RangeDigest
from tests.checks.world_fake import (
    ONE,
    START,
    TABLE,
    TWO,
    FakeLog,
    FakeSource,
    FakeWorld,
    read_twice,
    text,
)

VALUED = {"id": "bigint", "v": "int"}
KEYED = replace(TABLE, id_column=None)
"""No range of its ids is compared, as if they were texts."""


def filled(kind: type[FakeWorld] = FakeWorld) -> FakeWorld:
    """Forty rows in each of two shards, in step."""
    made = kind(columns={ONE: VALUED, TWO: VALUED})
    made.alter(ONE, v="int")
    made.alter(TWO, v="int")
    made.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(40)))
    made.catch_up()
    return made


@pytest.fixture
def world() -> FakeWorld:
    return filled()


def rule(world: FakeWorld, rounds: int = 4, **settings: Any) -> list[Ruling]:
    """Rulings of so many rounds, with the mirror in step before each."""
    return [one.ruling for one in verdicts(world, rounds, **settings)]


def verdicts(world: FakeWorld, rounds: int, **settings: Any) -> list[Verdict]:
    found = []
    for _ in range(rounds):
        world.catch_up()
        answer = run_probe(Check("values", Values(**settings), KEYED), world)
        found += [answer] if isinstance(answer, Verdict) else []
    return found


def test_equal_sides_pass_and_are_not_scanned_again_before_it_is_due(world: FakeWorld) -> None:
    first, *later = rule(world, 9)

    assert first.outcome is Outcome.PASS
    assert first.reason == "80 rows of 2 shards are equal on both sides, by their keys"
    followed = "0 changed rows are equal on both sides, by their keys; the table was scanned at "
    assert {one.outcome for one in later} == {Outcome.PASS}
    assert all(one.reason.startswith(followed) for one in later)


@pytest.mark.parametrize(
    ("harm", "code", "key"),
    [
        pytest.param(
            lambda world: world.contents.update({(TWO, 7): 9}),
            "different_rows",
            text(TWO, 7),
            id="another value",
        ),
        pytest.param(
            lambda world: world.copy[ONE].pop(3), "missing_rows", text(ONE, 3), id="missing"
        ),
        pytest.param(
            lambda world: world.copy[ONE].update({99: 1}), "extra_rows", text(ONE, 99), id="extra"
        ),
        pytest.param(
            lambda world: world.copy[ONE].update({3: 1}), "doubled_rows", text(ONE, 3), id="doubled"
        ),
    ],
)
def test_a_row_that_differs_is_named_by_its_key(
    world: FakeWorld, harm: Any, code: str, key: str
) -> None:
    harm(world)

    *_, last = rule(world)

    assert (last.outcome, last.code, last.keys) == (Outcome.FAIL, code, (key,))
    different = code == "different_rows"
    assert last.differing == ((RowColumns(("v",), (key,)),) if different else ())


def test_rows_of_several_shards_are_named_each_in_its_own(world: FakeWorld) -> None:
    world.contents[ONE, 3] += 1
    world.contents[TWO, 7] += 1

    *_, last = rule(world)

    assert last.keys == (text(ONE, 3), text(TWO, 7))


def test_two_swapped_values_are_found(world: FakeWorld) -> None:
    world.commit((Op.UPDATE, ONE, 1))
    world.catch_up()
    world.contents[ONE, 1], world.contents[ONE, 2] = world.contents[ONE, 2], world.contents[ONE, 1]

    *_, last = rule(world)

    assert sorted(last.keys) == [text(ONE, 1), text(ONE, 2)]


def test_a_repaired_row_passes_again_within_a_minute(world: FakeWorld) -> None:
    world.contents[ONE, 5] += 1
    assert rule(world)[-1].outcome is Outcome.FAIL
    world.copied_contents[ONE, 5] += 1
    assert rule(world) == []
    world.tick(timedelta(minutes=1))

    assert rule(world)[-1].outcome is Outcome.PASS


def test_rows_that_change_between_the_two_looks_are_explained_by_a_position(
    world: FakeWorld,
) -> None:
    """The source is ahead of the mirror by two transactions, and a third comes after both looks."""
    world.meanwhile = [
        lambda: world.commit((Op.UPDATE, TWO, 3), (Op.DELETE, TWO, 4)),
        lambda: world.commit((Op.UPDATE, ONE, 1), (Op.CREATE, ONE, 90), (Op.DELETE, ONE, 7)),
    ]
    assert rule(world, 1) == []
    world.commit((Op.UPDATE, ONE, 1), (Op.DELETE, ONE, 90))
    world.meanwhile = [lambda: world.commit((Op.UPDATE, ONE, 1))] * 9  # rows read now differ

    (found,) = rule(world, 1)

    assert found.outcome is Outcome.PASS


def test_a_row_that_differs_is_found_among_rows_that_change_all_the_time(world: FakeWorld) -> None:
    world.contents[TWO, 7] += 1
    found = list[Ruling]()
    for _ in range(5):
        world.meanwhile = [lambda: world.commit((Op.UPDATE, TWO, 3))] * 2
        world.commit((Op.UPDATE, ONE, 2), (Op.UPDATE, TWO, 8))
        found += rule(world, 1)

    assert [one.keys for one in found if one.outcome is Outcome.FAIL] == [(text(TWO, 7),)]


def test_a_change_that_is_sent_again_does_not_explain_a_wrong_row(world: FakeWorld) -> None:
    """The mirror has another value than the newest change, and that change lands again."""
    world.copied_contents[ONE, 5] = 7
    assert rule(world, 1) == []
    world.resend(ONE, 5)

    *_, last = rule(world, 3)

    assert (last.outcome, last.keys) == (Outcome.FAIL, (text(ONE, 5),))


@dataclass
class Untold(FakeWorld):
    """One whose changes cannot be followed, as of a shard that is read again."""

    def log(self) -> FakeLog:
        log = FakeLog(self)
        log.row_versions = lambda *_, **__: None  # type: ignore[method-assign]
        return log


def test_a_row_that_changes_whenever_it_is_read_is_in_motion_and_no_finding() -> None:
    world = filled(Untold)
    found = list[Ruling]()
    for _ in range(4):
        world.meanwhile = [lambda: world.commit((Op.UPDATE, TWO, 3))] * 4
        found += rule(world, 1, tries=2)
        world.commit((Op.UPDATE, TWO, 3))

    assert [one.code for one in found] == ["in_motion"]


def test_a_difference_is_no_finding_while_its_changes_cannot_be_followed() -> None:
    """A change that came and went may explain it."""
    world = filled(Untold)
    world.contents[TWO, 7] += 1

    assert [one.code for one in rule(world, 5)] == ["in_motion"]


def test_rows_that_are_too_many_to_be_listed_leave_no_pass(world: FakeWorld) -> None:
    for id_ in (3, 5, 7, 9, 11):
        world.contents[ONE, id_] += 1

    *_, last = rule(world, suspects=2)

    assert (last.outcome, len(last.keys), last.more) == (Outcome.FAIL, 2, 3)


def repair(world: FakeWorld) -> None:
    """Give the mirror all rows of the source, and wait until the next scan is due."""
    for shard, ids in world.rows.items():
        world.copy[shard].update(ids - world.copy[shard].keys())
        world.copied_contents |= {(shard, id_): world.contents.get((shard, id_), 0) for id_ in ids}
    world.tick(timedelta(minutes=1))


def test_rows_in_buckets_that_are_too_large_to_be_read_are_not_ruled_on(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "MOST_ROWS", 1)
    for id_ in range(40):
        world.contents[ONE, id_] += 1

    *_, last = rule(world)

    assert (last.outcome, last.code, last.keys) == (Outcome.UNKNOWN, "not_all_asked", ())
    repair(world)
    assert rule(world)[-1].outcome is Outcome.PASS


def test_of_many_rows_that_differ_those_are_named_that_can_be_read_at_once(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ones with each scan, and none once all are repaired."""
    monkeypatch.setattr(keyed, "MOST_ROWS", 20)
    for id_ in range(40):
        world.contents[ONE, id_] += 1
    named = set[str]()
    for _ in range(12):
        *_, last = rule(world)
        assert last.outcome is Outcome.FAIL
        assert len(last.keys) <= 10
        assert last.more > 0
        named |= {*last.keys}
        world.tick(timedelta(minutes=1))

    assert named == {text(ONE, id_) for id_ in range(40)}
    repair(world)
    assert rule(world)[-1].outcome is Outcome.PASS


def test_rows_whose_buckets_have_grown_beyond_what_is_read_are_found_by_the_next_scan(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suspects are not read; as long as no other scan began, that would be so each time."""
    world.contents[ONE, 3] += 1
    assert rule(world, 2) == []
    monkeypatch.setattr(keyed, "MOST_ROWS", 1)

    (unread,) = rule(world, 1)

    assert (unread.outcome, unread.keys) == (Outcome.UNKNOWN, ())
    assert f"buckets of {ONE} have too many rows" in unread.reason
    assert rule(world, 3) == []
    monkeypatch.undo()
    world.tick(timedelta(minutes=1))
    assert rule(world)[-1].keys == (text(ONE, 3),)


def test_a_bucket_of_which_not_all_was_read_is_no_pass(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has grown since the look, and row 39 that differs comes after the rows that are read."""
    world.contents[ONE, 39] += 1
    assert rule(world, 1) == []
    world.commit(*((Op.CREATE, ONE, -id_) for id_ in range(1, 600)))
    monkeypatch.setattr(keyed, "MOST_ROWS", 20)

    *_, last = rule(world, 4)

    assert (last.outcome, last.code, last.keys) == (Outcome.UNKNOWN, "not_all_asked", ())


def test_rows_that_a_mirror_has_lost_count_for_the_number_of_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has none left: by its own, there would be sixteen buckets of four hundred rows."""
    monkeypatch.setattr(keyed, "MOST_ROWS", 300)
    world = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    world.alter(ONE, v="int")
    world.alter(TWO, v="int")
    world.commit(*((Op.CREATE, ONE, id_) for id_ in range(6400)))
    world.catch_up()
    world.copy[ONE].clear()

    *_, last = rule(world, 5)

    assert (last.outcome, last.code) == (Outcome.FAIL, "missing_rows")
    repair(world)
    assert rule(world)[-1].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("rows", "at_source", "before", "buckets"),
    [
        pytest.param(0, 0, 0, 16, id="the fewest"),
        pytest.param(10_000, 0, 0, 128, id="a hundred rows in each"),
        pytest.param(10_000, 40_000, 128, 512, id="more at the source"),
        pytest.param(12_801, 12_801, 256, 256, id="as before"),
        pytest.param(12_799, 12_799, 256, 256, id="some rows less"),
        pytest.param(30_000, 30_000, 256, 256, id="more rows"),
        pytest.param(60_000, 60_000, 256, 1024, id="too many rows for so few"),
        pytest.param(3_000, 3_000, 256, 32, id="too few rows for so many"),
        pytest.param(10**9, 0, 0, 4096, id="the most"),
    ],
)
def test_buckets_are_as_many_as_rows_need_and_stay_so_while_rows_come_and_go(
    world: FakeWorld, rows: int, at_source: int, before: int, buckets: int
) -> None:
    schema = world.schema(ONE)
    assert schema is not None
    columns = choose_columns(KEYED, ONE, schema, world)
    looks = [{"shard": str(TWO), "rows": 10**9}, {"shard": str(ONE), "rows": at_source}]
    memory = {"looks": looks, "keyed": [[str(TWO), 1, 4096], [str(ONE), 1, before]]}

    found = keyed.choose_bucketing(KEYED, ONE, columns, rows, memory)

    assert isinstance(found, Bucketing)
    assert found.buckets == buckets


def test_a_pass_after_a_second_reading_is_as_of_what_was_compared(world: FakeWorld) -> None:
    """The rows are read again behind a later fence, and all others were not."""
    verdict, first = read_twice(world, Check("values", Values(), KEYED))

    assert (verdict.ruling.outcome, verdict.as_of) == (Outcome.PASS, (first,))


def test_a_table_with_more_rows_than_are_read_whole_is_unsupported_with_the_figure(
    world: FakeWorld,
) -> None:
    (only,) = rule(world, 1, whole_rows=79)

    assert (only.outcome, only.code) == (Outcome.UNKNOWN, "unsupported")
    assert only.reason.endswith("80 rows are more than whole_rows: 79")


def test_a_key_that_is_not_compared_is_named(world: FakeWorld) -> None:
    world.alters = lambda name: "column.mask.*" if name.endswith(".id") else ""

    (only,) = rule(world, 1)

    assert only.code == "unsupported"
    assert (
        only.reason == "key column id cannot be compared: the collector alters it (column.mask.*)"
    )


def claims(world: FakeWorld, rounds: int = 4, **settings: Any) -> list[Verified | None]:
    """What the verdicts of so many rounds claim, with the mirror in step before each."""
    return [one.verified for one in verdicts(world, rounds, **settings)]


def test_a_scan_verifies_what_was_changed_before_it_began(world: FakeWorld) -> None:
    world.commit((Op.UPDATE, ONE, 3))
    world.catch_up()
    held, batch, before = world.held_until(KEYED), world.applied, world.now
    run_probe(Check("values", Values(), KEYED), world)
    after = world.now
    world.commit((Op.UPDATE, ONE, 4))

    claim, *_ = claims(world, 3)

    assert claim is not None
    assert (claim.through, claim.looked) == (held, batch)
    assert claim.oldest is not None
    assert before <= claim.oldest < after
    assert claim.batch > batch, "a mirror that is put back to before the rows were read is another"
    assert claim.shards == (str(ONE), str(TWO))


def test_a_finding_voids_what_a_scan_proved_and_a_later_pass_claims_it_anew(
    world: FakeWorld,
) -> None:
    world.contents[ONE, 5] += 1
    wrong = claims(world)[-1]
    world.copied_contents[ONE, 5] += 1
    world.tick(timedelta(minutes=1))

    again = claims(world)[-1]

    assert wrong is not None
    assert wrong.through is None
    assert again is not None
    assert again.through is not None


LOOKS = tuple(Look(shard, 7, batch, 16, 40, ()) for shard, batch in ((ONE, 4), (TWO, 5)))
WRONG = (((ONE, 5), SuspectState.DIFFERENT),)
SCAN = keyed_cycle.WholeScan(FakeWorld().now, FakeWorld().now - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("reading", "looks", "scan", "through"),
    [
        pytest.param({}, LOOKS, SCAN, SCAN.held, id="all rows are equal"),
        pytest.param({"moving": 1}, LOOKS, SCAN, ..., id="a row is in motion"),
        pytest.param({"more": 1}, LOOKS, SCAN, ..., id="more rows differ than were read"),
        pytest.param({}, LOOKS[:1], SCAN, ..., id="another shard was not scanned"),
        pytest.param({}, (), SCAN, ..., id="no shard was scanned"),
        pytest.param({}, LOOKS, keyed_cycle.WholeScan(None, None), ..., id="of an earlier version"),
        pytest.param(
            *({}, LOOKS, replace(SCAN, held=None), None),
            id="nobody knows what the mirror held, as during a snapshot",
        ),
        pytest.param({"found": WRONG}, LOOKS, SCAN, None, id="a row differs"),
        pytest.param({"found": WRONG, "more": 3}, LOOKS, SCAN, None, id="and more do"),
        pytest.param({"found": WRONG, "moving": 1}, LOOKS, SCAN, None, id="and one moves"),
    ],
)
def test_only_a_scan_of_all_shards_that_was_decided_verifies_rows(
    reading: dict[str, Any], looks: tuple[Look, ...], scan: keyed_cycle.WholeScan, through: Any
) -> None:
    """``...``: it claims nothing, so an earlier claim remains."""
    ended = replace(Differences((), "all"), **reading)

    claim = keyed_cycle.find_verified(ended, looks, (ONE, TWO), scan, 9)

    assert (... if claim is None else claim.through) == through
    assert claim is None or (claim.looked, claim.batch, claim.oldest) == (4, 9, scan.begun)


def test_a_mirror_that_is_put_back_between_two_scans_is_unknown_and_is_scanned_again(
    world: FakeWorld,
) -> None:
    assert claims(world)
    world.applied -= 9

    answer = run_probe(Check("values", Values(), KEYED), world)

    assert isinstance(answer, Verdict)
    assert (answer.ruling.outcome, answer.ruling.code) == (Outcome.UNKNOWN, "put_back")
    assert "and was compared at version" in answer.ruling.reason
    assert claims(world)[-1] is not None


@pytest.mark.parametrize("left_out", [False, True])
def test_a_scan_that_leaves_columns_out_says_so(*, left_out: bool) -> None:
    """Else a loss in such a column would count as made good."""
    columns = {"id": "bigint", "v": "json" if left_out else "int"}
    world = FakeWorld(columns={ONE: columns, TWO: columns})
    for shard in (ONE, TWO):
        world.alter(shard, v=columns["v"])
    world.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(9)))
    world.catch_up()

    claim = claims(world)[0]

    assert claim is not None
    assert claim.partial is left_out


def test_each_ruling_names_the_columns_that_are_not_compared() -> None:
    world = FakeWorld(columns={ONE: {"id": "bigint"}, TWO: {"id": "bigint"}})
    for shard in (ONE, TWO):
        world.alter(shard, v="int", price="double", more="json")
    world.commit((Op.CREATE, ONE, 1))
    scanned, *_ = rule(world)
    world.commit((Op.UPDATE, ONE, 1))

    followed = rule(world, 2)[-1]

    assert scanned.reason.startswith("1 rows of 2 shards")
    assert followed.reason.startswith("1 changed rows are equal")
    _, named = scanned.reason.split("; not compared: ")
    assert "price: " in named
    assert "more: " in named
    assert followed.reason.endswith(f"; not compared: {named}")


def test_a_scan_that_takes_too_long_verifies_nothing(world: FakeWorld) -> None:
    assert {*claims(world, limit=timedelta(microseconds=1))} == {None}


@pytest.mark.parametrize("step", ["bucket_digests", "bucket_rows"])
def test_a_step_that_takes_too_long_is_repeated_after_ever_longer_pauses(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each try costs the server as much as its limit allows."""
    world.contents[ONE, 7] += 1
    tries, slow = list[timedelta](), True
    answers = getattr(FakeSource, step)

    def ask(source: FakeSource, *asked: Any, **more: Any) -> Any:
        if slow:
            tries.append(world.time - START)
            raise SlowError("source:shop: the query took longer than 5 s")
        return answers(source, *asked, **more)

    monkeypatch.setattr(FakeSource, step, ask)
    found = list[Verdict]()
    while world.time < START + timedelta(hours=2):
        world.time += timedelta(seconds=20)
        found += verdicts(world, 1)
    slow = False
    world.time += timedelta(minutes=30)
    last = verdicts(world, 6)[-1]

    pauses = [later - before for before, later in pairwise(tries)]
    minutes = [1, 2, 4, 8, 16, 30]
    assert [round(one / timedelta(minutes=1)) for one in pauses][:6] == minutes
    assert {(one.ruling.outcome, one.cause) for one in found} == {(Outcome.UNKNOWN, "source:shop")}
    assert (last.ruling.outcome, last.ruling.keys) == (Outcome.FAIL, (text(ONE, 7),))


def test_after_a_gap_no_changes_are_followed_and_the_next_scan_finds_what_was_lost(
    world: FakeWorld, reads: list[str]
) -> None:
    world.commit((Op.UPDATE, ONE, 3))
    world.contents[ONE, 3] = 7
    world.log_[-2].lost = True
    world.open_losses.add("orders:0:7@9")
    waits = verdicts(world, 4)
    world.open_losses.clear()  # it was waived
    waits += verdicts(world, 4)
    assert {*reads} == set()
    world.time += timedelta(minutes=31)

    found = rule(world)

    (wait,) = waits
    assert (wait.ruling.outcome, wait.ruling.code) == (Outcome.UNKNOWN, "behind")
    assert wait.verified is not None  # it takes the claim of the scan back
    assert (wait.verified.through, wait.verified.oldest) == (None, None)
    assert found[0].keys == (text(ONE, 3),)
    assert found[0].outcome is Outcome.FAIL


def test_no_changes_are_followed_while_more_may_be_lost(world: FakeWorld, reads: list[str]) -> None:
    """What the scan has proven stays valid, and the next one finds what was lost."""
    world.losing = True
    world.commit((Op.UPDATE, ONE, 3))
    world.log_[-2].lost = True

    assert verdicts(world, 6) == []
    assert reads == []
    world.time += timedelta(minutes=31)
    assert rule(world)[-1].keys == (text(ONE, 3),)


@pytest.fixture
def reads(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A world whose first scan has passed; the names of what its source is asked for later."""
    assert claims(world, 2)[-1] is not None
    asked = list[str]()
    for name in ("bucket_digests", "bucket_rows", "rows_by_key"):
        answer = getattr(FakeSource, name)

        def ask(source: FakeSource, *args: Any, name: str = name, answer: Any = answer) -> Any:
            asked.append(name)
            return answer(source, *args)

        monkeypatch.setattr(FakeSource, name, ask)
    return asked


def test_rows_changed_after_a_scan_are_read_by_their_keys_and_verified(
    world: FakeWorld, reads: list[str]
) -> None:
    world.commit((Op.UPDATE, ONE, 3), (Op.DELETE, TWO, 4), (Op.CREATE, TWO, 90))
    world.catch_up()
    held, batch = world.held_until(KEYED), world.applied

    found = verdicts(world, 2)

    assert [one.ruling.outcome for one in found] == [Outcome.PASS]
    assert found[0].ruling.reason.startswith("3 changed rows are equal on both sides")
    assert {*reads} == {"rows_by_key"}
    claim = found[0].verified
    assert claim is not None
    assert claim.through is not None
    assert held is not None
    assert claim.through >= held
    assert claim.looked >= batch


@pytest.mark.parametrize(
    ("change", "harm", "found"),
    [
        pytest.param(
            (Op.UPDATE, ONE, 3),
            lambda world: world.copied_contents.update({(ONE, 3): 99}),
            ("different_rows", text(ONE, 3)),
            id="another value",
        ),
        pytest.param(
            (Op.CREATE, TWO, 90),
            lambda world: world.copy[TWO].pop(90),
            ("missing_rows", text(TWO, 90)),
            id="missing",
        ),
        pytest.param(
            (Op.DELETE, ONE, 5),
            lambda world: world.copy[ONE].update({5: 1}),
            ("extra_rows", text(ONE, 5)),
            id="a delete that was not merged",
        ),
    ],
)
def test_a_changed_row_that_was_merged_wrong_is_named_long_before_the_next_scan(
    world: FakeWorld, reads: list[str], change: Any, harm: Any, found: tuple[str, str]
) -> None:
    world.commit(change)
    world.catch_up()
    harm(world)

    *_, last = verdicts(world, 4)

    assert (last.ruling.outcome, last.ruling.code, *last.ruling.keys) == (Outcome.FAIL, *found)
    assert last.verified is not None
    assert last.verified.through is None
    assert last.at - START < timedelta(minutes=1)
    assert reads.count("bucket_digests") == 0


def test_a_wrong_row_stays_a_finding_until_a_scan_no_longer_finds_it(
    world: FakeWorld, reads: list[str]
) -> None:
    world.commit((Op.UPDATE, ONE, 3))
    world.catch_up()
    world.copied_contents[ONE, 3] = 99
    assert rule(world)[-1].outcome is Outcome.FAIL
    world.commit((Op.UPDATE, TWO, 8))
    assert rule(world, 6) == [], "what changes now says nothing of the wrong row"
    world.tick(timedelta(minutes=1))
    assert rule(world)[-1].keys == (text(ONE, 3),)
    world.copied_contents[ONE, 3] = world.contents[ONE, 3]
    world.tick(timedelta(minutes=1))

    assert rule(world)[-1].outcome is Outcome.PASS


def test_a_row_that_changes_all_the_time_is_verified_by_the_changes_that_land(
    world: FakeWorld, reads: list[str]
) -> None:
    """Whenever it is read, the source is ahead of the mirror."""
    world.commit((Op.UPDATE, TWO, 3))
    found = list[Verdict]()
    for _ in range(8):
        world.meanwhile = [lambda: world.commit((Op.UPDATE, TWO, 3))] * 9
        found += verdicts(world, 1)

    assert {one.ruling.outcome for one in found} == {Outcome.PASS}
    assert any(one.ruling.reason.startswith("1 changed rows") for one in found)
    assert "bucket_digests" not in reads


def test_a_change_that_is_sent_again_does_not_explain_a_changed_row(
    world: FakeWorld, reads: list[str]
) -> None:
    world.commit((Op.UPDATE, ONE, 5))
    world.catch_up()
    world.copied_contents[ONE, 5] = 99
    assert rule(world, 1) == []
    world.resend(ONE, 5)

    assert rule(world, 3)[-1].keys == (text(ONE, 5),)


@pytest.mark.parametrize("why", ["too many", "emptied", "read again", "no statement", "slow"])
def test_changes_that_cannot_be_followed_wait_for_the_next_scan(
    world: FakeWorld, reads: list[str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "too many":
        monkeypatch.setattr(keyed, "MOST_KEYS", 1)
    if why in ("no statement", "slow"):
        error = ProofError("it has none") if why == "no statement" else SlowError("too slow")
        monkeypatch.setattr(FakeSource, "rows_by_key", raising(error))
    before = world.time
    if why == "emptied":
        world.truncate(ONE)
    elif why == "read again":
        world.snapshot(ONE)
    else:
        world.commit((Op.UPDATE, ONE, 3), (Op.UPDATE, ONE, 4))

    assert [one for one in claims(world, 9) if reaches(one, before)] == []
    assert "bucket_digests" not in reads
    world.tick(timedelta(minutes=30))
    assert reaches(claims(world, 3)[0], before)


def reaches(claim: Verified | None, instant: datetime) -> bool:
    return claim is not None and claim.through is not None and claim.through > instant


def raising(error: Exception) -> Any:
    def ask(*_: Any, **__: Any) -> Any:
        raise error

    return ask


def test_a_key_that_finds_another_row_at_the_source_is_no_finding(
    world: FakeWorld, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of its bucket are compared, too, before anything is reported."""
    monkeypatch.setattr(FakeSource, "rows_by_key", lambda *_: ())
    world.commit((Op.UPDATE, ONE, 3))

    assert rule(world, 6) == []
    assert "bucket_rows" in reads


def test_a_row_whose_key_holds_a_time_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has it as microseconds, by which MySQL finds no row; the mirror has lost the row."""
    world = filled()
    for shard in (ONE, TWO):
        world.alter(shard, id="time", v="int")
    assert claims(world, 3)[-1] is not None
    monkeypatch.setattr(FakeSource, "rows_by_key", lambda *_: ())
    world.commit((Op.CREATE, TWO, 90))
    world.catch_up()
    world.copy[TWO].pop(90)
    lost = world.time

    assert not any(reaches(one, lost) for one in claims(world, 6))
    world.tick(timedelta(minutes=30))
    assert rule(world)[-1].keys == (text(TWO, 90),)


def test_a_mirror_that_is_put_back_while_changes_are_followed_is_scanned_again(
    world: FakeWorld, reads: list[str]
) -> None:
    world.commit((Op.UPDATE, ONE, 3))
    assert verdicts(world, 3)
    world.applied -= 9

    answer = run_probe(Check("values", Values(), KEYED), world)

    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "put_back"
    assert "bucket_digests" in reads


def test_changes_are_followed_after_a_scan_that_began_before_any_heartbeat(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first scan of a service does; the scan compared all rows of its batch all the same."""
    with monkeypatch.context() as patched:
        patched.setattr(FakeWorld, "held_until", lambda *_: None)
        assert [one and one.through for one in claims(world, 2)] == [None]
    before = world.time
    world.commit((Op.UPDATE, ONE, 3))

    assert reaches(claims(world, 2)[-1], before)


def test_a_table_whose_changes_are_followed_is_scanned_once_a_day(
    world: FakeWorld, reads: list[str]
) -> None:
    for _ in range(47):
        world.tick(timedelta(minutes=30))
        world.commit((Op.UPDATE, ONE, 3))
        assert verdicts(world, 2)[-1].ruling.outcome is Outcome.PASS
    assert "bucket_digests" not in reads
    world.tick(timedelta(minutes=31))

    assert verdicts(world, 2)[-1].ruling.reason.startswith("80 rows of 2 shards")


def while_a_row_changes(world: FakeWorld, rounds: int) -> list[Verdict]:
    """Verdicts of so many rounds; a row is always newer at the source than in the mirror."""
    found = []
    for _ in range(rounds):
        world.commit((Op.UPDATE, TWO, 3))
        world.catch_up()
        world.commit((Op.UPDATE, TWO, 3))
        answer = run_probe(Check("values", Values(), KEYED), world)
        found += [answer] if isinstance(answer, Verdict) else []
    return found


def test_a_doubled_row_is_no_pass_however_often_it_changes(
    world: FakeWorld, reads: list[str]
) -> None:
    """Its changes explain what the source has; the mirror must have what the last one made."""
    world.copy[TWO].update({3: 1})
    found = while_a_row_changes(world, 12)

    assert Outcome.PASS not in {one.ruling.outcome for one in found[1:]}
    assert "in_motion" in {one.ruling.code for one in found}


def test_a_doubled_row_that_changes_all_the_time_is_no_pass_of_a_scan(world: FakeWorld) -> None:
    world.copy[TWO].update({3: 1})
    found = while_a_row_changes(world, 12)

    assert Outcome.PASS not in {one.ruling.outcome for one in found}


def test_a_quiet_table_is_verified_up_to_now(
    world: FakeWorld, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mirror stays at one batch, and heartbeats go on."""
    assert claims(world, 2)
    monkeypatch.setattr(FakeWorld, "held_until", lambda one, _: one.now)
    monkeypatch.setattr(keyed_cycle, "await_fences", lambda *_: ())
    batch, check = world.mirror(KEYED).batch, Check("values", Values(), KEYED)
    for _ in range(4):
        world.tick(timedelta(minutes=5))
        answers = [run_probe(check, world) for _ in range(2)]

    claim = next(one.verified for one in answers if isinstance(one, Verdict))
    assert world.mirror(KEYED).batch == batch
    assert reaches(claim, world.now - timedelta(minutes=6))
    assert "bucket_digests" not in reads


def test_a_statement_that_changes_values_begins_a_scan(world: FakeWorld, reads: list[str]) -> None:
    world.alter(ONE, v="int")
    world.commit((Op.UPDATE, ONE, 3))
    world.catch_up()

    assert verdicts(world, 3)[-1].ruling.reason.startswith("80 rows of 2 shards")
    assert "bucket_digests" in reads


def test_wrong_rows_in_too_many_buckets_are_left_to_a_scan_at_once(
    world: FakeWorld, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "MOST_ROWS", 30)
    world.tick(timedelta(minutes=5))
    world.commit(*((Op.UPDATE, ONE, id_) for id_ in range(40)))
    world.catch_up()
    for id_ in range(40):
        world.copied_contents[ONE, id_] = 99

    found = verdicts(world, 6)

    assert found[-1].ruling.outcome is Outcome.FAIL
    assert world.time - START < timedelta(minutes=6)


def test_a_clock_that_went_back_delays_no_scan(world: FakeWorld, reads: list[str]) -> None:
    world.time += timedelta(days=30)
    assert claims(world, 4)
    world.time -= timedelta(days=30)
    world.copied_contents[ONE, 5] = 99

    assert verdicts(world, 6)[-1].ruling.keys == (text(ONE, 5),)


def test_a_wrong_row_is_named_though_another_one_keeps_moving(
    world: FakeWorld, reads: list[str]
) -> None:
    world.copy[TWO].update({3: 1})
    world.commit((Op.UPDATE, ONE, 5))
    world.catch_up()
    world.copied_contents[ONE, 5] = 99
    found = while_a_row_changes(world, 8)

    assert text(ONE, 5) in {key for one in found for key in one.ruling.keys}


def test_a_look_without_a_time_claims_nothing(world: FakeWorld, reads: list[str]) -> None:
    """A clock that was ahead has its times taken out of the memory once it is right again."""
    world.commit((Op.UPDATE, ONE, 3))
    assert claims(world, 2)
    world.commit((Op.UPDATE, ONE, 3))
    while world.memory["values"]["followed"]["look"] is None:
        verdicts(world, 1)
    world.memory["values"]["followed"]["look"]["held"] = None

    (after,) = verdicts(world, 1)

    assert (after.ruling.outcome, after.verified) == (Outcome.PASS, None)


ROWS = [
    RowVersion(Order(1, 1, n), "1", row) for n, row in enumerate(['{"id":1,"v":2}', '{"id":1}'])
]


def test_a_change_that_leaves_columns_out_does_not_say_what_the_mirror_holds(
    world: FakeWorld,
) -> None:
    schema = world.schema(ONE)
    assert schema is not None
    columns = choose_columns(KEYED, ONE, schema, world).columns

    changes = digest_changes(ROWS, [1, 1], schema, columns)

    assert changes is not None
    assert [one.partial for one in changes] == [False, True]
    assert last_digests(changes) == {}
    assert last_digests(changes[:1]) == {1: changes[0].digest}
    assert keyed.is_made(changes[0].digest, RangeDigest(1, 7), changes)
    assert not keyed.is_made(changes[0].digest, RangeDigest(1, 7), changes[:1])
    assert not keyed.is_made(changes[1].digest, RangeDigest(1, 7), changes)


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("alter", ["recreated", "foreign", "merged again"])
def test_an_altered_mirror_with_the_same_batch_is_unknown_and_is_scanned_again(
    world: FakeWorld, reads: list[str], alter: str, *, followed: bool
) -> None:
    if followed:
        world.commit((Op.UPDATE, ONE, 3))
        assert verdicts(world, 3)
    assert claims(world)
    reads.clear()
    if alter == "recreated":
        world.mirror_id = "another"
    elif alter == "foreign":
        world.foreign.add(len(world.versions))
    else:
        world.entries = dict.fromkeys(range(len(world.versions)), "of the second merge")

    answer = run_probe(Check("values", Values(), KEYED), world)

    assert isinstance(answer, Verdict)
    assert (answer.ruling.outcome, answer.ruling.code) == (Outcome.UNKNOWN, "put_back")
    assert "bucket_digests" in reads
    again = claims(world)[-1]
    assert again is not None
    assert again.mirror == world.mirror_id


def test_a_stored_scan_that_names_no_mirror_is_not_followed(
    world: FakeWorld, reads: list[str]
) -> None:
    assert claims(world)
    memory = world.memory["values"]
    world.memory["values"] = {**memory, "mirror": memory["mirror"][1:3]}
    reads.clear()

    assert isinstance(run_probe(Check("values", Values(), KEYED), world), NotYet)
    assert "bucket_digests" in reads
