"""What does an ALTER TABLE do to rows that the columns before and after it do not show?

Each clause is looked up among those known to leave every row's values as they are; any other is a
doubt, and one doubt is enough to hold the table.  Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pipeline.sources.mysql.reader import Misread, Name, Reader
from pipeline.sources.mysql.words import Kind, Words


@dataclass(frozen=True, slots=True)
class Altered:
    """What the clauses of one ALTER TABLE say.

    ``to`` is the new name.  ``described`` if it is about columns or keys, so that the collector
    must tell the table's columns.  ``left`` are names that columns lose, dropped or renamed.
    ``doubts`` say why rows may hold other values, or be others, than the columns show.
    ``emptied`` if all rows go.  ``others`` are tables that rows go to or come from.
    """

    table: Name
    to: Name | None = None
    described: bool = False
    left: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    emptied: bool = False
    others: tuple[Name, ...] = ()


@dataclass(eq=False)
class _Draft:
    to: Name | None = None
    described: bool = False
    emptied: bool = False
    left: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    others: list[Name] = field(default_factory=list)


UNICODE = ("UTF8MB4", "UTF16", "UTF16LE", "UTF32")  # these hold every letter of any other
ENGINES = {"INNODB", "MYISAM", "ARIA", "ROCKSDB", "TOKUDB", "NDB", "NDBCLUSTER", "ARCHIVE"}
_KEYS = (
    "INDEX",
    "KEY",
    "FULLTEXT",
    "SPATIAL",
    "UNIQUE",
    "PRIMARY",
    "CONSTRAINT",
    "FOREIGN",
    "CHECK",
)
_PARTITION_VERBS = {  # True: rows stay, in whichever partition
    **dict.fromkeys(("ADD", "ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "REBUILD"), True),
    **dict.fromkeys(("REORGANIZE", "REPAIR"), True),
    **dict.fromkeys(("CONVERT", "DISCARD", "DROP", "EXCHANGE", "IMPORT", "TRUNCATE"), False),
}
_OPTIONS = {  # of a table, each with one value
    *("AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COLLATE", "COMMENT"),
    *("COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE"),
    *("KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "ROW_FORMAT"),
    *("SECONDARY_ENGINE", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES"),
    *("TABLE_CHECKSUM", "TABLESPACE", "TRANSACTIONAL", "ALGORITHM", "LOCK", "CHARSET"),
    *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID"),
}


def altered(reader: Reader, *, ignoring: bool) -> Altered:
    """Read what follows ``ALTER TABLE``; *ignoring*: it may delete rows whose keys are doubled."""
    reader.phrase("IF", "EXISTS")
    table, draft = reader.name(), _Draft()
    reader.waits()
    if ignoring:
        draft.doubts.append("ALTER IGNORE deletes rows whose keys are doubled")
    while not reader.done:
        if _about_partitions(reader.rest):  # such a clause is the last, and has commas of its own
            _try(_partition, Reader(reader.rest), draft)
            break
        clause = Reader(reader.clause())
        if clause.phrase("ORDER", "BY"):
            _pass_order(reader)
        else:
            _try(_CLAUSES.get(clause.next.upper, _options), clause, draft)
        reader.accept(",")
    return Altered(
        table,
        draft.to,
        described=draft.described,
        left=tuple(draft.left),
        doubts=tuple(draft.doubts),
        emptied=draft.emptied,
        others=tuple(draft.others),
    )


def _try(read: Callable[[Reader, _Draft], None], clause: Reader, draft: _Draft) -> None:
    try:
        read(clause, draft)
    except Misread as error:
        begin = " ".join(word.text for word in clause.words[:3])
        draft.doubts.append(f"its clause {begin!r} is not known here: {error}")


def _pass_order(reader: Reader) -> None:
    """The columns of an ORDER BY stand between commas, as clauses do."""
    while len(reader.rest) > 1:
        ahead = Reader(reader.rest[1:])
        column = ahead.clause()
        if not column[0].named or [w.upper for w in column[1:]] not in ([], ["ASC"], ["DESC"]):
            return
        reader.at += 1 + len(column)


def _about_partitions(words: Words) -> bool:
    first, second = (*(word.upper for word in words[:2]), "", "")[:2]
    return (
        (second == "PARTITION" and first in _PARTITION_VERBS)
        or (second == "PARTITIONING" and first in ("REMOVE", "UPGRADE"))
        or (first, second) in (("PARTITION", "BY"), ("CONVERT", "TABLE"))
    )


def _partition(reader: Reader, draft: _Draft) -> None:
    verb = reader.skip().upper
    what = reader.skip().upper
    if what in ("PARTITIONING", "BY") or _PARTITION_VERBS[verb]:
        return
    if verb == "TRUNCATE" and reader.accept("ALL"):
        draft.emptied = True
        return
    if verb in ("EXCHANGE", "CONVERT"):
        draft.others.append(_partner(reader, what))
    text = " ".join(word.text for word in reader.words).replace(" ,", ",")
    draft.doubts.append(f"{text}: rows go, or come, that no row event tells of")


def _partner(reader: Reader, what: str) -> Name:
    """The table that ``EXCHANGE PARTITION p WITH TABLE t`` or MariaDB's CONVERT names."""
    if what == "PARTITION":
        while not reader.accept("TABLE"):
            reader.skip()
    return reader.name()


def _add(clause: Reader, draft: _Draft) -> None:
    if not _about_columns(clause, draft):
        return
    clause.phrase("IF", "NOT", "EXISTS")
    if not clause.accept("("):
        _added(clause, draft)
        return
    if clause.words[-1].upper != ")":
        raise Misread("columns in parentheses, and more")
    inside = Reader(clause.rest[:-1])
    while not inside.done:
        column = Reader(inside.clause())
        inside.accept(",")
        if not column.accept(*_KEYS):
            _added(column, draft)


def _about_columns(clause: Reader, draft: _Draft) -> bool:
    """Whether what is added or dropped is no key; the clause stands before its name then."""
    clause.skip()
    draft.described = True
    _no_periods(clause)
    if clause.accept(*_KEYS):
        return False
    clause.accept("COLUMN")
    return True


def _added(column: Reader, draft: _Draft) -> None:
    name = column.column()
    words = tuple(word.upper for word in column.rest)
    nullable = any(a != "NOT" and b == "NULL" for a, b in pairwise(words))
    if {"AUTO_INCREMENT", "SERIAL"} & set(words):
        why = "the server numbers old rows itself"
    elif words[:1] == ("TIMESTAMP",) and not nullable:
        why = "without the word NULL, an older server fills in the time of the statement"
    elif _computed(words):
        why = "it is computed from others"
    elif "DEFAULT" in words and not _constant(column.rest[words.index("DEFAULT") + 1 :]):
        why = "its default is no constant"
    else:
        return
    draft.doubts.append(f"column {name} was added and old rows cannot be filled: {why}")


def _constant(words: Words) -> bool:
    """Whether a literal comes next: a text, a number, b'1', NULL, TRUE or FALSE."""
    signs = [word for word in words if word.upper not in ("+", "-")]
    if not signs:
        return False
    first, quoted = signs[0], len(signs) > 1 and signs[1].kind in (Kind.TEXT, Kind.DOUBLE)
    if first.kind in (Kind.TEXT, Kind.DOUBLE) or first.upper in ("NULL", "TRUE", "FALSE"):
        return True
    marked = quoted and (first.upper in ("B", "X", "N") or first.upper.startswith("_"))
    return marked or first.upper[:1].isdigit() or first.upper == "."


def _computed(words: Sequence[str]) -> bool:
    return "GENERATED" in words or ("AS", "(") in pairwise(words)


def _drop(clause: Reader, draft: _Draft) -> None:
    if not _about_columns(clause, draft):
        return
    clause.phrase("IF", "EXISTS")
    draft.left.append(clause.column())
    clause.accept("RESTRICT", "CASCADE")
    clause.end()


def _no_periods(clause: Reader) -> None:
    if clause.phrase("PERIOD", "FOR") or clause.phrase("SYSTEM", "VERSIONING"):
        raise Misread("rows get a history")


def _modify(clause: Reader, draft: _Draft) -> None:
    clause.skip()
    clause.accept("COLUMN")
    clause.phrase("IF", "EXISTS")
    _redefined(clause.column(), clause.rest, draft)


def _change(clause: Reader, draft: _Draft) -> None:
    clause.skip()
    clause.accept("COLUMN")
    clause.phrase("IF", "EXISTS")
    old, new = clause.column(), clause.column()
    draft.left += [old] if old != new else []
    _redefined(new, clause.rest, draft)


def _redefined(column: str, definition: Words, draft: _Draft) -> None:
    draft.described = True
    if _computed([word.upper for word in definition]):
        draft.doubts.append(f"column {column} is computed anew")
    draft.doubts += _recoded(f"column {column}", definition)


def _recoded(what: str, words: Words) -> list[str]:
    """Why text may be lost, if a character set is named that lacks letters of others."""
    reader = Reader(words)
    while not reader.done:
        if reader.phrase("CHARACTER", "SET") or reader.accept("CHARSET", "COLLATE"):
            reader.accept("=")
            name = reader.skip().text.upper().partition("_")[0]
            if name not in UNICODE:
                return [f"{what} is written in {name.lower()}, which may lack letters it held"]
        elif reader.accept("ASCII", "UNICODE", "BYTE"):
            return [f"{what} is written in another character set"]
        else:
            reader.skip()
    return []


def _default(clause: Reader, _: _Draft) -> None:
    """Defaults of later rows, what is shown of columns and indices, checks on or off."""
    clause.skip()
    if not clause.accept("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        clause.accept("COLUMN")
        clause.column()
        if not clause.accept("SET", "DROP"):
            raise Misread("a column is altered otherwise than in its default")


def _rename(clause: Reader, draft: _Draft) -> None:
    clause.skip()
    if clause.accept("INDEX", "KEY"):
        return
    if clause.accept("COLUMN"):
        draft.described = True
        old = clause.column()
        clause.expect("TO")
        draft.left += [old] if clause.column() != old else []
    else:
        clause.accept("TO", "AS", "=")
        if draft.to is not None:
            raise Misread("it is renamed twice")
        draft.to = clause.name()
    clause.end()


def _convert(clause: Reader, draft: _Draft) -> None:
    clause.skip()
    draft.described = True
    clause.expect("TO")
    draft.doubts += _recoded("every text", clause.rest)


def _options(clause: Reader, draft: _Draft) -> None:
    """Options of the table, between blanks."""
    while not clause.done:
        if clause.accept("ENGINE"):
            clause.accept("=")
            engine = clause.identifier()
            if engine.upper() not in ENGINES:
                draft.doubts.append(f"the engine {engine} may keep no rows, or other ones")
        elif clause.accept("ENABLE", "DISABLE"):
            clause.expect("KEYS")
        elif clause.accept("WITH", "WITHOUT"):
            clause.expect("VALIDATION")
        elif clause.accept("DATA", "INDEX"):
            clause.expect("DIRECTORY")
            clause.value()
        elif clause.phrase("PARTITION", "BY"):
            return
        elif clause.phrase("CHARACTER", "SET") or clause.accept(*_OPTIONS):
            clause.value()
        elif not clause.accept("DEFAULT", "FORCE") and not clause.phrase("REMOVE", "PARTITIONING"):
            raise Misread(f"{clause.next.text!r}")


_CLAUSES: dict[str, Callable[[Reader, _Draft], None]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _default,
    "RENAME": _rename,
    "CONVERT": _convert,
}
