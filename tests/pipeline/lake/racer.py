"""One of many that want the same version of a table, in a process of its own."""

import json
import sys

from pipeline.errors import LostRaceError
from pipeline.lake.log import load
from tests.pipeline.lake.tables import Writer, numbers


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
                newer = load(writer.store, writer.snapshot)
                assert newer is not None
                assert newer.version > writer.snapshot.version
                writer.snapshot = newer
    sys.stdout.write(json.dumps({"won": won, "lost": lost}))
