"""Which elements has an array, as Postgres writes it?  Pure.

Section 8.15.6 of its manual: braces, commas, quotes around what needs them, NULL without any.
"""

import re
from typing import Any

TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+)', re.DOTALL)
ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def elements(text: str) -> list[Any]:
    """Texts, None for NULL; a list for each row of more than one dimension.

    Bounds other than from 1 on (``[0:1]={1,2}``) are left aside.
    """
    if text.startswith("["):
        text = text.partition("=")[2]
    stack: list[list[Any]] = [[]]
    for found in TOKEN.finditer(text):
        sign = found[0]
        if sign == "{":
            stack.append([])
        elif sign == "}":
            stack[-2].append(stack.pop())
        elif sign != ",":
            stack[-1].append(_value(found))
    (whole,) = stack[0]
    return list(whole)


def _value(found: re.Match[str]) -> str | None:
    if found[1] is not None:
        return ESCAPED.sub(r"\1", found[1])
    return None if found[2].upper() == "NULL" else ESCAPED.sub(r"\1", found[2])
