"""Which table means an id of Debezium's ``tableChanges``, and how would it write one?

Measured: ``"shop"."orders"``, always in double quotes; one inside a name is doubled, a dot or a
back-tick stands as it is.  Pure.
"""

import re

from pipeline.model import ShardId

_NAME = r'"((?:[^"]|"")+)"'
_ID = re.compile(rf"{_NAME}\.{_NAME}", re.DOTALL)


def read(text: str) -> ShardId:
    """The table that *text* names.

    Raises:
        ValueError: it is not built as Debezium's ids of MySQL and MariaDB are.
    """
    found = _ID.fullmatch(text)
    if found is None:
        msg = f'table id {text!r} is not built as "database"."table"'
        raise ValueError(msg)
    return ShardId(*(name.replace('""', '"') for name in found.groups()))


def write(shard: ShardId) -> str:
    """The id under which Debezium tells of *shard*; ``read`` reads it back."""
    database, relation = (name.replace('"', '""') for name in (shard.database, shard.relation))
    return f'"{database}"."{relation}"'
