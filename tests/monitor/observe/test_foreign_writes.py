"""Others' commits to a mirror are seen by the gate at once, also to one that was made anew."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checks.blocks import ALSO_UNKNOWN, SINCE_GONE
from monitor.observe.foreign_writes import UnloggedChanges
from monitor.store.alerts import Waiver, Waivers
from monitor.store.history import CheckMemory
from monitor.store.store import ServiceStore
from pipeline.apply.foreign_commits import waiver_id
from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Checkpoint, OpenSnapshot
from pipeline.lags.samples import Sample
from pipeline.model import Missing, Order, Origin, Shard, Table
from tests.monitor.rig import NOON, USERS, Rig, codes_of
from tests.monitor.store.kit import ReadOnly


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round(4)
    return rig


@pytest.mark.parametrize("rounds", [0, 1], ids=["before it was seen", "and seen"])
def test_a_row_that_others_delete_from_a_mirror_made_anew_closes_the_gate(
    rig: Rig, rounds: int
) -> None:
    rig.rebuild(USERS)
    rig.round(rounds)
    rig.intrude(USERS)
    rig.round()

    status, answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z")

    assert status == 409
    assert "foreign_write" in codes_of(answer)


@pytest.mark.parametrize("merges", [0, 1], ids=["the same version", "a later one"])
def test_a_row_that_others_delete_from_a_mirror_that_was_put_back_closes_the_gate(
    rig: Rig, merges: int
) -> None:
    """The versions that were read before are of other commits now."""
    rig.put_back(USERS)
    rig.intrude(USERS)
    for _ in range(merges):
        rig.apply(USERS)
    rig.second(2)

    status, answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z")

    assert status == 409
    assert "foreign_write" in codes_of(answer)


def rebuild(rig: Rig) -> None:
    rig.rebuild(USERS)


def put_back(rig: Rig) -> None:
    rig.put_back(USERS)


def restart_and_put_back(rig: Rig) -> None:
    rig.put_back(USERS)
    rig.restart()


@pytest.mark.parametrize("seen", [True, False], ids=["and seen", "and not seen"])
@pytest.mark.parametrize("alter", [rebuild, put_back, restart_and_put_back])
def test_a_waiver_of_a_foreign_commit_ends_with_that_commit(
    rig: Rig, alter: Callable[[Rig], None], seen: bool
) -> None:
    """Another foreign commit gets the same number."""
    rig.intrude(USERS)
    rig.watch(2)
    version = rig.lake.mirrors[USERS].version
    rig.store.waivers.add(Waiver(waiver_id(USERS, version), "a known repair", "ann", rig.now))
    rig.watch(2)
    waived = rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0]

    alter(rig)
    if seen or alter is restart_and_put_back:
        rig.watch(2)
    while rig.lake.mirrors[USERS].version < version - 1:
        rig.apply(USERS)
    rig.intrude(USERS)
    rig.second(2)
    status, answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z")

    assert (waived, status, "foreign_write" in codes_of(answer)) == (200, 409, True)
    (ended,) = rig.store.waivers.list()
    assert (ended.withdrawn_by, "no longer has that version" in ended.withdrawn_why) == (
        "sluice",
        True,
    )


@pytest.mark.parametrize("merges", [0, 120], ids=["at once", "after many merges"])
@pytest.mark.parametrize("until", [None, 60], ids=["withdrawn", "over"])
def test_a_foreign_commit_blocks_again_when_its_waiver_has_ended(
    rig: Rig, merges: int, until: int | None
) -> None:
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waiver_id(USERS, rig.lake.mirrors[USERS].version)
    end = None if until is None else rig.now + timedelta(seconds=until)
    rig.store.waivers.add(Waiver(id_, "a known repair", "ann", rig.now, end))
    for _ in range(merges):
        rig.apply(USERS)
    rig.watch(2)
    waived = rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0]
    if until is None:
        rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)

    answers = []
    for _ in range(2):
        rig.watch(until or 2)
        rig.round()
        answers.append(rig.ask(USERS, cut="2026-03-29T12:00:02Z"))
    rig.store.waivers.add(Waiver(id_, "it was right", "ann", rig.now))
    rig.second(2)

    assert waived == 200
    assert [status for status, _ in answers] == [409] * 2
    assert all(codes_of(one)[:2] == ["revoked", "foreign_write"] for _, one in answers)
    assert rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 200


def test_a_waiver_of_a_foreign_commit_lasts_while_the_mirror_has_it(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waiver_id(USERS, rig.lake.mirrors[USERS].version)
    rig.store.waivers.add(Waiver(id_, "a known repair", "ann", rig.now))
    rig.round(2)
    rig.restart()
    rig.round(2)
    rig.put_back(USERS)
    rig.watch(2)

    assert rig.store.waivers.waived() == {id_}
    assert rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 200


def waive(rig: Rig, until: datetime | None = None) -> str:
    """Waive the newest version of the mirror, and look; return the id."""
    id_ = waiver_id(USERS, rig.lake.mirrors[USERS].version)
    rig.store.waivers.add(Waiver(id_, "a known repair", "ann", rig.now, until))
    rig.watch(2)
    return id_


@pytest.mark.parametrize("withdrawn", [False, True], ids=["waived", "no longer waived"])
def test_a_mirror_that_was_put_back_is_not_verified_also_if_a_waiver_ended(
    rig: Rig, withdrawn: bool
) -> None:
    """Both happen between two looks, and merges follow."""
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waive(rig)
    rig.round(2)
    rig.watch(2)
    rig.compare_rows()
    rig.second(2)
    verified = rig.ask(USERS, cut="2026-03-28", verified="1")[0]
    version = rig.lake.mirrors[USERS].version

    if withdrawn:
        rig.store.waivers.withdraw(id_, who="ann", why="a backup is back", at=rig.now)
    for _ in range(4):
        rig.put_back(USERS)
    while rig.lake.mirrors[USERS].version < version:
        rig.apply(USERS)
    rig.second(2)
    status, answer = rig.ask(USERS, cut="2026-03-28", verified="1")

    assert (verified, status, codes_of(answer)[0]) == (200, 404, "not_verified")


def test_a_store_that_refuses_to_end_a_waiver_hides_no_new_mirror(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.watch(2)
    waive(rig)
    rig.round(2)
    disk = ReadOnly(rig.store.database)
    rig.rebuild(USERS)

    rig.second(2)
    sample = rig.watcher.look(timedelta(), [USERS]).mirrors[USERS]
    open_while_full = rig.store.waivers.waived()
    disk.free()
    rig.round()

    assert isinstance(sample, Sample)
    assert sample.value.put_back is not None
    assert not open_while_full
    assert [one.withdrawn_by for one in Waivers(rig.store.database).list()] == ["sluice"]


def test_a_waiver_whose_end_the_store_does_not_take_accepts_no_new_commit(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waive(rig)
    disk = ReadOnly(rig.store.database)
    rig.rebuild(USERS)
    rig.second(2)
    rig.watcher.look(timedelta(), [USERS])
    while waiver_id(USERS, rig.lake.mirrors[USERS].version + 1) != id_:
        rig.apply(USERS)
    rig.intrude(USERS)
    rig.second(2)

    status, answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z")
    (listed,) = rig.client.get("/v1/waivers").json()
    disk.free()
    again = Waiver(id_, "a known repair, too", "ann", rig.now)
    added = rig.store.waivers.add(again)
    rig.round(2)

    assert (status, codes_of(answer)[0]) == (409, "foreign_write")
    assert listed["withdrawn_by"] == "sluice"
    assert (added, rig.store.waivers.list()) == (True, (again,))
    assert rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 200


def certify(rig: Rig, **asked: str) -> str:
    """Return the id of the certificate that answers; empty if none does."""
    rig.write_heartbeat()
    rig.land(changes=False)
    rig.second()
    answer = rig.ask(USERS, cut="2026-03-29T12:00:02Z", **asked)[1]
    return str(answer["tables"][0]["certificate"] or "")


def test_no_certificate_names_a_version_that_is_another_commit_since_the_mirror_was_put_back(
    rig: Rig,
) -> None:
    """It was put back and merged on between two looks; the version may hold less now."""
    before = certify(rig)
    for _ in range(2):
        rig.put_back(USERS)
    for _ in range(3):
        rig.apply(USERS)

    after = certify(rig)

    assert rig.certificate(before).why == (
        "the mirror was put back to an older version; 3 may be another commit now"
    )
    assert rig.certificate(after).evidence.version == rig.lake.mirrors[USERS].version
    assert certify(rig) == after


def test_a_certificate_from_under_a_waived_commit_does_not_answer_once_that_is_reverted(
    rig: Rig,
) -> None:
    """Its version has the foreign rows."""
    landed, good = certify(rig, stage="landed"), rig.lake.mirrors[USERS].version
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waive(rig)
    under = certify(rig)
    rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
    blocked = certify(rig)
    rig.restore(USERS, good)

    after = certify(rig)

    assert rig.certificate(under).why == f"a waiver that it rests on has ended: {id_}"
    assert (blocked, rig.certificate(after).evidence.version) == ("", good + 2)
    assert rig.certificate(landed).evidence.waived == ()
    assert certify(rig, stage="landed") == landed


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "during a restart"])
def test_a_waiver_that_ends_after_its_commit_was_reverted_ends_its_certificates(
    rig: Rig, restart: bool
) -> None:
    """The commit blocks no more, but the certified version has its rows."""
    good = rig.lake.mirrors[USERS].version
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waive(rig)
    under = certify(rig)
    rig.restore(USERS, good)
    rig.watch(2)
    waive(rig)
    lasts = certify(rig)
    rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
    if restart:
        rig.restart()
        rig.census.ask()

    after = certify(rig)

    assert lasts == under
    assert rig.certificate(under).why == f"a waiver that it rests on has ended: {id_}"
    assert rig.certificate(after).evidence.version == good + 2


def merge(rig: Rig, times: int) -> None:
    for _ in range(times):
        rig.apply(USERS)
    rig.watch(2)


def intrude_and_waive(rig: Rig, *, until: datetime | None = None) -> str:
    """A foreign commit that was accepted and merged on; return the id of its waiver."""
    rig.intrude(USERS)
    rig.watch(2)
    id_ = waive(rig, until)
    merge(rig, 10)
    return id_


def is_blocked(rig: Rig) -> bool:
    """Whether a look that answers finds a foreign commit."""
    rig.second(2)
    look = rig.watcher.look(timedelta(), [USERS])
    assert isinstance(look.mirrors[USERS], Sample), look.mirrors[USERS]
    return USERS in look.intrusions


def test_a_foreign_commit_that_stays_is_not_read_again(rig: Rig) -> None:
    id_ = intrude_and_waive(rig)
    rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
    blocked = is_blocked(rig)
    merge(rig, 200)

    read = rig.lake.entries_read
    merge(rig, 1)

    assert (blocked, is_blocked(rig)) == (True, True)
    assert rig.lake.entries_read - read <= 4


def test_a_log_that_is_cleaned_of_a_blocking_commit_leaves_it_to_be_waived(rig: Rig) -> None:
    id_ = intrude_and_waive(rig)
    rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
    before = is_blocked(rig)

    rig.lake.oldest[USERS] = rig.lake.mirrors[USERS].version - 2
    merge(rig, 2)
    cleaned = is_blocked(rig)
    rig.store.waivers.add(Waiver(id_, "it was right", "ann", rig.now))

    assert (before, cleaned, is_blocked(rig)) == (True, True, False)


@pytest.mark.parametrize("cleaned", [0, 1, 2], ids=["whole", "of the one below", "of the commit"])
def test_a_revert_counts_while_the_log_has_the_foreign_commit(rig: Rig, cleaned: int) -> None:
    """Otherwise it has to be waived, as the revert itself."""
    rig.intrude(USERS)
    before, version = is_blocked(rig), rig.lake.mirrors[USERS].version
    rig.lake.oldest[USERS] = version + cleaned - 1
    still = is_blocked(rig)
    rig.restore(USERS, version - 1)
    reverted = not is_blocked(rig)
    for later in (version, version + 1):
        rig.store.waivers.add(Waiver(waiver_id(USERS, later), "known", "ann", rig.now))

    assert (before, still, reverted, is_blocked(rig)) == (True, True, cleaned < 2, False)


@pytest.mark.parametrize("ends", ["before the restart", "during the restart"])
def test_the_end_of_a_waiver_is_known_after_a_restart(rig: Rig, ends: str) -> None:
    id_ = intrude_and_waive(rig, until=rig.now + timedelta(seconds=100))
    merge(rig, 120)
    waived = is_blocked(rig)
    rig.second(100)
    ended = is_blocked(rig) if ends == "before the restart" else True
    rig.restart()
    restarted = is_blocked(rig)
    rig.store.waivers.add(Waiver(id_, "it was right", "ann", rig.now))

    assert (waived, ended, restarted, is_blocked(rig)) == (False, True, True, False)


def test_a_waiver_that_ended_with_its_commit_blocks_no_restart(rig: Rig) -> None:
    intrude_and_waive(rig)
    rig.rebuild(USERS)
    merge(rig, 150)
    rig.lake.oldest[USERS] = 100
    rig.restart()

    assert not is_blocked(rig)


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "after a restart"])
def test_a_foreign_commit_that_the_log_lost_before_its_waiver_ended_blocks(
    rig: Rig, restart: bool
) -> None:
    id_ = intrude_and_waive(rig, until=rig.now + timedelta(seconds=100))
    merge(rig, 20)
    rig.lake.oldest[USERS] = rig.lake.mirrors[USERS].version - 10
    waived = is_blocked(rig)
    rig.second(100)
    if restart:
        rig.restart()
    ended = is_blocked(rig)
    again = is_blocked(rig)
    rig.store.waivers.add(Waiver(id_, "it was right", "ann", rig.now))

    assert (waived, ended, again, is_blocked(rig)) == (False, True, True, False)


@pytest.mark.parametrize("seen", [True, False], ids=["and it blocks", "meanwhile"])
@pytest.mark.parametrize("merges", [0, 2], ids=["put back", "put back and merged on"])
def test_a_mirror_that_was_put_back_keeps_the_foreign_commits_below(
    rig: Rig, seen: bool, merges: int
) -> None:
    id_ = intrude_and_waive(rig)
    merge(rig, 150)
    rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
    before = is_blocked(rig) if seen else True

    rig.put_back(USERS)
    for _ in range(merges):
        rig.apply(USERS)

    assert (before, is_blocked(rig)) == (True, True)


def test_two_waivers_that_end_both_block(rig: Rig) -> None:
    ids = [intrude_and_waive(rig) for _ in range(2)]
    blocked = []
    for id_ in reversed(ids):
        rig.store.waivers.withdraw(id_, who="ann", why="it was wrong", at=rig.now)
        blocked.append(is_blocked(rig))
    for id_ in ids:
        rig.store.waivers.add(Waiver(id_, "it was right", "ann", rig.now))
        blocked.append(is_blocked(rig))

    assert blocked == [True, True, True, False]


def test_a_mirror_made_anew_is_no_intrusion(rig: Rig) -> None:
    rig.intrude(USERS)
    rig.round()
    rig.rebuild(USERS)
    rig.round(2)

    assert rig.ask(USERS, cut="2026-03-29T12:00:02Z")[0] == 200


TABLE = Table("shop.people", (Shard("a", "shop.people_0"), Shard("b", "shop.people_1")))
FIRST, SECOND = Order(1, 1, 100), Order(1, 7, 100)
OLD = dict.fromkeys(TABLE.shards, FIRST)
HALF = {**OLD, TABLE.shards[0]: SECOND}
NEW = dict.fromkeys(OLD, SECOND)
WHY = "rows changed by foreign keys are in no log"


@dataclass
class Life:
    """One life of the service over a store that outlives it."""

    store: ServiceStore
    told: str | Missing = ""
    doubts: UnloggedChanges = field(init=False)

    def __post_init__(self) -> None:
        self.doubts = UnloggedChanges(
            lambda _: self.told, self.store.memory, lambda: datetime.now(UTC)
        )

    def says(self, told: str | Missing, bases: Mapping[Shard, Order], **more: Any) -> str | Missing:
        """What is unproven, when the sources say *told* and the mark has *bases*; no mark if {}."""
        self.told = told
        mark = Checkpoint("main", 1, bases=bases, **more) if bases or more else None
        return self.doubts.unproven(TABLE, mark)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Life]]:
    store = ServiceStore.open(tmp_path / "s.db", service=True)
    yield lambda: Life(store)
    store.close()


def test_what_never_had_a_cascade_is_in_no_doubt(start: Callable[[], Life]) -> None:
    assert start().says("", OLD) == ""


@pytest.mark.parametrize("again", [False, True], ids=["same life", "after a restart"])
def test_a_cascade_that_is_gone_is_doubted_until_every_shard_has_a_new_base(
    start: Callable[[], Life], again: bool
) -> None:
    life = start()
    assert life.says(WHY, OLD) == WHY
    life = start() if again else life

    assert WHY in str(life.says("", OLD))
    assert WHY in str(life.says("", {}))  # nothing is known of its bases
    assert WHY in str(life.says("", HALF))
    assert life.says("", NEW) == ""
    assert (start() if again else life).says("", NEW) == ""


def test_a_base_that_was_taken_while_the_cascade_was_there_ends_no_doubt(
    start: Callable[[], Life],
) -> None:
    life = start()
    life.says(WHY, OLD)
    life.says(WHY, NEW)

    assert WHY in str(life.says("", NEW))


def reading(order: Order) -> Backfill:
    return Backfill("b", Origin.SNAPSHOT, order, "A", 1)


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param({"backfills": {TABLE.shards[0]: reading(SECOND)}}, id="backfill"),
        pytest.param({"snaps": {TABLE.shards[0]: OpenSnapshot(SECOND, 1)}}, id="snapshot"),
        pytest.param({"snapshots": {"a": SECOND}}, id="snapshot of its source"),
    ],
)
@pytest.mark.parametrize("based", [True, False], ids=["another base", "the first base"])
def test_a_base_that_began_while_the_cascade_was_there_ends_no_doubt(
    start: Callable[[], Life], begun: dict[str, Any], based: bool
) -> None:
    """A row that was read before the cascade changed it stays wrong."""
    life = start()
    life.says(WHY, OLD if based else {}, **begun)

    assert WHY in str(life.says("", NEW))
    assert life.says("", dict.fromkeys(OLD, replace(SECOND, pos=200))) == ""


def test_a_doubt_from_while_the_change_log_was_silent_lasts_until_a_new_base(
    start: Callable[[], Life],
) -> None:
    assert start().says(WHY, {}) == WHY

    life = start()
    assert WHY in str(life.says("", {}))
    assert WHY in str(life.says("", OLD))
    assert WHY in str(life.says("", OLD))
    assert life.says("", NEW) == ""


OTHER = "rows changed by other keys are in no log"


def test_another_cause_does_not_hide_one_that_is_gone(start: Callable[[], Life]) -> None:
    """A waiver of the other one does not cover it."""
    start().says(WHY, OLD)
    life = start()

    both = life.says(OTHER, OLD)
    assert both == f"{OTHER}; {WHY}{SINCE_GONE}"
    assert start().says(OTHER, OLD) == both
    assert life.says("", OLD) == f"{WHY}; {OTHER}{SINCE_GONE}"
    assert life.says(OTHER, NEW) == OTHER
    assert start().says("", NEW) == f"{OTHER}{SINCE_GONE}"


def test_a_foreign_key_that_stays_is_in_doubt_once(start: Callable[[], Life]) -> None:
    life = start()
    one, both = "not logged: teams (a)", "not logged: groups (b); teams (a)"
    many = f"{both}; and 7 more (@0123abcd)"

    assert [life.says(why, OLD) for why in (one, both, many)] == [one, both, many]
    assert life.says(many.replace("7", "8"), OLD) == many.replace("7", "8")
    assert life.says(one, OLD) == f"{one}; {many.replace('7', '8')}{SINCE_GONE}"


def test_a_source_that_does_not_answer_leaves_no_doubt(start: Callable[[], Life]) -> None:
    life = start()
    silent = f"{WHY}{ALSO_UNKNOWN}source b: down"

    assert life.says(silent, OLD) == silent
    assert life.says(WHY, OLD) == WHY
    assert start().says("", OLD) == f"{WHY}{SINCE_GONE}"


def test_the_first_base_ends_the_doubt_of_a_table_that_had_none(start: Callable[[], Life]) -> None:
    life = start()
    life.says(WHY, {}, snapshots={})

    assert life.says("", NEW) == ""


def test_a_shard_that_has_left_the_table_keeps_no_doubt(start: Callable[[], Life]) -> None:
    bases = {"b/shop.gone": [1, 9, 0, 0], str(TABLE.shards[0]): [*FIRST.parts]}
    life = start()
    life.store.memory.remember(TABLE.name, "unproven", {"why": WHY, "bases": bases}, NOON)

    assert WHY in str(life.says("", OLD))
    assert life.says("", NEW) == ""


def test_a_source_that_has_not_told_is_no_end_of_a_doubt(start: Callable[[], Life]) -> None:
    life = start()
    life.says(WHY, OLD)

    assert isinstance(life.says(Missing("down"), NEW), Missing)
    assert WHY in str(life.says("", OLD))


def test_f143_a_doubt_that_cannot_be_read_lasts_until_every_shard_has_a_new_base(
    start: Callable[[], Life],
) -> None:
    life = start()
    life.says(WHY, OLD)
    with life.store.write() as connection:
        connection.exec_driver_sql("UPDATE memory SET kept = '{'")
    life.store.memory = CheckMemory(life.store.database)

    life = start()

    lost = "the stored memory of check unproven for shop.people is unreadable"
    assert lost in str(life.says("", {}))
    assert lost in str(life.says("", OLD))
    assert lost in str(start().says("", HALF))
    assert life.says("", NEW) == ""
