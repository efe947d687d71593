"""Regular expressions of a suite: RE2 reads them in memory, Java in Spark."""

import pytest

from pipeline.patterns import explain_different, explain_unreadable


@pytest.mark.parametrize("pattern", [r"^(?!\.)a", r"(?<=a)b", r"(a)\1", r"a\Z", "(a"])
def test_a_pattern_that_re2_cannot_read_is_explained(pattern: str) -> None:
    assert f"RE2 cannot read {pattern!r}: " in explain_unreadable(pattern)
    assert explain_unreadable(r"^a\z") == ""


@pytest.mark.parametrize(
    ("pattern", "part", "fix"),
    [
        ("^[[:digit:]]+$", "[[:digit:]]", "`[0-9]`"),
        ("[[:alpha:]_-]", "[[:alpha:]_-]", "`[A-Za-z_-]`"),
        ("[[:^digit:]]", "[[:^digit:]]", "`[^0-9]`"),
        ("^[a-z&&[^d]]+$", "[a-z&&[^d]", "`&` once"),
        ("[a[b]", "[a[b]", r"`\[`"),
        ("[][]", "[][]", r"`\[`"),
        ("(?P<n>a)", "(?P<n>", "`(`"),
        ("(?<n_1>a)", "(?<n_1>", "`(`"),
        (r"\p{Greek}", r"\p{Greek}", r"`\p{L}`"),
        (r"[^\PC]", r"\PC", "but for `C`"),
        (r"\p{^L}", r"\p{^L}", r"`\p{L}`"),
        (r"\C", r"\C", "`.`"),
        (r"a\v", r"\v", r"`\x0B`"),
        (r"[\v]", r"\v", r"`\x0B`"),
        (r"\bcaf\b", r"\b", "`(^|[^0-9A-Za-z_])`"),
        (r"\012", r"\0", r"`\x0A`"),
        ("{a", "{", r"`\{`"),
        ("a{,2}", "{", r"`\{`"),
        ("(?m)^a$", "(?m)", r"`(^|\n)`"),
        ("(?U:a+)", "(?U:", "without `U`"),
        ("a(?s)+", "(?s)+", "without the repetition"),
        ("(?i)\u00e9", "(?i)", "both characters"),
        (r"(?s-i)a(?i:\xe9)", "(?i:", "both characters"),
    ],
)
def test_what_java_reads_otherwise_is_named_with_what_to_write(
    pattern: str, part: str, fix: str
) -> None:
    said = explain_different(pattern)

    assert explain_unreadable(pattern) == ""
    assert f"reads `{part}` in `{pattern}` otherwise; write " in said
    assert fix in said.rpartition("; write ")[2]


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d+(\.\d{1,2})?$",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}\z",
        r"\A[\w-.&\[\]\-]+$",
        r"^\Q[[:digit:]] (?P<\E$",
        "[]a]|[^]b]",
        r"[(?P<{\\]",
        r"^\[\[:digit:\]\]\{",
        r"^\p{Lu}[\pL\p{Nd}]*$",
        "(?is)^abc.(?-i:x)",
        "(?<year>2[0-9]{3})",
        r"\x41\x{e9}[\t\n]",
        "^[:digit:]$",
        "\u00e9\u03a9",
    ],
)
def test_what_both_read_alike_is_accepted(pattern: str) -> None:
    assert explain_unreadable(pattern) == ""
    assert explain_different(pattern) == ""
