"""Reads survivors.txt: the mutants that may survive, each with its reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("survivors.txt")


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test kills; ``reason`` says why none can, or why none should."""

    module: str
    mutant: str
    reason: str


def named(text: str | None = None) -> tuple[Survivor, ...]:
    """Those of the list: a module's path, then its mutants by two spaces, reasons by four.

    Raises:
        ValueError: a mutant without a reason.
    """
    return tuple(_read(LIST.read_text("utf-8") if text is None else text))


def _read(text: str) -> Iterator[Survivor]:
    module, waiting = "", list[str]()
    for line in text.splitlines():
        if line.startswith("    "):
            if not waiting:
                raise ValueError(f"a reason of nothing: {line.strip()}")
            yield from (Survivor(module, mutant, line.strip()) for mutant in waiting)
            waiting = []
        elif line.startswith("  "):
            waiting.append(line.strip())
        elif line and not line.startswith("#"):
            if waiting:
                raise ValueError(f"{module}: {waiting[0]}: without a reason")
            module = line.strip()
    if waiting:
        raise ValueError(f"{module}: {waiting[0]}: without a reason")
