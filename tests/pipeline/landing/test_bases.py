from pipeline.landing.bases import advance
from pipeline.landing.facts import Facts, SnapshotRows
from pipeline.mark import Mark, Snap
from pipeline.model import Order

S1, S2 = Order(1, 1, 100), Order(1, 1, 500)
LIVE = {"shop/shop.t:0": Order(1, 1, 900)}
EARLY = {"shop/shop.t:0": Order(1, 1, 50)}


def rows(order: Order, count: int, *, ended: bool) -> Facts:
    return Facts(snapshots={"shop/db.t": SnapshotRows(order, count, ended)})


def live(high: dict[str, Order] = LIVE) -> Facts:
    return Facts(high=high)


def play(*batches: Facts) -> tuple[Mark, list[str]]:
    """Feed batches to a mark; returns it, and what was settled in each, as `batch:pos`."""
    mark, settled = Mark("main", -1), []
    for batch, facts in enumerate(batches):
        snaps, done = advance(mark, facts, batch)
        settled += [f"{batch}:{one.order.pos}" for one in done]
        bases = {**mark.bases, **{one.name: one.order for one in done}}
        high = {**mark.high, **facts.high}
        mark = Mark("main", batch, snaps=snaps, bases=bases, high=high)
    return mark, settled


def test_a_snapshot_is_complete_once_its_end_was_seen_and_the_log_goes_on() -> None:
    _, settled = play(rows(S1, 2, ended=False), rows(S1, 1, ended=True), live())

    assert settled == ["2:100"]


def test_an_end_marker_alone_proves_nothing() -> None:
    """The collector may die in the next table, and snapshot all of them again."""
    mark, settled = play(rows(S1, 3, ended=True))

    assert not settled
    assert mark.snaps["shop/db.t"].ended


def test_a_live_change_from_before_the_snapshot_does_not_end_it() -> None:
    _, settled = play(rows(S1, 3, ended=True), live(EARLY))

    assert not settled


def test_a_snapshot_without_an_end_is_no_base() -> None:
    """Connect was killed inside the table: rows deleted meanwhile would stay for ever."""
    _, settled = play(rows(S1, 3, ended=False), live())

    assert not settled


def test_a_snapshot_begun_again_replaces_the_unfinished_one() -> None:
    _, settled = play(rows(S1, 3, ended=False), rows(S2, 2, ended=True), live())

    assert settled == ["2:500"]


def test_a_single_row_needs_no_end_marker() -> None:
    _, settled = play(rows(S1, 1, ended=False), live())

    assert settled == ["1:100"]


def test_rows_of_a_finished_snapshot_sent_again_open_nothing() -> None:
    mark, settled = play(rows(S1, 2, ended=True), live(), rows(S1, 2, ended=True), live())

    assert settled == ["1:100"]
    assert not mark.snaps


def test_a_snapshot_remembers_the_batch_it_began_in() -> None:
    snaps, _ = advance(Mark("main", 6), rows(S1, 2, ended=False), 7)

    assert snaps == {"shop/db.t": Snap(S1, 7, rows=2)}
