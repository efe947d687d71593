"""What adds a table's rows up in Postgres, and which tables a plan reads whole for that."""

from typing import Any

from pipeline.aggregates import AggregatedColumn
from pipeline.model import Shard
from pipeline.sources.postgres.source import aggregate_sql, find_scanned_tables
from pipeline.sources.postgres.types import PostgresColumn

PARTED: dict[str, Any] = {
    "Node Type": "Aggregate",
    "Plans": [
        {
            "Node Type": "Append",
            "Plans": [
                {
                    "Node Type": "Seq Scan",
                    "Schema": "public",
                    "Relation Name": "o_1",
                    "Filter": "((made >= $1) AND (made < $2))",
                    "Plan Rows": 1,
                },
                {"Node Type": "Index Scan", "Schema": "public", "Relation Name": "o_2"},
                {"Node Type": "Seq Scan", "Schema": "public", "Relation Name": "o_3"},
            ],
        }
    ],
}


def test_who_looks_for_few_rows_without_an_index_reads_them_all() -> None:
    assert list(find_scanned_tables(PARTED)) == [("public", "o_1")]


def test_an_oid_is_added_up_as_the_number_that_it_is() -> None:
    columns = [
        PostgresColumn("made", "TIMESTAMP", position=1),
        PostgresColumn("owner", "OID", position=2),
    ]

    fields = [AggregatedColumn("owner")]
    made = aggregate_sql(columns, Shard("shop", "public.o"), "made", fields, "ONLY o")

    assert 'sum("owner"::bigint) AS s0' in made
