"""Words that readers stumble over: their number in code and docs may only fall."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("pipeline", "checks", "alerts", "monitor", "demo")
WORDS = (
    *("nobody", "anew", "told", "tells", "lacks", "ails", "bears", "vouch", "vouches", "beat"),
    *("beats", "besides", "thereby", "whoever", "whatever", "heed", "mend", "keeper", "letters"),
    *("torn", "standstill", "once more", "of whom", "of which", "is none", "put right"),
    *("puts right", "in hand", "by itself", "has come past"),
)
DENIED = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
CODE_SPAN = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)

IN_CODE = {
    "ails": 7,
    "anew": 83,
    "bears": 9,
    "beat": 2,
    "beats": 12,
    "besides": 6,
    "by itself": 34,
    "has come past": 6,
    "heed": 1,
    "in hand": 8,
    "is none": 163,
    "keeper": 1,
    "lacks": 34,
    "letters": 71,
    "mend": 2,
    "nobody": 245,
    "of which": 136,
    "of whom": 2,
    "once more": 1,
    "put right": 15,
    "standstill": 2,
    "tells": 251,
    "told": 341,
    "torn": 4,
    "whatever": 67,
    "whoever": 34,
}
IN_DOCS = {
    "by itself": 3,
    "in hand": 3,
    "is none": 3,
    "lacks": 2,
    "letters": 5,
    "nobody": 3,
    "of which": 4,
    "tells": 11,
    "told": 11,
    "whatever": 3,
}


def test_denied_words_in_messages_and_docstrings_only_become_fewer() -> None:
    assert _counted(_sentences()) == IN_CODE, "fewer? Lower the number. More? Use another word"


def test_denied_words_in_docs_only_become_fewer() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    texts = (page.read_text("utf-8") for page in pages)

    assert _counted(texts) == IN_DOCS, "fewer? Lower the number. More? Use another word"


def _counted(texts: Iterator[str]) -> dict[str, int]:
    found = (word.lower() for text in texts for word in DENIED.findall(CODE_SPAN.sub("", text)))
    return dict(sorted(Counter(found).items()))


def _sentences() -> Iterator[str]:
    """Literals of more than one word: docstrings and messages, not keys and names."""
    for layer in LAYERS:
        for file in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and " " in text:
                    yield text
