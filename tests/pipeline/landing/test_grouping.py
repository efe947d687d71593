import pyarrow as pa

from pipeline.landing.order_check import grouped

ROWS = pa.table(
    {
        "topic": pa.chunked_array([["t", "u"], ["t", None, "u", "t", None]]),
        "partition": pa.chunked_array([[0, 0, 1, 0], [0, 0, 0]]),
    }
)


def test_rows_of_the_same_values_share_a_number_null_among_them() -> None:
    codes, firsts = grouped(ROWS, ["topic", "partition"])

    assert codes.tolist() == [0, 1, 2, 3, 1, 0, 3]
    assert firsts.tolist() == [0, 1, 2, 3]


def test_no_rows_have_no_groups() -> None:
    codes, firsts = grouped(ROWS.slice(0, 0), ["topic", "partition"])

    assert (len(codes), len(firsts)) == (0, 0)
