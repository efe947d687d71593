"""Keys that are texts may be e-mail addresses: what leaves the service names none of them.

A key stands as a JSON array, as the change log spells it; its numbers are told.  Pure.
"""

import json
import re

HIDDEN = "\u2026"
_ARRAY = re.compile(r'\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*")*\]')


def hidden(text: str) -> str:
    """The *text* with every string inside a JSON array replaced by an ellipsis."""
    return _ARRAY.sub(lambda found: _without_strings(found[0]), text)


def _without_strings(array: str) -> str:
    try:
        key = json.loads(array)
    except ValueError:
        return array  # a range such as [100, 120), or somebody's own brackets
    if not any(isinstance(part, str) for part in key):
        return array
    return json.dumps(
        [HIDDEN if isinstance(part, str) else part for part in key], ensure_ascii=False
    )
