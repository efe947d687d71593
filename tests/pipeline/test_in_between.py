"""At each step of landing, a turn or upkeep somebody else does something whole in between."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.delta import maintenance
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, UnreachableError
from tests.pipeline.delta.disk import Disk
from tests.pipeline.test_killed import (
    TABLE,
    Services,
    Work,
    apply,
    land_lane,
    services,
    sure,
    upkeep,
)
from tests.pipeline.test_lane import Beside

__all__ = ["services"]


def cleans(beside: Beside) -> None:
    """A checkpoint, log cleaning and a full vacuum of both tables, by deltalake alone."""
    for uri in (beside.harness.settings.changes, beside.harness.settings.mirror(TABLE)):
        maintenance.write_checkpoint(open_store(uri))
        maintenance.clean_log(open_store(uri))
        maintenance.vacuum_files(open_store(uri), timedelta(days=7))


LONG = pytest.mark.long
THOROUGH = pytest.mark.thorough  # `make check` tries a foreign write at each step
CASES = [
    pytest.param((), land_lane, apply, id="a turn while another lands", marks=LONG),
    pytest.param((), land_lane, land_lane, id="two land one lane", marks=THOROUGH),
    pytest.param((land_lane,), apply, land_lane, id="a batch lands during a turn", marks=LONG),
    pytest.param((land_lane,), apply, apply, id="a zombie driver of a turn", marks=THOROUGH),
    pytest.param(
        (land_lane,),
        apply,
        cleans,
        id="checkpoint, cleaning and VACUUM during a turn",
        marks=THOROUGH,
    ),
    pytest.param(
        (), land_lane, cleans, id="checkpoint, cleaning, VACUUM while landing", marks=LONG
    ),
    pytest.param((), land_lane, upkeep, id="upkeep while landing", marks=LONG),
    pytest.param((land_lane,), apply, upkeep, id="upkeep during a turn", marks=LONG),
    pytest.param((land_lane,), upkeep, apply, id="a turn during upkeep", marks=LONG),
    pytest.param((land_lane,), upkeep, land_lane, id="a batch lands during upkeep", marks=LONG),
    pytest.param((land_lane,), upkeep, upkeep, id="two upkeeps", marks=LONG),
]


@pytest.mark.parametrize(("before", "work", "other"), CASES)
def test_whatever_step_another_service_comes_at_everything_is_there_once(
    services: Services, tmp_path: Path, before: tuple[Work, ...], work: Work, other: Work
) -> None:
    for one in before:
        one(services.begin())
    step, came = 0, [True]
    while came:
        step += 1
        lake = services.copied(tmp_path / f"{step}")
        living, second, disk, came = lake.begin(), lake.begin(), Disk(step), []
        disk.event = _coming(came, lambda: other(second))  # noqa: B023 - it is called in this round
        with disk.mounted(), suppress(HeldError, UnreachableError):
            work(living)

        lake.send(3)
        for _ in range(2):  # who lost finds out, and goes on from what is there
            for beside in (living, second):
                beside.looks += 10
                with suppress(HeldError):
                    land_lane(beside)
                apply(beside)
        living.turns.clear()
        land_lane(living)
        apply(living)
        sure(lake, living)
        shutil.rmtree(lake.home)
    assert step > 10, "it came to its end in the last one"


def test_whatever_step_somebody_writes_to_the_mirror_it_is_held_and_never_merged_over(
    services: Services, tmp_path: Path
) -> None:
    land_lane(services.begin())
    step, came = 0, [True]
    while came:
        step += 1
        lake = services.copied(tmp_path / f"{step}")
        mirror = lake.begin().harness.settings.mirror(TABLE)
        living, disk, came = lake.begin(), Disk(step), []
        disk.event = _coming(came, lambda: _foreign(mirror))  # noqa: B023 - as above
        with disk.mounted():
            apply(living)

        if came:
            after = lake.begin()
            lake.send(3)
            land_lane(after)
            after.apply()
            after.apply()
            assert {turn.hold.reason for turn in after.turns if turn.hold} == {"foreign_write"}
        shutil.rmtree(lake.home)
    assert step > 10


def _coming(came: list[bool], does: Callable[[], object]) -> Callable[[], None]:
    def comes() -> None:
        came.append(True)
        does()

    return comes


def _foreign(mirror: str) -> None:
    schema = pa.schema(DeltaTable(mirror).schema().to_arrow())
    write_deltalake(mirror, pa.Table.from_pylist([{"id": 99, "name": "x"}], schema), mode="append")
