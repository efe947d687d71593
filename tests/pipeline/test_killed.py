"""The service is killed at each step of landing, applying and upkeep; the next one goes on."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.changelog import maintenance as compaction
from pipeline.delta import maintenance as checkpoints
from pipeline.errors import UnreachableError
from tests.builders.harness import LandingHarness, Server, Topics
from tests.pipeline.delta.disk import Cache, Disk, KilledError
from tests.pipeline.delta.replayed import Replayed
from tests.pipeline.test_lane import Beside

Work = Callable[[Beside], object]
Unsynced = Callable[[bytes], bytes | None]
LONG = pytest.mark.long
THOROUGH = pytest.mark.thorough  # `make check` walks the steps of a kill while landing
TABLE = "db.t"


@dataclass(eq=False)
class Services:
    """Processes, one after the other, over one lake and the topics that outlive them."""

    home: Path
    topics: Topics = field(default_factory=Topics)
    server: Server = field(default_factory=Server)
    sent: int = 0

    def begin(self) -> Beside:
        return Beside(LandingHarness(self.home, self.topics, self.server))

    def send(self, count: int) -> None:
        """That many changes more, of eight rows in turn."""
        for _ in range(count):
            self.topics.put("a", 1_000 + self.sent, f"v{self.sent}", key=self.sent % 8)
            self.sent += 1

    def expected(self) -> dict[int, str]:
        return {number % 8: f"v{number}" for number in range(self.sent)}

    def copied(self, home: Path) -> "Services":
        """The same, on a lake of its own."""
        shutil.copytree(self.home, home)
        topics = Topics({name: [*held] for name, held in self.topics.held.items()})
        return Services(home, topics, self.server, self.sent)


def land_lane(beside: Beside) -> None:
    beside.lane.land(frozenset())


def apply(beside: Beside) -> None:
    beside.apply()
    beside.apply()


def upkeep(beside: Beside) -> None:
    beside.lane.maintain({})
    beside.looks += 60  # a process that began waits a little before it cleans
    beside.lane.maintain({})


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Some batches have landed, and been applied; the next changes wait in Kafka."""
    monkeypatch.setattr(compaction, "TOGETHER", 4)
    monkeypatch.setattr("pipeline.tables.delta.rewrite.TOGETHER", 2)
    monkeypatch.setattr(checkpoints, "EVERY", 3)
    made = Services(tmp_path / "lake")
    made.topics.alter("a", 10, "name", kind="CREATE")
    first = made.begin()
    for _ in range(4):
        made.send(6)
        land_lane(first)
        first.apply()
    made.send(10)
    return made


@pytest.mark.parametrize(
    "unsynced",
    [
        pytest.param(None, id="killed"),
        pytest.param(lambda _: None, id="power off, nothing unsynced is left", marks=LONG),
        pytest.param(
            lambda content: content[: len(content) // 2],
            id="power off, half is left",
            marks=THOROUGH,
        ),
        pytest.param(lambda _: b"", id="power off, names are left", marks=LONG),
        pytest.param(lambda content: bytes(len(content)), id="power off, zeros", marks=LONG),
    ],
)
@pytest.mark.parametrize(
    ("before", "work"),
    [
        pytest.param((), land_lane, id="landing"),
        pytest.param((land_lane,), apply, id="a turn", marks=THOROUGH),
        pytest.param((land_lane, apply), upkeep, id="upkeep", marks=LONG),
    ],
)
def test_whatever_step_a_service_dies_at_the_next_one_goes_on(
    services: Services,
    tmp_path: Path,
    before: tuple[Work, ...],
    work: Work,
    unsynced: Unsynced | None,
) -> None:
    """Of each file and name that was not synced, a power failure leaves what *unsynced* says."""
    for one in before:
        one(services.begin())
    step, disk = 0, Disk()
    while step == 0 or disk.dead:
        step += 1
        lake = services.copied(tmp_path / f"{step}")
        cache = None if unsynced is None else Cache(lake.home, tmp_path / f"{step}.pins")
        disk = Disk(step, cache=cache)
        disk.event = disk.kill
        dies(lake, disk, work)
        if cache is not None and unsynced is not None:
            cache.lose(unsynced)

        goes_on(lake, work)
        shutil.rmtree(lake.home)
    assert step > 10, "it came to its end in the last one"


@THOROUGH
@pytest.mark.parametrize(
    ("before", "work"),
    [
        pytest.param((), land_lane, id="landing"),
        pytest.param((land_lane,), apply, id="a turn"),
        pytest.param((land_lane, apply), upkeep, id="upkeep", marks=LONG),
    ],
)
def test_whatever_step_the_disk_is_full_at_it_goes_on_by_itself_once_there_is_room(
    services: Services, tmp_path: Path, before: tuple[Work, ...], work: Work
) -> None:
    for one in before:
        one(services.begin())
    step, disk = 0, Disk()
    while step == 0 or disk.full:
        step += 1
        lake = services.copied(tmp_path / f"{step}")
        living, disk = lake.begin(), Disk(step)
        disk.event = disk.fill
        with disk.mounted():
            with suppress(UnreachableError):
                work(living)
            refused = {turn.hold.reason for turn in living.turns if turn.hold}
            living.turns.clear()

        assert refused <= {"unreachable"}
        goes_on(lake, work, living)
        shutil.rmtree(lake.home)
    assert step > 10, "it came to its end in the last one"


def dies(lake: Services, disk: Disk, work: Work) -> None:
    """A service does its work on that disk, as far as it comes."""
    dying = lake.begin()
    with disk.mounted(), suppress(KilledError):
        work(dying)


def goes_on(lake: Services, work: Work, living: Beside | None = None) -> None:
    """A new service, or *living*, lands and applies what there is; everything is there once."""
    lake.send(3)
    after = living or lake.begin()
    for then in (land_lane, apply) if work is not upkeep else (upkeep, land_lane, apply):
        then(after)
    sure(lake, after)


def sure(lake: Services, after: Beside) -> None:
    """All that was sent stands in the change log and in the mirror, once."""
    assert [turn.hold for turn in after.turns if turn.hold] == []
    assert [offset for _, _, offset in after.harness.rows("a")] == list(range(lake.sent))
    batches = after.harness.batches()
    assert batches == list(range(len(batches)))
    assert after.rows() == lake.expected()
    for table in (after.harness.settings.changes, after.harness.settings.mirror(TABLE)):
        replayed = Replayed(Path(table))
        assert replayed.missing == []
    assert replayed.rows[-1] == len(lake.expected())
    assert replayed.turns > 0
