"""What patterns of Java's let in, as Java 17 lets it in; the others are refused."""

import re

import pytest
from pyspark.sql import SparkSession

from pipeline.collectors.connect.table_filter import compile_patterns

NAMES = ("d.t", "D.T", "d.u", "d.é", "d.É", "d.ß", "d.K", "d.1", "d.*", "é.t")
BREAKS = ("\n", "\r", "\r\n", "\x85", "\u2028", "\u2029")  # lines end with them in Java
LIKE_BREAKS = ("\x0b", "\x0c", "\x1c", "\x1e")  # and with these in Python's splitlines


READ = [
    pytest.param(r"d\.t", "d.t D.T", id="letters of any size"),
    pytest.param(r"d\.é", "d.é", id="but ASCII's alone"),
    pytest.param(r"d\.\w", "d.t D.T d.u d.K d.1", id="letters of ASCII"),
    pytest.param(r"\W\.t", "é.t", id="the others are none"),
    pytest.param(r"d\.++.*+", "d.t D.T d.u d.é d.É d.ß d.K d.1 d.*", id="possessive"),
    pytest.param(r"(?>d|é)\.t", "d.t D.T é.t", id="atomic"),
    pytest.param(r"\Qd.*\E", "d.*", id="quoted"),
    pytest.param(r"d\.\Q*", "d.*", id="quoted to the end"),
    pytest.param(r"(?<x>d)\.(?!\k<x>)[tu]\z", "d.t D.T d.u", id="a named group"),
    pytest.param(r"\p{Alpha}\.[\p{Digit}*]", "d.1 d.*", id="classes"),
    pytest.param(r"d\.\P{Alnum}", "d.é d.É d.ß d.*", id="what is in none"),
    pytest.param(r"(?-i:d)\.[^\p{Alpha}\d]", "d.é d.É d.ß d.*", id="in one size"),
    pytest.param(r"\Ad\.\x74\Z", "d.t D.T", id="ends, and a letter by its number"),
    pytest.param(r"d[.]\*", "d.*", id="an escaped sign"),
    pytest.param(r"(d)\.\1?[tu]", "d.t D.T d.u", id="a group by its number"),
]


@pytest.mark.parametrize(("pattern", "let_in"), READ)
def test_a_pattern_lets_in_what_java_lets_in(pattern: str, let_in: str) -> None:
    (found,) = compile_patterns([pattern])

    assert [name for name in NAMES if found.fullmatch(name)] == let_in.split()


BROKEN = [
    *(f"a{one}{end}" for one in (*BREAKS, *LIKE_BREAKS) for end in ("", "b")),
    *("a", "ab", "a\n\n", "a\n\r"),
]
LIKE = [f"a{one}{end}" for one in LIKE_BREAKS for end in ("", "b")]
BEFORE_END = [name for name in BROKEN if name not in ("a", *(f"a{one}" for one in BREAKS))]
READ_BROKEN = [
    pytest.param(r"a.b", LIKE[1::2], id="dot"),
    pytest.param(r"a.*", [*LIKE, "a", "ab"], id="dots"),
    pytest.param(r"(?s)a.*", BROKEN, id="dots of all"),
    pytest.param(r"(?is)A.*", BROKEN, id="dots of all, in any case"),
    pytest.param(r"a(?-s:.+)b", LIKE[1::2], id="dots in a group"),
    pytest.param(r"a[^x]+", [name for name in BROKEN if name != "a"], id="a set"),
    pytest.param(r"a[.]b?|a\.b?|a\Q.\Eb?", [], id="a dot itself"),
    pytest.param(r"(?!a$)[^x]*", BEFORE_END, id="an end, which may come before a break"),
    pytest.param(r"(?!a\Z)[^x]*", BEFORE_END, id="the same by a letter"),
    pytest.param(r"(?!a\z)[^x]*", [name for name in BROKEN if name != "a"], id="the very end"),
    pytest.param(r"a[^x]$\n", ["a\n\n"], id="an end, and the break"),
]


@pytest.mark.parametrize(("pattern", "let_in"), READ_BROKEN)
def test_a_pattern_takes_line_breaks_as_java_takes_them(pattern: str, let_in: list[str]) -> None:
    (found,) = compile_patterns([pattern])

    assert {name for name in BROKEN if found.fullmatch(name)} == set(let_in)


@pytest.mark.spark  # for its JVM
def test_java_lets_in_the_same(spark: SparkSession) -> None:
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]

    for one in READ:
        pattern = java.compile(one.values[0], java.CASE_INSENSITIVE)
        let_in = [name for name in NAMES if pattern.matcher(name).matches()]
        assert let_in == str(one.values[1]).split(), one.values[0]
    for one in READ_BROKEN:
        pattern = java.compile(one.values[0], java.CASE_INSENSITIVE)
        taken = {name for name in BROKEN if pattern.matcher(name).matches()}
        assert taken == {*one.values[1]}, one.values[0]  # type: ignore[misc]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"d\.[a-z&&[^t]]", id="a set less another"),
        pytest.param(r"d\.[a[tu]]", id="a set and another"),
        pytest.param(r"d\.[]t]", id="a set that begins with a bracket"),
        pytest.param(r"d\.[\P{Alpha}t]", id="a set with what is in none"),
        pytest.param(r"d\.[\Qt\E]", id="quoted in a set"),
        pytest.param(r"d\.[t", id="a set without an end"),
        pytest.param(r"d\.\p{L}", id="letters of Unicode"),
        pytest.param(r"\bd\.t", id="an end of a word: Java goes by Unicode there"),
        pytest.param(r"d\.\h", id="blanks"),
        pytest.param(r"d\.\v", id="ends of lines, which are one sign in Python"),
        pytest.param(r"d\.\0164", id="a number in eights"),
        pytest.param(r"(d)\123", id="a group and figures: a number in eights in Python"),
        pytest.param(r"(d)\11", id="a group and a figure: the eleventh in Python"),
        pytest.param(r"d\.\x{74}", id="a letter by its number in braces"),
        pytest.param(r"(?u)d\.t", id="letters of any size in Unicode"),
        pytest.param(r"(?x)d\.t # e", id="blanks that do not count"),
        pytest.param(r"d\.(?P<x>t)", id="Python's group"),
        pytest.param(r"(?m)^d\.t$", id="lines of a name"),
        pytest.param(r"(?s:d.t)", id="dots of all in a group"),
        pytest.param(r"(?s)d(?-s:.)t", id="dots of all, but in a group"),
        pytest.param(r"d\.(?i)t", id="from there on in any size"),
        pytest.param(r"d\.(?<=d{1,2}\.)t", id="a look behind that varies"),
        pytest.param("d.(t", id="none in either"),
        pytest.param("d.t\\", id="an escape of nothing"),
        pytest.param("d{99999999999}", id="a number that is too large"),
    ],
)
def test_what_cannot_be_read_here_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        compile_patterns([pattern])


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"shop\.([a-z_]+)+!", id="a repeat of a repeat"),
        pytest.param(r"(a*)*", id="of nothing"),
        pytest.param(r"(?:foo|fo{2})*x", id="a repeat of several"),
        pytest.param(r"(a?b?)+", id="a repeat of what may be there"),
        pytest.param(r"((a{0,30}){0,30}){0,30}", id="with bounds"),
        pytest.param(r"(?:(?:a?b?){8}){8}", id="few times each"),
        pytest.param("(a|a)?" * 40, id="one after another"),
        pytest.param(".*a" * 5, id="too many that share a name"),
        pytest.param(r"(?=(a+)+b)a", id="in a look ahead"),
        pytest.param(r"(?>(a+)+)b", id="in an atomic group"),
        pytest.param("(" * 500 + "a" + ")" * 500, id="groups in groups"),
    ],
)
def test_a_pattern_that_may_take_hours_is_refused_and_named(pattern: str) -> None:
    with pytest.raises(re.error) as told:
        compile_patterns([pattern])

    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}..."
    assert str(told.value).startswith(f"{shown!r}: ")


@pytest.mark.parametrize(
    "pattern",
    [
        r"shop\..*",
        r"(a|b)\.t_\d+",
        r"db[.](?:x|y).*",
        r".*a.*\..*b.*",
        r"(public|crm)\.(orders|items)(_[0-9]{4}_[0-9]{2})?(_old|_new)?",
        r"shop\.orders(_\d+)?",
        r"\w{1,64}\.(?:a|b)*",
        r"(?:(?!tmp)\w)+\.x",
        "".join(rf"(?!(?:d{n}\.\w+_\d+)$)" for n in range(20)) + r"(?:crm\..*)",
    ],
)
def test_a_pattern_as_people_write_them_is_read(pattern: str) -> None:
    (found,) = compile_patterns([pattern])

    assert found.fullmatch("!" * 130) is None


def test_many_patterns_that_are_slow_together_are_refused() -> None:
    ordinary = [rf"shop_{n}\..*_tmp.*" for n in range(500)]

    assert len(compile_patterns(ordinary)) == 500
    with pytest.raises(re.error, match="100 patterns"):
        compile_patterns(f".*a.*b.*c.*{n}" for n in range(100))
