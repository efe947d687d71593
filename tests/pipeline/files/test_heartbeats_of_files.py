"""A heartbeat stands behind every row that lay there when it was requested."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.files.content import FaultHead, HeartbeatHead
from pipeline.files.ledger import TakenFile
from tests.pipeline.files.folder import LogFolder

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "late", "grow", "rename", "restart", "sweep", "beat"]),
        st.integers(0, 9),
    ),
    max_size=30,
)


@dataclass(eq=False)
class Written:
    """What somebody writes, by its first name, and what lay there as each beat was asked for."""

    folder: LogFolder
    paths: dict[int, Path] = field(default_factory=dict)
    names: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    lines: dict[int, int] = field(default_factory=dict)
    asked: list[dict[int, int]] = field(default_factory=list)

    def play(self, number: int, step: str, which: int) -> None:
        at = list(self.paths)[which % len(self.paths)] if self.paths else number
        match step:
            case "new" | "late":
                day = "2026_11_22" if step == "late" else "2026_11_23"
                hour = day, f"{number % 10 if step == 'new' else 20:02}"  # most rest alone
                text = b'{"id": %d}\n' % number
                self._is(number, self.folder.write(f"{number}.json", text, hour=hour), 1)
            case "grow" if self.paths:
                with self.paths[at].open("ab") as file:
                    file.write(b'{"id": 0}\n')
                self.lines[at] += 1
            case "rename" if self.paths:
                self._is(at, self.paths[at].rename(self.paths[at].with_name(f"r{number}.json")), 0)
            case "restart":
                self.folder.again()
            case "sweep":
                self.folder.sweep(1, timedelta(seconds=3 * which))
            case "beat":
                self.folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")
                self.asked.append(dict(self.lines))

    def _is(self, at: int, path: Path, more: int) -> None:
        self.paths[at] = path
        self.names[at].add(path.name)
        self.lines[at] = self.lines.get(at, 0) + more


GROWN = [("grow", 0), ("beat", 0), ("sweep", 1), ("sweep", 1)]


@settings(max_examples=60)
@example(GROWN, 5, timedelta(seconds=40))
@given(STEPS, st.integers(0, 9), st.sampled_from([timedelta(), timedelta(seconds=40)]))
def test_no_beat_stands_before_a_row_that_lay_there_unless_its_file_is_told(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    early: int,
    deep: timedelta,
) -> None:
    with LogFolder(tmp_path_factory.mktemp("law"), deep=deep) as folder:
        written = Written(folder)
        for number, (step, which) in enumerate([("new", 0), *[("sweep", 4)] * early, *steps]):
            written.play(number, step, which)
        folder.sweep(12, timedelta(seconds=61))

        assert passed(folder, written) == len(written.asked)


def test_a_beat_does_not_wait_for_a_look_at_hours_that_were_left(tmp_path: Path) -> None:
    with LogFolder(tmp_path, budget=timedelta()) as folder:  # one step a question
        for hour in range(10):
            folder.write("old.json", b"", hour=("2026_11_20", f"{hour:02}"))
        folder.ledger.write_heartbeat(0, "sluice.heartbeat", "logs")
        while not folder.entries():
            assert folder.process.advance()

        assert [type(one.what) for one in folder.entries()] == [HeartbeatHead]
        assert folder.ledger.left("clicks/2026_11_20/09") is None


def passed(folder: LogFolder, written: Written) -> int:
    """How many beats stand there, each behind what it must stand behind."""
    rows, told, count = defaultdict[str, int](int), set[str](), 0
    for entry in folder.entries():
        match entry.what:
            case TakenFile():
                rows[Path(entry.what.path).name] += entry.what.rows
            case FaultHead():
                told.add(Path(entry.what.file).name)
            case HeartbeatHead(n=n):
                count += 1
                for at, lines in written.asked[n].items():
                    names = written.names[at]
                    assert sum(rows[name] for name in names) >= lines or told & names
    return count
