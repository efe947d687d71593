"""What does the text of a DDL statement do to tables and their rows, as far as it can be read?

The dialect is MySQL's and MariaDB's.  A clause that is not known here is a doubt, a statement
that is not known is ``UnknownStatement``: nothing is taken for harmless because nobody knew it.
What happens to columns is told by the collector's tables; here is only what those leave out.
(sqlglot 30 reads ``DROP PARTITION`` as an error and drops executable comments: own reader.)  Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.sources.mysql.alter import Altered, altered
from pipeline.sources.mysql.reader import Misread, Name, Reader
from pipeline.sources.mysql.words import Words, readings


@dataclass(frozen=True, slots=True)
class Harmless:
    """It makes, changes or drops no table: views, routines, users, indices, a database made."""


@dataclass(frozen=True, slots=True)
class Created:
    """``selects`` if its rows come out of the statement itself, which no row event tells."""

    table: Name
    unless_there: bool = False
    replaces: bool = False
    selects: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """Tables that are gone."""

    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class DatabaseDropped:
    """A database that is gone with all its tables; it has no dot, only one name."""

    database: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """A table without rows."""

    table: Name


@dataclass(frozen=True, slots=True)
class Renamed:
    """(old name, new name), one after the other: a later pair sees what the earlier have done."""

    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class UnknownStatement:
    """Nobody knows what it does; ``names`` are all that a table's name could be in it."""

    why: str
    names: frozenset[str] = frozenset()


Statement = (
    Harmless
    | Created
    | Dropped
    | DatabaseDropped
    | Truncated
    | Renamed
    | Altered
    | UnknownStatement
)

_HARMLESS = {
    *("ANALYZE", "CHECK", "CHECKSUM", "FLUSH", "GRANT", "INSTALL", "LOCK", "OPTIMIZE", "REPAIR"),
    *("RESET", "REVOKE", "SET", "UNINSTALL", "UNLOCK", "USE"),
}
_OBJECTS = {  # what may be made, changed or dropped beside tables
    *("DATABASE", "EVENT", "FUNCTION", "INDEX", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE"),
    *("ROLE", "SCHEMA", "SEQUENCE", "SERVER", "SPATIAL", "TABLESPACE", "TRIGGER", "UNDO", "USER"),
    "VIEW",
}
_BEFORE_OBJECTS = {"AGGREGATE", "FULLTEXT", "OFFLINE", "ONLINE", "UNIQUE", "VECTOR"}
_RISKS = {
    "UPGRADE": "it renames a database",
    "STATEMENT": "it runs another statement",
}


def read(text: str) -> Statement:
    """What *text* does, if every way to read it says the same."""
    ways = readings(text)
    found = {
        _read(words) if words is not None else UnknownStatement("a quote is not closed")
        for words in ways
    }
    if len(found) == 1 and not isinstance(only := next(iter(found)), UnknownStatement):
        return only
    names = {word.text for words in ways for word in words or ()}
    why = next(
        (s.why for s in found if isinstance(s, UnknownStatement)), "it reads in more ways than one"
    )
    return UnknownStatement(why, frozenset(names))


def _read(words: Words) -> Statement:
    reader = Reader(words)
    try:
        for verb, rest in _VERBS.items():
            if reader.accept(verb):
                return rest(reader)
        if reader.accept(*_HARMLESS) or not words:
            return _harmless(words)
    except Misread as error:
        return UnknownStatement(str(error))
    return UnknownStatement("no statement that is known begins so")


def _harmless(words: Words) -> Harmless:
    for word in words:
        if word.upper in _RISKS:
            raise Misread(_RISKS[word.upper])
    return Harmless()


def _create(reader: Reader) -> Statement:
    replaces = reader.phrase("OR", "REPLACE")
    temporary = reader.accept("TEMPORARY")
    if not reader.accept("TABLE"):
        return _other(reader)
    unless_there = reader.phrase("IF", "NOT", "EXISTS")
    table = reader.name()
    if temporary:
        return Harmless()
    return Created(table, unless_there, replaces, _selects(reader.rest))


def _selects(words: Words) -> bool:
    """Whether rows come from a query; with row events the log leaves it out of the text."""
    depth = 0
    for word in words:
        depth += (word.upper == "(") - (word.upper == ")")
        if word.upper == "SELECT" or (depth == 0 and word.upper in ("TABLE", "VALUES")):
            return True
    return False


def _drop(reader: Reader) -> Statement:
    temporary = reader.accept("TEMPORARY")
    if reader.accept("TABLE", "TABLES"):
        reader.phrase("IF", "EXISTS")
        tables = [reader.name()]
        while reader.accept(","):
            tables.append(reader.name())
        reader.accept("RESTRICT", "CASCADE")
        reader.waits()
        reader.end()
        return Harmless() if temporary else Dropped(tuple(tables))
    if reader.accept("DATABASE", "SCHEMA"):
        reader.phrase("IF", "EXISTS")
        database = reader.identifier()
        reader.end()
        return DatabaseDropped(database)
    return _other(reader)


def _truncate(reader: Reader) -> Statement:
    reader.accept("TABLE")
    table = reader.name()
    reader.waits()
    reader.end()
    return Truncated(table)


def _rename(reader: Reader) -> Statement:
    if reader.accept("USER"):
        return Harmless()
    if not reader.accept("TABLE", "TABLES"):
        raise Misread("it renames what is no table")
    reader.phrase("IF", "EXISTS")
    pairs = [_pair(reader)]
    while reader.accept(","):
        pairs.append(_pair(reader))
    reader.end()
    return Renamed(tuple(pairs))


def _pair(reader: Reader) -> tuple[Name, Name]:
    old = reader.name()
    reader.waits()
    reader.expect("TO")
    return old, reader.name()


def _alter(reader: Reader) -> Statement:
    while reader.accept("ONLINE", "OFFLINE"):
        pass
    ignoring = reader.accept("IGNORE")
    return altered(reader, ignoring=ignoring) if reader.accept("TABLE") else _other(reader)


def _other(reader: Reader) -> Statement:
    """Views and what else is no table, whatever stands between the verb and the word for it."""
    while not reader.done:
        if reader.accept("DEFINER"):
            _definer(reader)
        elif reader.accept("ALGORITHM"):
            reader.accept("=")
            reader.identifier()
        elif not (
            reader.phrase("SQL", "SECURITY", "DEFINER")
            or reader.phrase("SQL", "SECURITY", "INVOKER")
        ):
            break
    while reader.accept(*_BEFORE_OBJECTS):
        pass
    if not reader.accept(*_OBJECTS):
        raise Misread("it makes, alters or drops what is not known here")
    return _harmless(reader.rest)


def _definer(reader: Reader) -> None:
    """``= user@host``, quoted or not, or ``CURRENT_USER()``."""
    reader.accept("=")
    reader.skip()
    if reader.accept("@"):
        reader.skip()
        while reader.accept("."):
            reader.skip()
    elif reader.accept("("):
        reader.accept(")")


_VERBS: dict[str, Callable[[Reader], Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "ALTER": _alter,
}
