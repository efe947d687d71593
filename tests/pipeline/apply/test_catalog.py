from pathlib import Path

from pipeline.model import Op
from pipeline.sources.mysql.column import MySqlColumn as Column
from tests.pipeline.hand_lake import NAME, HandLake, row


def test_a_key_that_is_spelled_in_two_ways_holds_the_table(tmp_path: Path) -> None:
    """A snapshot sends ``d,e``, the log a comma with a backslash before it: two keys of one row."""
    label = Column("id", "ENUM", values=("d,e", "x"))
    lake = HandLake(tmp_path, columns=(label, NAME))
    lake.land(row(Op.CREATE, 10, 1, "a"))

    hold = lake.apply().hold

    assert hold is not None
    assert hold.reason == "key_kind"
    assert "key column id of db.t" in hold.detail
