import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.formats.debezium.mysql import read_table_id
from pipeline.model import ShardId

NAMES = st.text(min_size=1)


@pytest.mark.parametrize(
    ("text", "shard"),
    [
        pytest.param('"shop"."orders"', ShardId("shop", "orders"), id="plain"),
        pytest.param('"fx.dot"."t.t"', ShardId("fx.dot", "t.t"), id="dots"),
        pytest.param('"fx"."we""ird.x`y"', ShardId("fx", 'we"ird.x`y'), id="captured, odd letters"),
        pytest.param('"a"."""."""', ShardId("a", '"."'), id="quotes around a dot"),
    ],
)
def test_f05_an_id_names_one_table_whatever_letters_are_in_it(text: str, shard: ShardId) -> None:
    assert read_table_id(text) == shard
    assert read_table_id(text, ShardId("other", "table")) == shard


@given(database=NAMES, relation=NAMES)
def test_every_id_of_the_table_of_the_source_block_is_that_table(
    database: str, relation: str
) -> None:
    shard = ShardId(database, relation)
    text = ".".join(
        name if name.startswith('"') or name.endswith('"') else '"' + name.replace('"', '""') + '"'
        for name in (database, relation)
    )

    assert read_table_id(text, shard) == shard


@pytest.mark.parametrize("text", ["", "a.b", '"a"', '"a"."b"."c"', '"a"."b"c"', '"a".""', '"a".b'])
def test_what_is_no_id_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="table id"):
        read_table_id(text)
