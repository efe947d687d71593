"""pipeline/reread/readers.py: which places rows may be read behind, and of which server."""

from pathlib import Path

import pytest

from pipeline.errors import ProofError
from pipeline.mark import Epoch, Mark
from pipeline.model import Head
from pipeline.reread.readers import RowReaders
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.row_reader import ReadFence
from tests.pipeline.landing.desk import Desk
from tests.pipeline.reread.test_bootstrap import Rows, begun

LANDED = Mark("main", 5, epochs={"a": Epoch(1, "server", binlog_position(7, 900))})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return begun(tmp_path)


@pytest.fixture
def rows() -> Rows:
    return Rows(50)


@pytest.fixture
def readers(desk: Desk, rows: Rows) -> RowReaders:
    return RowReaders(desk.loop.feeds, rows, lambda: desk.now)


def test_f113_the_fence_of_another_server_is_refused(readers: RowReaders, rows: Rows) -> None:
    assert readers.fence("a", LANDED, "server").head.identity == "server"
    rows.identity = "other"

    with pytest.raises(ProofError) as refused:
        readers.fence("a", LANDED, "server")

    assert str(refused.value) == "source:a: the server has changed; a new epoch begins"


def fence_at(pos: int) -> ReadFence:
    head = binlog_position(7, pos)
    return ReadFence(Head("server", head), 1, head)


@pytest.mark.parametrize(
    ("end", "before", "why"),
    [
        pytest.param(100, None, "from 7/900 to 7/110", id="landing saw it further"),
        pytest.param(2_000, fence_at(2_500), "from 7/2500 to 7/2010", id="a fence was further"),
    ],
)
def test_f113_a_log_that_went_back_under_the_same_name_is_refused(
    readers: RowReaders, end: int, before: ReadFence | None, why: str
) -> None:
    assert isinstance(readers.open_rows, Rows)
    readers.open_rows.end = end

    with pytest.raises(ProofError) as refused:
        readers.fence("a", LANDED, "server", before)

    assert str(refused.value) == (
        f"source:a: the server has changed: log went back {why}; a new epoch begins"
    )


def test_f113_a_log_that_goes_on_behind_the_fence_before_is_read(readers: RowReaders) -> None:
    fence = readers.fence("a", LANDED, "server", fence_at(1_000))

    assert fence.head.position == binlog_position(7, 1_010)


def test_f113_a_fence_is_a_heartbeat_above_all_that_have_landed(
    desk: Desk, readers: RowReaders
) -> None:
    before = readers.fence("a", desk.loop.mark, "server").number
    desk.topics.beat("a", 41, pos=700)
    desk.land()

    after = readers.fence("a", desk.loop.mark, "server").number

    assert (before, after) == (0, 42)
