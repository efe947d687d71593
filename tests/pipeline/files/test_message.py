import pytest

from pipeline.files.content import (
    BeatHead,
    ColumnsHead,
    FaultHead,
    MessageHead,
    RowsHead,
    decode_head,
    encode_head,
    own_key,
)


@pytest.mark.parametrize(
    "head",
    [
        RowsHead("d.l", "l/2026_11_23/05/a.json", "2026_11_23", "05", 7, 1_000, ("id",)),
        ColumnsHead("d.l", "create", (("id", "bigint"),), ("id",)),
        BeatHead("sluice.heartbeat", "logs", 3),
        FaultHead("d.l", "a.json", "it is not whole"),
    ],
    ids=lambda head: type(head).__name__,
)
def test_a_head_is_read_back_as_it_was_written(head: MessageHead) -> None:
    assert decode_head(encode_head(head)) == head


def test_a_message_without_a_head_is_none() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        decode_head(None)


def test_a_row_is_known_by_where_it_stood_unless_its_log_has_a_key() -> None:
    assert own_key(()) == ("_file", "_line")
    assert own_key(("id",)) == ("id",)
