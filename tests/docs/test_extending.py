"""What docs/extending.md shows is what stands in the files, and it works as it says."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from alerts import channel as channels
from alerts.model import Message
from checks import run as probes
from checks.model import Outcome
from examples.few_rows import FewRows, Rows
from examples.json_lines import JsonLines
from examples.line_file import LineFile
from examples.parquet_versions import ParquetVersions
from examples.trimmed import Trimmed
from monitor.config.file import parse_config
from pipeline import collectors, formats, plugins, sources
from pipeline.build import open_table_format, open_transport
from pipeline.changelog.transactions import LogMemory, TransactionReader
from pipeline.invariants.invariant import IntendedRows, LandedDay
from pipeline.model import Op, Order, Shard, ShardId, Table
from pipeline.readings import Transaction
from tests.alerts.kit import message
from tests.builders.change_log import change, place, read_table, write_changes
from tests.docs.markdown import ROOT, blocks
from tests.toy.copy import FileCopy

PAGE = ROOT / "docs" / "extending.md"
TOY = ROOT / "tests" / "toy" / "sluice.yaml"
SEAMS = {
    "source": (sources, "SOURCE", "tests.toy.source"),
    "collector": (collectors, "COLLECTOR", "tests.toy.collector"),
    "format": (formats, "FORMAT", "tests.toy.format"),
}


def test_each_block_of_code_is_the_file_it_names() -> None:
    found = {code.partition("\n")[0]: code.partition("\n")[2] for code in blocks(PAGE, "python")}

    assert sorted(found) == [
        "# examples/country_code.py",
        *("# examples/few_rows.py", "# examples/json_lines.py", "# examples/line_file.py"),
        "# examples/trimmed.py",
    ]
    assert all(text == (ROOT / name[2:]).read_text("utf-8") for name, text in found.items())


def test_the_config_of_the_toy_is_the_one_that_its_test_runs() -> None:
    assert blocks(PAGE, "yaml")[0] == TOY.read_text("utf-8")


def test_each_seam_of_the_table_has_its_protocol_and_its_name() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| `(.+?)` \| `?([A-Z]*)", PAGE.read_text("utf-8"), re.M)

    assert [seam for seam, _, _ in rows] == [
        *("source", "collector", "format", "probe", "channel", "transport", "table format"),
        *("copy", "standard", "invariant"),
    ]
    assert [protocol for _, protocol, _ in rows if not (ROOT / protocol).is_file()] == []
    for seam, _, name in rows[:3]:
        folder, expected, module = SEAMS[seam]
        assert name == expected
        assert plugins.find_class(folder, name, module).__module__ == module


def test_the_other_plug_ins_are_found_by_the_config_and_work(
    tmp_path: Path,
) -> None:
    sections = [yaml.safe_load(text) for text in blocks(PAGE, "yaml")[1:]]
    minimal = {
        "lake": "lake",
        "sources": [
            {
                "name": "s",
                "host": "h",
                "port": 1,
                "user": "u",
                "prefix": "s",
                "collector": {"url": "http://c", "connector": "s"},
            }
        ],
    }
    whole = {key: value for part in (minimal, *sections) for key, value in part.items()}

    config = parse_config(yaml.safe_dump(whole), tmp_path / "sluice.yaml")

    (plan,) = [one for one in config.plans if one.name == "examples.few_rows"]
    assert plan.probe == FewRows(least=1000)
    assert plan.probe.judge(Rows(999), ()).outcome is Outcome.FAIL
    assert plan.probe.judge(Rows(1000), ()).outcome is Outcome.PASS
    assert open_transport(config.settings) == JsonLines("/var/spool/messages")
    assert open_table_format(config.settings) == ParquetVersions(None, "snappy")
    assert isinstance(config.channels["diary"], LineFile)
    assert [one.copy for one in config.copied] == [FileCopy("/var/spool/copy.json")]
    assert config.settings.demanded("shop.orders") == (("examples.trimmed", Trimmed(("email",))),)
    assert [np.array(one.rows).tolist() for one in Trimmed(("email",)).breaches(intended())] == [
        [False, True, False]
    ]
    assert probes.find_probe("examples.few_rows") is FewRows
    assert channels.find_channel("examples.line_file") is LineFile


def intended() -> IntendedRows:
    rows = pa.table({"id": [1, 2, 3], "email": ["a", " a", None]})
    return IntendedRows(
        "shop.orders",
        ("id",),
        rows,
        batches=np.zeros(3, np.int64),
        there=0,
        changed=0,
        emptied=False,
        standing=lambda _: np.zeros(3, np.bool_),
        before=lambda _: rows.slice(0, 0),
        elsewhere=lambda _, values: pa.nulls(len(values), pa.bool_()),
        deleted=lambda names: rows.slice(0, 0).select(list(names)),
        landed=lambda _, day: LandedDay(None, rows.slice(0, 0)),
    )


def test_the_end_of_a_transaction_is_counted_as_it_is_shown(tmp_path: Path) -> None:
    (shown,) = blocks(PAGE, "json")
    told = json.loads(shown)["data_collections"]
    assert sum(one["event_count"] for one in told) == json.loads(shown)["event_count"]
    tx = {"id": "one", "total_order": None}
    about: dict[str, Any] = {"table": None, "shard": None, "topic": "shop", "tx": tx}
    rows = [
        change(Op.CREATE, order=place(Order(0, 1, pos)), tx=tx, shard=shard, table=shard)
        for pos, shard in enumerate(["shop.orders"] * 2 + ["shop.users"])
    ]
    write_changes(
        tmp_path, 0, [change(Op.BEGIN, **about), *rows, change(Op.END, after=shown, **about)]
    )
    lake = read_table(str(tmp_path))
    reader = TransactionReader(lake, "main", LogMemory())

    tables = [Table(one["data_collection"], (_shard(one["data_collection"]),)) for one in told]
    found = [transaction for table in tables for transaction in reader.of(table, range(1), {})]

    assert found == [Transaction("one", 3, 2, 0), Transaction("one", 1, 1, 0)]


def test_the_channel_writes_a_line_a_message(tmp_path: Path) -> None:
    told: list[Message] = [message(), message()]

    LineFile(str(tmp_path / "lines")).send(told, datetime(2026, 1, 2, tzinfo=UTC))

    assert len((tmp_path / "lines").read_text().splitlines()) == 2


def _shard(text: str) -> Shard:
    return Shard("shop", str(ShardId.parse(text)))
