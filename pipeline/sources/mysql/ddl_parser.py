"""Parses MySQL and MariaDB DDL for effects that the collector's table descriptions do not show.

An unknown clause is a doubt, and one doubt holds the table. An unknown statement is an
`UnknownStatement`. Nothing counts as harmless because it is unknown. The columns of a table come
from the collector, not from here.

The meaning of a statement depends on settings that the log does not contain:
`NO_BACKSLASH_ESCAPES`, `ANSI_QUOTES` and the version that executable comments require. So a
statement may have several readings, and a result is used only if all of them agree. Text in
double quotes is a name where the grammar expects a name.

Measured: in a table description generated columns look like plain ones. Computed defaults look
like `1970-01-01 00:00:00` or like text. A renamed table looks like an altered table of an
unknown name.

sqlglot 30 is not used: it reports `DROP PARTITION` as an error and drops executable comments.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from pipeline.model import ShardId

_EXECUTED = r"/\*M?!\d{0,6}"  # /*!50100 ... */, MariaDB's /*M!100200 ... */
_COMMENT = re.compile(r"\s+|--(?=\s|$)[^\n]*|#[^\n]*|/\*(?!M?!).*?\*/", re.DOTALL)
_OPENED = re.compile(_EXECUTED)
_SKIPPED = re.compile(rf"{_EXECUTED}.*?\*/", re.DOTALL)
_WORD = re.compile(r"[\w$]+")
_NAME = re.compile(r"`(?:[^`]|``)+`")
_TEXTS = {  # whether a backslash escapes -> text in single quotes, in double quotes
    True: (
        re.compile(r"'(?:[^'\\]|''|\\.)*'", re.DOTALL),
        re.compile(r'"(?:[^"\\]|""|\\.)*"', re.DOTALL),
    ),
    False: (re.compile(r"'(?:[^']|'')*'"), re.compile(r'"(?:[^"]|"")*"')),
}


class Kind(Enum):
    """Kinds of tokens; DOUBLE is a name or a text, depending on the session's ``sql_mode``."""

    WORD = "word"
    NAME = "name"
    TEXT = "text"
    DOUBLE = "double"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``text`` of a name or text has no outer quotes, and doubled inner quotes once."""

    kind: Kind
    text: str

    @property
    def upper(self) -> str:
        """The word in capitals; empty if it is quoted, because then it is not a keyword."""
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SIGN) else ""

    @property
    def named(self) -> bool:
        """Whether it can be a name."""
        return self.kind in (Kind.WORD, Kind.NAME, Kind.DOUBLE)


Words = tuple[Token, ...]


@lru_cache(maxsize=4)  # callers repeat one statement; the tokens of 1 MB of text take 30 MB
def tokenize_statement(text: str) -> tuple[Words | None, ...]:
    """Every distinct reading of *text*; None for a reading in which a quote is not closed."""
    escapes = (True, False) if "\\" in text else (True,)
    executes = (True, False) if _OPENED.search(text) else (True,)
    found = [_read(text, escaped, executed) for escaped in escapes for executed in executes]
    return tuple(dict.fromkeys(found))


def _read(text: str, escaped: bool, executed: bool) -> Words | None:
    try:
        words = list(_words(text, escaped, executed))
    except ValueError:
        return None
    while words and words[-1].upper == ";":
        words.pop()
    return tuple(words)


def _words(text: str, escaped: bool, executed: bool) -> Iterator[Token]:
    single, double = _TEXTS[escaped]
    forms = ((_NAME, Kind.NAME), (single, Kind.TEXT), (double, Kind.DOUBLE), (_WORD, Kind.WORD))
    comment, at = _OPENED if executed else _SKIPPED, 0
    last = text.rfind("*/")  # otherwise each comment without an end would search all of the rest
    while at < len(text):
        ends = last >= at + 2 or not text.startswith("/*", at)
        found = _COMMENT.match(text, at) if ends else None
        if found is None and (ends or executed):
            found = comment.match(text, at)
        if found:
            at = found.end()
        elif executed and text.startswith("*/", at):
            at += 2
        else:
            word, at = _next(text, at, forms)
            yield word


def _next(text: str, at: int, forms: Sequence[tuple[re.Pattern[str], Kind]]) -> tuple[Token, int]:
    for pattern, kind in forms:
        if found := pattern.match(text, at):
            return Token(kind, _bare(found[0], kind)), found.end()
    if text[at] in "`'\"":
        msg = f"a quote at {at} is never closed"
        raise ValueError(msg)
    return Token(Kind.SIGN, text[at]), at + 1


def _bare(found: str, kind: Kind) -> str:
    if kind is Kind.WORD:
        return found
    return found[1:-1].replace(found[0] * 2, found[0])


class ParseError(Exception):
    """The tokens have an unknown form; the message says which."""


@dataclass(frozen=True, slots=True)
class Name:
    """A table as a statement names it; ``database`` is None if the statement does not name it."""

    database: str | None
    relation: str


@dataclass(eq=False)
class TokenReader:
    """Reads tokens from left to right, never back."""

    words: Words
    at: int = 0

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self.words)

    @property
    def rest(self) -> Words:
        """The remaining tokens."""
        return self.words[self.at :]

    @property
    def next(self) -> Token:
        """The next token, which is not consumed; an empty sign at the end."""
        return Token(Kind.SIGN, "") if self.done else self.words[self.at]

    def accept(self, *keywords: str) -> bool:
        """Consume the next token if it is one of *keywords*; return whether it was."""
        found = not self.done and self.next.upper in keywords
        self.at += found
        return found

    def phrase(self, *keywords: str) -> bool:
        """Consume the next tokens if they are *keywords*, in order; return whether they were."""
        found = tuple(word.upper for word in self.rest[: len(keywords)]) == keywords
        self.at += len(keywords) if found else 0
        return found

    def skip(self) -> Token:
        """Consume and return the next token.

        Raises:
            ParseError: no token is left.
        """
        if self.done:
            raise ParseError("it ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def identifier(self) -> str:
        """Consume the next token, which must be a name; return its text.

        Raises:
            ParseError: it is not a name.
        """
        word = self.skip()
        if not word.named:
            msg = f"a name is missing at {word.text!r}"
            raise ParseError(msg)
        return word.text

    def name(self) -> Name:
        """Consume the name of a table, with or without a database."""
        first = self.identifier()
        return Name(first, self.identifier()) if self.accept(".") else Name(None, first)

    def column(self) -> str:
        """Consume the name of a column.

        Raises:
            ParseError: the name has a table, which only older servers allowed.
        """
        name = self.identifier()
        if self.next.upper == ".":
            raise ParseError("a column is named with its table")
        return name

    def clause(self) -> Words:
        """Consume all tokens before the next comma outside parentheses; return them."""
        depth, start = 0, self.at
        while not self.done and not (depth == 0 and self.next.upper == ","):
            depth += (self.next.upper == "(") - (self.next.upper == ")")
            self.at += 1
        return self.words[start : self.at]

    def value(self) -> Token:
        """Consume the value of an option, with or without ``=`` before it."""
        self.accept("=")
        return self.skip()

    def expect(self, keyword: str) -> None:
        """Consume *keyword*.

        Raises:
            ParseError: the next token is another one.
        """
        if not self.accept(keyword):
            msg = f"{keyword} is missing"
            raise ParseError(msg)

    def waits(self) -> None:
        """Consume MariaDB's ``WAIT n`` or ``NOWAIT``, if present."""
        if self.accept("WAIT"):
            self.skip()
        self.accept("NOWAIT")

    def end(self) -> None:
        """Require that no token is left.

        Raises:
            ParseError: a token is left.
        """
        if not self.done:
            msg = f"it goes on with {self.next.text!r}"
            raise ParseError(msg)


@dataclass(frozen=True, slots=True)
class Altered:
    """The clauses of one ALTER TABLE.

    ``to`` is the new name.  ``described``: it changes columns or keys, so the collector must
    describe the table.  ``rebuilds``: it changes more than indexes, the table's comment and new
    partitions, so rows may be rewritten.  ``left`` are the old names of dropped and renamed
    columns.  ``doubts`` say why rows or values may differ from what the columns show.
    ``emptied``: all rows are deleted.  ``others`` are tables with which it exchanges rows.
    """

    table: Name
    to: Name | None = None
    described: bool = False
    rebuilds: bool = False
    left: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    emptied: bool = False
    others: tuple[Name, ...] = ()


@dataclass(eq=False)
class _Draft:
    to: Name | None = None
    described: bool = False
    rebuilds: bool = False
    emptied: bool = False
    left: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    others: list[Name] = field(default_factory=list)


UNICODE = ("UTF8MB4", "UTF16", "UTF16LE", "UTF32")  # these have the characters of all others
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
_INDEXES = ("FULLTEXT", "SPATIAL", "UNIQUE")
_PARTITION_VERBS = {  # True: the table keeps its rows
    **dict.fromkeys(("ADD", "ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "REBUILD"), True),
    **dict.fromkeys(("REORGANIZE", "REPAIR"), True),
    **dict.fromkeys(("CONVERT", "DISCARD", "DROP", "EXCHANGE", "IMPORT", "TRUNCATE"), False),
}
_OPTIONS = {  # table options with one value
    *("AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COLLATE", "COMMENT"),
    *("COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE"),
    *("KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "ROW_FORMAT"),
    *("SECONDARY_ENGINE", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES"),
    *("TABLE_CHECKSUM", "TABLESPACE", "TRANSACTIONAL", "ALGORITHM", "LOCK", "CHARSET"),
    *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID"),
}


def parse_alter(reader: TokenReader, *, ignoring: bool) -> Altered:
    """Parse what follows ``ALTER TABLE``; *ignoring*: it may delete rows with duplicate keys."""
    reader.phrase("IF", "EXISTS")
    table, draft = reader.name(), _Draft()
    reader.waits()
    if ignoring:
        draft.doubts.append("ALTER IGNORE deletes rows with duplicate keys")
    while not reader.done:
        draft.rebuilds |= not _is_light(reader.rest)
        if _about_partitions(reader.rest):  # such a clause is the last, and may contain commas
            _try(_partition, TokenReader(reader.rest), draft)
            break
        clause = TokenReader(reader.clause())
        if clause.phrase("ORDER", "BY"):
            _pass_order(reader)
        else:
            _try(_CLAUSES.get(clause.next.upper, _options), clause, draft)
        reader.accept(",")
    return Altered(
        table,
        draft.to,
        described=draft.described,
        rebuilds=draft.rebuilds,
        left=tuple(draft.left),
        doubts=tuple(draft.doubts),
        emptied=draft.emptied,
        others=tuple(draft.others),
    )


def _try(read: Callable[[TokenReader, _Draft], None], clause: TokenReader, draft: _Draft) -> None:
    try:
        read(clause, draft)
    except ParseError as error:
        begin = " ".join(word.text for word in clause.words[:3])
        draft.doubts.append(f"its clause {begin!r} is not known here: {error}")


def _pass_order(reader: TokenReader) -> None:
    """Skip the columns of an ORDER BY: commas separate them, as they separate clauses."""
    while len(reader.rest) > 1:
        ahead = TokenReader(reader.rest[1:])
        column = ahead.clause()
        if not column[0].named or [w.upper for w in column[1:]] not in ([], ["ASC"], ["DESC"]):
            return
        reader.at += 1 + len(column)


def _is_light(words: Words) -> bool:
    """Whether the first clause of *words* rewrites no row.

    Source: MySQL's manual, Online DDL Operations. New HASH or KEY partitions take rows from others.
    A clause may also have table options and partitioning that no comma separates.
    """
    clause = TokenReader(words).clause()
    names = [word.upper for word in clause] + [""] * 4
    first, second, more = names[0], names[1], names[2:5]
    if {("PARTITION", "BY"), ("REMOVE", "PARTITIONING")} & {*pairwise(names)}:
        return False
    if first == "COMMENT":
        return len(clause) == 2 + (second == "=")
    if (first, second) == ("ADD", "PARTITION"):
        return more[0] == "(" or more[:3] == ["IF", "NOT", "EXISTS"]
    if first == "ALGORITHM":
        return "COPY" not in (second, more[0])
    if first in ("ADD", "DROP", "RENAME"):
        return second in ("INDEX", "KEY") or (first == "ADD" and second in _INDEXES)
    return first == "LOCK"


def _about_partitions(words: Words) -> bool:
    first, second = (*(word.upper for word in words[:2]), "", "")[:2]
    return (
        (second == "PARTITION" and first in _PARTITION_VERBS)
        or (second == "PARTITIONING" and first in ("REMOVE", "UPGRADE"))
        or (first, second) in (("PARTITION", "BY"), ("CONVERT", "TABLE"))
    )


def _partition(reader: TokenReader, draft: _Draft) -> None:
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
    draft.doubts.append(f"{text}: rows are removed or added without a row event")


def _partner(reader: TokenReader, what: str) -> Name:
    """The table that ``EXCHANGE PARTITION p WITH TABLE t`` or MariaDB's CONVERT names."""
    if what == "PARTITION":
        while not reader.accept("TABLE"):
            reader.skip()
    return reader.name()


def _add(clause: TokenReader, draft: _Draft) -> None:
    if not _about_columns(clause, draft):
        return
    clause.phrase("IF", "NOT", "EXISTS")
    if not clause.accept("("):
        _added(clause, draft)
        return
    if clause.words[-1].upper != ")":
        raise ParseError("columns in parentheses, and more")
    inside = TokenReader(clause.rest[:-1])
    while not inside.done:
        column = TokenReader(inside.clause())
        inside.accept(",")
        if not column.accept(*_KEYS):
            _added(column, draft)


def _about_columns(clause: TokenReader, draft: _Draft) -> bool:
    """Whether ADD or DROP is of a column, not of a key; the next token is then its name."""
    clause.skip()
    draft.described = True
    _no_periods(clause)
    if clause.accept(*_KEYS):
        return False
    clause.accept("COLUMN")
    return True


def _added(column: TokenReader, draft: _Draft) -> None:
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
    """Whether *words* begin with a literal: a text, a number, b'1', NULL, TRUE or FALSE."""
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


def _drop(clause: TokenReader, draft: _Draft) -> None:
    if not _about_columns(clause, draft):
        return
    clause.phrase("IF", "EXISTS")
    draft.left.append(clause.column())
    clause.accept("RESTRICT", "CASCADE")
    clause.end()


def _no_periods(clause: TokenReader) -> None:
    if clause.phrase("PERIOD", "FOR") or clause.phrase("SYSTEM", "VERSIONING"):
        raise ParseError("rows get a history")


def _modify(clause: TokenReader, draft: _Draft) -> None:
    clause.skip()
    clause.accept("COLUMN")
    clause.phrase("IF", "EXISTS")
    _redefined(clause.column(), clause.rest, draft)


def _change(clause: TokenReader, draft: _Draft) -> None:
    clause.skip()
    clause.accept("COLUMN")
    clause.phrase("IF", "EXISTS")
    old, new = clause.column(), clause.column()
    draft.left += [old] if old != new else []
    _redefined(new, clause.rest, draft)


def _redefined(column: str, definition: Words, draft: _Draft) -> None:
    draft.described = True
    if _computed([word.upper for word in definition]):
        draft.doubts.append(f"column {column} is recomputed")
    draft.doubts += _recoded(f"column {column}", definition)


def _recoded(what: str, words: Words) -> list[str]:
    """Doubts if the new character set in *words* may not have all characters of the text."""
    reader = TokenReader(words)
    while not reader.done:
        if reader.phrase("CHARACTER", "SET") or reader.accept("CHARSET", "COLLATE"):
            reader.accept("=")
            name = reader.skip().text.upper().partition("_")[0]
            if name not in UNICODE:
                return [
                    f"{what} is written in {name.lower()}, which may not have all of its characters"
                ]
        elif reader.accept("ASCII", "UNICODE", "BYTE"):
            return [f"{what} is written in another character set"]
        else:
            reader.skip()
    return []


def _default(clause: TokenReader, _: _Draft) -> None:
    """Accept ALTER of a default, of the visibility of a column or index, or of a check."""
    clause.skip()
    if not clause.accept("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        clause.accept("COLUMN")
        clause.column()
        if not clause.accept("SET", "DROP"):
            raise ParseError("a clause alters more of a column than its default")


def _rename(clause: TokenReader, draft: _Draft) -> None:
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
            raise ParseError("it is renamed twice")
        draft.to = clause.name()
    clause.end()


def _convert(clause: TokenReader, draft: _Draft) -> None:
    clause.skip()
    draft.described = True
    clause.expect("TO")
    draft.doubts += _recoded("every text", clause.rest)


def _options(clause: TokenReader, draft: _Draft) -> None:
    """Read table options, which no comma separates."""
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
            raise ParseError(f"{clause.next.text!r}")


_CLAUSES: dict[str, Callable[[TokenReader, _Draft], None]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _default,
    "RENAME": _rename,
    "CONVERT": _convert,
}


@dataclass(frozen=True, slots=True)
class Harmless:
    """A statement that creates, alters or drops no table, for example of views, users, indexes."""


@dataclass(frozen=True, slots=True)
class Created:
    """CREATE TABLE; ``selects``: it inserts the rows of a query, which have no row events."""

    table: Name
    unless_there: bool = False
    replaces: bool = False
    selects: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """DROP TABLE."""

    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class DatabaseDropped:
    """DROP DATABASE, which drops all its tables."""

    database: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """TRUNCATE TABLE."""

    table: Name


@dataclass(frozen=True, slots=True)
class Renamed:
    """RENAME TABLE: pairs (old name, new name), applied one after the other."""

    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class UnknownStatement:
    """A statement of unknown effect; ``names`` are all its words that may name a table."""

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
_OBJECTS = {  # objects other than tables that may be created, altered or dropped
    *("DATABASE", "EVENT", "FUNCTION", "INDEX", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE"),
    *("ROLE", "SCHEMA", "SEQUENCE", "SERVER", "SPATIAL", "TABLESPACE", "TRIGGER", "UNDO", "USER"),
    "VIEW",
}
_BEFORE_OBJECTS = {"AGGREGATE", "FULLTEXT", "OFFLINE", "ONLINE", "UNIQUE", "VECTOR"}
_RISKS = {
    "UPGRADE": "it renames a database",
    "STATEMENT": "it runs another statement",
}


def parse_statement(text: str) -> Statement:
    """Parse *text*; UnknownStatement unless all its readings give the same result."""
    ways = tokenize_statement(text)
    found = {
        _read_statement(words) if words is not None else UnknownStatement("a quote is not closed")
        for words in ways
    }
    if len(found) == 1 and not isinstance(only := next(iter(found)), UnknownStatement):
        return only
    names = {word.text for words in ways for word in words or ()}
    why = next(
        (s.why for s in found if isinstance(s, UnknownStatement)), "it has more than one meaning"
    )
    return UnknownStatement(why, frozenset(names))


def _read_statement(words: Words) -> Statement:
    reader = TokenReader(words)
    try:
        for verb, rest in _VERBS.items():
            if reader.accept(verb):
                return rest(reader)
        if reader.accept(*_HARMLESS) or not words:
            return _harmless(words)
    except ParseError as error:
        return UnknownStatement(str(error))
    return UnknownStatement("no known statement begins like this")


def _harmless(words: Words) -> Harmless:
    for word in words:
        if word.upper in _RISKS:
            raise ParseError(_RISKS[word.upper])
    return Harmless()


def _create(reader: TokenReader) -> Statement:
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
    """Whether CREATE TABLE has a query; if its rows have row events, the log omits the query."""
    depth = 0
    for word in words:
        depth += (word.upper == "(") - (word.upper == ")")
        if word.upper == "SELECT" or (depth == 0 and word.upper in ("TABLE", "VALUES")):
            return True
    return False


def _drop_statement(reader: TokenReader) -> Statement:
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


def _truncate(reader: TokenReader) -> Statement:
    reader.accept("TABLE")
    table = reader.name()
    reader.waits()
    reader.end()
    return Truncated(table)


def _rename_statement(reader: TokenReader) -> Statement:
    if reader.accept("USER"):
        return Harmless()
    if not reader.accept("TABLE", "TABLES"):
        raise ParseError("it renames something that is not a table")
    reader.phrase("IF", "EXISTS")
    pairs = [_pair(reader)]
    while reader.accept(","):
        pairs.append(_pair(reader))
    reader.end()
    return Renamed(tuple(pairs))


def _pair(reader: TokenReader) -> tuple[Name, Name]:
    old = reader.name()
    reader.waits()
    reader.expect("TO")
    return old, reader.name()


def _alter(reader: TokenReader) -> Statement:
    while reader.accept("ONLINE", "OFFLINE"):
        pass
    ignoring = reader.accept("IGNORE")
    return parse_alter(reader, ignoring=ignoring) if reader.accept("TABLE") else _other(reader)


def _other(reader: TokenReader) -> Statement:
    """Read a statement about a view or another object that is not a table.

    Raises:
        ParseError: it is about an unknown kind of object.
    """
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
        raise ParseError("it creates, alters or drops an unknown kind of object")
    return _harmless(reader.rest)


def _definer(reader: TokenReader) -> None:
    """Skip ``= user@host``, quoted or not, or ``CURRENT_USER()``."""
    reader.accept("=")
    reader.skip()
    if reader.accept("@"):
        reader.skip()
        while reader.accept("."):
            reader.skip()
    elif reader.accept("("):
        reader.accept(")")


_VERBS: dict[str, Callable[[TokenReader], Statement]] = {
    "CREATE": _create,
    "DROP": _drop_statement,
    "TRUNCATE": _truncate,
    "RENAME": _rename_statement,
    "ALTER": _alter,
}


_GENERATED = re.compile(r"(?:GENERATED\s+ALWAYS\s+)?\bAS\s*\(", re.IGNORECASE)
_COMPUTED = re.compile(
    r"\bDEFAULT\s*(?:\(|(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)\b)", re.IGNORECASE
)
_SIZES = re.compile(r"\s*[A-Za-z][A-Za-z ]*?\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)")
_FILLED = re.compile(
    r"\b(?:NOT\s+NULL|DEFAULT|AUTO_INCREMENT|PRIMARY|KEY|SERIAL|AS)\b|\bTIMESTAMP\b", re.IGNORECASE
)
_BLANK = {Kind.NAME: "``", Kind.TEXT: "''", Kind.DOUBLE: "''"}
_NO_TYPES = frozenset(  # words that follow a name of a column or an index, and begin no type
    (
        *("ADD", "AFTER", "ALTER", "ASC", "CHANGE", "CHECK", "DESC", "DROP", "FIRST", "FOREIGN"),
        *("MODIFY", "ON", "PRIMARY", "RENAME", "SET", "TO", "UNIQUE", "USING", "VALUES"),
    )
)


def find_previous_name(statement: str, shard: ShardId) -> ShardId | None:
    """The name that *shard* had before this statement; None if it does not rename it, or unknown.

    A new name without a database is in the session's database, which is then that of *shard*.  If
    only the new name has a database, the database of the old name is unknown.
    """
    found = None
    for old, new in reversed(_renames(statement)):
        known = ShardId(new.database or shard.database, new.relation)
        if known != (found or shard):
            continue
        if old.database is None and new.database is not None:
            return None
        found = ShardId(old.database or shard.database, old.relation)
    return None if found == shard else found


def _renames(statement: str) -> tuple[tuple[Name, Name], ...]:
    """Pairs (old name, new name) of the statement, in order."""
    if "rename" not in statement.casefold():
        return ()
    match parse_statement(statement):
        case Renamed(pairs):
            return pairs
        case Altered(table=old, to=new) if new is not None:
            return ((old, new),)
    return ()


def is_generated(statement: str, column: str) -> bool:
    """Whether the statement may define *column* as computed from others."""
    return any(map(_GENERATED.search, _find_definitions(statement, column)))


def has_computed_default(statement: str, column: str) -> bool:
    """Whether the statement may give *column* a default that is not a constant."""
    return any(map(_COMPUTED.search, _find_definitions(statement, column)))


def read_sizes(statement: str, column: str) -> tuple[int | None, int | None]:
    """Length and scale of the type in the definition of *column*; None if absent or ambiguous."""
    matches = map(_SIZES.match, _find_definitions(statement, column))
    sizes = {(one[1], one[2]) for one in matches if one is not None}
    if len(sizes) != 1:
        return None, None
    length, scale = sizes.pop()
    return int(length), None if scale is None else int(scale)


def may_be_null(statement: str, column: str) -> bool:
    """Whether old rows certainly have NULL in *column* after a statement that defines it."""
    found = _find_definitions(statement, column)
    return bool(found) and not any(map(_FILLED.search, found))


def _find_definitions(statement: str, column: str) -> frozenset[str]:
    """All texts that may be the definition of *column*, in every reading, without its name.

    Comments, quoted names and quoted texts are blank.  A text may be the definition of another
    column: for ``b`` in ``CHANGE b c INT, ADD b BIGINT`` one is that of ``c``.
    """
    return frozenset(
        _definition(words, at)
        for words, places in _index_names(statement)
        for at in places.get(column.casefold(), ())
    )


@lru_cache(maxsize=4)
def _index_names(statement: str) -> tuple[tuple[Words, Mapping[str, Sequence[int]]], ...]:
    """For each reading its tokens, and by name the indexes at which its definition may begin."""
    found = []
    for words in filter(None, tokenize_statement(statement)):
        places: dict[str, list[int]] = {}
        before = (Token(Kind.SIGN, ""), *words)
        for at, (last, one, after) in enumerate(zip(before, words, words[1:], strict=False), 1):
            is_name = one.kind in (Kind.WORD, Kind.NAME) and last.upper != "."
            if is_name and after.kind is Kind.WORD and after.upper not in _NO_TYPES:
                places.setdefault(one.text.casefold(), []).append(at)
        found.append((words, places))
    return tuple(found)


def _definition(words: Words, at: int) -> str:
    depth, found = 0, list[str]()
    for word in words[at:]:
        depth += (word.upper == "(") - (word.upper == ")")
        if depth < 0 or (depth == 0 and word.upper == ","):
            break
        found.append(_BLANK.get(word.kind, word.text))
    return " ".join(found)
