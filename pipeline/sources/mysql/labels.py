r"""Which of its labels does an ENUM or SET hold?  Debezium spells them in two ways.

From a snapshot it sends the label.  From the log it sends what stands between the quotes of the
statement that declared it: escapes and blanks at its end are still there, a comma is ``\,``.
(*Measured*, Debezium 3.5: of ``'b,c'``, ``'j\\k'`` and ``'l '`` come ``b\,c``, ``j\\k`` and an l
with its blank.)  The labels in a schema change are told as the statement has them, too.  Pure.
"""

import pyarrow as pa

from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.literals import unescaped


def labels(column: Column, texts: pa.StringArray) -> pa.StringArray:
    """The labels that *texts* mean; null where it cannot be told which.

    A text that is no label but holds no escape stays: the empty text of a value that was none,
    labels the server itself cannot write.
    """
    if not column.values:
        return texts
    declared = frozenset(label_of(value) for value in column.values)
    coded = texts.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    if column.kind == "SET":
        told = [_members(text, declared) for text in distinct]
    else:
        told = [_label(text, declared) for text in distinct]
    return pa.array(told, pa.string()).take(coded.indices)


def spelled_alike(column: Column) -> bool:
    """Whether a snapshot and the log send each label as one text."""
    if column.kind not in ("ENUM", "SET"):
        return True
    return all(value == label_of(value) and "," not in value for value in column.values)


def label_of(literal: str) -> str:
    """The label a server makes of the text between the quotes; blanks at its end are dropped."""
    return unescaped(literal).rstrip(" ")


def _members(text: str, declared: frozenset[str]) -> str | None:
    """All labels of a SET; no server lets a comma into one of them."""
    found = [_label(part, declared) for part in text.split(",")]
    return None if None in found else ",".join(part for part in found if part is not None)


def _label(text: str, declared: frozenset[str]) -> str | None:
    spelled = label_of(text.replace("\\,", ","))
    if text in declared:
        clear = spelled == text or spelled not in declared
        return text if clear else None
    if spelled in declared:
        return spelled
    return None if "\\" in text else text
