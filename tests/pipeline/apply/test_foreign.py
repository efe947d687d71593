from datetime import UTC, datetime

import pytest

from pipeline.apply.foreign import Intrusion, accepted, find, waiver
from pipeline.apply.mirrors import note
from pipeline.lake.commits import Commit

AT = datetime(2026, 1, 2, tzinfo=UTC)


def entry(version: int, word: str) -> Commit:
    """`s` Sluice's, `o` optimize, `f` foreign, `rN` restored to version N."""
    if word == "s":
        own = note(version - 1, version, "main")
        return Commit(version, "MERGE", AT, data_changing=True, note=own)
    if word == "o":
        return Commit(version, "OPTIMIZE", AT)
    if word == "f":
        return Commit(version, "DELETE", AT, data_changing=True)
    back = {"version": word[1:]}
    return Commit(version, "RESTORE", AT, data_changing=True, parameters=back)


@pytest.mark.parametrize(
    ("sheet", "expected"),
    [
        pytest.param("s s s", None, id="all ours"),
        pytest.param("s o s", None, id="rearranging is nobody's business"),
        pytest.param("s s f", Intrusion(2, "DELETE", 1), id="a foreign delete"),
        pytest.param("s f f", Intrusion(1, "DELETE", 0), id="the first one counts"),
        pytest.param("s s f r1", None, id="taken back to just before it"),
        pytest.param("s s f r1 s", None, id="and gone on from there"),
        pytest.param("s s f r0", Intrusion(2, "DELETE", 1), id="taken back too far"),
        pytest.param("s s f o r1", None, id="optimized in between"),
        pytest.param("s f s", Intrusion(1, "DELETE", -1), id="ours on top: nothing to go back to"),
        pytest.param("s f s r0", Intrusion(1, "DELETE", -1), id="going back would undo ours"),
        pytest.param("s r0", Intrusion(1, "RESTORE", 0), id="a restore out of the blue"),
    ],
)
def test_who_else_has_written(sheet: str, expected: Intrusion | None) -> None:
    commits = [entry(version, word) for version, word in enumerate(sheet.split())]

    assert find(commits) == expected


def test_a_waived_commit_is_taken_for_ours() -> None:
    commits = [entry(version, word) for version, word in enumerate("sfs")]

    assert find(commits, accepted=frozenset({1})) is None


@pytest.mark.parametrize(
    ("id_", "versions"),
    [
        pytest.param(waiver("shop.t", 7), {7}, id="as it is told"),
        pytest.param("foreign_write:shop.t:VERSION", set(), id="as the docs spell it"),
        pytest.param("foreign_write:shop.t:", set(), id="without a version"),
        pytest.param("foreign_write:shop.t:-7", set(), id="below the first version"),
        pytest.param("foreign_write:shop.t:\u00b2", set(), id="a digit that is no number"),
        pytest.param("foreign_write:shop.t2:7", set(), id="another table's"),
        pytest.param("gap-7", set(), id="another kind"),
    ],
)
def test_f19_what_a_waiver_accepts(id_: str, versions: set[int]) -> None:
    assert accepted("shop.t", frozenset({id_})) == versions
