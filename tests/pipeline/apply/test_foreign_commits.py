"""A history is a row of words; what its commits do to a table's files is kept beside it."""

import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.apply.foreign_commits import (
    BEFORE,
    Intrusion,
    KnownVersion,
    accepted_versions,
    find_intrusion,
    waiver_id,
)
from pipeline.apply.mirror import FLOORS, Commit, commit_note, following_note
from pipeline.delta.actions import add_file, remove_file
from pipeline.delta.log import encode_entry, entry_name, shape_of
from pipeline.delta.store import open_store
from pipeline.model import Op
from pipeline.tables.delta.merge import read_commit
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.holds import assert_held

C, U, T = Op.CREATE, Op.UPDATE, Op.TRUNCATE


State = dict[str, str | None]  # path -> vector
SHARED = {"id": "t", "schemaString": "{}"}


@dataclass(eq=False)
class History:
    """Commits as they are told in a log, and what the table was after each.

    ``s`` is Sluice's turn, ``c`` its new columns, ``o`` a foreign OPTIMIZE, ``f`` a foreign DELETE
    of rows, ``d`` and ``u`` foreign columns and remarks, ``n`` a foreign batch number, ``rN``
    RESTORE to version N.
    """

    files: list[State] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    numbered: list[bool] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    def play(self, sheet: str) -> "History":
        for word in sheet.split():
            self.add(word)
        return self

    def add(self, word: str) -> None:
        """The next version."""
        version = len(self.commits)
        before = self.files[-1] if self.files else {}
        columns = self.columns[-1] if self.columns else 0
        after, changed, more = dict(before), word != "o", list[dict[str, Any]]()
        told: dict[str, Any] = {"operation": word}
        if word == "s":
            after |= {f"s{version}": None}
            if before:
                after[next(iter(before))] = f"v{version}"
        elif word == "o":
            after = {f"o{version}": None} if before else {}
        elif word == "f":
            after = {f"f{version}": None} if not before else dict(list(before.items())[1:])
        elif word in ("c", "d"):
            columns = version + 1
        elif word == "n":
            more.append({"txn": {"appId": "sluice:main", "version": 9}})
        elif word[0] == "r":
            after, columns = self.files[int(word[1:])], self.columns[int(word[1:])]
            told = {"operation": "RESTORE", "operationParameters": {"version": word[1:]}}
        if word in ("s", "c"):
            own = {"after": version - 1, "shape": shape_of(_described(self._columns()))}
            told |= {"userMetadata": json.dumps({"sluice": own})}
        if word[0] in "cdur":
            more.append({"metaData": _described(columns, remark=word)})
        lines = [{"commitInfo": told}, *more, *_moves(before, after, changed)]
        self.commits.append(read_commit(version, map(json.dumps, lines)))
        self.files.append(after)
        self.columns.append(columns)
        self.numbered.append(word == "n" or (bool(self.numbered) and self.numbered[-1]))

    def _columns(self) -> int:
        return self.columns[-1] if self.columns else 0


def _described(columns: int, remark: str = "") -> dict[str, Any]:
    own = {"sluice.schemas": str(columns), "delta.appendOnly": remark}
    return {**SHARED, "configuration": own, "description": remark}


def _moves(before: State, after: State, changed: bool) -> Iterator[dict[str, Any]]:
    for kind, some, others in (("remove", before, after), ("add", after, before)):
        for path in [path for path in some if others.get(path, "none") != some[path]]:
            vector = some[path]
            told: dict[str, Any] = {"path": path, "dataChange": changed}
            if vector is not None:
                told["deletionVector"] = {"storageType": "u", "pathOrInlineDv": vector, "offset": 1}
            yield {kind: told}


@pytest.mark.parametrize(
    ("sheet", "expected"),
    [
        pytest.param("s s s", None, id="all ours"),
        pytest.param("s o s", None, id="rearranging is nobody's business"),
        pytest.param("s s f", Intrusion(2, "f", 1), id="a foreign delete"),
        pytest.param("s f f", Intrusion(1, "f", 0), id="the first one counts"),
        pytest.param("s s f r1", None, id="taken back to just before it"),
        pytest.param("s s f r1 s", None, id="and gone on from there"),
        pytest.param("s s f r0", Intrusion(2, "f", 1), id="taken back too far"),
        pytest.param("s s f r0 r1", None, id="and then to where it was"),
        pytest.param("s s f o r1", None, id="optimized in between"),
        pytest.param("s o f r0", Intrusion(2, "f", 1), id="to before what was rearranged"),
        pytest.param("s f s", Intrusion(1, "f", -1), id="ours on top: nothing to go back to"),
        pytest.param("s f s r0", Intrusion(1, "f", -1), id="going back would undo ours"),
        pytest.param("s s r0", Intrusion(2, "RESTORE", 1), id="a restore out of the blue"),
        pytest.param("s s r1", None, id="a restore to what is there"),
        pytest.param("s u s u s", None, id="a remark changes no row"),
        pytest.param("s d", Intrusion(1, "d", 0), id="a dropped column, and no file"),
        pytest.param("s d r0 s", None, id="a dropped column that came back"),
        pytest.param("s c r0", Intrusion(2, "RESTORE", 1), id="our new column taken back"),
        pytest.param("s c r0 r1", None, id="and there again"),
        pytest.param("s c s d r2", None, id="our own shape is no intrusion"),
        pytest.param("s f d r0", None, id="rows and columns taken back together"),
        pytest.param("s n", Intrusion(1, "n", 0), id="a number of ours that is not ours"),
        pytest.param("s n r0", Intrusion(1, "n", 0), id="which no restore takes back"),
        pytest.param("u d u", None, id="before the first of ours"),
    ],
)
def test_who_else_has_written(sheet: str, expected: Intrusion | None) -> None:
    assert find_intrusion(History().play(sheet).commits)[0] == expected


def test_a_restore_that_does_not_do_what_it_says_takes_nothing_back() -> None:
    history = History().play("s s f r1")
    lying = read_commit(3, [json.dumps({"commitInfo": {"operation": "RESTORE"}})])

    found, _ = find_intrusion([*history.commits[:3], lying])

    assert found == Intrusion(2, "f", 1)


def test_a_waived_commit_is_taken_for_ours() -> None:
    assert find_intrusion(History().play("s f s").commits, accepted=frozenset({1}))[0] is None


def test_what_is_known_goes_on_from_look_to_look() -> None:
    history = History().play("s c s s d")
    _, known = find_intrusion(history.commits[:4])

    assert known == KnownVersion(3, shape_of(_described(2)))
    assert find_intrusion(history.commits[4:], known) == (Intrusion(4, "d", 3), known)


def test_whatever_foreign_commits_change_is_seen_and_nothing_else() -> None:
    """In any history, whoever looks when."""
    draws = random.Random(11)
    told = {True: 0, False: 0}
    for _ in range(300):
        history, standing = History().play("s s"), Standing()
        for _ in range(draws.randrange(1, 8)):
            end = len(history.commits)
            words = ["o", "f", "d", "u", "n", *(f"r{draws.randrange(end)}" for _ in range(5))]
            history.add(draws.choice(words if standing.wrong else ["s", "c", *words]))
            standing.judge(history)

        found = _looked(history.commits, draws)

        assert (found is not None) == standing.wrong, [one.operation for one in history.commits]
        told[standing.wrong] += 1
    assert min(told.values()) > 60


@dataclass(eq=False)
class Standing:
    """Whether a history's newest version is what it was before somebody else changed it."""

    wrong: bool = False
    base: object = None

    def judge(self, history: History) -> None:
        """After one more commit."""
        before, now = (
            (history.files[v], history.columns[v], history.numbered[v]) for v in (-2, -1)
        )
        if self.wrong:
            self.wrong = now != self.base
        elif history.commits[-1].operation not in ("s", "c", "o"):
            self.wrong, self.base = now != before, before


def _looked(commits: Sequence[Commit], draws: random.Random) -> Intrusion | None:
    """What some looks come to; while something is wrong, each from the same place on."""
    found, known, at = None, BEFORE, 0
    while at < len(commits):
        at = draws.randrange(at, len(commits)) + 1
        found, known = find_intrusion(commits[known.version + 1 : at], known)
    return found


@pytest.mark.parametrize(
    ("id_", "versions"),
    [
        pytest.param(waiver_id("shop.t", 7), {7}, id="as it is told"),
        pytest.param("foreign_write:shop.t:VERSION", set(), id="as the docs spell it"),
        pytest.param("foreign_write:shop.t:", set(), id="without a version"),
        pytest.param("foreign_write:shop.t:-7", set(), id="below the first version"),
        pytest.param("foreign_write:shop.t:\u00b2", set(), id="a digit that is no number"),
        pytest.param("foreign_write:shop.t2:7", set(), id="another table's"),
        pytest.param("gap-7", set(), id="another kind"),
    ],
)
def test_f19_what_a_waiver_accepts(id_: str, versions: set[int]) -> None:
    assert accepted_versions("shop.t", frozenset({id_})) == versions


Action = Mapping[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    made = LocalLake(tmp_path)
    made.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")], [row(C, 12, 3, "c")])
    return made


def intrude(lake: LocalLake, *actions: Action, operation: str = "WRITE", **told: Any) -> int:
    """Somebody commits *actions*; the version."""
    store = open_store(lake.settings.mirror("db.t"))
    version = lake.snapshot().version + 1
    info = {"timestamp": 1, "operation": operation, **told}
    store.put_new(entry_name(version), encode_entry([{"commitInfo": info}, *actions]))
    return version


def deleted(lake: LocalLake) -> Action:
    """The removal of some rows."""
    first, *_ = lake.snapshot().files.values()
    return remove_file(first, at=NOW)


def metadata_of(lake: LocalLake, **properties: str) -> Action:
    """Columns as they are, and *properties* (``_`` is a dot)."""
    known = lake.snapshot().metadata.action
    told = {name.replace("_", "."): value for name, value in properties.items()}
    return {"metaData": {**known, "configuration": {**known["configuration"], **told}}}


def without(lake: LocalLake, column: str) -> Action:
    """A column dropped, as Delta does it where columns are mapped: by its metadata alone."""
    known = lake.snapshot().metadata.action
    struct = json.loads(known["schemaString"])
    struct["fields"] = [one for one in struct["fields"] if one["name"] != column]
    return {"metaData": {**known, "schemaString": json.dumps(struct)}}


def hold_id(lake: LocalLake) -> str | None:
    lake.land(row(U, lake.checkpoint.batch + 100, 1, "z"))
    hold = lake.apply().hold
    return None if hold is None else hold.id


@pytest.mark.parametrize("restarted", [False, True])
def test_a_column_dropped_without_a_file_is_seen(lake: LocalLake, restarted: bool) -> None:
    """Or it would be added again, empty, and nobody would know of the values that went."""
    version = intrude(lake, without(lake, "name"), operation="DROP COLUMNS")
    if restarted:
        lake.reopen()

    assert hold_id(lake) == f"foreign_write:db.t:{version}"


def test_a_restore_of_what_sluice_remembers_is_seen_though_no_row_changes(tmp_path: Path) -> None:
    """A forgotten truncate lets older rows in."""
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(T, 20, None)])
    before = lake.snapshot()
    lake.play([row(T, 30, None)])
    assert before.metadata.configuration[FLOORS] != lake.snapshot().metadata.configuration[FLOORS]
    path = lake.settings.mirror("db.t")

    DeltaTable(path).restore(before.version)

    assert hold_id(lake) == f"foreign_write:db.t:{before.version + 2}"
    DeltaTable(path).restore(before.version + 1)
    assert lake.apply().hold is None


def test_a_batch_number_that_somebody_else_set_is_seen(lake: LocalLake) -> None:
    """Or batches up to it would never be applied."""
    version = intrude(lake, {"txn": {"appId": "sluice:main", "version": 2, "lastUpdated": 1}})
    lake.land(row(U, 90, 1, "y"))

    assert hold_id(lake) == f"foreign_write:db.t:{version}"


@pytest.mark.parametrize("restarted", [False, True])
def test_what_changes_no_row_holds_nothing(lake: LocalLake, restarted: bool) -> None:
    intrude(lake, metadata_of(lake, delta_logRetentionDuration="interval 60 days"))
    intrude(lake, operation="VACUUM START")
    intrude(lake, {"txn": {"appId": "somebody", "version": 2, "lastUpdated": 1}})
    DeltaTable(lake.settings.mirror("db.t")).restore(lake.snapshot().version - 1)
    if restarted:
        lake.reopen()

    assert hold_id(lake) is None
    assert lake.rows() == {1: "z", 2: "b", 3: "c"}


def test_nobody_comes_between_the_look_and_the_turn(tmp_path: Path) -> None:
    """Whoever does is not merged over, or the next process would not look below our turn."""
    step, came = 0, True
    while came:
        step += 1
        lake = LocalLake(tmp_path / str(step))
        lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
        lake.land(row(U, 20, 1, "z"))
        clock = Intruder(lake, step)
        lake.runner.clock = clock

        lake.apply()

        came = clock.came
        lake.reopen()
        assert (hold_id(lake) is not None) == came, step
        shutil.rmtree(lake.home)
    assert step > 4


class Intruder:
    """A clock at whose *n*-th reading somebody deletes rows."""

    def __init__(self, lake: LocalLake, n: int) -> None:
        self.lake, self.left, self.came = lake, n, False

    def __call__(self) -> datetime:
        self.left -= 1
        if self.left == 0:
            intrude(self.lake, deleted(self.lake), operation="DELETE")
            self.came = True
        return self.lake.now


def test_a_turn_that_spark_put_on_top_of_somebody_else_is_seen_by_the_next_process(
    lake: LocalLake,
) -> None:
    """Spark goes over another's commit where the two do not conflict."""
    seen = lake.snapshot().version
    version = intrude(lake, deleted(lake), operation="DELETE")
    own = commit_note(seen, 1, "main", account={"read": 0, "applied": 0, "noop": 0})
    intrude(lake, operation="MERGE", userMetadata=json.dumps(own))
    lake.reopen()

    assert hold_id(lake) == f"foreign_write:db.t:{version}"


def test_a_log_taken_back_and_gone_on_by_somebody_else_is_looked_at_again(lake: LocalLake) -> None:
    """As from a backup: the foreign commit has the number of one of ours, which is gone."""
    mirror, newest = Path(lake.settings.mirror("db.t")), lake.snapshot().version
    (mirror / entry_name(newest)).unlink()

    assert intrude(lake, deleted(lake), operation="DELETE") == newest

    assert hold_id(lake) == f"foreign_write:db.t:{newest}"


def test_commits_that_were_cleaned_away_unread_are_not_taken_for_ours(lake: LocalLake) -> None:
    version = intrude(lake, deleted(lake), operation="DELETE")
    intrude(lake, operation="VACUUM START")
    table = DeltaTable(lake.settings.mirror("db.t"))
    table.create_checkpoint()
    for gone in range(version + 1):
        (Path(lake.settings.mirror("db.t")) / entry_name(gone)).unlink()

    assert hold_id(lake) == f"foreign_write:db.t:{version}"
    assert lake.apply(waived=[f"foreign_write:db.t:{version}"]).hold is None


def moved(lake: LocalLake, *, lost: int) -> list[Action]:
    """A file whose rows, but for some of them, are said to be only moved to another."""
    (first,) = lake.snapshot().files.values()
    other = f"moved-{lake.snapshot().version}.parquet"
    mirror = Path(lake.settings.mirror("db.t"))
    kept = pq.read_table(mirror / first.path)
    pq.write_table(kept.slice(lost), mirror / other)
    size, told = (mirror / other).stat().st_size, {"numRecords": len(kept) - lost}
    came = add_file(other, size=size, at=NOW, stats=told, data_change=False)
    return [remove_file(first, at=NOW, data_change=False), came]


@pytest.mark.parametrize("restarted", [False, True])
def test_who_says_that_rows_were_only_moved_is_believed_if_all_are_there(
    tmp_path: Path, restarted: bool
) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    intrude(lake, *moved(lake, lost=0), operation="OPTIMIZE")
    if restarted:
        lake.reopen()

    assert hold_id(lake) is None
    assert lake.rows() == {1: "z", 2: "b"}


@pytest.mark.parametrize("restarted", [False, True])
def test_who_says_that_rows_were_only_moved_and_lost_one_is_not_believed(
    tmp_path: Path, restarted: bool
) -> None:
    """As by a job that writes with `dataChange` off, and filters."""
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    before = lake.snapshot().version
    intrude(lake, *moved(lake, lost=0), operation="OPTIMIZE")
    intrude(lake, *moved(lake, lost=1), operation="OPTIMIZE")
    if restarted:
        lake.reopen()

    assert hold_id(lake) == f"foreign_write:db.t:{before + 1}"
    lake.reopen()
    assert hold_id(lake) == f"foreign_write:db.t:{before + 1}"
    DeltaTable(lake.settings.mirror("db.t")).restore(before)
    assert lake.apply().hold is None
    assert lake.rows() == {1: "z", 2: "b"}


def test_rows_that_a_person_let_go_are_missed_no_more(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    version = intrude(lake, *moved(lake, lost=1), operation="OPTIMIZE")
    waived = f"foreign_write:db.t:{version}"
    assert hold_id(lake) == waived

    assert lake.apply(waived=[waived]).hold is None

    lake.reopen()
    assert hold_id(lake) is None


def cleaned(lake: LocalLake, until: int) -> None:
    """The log begins with a checkpoint of its newest version, and entries from *until* on."""
    mirror = lake.settings.mirror("db.t")
    DeltaTable(mirror).create_checkpoint()
    for gone in range(until):
        (Path(mirror) / entry_name(gone)).unlink()


def test_a_process_that_cannot_look_at_what_was_cleaned_away_says_so(lake: LocalLake) -> None:
    """Somebody deletes while the service is down, and his checkpoint cleans the log."""
    version = intrude(lake, deleted(lake), operation="DELETE")
    last = intrude(lake, operation="VACUUM START")
    cleaned(lake, last)
    lake.reopen()

    assert hold_id(lake) == "foreign_write:db.t:0"
    hold = lake.apply().hold
    assert hold is not None
    assert f"versions 0 to {version}" in hold.detail
    assert lake.apply(waived=["foreign_write:db.t:0"]).hold is None
    lake.reopen()
    assert hold_id(lake) is None, "a turn was put on top of it"


def test_a_mirror_that_rested_until_its_turns_were_cleaned_away_goes_on(lake: LocalLake) -> None:
    """The newest commit is of upkeep, which looked before it wrote."""
    seen = lake.snapshot().version
    own = following_note(lake.snapshot(), -1, "main")
    newest = intrude(lake, operation="SET TBLPROPERTIES", userMetadata=json.dumps(own))
    assert newest == seen + 1
    cleaned(lake, newest)
    lake.reopen()

    assert hold_id(lake) is None


def test_a_mirror_that_stands_still_is_judged_once_however_many_passes(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    intrude(lake, deleted(lake))
    held = hold_id(lake)
    read: list[int] = []
    commits = lake.runner.mirrors.commits

    def counted(table: str, until: int) -> Iterator[Commit]:
        for one in commits(table, until):
            read.append(one.version)
            yield one

    monkeypatch.setattr(lake.runner.mirrors, "commits", counted)

    again = [lake.apply().hold for _ in range(3)]

    assert held is not None
    assert {hold and hold.id for hold in again} == {held}
    assert read == []


def test_what_is_found_later_of_a_mirror_that_stands_still_is_judged(lake: LocalLake) -> None:
    """The rows come back by one commit, and go again by the next."""
    gone = deleted(lake)
    (back,) = (
        file for file in lake.snapshot().files.values() if file.path == gone["remove"]["path"]
    )
    intrude(lake, gone)
    assert hold_id(lake) is not None

    intrude(lake, {"add": dict(back.action)})

    assert lake.apply().hold is None


@pytest.fixture
def rebuilt(tmp_path: Path) -> LocalLake:
    """Six versions, moved away under the eyes of a running lane, and grown again in one or two."""
    lake = LocalLake(tmp_path)
    for number in range(5):
        lake.play([row(C, 10 + number, number, "a")])
    mirror = Path(lake.settings.mirror("db.t"))
    mirror.rename(mirror.with_name("old"))
    told = [turn for _ in range(4) for turn in lake.run()]
    assert_held(told[0].hold, "table_replaced")
    return lake


def test_a_mirror_that_was_moved_away_is_held_once_and_grows_anew(rebuilt: LocalLake) -> None:
    assert rebuilt.rows() == dict.fromkeys(range(5), "a")
    assert rebuilt.play([row(U, 50, 0, "b")]) == {**dict.fromkeys(range(5), "a"), 0: "b"}


def test_f02_a_foreign_write_to_a_mirror_made_anew_is_found_at_once(rebuilt: LocalLake) -> None:
    """Though its version lies below those of the mirror before, which were known to be ours."""
    path = rebuilt.settings.mirror("db.t")
    columns = pa.schema(DeltaTable(path).schema().to_arrow())
    alien = {"id": 99, "name": "alien", "_sluice": None}
    write_deltalake(path, pa.Table.from_pylist([alien], columns), mode="append")
    rebuilt.land(row(U, 60, 1, "c"))

    held = rebuilt.apply().hold

    assert_held(held, "foreign_write")
