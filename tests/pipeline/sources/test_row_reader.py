"""Texts are written as JSON as one writer after the other would, whatever stands in them."""

import json
import random

import msgspec
import pyarrow as pa

from pipeline.formats.json_text import quote_text
from pipeline.sources.row_reader import WireTexts, encode_keys, encode_rows

LETTERS = ['"', "\\", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", "/", "é", "😀", "\u2028", "a", " "]


def test_texts_are_escaped_as_one_by_one() -> None:
    chance = random.Random(5)
    for _ in range(300):
        letters = chance.sample(LETTERS, chance.randint(1, len(LETTERS)))
        texts = [
            None
            if chance.random() < 0.1
            else "".join(chance.choices(letters, k=chance.randint(0, 9)))
            for _ in range(chance.randint(0, 12))
        ]
        column = pa.array(["cut off", *texts], pa.string())[1:]

        told = WireTexts(column, quoted=True).fragments.to_pylist()
        keys = encode_keys([column, column]).to_pylist()

        assert told == [msgspec.json.encode(text).decode() for text in texts]
        both = [quote_text(text) if text is not None else "null" for text in texts]
        assert keys == [f"[{text},{text}]" for text in both]


def test_rows_are_objects_under_any_names() -> None:
    names = ['a"b', "%s", "é"]
    columns = [
        WireTexts(pa.array(["1", None]), quoted=False),
        WireTexts(pa.array(["x", None]), quoted=True),
        WireTexts(pa.array(["[2]", "{}"]), quoted=False),
    ]

    rows = encode_rows(names, columns).to_pylist()

    assert [json.loads(row) for row in rows] == [
        {'a"b': 1, "%s": "x", "é": [2]},
        {'a"b': None, "%s": None, "é": {}},
    ]
