"""What does a table's metadata say of its rows?  A digest that changes when other rows are read.

Names, comments, the order of columns and most properties say nothing of rows.  A column that is
dropped, renamed or typed anew does, though no file changes; and so do Sluice's own properties, in
which a mirror remembers what goes with its rows.  Pure.
"""

import hashlib
import json
from functools import lru_cache
from typing import Any

from pipeline.lake.delta_types import physical_name
from pipeline.lake.entries import Action

_OWN = "sluice."
_ASIDE = {"metadata", "nullable", "containsNull", "valueContainsNull"}


def shape_of(described: Action) -> str:
    """The digest of a ``metaData`` action."""
    told = (described.get("configuration") or {}).items()
    own = sorted((name, value) for name, value in told if name.startswith(_OWN))
    columns = _columns(str(described.get("schemaString") or "{}"))
    parts = (described.get("id"), described.get("partitionColumns") or [], columns, own)
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4_096)
def _columns(schema_string: str) -> str:
    """Columns with their names in files and their types, in no order."""
    fields = json.loads(schema_string).get("fields") or []
    return json.dumps(sorted((_kind(one) for one in fields), key=lambda one: str(one["name"])))


def _kind(told: Any) -> Any:
    """A field or type of Delta's schema JSON, without what is said beside it."""
    if isinstance(told, list):
        return [_kind(one) for one in told]
    if isinstance(told, str):
        return told.replace(" ", "")  # decimal(10, 0)
    if not isinstance(told, dict):
        return told
    kept = {name: _kind(value) for name, value in told.items() if name not in _ASIDE}
    if "metadata" in told:
        kept |= {"name": told["name"], "in files": physical_name(told)}
    return dict(sorted(kept.items()))
