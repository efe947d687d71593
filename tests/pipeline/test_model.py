import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import (
    Order,
    OrderSpan,
    ShardId,
    SourcePartition,
    Table,
    TopicPartition,
    table_name_fault,
)


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


def test_of_a_name_with_many_dots_both_readings_are_shown() -> None:
    fault = table_name_fault("a.b.c.d")

    assert fault == (
        "'a.b.c.d' is not a table name: it has 3 dots; put a name that contains dots in double"
        ' quotes: a."b.c.d" is b.c.d of database a, and "a.b.c".d is d of database a.b.c'
    )
    assert table_name_fault('a."b.c.d"') == table_name_fault('"a.b.c".d') == ""


@given(st.text().filter(lambda source: "/" not in source), st.text(), st.integers(0))
def test_every_partition_of_a_source_comes_back(source: str, topic: str, partition: int) -> None:
    one = SourcePartition(source, TopicPartition(topic, partition))

    assert SourcePartition.parse(str(one)) == one


@pytest.mark.parametrize(
    ("epoch", "epochs"),
    [
        pytest.param(1, (1, 1), id="below both"),
        pytest.param(2, (2, 2), id="that of the lowest"),
        pytest.param(3, (2, 3), id="between them"),
        pytest.param(9, (2, 4), id="above both"),
    ],
)
def test_a_span_within_an_epoch_has_none_above_it(epoch: int, epochs: tuple[int, int]) -> None:
    span = OrderSpan(Order(2, 7, 1), Order(4, 7, 9)).within(epoch)

    assert (span.lowest, span.highest) == (Order(epochs[0], 7, 1), Order(epochs[1], 7, 9))


@pytest.mark.parametrize(
    ("key", "id_column", "written", "ranges", "why"),
    [
        pytest.param(("id",), "id", (), "id", "", id="one integer"),
        pytest.param((), "id", (), "id", "", id="of a source that declares no key"),
        pytest.param(("id", "day"), "id", (), "id", "is not one integer", id="one of two"),
        pytest.param(("day",), None, (), None, "is not one integer", id="no integer"),
        pytest.param(("id",), "id", ("mail",), "id", "", id="a standard writes another column"),
        pytest.param(("id",), "id", ("ID",), None, "key column id is written", id="or the key"),
    ],
)
def test_keys_have_ranges_if_they_are_one_integer_that_no_standard_writes(
    key: tuple[str, ...], id_column: str | None, written: tuple[str, ...],
    ranges: str | None, why: str,
) -> None:  # fmt: skip
    table = Table("t", (), key, id_column).with_standards(written)

    assert table.id_column == ranges
    assert why in table.no_ranges
    assert bool(why) == bool(table.no_ranges)
