"""Which column does canal tell of, where it says ``decimal(10,2) unsigned``?  Pure."""

import re

from pipeline.schema.notation import Notation
from pipeline.schema.schema_change import ColumnTold

TYPE = re.compile(
    r"\s*([a-z][a-z0-9_ ]*?)\s*(?:\((.*)\)\s*([a-z0-9_ ]*))?\s*", re.IGNORECASE | re.DOTALL
)
NUMBERS = re.compile(r"\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?")
LABELS = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
ENUMERATIONS = ("ENUM", "SET")
SIGNS = ("UNSIGNED", "ZEROFILL")


def column(name: str, text: str, position: int) -> ColumnTold:
    """The column of that type, as SHOW COLUMNS spells it; of one that cannot be read its text.

    It is told as NOT NULL without a default: canal says neither, so old rows of a column that
    is added cannot be filled.
    """
    found = TYPE.fullmatch(text)
    if found is None:
        return ColumnTold(name, text.upper(), None, None, False, None, position)
    words, inner = found[1].upper().split(), found[2]
    kind = " ".join(word for word in words if word not in SIGNS)
    sign = [word for word in (*words, *(found[3] or "").upper().split()) if word in SIGNS]
    numbers = NUMBERS.fullmatch(inner or "")
    labels = LABELS.findall(inner or "") if kind in ENUMERATIONS else ()
    return ColumnTold(
        name=name,
        type=" ".join([kind, *sign]),
        length=int(numbers[1]) if numbers else None,
        scale=int(numbers[2]) if numbers and numbers[2] else None,
        nullable=False,
        position=position,
        values=tuple(label.replace("''", "'") for label in labels),
        notation=Notation.TEXTS,
    )
