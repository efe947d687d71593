import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import ShardId, SourcePartition, TopicPartition


@pytest.mark.parametrize(
    ("database", "relation", "text"),
    [
        pytest.param("shop", "orders", "shop.orders", id="plain names stay plain"),
        pytest.param("my.db", "t", '"my.db".t', id="a dot stands in quotes"),
        pytest.param("s", 'we"ird/../<b>', 's."we""ird/../<b>"', id="a quote is doubled"),
        pytest.param("s", "", 's.""', id="an empty name can be seen"),
        pytest.param("größe", "a b", "größe.a b", id="blanks and letters need no quotes"),
    ],
)
def test_a_shard_has_one_text(database: str, relation: str, text: str) -> None:
    assert str(ShardId(database, relation)) == text
    assert ShardId.parse(text) == ShardId(database, relation)


@given(st.text(), st.text())
def test_every_pair_of_names_comes_back(database: str, relation: str) -> None:
    assert ShardId.parse(str(ShardId(database, relation))) == ShardId(database, relation)


@given(*3 * [st.text('ab."', max_size=4)])
def test_tables_of_a_database_are_told_by_how_their_texts_begin(
    database: str, other: str, relation: str
) -> None:
    begun = str(ShardId(database, relation)).startswith(ShardId.beginning(other))

    assert begun == (database == other)


@pytest.mark.parametrize("text", ["", "t", "a.b.c", '"a.b', '"a".b', 'a"b.c', "a..b", ".a.b"])
def test_what_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name"):
        ShardId.parse(text)


@given(st.text().filter(lambda source: "/" not in source), st.text(), st.integers(0))
def test_every_partition_of_a_source_comes_back(source: str, topic: str, partition: int) -> None:
    one = SourcePartition(source, TopicPartition(topic, partition))

    assert SourcePartition.parse(str(one)) == one
