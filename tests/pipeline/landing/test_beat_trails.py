"""What is looked at of a batch's heartbeats?  The rest: tests/pipeline/reread."""

from collections import UserDict
from collections.abc import ItemsView
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.formats.canal_json import CanalJson
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import Format
from pipeline.landing.beat_trails import with_beats
from pipeline.mark import Mark
from pipeline.model import Acknowledged, Order, Ordering
from pipeline.sources.mysql.position import binlog_position
from tests.pipeline.landing.desk import Server, Topics
from tests.pipeline.reread.test_bases_without_places import CanalDesk, heartbeat
from tests.pipeline.test_beats import beat

SOURCES = tuple(f"s{n}" for n in range(9))


class Looked(UserDict[str, Order]):
    """How often all that landed was gone through."""

    times = 0

    def items(self) -> ItemsView[str, Order]:
        self.times += 1
        return super().items()


def test_what_landed_is_gone_through_once_however_many_sources_there_are() -> None:
    high = Looked({f"{name}/t:0": Order(1, 0, 2) for name in SOURCES})
    before = Mark("main", 4, high=high)

    made = with_beats(
        Mark("main", 5),
        before,
        {name: (beat(7, 3),) for name in SOURCES},
        dict.fromkeys(SOURCES, Ordering.SEQUENCE),
    )

    assert all(one.clear for one in made.beats.values())
    assert high.times == 1


class OnceJson(CanalJson):
    """Of a log that is never sent again."""

    sent_once: ClassVar[bool] = True


class OnceDesk(CanalDesk):
    """Canal's messages, as if they came once."""

    def format(self, name: str) -> Format:
        return OnceJson("UTC")


@pytest.mark.parametrize(("desk", "once"), [(CanalDesk, False), (OnceDesk, True)])
def test_what_a_format_says_of_its_log_stands_in_the_trail(
    tmp_path: Path, desk: type[CanalDesk], *, once: bool
) -> None:
    made = desk(tmp_path, Topics({"a": [(b"", heartbeat(1))]}), Server())

    made.land()

    assert made.loop.mark.beats["a"].once == once


def test_a_ledger_of_files_never_sends_again() -> None:
    assert FileRows.sent_once


def after(mark: Mark, numbers: list[int], said: int | None) -> Mark:
    """The mark after one more batch, with those heartbeats, and what the collector said by then.

    All that there is of them has landed each time.
    """
    made = replace(mark, batch=mark.batch + 1)
    if said is not None:
        made = replace(made, acknowledged={"a": Acknowledged(binlog_position(1, said))})
    beats = [beat(number, 100 * made.batch + number) for number in numbers]
    made = with_beats(made, mark, {"a": beats}, {"a": Ordering.SEQUENCE})
    return replace(made, beats={"a": replace(made.beats["a"], level=made.batch)})


@pytest.mark.parametrize(
    ("partitions", "over"),
    [
        pytest.param(1, (3, 3, 3, 3, 3), id="all of one partition has come as far"),
        pytest.param(2, (3, 4, 5, 6, 6), id="of several another may be behind"),
    ],
)
def test_what_was_sent_again_is_over_once_it_has_landed_from_all_partitions(
    partitions: int, over: tuple[int, ...]
) -> None:
    high = {f"a/t:{n}": Order(1, 0, 2) for n in range(partitions)}
    mark = Mark("main", -1, high=high)
    for number in (99, 100, 99, 100):
        mark = after(mark, [number], said=1)
    found = [mark.beats["a"].over]

    for beats, said in (([101], 2), ([102], None), ([], 3), ([103], 4)):
        mark = after(mark, beats, said)
        found.append(mark.beats["a"].over)

    assert tuple(found) == over
    assert mark.beats["a"].sure == 6
