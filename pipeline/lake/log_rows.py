"""How is a row of the change log asked for in SQL, and its place read from the answer?"""

from collections.abc import Mapping
from typing import Any

from pipeline.model import Op

ROWS = (Op.CREATE, Op.UPDATE, Op.DELETE)
LOOK_BACK = 50  # batches in which what belongs to a newer one is looked for at first
PLACE = [f"t.\"order\"['{part}']" for part in ("epoch", "log", "pos", "row")]
PLACES = ", ".join(f"{part} AS p{i}" for i, part in enumerate(PLACE))
TX = "t.tx['id']"


def placed(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Where a row stands that was asked for its ``PLACES``."""
    return tuple(int(row[f"p{i}"] or 0) for i in range(len(PLACE)))
