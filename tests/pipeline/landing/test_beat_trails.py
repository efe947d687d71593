"""What is looked at of a batch's heartbeats?  The rest: tests/pipeline/reread."""

from collections import UserDict
from collections.abc import ItemsView
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.formats.canal_json import CanalJson
from pipeline.formats.file_rows import FileRows
from pipeline.formats.format import Format
from pipeline.landing.beat_trails import with_beats
from pipeline.mark import Mark
from pipeline.model import Order, Ordering
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
