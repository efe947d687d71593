"""Is this an id that ``sluice waive`` could ever mean?  Judged by its form alone; pure.

Whether anything bears it now is asked elsewhere.  A waiver of a name that nothing ever has would
be kept for good, and would open nothing.
"""

import re
from hashlib import sha256

_SHARD = r"[^/]+/.+"
_NUMBER = r"[0-9]{1,18}"
_NOTICED = rf".+:{_NUMBER}:{_NUMBER}@{_NUMBER}"
_FORMS = {
    "again": rf".+:{_NUMBER}:{_NUMBER}@{_NUMBER}",
    "account": rf".+:{_NUMBER}",
    "clock": rf".+:{_NUMBER}",
    "dead_letters": rf".+:{_NUMBER}",
    "disorder": rf".+:{_NUMBER}:{_NUMBER}@.+",
    "foreign_write": rf".+:{_NUMBER}",
    "invalid": rf".+:{_NUMBER}-{_NUMBER}@[0-9a-f]{{8}}",
    "hidden": _NOTICED,
    "lists": _NOTICED,
    "log": _NOTICED,
    "no_base": rf"{_SHARD}@[0-9.]+",
    "rules": rf"{_SHARD}@{_NUMBER}",
    "delay": r".+@[0-9a-f]{8}",
    "outdated": _NOTICED,
    "setting": r".+@[0-9a-f]{8}",
    "snapshot": rf"{_SHARD}@{_NUMBER}",
    "torn": _NOTICED,
    "unbalanced": rf".+@-?{_NUMBER}",
    "unkept": _NOTICED,
    "unproven": ".+@[0-9a-f]{8}",
}
_OF_BATCH = re.compile(rf".+:({_NUMBER}:{_NUMBER}|and {_NUMBER} more)@{_NUMBER}", re.DOTALL)
_WITHOUT_BATCH = re.compile(rf".+:{_NUMBER}:{_NUMBER}", re.DOTALL)
_OF_TABLE = re.compile(rf"[A-Za-z_][\w.]*:([^:].*:.+|.+@{_NUMBER})", re.DOTALL)


_CLOSED = ("disorder", "rules", "snapshot")  # and what is named by its batch


def is_closed_for_good(id_: str) -> bool:
    """Whether the next batch closes what has this name, once it is waived.

    It lands without the gap, the record or the snapshot: no end of the waiver brings that back.
    """
    return bool(_OF_BATCH.fullmatch(id_)) or id_.partition(":")[0] in _CLOSED


def told_of(name: str, text: str) -> str:
    """What a person waives of *name* for as long as *text* is what is told of it."""
    return f"{name}@{sha256(text.encode()).hexdigest()[:8]}"


def waivable(id_: str) -> bool:
    """Whether something may bear this name: a gap, a hold, a change, or a key a check found.

    Each names one instance: a waiver of a reason for good would hide the next.  Reasons of holds
    and names of checks are free words, as plug-ins have their own.
    """
    if _OF_BATCH.fullmatch(id_):
        return True
    word, _, rest = id_.partition(":")
    if word in _FORMS:
        return bool(re.fullmatch(_FORMS[word], rest, re.DOTALL))
    return bool(_OF_TABLE.fullmatch(id_)) and not _WITHOUT_BATCH.fullmatch(id_)
