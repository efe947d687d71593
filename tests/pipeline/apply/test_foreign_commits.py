"""A history is a row of words; what its commits do to a table's files is kept beside it."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.apply.foreign_commits import (
    BEFORE,
    Intrusion,
    KnownVersion,
    accepted_versions,
    find_intrusion,
    waiver_id,
)
from pipeline.apply.mirror import Commit
from pipeline.delta.log import shape_of
from pipeline.tables.delta.merge import read_commit

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
