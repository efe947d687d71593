"""Which changes still count, of those that a truncate or a base has outlived, for an archive?

The deletes by which rows went to it before: a floor takes none of these rows.  Whatever else is
older than a floor may be of columns, or of types, that are there no more.  Pure.
"""

from collections.abc import Collection

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from pipeline.apply.archived import in_reach, live
from pipeline.apply.fold import fold
from pipeline.apply.provenance import plain
from pipeline.archive import ArchiveRules
from pipeline.model import Op

_ROW = msgspec.json.Decoder(dict[str, Raw])


def last_words(rules: ArchiveRules, outlived: pa.Table, key: Collection[str]) -> pa.Table:
    """Of changes that a floor has *outlived*, deletes that may have kept rows from it.

    One of each key, if nothing came under that after it; of their rows they tell the *key* alone.
    """
    newest = fold(outlived.filter(outlived["key"].is_valid())).rows
    last = newest.filter(pa.array(in_reach(newest, rules) & live(newest, Op.DELETE)))
    return _only(last, "before", key)


def told_of(last: pa.Table, outlived: pa.Table, names: Collection[str]) -> pa.Table:
    """The *outlived* changes of the keys of *last*, in columns *names* that are still there."""
    keys = plain(last["key"]).combine_chunks()
    own = outlived.filter(pc.is_in(plain(outlived["key"]), value_set=keys))
    return _only(own, "after", names)


def _only(changes: pa.Table, image: str, names: Collection[str]) -> pa.Table:
    texts = [
        None if one is None else _part(one, names) for one in plain(changes[image]).to_pylist()
    ]
    at = changes.schema.get_field_index(image)
    field = changes.schema.field(at)
    return changes.set_column(at, field, pa.array(texts, pa.string()).cast(field.type))


def _part(text: str, names: Collection[str]) -> str:
    try:
        sent = _ROW.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text  # whoever types it says so
    return msgspec.json.encode({n: one for n, one in sent.items() if n in names}).decode()
