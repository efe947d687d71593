"""How many decisions of the gate were judged, on real servers and in the model, and how many false.

Each proof adds what it judged; ``python -m tests.proof.tally`` prints the sums at the end of
``make test``, and fails where too few were judged or one was false.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pipeline.spark import jars

FILE = jars.ROOT / "build" / "decisions.jsonl"
SERVERS, MODEL = "servers", "model"
LEAST = {SERVERS: 3_000, MODEL: 20_000}


def judged(where: str, decisions: int, false: Iterable[str], path: Path = FILE) -> list[str]:
    """Add what a proof judged to the count; return what of it was *false*."""
    found = list(false)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"where": where, "decisions": decisions, "false": len(found)}) + "\n"
    with path.open("a", encoding="utf-8") as file:  # one short write: processes do not mix
        file.write(line)
    return found


def report(path: Path = FILE) -> tuple[str, bool]:
    """Sum up in one line, and whether it is good: enough were judged, and none was false."""
    sums, false = Counter[str](), 0
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for one in map(json.loads, lines):
        sums[one["where"]] += one["decisions"]
        false += one["false"]
    text = (
        f"{sums[SERVERS]:,} decisions judged on real servers, {sums[MODEL]:,} in the model,"
        f" {false:,} false"
    )
    few = [f"{sums[one]:,} {one}, at least {n:,}" for one, n in LEAST.items() if sums[one] < n]
    return f"{text}; too few: {'; '.join(few)}" if few else text, not few and not false


if __name__ == "__main__":
    if sys.argv[1:] == ["begin"]:
        FILE.unlink(missing_ok=True)
        sys.exit()
    told, good = report()
    os.write(1, f"{told}\n".encode())
    sys.exit(0 if good else 1)
