"""Many that want the same version of a table, each in a process of its own."""

import json
import subprocess
import sys
from typing import Any

from pipeline.delta.log import load_snapshot
from pipeline.errors import LostRaceError
from tests.pipeline.delta.tables import Writer, numbers

RACER = "from tests.pipeline.delta.racer import race; race()"


def races(table: str, racers: int, rounds: int) -> list[dict[str, Any]]:
    """Let so many go at once, each for as many versions; what each says it won and lost."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, table, str(rounds), str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(racers)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [one.communicate(timeout=500)[0] for one in running]
    assert [one.returncode for one in running] == [0] * racers
    return [json.loads(each) for each in told]


def race() -> None:
    """Win as many versions of a table as asked, once told to go; print what was won."""
    folder, rounds, me = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    writer = Writer.open(folder)
    won: list[tuple[int, str | None]] = []
    lost = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(rounds):
        add = writer.file(numbers(me * rounds + number, me * rounds + number + 1))
        while len(won) == number:
            try:
                writer.commit([add], txn=(f"racer:{me}", number))
                won.append((writer.snapshot.version, writer.snapshot.commit_id))
            except LostRaceError:
                lost += 1
                newer = load_snapshot(writer.store, writer.snapshot)
                assert newer is not None
                assert newer.version > writer.snapshot.version
                writer.snapshot = newer
    sys.stdout.write(json.dumps({"won": won, "lost": lost}))
