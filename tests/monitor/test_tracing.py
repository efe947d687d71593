"""All hops of a row are read and shown; one that is silent hides no other; no secret is shown."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from checks.trace import TraceState
from monitor.tracing import MirrorLook, ShardTrace, SourceLook, Trace
from pipeline.apply.catalog import Catalog
from pipeline.changelog import key_search
from pipeline.changelog.key_search import KeySearch, SoughtKeys
from pipeline.checkpoint import Quarantine, RowStandards
from pipeline.errors import ConfigError, UnreachableError
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.model import CaptureScope, Missing, Op, PartitionEnd, TopicPartition
from pipeline.settings import StandardRule, TableRule
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.tables.lake import Lake
from tests.builders.lake import FIRST, NOW, LocalLake, row
from tests.monitor.traced import TracedLake

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
TOPIC = "s.db.t"
LONG = 5.0


def remember(lake: LocalLake, **fields: Any) -> None:
    """Let the next batch's checkpoint have *fields*, in a text that holds everything."""
    lake.checkpoint = replace(lake.checkpoint, full=-1, **fields)


def based(lake: LocalLake, standards: Standards = NO_STANDARDS) -> LocalLake:
    """Each shard has had its base since the first batch, written by *standards*."""
    shards = lake.checkpoint.shards
    names = ("based", "complete")
    told = {name: dict.fromkeys(shards, 0) for name in names}
    own = {shard: RowStandards(standards.digest(table)) for shard, table in shards.items()}
    remember(lake, bases=dict.fromkeys(shards, FIRST), standards=own, **told)
    lake.catalog.standards = standards
    return lake


@pytest.fixture
def traced(tmp_path: Path) -> TracedLake:
    """Rows 1 and 2, in the mirror and at the source."""
    made = TracedLake(based(LocalLake(tmp_path)))
    made.lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    made.source.put("1", {"id": 1, "name": "a"})
    made.source.put("2", {"id": 2, "name": "b"})
    return made


def proving(traced: TracedLake) -> TracedLake:
    """Let the lane land up to each heartbeat."""

    def land(number: int) -> None:
        traced.lake.prove(1_001, number)
        remember(traced.lake)
        traced.lake.land()

    traced.source.on_beat = land
    return traced


def one(found: Trace) -> ShardTrace:
    (only,) = found.traces
    return only


def test_the_hops_of_a_merged_row_are_side_by_side(traced: TracedLake) -> None:
    traced.lake.play([row(U, 20, 1, "c")])
    traced.source.put("1", {"id": 1, "name": "c"})

    found = one(traced.trace("1"))

    assert found.verdict.state is TraceState.MERGED, found.verdict
    assert found.source == SourceLook({"id": 1, "name": "c"})
    assert isinstance(found.mirror, MirrorLook)
    assert found.mirror.row == {"id": 1, "name": "c"}
    assert (found.mirror.applied, found.mirror.origin["batch"]) == (1, 1)
    assert not isinstance(found.changes, Missing)
    assert [(change.op, change.batch) for change in found.changes] == [(U, 1), (C, 0)]
    assert (found.waiting, found.refused, found.before) == ((), (), None)
    assert traced.source.closed == 1


def test_a_difference_is_in_flight_until_all_has_landed(traced: TracedLake) -> None:
    traced.source.put("1", {"id": 1, "name": "z"})

    before = one(traced.trace("1"))
    after = one(proving(traced).trace("1", wait=LONG))

    assert before.verdict.state is TraceState.IN_FLIGHT
    assert after.verdict.state is TraceState.DIFFERENT, after.verdict
    assert after.verdict.columns == ("name",)


@pytest.mark.parametrize(
    ("key", "source", "state"),
    [
        pytest.param("3", {"id": 3, "name": "x"}, TraceState.NOT_CAPTURED, id="not captured"),
        pytest.param("2", None, TraceState.GHOST, id="ghost"),
        pytest.param("4", None, TraceState.ABSENT, id="nowhere"),
    ],
)
def test_a_loss_is_proven_by_what_landed(
    traced: TracedLake, key: str, source: dict[str, Any] | None, state: TraceState
) -> None:
    traced.source.rows.pop(("db.t", json.dumps([key])), None)
    if source is not None:
        traced.source.put(key, source)

    found = one(proving(traced).trace(key, wait=LONG))

    assert found.verdict.state is state, found.verdict


def test_a_row_that_changes_after_it_was_read_is_looked_at_again(traced: TracedLake) -> None:
    """The change lands between the look at the source and the look at the log."""
    traced.source.put("1", {"id": 1, "name": "old"})
    lake, source = traced.lake, proving(traced).source

    def change() -> None:
        source.on_read = lambda: None
        source.put("1", {"id": 1, "name": "new"})
        lake.land(row(U, 900, 1, "new"))
        lake.apply()

    source.on_read = change

    found = one(traced.trace("1", wait=LONG))

    assert found.verdict.state is TraceState.MERGED, found.verdict
    assert found.source == SourceLook({"id": 1, "name": "new"})


def test_a_record_in_the_topic_waits_until_it_landed(traced: TracedLake) -> None:
    for _ in range(20):
        traced.topics.put("s", 500, "other", key=9)
    traced.topics.put("s", 600, "new", key=1)
    landed = {TopicPartition(TOPIC, 0): PartitionEnd(20, TOPIC)}
    remember(traced.lake, offsets=landed)
    traced.lake.land()

    waits, other = traced.trace("1"), traced.trace("2")
    traced.lake.land(row(U, 600, 1, "new") | {"offset": 20})
    unmerged = one(traced.trace("1"))

    found = one(waits)
    assert found.verdict.state is TraceState.IN_TOPIC, found.verdict
    assert found.waiting is not None
    assert not isinstance(found.waiting, Missing)
    assert [str(each) for each in found.waiting] == [f"{TOPIC}:0:20"]
    assert not isinstance(waits.records, Missing)
    assert waits.records.read == 1
    assert one(other).verdict.state is TraceState.MERGED
    assert unmerged.verdict.state is TraceState.LANDED_NOT_MERGED, "its record is not waiting"


def test_records_that_landed_meanwhile_do_not_wait_though_the_search_leaves_them_out(
    traced: TracedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_search, "MOST_CHANGES", 2)
    for number in range(20, 30):
        traced.topics.put("s", 600 + number, "new", key=1)
    landed = {TopicPartition(TOPIC, 0): PartitionEnd(0, TOPIC)}
    remember(traced.lake, offsets=landed)
    traced.lake.land()
    seen, search = list[int](), Lake.key_changes

    def land_first(lake: Lake, sought: SoughtKeys) -> KeySearch:
        if not seen:
            rows = [row(U, 620 + n, 1, "new") | {"offset": n} for n in range(10)]
            traced.lake.land(*rows)
        found = search(lake, sought)
        seen.append(found.left_out)
        return found

    monkeypatch.setattr(Lake, "key_changes", land_first)

    found = one(traced.trace("1"))

    assert seen[0] > 0
    assert found.waiting == ()
    assert found.verdict.state is TraceState.LANDED_NOT_MERGED, found.verdict


def test_each_shard_is_judged_for_itself(tmp_path: Path) -> None:
    rule = TableRule(r"db\.t_\d", "db.t")
    traced = TracedLake(based(LocalLake(tmp_path, shards=("db.t_0", "db.t_1"), rules=(rule,))))
    first, second = (f"db.t_{number}" for number in range(2))
    rows = (row(C, 10, 1, "a", shard=first), row(C, 11, 1, "b", shard=second))
    traced.lake.land(*rows, row(C, 12, 2, "c", shard=second))
    traced.lake.apply()
    traced.source.put("1", {"id": 1, "name": "a"}, "db.t_0")
    traced.source.put("1", {"id": 1, "name": "z"}, "db.t_1")
    traced.source.put("2", {"id": 2, "name": "c"}, "db.t_1")

    both, alone = traced.trace("1"), traced.trace("2")
    named = traced.trace('["s","db.t_0","1"]')

    states = {str(each.shard): each.verdict.state for each in both.traces}
    assert states == {"s/db.t_0": TraceState.MERGED, "s/db.t_1": TraceState.IN_FLIGHT}
    assert [str(each.shard) for each in alone.traces] == ["s/db.t_1"]
    assert [str(each.shard) for each in named.traces] == ["s/db.t_0"]
    assert alone.shards == 2


def named(shard: str, pos: int, name: str) -> dict[str, Any]:
    """A row of a table with the key `name`."""
    key = json.dumps(["s", shard, name], separators=(",", ":"))
    return row(C, pos, pos, name, shard=shard) | {"key": key}


def test_a_key_in_another_letter_case_is_looked_for_as_the_source_spells_it(tmp_path: Path) -> None:
    traced = TracedLake(based(LocalLake(tmp_path, key=("name",))))
    traced.source.fold = str.casefold
    traced.lake.play([named("db.t", 10, "Abc")])
    traced.source.put("Abc", {"id": 10, "name": "Abc"})

    found, plain = traced.trace("aBC"), traced.trace("Abc")

    assert one(found).verdict.state is TraceState.MERGED, one(found).verdict
    assert (found.key, found.respelled) == ('["Abc"]', True)
    assert (plain.key, plain.respelled) == ('["Abc"]', False)


def test_shards_that_spell_a_key_in_two_ways_are_not_judged_by_one_of_them(tmp_path: Path) -> None:
    rule, shards = TableRule(r"db\.t_\d", "db.t"), ("db.t_0", "db.t_1")
    traced = TracedLake(based(LocalLake(tmp_path, shards=shards, rules=(rule,), key=("name",))))
    traced.source.fold = str.casefold
    traced.lake.play([named("db.t_0", 10, "abc"), named("db.t_1", 11, "ABC")])
    traced.source.put("abc", {"id": 10, "name": "abc"}, "db.t_0")
    traced.source.put("ABC", {"id": 11, "name": "ABC"}, "db.t_1")

    found = {each.shard.name: each.verdict for each in traced.trace("abc").traces}

    assert found["db.t_0"].state is TraceState.MERGED
    assert found["db.t_1"].state is TraceState.UNDECIDED
    assert 'it has the row under the key ["ABC"]; trace that key' in found["db.t_1"].sentence


def add_files_again(mirror: Path) -> None:
    """Commit copies of all data files of a Delta table, as another writer may."""
    commits = sorted((mirror / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for one in commits for line in one.read_text().splitlines()]
    made = []
    for add in (one["add"] for one in actions if "add" in one):
        shutil.copy(mirror / add["path"], mirror / f"again-{add['path']}")
        made.append(json.dumps({"add": add | {"path": f"again-{add['path']}"}}))
    (mirror / "_delta_log" / f"{len(commits):020}.json").write_text("\n".join(made))


def test_a_row_that_the_mirror_has_twice_is_a_duplicate(traced: TracedLake) -> None:
    add_files_again(traced.lake.home / "mirrors/db/t")

    found = one(traced.trace("1"))

    assert found.verdict.state is TraceState.DUPLICATE
    assert found.verdict.sentence == "the mirror has 2 rows with this key"


def test_a_masked_column_is_masked_at_the_source_too(tmp_path: Path) -> None:
    mask = StandardRule("db.t", ("id",), (("mask", LetterMask(("name",), 1)),))
    standards = Standards((mask,))
    traced = TracedLake(based(LocalLake(tmp_path), standards), standards=standards)
    traced.lake.play([row(C, 10, 1, "s*****")])
    traced.source.put("1", {"id": 1, "name": "secret"})

    found = traced.trace("1")

    assert one(found).verdict.state is TraceState.MERGED, one(found).verdict
    assert one(found).source == SourceLook({"id": 1, "name": "s*****"})
    assert "secret" not in repr(found)


def masking(column: str) -> str:
    return "column.mask.hash.SHA-256" if column == "db.t.name" else ""


def test_a_column_that_the_collector_alters_is_neither_shown_nor_compared(tmp_path: Path) -> None:
    traced = TracedLake(based(LocalLake(tmp_path)))
    traced.captures = lambda: CaptureScope(lambda _: True, alters=masking)
    traced.lake.play([row(C, 10, 1, "5e884898")])
    traced.source.put("1", {"id": 1, "name": "secret"})

    found = traced.trace("1")

    assert one(found).verdict.state is TraceState.MERGED, one(found).verdict
    assert "except for columns that the collector alters: name" in one(found).verdict.sentence
    assert one(found).source == SourceLook({"id": 1}, {"name": "column.mask.hash.SHA-256"})
    assert "secret" not in repr(found)


def silent_collector() -> CaptureScope:
    raise UnreachableError("Connect does not answer")


def transforming_collector() -> CaptureScope:
    hazard = Finding(REFUSE, "transforms", "s", "m rewrites", "remove m", Effect.REWRITES)
    return CaptureScope(lambda _: True, hazards=(hazard,))


@pytest.mark.parametrize(
    ("captures", "why"),
    [
        pytest.param(silent_collector, "Connect does not answer", id="no answer"),
        pytest.param(transforming_collector, "the collector rewrites values", id="a transform"),
    ],
)
def test_no_value_is_shown_while_any_may_be_altered(
    traced: TracedLake, captures: Callable[[], CaptureScope], why: str
) -> None:
    traced.captures = captures
    traced.source.put("1", {"id": 1, "name": "secret"})
    traced.source.put("3", {"id": 3, "name": "secret"})

    both, lost = traced.trace("1"), proving(traced).trace("3", wait=LONG)

    assert one(both).verdict.state is TraceState.UNDECIDED
    assert why in one(both).verdict.sentence
    assert one(lost).verdict.state is TraceState.NOT_CAPTURED, "the source has the row"
    assert "secret" not in repr((both, lost))


def test_a_hashed_key_is_given_as_the_source_has_it_and_shown_as_the_mirror(tmp_path: Path) -> None:
    own = KeyedHash(("id",), "0123456789abcdef")
    standards = Standards((StandardRule("db.t", ("id",), (("hash", own),)),))
    traced = TracedLake(based(LocalLake(tmp_path), standards), standards=standards)
    told = own.value("1")
    made = row(C, 10, 1, "a") | {"key": f'["s","db.t","{told}"]'}
    traced.lake.play([made | {"after": json.dumps({"id": told, "name": "a"})}])
    traced.source.put("1", {"id": 1, "name": "a"})

    found = traced.trace("1")

    assert found.key == json.dumps([told])
    assert one(found).verdict.state is TraceState.MERGED, one(found).verdict


def refuse(traced: TracedLake, value: bytes) -> None:
    """Land a message of offset 70 that could not be read, all before it is gone."""
    traced.topics.held[TOPIC] = [(b"{}", b"")] * 70 + [(b"{}", value)]
    name = f"{TOPIC}:0:70@{traced.lake.checkpoint.batch + 1}"
    known = {"s/db.t": Quarantine("db.t", 1, 1, (name,), ("s/db.t",))}
    landed = {TopicPartition(TOPIC, 0): PartitionEnd(71, TOPIC)}
    remember(traced.lake, quarantine=known, offsets=landed)
    traced.lake.land(row(C, 70, None) | {"op": "error", "error": "odd", "raw": value})


def test_a_refused_message_is_found_by_its_key(traced: TracedLake) -> None:
    value = json.dumps({"payload": {"after": {"id": 7, "name": 1}}})
    refuse(traced, value.encode())
    traced.source.put("7", {"id": 7, "name": "x"})
    traced.source.put("8", {"id": 8, "name": "x"})

    found, other = one(traced.trace("7")), one(proving(traced).trace("8", wait=LONG))

    assert found.verdict.state is TraceState.QUARANTINED, found.verdict
    assert f"sluice quarantine show {TOPIC}:0:70@1" in found.verdict.advice
    assert other.refused == ()
    assert other.verdict.state is TraceState.NOT_CAPTURED


def test_a_refused_message_without_a_key_leaves_a_loss_undecided(traced: TracedLake) -> None:
    refuse(traced, b"{")
    traced.source.put("7", {"id": 7, "name": "x"})

    found = one(traced.trace("7"))

    assert found.verdict.state is TraceState.UNDECIDED
    assert "1 refused messages of the table do not show their keys" in found.verdict.sentence


def test_a_silent_source_hides_no_other_hop(traced: TracedLake) -> None:
    traced.source.silent = True

    found = one(traced.trace("1", wait=LONG))

    assert found.source == Missing("source:s: connection refused")
    assert found.verdict.state is TraceState.UNDECIDED
    assert isinstance(found.mirror, MirrorLook)
    assert found.mirror.row == {"id": 1, "name": "a"}
    assert not isinstance(found.changes, Missing)
    assert len(found.changes) == 1


def test_silent_topics_hide_no_other_hop(
    traced: TracedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> Any:
        raise UnreachableError("Kafka does not answer")

    monkeypatch.setattr(traced.topics, "topics", silent)

    found = one(traced.trace("1"))

    assert found.waiting == Missing("Kafka does not answer")
    assert found.verdict.state is TraceState.MERGED
    assert found.verdict.sentence.endswith("not answered: topic")


def test_unknown_schemas_hide_no_change(traced: TracedLake) -> None:
    def silent() -> Catalog:
        raise UnreachableError("the lake does not answer")

    traced.schemas = silent

    found = one(traced.trace("1"))

    assert found.verdict.state is TraceState.UNDECIDED
    assert not isinstance(found.changes, Missing)
    assert len(found.changes) == 1


def test_an_older_version_of_the_mirror_is_shown(traced: TracedLake) -> None:
    then = traced.lake.now
    traced.lake.play([row(U, 20, 1, "c")])
    traced.source.put("1", {"id": 1, "name": "c"})

    found = one(traced.trace("1", at=then))
    gone = one(traced.trace("1", at=NOW - timedelta(days=1)))

    assert isinstance(found.before, MirrorLook)
    assert found.before.row == {"id": 1, "name": "a"}
    assert found.before.committed is not None
    assert found.before.committed <= then
    assert isinstance(gone.before, Missing)
    assert "begins at version 0" in gone.before.why
    assert gone.verdict.state is TraceState.MERGED


def test_without_a_mirror_a_landed_row_is_not_merged(tmp_path: Path) -> None:
    traced = TracedLake(based(LocalLake(tmp_path)))
    traced.lake.land(row(C, 10, 1, "a"))
    traced.source.put("1", {"id": 1, "name": "a"})

    found = one(traced.trace("1"))

    assert found.verdict.state is TraceState.LANDED_NOT_MERGED, found.verdict


def test_a_search_that_ends_early_says_how_far_it_came(traced: TracedLake) -> None:
    for number in range(3):
        traced.lake.play([row(U, 20 + number, 2, "b")])
    traced.lake.play([row(D, 30, 2, "b")])
    traced.source.put("1", {"id": 1, "name": "x"})

    gone = one(traced.trace("2", budget=timedelta(seconds=-1)))
    traced.lake.play([row(C, 40, 2, "z")])
    known = one(proving(traced).trace("2", wait=LONG, budget=timedelta(seconds=-1)))

    assert gone.verdict.state is TraceState.UNDECIDED
    assert "1 of 5 files, batches from 4 on" in gone.verdict.sentence
    assert known.verdict.state is TraceState.DIFFERENT, "the batch of its row was searched"


def test_a_search_within_its_budget_outlasts_the_other_hops(
    traced: TracedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search takes longer than the patience with the other hops."""
    traced.patience = timedelta(seconds=1)
    search = Lake.key_changes

    def slow(lake: Lake, sought: SoughtKeys) -> KeySearch:
        Event().wait(1.5)
        return search(lake, sought)

    monkeypatch.setattr(Lake, "key_changes", slow)

    found = traced.trace("1", budget=timedelta(minutes=1))

    assert isinstance(found.search, KeySearch), found.search


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param("x", "no value of key column id", id="a text"),
        pytest.param("[null]", "key is id", id="NULL"),
        pytest.param("[1, 2]", "key is id", id="too many values"),
        pytest.param('{"no": 1}', "key is id", id="another column"),
        pytest.param("{", "no JSON object", id="broken JSON"),
    ],
)
def test_a_key_of_another_table_is_refused(traced: TracedLake, key: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        traced.trace(key)
