"""Which shards may the statements of a batch be about?  Those whose names stand in the texts.

A migration alters every shard in one batch, so that texts and shards are many at once.  A name of
nothing but word characters stands in a text only within one of its words, and these are few: most
statements say the same but for the name.  Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pipeline.checkpoint import source_of
from pipeline.model import Shard

_WORDS = re.compile(r"\w+")


def mentioned(texts: Iterable[tuple[str, str]], shards: Iterable[str]) -> set[str]:
    """Shards whose relation stands somewhere in the text of a statement of their source.

    Or whose database does, in one about a database: no table is told to be dropped with it.
    *texts* are (source, text), *shards* ``source/shard``.
    """
    said: dict[str, list[str]] = {}
    for source, text in texts:
        said.setdefault(source, []).extend((text, text.replace("``", "`")))
    spoken = {source: _Spoken("\n".join(own).casefold()) for source, own in said.items()}
    return {
        name
        for name in shards
        if (one := spoken.get(source_of(name))) is not None and one.is_about(name)
    }


@dataclass(frozen=True)  # without slots: most batches ask for some of it only
class _Spoken:
    """All that was said of one source, in small letters."""

    text: str

    @cached_property
    def words(self) -> str:
        """Each word once."""
        return "\n".join(sorted({*_WORDS.findall(self.text)}))

    @cached_property
    def of_databases(self) -> bool:
        """Whether a statement may be about a database."""
        return "database" in self.words or "schema" in self.words

    def is_about(self, name: str) -> bool:
        """Whether *name* (``source/shard``), or its database, stands in it."""
        own = Shard.parse(name.casefold())
        return self._holds(own.relation) or (self.of_databases and self._holds(own.database))

    def _holds(self, name: str) -> bool:
        return name in (self.words if _WORDS.fullmatch(name) else self.text)
