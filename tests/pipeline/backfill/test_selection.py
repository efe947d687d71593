"""Selected rows of a shard: their limit, and their ids in the mirror."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from pipeline.apply.mirror import MirrorSide
from pipeline.backfill.dry_run import MirrorIds
from pipeline.backfill.runner import ANEW, begun_anew, require_few_beginnings
from pipeline.backfill.task import StretchRows, find_key_ranges, require_few, stretch_rows
from pipeline.backfill_state import (
    Backfill,
    BackfillRequest,
    KeyRange,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError, ProofError
from pipeline.model import Order, Origin, Shard, Table
from pipeline.sources.row_reader import KeyTexts

SHARD, OTHER = Shard("a", "db.t"), Shard("b", "db.t")
TABLE = Table("db.t", (SHARD, OTHER), ("id",), "id")


def wish(rows: RowSelection, id_: str = "x") -> BackfillRequest:
    return BackfillRequest(id_, "db.t", Origin.REPAIR, rows)


def nowhere() -> Sequence[KeyTexts]:
    raise AssertionError("named rows need no bounds")


RANGES = (SelectedRange(3, 8), SelectedRange(20, 29, "b/db.t"), SelectedRange(40, 40, "a/db.t"))
KEYS = (SelectedKey('["7"]'), SelectedKey('["8"]', "b/db.t"), SelectedKey('["9"]', "a/db.t"))


def test_f113_a_whole_shard_is_cut_along_its_key_without_a_hole() -> None:
    cut = find_key_ranges(BackfillRequest("x", "db.t"), SHARD, TABLE, lambda: (("10",), ("20",)))
    whole = find_key_ranges(
        BackfillRequest("x", "db.t"), SHARD, replace(TABLE, id_column=None), tuple
    )

    assert cut == (
        KeyRange(("10",), None),
        KeyRange(("20",), ("10",)),
        KeyRange(None, ("20",)),
    )
    assert whole == (KeyRange(),)
    assert stretch_rows(BackfillRequest("x", "db.t"), SHARD, 1) == StretchRows()


@pytest.mark.parametrize(
    ("rows", "cut", "asked"),
    [
        pytest.param(
            RowSelection(ranges=RANGES),
            (KeyRange(("8",), ("2",)), KeyRange(("40",), ("39",))),
            (StretchRows(span=(3, 8)), StretchRows(span=(40, 40))),
            id="ranges",
        ),
        pytest.param(
            RowSelection(keys=KEYS),
            (KeyRange(),),
            (StretchRows(keys=('["7"]', '["9"]')),),
            id="keys",
        ),
        pytest.param(
            RowSelection(keys=KEYS, ranges=RANGES[:1]),
            (KeyRange(("8",), ("2",)), KeyRange()),
            (StretchRows(span=(3, 8)), StretchRows(keys=('["7"]', '["9"]'))),
            id="both",
        ),
        pytest.param(
            RowSelection(keys=KEYS[1:2], ranges=RANGES[1:2]), (), (), id="another shard's"
        ),
    ],
)
def test_f113_named_rows_are_read_in_a_stretch_a_range_and_one_of_all_keys(
    rows: RowSelection, cut: tuple[KeyRange, ...], asked: tuple[StretchRows, ...]
) -> None:
    found = find_key_ranges(wish(rows), SHARD, TABLE, nowhere)

    assert found == cut
    assert tuple(stretch_rows(wish(rows), SHARD, at) for at in range(len(cut))) == asked


@pytest.mark.parametrize(
    ("table", "fits"),
    [
        pytest.param(TABLE, True, id="one integer"),
        pytest.param(replace(TABLE, id_column=None), False, id="one that is none"),
        pytest.param(replace(TABLE, key=("day", "id")), False, id="two columns"),
        pytest.param(replace(TABLE, key=(), id_column=None), False, id="no key"),
    ],
)
def test_f113_ranges_are_of_one_integer_and_keys_of_any(table: Table, *, fits: bool) -> None:
    assert find_key_ranges(wish(RowSelection(keys=KEYS)), SHARD, table, nowhere)
    ranged = wish(RowSelection(ranges=RANGES))
    if fits:
        assert find_key_ranges(ranged, SHARD, table, nowhere)
        return
    with pytest.raises(ConfigError, match=r"db\.t is not one integer column, .* \(--keys\)"):
        find_key_ranges(ranged, SHARD, table, nowhere)


@pytest.mark.parametrize(
    ("most", "rows", "refused"), [(None, 10**9, False), (5, 5, False), (5, 6, True), (0, 1, True)]
)
def test_f113_as_many_rows_are_read_as_were_allowed_and_no_more(
    most: int | None, rows: int, *, refused: bool
) -> None:
    wished = wish(RowSelection(most=most))
    if not refused:
        require_few(wished, rows)
        return
    with pytest.raises(
        ConfigError, match=rf"at least {rows} rows of db\.t, more than --most {most}"
    ):
        require_few(wished, rows)


KNOWN = Backfill(
    "", Origin.SNAPSHOT, Order(1, 7, 1), "server", 6, former="x", void="it was altered"
)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        pytest.param(None, "", id="never"),
        pytest.param(replace(KNOWN, begun=ANEW - 1), "", id="not that often"),
        pytest.param(
            replace(KNOWN, begun=ANEW), "db.t was started 10 times and never ended", id="too often"
        ),
        pytest.param(replace(KNOWN, begun=ANEW + 1), "started 11 times", id="more often"),
        pytest.param(replace(KNOWN, begun=ANEW, former="y"), "", id="for another wish"),
    ],
)
def test_f113_what_is_begun_ten_times_is_refused(known: Backfill | None, why: str) -> None:
    try:
        require_few_beginnings(wish(RowSelection()), SHARD, known)
        said = ""
    except ConfigError as error:
        said = str(error)

    assert why in said
    assert bool(said) == bool(why)
    assert ("last cause: it was altered; request it again" in said) == bool(why)


def test_f113_how_often_it_was_begun_is_told_while_it_is_read() -> None:
    told = [begun_anew(replace(KNOWN, begun=count)) for count in (1, 2)]

    assert told == ["", "it was started 2 times; last cause: it was altered"]
    assert begun_anew(replace(KNOWN, begun=2, done=9)) == ""


@dataclass(eq=False)
class Held:
    """A mirror of some ids, merged through ``batch``; notes what it is asked for."""

    ids_: tuple[int, ...] = (3, 5, 8)
    batch: int = 9
    asked: list[tuple[Shard, str, tuple[int, int], int]] = field(default_factory=list)

    def ids(self, shard: Shard, column: str, span: tuple[int, int], limit: int) -> tuple[int, ...]:
        self.asked.append((shard, column, span, limit))
        return self.ids_


def checkpoint_at(last: int | None = 4) -> Checkpoint:
    return Checkpoint("main", 9, tables={} if last is None else {"db.t": last})


FENCE, NEXT = Order(1, 7, 500), Order(1, 7, 600)
ANY = wish(RowSelection(ranges=RANGES))


def asking(held: Held | None) -> MirrorIds:
    return MirrorIds(lambda _: cast("MirrorSide | None", held))


def test_f113_a_mirror_is_asked_once_for_each_range_of_a_wish_with_both_ends_in() -> None:
    held = Held()
    ids = asking(held)
    few = wish(RowSelection(ranges=RANGES, most=7), "few")

    found = [
        ids.of(one, SHARD, TABLE, span, checkpoint_at(), fence=FENCE)
        for one, span in ((ANY, (3, 8)), (ANY, (3, 8)), (ANY, (20, 29)), (few, (3, 8)))
    ]

    assert found == [(3, 5, 8)] * 4
    assert held.asked == [
        (SHARD, "id", (3, 9), 1_000_001),
        (SHARD, "id", (20, 30), 1_000_001),
        (SHARD, "id", (3, 9), 8),
    ]


@pytest.mark.parametrize(
    ("held", "last", "why"),
    [
        pytest.param(Held(batch=4), 4, "", id="it has all of them"),
        pytest.param(Held(batch=3), 4, "merged through batch 3, and must reach 4", id="behind"),
        pytest.param(None, 4, "merged through batch -1, and must reach 4", id="not there yet"),
        pytest.param(None, 0, "merged through batch -1, and must reach 0", id="of the first batch"),
        pytest.param(None, None, "", id="of a table that never changed"),
        pytest.param(Held(batch=-1), None, "", id="merged through nothing"),
    ],
)
def test_f113_a_mirror_that_lacks_what_had_landed_is_waited_for(
    held: Held | None, last: int | None, why: str
) -> None:
    try:
        found, said = (
            asking(held).of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(last), fence=FENCE),
            "",
        )
    except ProofError as error:
        found, said = (), str(error)

    assert found == ((3, 5, 8) if held is not None and not why else ())
    assert why in said
    assert bool(said) == bool(why)


def test_f113_a_mirror_is_waited_for_up_to_what_had_landed_when_it_was_first_asked() -> None:
    held = Held(batch=3)
    ids = asking(held)
    for last in (4, 6):
        with pytest.raises(ProofError, match="must reach 4 first"):
            ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(last), fence=FENCE)
    held.batch = 4
    assert ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(6), fence=FENCE)

    with pytest.raises(ProofError, match="must reach 6 first"):
        ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(6), fence=NEXT)
    with pytest.raises(ProofError, match="must reach 6 first"):
        ids.of(ANY, OTHER, TABLE, (3, 8), checkpoint_at(6), fence=FENCE)
    ids.keep(frozenset({"y"}))
    with pytest.raises(ProofError, match="must reach 6 first"):
        ids.of(ANY, SHARD, TABLE, (20, 29), checkpoint_at(6), fence=FENCE)


def test_f113_who_waits_for_a_mirror_still_is_not_put_off_by_what_lands_meanwhile() -> None:
    held = Held(batch=3)
    ids = asking(held)
    with pytest.raises(ProofError, match="must reach 4 first"):
        ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(4), fence=FENCE)
    held.batch = 4

    ids.keep(frozenset({ANY.id}))

    assert ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(6), fence=FENCE) == (3, 5, 8)


def test_f113_ids_of_all_ranges_and_shards_of_a_wish_count() -> None:
    ids, few = asking(Held()), wish(RowSelection(ranges=RANGES, most=6), "few")
    ids.of(
        ANY, SHARD, TABLE, (3, 8), checkpoint_at(), fence=FENCE
    )  # another wish's count for that one
    ids.of(few, SHARD, TABLE, (3, 8), checkpoint_at(), fence=FENCE)
    ids.of(few, OTHER, TABLE, (3, 8), checkpoint_at(), fence=FENCE)

    with pytest.raises(ConfigError, match="at least 9 rows"):
        ids.of(few, SHARD, TABLE, (20, 29), checkpoint_at(), fence=FENCE)


def test_f113_what_begins_anew_counts_once_and_others_stay_known() -> None:
    held, few = Held(), wish(RowSelection(ranges=RANGES, most=6), "few")
    ids = asking(held)
    for shard, fence in ((SHARD, FENCE), (OTHER, FENCE), (SHARD, NEXT)):
        ids.of(few, shard, TABLE, (3, 8), checkpoint_at(), fence=fence)
    ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(), fence=FENCE)
    count = len(held.asked)

    ids.of(few, OTHER, TABLE, (3, 8), checkpoint_at(), fence=FENCE)
    ids.of(few, SHARD, TABLE, (3, 8), checkpoint_at(), fence=NEXT)
    assert len(held.asked) == count
    ids.keep(frozenset({"few"}))
    ids.of(few, OTHER, TABLE, (3, 8), checkpoint_at(), fence=FENCE)
    assert len(held.asked) == count
    ids.of(ANY, SHARD, TABLE, (3, 8), checkpoint_at(), fence=FENCE)
    assert len(held.asked) == count + 1
