from pipeline.files.content import ColumnsHead, grow_columns

KNOWN = ColumnsHead("d.l", "create", (("id", "bigint"), ("_file", "string")), ("_file", "_line"))


def test_the_first_file_tells_them_and_where_a_row_stood_is_added() -> None:
    told = grow_columns("d.l", None, {"id": "bigint", "_file": "double"}, ())

    assert told is not None
    assert told.kind == "create"
    assert told.columns == (
        ("id", "bigint"),
        ("_file", "string"),
        ("_line", "bigint"),
        ("_day", "date"),
        ("_hour", "int"),
    )
    assert told.key == ("_file", "_line")


def test_what_is_new_comes_behind_and_what_is_known_keeps_its_type() -> None:
    told = grow_columns("d.l", KNOWN, {"id": "string", "new": "double"}, ())

    assert told is not None
    assert (told.kind, told.columns) == ("alter", (*KNOWN.columns, ("new", "double")))


def test_nothing_new_is_not_told_and_another_key_is() -> None:
    assert grow_columns("d.l", KNOWN, {"id": "bigint"}, ()) is None

    told = grow_columns("d.l", KNOWN, {"id": "bigint"}, ("id",))
    assert told is not None
    assert told.key == ("id",)
